"""What is known about an unfinished output: `<name>.progress.json`, and the hash of the rows that are done.

The file is written aside and renamed after the data it speaks of are on the disk, so it never promises more than
there is. What lies in the data beyond it is cut off on resuming.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from munjang.errors import ResumeError
from munjang.files import atomic_write

FORMAT = 1
_OF_RUN = ("layout", "dimension", "fingerprint")  # what two calls must agree on to be the same run
BEGIN_AGAIN = "pass overwrite=True (--overwrite) to begin again, or choose another output path"


@dataclass(frozen=True)
class Progress:
    """The durable state of an unfinished output, and what it belongs to."""

    layout: str  # npy, jsonl, parquet; "without texts" where they are left out
    dimension: int
    fingerprint: str  # of the model and the prompt
    replaces: bool  # whether the run may replace a finished file: overwrite=True was passed when it began
    rows: int
    bytes: int  # durable bytes of the data; what comes after them is not
    crc32: int  # of those bytes: a damaged partial is found before anything is added to it
    rows_hash: str  # blake2b of the rows' texts and columns, in order

    def save(self, path: Path) -> None:
        record = {"format": FORMAT, **asdict(self)}
        atomic_write(path, json.dumps(record, indent=1, ensure_ascii=False).encode())

    def is_same_run(self, other: Progress) -> bool:
        """Whether both have the same model, prompt and shape."""
        return all(getattr(self, name) == getattr(other, name) for name in _OF_RUN)

    def check_same_run(self, other: Progress, target: Path) -> None:
        """Refuse to go on with another model, prompt or shape than the earlier run had."""
        for name in _OF_RUN:
            before, now = getattr(self, name), getattr(other, name)
            if before != now:
                what = "model or prompt (fingerprint)" if name == "fingerprint" else name
                raise ResumeError(
                    f"{target}: an earlier, unfinished run did {self.rows:,} rows with {what} {before!r}, "
                    f"this run has {now!r}; {BEGIN_AGAIN}"
                )


def load_progress(path: Path, target: Path) -> Progress | None:
    """Read a progress file; None where there is none."""
    try:
        record = json.loads(path.read_bytes())
        if record["format"] != FORMAT:
            raise ResumeError(
                f"{target}: {path.name} has format {record['format']!r}, this version knows {FORMAT}; {BEGIN_AGAIN}"
            )
        progress = Progress(**{field.name: record[field.name] for field in fields(Progress)})
        counts = (progress.dimension, progress.rows, progress.bytes, progress.crc32)
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise TypeError(f"counts must be whole numbers, got {counts}")
        return progress
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ResumeError(
            f"{target}: {path.name} is damaged ({type(error).__name__}: {error}), "
            f"so nobody knows which rows are done; {BEGIN_AGAIN}"
        ) from error


class RowsHash:
    """A hash of rows in their order; it does not depend on how they were cut into windows."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)

    def extended(self, texts: Sequence[str], columns: Mapping[str, Sequence[object]]) -> RowsHash:
        """The hash after these rows too. This one stays as it is, in case they cannot be stored."""
        # Columns count as well: the same texts with other ids must not be joined to the rows that are done.
        head = repr(sorted(columns)).encode("utf-8", "surrogatepass") if columns else b""
        lists = [columns[name] for name in sorted(columns)]
        pieces: list[bytes] = []
        for row, text in enumerate(texts):
            _add(pieces, text.encode("utf-8", "surrogatepass"))
            if columns:
                _add(pieces, head)
                for values in lists:
                    _add(pieces, repr(values[row]).encode("utf-8", "surrogatepass"))
        result = RowsHash()
        result._hash = self._hash.copy()
        result._hash.update(b"".join(pieces))
        return result

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _add(pieces: list[bytes], data: bytes) -> None:
    # With its length first, so that ["ab", "c"] and ["a", "bc"] differ.
    pieces.append(struct.pack("<Q", len(data)))
    pieces.append(data)
