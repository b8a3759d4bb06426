"""Candidate pairs -> a score for each from cross-encoders, and how far their scores differ.

Enters: pairs and one or more cross-encoders with one label. Leaves: the mean of their scores, 0..1, and the standard
deviation (`spread`). Each cross-encoder reads a pair in both orders: similarity has no direction, but a cross-encoder
has, so the mean is the better score, and where the orders or the models disagree the label is uncertain.

Every window of pairs is durable as soon as it is scored (`vectors.open_writer`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.cross_encoder import CrossEncoder
from munjang.errors import DataError, InputError
from munjang.progress import Progress, track
from munjang.recipes.augmenting.pairs import CandidatePairs
from munjang.recipes.augmenting.parts import Parts
from munjang.recipes.augmenting.sentences import Sentences
from munjang.vectors import open_writer, read_vectors
from munjang.vectors.files import create_npy

Array: TypeAlias = npt.NDArray[Any]

WINDOW = 2048  # pairs that are scored before a piece is written: a minute on a slow machine
_RECORD = "scores.json"
_RESULTS = ("scores.npy", "spread.npy")


@dataclass(frozen=True, eq=False)
class PairScores:
    """What the cross-encoders say of each pair; memory-mapped."""

    scores: Array  # float32 [m], 0..1
    spread: Array  # float32 [m], standard deviation over cross-encoders and orders
    truncated: int = 0  # pairs that were longer than a cross-encoder reads, counted for each of them and each order

    @classmethod
    def read(cls, folder: str | Path) -> PairScores:
        """Those that `score_candidates` left in this folder."""
        path = Path(folder)
        try:
            scores, spread = (np.load(path / name, mmap_mode="r") for name in _RESULTS)
            record = json.loads((path / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: the scores cannot be read ({error}); score the pairs again") from error
        return cls(scores, spread, int(record["truncated"]))

    def __len__(self) -> int:
        return len(self.scores)


def score_candidates(
    pairs: CandidatePairs,
    sentences: Sentences,
    cross_encoders: Sequence[CrossEncoder],
    folder: Path,
    *,
    both_orders: bool = True,
    progress: Progress = False,
) -> PairScores:
    """Score the pairs and leave the result in `folder`: scores.npy, spread.npy, scores.json.

    After a kill at any moment the same call goes on at the next window. progress counts pairs.
    """
    _check(pairs, sentences, cross_encoders)
    made_of = {
        "cross-encoders": [f"{model.fingerprint} {model.dtype}" for model in cross_encoders],
        "sentences": sentences.hash,
        "pairs": pairs.hash,
        "both orders": both_orders,
        "window": WINDOW,
    }
    parts = Parts(Path(folder), _RECORD, made_of, results=_RESULTS)
    if not parts.finished():
        if not parts.has("readings"):
            _write_readings(parts.path("readings"), pairs, sentences, cross_encoders, both_orders, progress)
        _split(parts, len(pairs))
    return PairScores.read(folder)


def _write_readings(
    path: Path,
    pairs: CandidatePairs,
    sentences: Sentences,
    cross_encoders: Sequence[CrossEncoder],
    both_orders: bool,
    progress: Progress,
) -> None:
    """Write mean, spread and truncated readings of every pair, float32 [m, 3]; `Parts` has checked what they are of."""
    with (
        open_writer(path, width=3, setting="mean, spread, truncated") as writer,
        track(progress, len(pairs)) as done,
    ):
        for window in pairs.windows(WINDOW):
            keys = [f"{left} {right}" for left, right in zip(pairs.left[window], pairs.right[window], strict=True)]
            if not writer.skip(keys):
                found, truncated = _score(_texts(pairs, sentences, window), cross_encoders, both_orders=both_orders)
                counts = np.zeros(len(keys))
                counts[0] = truncated  # the engine counts them for the whole window
                writer.append(np.stack([found.mean(axis=0), found.std(axis=0), counts], axis=1), keys)
            done(len(keys))
        writer.finish()


def _texts(pairs: CandidatePairs, sentences: Sentences, window: slice) -> list[tuple[str, str]]:
    sides = zip(pairs.left[window].tolist(), pairs.right[window].tolist(), strict=True)
    return [(sentences[left], sentences[right]) for left, right in sides]


def _score(
    pairs: list[tuple[str, str]], cross_encoders: Sequence[CrossEncoder], *, both_orders: bool
) -> tuple[Array, int]:  # float32 [readings, pairs]
    """Every reading of the pairs: by each cross-encoder, in each order."""
    asked = pairs + [(b, a) for a, b in pairs] if both_orders else pairs
    readings, truncated = [], 0
    for model in cross_encoders:
        predicted = model.predict_report(asked)
        truncated += predicted.report.truncated
        readings.append(predicted.scores.reshape(-1, len(pairs)))
    return np.clip(np.concatenate(readings), 0.0, 1.0), truncated


def _split(parts: Parts, count: int) -> None:
    """Write the readings as the files of the result."""
    readings = read_vectors(parts.path("readings"))
    for name, column in zip(_RESULTS, (0, 1), strict=True):
        with create_npy(parts.folder / name, (count,), np.float32) as result:
            result[:] = readings[:, column]
    truncated = int(readings[:, 2].sum(dtype=np.float64))
    parts.finish({"pairs": count, "truncated": truncated})


def _check(pairs: CandidatePairs, sentences: Sentences, cross_encoders: Sequence[CrossEncoder]) -> None:
    if not cross_encoders:
        raise InputError("there is no cross-encoder to score with: give at least one")
    for model in cross_encoders:
        if len(model.labels) != 1:
            raise InputError(
                f"a cross-encoder with one score is needed, got {model!r} with {len(model.labels)} labels "
                f"({', '.join(model.labels[:5])}): train one with recipes.cross_sts"
            )
        if model.parts.activation != "Sigmoid":
            raise InputError(
                f"scores must be in 0..1, but {model!r} ends in {model.parts.activation}: train one with "
                "recipes.cross_sts, or give it a sigmoid with its `calibrate`"
            )
    if not len(pairs):
        raise InputError("there are no pairs to score")
    if int(max(pairs.left.max(), pairs.right.max())) >= len(sentences):
        raise InputError(f"the pairs are of other sentences: they name places beyond the {len(sentences):,} given")
