"""Small runs of Augmented SBERT: a tiny model, few steps, sentences of our own in Korean and English."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from munjang.data import Examples
from munjang.data.overlaps import same_key
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.recipes import AugmentOptions
from recipes.material import scored, sentences

BI: dict[str, object] = {"max_steps": 4, "batch_size": 8, "learning_rate": 1e-3, "save_every": 2}
CROSS: dict[str, object] = {**BI, "head_rate": 0.05}


def lively(tiny: Path, folder: Path) -> Path:
    """The tiny model with larger weights: a fresh body says nearly the same of every pair, this one does not."""
    model = BiEncoder.load(tiny, device="cpu", dtype="float32")
    with torch.no_grad():
        for weight in model.parts.body.parameters():
            if weight.ndim == 2:
                weight.mul_(15)
    model.refresh()
    model.save(folder / "lively")
    return folder / "lively"


def options(folder: Path, **told: Any) -> AugmentOptions:
    """Options for a run of a few seconds."""
    quick = AugmentOptions(folder=folder, bi_changes=BI, cross_changes=CROSS, device="cpu")
    if told.get("cross_encoder") is not None:
        quick = replace(quick, cross_changes={})
    return replace(quick, **told)


def data() -> dict[str, Any]:
    """Gold, sentences of the domain, development and test pairs."""
    return {
        "gold": scored("gold", 24, 0),
        "domain": sentences(40, 7),
        "dev": scored("dev", 16, 50),
        "test": scored("test", 20, 90),
    }


def silver_rows(path: Path) -> list[tuple[str, str, float, float, str]]:
    """silver.tsv by plain means."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head == "sentence1\tsentence2\tscore\tspread\torigin"
    found = []
    for line in lines:
        a, b, score, spread, origin = line.split("\t")
        found.append((a, b, float(score), float(spread), origin))
    return found


def check_rules(path: Path, *, labelled: list[Examples], evaluation: list[Examples], allowed: set[str]) -> None:
    """No pair of a sentence with itself, repeated, mirrored, labelled or of the evaluation; no other sentences."""
    rows = silver_rows(path)
    pairs = [frozenset((same_key(a), same_key(b))) for a, b, *_ in rows]
    assert rows
    assert all(len(pair) == 2 for pair in pairs)
    assert len(set(pairs)) == len(pairs)
    assert {key for pair in pairs for key in pair} <= {same_key(text) for text in allowed}
    for examples in (*labelled, *evaluation):
        sides = zip(examples.columns["a"], examples.columns["b"], strict=True)
        assert not set(pairs) & {frozenset((same_key(a), same_key(b))) for a, b in sides}
    assert all(0 <= score <= 1 and spread >= 0 for _, _, score, spread, _ in rows)


@dataclass(frozen=True)
class PlainLabels:
    """What pairs must get as labels, by plain means: numpy's own fit, all readings with their weights."""

    cross: CrossEncoder
    bi: BiEncoder
    gold: Examples

    def readings(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:  # float64 [2, n]
        """The cross-encoder's, in both orders."""
        asked = (list(pairs), [(b, a) for a, b in pairs])
        return np.stack([np.asarray(self.cross.predict(one), np.float64) for one in asked])

    def cosines(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:  # float64 [n], on the scale of the labels
        shift, factor = self.scale()
        return np.clip(shift + factor * self._raw(pairs), 0, 1)

    def scale(self) -> tuple[float, float]:
        factor, shift = np.polyfit(self._raw(pairs_of(self.gold)), np.asarray(self.gold.targets, np.float64), 1)
        return (float(shift), float(factor)) if factor > 0 else (0.0, 1.0)

    def labels(self, pairs: Sequence[tuple[str, str]], weight: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of all readings: half of 1 - weight for each order, weight for the cosine."""
        values = np.concatenate([self.readings(pairs), self.cosines(pairs)[None]])
        weights = [(1 - weight) / 2, (1 - weight) / 2, weight]
        mean = np.average(values, axis=0, weights=weights)
        return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))

    def _raw(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        sides = (np.asarray(self.bi.encode(list(side)), np.float64) for side in zip(*pairs, strict=True))
        left, right = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in sides)
        return (left * right).sum(axis=1)


def pairs_of(examples: Examples) -> list[tuple[str, str]]:
    return list(zip(examples.columns["a"], examples.columns["b"], strict=True))
