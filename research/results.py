"""The file of results: JSON, one record for every trial, written whole after each.

A record has what decided the trial (`trial`), what came out (`result`), where (`machine`), and which tables it belongs
to (`studies`). Its key follows from
what decided it, so that a rerun skips what is there and another setting never overwrites it. No paths: the file is
for others.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from munjang.errors import DataError
from munjang.files import OutputLock, atomic_write, disk_errors

FORMAT = 1
Record = dict[str, Any]


@dataclass
class Results:
    """Records by key; `path` of None keeps them in memory."""

    path: Path | None = None
    records: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path, *, missing_ok: bool = False) -> Results:
        """The results in a file; where there is none yet, an empty beginning."""
        path = Path(path)
        if not path.exists():
            if missing_ok:
                return cls(path)
            raise DataError(f"{path}: there are no results here; python -m research sbert-ablation makes some")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            kept = found["format"], dict(found["records"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: expected results of python -m research, got something else: {error!r}") from error
        if kept[0] != FORMAT:
            raise DataError(f"{path}: expected results of format {FORMAT}, got {kept[0]!r}; choose another file")
        return cls(path, kept[1])

    def has(self, key: str, measured: Mapping[str, str]) -> bool:
        """Whether a trial is there, with the scores of these sets (column -> hash of the set)."""
        record = self.records.get(key)
        if record is None:
            return False
        scores = record["result"]["scores"]
        return all(column in scores and scores[column]["data"] == data for column, data in measured.items())

    def add(self, key: str, record: Record) -> None:
        """Keep a record, on the disk too; scores of other sets that are there already stay."""
        known = self.records.get(key)
        if known is not None:
            record["result"]["scores"] = {**known["result"]["scores"], **record["result"]["scores"]}
            record["studies"] = list(dict.fromkeys([*known["studies"], *record["studies"]]))
        self.records[key] = record
        self._write()

    def join(self, key: str, study: str) -> None:
        """A trial that is there belongs to this study too."""
        studies = self.records[key]["studies"]
        if study not in studies:
            studies.append(study)
            self._write()

    def _write(self) -> None:
        if self.path is not None:
            text = json.dumps({"format": FORMAT, "records": self.records}, ensure_ascii=False, indent=1)
            with disk_errors(self.path, safe="the results up to the trial before are whole"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(self.path, (text + "\n").encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time, who begins with what the one before it left."""
        if self.path is None:
            yield
            return
        with disk_errors(self.path, safe="nothing was run yet"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = OutputLock(self.path.with_name(self.path.name + ".lock"), self.path)
        try:
            if self.path.exists():
                self.records = Results.read(self.path).records
            yield
        finally:
            lock.release()
