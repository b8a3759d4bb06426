"""Texts that mean the same -> how well a model finds them: within one collection, and across two languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.encoding import encode, gpu_of
from munjang.evaluation.metrics import average_precision, best_f1, mean
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model, Scores, bi_encoder
from munjang.evaluation.sets import check, interval, joined
from munjang.vectors import top_k

if TYPE_CHECKING:
    from munjang.data import Examples


@dataclass(frozen=True)
class ParaphraseMiningEvaluator:
    """Mine all pairs of a collection, best first, and compare with the groups: average precision, best F1.

    Only the `neighbours` nearest of every text are looked at (by cosine), and of these the best `max_pairs`, so that
    memory stays bounded; a pair that is not among them counts as not found.
    """

    examples: Examples  # classified: texts with the same label are paraphrases of each other
    neighbours: int = 100
    max_pairs: int = 500_000
    main: str = "average_precision"

    def __post_init__(self) -> None:
        check(self.examples, "classified", least=2)
        if not self._pairs_in_all():
            raise InputError(f"{self.name}: no two texts share a label, so there is no pair to find")

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        bi = bi_encoder(model, name=self.name)
        texts = encode(bi, self.examples.columns["text"])
        scores, left, right = mine(texts.rows, self.neighbours, self.max_pairs, device=gpu_of(bi))
        groups = self._groups()
        same, total = groups[left] == groups[right], self._pairs_in_all()
        best = best_f1(same, scores, positives=total)
        values = {
            "average_precision": average_precision(same, scores, positives=total),
            "f1": best.value,
            "f1_threshold": best.threshold,
            "precision": best.precision,
            "recall": best.recall,
        }
        notes = (f"{len(scores):,} pairs mined, {total:,} to find", *texts.notes)
        return Scores(self.name, values, self.main, len(self.examples), notes=notes)

    def _groups(self) -> Array:
        if self.examples.targets is None:
            raise InputError(f"{self.name}: the rows have no labels, so it is unknown what belongs together")
        return self.examples.targets

    def _pairs_in_all(self) -> int:
        sizes = np.bincount(self._groups())
        return int((sizes * (sizes - 1) // 2).sum())


def mine(
    vectors: Array, neighbours: int, max_pairs: int, *, device: str | None = None
) -> tuple[Array, Array, Array]:  # scores, left, right: [pairs]
    """Pairs of rows (left < right), each once, by falling cosine; equal ones in the order of their rows."""
    if len(vectors) < 2:
        raise InputError(f"pairs need at least two texts, got {len(vectors)}")
    k = min(neighbours, len(vectors) - 1)
    found = top_k(vectors, vectors, k, exclude_self=True, device=device)
    one = np.repeat(np.arange(len(vectors)), k)
    other = found.indices.reshape(-1)
    left, right = np.minimum(one, other), np.maximum(one, other)
    _, first = np.unique(left * len(vectors) + right, return_index=True)
    scores = found.scores.reshape(-1)[first]
    order = first[np.argsort(-scores, kind="stable")[:max_pairs]]
    return found.scores.reshape(-1)[order], left[order], right[order]


@dataclass(frozen=True)
class BitextEvaluator:
    """Find every sentence's translation among all of the other side, both ways, by cosine.

    `accuracy` is the mean of both ways. With `margin`, also by the ratio margin over 4 neighbours (Artetxe and Schwenk
    2019, equation 3), which takes back what sentences gain that lie near everything.
    """

    examples: Examples  # pairs: anchor in one language, positive in the other
    margin: bool = False
    bootstrap: int = 0
    main: str = "accuracy"

    def __post_init__(self) -> None:
        check(self.examples, "pairs", least=2)

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        bi = bi_encoder(model, name=self.name)
        sides = list(self.examples.columns.values())[:2]
        a, b = encode(bi, sides[0]), encode(bi, sides[1])
        device = gpu_of(bi)
        forward = _right(top_k(a.rows, b.rows, 1, device=device).indices[:, 0], sides[1])
        backward = _right(top_k(b.rows, a.rows, 1, device=device).indices[:, 0], sides[0])
        both = (forward + backward) / 2
        values = {"accuracy": mean(both), "accuracy_forward": mean(forward), "accuracy_backward": mean(backward)}
        if self.margin:
            there = _right(_by_margin(a.rows, b.rows, device), sides[1])
            back = _right(_by_margin(b.rows, a.rows, device), sides[0])
            values["margin_accuracy"] = mean((there + back) / 2)
        return Scores(
            self.name,
            values,
            self.main,
            len(self.examples),
            intervals=interval("accuracy", mean, (both,), samples=self.bootstrap),
            notes=joined(a.notes, b.notes),
        )


def _right(found: Array, texts: list[str]) -> Array:
    """1 where the text that was found is the right one; the same text in another row is right too."""
    return np.array([texts[place] == text for place, text in zip(found.tolist(), texts, strict=True)], dtype=float)


def _by_margin(a: Array, b: Array, device: str | None, neighbours: int = 4) -> Array:  # [n] rows of b
    k = min(neighbours, len(b))
    near, back = top_k(a, b, k, device=device), top_k(b, a, k, device=device)
    usual = (near.scores.mean(axis=1)[:, None] + back.scores.mean(axis=1)[near.indices]) / 2
    best = np.argmax(near.scores / np.maximum(usual, 1e-6), axis=1)
    chosen: Array = near.indices[np.arange(len(a)), best]
    return chosen
