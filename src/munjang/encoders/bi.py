"""`BiEncoder`: texts in, vectors out; one encoder for both sides of every comparison.

texts -> (prompt) -> tokens -> packed batches -> body -> pooling -> heads -> float32 [n, dimension]
"""

from __future__ import annotations

import copy
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
from torch import Tensor, nn

from munjang import checkpoint, vectors
from munjang.checkpoint import BiParts
from munjang.data.rows import Source, TextRow, open_texts, unusual
from munjang.encoders.base import BaseEncoder, warn_truncated
from munjang.encoders.runtime import BiRuntime, CallOptions, Plan, run_windows, split_windows
from munjang.errors import InputError, ModelWarning
from munjang.nn.pooling import PoolingMode
from munjang.progress import Progress, track
from munjang.text.packing import pack
from munjang.types import DTypeName, EncodeReport, SavedName, Similarity, Threshold

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Encoded:
    """Vectors, and what computing them took."""

    vectors: Array  # float32 [n, dimension]
    report: EncodeReport


class BiEncoder(BaseEncoder[BiParts, str]):
    """A sentence encoder. Load one with `munjang.load`.

    Example:
        >>> model = munjang.load()
        >>> model.encode(["비가 온다.", "It is raining."]).shape
        (2, 384)
    """

    def __init__(self, parts: BiParts, *, device: str | torch.device | None = None, dtype: DTypeName = "auto") -> None:
        self._truncate_dim = parts.truncate_dim
        super().__init__(parts, device=device, dtype=dtype)

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
        """Load a model; the arguments are those of `munjang.load`."""
        folder = checkpoint.resolve(path_or_id, revision=revision, local_files_only=local_files_only)
        parts = checkpoint.read_bi(folder, pooling=pooling, max_length=max_length)
        for note in parts.notes:
            warnings.warn(f"{path_or_id}: {note}", ModelWarning, stacklevel=2)
        return cls(parts, device=device, dtype=dtype)

    # --- properties of the model -------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        full = self.full_dimension
        return full if self._truncate_dim is None else min(full, self._truncate_dim)

    @property
    def full_dimension(self) -> int:
        """Width of the vectors before `truncate_dim`."""
        width = self.parts.pooling.dimension(self.parts.body.config.hidden)
        for head in self.parts.heads:
            width = getattr(head, "dimension", width)
        return width

    @property
    def truncate_dim(self) -> int | None:
        """Keep only the first values of every vector (Matryoshka models); None: all."""
        return self._truncate_dim

    @truncate_dim.setter
    def truncate_dim(self, value: int | None) -> None:
        if value is not None and not 1 <= value <= self.full_dimension:
            raise InputError(f"truncate_dim must be 1..{self.full_dimension} (the model's dimension), got {value}")
        self._truncate_dim = value

    @property
    def prompts(self) -> dict[str, str]:
        return self.parts.prompts

    @property
    def similarity_name(self) -> Similarity:
        return self.parts.similarity

    @property
    def thresholds(self) -> Mapping[str, Threshold]:
        """Cosines measured for this model, by task ('paraphrase', 'cluster'). Training drops them.

        Empty while `truncate_dim` differs from the width they were measured with.
        """
        full = self.full_dimension
        return self.parts.thresholds if self.dimension == min(full, self.parts.truncate_dim or full) else {}

    def with_thresholds(self, thresholds: Mapping[str, Threshold]) -> BiEncoder:
        """Return the same model, sharing its weights, with other thresholds."""
        other = copy.copy(self)
        # They hold for the width that the model has now.
        other.parts = replace(self.parts.with_thresholds(thresholds), truncate_dim=self._truncate_dim)
        return other

    def prompt_for(self, *names: str) -> str | None:
        """Return the first of these prompt names that the model has ('query', 'document'), or its default prompt's."""
        return next((name for name in names if name in self.parts.prompts), self.parts.default_prompt_name)

    # --- encoding ----------------------------------------------------------------------------------------------------

    def encode(
        self,
        texts: Source,
        *,
        column: str | int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        progress: Progress = False,
    ) -> Array:
        """Encode texts.

        Args:
            texts: A list or another iterable of texts, a DataFrame, a table or a file (`Path`); one string is a list
                of one.
            column: The text column of a table (default: `text`, or the only column of strings).
            prompt: A text to put before every input.
            prompt_name: The name of one of the model's prompts.
            normalize: Scale vectors to unit length (default: as the model was saved).
            progress: True for a bar on stderr, or a function of (done, total).

        Returns:
            float32 [n, dimension], in the order of the texts.

        Raises:
            InputError: An input is not a text, or a table has no clear text column.

        Warns:
            TruncationWarning: Texts were longer than `max_length` tokens.

        Example:
            >>> vectors = model.encode(["비가 온다.", "주가가 올랐다."])
            >>> model.similarity(vectors).shape
            (2, 2)
        """
        result = self.encode_report(
            texts, column=column, prompt=prompt, prompt_name=prompt_name, normalize=normalize, progress=progress
        )
        warn_truncated(result.report, "texts", "only their beginning was encoded")
        return result.vectors

    def encode_query(self, texts: Source, *, normalize: bool | None = None, progress: Progress = False) -> Array:
        """Encode search queries: `encode` with the model's query prompt, where it has one."""
        return self.encode(texts, prompt_name=self.prompt_for("query"), normalize=normalize, progress=progress)

    def encode_document(self, texts: Source, *, normalize: bool | None = None, progress: Progress = False) -> Array:
        """Encode documents: `encode` with the model's document prompt, where it has one."""
        name = self.prompt_for("document", "passage", "corpus")
        return self.encode(texts, prompt_name=name, normalize=normalize, progress=progress)

    def encode_report(
        self,
        texts: Source,
        *,
        column: str | int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        progress: Progress = False,
    ) -> Encoded:
        """Encode texts and return statistics instead of warning about truncation."""
        started = time.perf_counter()
        stream = self.encode_stream(
            texts, column=column, prompt=prompt, prompt_name=prompt_name, normalize=normalize, progress=progress
        )
        parts = list(stream) or [Encoded(np.zeros((0, self.dimension), np.float32), self._empty_report())]
        report = functools.reduce(EncodeReport.plus, [part.report for part in parts])
        rows = np.concatenate([part.vectors for part in parts])
        return Encoded(rows, replace(report, seconds=time.perf_counter() - started))

    def encode_stream(
        self,
        texts: Source,
        *,
        column: str | int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        progress: Progress = False,
    ) -> Iterator[Encoded]:
        """Encode a stream of any length in bounded memory; yield windows of vectors in the order of the texts."""
        call, plan = self.call_options(prompt, prompt_name, normalize), self._plan()
        items, total = _open(texts, column, keep=())
        with track(progress, total) as advance:
            yield from self._encode_windows(split_windows(_texts_of(items), len, *plan.window), call, plan, advance)

    def encode_to(
        self,
        texts: Source,
        path: str | Path,
        *,
        column: str | int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        overwrite: bool = False,
        progress: Progress = False,
    ) -> EncodeReport:
        """Encode a stream into a file, resumably and in bounded memory.

        After an interruption at any moment, the same call resumes: finished texts are compared, not encoded again. The
        file appears under its name when it is complete.

        Args:
            texts: What `encode` takes. The other columns of a table, or keys of dicts, are written too.
            path: .npy (for memory mapping), .parquet or .jsonl.
            column: The text column of a table.
            prompt: A text to put before every input.
            prompt_name: The name of one of the model's prompts.
            normalize: Scale vectors to unit length (default: as the model was saved).
            overwrite: Replace an existing file.
            progress: True for a bar on stderr, or a function of (done, total).

        Returns:
            How many texts were encoded, resumed and truncated.

        Raises:
            ResumeError: An unfinished file at `path` belongs to other texts or another model.
        """
        started = time.perf_counter()
        call, plan = self.call_options(prompt, prompt_name, normalize), self._plan()
        items, total = _open(texts, column, keep=None)
        report, skipped = self._empty_report(), 0
        pending: deque[tuple[list[str], dict[str, list[object]]]] = deque()
        with (
            vectors.open_writer(path, width=self.dimension, setting=self._setting(call), overwrite=overwrite) as writer,
            track(progress, total) as advance,
        ):

            def unfinished() -> Iterator[list[str]]:
                nonlocal skipped
                for window in split_windows(items, lambda item: len(_text_of(item)), *plan.window):
                    window_texts, columns = list(map(_text_of, window)), _columns_of(window)
                    done = writer.skip(window_texts, columns) if writer.rows_to_skip else 0
                    advance(done)
                    skipped += done
                    if done < len(window_texts):
                        pending.append((window_texts[done:], {name: part[done:] for name, part in columns.items()}))
                        yield pending[-1][0]

            for part in self._encode_windows(unfinished(), call, plan, advance):
                writer.append(part.vectors, *pending.popleft())
                report = report.plus(part.report)
            writer.finish()
        return replace(report, texts=report.texts + skipped, skipped=skipped, seconds=time.perf_counter() - started)

    def encode_tokens(
        self,
        texts: Source,
        *,
        column: str | int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        progress: Progress = False,
    ) -> list[Array]:
        """Encode every token: the body's output before pooling.

        Returns:
            For every text float32 [tokens, hidden], special tokens and the prompt included.
        """
        call = replace(self.call_options(prompt, prompt_name, None), every_token=True)
        items, total = _open(texts, column, keep=())
        plan, results, truncated = self._plan(), [], self._empty_report()
        with track(progress, total) as advance, torch.inference_mode():
            for window in split_windows(_texts_of(items), len, *plan.window):
                tokens = self._runtime.tokenize(window, call)
                rows: list[Array] = [np.empty(0)] * len(window)
                for batch in pack(tokens, plan.budget):
                    hidden = self._runtime.forward(batch, call).cpu().numpy()  # [total tokens, hidden]
                    hidden, recomputed = self._runtime.ensure_finite(hidden, [batch], call)
                    if recomputed:
                        self._warn_recomputed(recomputed, "token vectors")
                    for place, part in zip(batch.rows, np.split(hidden, np.cumsum(batch.lengths)[:-1]), strict=True):
                        rows[place] = part
                results += rows
                truncated = truncated.plus(
                    EncodeReport(len(window), len(tokens.ids), tokens.truncated, tokens.longest, self.max_length, 0.0)
                )
                advance(len(window))
        warn_truncated(truncated, "texts", "only their beginning was encoded")
        return results

    def _encode_windows(
        self, windows: Iterable[Sequence[str]], call: CallOptions, plan: Plan, advance: Callable[[int], None]
    ) -> Iterator[Encoded]:
        width = self.dimension if call.dimension is None else call.dimension
        for window in run_windows(self._runtime, windows, call, width=width, plan=plan, on_done=advance):
            if window.recomputed:
                self._warn_recomputed(window.recomputed, "vectors")
            rows = vectors.normalize(window.rows) if call.normalize else window.rows
            reasons = Counter(filter(None, map(unusual, window.items)))
            limit = self.parts.tokenizer.max_length
            report = EncodeReport(len(rows), window.tokens, window.truncated, window.longest, limit, 0.0)
            yield Encoded(rows, replace(report, unusual=reasons))

    # --- comparing and saving ----------------------------------------------------------------------------------------

    def similarity(self, a: Array | Source, b: Array | Source | None = None) -> Array:
        """Compare each of `a` with each of `b` (default: of `a`) by the model's own measure.

        Args:
            a: Vectors [n, dimension], or texts to encode.
            b: Vectors [m, dimension], or texts to encode.

        Returns:
            float32 [n, m].
        """
        left = self._vectors(a)
        return vectors.similarity(left, left if b is None else self._vectors(b), self.similarity_name)

    def save(self, path: str | Path, *, dtype: SavedName | torch.dtype = "float32", card: str | None = None) -> None:
        """Save the model atomically, for Munjang and sentence-transformers 3.0 to 6.x.

        Args:
            path: The folder; a model in it is replaced when the new one is complete.
            dtype: Precision of the saved weights, whatever computes here. "int8" is a quarter of the size, for Munjang
                only; its vectors differ a little.
            card: README.md (default: generated).
        """
        parts = replace(self.parts, truncate_dim=self._truncate_dim, thresholds=self.thresholds)
        checkpoint.write_bi(parts, Path(path), dtype=dtype, card=card)

    def describe(self) -> dict[str, object]:
        """Describe the model, as `munjang info` prints it."""
        return {
            **replace(self.parts, thresholds=self.thresholds).describe(),
            "dimension": self.dimension,
            "full dimension": self.full_dimension,
            **self._describe_runtime(),
        }

    def __repr__(self) -> str:
        return (
            f"BiEncoder({self.parts.source!r}, {self.parts.body.config.family}, dimension={self.dimension}, "
            f"max_length={self.max_length}, device={str(self.device)!r}, dtype={str(self.dtype)[6:]!r})"
        )

    # --- for callers that make their own batches ---------------------------------------------------------------------

    def call_options(self, prompt: str | None, prompt_name: str | None, normalize: bool | None) -> CallOptions:
        """Resolve the arguments of `encode`."""
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
            prompt_tokens = int(self.tokenizer.encode([prompt]).lengths[0]) - len(self.tokenizer.suffix)
        return CallOptions(prompt, prompt_tokens, self.dimension, bool(normalize))

    def _make_runtime(self, dtype: torch.dtype) -> BiRuntime:
        return BiRuntime(self.parts, self._device, dtype)

    def _identity(self) -> tuple[dict[str, nn.Module], tuple[object, ...]]:
        parts = self.parts
        heads = [repr(head) + getattr(head, "activation", "") for head in parts.heads]
        settings = (parts.pooling, heads, parts.tokenizer.max_length, parts.body.config)
        return {"body": parts.body, "heads": parts.heads}, settings

    def _setting(self, call: CallOptions) -> str:
        """Hash what a resumed output must agree with: the model, and the options that decide the vectors."""
        setting = json.dumps([self.fingerprint, str(self.dtype), call.prompt, call.normalize, call.dimension])
        return hashlib.blake2b(setting.encode(), digest_size=16).hexdigest()

    def _vectors(self, given: Any) -> Array:
        """Return vectors as they are; encode anything else."""
        first = next(iter(given), None) if isinstance(given, list | tuple) else given
        is_numeric = isinstance(first, Tensor) or (isinstance(first, np.ndarray) and first.dtype.kind not in "OUT")
        if is_numeric or (first is not given and isinstance(first, list | tuple)):
            return np.asarray(given)
        return self.encode(given)


def _open(
    texts: Source, column: str | int | None, *, keep: Sequence[str] | None
) -> tuple[Iterable[str | TextRow], int | None]:
    """Open texts; return them, as a list where they are one of plain strings, and their number where it is known."""
    opened = open_texts([texts] if isinstance(texts, str) else texts, column=column, keep=keep)
    plain = opened.values
    return (opened.items() if plain is None else plain), opened.total


def _text_of(item: str | TextRow) -> str:
    return item if isinstance(item, str) else item.text


def _texts_of(items: Iterable[str | TextRow]) -> Iterable[str]:
    """Return the texts; a list of plain strings as it is, because a list is cut into windows faster."""
    return items if isinstance(items, list | tuple) else map(_text_of, items)


def _columns_of(window: Sequence[str | TextRow]) -> dict[str, list[object]]:
    """Return the columns beside the text."""
    columns: dict[str, list[object]] = {}
    for item in window:
        for name, value in item.columns.items() if isinstance(item, TextRow) else ():
            columns.setdefault(name, []).append(value)
    return columns
