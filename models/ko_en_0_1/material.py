"""The public sets -> what the bundled models learn from, and what chooses them.

Only splits whose terms allow training go in (`load_dataset` marks them, and the two sources of the translations that do
not are left out by the set `parallel`). From plain text, translations, question pairs and the dictionary every text is
removed that stands in an evaluation set of `EVALUATED`. The official training splits of STS and NLI stay as they are,
and so do sentences of STS12-16, of which STSb train is a selection, and of ParaKQC, of which KLUE-STS train is one: how
many rows of an evaluation set share a sentence with training text is counted in the model's card (`overlap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.ko_en_0_1.calibrating import question_parts
from models.ko_en_0_1.passages import HANGUL, Unit
from models.ko_en_0_1.settings import BiPlan
from munjang.data import DATASETS, Examples, join, load_dataset, nli_triplets
from munjang.data.datasets import find_files
from munjang.data.overlaps import normalise, same_key
from munjang.errors import DataError
from munjang.recipes.distilling.options import DistillOptions, Source
from munjang.recipes.distilling.sources import Taken, read_sources
from munjang.recipes.options import SetOptions

NLI_EN = (("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev"))
# Whose sentences are taken out of plain text, translations, question pairs and the dictionary.
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
)
# Whose pairs are never labelled by a model to be learned from.
SCORED = (
    ("korsts", "test"),
    ("klue-sts", "dev"),
    ("stsb", "test"),
    *((f"sts{year}", "test") for year in range(12, 17)),
)
_TIMES = 2  # rows of `evenly` for every row there is
_LONGEST = 400  # characters of a plain sentence


@dataclass(frozen=True)
class Material:
    """What the stages take."""

    translations: Examples  # pairs: English, Korean; rows as often as their source counts
    plain: list[str]  # Korean sentences without a translation
    nli: Mapping[str, Examples]  # labelled, by language
    sts: Mapping[str, Examples]  # scored; 'korsts-stsb' crosses the languages
    questions: Examples  # pairs of questions that ask the same
    dictionary: Examples  # pairs: English words, what they mean
    selection: tuple[Examples, ...]  # scored: these choose
    evaluation: tuple[Examples, ...]  # scored: their pairs are never silver ones; nothing else is taken of them
    removed: int  # plain sentences that an evaluation set has too
    rows: Mapping[str, int]  # of every set, for the card
    other: Mapping[str, str]  # English -> Korean: sentences of the pool that are there in both languages
    every: int = 1  # of a small trial: the distance of the sentences that are taken into the pool
    bands: int = 1  # of scores, each of which is learned equally often (`graded`)

    def triplets(self, language: str, seed: int) -> Examples:
        """NLI as (premise, entailment, contradiction), in both directions."""
        found = nli_triplets(self.nli[language], both_directions=True, without_negative="borrow", seed=seed)
        return replace(found, name=f"nli-{language}")

    def scored(self, *names: str, name: str = "sts") -> Examples:
        """Several scored sets as one."""
        return join([self.sts[one] for one in names or tuple(self.sts)], name=name)

    def graded(self) -> Examples:
        """All scored rows to learn from, each set with as many of every band of scores (`evenly`).

        A third of KLUE-STS train has next to no likeness at all, where few doubts are left to learn from.
        """
        return join([evenly(one, self.bands) for one in self.sts.values()], name="sts")

    def pool(self) -> list[str]:
        """Different sentences that silver pairs are found among, no software text; in English where there is both.

        Labels of English pairs are better, and hold for the Korean ones too (`silver.in_other_languages`).
        """
        texts: list[str] = list(self.other)
        for one in (*self.sts.values(), *self.nli.values(), self.questions):
            texts += one.texts()
        known = set(self.other.values())
        return [text for text in dict.fromkeys([*texts, *self.plain]) if text not in known][:: self.every]

    def judged(self) -> npt.NDArray[np.bool_]:  # [pool]
        """Of every sentence of the pool, whether people scored pairs with it."""
        texts = set(self.scored().texts())
        return np.array([text in texts for text in self.pool()])

    def units(self) -> tuple[list[Unit], list[Unit], list[Unit]]:
        """What passages are put together of: translated sentences, Korean ones, English ones.

        No sentence is in two of them, and none that asks for another: a passage with it would answer the question too.
        """
        used: set[str] = set()
        translated: list[Unit] = []
        for pair in dict.fromkeys(zip(*self.translations.columns.values(), strict=True)):
            if used.isdisjoint(pair):
                translated.append(Unit(pair))
                used.update(pair)
        free = {text: None for text in self.plain if text not in used}
        korean, english = self._entailed("ko"), self._entailed("en")
        asking = {text: tuple(one for one in korean.get(text, ()) if one in free and one != text) for text in free}
        asked = set(chain.from_iterable(asking.values()))
        plain = [Unit((text,), found) for text, found in asking.items() if text not in asked]
        others = [
            Unit((text,), tuple(one for one in found if one not in used and one not in english))
            for text, found in english.items()
            if text not in used
        ]
        return translated, plain, others

    def _entailed(self, language: str) -> dict[str, list[str]]:
        """Premises with what they entail."""
        examples = self.nli[language]
        assert examples.targets is not None
        found: dict[str, list[str]] = {}
        right = examples.labels.index("entailment")
        for a, b, label in zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True):
            if label == right:
                found.setdefault(a.strip(), []).append(b.strip())
        return found


class _Reader:
    """Reads sets of the folder, and remembers how many rows each has."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.rows: dict[str, int] = {}

    def __call__(self, name: str, split: str = "train") -> Examples:
        found = load_dataset(name, split, self.data)
        self.rows[found.name] = len(found)
        return found


def read_material(data: Path, plan: BiPlan, *, seed: int = 0) -> Material:
    """Read everything, from the folder of the public sets."""
    known = _evaluated(data)
    read = _Reader(data)
    taken = _translations(data, plan)
    read.rows[f"{DATASETS['parallel'].title} train"] = sum(len(one.examples) for one in taken)
    taken = [replace(one, examples=_unknown(one.examples, known)) for one in taken]
    translations = _some(join([one.examples.take(one.rows(seed)) for one in taken], name="translations"), plan)
    klue = read("klue-sts")
    held = min(plan.selection_rows, len(klue) // 4)
    klue, slice_ = klue.split(held / len(klue), seed=1)  # the same slice whatever the seed
    sts = {"korsts": read("korsts"), "klue-sts": klue, "stsb": read("stsb")}
    crossed = _crossed(sts["korsts"], sts["stsb"])
    if crossed is not None:
        sts["korsts-stsb"] = crossed
    nli_ko = _some(read("klue-nli"), plan)
    nli_en = _some(join([read(name, split) for name, split in NLI_EN], name="nli-en"), plan)
    questions = _unknown(question_parts(read("question-pair"))[0], known)
    plain, removed = _plain(read, plan, known, [nli_ko, *sts.values(), questions], seed=seed)
    return Material(
        translations=translations,
        plain=plain,
        nli={"ko": replace(nli_ko, name="nli-ko"), "en": nli_en},
        sts=sts,
        questions=_same_questions(questions),
        dictionary=_some(_unknown(read("wordnet"), known), plan),
        selection=(
            load_dataset("korsts", "dev", data),
            replace(slice_, name="KLUE-STS slice"),
            load_dataset("stsb", "dev", data),
        ),
        evaluation=tuple(load_dataset(name, split, data) for name, split in SCORED if _is_there(name, split, data)),
        removed=removed,
        rows=read.rows,
        other={
            en: ko
            for one in taken
            if one.name in plan.pool_sources
            for en, ko in zip(*one.examples.columns.values(), strict=True)
        },
        every=round(1 / plan.rows),
        bands=plan.score_bands,
    )


def evenly(examples: Examples, bands: int) -> Examples:
    """Scored rows, about twice as many, with equally many of every band of scores that there is; 1: as they are.

    Rows of rare scores stand there several times, and some of frequent ones may be missing; the seed does not matter.
    """
    if bands == 1:
        return examples
    assert examples.targets is not None
    scores = np.asarray(examples.targets, np.float64)
    places = np.minimum((scores * bands).astype(np.int64), bands - 1)
    generator = np.random.default_rng(0)
    found = np.unique(places)
    each = -(-_TIMES * len(scores) // len(found))
    rows = [np.resize(generator.permutation(np.flatnonzero(places == band)), each) for band in found.tolist()]
    return examples.take(np.sort(np.concatenate(rows)))


def _unknown(examples: Examples, known: set[str]) -> Examples:
    """Rows none of whose texts stands in an evaluation set."""
    rows = list(zip(*examples.columns.values(), strict=True))
    return examples.take([row for row, texts in enumerate(rows) if not any(normalise(text) in known for text in texts)])


def _some(examples: Examples, plan: BiPlan) -> Examples:
    """All rows; of a small trial, some from everywhere."""
    return examples if plan.rows == 1 else examples.take(np.arange(0, len(examples), round(1 / plan.rows)))


def _evaluated(data: Path) -> set[str]:
    found: set[str] = set()
    for name, split in EVALUATED:
        if _is_there(name, split, data):
            found.update(map(normalise, load_dataset(name, split, data).texts()))
    return found


def _is_there(name: str, split: str, data: Path) -> bool:
    """A set that is not there cannot be measured on either; one that cannot be read is an error."""
    try:
        find_files(name, split, data)
    except DataError:
        return False
    return True


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


def _plain(
    read: _Reader, plan: BiPlan, known: set[str], sets: Sequence[Examples], *, seed: int
) -> tuple[list[str], int]:
    """Korean sentences without a translation, each once, and how many were taken out."""
    reviews = read("nsmc-reviews").columns["text"]
    chosen = np.random.default_rng(seed).permutation(len(reviews))[: plan.reviews]
    read.rows[f"{DATASETS['nsmc-reviews'].title} train"] = len(chosen)
    texts = chain.from_iterable(one.texts() for one in (*sets, read("ynat"), read("chatbot")))
    every = (text.strip() for text in chain(texts, (reviews[row] for row in np.sort(chosen).tolist())))
    found = dict.fromkeys(text for text in every if 4 <= len(text) <= _LONGEST and HANGUL.search(text))
    kept = [text for text in found if normalise(text) not in known]
    return kept[:: round(1 / plan.rows)], len(found) - len(kept)
