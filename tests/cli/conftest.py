"""A small encoder with the real one's interface: fast, and its vectors can be told in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import munjang
from munjang.types import EncodeReport
from munjang.vectors import open_writer


@dataclass(frozen=True)
class Encoded:
    vectors: np.ndarray
    report: EncodeReport


@dataclass
class SmallEncoder:
    """A vector is (length, number of 가, 1); windows are of two texts; it can be told to stop."""

    options: dict[str, object] = field(default_factory=dict)
    calls: list[dict[str, object]] = field(default_factory=list)
    fail_after: int | None = None
    threads: int = 1
    truncate_dim: int | None = None
    max_length: int = 16
    similarity_name: str = "cosine"

    def vector(self, text: str) -> list[float]:
        return [float(len(text)), float(text.count("가")), 1.0]

    def encode(self, texts: Iterable[str], **options: object) -> np.ndarray:
        self.calls.append({"method": "encode", **options})
        return np.array([self.vector(text) for text in texts], dtype=np.float32).reshape(-1, 3)

    def encode_query(self, texts: Iterable[str], **options: object) -> np.ndarray:
        return self.encode(texts, prompt_name="query", **options)

    def encode_document(self, texts: Iterable[str], **options: object) -> np.ndarray:
        return self.encode(texts, prompt_name="document", **options)

    def encode_stream(self, texts: Iterable[str], **options: object) -> Iterator[Encoded]:
        self.calls.append({"method": "encode_stream", **options})
        texts, done = iter(texts), 0
        while window := list(islice(texts, 2)):
            if self.fail_after is not None and done >= self.fail_after:
                raise KeyboardInterrupt
            done += len(window)
            cut = sum(len(text) > self.max_length for text in window)
            longest = max(map(len, window))
            report = EncodeReport(len(window), sum(map(len, window)), cut, longest, self.max_length, 0.5)
            vectors = np.array([self.vector(text) for text in window], dtype=np.float32)
            yield Encoded(vectors, report)

    def encode_to(
        self,
        rows: Iterable[str | Mapping[str, object]],
        path: str | Path,
        *,
        overwrite: bool,
        progress: Callable[[int, int | None], None],
        **options: object,
    ) -> EncodeReport:
        self.calls.append({"method": "encode_to", "overwrite": overwrite, **options})
        records = [{"text": row} if isinstance(row, str) else dict(row) for row in rows]
        texts = [str(record.pop("text")) for record in records]
        with open_writer(path, width=3, setting="small", overwrite=overwrite) as writer:
            names = list(records[0]) if records else []
            for number, text in enumerate(texts):
                columns = {name: [records[number][name]] for name in names}
                if writer.rows_to_skip:
                    writer.skip([text], columns)
                    continue
                if self.fail_after is not None and number >= self.fail_after:
                    raise KeyboardInterrupt
                writer.append(np.array([self.vector(text)], dtype=np.float32), [text], columns)
                progress(number + 1, None)
            skipped = writer.rows_done
            writer.finish()
        return EncodeReport(len(texts), 1, 0, 1, self.max_length, 0.1, skipped)

    def describe(self) -> dict[str, object]:
        return {
            "family": "small",
            "dimension": 3,
            "parameters": 1234567,
            "prompts": {"질문": "query: "},
            "notes": ["a"],
        }


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> SmallEncoder:
    """What `munjang.load` gives in this test."""
    encoder = SmallEncoder()

    def load(name: str | None = None, **options: object) -> SmallEncoder:
        encoder.options = {"name": name, **options}
        return encoder

    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setitem(vars(munjang), "load", load)  # not setattr, which would import the real one
    return encoder
