"""`CrossEncoder`: pairs of texts in, scores or labels out; both texts are read together.

    (a, b) -> [CLS] a [SEP] b [SEP] -> packed batches -> body -> head -> logits [n, labels] -> activation

It is more exact than a bi-encoder and n times as slow for n documents: use it to rescore a few candidates, or to label
pairs. The weights as they were read stay float32 in `parts`; what computes is a copy on the device. Every method may be
called from several threads at once.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from munjang import checkpoint
from munjang.checkpoint import CrossParts, HeadWish, ModelParts, with_thresholds
from munjang.checkpoint.cross_parts import HeadName
from munjang.checkpoint.cross_reading import from_model
from munjang.checkpoint.hub import CROSS_ORGANISATION
from munjang.computer import Copyable, CrossComputer, cross_fingerprint_of
from munjang.data.rows import Source, read_texts
from munjang.engine import Engine, Plan, plan_for
from munjang.errors import InputError, ModelError, ModelWarning, PrecisionWarning, TruncationWarning
from munjang.inputs import as_pairs, split_pairs
from munjang.nn.calibration import expected_calibration_error, fit_platt, log_loss, sigmoid, softmax
from munjang.nn.device import choose_device, choose_dtype, cpu_cores, explain
from munjang.progress import Progress, track
from munjang.text.packing import Tokens
from munjang.text.tokenizer import Tokenizer
from munjang.types import DTypeName, EncodeReport, SavedName, Threshold

Array = np.ndarray[Any, Any]
Pair = tuple[str, str]


class HasParts(Protocol):
    """A bi-encoder, as far as a new cross-encoder needs it."""

    @property
    def parts(self) -> ModelParts: ...


@dataclass(frozen=True)
class Predicted:
    """Scores and what making them took."""

    scores: Array  # float32 [n] for one label, [n, labels] for more
    report: EncodeReport  # its texts are pairs


@dataclass(frozen=True)
class Ranked:
    """One document of a ranking, the best first."""

    index: int  # its place among the documents
    score: float
    text: str


@dataclass(frozen=True)
class Calibration:
    """What Platt scaling did: sigmoid(scale * logit + shift), before and after, on the pairs it was fitted on."""

    scale: float
    shift: float
    log_loss_before: float
    log_loss_after: float
    ece_before: float  # expected calibration error: |probability - frequency|, in ten bins
    ece_after: float


class CrossEncoder(Copyable):
    """A scorer or labeller of pairs. Make one with `munjang.load_cross_encoder`."""

    def __init__(
        self, parts: CrossParts, *, device: str | torch.device | None = None, dtype: DTypeName = "auto"
    ) -> None:
        self.parts = parts
        self._device = choose_device(device)
        self._asked = dtype
        self._threads = cpu_cores()
        self._fingerprint: str | None = None
        self._exact: CrossComputer | None = None
        self.refresh()

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
        """Read a cross-encoder, a Hugging Face sequence classifier, or a body that gets a new head.

        labels: how many outputs, or their names; where the saved head has others, the body is kept, the head is new,
        and a `ModelWarning` says so. head: 'sbert' (the paper's) or 'standard' (the family's own) for a new head.
        """
        folder = checkpoint.resolve(
            path_or_id, revision=revision, local_files_only=local_files_only, organisation=CROSS_ORGANISATION
        )
        parts = checkpoint.read_cross(folder, wish=HeadWish(labels, head), max_length=max_length)
        for note in parts.notes:
            warnings.warn(f"{path_or_id}: {note}", ModelWarning, stacklevel=2)
        return cls(parts, device=device, dtype=dtype)

    @classmethod
    def from_body(
        cls,
        body: ModelParts | HasParts,
        labels: Sequence[str] | int = 1,
        *,
        head: HeadName | None = None,
        seed: int = 0,
        device: str | torch.device | None = None,
        dtype: DTypeName = "auto",
    ) -> CrossEncoder:
        """A new head on a copy of a bi-encoder's body; train it before use."""
        parts = body if isinstance(body, ModelParts) else body.parts
        return cls(from_model(parts, HeadWish(labels, head, seed)), device=device, dtype=dtype)

    # --- what the model is -------------------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs; one entry where the output is a score."""
        return self.parts.labels

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """The precision that the body computes in; the head and the scores are float32 whatever it is."""
        return self._computer.dtype

    @property
    def max_length(self) -> int:
        """Tokens that a pair may have, special tokens included; of longer pairs the longer text is cut first."""
        return self.parts.tokenizer.max_length

    @max_length.setter
    def max_length(self, value: int) -> None:
        limit = self.parts.body.max_positions
        if value > limit:
            raise InputError(f"max_length must be at most {limit} (the model's positions), got {value}")
        self.parts.tokenizer.max_length = value
        self._fingerprint = None

    @property
    def threads(self) -> int:
        """CPU threads that bulk prediction uses: by default the cores this process may use."""
        return self._threads

    @threads.setter
    def threads(self, value: int) -> None:
        if value < 1:
            raise InputError(f"threads must be at least 1, got {value}")
        self._threads = value

    @property
    def tokenizer(self) -> Tokenizer:
        return self.parts.tokenizer

    @property
    def thresholds(self) -> Mapping[str, Threshold]:
        """Scores that were measured for this model, by task ('answer'); training and `calibrate` drop them."""
        return self.parts.thresholds

    def with_thresholds(self, thresholds: Mapping[str, Threshold]) -> CrossEncoder:
        """The same model with these thresholds in place of its own; it shares the weights."""
        return with_thresholds(self, thresholds)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides the scores: weights, tokenizer, head, labels, length."""
        if self._fingerprint is None:
            self._fingerprint = cross_fingerprint_of(self.parts)
        return self._fingerprint

    def refresh(self) -> None:
        """Make the computing copy anew from `parts`, after their weights were changed."""
        self._computer = CrossComputer(self.parts, self._device, choose_dtype(self._asked, self._device))
        self._exact = None
        self._fingerprint = None

    # --- scoring -----------------------------------------------------------------------------------------------------

    def predict(self, pairs: Source, *, raw: bool = False, progress: Progress = False) -> Array:
        """Scores of (a, b) pairs, float32: [n] for one label, [n, labels] probabilities for more.

        One label goes through the model's saved activation, by default a sigmoid; several through a softmax (or what
        was saved, if that is more than the identity). raw: the bare outputs of the head; for several labels that is
        what sentence-transformers' `predict` gives by default. Pairs that are too long are cut, with a
        `TruncationWarning`.
        """
        result = self.predict_report(pairs, raw=raw, progress=progress)
        if result.report.truncated:
            _warn_truncated(result.report)
        return result.scores

    def predict_report(self, pairs: Source, *, raw: bool = False, progress: Progress = False) -> Predicted:
        """`predict`, with the report instead of a warning."""
        started = time.perf_counter()
        found, report = [], self._report()
        for part in self.predict_stream(pairs, raw=raw, progress=progress):
            found.append(part.scores)
            report = report.plus(part.report)
        empty = np.zeros((0,) if len(self.labels) == 1 else (0, len(self.labels)), np.float32)
        scores = np.concatenate(found) if found else empty
        return Predicted(scores, replace(report, seconds=time.perf_counter() - started))

    def predict_stream(self, pairs: Source, *, raw: bool = False, progress: Progress = False) -> Iterator[Predicted]:
        """Window after window of scores, in input order, in bounded memory: for iterators of any length."""
        rows, total = as_pairs(pairs)
        plan = self._plan()
        with track(progress, total) as done:
            windows = split_pairs(rows, plan.window_texts, plan.window_characters)
            for logits, report in self._run(windows, done):
                yield Predicted(self.scores_of(logits, raw=raw), report)

    def predict_labels(self, pairs: Source, *, progress: Progress = False) -> list[str]:
        """The likeliest label of each pair, by name."""
        if len(self.labels) == 1:
            raise InputError("the model gives one score, not labels: use predict, or load it with labels=[...]")
        best = self.predict(pairs, raw=True, progress=progress).argmax(axis=1)
        return [self.labels[place] for place in best]

    def rank(
        self, query: str, documents: Source, top_k: int | None = None, *, progress: Progress = False
    ) -> list[Ranked]:
        """The documents in the order of their scores with the query, the best first; equal scores keep their order."""
        if len(self.labels) != 1:
            raise InputError(f"rank needs a model with one score, this one has {len(self.labels)} labels")
        if not isinstance(query, str):
            raise InputError(f"query must be one text, got {type(query).__name__}")
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k must be at least 1, or None for all, got {top_k}")
        texts = read_texts(documents, name="documents")
        scores = self.predict([(query, text) for text in texts], progress=progress)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [Ranked(int(place), float(scores[place]), texts[place]) for place in order]

    def calibrate(self, pairs: Source, labels: Sequence[int] | Array) -> Calibration:
        """Make scores probabilities: Platt scaling on pairs with labels 0/1, folded into the last layer.

        Use pairs that the model was not trained on. The order of scores stays; thresholds are dropped. The saved model
        gives the same scores in sentence-transformers.
        """
        if len(self.labels) != 1:
            raise InputError(f"calibrate needs a model with one score, this one has {len(self.labels)} labels")
        logits = self.predict(pairs, raw=True)
        truth = _binary(labels, len(logits))
        scale, shift = fit_platt(logits, truth)
        if scale <= 0:
            raise InputError(
                f"scores do not rise with the labels (scale {scale:.3g}): the labels are turned round (1 must be the "
                "positive class), or the model is not trained"
            )
        with torch.no_grad():
            self.parts.head.out.weight.mul_(scale)
            self.parts.head.out.bias.mul_(scale).add_(shift)
        self.parts.activation = "Sigmoid"
        self.parts.thresholds = {}  # they were limits of other scores
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
        """Write the model so that Munjang, sentence-transformers and transformers load it, to the same scores.

        A family's own head, and the paper's head on BERT or ELECTRA, load in transformers and sentence-transformers 3.0
        to 6.x; any other head loads in sentence-transformers 6.x only. The model card says which.

        dtype: of the saved weights, whatever precision computes here. "int8" is a quarter of the size and for Munjang
        alone; its scores differ a little. Atomic: a killed save leaves the old model or none, never a half one.
        """
        checkpoint.write_cross(self.parts, Path(path), dtype=dtype, card=card)

    def describe(self) -> dict[str, object]:
        """What the model is, for people: `munjang info` prints it."""
        return {
            **self.parts.describe(),
            "device": str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "chosen": explain(self.device, self.dtype, str(self._asked)),
            "threads": self.threads,
            "notes": list(self.parts.notes),
        }

    def __repr__(self) -> str:
        return (
            f"CrossEncoder({self.parts.source!r}, {self.parts.body.config.family}, labels={list(self.labels)}, "
            f"max_length={self.max_length}, device={str(self.device)!r}, dtype={str(self.dtype)[6:]!r})"
        )

    # --- for those who pack batches of their own ---------------------------------------------------------------------

    @property
    def computer(self) -> CrossComputer:
        """What computes one packed batch on the device."""
        return self._computer

    def scores_of(self, logits: Array, *, raw: bool = False) -> Array:
        """Logits [n, labels] to what `predict` gives: [n] for one label, [n, labels] for more."""
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

    # --- inside ------------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        return plan_for(self._device, self._threads)

    def _report(self) -> EncodeReport:
        return EncodeReport(0, 0, 0, 0, self.max_length, 0.0)

    def _run(self, source: Iterator[list[Pair]], done: Callable[[int], None]) -> Iterator[tuple[Array, EncodeReport]]:
        """Windows through the engine; what is not finite is computed again in float32."""
        waiting: deque[list[Pair]] = deque()

        def windows() -> Iterator[list[Pair]]:
            for window in source:
                waiting.append(window)
                yield window

        for window in self._engine(self._computer).run(windows(), done):
            pairs, logits = waiting.popleft(), window.rows
            if not np.isfinite(logits).all():
                logits = self._again(pairs, logits)
            report = EncodeReport(len(logits), window.tokens, window.truncated, window.longest, self.max_length, 0.0)
            yield logits, report

    def _engine(self, computer: Callable[..., Tensor]) -> Engine[Pair]:
        def tokenise(pairs: Sequence[Pair], by_words: bool = True) -> Tokens:
            return self.parts.tokenise([pair[0] for pair in pairs], [pair[1] for pair in pairs], by_words=by_words)

        return Engine(
            tokenise,
            computer,
            width=len(self.labels),
            device=self._device,
            plan=self._plan(),
            beside=functools.partial(tokenise, by_words=False),
        )

    def _again(self, pairs: list[Pair], logits: Array) -> Array:
        """The rows that are not finite, computed in float32."""
        bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
        if self.dtype != torch.float32:
            name = str(self.dtype).removeprefix("torch.")
            warnings.warn(
                f"{len(bad)} scores were not finite in {name} and were computed again in float32; "
                "load the model with dtype='float32' if this happens often",
                PrecisionWarning,
                stacklevel=5,
            )
            if self._exact is None:
                self._exact = CrossComputer(self.parts, self._device, torch.float32)
            (window,) = self._engine(self._exact).run([[pairs[i] for i in bad]])
            logits = logits.copy()
            logits[bad] = window.rows
            bad = bad[~np.isfinite(window.rows).all(axis=1)]
        if len(bad):
            raise ModelError(
                f"{len(bad)} scores are not finite even in float32, the first for {pairs[bad[0]][0][:60]!r}: "
                "the model's weights are damaged"
            )
        return logits


def _binary(labels: Sequence[int] | Array, count: int) -> Array:
    truth = np.asarray(labels, np.float64)
    if truth.shape != (count,):
        raise InputError(f"every pair needs one label: got {count} pairs and labels of shape {truth.shape}")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise InputError(f"labels must be 0 or 1, got {sorted(set(truth.tolist()) - {0.0, 1.0})[:3]}")
    if count == 0 or truth.min() == truth.max():
        raise InputError("calibration needs pairs of both classes, got " + ("none" if not count else "one class only"))
    return truth


def _warn_truncated(report: EncodeReport) -> None:
    warnings.warn(
        f"truncated: {report.truncated:,} of {report.texts:,} pairs were longer than {report.max_length} tokens "
        f"(the longest has {report.longest:,}) and the longer text of each was cut; raise max_length where the model "
        "allows it, or split texts with munjang.chunks",
        TruncationWarning,
        stacklevel=3,
    )
