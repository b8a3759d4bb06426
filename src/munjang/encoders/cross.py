"""`CrossEncoder`: pairs of texts in, scores or labels out; both texts are read together.

    (a, b) -> [CLS] a [SEP] b [SEP] -> packed batches -> body -> head -> logits [n, labels] -> activation

It is more exact than a bi-encoder and n times as slow for n documents: use it to rerank a few candidates, or to label
pairs.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from munjang import checkpoint
from munjang.checkpoint import BiParts, CrossParts, HeadName
from munjang.data.rows import Source, open_pairs, read_texts
from munjang.encoders.base import BaseEncoder, warn_truncated
from munjang.encoders.runtime import CallOptions, CrossRuntime, Pair, run_windows, split_windows
from munjang.errors import InputError, ModelWarning
from munjang.nn.calibration import expected_calibration_error, fit_platt, log_loss, sigmoid, softmax
from munjang.progress import Progress, track
from munjang.types import DTypeName, EncodeReport, SavedName, Threshold

Array = np.ndarray[Any, Any]

_CALL = CallOptions()  # scores depend on no option of a call


class HasParts(Protocol):
    """A bi-encoder, as far as a new cross-encoder needs it."""

    @property
    def parts(self) -> BiParts: ...


@dataclass(frozen=True)
class Predicted:
    """Scores, and what computing them took."""

    scores: Array  # float32 [n] for one label, [n, labels] for more
    report: EncodeReport  # its texts are pairs


@dataclass(frozen=True)
class Ranked:
    """One document of a ranking, best first."""

    index: int  # position among the documents
    score: float
    text: str


@dataclass(frozen=True)
class Calibration:
    """The result of Platt scaling, sigmoid(scale * logit + shift), measured on the pairs it was fitted on."""

    scale: float
    shift: float
    log_loss_before: float
    log_loss_after: float
    ece_before: float  # expected calibration error: |probability - frequency|, in ten bins
    ece_after: float


class CrossEncoder(BaseEncoder[CrossParts, Pair]):
    """A scorer or classifier of pairs. Load one with `munjang.load_reranker` or `munjang.load_cross_encoder`.

    Example:
        >>> reranker = munjang.load_reranker()
        >>> best = reranker.rank("비가 오나요?", ["비가 온다.", "주가가 올랐다."])[0]
        >>> best.text
        '비가 온다.'
    """

    @classmethod
    def load(
        cls,
        path_or_id: str | Path,
        *,
        labels: Sequence[str] | int | None = None,
        head: HeadName | None = None,
        device: str | torch.device | None = None,
        dtype: DTypeName = "auto",
        max_length: int | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> CrossEncoder:
        """Load a cross-encoder; the arguments are those of `munjang.load_cross_encoder`."""
        folder = checkpoint.resolve(path_or_id, revision=revision, local_files_only=local_files_only, cross=True)
        parts = checkpoint.read_cross(folder, labels=labels, head=head, max_length=max_length)
        for note in parts.notes:
            warnings.warn(f"{path_or_id}: {note}", ModelWarning, stacklevel=2)
        return cls(parts, device=device, dtype=dtype)

    @classmethod
    def from_body(
        cls,
        body: BiParts | HasParts,
        labels: Sequence[str] | int = 1,
        *,
        head: HeadName | None = None,
        seed: int = 0,
        device: str | torch.device | None = None,
        dtype: DTypeName = "auto",
    ) -> CrossEncoder:
        """Put a new head on a copy of a bi-encoder's body; train it before use.

        Args:
            body: A bi-encoder, or its parts.
            labels: The number of outputs, or their names.
            head: 'sbert' (the paper's) or 'standard' (the family's own).
            seed: Of the new head's weights.
            device: As in `munjang.load`.
            dtype: As in `munjang.load`.
        """
        parts = body if isinstance(body, BiParts) else body.parts
        made = checkpoint.cross_from_bi(parts, labels, head=head, seed=seed)
        return cls(made, device=device, dtype=dtype)

    # --- properties of the model -------------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs; one entry where the output is a score."""
        return self.parts.labels

    @property
    def thresholds(self) -> Mapping[str, Threshold]:
        """Scores measured for this model, by task ('answer'). Training and `calibrate` drop them."""
        return self.parts.thresholds

    @property
    def first_stage_weight(self) -> float:
        """How much of the first stage's score stays in the order of reranked hits. Dropped as thresholds are."""
        return self.parts.first_stage_weight

    def with_thresholds(self, thresholds: Mapping[str, Threshold]) -> CrossEncoder:
        """Return the same model, sharing its weights, with other thresholds."""
        other = copy.copy(self)
        other.parts = self.parts.with_thresholds(thresholds)
        return other

    # --- scoring -----------------------------------------------------------------------------------------------------

    def predict(self, pairs: Source, *, raw: bool = False, progress: Progress = False) -> Array:
        """Score pairs.

        Args:
            pairs: A list or another iterable of pairs (a, b), or a table with two text columns.
            raw: Return the head's bare outputs. By default one label goes through the model's saved activation (a
                sigmoid unless saved otherwise), several through a softmax.
            progress: True for a bar on stderr, or a function of (done, total).

        Returns:
            float32 [n] for one label, [n, labels] for more.

        Raises:
            InputError: An input is not a pair of texts.

        Warns:
            TruncationWarning: Pairs were longer than `max_length` tokens; the longer text of each was truncated.
        """
        result = self.predict_report(pairs, raw=raw, progress=progress)
        warn_truncated(result.report, "pairs", "the longer text of each was truncated")
        return result.scores

    def predict_report(self, pairs: Source, *, raw: bool = False, progress: Progress = False) -> Predicted:
        """Score pairs and return statistics instead of warning about truncation."""
        started = time.perf_counter()
        empty = np.zeros((0,) if len(self.labels) == 1 else (0, len(self.labels)), np.float32)
        stream = self.predict_stream(pairs, raw=raw, progress=progress)
        parts = list(stream) or [Predicted(empty, self._empty_report())]
        report = functools.reduce(EncodeReport.plus, [part.report for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        return Predicted(scores, replace(report, seconds=time.perf_counter() - started))

    def predict_stream(self, pairs: Source, *, raw: bool = False, progress: Progress = False) -> Iterator[Predicted]:
        """Score a stream of any length in bounded memory; yield windows of scores in the order of the pairs."""
        opened, plan = open_pairs(pairs), self._plan()
        windows = split_windows(opened, lambda pair: len(pair[0]) + len(pair[1]), *plan.window)
        with track(progress, opened.total, unit="pairs") as advance:
            for window in run_windows(
                self._runtime, windows, _CALL, width=len(self.labels), plan=plan, on_done=advance
            ):
                if window.recomputed:
                    self._warn_recomputed(window.recomputed, "scores")
                yield Predicted(
                    self.scores_of(window.rows, raw=raw),
                    EncodeReport(
                        len(window.rows), window.tokens, window.truncated, window.longest, self.max_length, 0.0
                    ),
                )

    def predict_labels(self, pairs: Source, *, progress: Progress = False) -> list[str]:
        """Return the most likely label of each pair."""
        if len(self.labels) == 1:
            raise InputError("the model gives one score, not labels: use predict, or load it with labels=[...]")
        best = self.predict(pairs, raw=True, progress=progress).argmax(axis=1)
        return [self.labels[index] for index in best]

    def rank(
        self, query: str, documents: Source, top_k: int | None = None, *, progress: Progress = False
    ) -> list[Ranked]:
        """Rank documents by their score with the query, best first; equal scores keep their order.

        Args:
            query: One text.
            documents: A list of texts, or whatever `BiEncoder.encode` takes.
            top_k: How many to return (default: all).
            progress: True for a bar on stderr, or a function of (done, total).
        """
        if len(self.labels) != 1:
            raise InputError(f"rank needs a model with one score, this one has {len(self.labels)} labels")
        if not isinstance(query, str):
            raise InputError(f"query must be one text, got {type(query).__name__}")
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k must be at least 1, or None for all, got {top_k}")
        texts = read_texts(documents, name="documents")
        scores = self.predict([(query, text) for text in texts], progress=progress)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [Ranked(int(index), float(scores[index]), texts[index]) for index in order]

    def scores_of(self, logits: Array, *, raw: bool = False) -> Array:
        """Convert logits [n, labels] into what `predict` returns."""
        one = logits.shape[1] == 1
        if raw:
            scores = logits
        elif self.parts.activation == "Sigmoid":
            scores = sigmoid(logits)
        elif self.parts.activation == "Tanh":
            scores = np.tanh(logits)
        else:
            scores = logits if one else softmax(logits)
        return scores[:, 0] if one else scores

    def calibrate(self, pairs: Source, labels: Sequence[int] | Array) -> Calibration:
        """Make scores probabilities: Platt scaling, folded into the last layer.

        The order of scores stays the same; thresholds are dropped. The saved model gives the same scores in
        sentence-transformers.

        Args:
            pairs: Pairs that the model was not trained on.
            labels: 0 or 1 for each.
        """
        if len(self.labels) != 1:
            raise InputError(f"calibrate needs a model with one score, this one has {len(self.labels)} labels")
        logits = self.predict(pairs, raw=True)
        truth = _binary(labels, len(logits))
        scale, shift = fit_platt(logits, truth)
        if scale <= 0:
            raise InputError(
                f"scores do not rise with the labels (scale {scale:.3g}): the labels are inverted (1 must be the "
                "positive class), or the model is not trained"
            )
        with torch.no_grad():
            self.parts.head.out.weight.mul_(scale)
            self.parts.head.out.bias.mul_(scale).add_(shift)
        self.parts.activation = "Sigmoid"
        self.parts.thresholds, self.parts.first_stage_weight = {}, 0.0  # they were measured on other scores
        self.refresh()
        after = scale * logits.astype(np.float64) + shift
        return Calibration(
            scale,
            shift,
            log_loss(logits, truth),
            log_loss(after, truth),
            expected_calibration_error(sigmoid(logits), truth),
            expected_calibration_error(sigmoid(after), truth),
        )

    # --- saving ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, dtype: SavedName | torch.dtype = "float32", card: str | None = None) -> None:
        """Save the model atomically, for Munjang, sentence-transformers and transformers.

        A family's own head, and the paper's head on BERT or ELECTRA, load in transformers and sentence-transformers 3.0
        to 6.x; any other head loads in sentence-transformers 6.x only. The model card says which.

        Args:
            path: The folder; a model in it is replaced when the new one is complete.
            dtype: Precision of the saved weights, whatever computes here. "int8" is a quarter of the size, for Munjang
                only; its scores differ a little.
            card: README.md (default: generated).
        """
        checkpoint.write_cross(self.parts, Path(path), dtype=dtype, card=card)

    def describe(self) -> dict[str, object]:
        """Describe the model, as `munjang info` prints it."""
        return {**self.parts.describe(), **self._describe_runtime()}

    def __repr__(self) -> str:
        return (
            f"CrossEncoder({self.parts.source!r}, {self.parts.body.config.family}, labels={list(self.labels)}, "
            f"max_length={self.max_length}, device={str(self.device)!r}, dtype={str(self.dtype)[6:]!r})"
        )

    def _make_runtime(self, dtype: torch.dtype) -> CrossRuntime:
        return CrossRuntime(self.parts, self._device, dtype)

    def _identity(self) -> tuple[dict[str, nn.Module], tuple[object, ...]]:
        parts = self.parts
        settings = (parts.head.shape, parts.labels, parts.activation, parts.tokenizer.max_length, parts.body.config)
        return {"body": parts.body, "head": parts.head}, settings


def _binary(labels: Sequence[int] | Array, count: int) -> Array:
    truth = np.asarray(labels, np.float64)
    if truth.shape != (count,):
        raise InputError(f"every pair needs one label: got {count} pairs and labels of shape {truth.shape}")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise InputError(f"labels must be 0 or 1, got {sorted(set(truth.tolist()) - {0.0, 1.0})[:3]}")
    if count == 0 or truth.min() == truth.max():
        raise InputError("calibration needs pairs of both classes, got " + ("none" if not count else "a single class"))
    return truth
