"""The public sets -> what the bundled models learn from, and what chooses them.

Only splits whose terms allow training go in (`load_dataset` marks them, and the two sources of the translations that do
not are left out by the set `parallel`). Of everything that is read here, sentences that stand in an evaluation set are
removed, but for the official training splits of STS and NLI, which stay as they are: how many rows of an evaluation set
share a sentence with those is counted in the model's card (`overlap`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from munjang.data import DATASETS, Examples, join, load_dataset, nli_triplets
from munjang.data.normalise import normalise, same_key
from munjang.errors import DataError
from munjang.recipes.bundled.settings import BiPlan
from munjang.recipes.distilling.options import DistillOptions, Source
from munjang.recipes.distilling.sources import Taken, read_sources
from munjang.recipes.options import SetOptions

NLI_EN = (("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev"))
# Whose sentences are taken out of plain text; the bitext and retrieval sets among them.
EVALUATED = (
    ("korsts", "dev"),
    ("korsts", "test"),
    ("klue-sts", "dev"),
    ("stsb", "dev"),
    ("stsb", "test"),
    ("tatoeba", "test"),
    ("klue-nli", "dev"),
    ("question-pair", "test"),
    ("ynat", "dev"),
    ("ynat", "test"),
    ("nsmc", "test"),
    *((f"sts{year}", "test") for year in range(12, 17)),
)
_LONGEST = 400  # characters of a plain sentence


@dataclass(frozen=True)
class Material:
    """What the stages take."""

    translations: Examples  # pairs: English, Korean; rows as often as their source counts
    plain: list[str]  # Korean sentences without a translation
    nli: Mapping[str, Examples]  # labelled, by language
    sts: Mapping[str, Examples]  # scored; 'korsts-stsb' crosses the languages
    questions: Examples  # pairs of questions that ask the same
    selection: tuple[Examples, ...]  # scored: these choose
    removed: int  # plain sentences that an evaluation set has too
    rows: Mapping[str, int]  # of every set, for the card
    every: int = 1  # of a small trial: the distance of the sentences that are taken into the pool

    def triplets(self, language: str, seed: int) -> Examples:
        """NLI as (premise, entailment, contradiction), in both directions."""
        found = nli_triplets(self.nli[language], both_directions=True, without_negative="borrow", seed=seed)
        return replace(found, name=f"nli-{language}")

    def scored(self, *names: str, name: str = "sts") -> Examples:
        """Several scored sets as one."""
        return join([self.sts[one] for one in names or tuple(self.sts)], name=name)

    def pool(self) -> list[str]:
        """Different sentences that silver pairs are found among: both languages, no software text."""
        texts: list[str] = []
        for one in (*self.sts.values(), *self.nli.values(), self.questions):
            texts += one.texts()
        return list(dict.fromkeys([*texts, *self.plain]))[:: self.every]


def read_material(data: Path, plan: BiPlan, *, seed: int = 0) -> Material:
    """Read everything, from the folder of the public sets."""
    known = _evaluated(data)
    taken = _translations(data, plan)
    translations = _some(join([one.examples.take(one.rows(seed)) for one in taken], name="translations"), plan)
    klue = load_dataset("klue-sts", "train", data)
    held = min(plan.selection_rows, len(klue) // 4)
    klue, slice_ = klue.split(held / len(klue), seed=1)  # the same slice whatever the seed
    korsts, stsb = load_dataset("korsts", "train", data), load_dataset("stsb", "train", data)
    sts = {"korsts": korsts, "klue-sts": klue, "stsb": stsb}
    crossed = _crossed(korsts, stsb)
    if crossed is not None:
        sts["korsts-stsb"] = crossed
    nli_ko = _some(load_dataset("klue-nli", "train", data), plan)
    nli_en = _some(join([load_dataset(name, split, data) for name, split in NLI_EN], name="nli-en"), plan)
    plain, removed = _plain(data, plan, known, nli_ko, seed)
    rows = {one.name: len(one) for one in (*(one.examples for one in taken), *sts.values(), nli_ko, nli_en)}
    return Material(
        translations=translations,
        plain=plain,
        nli={"ko": replace(nli_ko, name="nli-ko"), "en": nli_en},
        sts=sts,
        questions=_same_questions(load_dataset("question-pair", "train", data)),
        selection=(
            load_dataset("korsts", "dev", data),
            replace(slice_, name="KLUE-STS slice"),
            load_dataset("stsb", "dev", data),
        ),
        removed=removed,
        rows=rows | {"plain": len(plain)},
        every=round(1 / plan.rows),
    )


def _some(examples: Examples, plan: BiPlan) -> Examples:
    """All rows; of a small trial, some from everywhere."""
    return examples if plan.rows == 1 else examples.take(np.arange(0, len(examples), round(1 / plan.rows)))


def _evaluated(data: Path) -> set[str]:
    found: set[str] = set()
    for name, split in EVALUATED:
        with contextlib.suppress(DataError):  # a set that is not there cannot be measured on either
            found.update(map(normalise, load_dataset(name, split, data).texts()))
    return found


def _translations(data: Path, plan: BiPlan) -> list[Taken]:
    """The sources of `parallel`, each with its weight; sources that a small file has not are not missed."""
    options = DistillOptions(folder=data, sets=SetOptions(folder=str(data)))
    taken = read_sources(Source("parallel"), options)
    return [replace(one, weight=plan.source_weights.get(one.name, 1.0)) for one in taken]


def _crossed(korean: Examples, english: Examples) -> Examples | None:
    """KorSTS is STSb in Korean, row by row: Korean on one side, English on the other."""
    if len(korean) != len(english):
        return None
    assert korean.targets is not None
    assert english.targets is not None
    same = np.flatnonzero(np.abs(korean.targets - english.targets) < 1e-4)
    if len(same) < 0.99 * len(korean):
        return None
    ko, en = korean.take(same), english.take(same)
    half = np.arange(len(same)) % 2 == 0
    first = [k if h else e for k, e, h in zip(ko.columns["a"], en.columns["a"], half, strict=True)]
    second = [e if h else k for k, e, h in zip(ko.columns["b"], en.columns["b"], half, strict=True)]
    return Examples("korsts-stsb", "scored", {"a": first, "b": second}, ko.targets)


def _same_questions(examples: Examples) -> Examples:
    """Pairs of questions that ask the same, each different from the other."""
    assert examples.targets is not None
    same = examples.labels.index("same")
    rows = [
        (a, b)
        for a, b, label in zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True)
        if label == same and same_key(a) != same_key(b)
    ]
    return Examples("questions", "pairs", {"anchor": [a for a, _ in rows], "positive": [b for _, b in rows]})


def _plain(data: Path, plan: BiPlan, known: set[str], nli: Examples, seed: int) -> tuple[list[str], int]:
    """Korean sentences without a translation, each once, and how many were taken out."""
    reviews = load_dataset("nsmc-reviews", "train", data).columns["text"]
    chosen = np.random.default_rng(seed).permutation(len(reviews))[: plan.reviews]
    sets: list[Iterable[str]] = [nli.texts(), load_dataset("klue-sts", "train", data).texts()]
    sets += [load_dataset(name, "train", data).texts() for name in ("korsts", "ynat", "chatbot", "question-pair")]
    sets.append(reviews[row] for row in np.sort(chosen).tolist())
    found = dict.fromkeys(text.strip() for texts in sets for text in texts if 4 <= len(text.strip()) <= _LONGEST)
    kept = [text for text in found if normalise(text) not in known]
    return kept[:: round(1 / plan.rows)], len(found) - len(kept)


def licences() -> dict[str, str]:
    """The terms of every set that the models learn from."""
    used = ("parallel", "korsts", "klue-sts", "stsb", "klue-nli", "snli", "mnli", "ynat", "chatbot", "question-pair")
    return {DATASETS[name].title: DATASETS[name].licence for name in used} | {"NSMC reviews": "CC0"}
