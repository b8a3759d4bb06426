"""Unlabelled sentences -> pairs with the labels of several models: what both bundled models learn from most.

Pairs are each sentence with its nearest others, and some random ones, so that labels cover the whole range; sentences
of scored sets have more of them, for they are of the kind that is judged. A label is the weighted mean of
cross-encoders, every second of which reads a pair the other way round, and of the bi-encoder's cosine on the scale of
the labels (`augmenting.blending`): each errs elsewhere. Pairs that stand in a selection or evaluation set, or are
labelled already, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from models.ko_en_0_1.material import Material
from models.ko_en_0_1.stage_training import load_array
from munjang.data import Examples, join
from munjang.data.overlaps import normalise
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.evaluation.metrics import spearman
from munjang.progress import Progress
from munjang.recipes.augmenting.blending import Scale
from munjang.recipes.stages import Done
from munjang.vectors import pairwise_similarity, top_k

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

_ACROSS = 0.2  # of the silver pairs that could: those whose texts are of two languages


def neighbours_of(vectors: Float32, k: int, *, device: str) -> Int64:  # [n, d] -> [n, k]
    """The nearest others of every row, itself left out."""
    found: Int64 = top_k(vectors, vectors, k, exclude_self=True, memory_mb=2048, device=device).indices
    return found


def silver_pairs(  # [n, k] -> [pairs, 2]
    neighbours: Int64, *, random_share: float, seed: int, counts: Int64 | None = None
) -> Int64:
    """Every pair of neighbours once, whichever found the other, and random pairs beside them.

    counts [n]: how many neighbours each row has its pairs with, the nearest first; None: all.
    """
    each = np.full(len(neighbours), neighbours.shape[1]) if counts is None else counts
    rows, columns = np.nonzero(np.arange(neighbours.shape[1]) < each[:, None])
    pairs = np.stack([rows, neighbours[rows, columns]], axis=1)
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(neighbours), (round(random_share * len(pairs)), 2))
    pairs = np.sort(np.concatenate([pairs, drawn]), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def known_pairs(sets: Iterable[Examples]) -> set[tuple[str, str]]:
    """The pairs of scored or labelled sets, in either order, whatever their punctuation."""
    found: set[tuple[str, str]] = set()
    for one in sets:
        a, b = list(one.columns.values())[:2]
        for first, second in zip(map(normalise, a), map(normalise, b), strict=True):
            found.add((min(first, second), max(first, second)))
    return found


def without_known(texts: Sequence[str], pairs: Int64, known: set[tuple[str, str]]) -> Int64:
    """Pairs less those that are known, and less those of a text with itself in other punctuation."""
    keys = [normalise(text) for text in texts]
    kept = [
        place
        for place, (a, b) in enumerate(pairs.tolist())
        if keys[a] != keys[b] and (min(keys[a], keys[b]), max(keys[a], keys[b])) not in known
    ]
    return pairs[kept]


def pairs_of(texts: Sequence[str], pairs: Int64, scores: Float32, *, name: str) -> Examples:
    """Pairs of places and their scores as examples."""
    a, b = ([texts[place] for place in side] for side in pairs.T.tolist())
    return Examples(name, "scored", {"a": a, "b": b}, np.asarray(scores, np.float32))


def in_other_languages(examples: Examples, other: Mapping[str, str], *, seed: int, share: float = 0.5) -> Examples:
    """Scored pairs; of texts that have a translation, about `share` give way to it: the score holds for both.

    Most pairs stay within one language, the other or the same; `_ACROSS` of them cross the languages.
    """
    generator = np.random.default_rng(seed)
    first = generator.random(len(examples)) < share
    turns = first, first ^ (generator.random(len(examples)) < _ACROSS)
    columns = {
        role: [
            other[text] if turned and text in other else text for text, turned in zip(texts, turn.tolist(), strict=True)
        ]
        for (role, texts), turn in zip(examples.columns.items(), turns, strict=True)
    }
    return replace(examples, columns=columns)


def either_way(examples: Examples, *, seed: int) -> Examples:
    """Scored pairs, about half of them the other way round: whose text comes first is to mean nothing."""
    turned = np.random.default_rng([seed, 1]).random(len(examples)) < 0.5  # not as `in_other_languages` draws
    (one, a), (two, b) = examples.columns.items()
    rows = zip(a, b, turned.tolist(), strict=True)
    first, second = zip(*((y, x) if turn else (x, y) for x, y, turn in rows), strict=True)
    return replace(examples, columns={one: list(first), two: list(second)})


def read_silver(material: Material, pairs: Done, labels: Done, *, seed: int) -> Examples:
    """The pairs of a run with the labels that another of its stages gave them, in either language and order."""
    found = pairs_of(material.pool(), load_array(pairs, "pairs"), load_array(labels, "labels"), name="silver")
    return either_way(in_other_languages(found, material.other, seed=seed), seed=seed)


def both_ways(examples: Examples) -> Examples:
    """Scored pairs in both orders: a likeness has none, and a cross-encoder is to know it."""
    a, b = examples.columns
    turned = replace(examples, columns={a: examples.columns[b], b: examples.columns[a]})
    return join([examples, turned], name=examples.name)


def cosines_of(model: BiEncoder, a: Sequence[str], b: Sequence[str], *, progress: Progress = False) -> Float32:
    """Cosines [n] of pairs; every different text is encoded once."""
    texts = list(dict.fromkeys([*a, *b]))
    place = {text: row for row, text in enumerate(texts)}
    vectors = model.encode(texts, normalize=True, progress=progress)
    first, second = ([place[text] for text in side] for side in (a, b))
    return np.asarray(pairwise_similarity(vectors[first], vectors[second]), np.float32)


class Labeller:
    """Cross-encoders and a bi-encoder that label together (`labelling.together`)."""

    def __init__(self, bi: BiEncoder, crosses: Sequence[CrossEncoder], labelled: Examples) -> None:
        self.bi, self.crosses = bi, crosses
        assert labelled.targets is not None
        a, b = labelled.columns.values()
        self.scale = Scale.fit(cosines_of(bi, a, b), labelled.targets)

    def near(self, a: Sequence[str], b: Sequence[str]) -> Float32:
        """Cosines of pairs on the scale of the labels, 0..1 [n]."""
        return self.scale(cosines_of(self.bi, a, b)).astype(np.float32)

    def read(self, a: Sequence[str], b: Sequence[str], *, progress: Progress = False) -> list[Float32]:
        """What each cross-encoder says of the pairs [n]; every second of them reads a pair the other way round."""
        orders = [(b, a) if number % 2 else (a, b) for number in range(len(self.crosses))]
        return [
            model.predict(list(zip(*order, strict=True)), progress=progress)
            for model, order in zip(self.crosses, orders, strict=True)
        ]


def agreement(sets: Sequence[Examples], told: Sequence[Float32]) -> dict[str, float]:
    """Spearman of labels with those of people. told: [rows] for each set."""
    found = {}
    for one, labels in zip(sets, told, strict=True):
        assert one.targets is not None
        found[one.name] = spearman(np.asarray(one.targets), labels)
    return found
