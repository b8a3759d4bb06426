"""`BiEncoder`: texts in, vectors out; one encoder for both sides of every comparison.

    texts -> (prompt) -> tokens -> packed batches -> body -> pooling -> heads -> float32 [n, dimension]

The weights as they were read stay float32 in `parts`: that is what is saved and trained. What computes is a copy on the
device, in the precision chosen there. Every method may be called from several threads at once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from munjang import checkpoint, vectors
from munjang.checkpoint import ModelParts, with_thresholds
from munjang.computer import Computer, Copyable, fingerprint_of
from munjang.data.rows import Source, TextRow, unusual
from munjang.engine import Engine, Plan, plan_for
from munjang.errors import InputError, ModelError, ModelWarning, PrecisionWarning, TruncationWarning
from munjang.inputs import Rows, as_rows, split_rows
from munjang.nn.device import choose_device, choose_dtype, cpu_cores, explain
from munjang.nn.pooling import PoolingMode
from munjang.progress import Progress, track
from munjang.text.packing import Batch, Tokens
from munjang.text.tokenizer import Tokenizer
from munjang.types import DTypeName, EncodeReport, SavedName, Similarity, Threshold

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Encoded:
    """Vectors and what making them took."""

    vectors: Array  # float32 [n, dimension]
    report: EncodeReport


@dataclass(frozen=True)
class Job:
    """One call's settings, resolved."""

    prompt: str
    prompt_tokens: int
    normalize: bool
    dimension: int


class BiEncoder(Copyable):
    """A sentence encoder. Make one with `munjang.load`."""

    def __init__(
        self, parts: ModelParts, *, device: str | torch.device | None = None, dtype: DTypeName = "auto"
    ) -> None:
        self.parts = parts
        self._device = choose_device(device)
        self._asked = dtype
        self._threads = cpu_cores()
        self._truncate_dim = parts.truncate_dim
        self._fingerprint: str | None = None
        self._exact: Computer | None = None
        self.refresh()

    @classmethod
    def load(
        cls,
        path_or_id: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: DTypeName = "auto",
        pooling: PoolingMode | Sequence[PoolingMode] | None = None,
        max_length: int | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> BiEncoder:
        """Read a model from a folder or the hub; what had to be assumed is said in a `ModelWarning`.

        `pooling` overrides the saved one (for example to compare CLS, mean and max of an untrained BERT).
        """
        folder = checkpoint.resolve(path_or_id, revision=revision, local_files_only=local_files_only)
        parts = checkpoint.read(folder, pooling=pooling, max_length=max_length)
        for note in parts.notes:
            warnings.warn(f"{path_or_id}: {note}", ModelWarning, stacklevel=2)
        return cls(parts, device=device, dtype=dtype)

    # --- what the model is -------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """The precision that computes; vectors are float32 whatever it is."""
        return self._computer.dtype

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        full = self.full_dimension
        return full if self._truncate_dim is None else min(full, self._truncate_dim)

    @property
    def full_dimension(self) -> int:
        """Width of the vectors before `truncate_dim`."""
        width = self.parts.pooling.dimension(self.parts.body.hidden)
        for head in self.parts.heads:
            width = getattr(head, "dimension", width)
        return width

    @property
    def truncate_dim(self) -> int | None:
        """Keep only the first so many values of each vector (Matryoshka models)."""
        return self._truncate_dim

    @truncate_dim.setter
    def truncate_dim(self, value: int | None) -> None:
        if value is not None and not 1 <= value <= self.full_dimension:
            raise InputError(f"truncate_dim must be 1..{self.full_dimension} (the model's dimension), got {value}")
        self._truncate_dim = value

    @property
    def max_length(self) -> int:
        """Tokens that a text may have, special tokens included; longer texts are cut, and that is reported."""
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
        """CPU threads that bulk encoding uses: by default the cores this process may use, its container's quota too."""
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
    def prompts(self) -> dict[str, str]:
        return self.parts.prompts

    @property
    def similarity_name(self) -> Similarity:
        return self.parts.similarity

    @property
    def thresholds(self) -> Mapping[str, Threshold]:
        """Cosines that were measured for this model, by task ('paraphrase', 'cluster'); training drops them.

        There are none while `truncate_dim` is another than they were measured with: the cosines are others, too.
        """
        full = self.full_dimension
        return self.parts.thresholds if self.dimension == min(full, self.parts.truncate_dim or full) else {}

    def with_thresholds(self, thresholds: Mapping[str, Threshold]) -> BiEncoder:
        """The same model with these thresholds in place of its own; it shares the weights."""
        other = with_thresholds(self, thresholds)
        other.parts.truncate_dim = self._truncate_dim  # the width that they hold for
        return other

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides the vectors: weights, tokenizer, pooling, heads, length."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint_of(self.parts)
        return self._fingerprint

    def refresh(self) -> None:
        """Make the computing copy anew from `parts`, after their weights were changed."""
        self._computer = Computer(self.parts, self._device, choose_dtype(self._asked, self._device))
        self._exact = None
        self._fingerprint = None

    # --- encoding ----------------------------------------------------------------------------------------------------

    def encode(
        self,
        texts: Source,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        progress: Progress = False,
    ) -> Array:
        """Vectors of the texts: float32 [n, dimension], always; one string counts as a list of one.

        normalize: unit length, True or False; None leaves it to the model. progress: True for a line on stderr, or a
        function of (done, total). Texts longer than `max_length` tokens are cut, with a `TruncationWarning`.
        """
        result = self.encode_report(
            texts, prompt=prompt, prompt_name=prompt_name, normalize=normalize, progress=progress
        )
        if result.report.truncated:
            _warn_truncated(result.report)
        return result.vectors

    def encode_query(self, texts: Source, *, normalize: bool | None = None, progress: Progress = False) -> Array:
        """`encode` with the model's prompt for queries, where it has one."""
        return self.encode(texts, prompt_name=self.prompt_for("query"), normalize=normalize, progress=progress)

    def encode_document(self, texts: Source, *, normalize: bool | None = None, progress: Progress = False) -> Array:
        """`encode` with the model's prompt for documents, where it has one."""
        name = self.prompt_for("document", "passage", "corpus")
        return self.encode(texts, prompt_name=name, normalize=normalize, progress=progress)

    def encode_report(
        self,
        texts: Source,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        progress: Progress = False,
    ) -> Encoded:
        """`encode`, with the report instead of a warning."""
        started = time.perf_counter()
        inputs, total = as_rows(texts)
        job = self.job(prompt, prompt_name, normalize)
        parts, report = [], self._report()
        with track(progress, total) as done:
            for part in self._run(self._split(inputs), job, done):
                parts.append(part.vectors)
                report = report.plus(part.report)
        rows = np.concatenate(parts) if parts else np.zeros((0, job.dimension), np.float32)
        return Encoded(rows, replace(report, seconds=time.perf_counter() - started))

    def encode_stream(
        self,
        texts: Source,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        progress: Progress = False,
    ) -> Iterator[Encoded]:
        """Window after window of vectors, in input order, in bounded memory: for iterators of any length."""
        rows, total = as_rows(texts)
        job = self.job(prompt, prompt_name, normalize)
        with track(progress, total) as done:
            yield from self._run(self._split(rows), job, done)

    def encode_to(
        self,
        rows: Source,
        path: str | Path,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        overwrite: bool = False,
        progress: Progress = False,
    ) -> EncodeReport:
        """Write the vectors of a stream to `path` as they come: .npy (memory-map it), .parquet or .jsonl.

        rows: texts, or dicts with `text` whose other keys become columns. Memory stays bounded. After a kill at any
        moment the same call goes on where it stopped: texts that are done are compared, not encoded again. The file
        appears under its name only when it is whole.
        """
        started = time.perf_counter()
        texts, total = as_rows(rows, keep=None)
        job = self.job(prompt, prompt_name, normalize)
        report, skipped = self._report(), 0
        waiting: deque[Rows] = deque()
        with (
            vectors.open_writer(path, width=job.dimension, setting=self._setting(job), overwrite=overwrite) as writer,
            track(progress, total) as done,
        ):

            def fresh() -> Iterator[Rows]:
                nonlocal skipped
                for window in self._split(texts):
                    passed = writer.skip(window.texts, window.columns) if writer.rows_to_skip else 0
                    done(passed)
                    skipped += passed
                    if passed < len(window.texts):
                        waiting.append(window.after(passed))
                        yield waiting[-1]

            for part in self._run(fresh(), job, done):
                window = waiting.popleft()
                writer.append(part.vectors, window.texts, window.columns)
                report = report.plus(part.report)
            writer.finish()
        return replace(report, texts=report.texts + skipped, skipped=skipped, seconds=time.perf_counter() - started)

    # --- comparing and saving ----------------------------------------------------------------------------------------

    def similarity(self, a: Array | Source, b: Array | Source | None = None) -> Array:
        """How alike each of `a` is to each of `b` (or of `a`): [n, m], by the model's own measure.

        Vectors or texts; texts are encoded first.
        """
        left = self._vectors(a)
        return vectors.similarity(left, left if b is None else self._vectors(b), self.similarity_name)

    def save(self, path: str | Path, *, dtype: SavedName | torch.dtype = "float32", card: str | None = None) -> None:
        """Write the model so that Munjang and sentence-transformers (3.0 to 6.x) load it, to the same vectors.

        dtype: of the saved weights, whatever precision computes here. "int8" is a quarter of the size and for Munjang
        alone; its vectors differ a little. Atomic: a killed save leaves the old model or none, never a half one.
        """
        parts = replace(self.parts, truncate_dim=self._truncate_dim, thresholds=self.thresholds)
        checkpoint.write(parts, Path(path), dtype=dtype, card=card)

    def describe(self) -> dict[str, object]:
        """What the model is, for people: `munjang info` prints it."""
        return {
            **replace(self.parts, thresholds=self.thresholds).describe(),
            "dimension": self.dimension,
            "full dimension": self.full_dimension,
            "device": str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "chosen": explain(self.device, self.dtype, str(self._asked)),
            "threads": self.threads,
            "notes": list(self.parts.notes),
        }

    def __repr__(self) -> str:
        return (
            f"BiEncoder({self.parts.source!r}, {self.parts.body.config.family}, dimension={self.dimension}, "
            f"max_length={self.max_length}, device={str(self.device)!r}, dtype={str(self.dtype)[6:]!r})"
        )

    # --- for those who pack batches of their own ---------------------------------------------------------------------

    @property
    def computer(self) -> Computer:
        """What computes one packed batch on the device."""
        return self._computer

    def prompt_for(self, *names: str) -> str | None:
        """The first of these prompts that the model has ('query', 'document'...), else its default one."""
        return next((name for name in names if name in self.parts.prompts), self.parts.default_prompt_name)

    def job(self, prompt: str | None, prompt_name: str | None, normalize: bool | None) -> Job:
        """The settings of a call as `encode` takes them: for callers that pack batches of their own."""
        if prompt is not None and prompt_name is not None:
            raise InputError("give prompt or prompt_name, not both")
        name = prompt_name or (self.parts.default_prompt_name if prompt is None else None)
        if name is not None:
            if name not in self.parts.prompts:
                known = ", ".join(map(repr, self.parts.prompts)) or "none"
                raise InputError(f"prompt_name must be one of the model's prompts ({known}), got {name!r}")
            prompt = self.parts.prompts[name]
        prompt = prompt or ""
        prompt_tokens = 0
        if prompt and not self.parts.pooling.include_prompt:
            tokenizer = self.parts.tokenizer
            prompt_tokens = int(tokenizer.encode([prompt]).lengths[0]) - len(tokenizer.suffix)
        return Job(prompt, prompt_tokens, bool(normalize), self.dimension)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        return plan_for(self._device, self._threads)

    def _split(self, rows: Iterable[str | TextRow]) -> Iterator[Rows]:
        plan = self._plan()
        return split_rows(rows, plan.window_texts, plan.window_characters)

    def _report(self) -> EncodeReport:
        return EncodeReport(0, 0, 0, 0, self.max_length, 0.0)

    def _setting(self, job: Job) -> str:
        """What a resumed output must agree with: the model and everything of the call that decides the vectors."""
        setting = json.dumps([self.fingerprint, str(self.dtype), job.prompt, job.normalize, job.dimension])
        return hashlib.blake2b(setting.encode(), digest_size=16).hexdigest()

    def _vectors(self, given: Any) -> Array:
        first = next(iter(given), None) if isinstance(given, list | tuple) else given
        is_vectors = isinstance(first, np.ndarray) and first.dtype.kind not in "OUT"
        if is_vectors or isinstance(first, Tensor) or (first is not given and isinstance(first, list | tuple)):
            return np.asarray(given)
        return self.encode(given)

    def _run(self, source: Iterator[Rows], job: Job, done: Callable[[int], None]) -> Iterator[Encoded]:
        """Windows through the engine; what is not finite is computed again in float32."""
        waiting: deque[list[str]] = deque()

        def texts() -> Iterator[list[str]]:
            for window in source:
                waiting.append(window.texts)
                yield window.texts

        engine = self._engine(self._computer, job)
        for window in engine.run(texts(), done):
            inputs, rows = waiting.popleft(), window.rows
            # One sum tells; only where it is not finite are all values looked at.
            if not np.isfinite(np.vdot(rows, rows)) and not np.isfinite(rows).all():
                rows = self._again(inputs, rows, job)
            if job.normalize:
                rows = vectors.normalize(rows)
            reasons = Counter(reason for reason in map(unusual, inputs) if reason is not None)
            report = EncodeReport(
                len(rows), window.tokens, window.truncated, window.longest, self.max_length, 0.0, unusual=reasons
            )
            yield Encoded(rows, report)

    def _engine(self, computer: Computer, job: Job) -> Engine[str]:
        def tokenise(texts: Sequence[str], by_words: bool = True) -> Tokens:
            if job.prompt:
                texts = [job.prompt + text for text in texts]
            return self.parts.tokenizer.encode(texts, by_words=by_words)

        def compute(batch: Batch) -> Tensor:
            return computer(batch, job.prompt_tokens, job.dimension)

        return Engine(
            tokenise,
            compute,
            width=job.dimension,
            device=self._device,
            plan=self._plan(),
            beside=functools.partial(tokenise, by_words=False),
        )

    def _again(self, texts: list[str], rows: Array, job: Job) -> Array:
        """The rows that are not finite, computed in float32."""
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if self.dtype != torch.float32:
            name = str(self.dtype).removeprefix("torch.")
            warnings.warn(
                f"{len(bad)} vectors were not finite in {name} and were computed again in float32; "
                "load the model with dtype='float32' if this happens often",
                PrecisionWarning,
                stacklevel=4,
            )
            if self._exact is None:
                self._exact = Computer(self.parts, self._device, torch.float32)
            (window,) = self._engine(self._exact, job).run([[texts[i] for i in bad]])
            rows = rows.copy()
            rows[bad] = window.rows
            bad = bad[~np.isfinite(window.rows).all(axis=1)]
        if len(bad):
            raise ModelError(
                f"{len(bad)} vectors are not finite even in float32, the first for {texts[bad[0]][:60]!r}: "
                "the model's weights are damaged"
            )
        return rows


def _warn_truncated(report: EncodeReport) -> None:
    warnings.warn(
        f"truncated: {report.truncated:,} of {report.texts:,} texts were longer than {report.max_length} tokens "
        f"(the longest has {report.longest:,}) and only their beginning counts; raise max_length where the model "
        "allows it, or split texts with munjang.chunks",
        TruncationWarning,
        stacklevel=3,
    )
