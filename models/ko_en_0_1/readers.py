"""Larger models that read two texts at once, and say of pairs what they were not taught of them (`agreeing`).

    NAME-nli          the body of a model that was given, with a new head: labels of NLI
    NAME-1, NAME-2    pairs with what all voices say of them, and the scores of people, each reader one half of them
    labels            the pairs again, labelled by the voices and the readers together
    people            people's scores, part of the way to what the reader of the other half says

A cross-encoder that learned a score says that score again, and nothing of how much it is to be trusted. Of the other
half it says what follows from all the rest. Of pairs that nobody scored both say something, and one of them reads every
pair the other way round. An English model learns and labels English texts alone: what it says of a pair that is there
in both languages holds for the Korean one.

Enters: the labels of `voices`, people's scores, larger models as they were given. Leaves: better labels of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from models.ko_en_0_1.crosses import learn_nli
from models.ko_en_0_1.material import Material
from models.ko_en_0_1.passages import HANGUL
from models.ko_en_0_1.settings import AgreePlan, Schedule
from models.ko_en_0_1.silver import (
    Float32,
    agreement,
    both_ways,
    either_way,
    in_other_languages,
    pairs_of,
)
from models.ko_en_0_1.stage_training import OTHER_SEED, Workshop, described, load_array, save_arrays, task
from models.ko_en_0_1.voices import read_english
from munjang.data import Examples
from munjang.data.overlaps import normalise
from munjang.evaluation.metrics import spearman
from munjang.recipes.augmenting.blending import blended
from munjang.recipes.stages import Done, Made
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts

HALVES = (1, 2)
Said = dict[int, Float32]  # by half


@dataclass(frozen=True)
class Kind:
    """A larger model that two readers are made of."""

    name: str
    model: str | Path
    weight: float  # what one of its readers counts for
    nli: Schedule
    reading: Schedule
    english: bool  # whether it reads no Korean


def kinds_of(plan: AgreePlan, *, bilingual: str | Path | None, larger: str | Path | None) -> list[Kind]:
    """The kinds of readers, of the models that were given."""
    weights, found = plan.reader_weights, []
    if bilingual is not None:
        given = weights["bilingual"], plan.bilingual_nli, plan.bilingual
        found.append(Kind("bilingual", bilingual, *given, english=False))
    if larger is not None:
        found.append(Kind("larger", larger, weights["larger"], plan.larger_nli, plan.larger, english=True))
    return found


class Reading:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, plan: AgreePlan, material: Material, shop: Workshop, kinds: Sequence[Kind]) -> None:
        self.plan, self.material, self.shop, self.kinds = plan, material, shop, kinds
        self.pool = material.pool()
        self.graded = material.graded()
        self.half = halves_of(self.graded, translated_rows(material.sts))
        self.english = {korean: text for text, korean in material.other.items()}
        self.translations = hash_texts([text for pair in material.other.items() for text in pair])

    def nli(self, kind: Kind) -> Done:
        sets = [one for language, one in self.material.nli.items() if language == "en" or not kind.english]
        plan, shop = self.plan, self._shop(kind)
        return learn_nli(
            shop,
            f"{kind.name}-nli",
            kind.model,
            sets,
            schedule=kind.nli,
            batch=plan.nli_batch,
            length=plan.train_length,
        )

    def reader(self, kind: Kind, half: int, nli: Done, pairs: Done, voices: Done) -> Done:
        """A cross-encoder that learned the scores of one half of people's pairs, and all labels of the others."""
        plan, parts = self.plan, self.plan.reader_parts
        shop = replace(self._shop(kind), seed=self.shop.seed + OTHER_SEED * (half - 1))

        def tasks() -> list[Task]:
            labelled = pairs_of(self.pool, load_array(pairs, "pairs"), load_array(voices, "labels"), name="silver")
            people = self.graded.take(np.flatnonzero(self.half == half), name="people")
            if kind.english:
                labelled, people = (one.take(np.flatnonzero(read_english(*one.columns.values())))
                                    for one in (labelled, people))  # fmt: skip
            else:
                labelled = in_other_languages(labelled, self.material.other, seed=shop.seed, share=plan.korean)
            return [
                task(either_way(labelled, seed=shop.seed), objectives.CrossScore(), parts["silver"]),
                task(both_ways(people), objectives.CrossScore(), parts["people"]),
            ]

        inputs: dict[str, object] = {one.name: one.digest for one in (nli, pairs, voices)}
        inputs |= {"graded": data_hash(self.graded), "halves": hash_texts(self.half.astype(str).tolist())}
        inputs |= {"translations": self.translations, "korean": plan.korean, "english": kind.english}
        return shop.trained(
            f"{kind.name}-{half}",
            lambda: shop.cross(nli.folder / "model", plan.train_length, labels=1),
            tasks,
            schedule=kind.reading,
            inputs=inputs | {"parts": described(parts), "length": plan.train_length},
            select=bool(shop.selection),
        )

    def labels(self, pairs: Done, voices: Done, readers: Mapping[tuple[str, int], Done]) -> Done:
        """float32 [pairs]: what voices and readers say together; how much these count is what agrees best with people.

        readers: by kind and half.
        """
        plan, shop, sets = self.plan, self.shop, self.material.selection

        def make(folder: Path) -> Made:
            unlabelled = np.zeros(len(load_array(pairs, "pairs")), np.float32)
            read = pairs_of(self.pool, load_array(pairs, "pairs"), unlabelled, name="silver")
            asked = [_sides(one) for one in (read, *sets)]
            said = self._said(readers, asked)
            ends = np.cumsum([len(one) for one in sets])[:-1]
            before = [load_array(voices, "labels"), *np.split(load_array(voices, "selection"), ends)]
            told = {
                share: [moved(one, self._mean(two), share) for one, two in zip(before, said, strict=True)]
                for share in plan.reader_shares
            }
            found = {share: agreement(sets, labels[1:]) for share, labels in told.items()}
            share = max(found, key=lambda one: fmean(found[one].values()))
            alone = {
                f"{name}-{half}": {
                    one.name: spearman(np.asarray(one.targets), some[name][half])
                    for one, some in zip(sets, said[1:], strict=True)
                    if np.isfinite(some[name][half]).all()
                }
                for name, half in readers
            }
            facts = {"share": share, "alone": alone, "together": {str(key): value for key, value in found.items()}}
            return Made(save_arrays(folder, labels=told[share][0]), {"pairs": len(read), "agreement": facts})

        inputs = self._inputs(pairs, voices, *readers.values()) | {"shares": plan.reader_shares}
        inputs["selection"] = [data_hash(one) for one in sets]
        return shop.stages.run("labels", inputs, make)

    def people(self, readers: Mapping[tuple[str, int], Done]) -> Done:
        """float32 [rows of `graded`]: people's scores, part of the way to what the readers of the other half say."""
        plan, graded = self.plan, self.graded

        def make(folder: Path) -> Made:
            a, b = ([self.english.get(text, text) for text in side] for side in graded.columns.values())
            (said,) = self._said(readers, [(a, b)])
            other = {name: {half: np.where(self.half == half, np.nan, told).astype(np.float32)
                            for half, told in some.items()} for name, some in said.items()}  # fmt: skip
            scores = np.asarray(graded.targets, np.float32)
            told = self._mean(other)
            known = np.isfinite(told)
            agrees = spearman(scores[known], told[known]) if known.any() else None
            facts = {"rows": len(told), "unread": int((~known).sum()), "agreement": agrees}
            return Made(save_arrays(folder, scores=moved(scores, told, plan.doubt)), facts)

        inputs = self._inputs(*readers.values()) | {"doubt": plan.doubt, "graded": data_hash(graded)}
        return self.shop.stages.run("people", inputs | {"translations": self.translations}, make)

    def _said(
        self, readers: Mapping[tuple[str, int], Done], asked: Sequence[tuple[list[str], list[str]]]
    ) -> list[dict[str, Said]]:
        """What every reader says of each list of pairs, by kind and half; nan of what it cannot read."""
        kinds = {kind.name: kind for kind in self.kinds}
        found: list[dict[str, Said]] = [{name: {} for name in kinds} for _ in asked]
        for (name, half), done in readers.items():
            model = self.shop.cross(done.folder / "model", self.plan.train_length)
            for (a, b), told in zip(asked, found, strict=True):
                rows = np.flatnonzero(read_english(a, b)) if kinds[name].english else np.arange(len(a))
                order = (a, b) if half == 1 else (b, a)
                pairs = [(order[0][row], order[1][row]) for row in rows.tolist()]
                said = np.full(len(a), np.nan, np.float32)
                if pairs:
                    said[rows] = model.predict(pairs, progress=self.shop.progress)
                told[name][half] = said
        return found

    def _mean(self, said: Mapping[str, Said]) -> Float32:
        """The weighted mean of who said something of a row [n]; nan where nobody did."""
        rows = [(kind.weight, told) for kind in self.kinds for told in said[kind.name].values()]
        weights = np.stack([np.where(np.isnan(told), 0.0, weight) for weight, told in rows])
        total = (weights * np.nan_to_num(np.stack([told for _, told in rows]))).sum(axis=0)
        with np.errstate(invalid="ignore"):
            mean: Float32 = (total / weights.sum(axis=0)).astype(np.float32)
        return mean

    def _shop(self, kind: Kind) -> Workshop:
        """Who reads no Korean is not judged by it."""
        if not kind.english:
            return self.shop
        return replace(self.shop, selection=tuple(one for one in self.shop.selection if not _korean(one)))

    def _inputs(self, *made_of: Done) -> dict[str, object]:
        inputs: dict[str, object] = {one.name: one.digest for one in made_of}
        return inputs | {"weights": self.plan.reader_weights, "length": self.plan.train_length}


def moved(scores: Float32, said: Float32, share: float) -> Float32:
    """Scores [n], `share` of the way to what was said; where nothing was said, as they are."""
    return np.where(np.isnan(said), scores, blended(scores, said, share)).astype(np.float32)


def translated_rows(sts: Mapping[str, Examples]) -> dict[str, str]:
    """Korean -> English: KorSTS is STSb in Korean, row by row, where both are whole.

    A Korean sentence that stands for two English ones is one of them: some of its rows fall into the other half.
    """
    korean, english = sts["korsts"], sts["stsb"]
    if len(korean) != len(english):
        return {}
    return {
        text: other
        for side in ("a", "b")
        for text, other in zip(korean.columns[side], english.columns[side], strict=True)
    }


def halves_of(examples: Examples, english: Mapping[str, str]) -> npt.NDArray[np.int8]:
    """Of every row its half, 1 or 2: the same for a pair in another order, in other punctuation, or translated."""
    a, b = ([normalise(english.get(text, text)) for text in side] for side in examples.columns.values())
    keys = ("\n".join(sorted(pair)) for pair in zip(a, b, strict=True))
    return np.array([1 + hashlib.blake2b(key.encode(), digest_size=1).digest()[0] % 2 for key in keys], np.int8)


def _sides(examples: Examples) -> tuple[list[str], list[str]]:
    a, b = examples.columns.values()
    return a, b


def _korean(examples: Examples) -> bool:
    return any(map(HANGUL.search, examples.texts()))
