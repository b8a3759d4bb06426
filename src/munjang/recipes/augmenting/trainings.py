"""The trainings of Augmented SBERT, each a recipe in a stage of its own: baseline, cross-encoders, the bi-encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from munjang.data import Examples
from munjang.recipes.augmenting.candidates import random_pairs
from munjang.recipes.augmenting.defaults import MIXING, PRETRAIN
from munjang.recipes.augmenting.material import Material
from munjang.recipes.augmenting.options import AugmentOptions
from munjang.recipes.augmenting.originals import Original
from munjang.recipes.augmenting.pairs import CandidatePairs, PairFilter
from munjang.recipes.augmenting.result import training_facts
from munjang.recipes.augmenting.silver import read_silver
from munjang.recipes.defaults import RecipeName
from munjang.recipes.options import GivenModel, RecipeOptions
from munjang.recipes.running import prepare, run
from munjang.recipes.stages import Done, Made, Stages
from munjang.training.run import data_hash

_BLOCK = 65_536  # pairs whose cosines are computed at once


@dataclass(frozen=True, eq=False)
class Job:
    """What all stages share."""

    material: Material
    options: AugmentOptions
    stages: Stages

    @property
    def labelled(self) -> Sequence[Examples]:
        return self.material.sets.train


@dataclass(frozen=True)
class Start:
    """Where a training starts: the model, and what tells it from others."""

    model: Callable[[], GivenModel]
    key: str

    @classmethod
    def of(cls, original: Original) -> Start:
        return cls(original.fresh, original.fingerprint)

    @classmethod
    def after(cls, done: Done) -> Start:
        """The model that an earlier stage trained."""
        return cls(lambda: done.folder / "model", done.digest)


@dataclass(frozen=True)
class Data:
    """Training sets that are read only when they are needed."""

    read: Callable[[], Sequence[Examples]]
    key: object

    @classmethod
    def of(cls, sets: Sequence[Examples]) -> Data:
        return cls(lambda: sets, hashes(sets))

    def plus(self, other: Data) -> Data:
        return Data(lambda: [*self.read(), *other.read()], [self.key, other.key])


def hashes(sets: Sequence[Examples]) -> list[list[str]]:
    """Names and contents, as a stage's key takes them."""
    return [[one.name, data_hash(one)] for one in sets]


def silver_data(done: Done) -> Data:
    """silver.tsv as it is now: somebody may have edited it."""
    return Data(lambda: [read_silver(done.folder / "silver.tsv")], done.digest)


def train_stage(
    job: Job, name: str, recipe: RecipeName, *, start: Start, data: Data, options: RecipeOptions, measured: bool = True
) -> Done:
    """A recipe as a stage. measured: with the development and test sets, else only compared with them."""
    sets = job.material.sets
    dev, test = (sets.dev, sets.test) if measured else ((), ())

    def make(folder: Path) -> Made:
        prepared = prepare(recipe, list(data.read()), list(dev), list(test), options=replace(options, folder=folder))
        result = run(start.model(), prepared, others=() if measured else sets.evaluation)
        return Made(["model"], training_facts(result))

    inputs: Mapping[str, object] = {
        "recipe": recipe,
        "model": start.key,
        "train": data.key,
        "dev": hashes(dev),
        "test": hashes(test),
        "settings": dict(options.changes),
        "objective": options.objective,
        "seed": options.seed,
        "leakage": options.leakage,
        "max_length": options.max_length,
    }
    return job.stages.run(name, inputs, make)


def train_bi(job: Job, name: str, *, start: Start, data: Data, mixed: bool = False) -> Done:
    """A bi-encoder: the baseline and the augmented one alike. mixed: labelled and silver pairs share the steps."""
    changes = {**(MIXING if mixed else {}), **job.options.bi_changes}
    chosen = job.options.recipe(changes, objective=job.options.objective)
    return train_stage(job, name, "sts", start=start, data=data, options=chosen)


def train_final(job: Job, *, start: Start, silver: Done) -> list[Done]:
    """The bi-encoder on labelled and silver pairs; the last stage has it."""
    labelled, made = Data.of(job.labelled), silver_data(silver)
    if job.options.mix == "together":
        return [train_bi(job, "bi", start=start, data=labelled.plus(made), mixed=True)]
    first = train_bi(job, "bi-silver", start=start, data=made)
    return [first, train_bi(job, "bi", start=Start.after(first), data=labelled)]


def train_cross(job: Job, start: Start) -> list[Done]:
    """One cross-encoder for every seed."""
    options = job.options
    found = []
    for number in range(options.cross_count):
        name = "cross" if options.cross_count == 1 else f"cross-{number + 1}"
        seed = options.seed + number
        chosen = options.recipe(options.cross_changes, objective=options.cross_objective, seed=seed, before=False)
        found.append(train_stage(job, name, "cross_sts", start=start, data=Data.of(job.labelled), options=chosen))
    return found


def pretrain_cross(job: Job, start: Start, *, candidates: Done, vectors: Done) -> Done:
    """A cross-encoder that learns what the retriever says of candidates and random pairs; then it is trained as usual.

    A body that was a bi-encoder's has never compared two texts, and few labelled pairs do not teach it that. Random
    pairs, as many as there are candidates, show it what is not alike.
    """
    options = job.options
    rules = PairFilter(job.material.sentences, known=job.labelled, forbidden=job.material.sets.evaluation)
    chosen = options.recipe({**PRETRAIN, **options.pretrain_changes}, objective="bce", before=False)

    def read() -> list[Examples]:
        found, texts = CandidatePairs.read(candidates.folder), job.material.sentences
        half = max(1, options.pretrain_pairs // 2)
        places = _some(len(found), half, options.seed)
        drawn = rules.sides(random_pairs(rules, len(places), np.random.default_rng([options.seed, 1])))
        sides = ((found.left, drawn[0]), (found.right, drawn[1]))
        left, right = (np.concatenate([np.asarray(near[places]), far]) for near, far in sides)
        array = np.load(vectors.folder / "vectors.npy", mmap_mode="r")
        columns = {"a": [texts[place] for place in left.tolist()], "b": [texts[place] for place in right.tolist()]}
        scores = np.clip(cosines(array, left, right), 0.0, 1.0)
        return [Examples("candidates and random pairs by cosine", "scored", columns, scores)]

    data = Data(read, [candidates.digest, vectors.digest, rules.hash, options.pretrain_pairs, options.seed])
    return train_stage(job, "pretrain", "cross_sts", start=start, data=data, options=chosen, measured=False)


def cosines(vectors: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:  # [n, d], [m], [m] -> [m]
    """Cosines of pairs of unit vectors, float32; a block at a time, as the vectors lie on disk."""
    found = np.empty(len(left), np.float32)
    for start in range(0, len(left), _BLOCK):
        window = slice(start, start + _BLOCK)
        one, other = vectors[left[window]], vectors[right[window]]
        found[window] = np.einsum("nd,nd->n", one, other, dtype=np.float32)
    return found


def _some(count: int, most: int, seed: int) -> np.ndarray:  # int64 [<= most], ascending
    """All places, or a seeded sample of them."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
