"""Candidate pairs -> a score for each from cross-encoders, and how far their scores differ.

Enters: pairs and one or more cross-encoders with one label. Leaves: the mean of their scores, 0..1, and the standard
deviation (`spread`). Each cross-encoder reads a pair in both orders: similarity has no direction, but a cross-encoder
has, so the mean is the better score, and where the orders or the models disagree the label is uncertain.

Every window of pairs becomes a piece on disk as soon as it is scored.
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
from munjang.recipes.augmenting.parts import Parts, new_array
from munjang.recipes.augmenting.sentences import Sentences

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
        names = []
        with track(progress, len(pairs)) as done:
            for number, window in enumerate(pairs.windows(WINDOW)):
                names.append(f"{number:06}")
                if not parts.has(f"scores-{names[-1]}"):
                    found, truncated = _score(_texts(pairs, sentences, window), cross_encoders, both_orders=both_orders)
                    parts.write(f"truncated-{names[-1]}", np.array([truncated]))
                    parts.write(f"scores-{names[-1]}", np.stack([found.mean(axis=0), found.std(axis=0)], axis=1))
                done(window.stop - window.start)
        _join(parts, names, len(pairs))
    return PairScores.read(folder)


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


def _join(parts: Parts, names: list[str], count: int) -> None:
    with (
        new_array(parts.folder / "scores.npy", count, np.float32) as scores,
        new_array(parts.folder / "spread.npy", count, np.float32) as spread,
    ):
        start = 0
        for name in names:
            piece = parts.read(f"scores-{name}")
            window = slice(start, start + len(piece))
            scores[window], spread[window] = piece[:, 0], piece[:, 1]
            start = window.stop
    truncated = sum(int(parts.read(f"truncated-{name}")[0]) for name in names)
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
