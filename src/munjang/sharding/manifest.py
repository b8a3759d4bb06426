"""What is done, on disk: `_munjang/` in the output folder (or the state folder, where the rows go into an index).

    job.json        the model and the settings; another job is refused
    manifest.jsonl  one line for every shard that is done; a later line replaces an earlier one of the same shard
    rejects/        the rows of each shard that were set aside
    aside/          outputs that are being written

Only the coordinator writes the record, and one coordinator at a time. A shard's output is whole and on the disk before
it gets its name, it has its name before the line is written, and the line is forced to the disk before the shard
counts. So a kill at any moment costs the shards that were under way, never more.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from munjang.errors import DataError, ResumeError
from munjang.files import OutputLock, atomic_path, atomic_write, disk_errors, sync_folder, write_all
from munjang.sharding.messages import Done
from munjang.sharding.shards import Shard
from munjang.sharding.worker import TOKEN

FOLDER = "_munjang"
REJECTS = "_rejects.jsonl"
FORMAT = 1
_AGAIN = "pass overwrite=True (--overwrite) to begin anew, or choose another folder"


@dataclass(frozen=True)
class Record:
    """A shard that is done."""

    shard: str
    content: str  # hash of its bytes
    rows: int
    rejected: int
    tokens: int
    truncated: int
    output: str | None  # below the folder; None where the rows are in an index
    size: int  # bytes of the output
    made_ids: bool = False  # with an index: whether documents are called by shard and line
    last_line: int = 0
    ends: tuple[str, ...] = ()  # with an index: the ids of its first and last document


class Book:
    """The record of one job."""

    def __init__(self, root: Path, setting: Mapping[str, Any], *, overwrite: bool) -> None:
        self.root = root
        self.folder = root / FOLDER
        self.aside = self.folder / "aside"
        self.records: dict[str, Record] = {}
        self.precision: str | None = None
        self.token = secrets.token_hex(8)
        self._setting = dict(setting)
        self._rejects: dict[str, BinaryIO] = {}
        self._file: BinaryIO | None = None
        with self._disk_errors():
            root.mkdir(parents=True, exist_ok=True)
            self._check_ours()
            self.folder.mkdir(exist_ok=True)
            self._lock = OutputLock(self.folder / "lock", root)
        try:
            with self._disk_errors():
                self._begin(overwrite)
        except BaseException:
            self.close()
            raise

    # --- opening -----------------------------------------------------------------------------------------------------

    def _check_ours(self) -> None:
        if not self.folder.is_dir() and any(self.root.iterdir()):
            raise DataError(
                f"{self.root} is a folder with other files: the outputs need a folder of their own, new or empty"
            )

    def _begin(self, overwrite: bool) -> None:
        try:
            earlier = json.loads((self.folder / "job.json").read_bytes())
        except FileNotFoundError:
            earlier = None
        except ValueError as error:
            raise ResumeError(f"{self.folder / 'job.json'} is damaged ({error}); {_AGAIN}") from error
        if earlier is not None and not overwrite:
            self._check_same(earlier)
            self.precision = earlier["precision"]
        self.records = _load(self.folder / "manifest.jsonl")
        if overwrite:
            self._clear()
        self.aside.mkdir(exist_ok=True)
        (self.folder / "rejects").mkdir(exist_ok=True)
        atomic_write(self.aside / TOKEN, self.token.encode())
        self._save_job()
        lines = b"".join(map(_line, self.records.values()))
        atomic_write(self.folder / "manifest.jsonl", lines)
        self._file = open(self.folder / "manifest.jsonl", "ab", buffering=0)  # noqa: SIM115 (open while the job runs)

    def _check_same(self, earlier: Mapping[str, Any]) -> None:
        if earlier.get("format") != FORMAT:
            raise ResumeError(f"{self.root} is of format {earlier.get('format')!r}, this version knows {FORMAT}")
        for name, now in self._setting.items():
            before = earlier["setting"].get(name)
            if before != now:
                raise ResumeError(f"{self.root} was begun with {name} {before!r}, this job has {now!r}; {_AGAIN}")

    def _clear(self) -> None:
        """Take away what an earlier job made: vectors of two models must not lie side by side."""
        (self.folder / "manifest.jsonl").unlink(missing_ok=True)
        sync_folder(self.folder)
        for record in self.records.values():
            if record.output is not None:
                (self.root / record.output).unlink(missing_ok=True)
        (self.root / REJECTS).unlink(missing_ok=True)
        for name in ("aside", "rejects"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.records = {}

    def _save_job(self) -> None:
        job = {"format": FORMAT, "setting": self._setting, "precision": self.precision}
        atomic_write(self.folder / "job.json", json.dumps(job, ensure_ascii=False, indent=1).encode())

    # --- while the job runs ------------------------------------------------------------------------------------------

    def known(self, shard: Shard) -> str | None:
        """The content of the shard that is done, where its output is still there."""
        record = self.records.get(shard.name)
        if record is None:
            return None
        if record.output is not None:
            try:
                if (self.root / record.output).stat().st_size != record.size:
                    return None
            except OSError:
                return None
        return record.content

    def begin(self, shard: Shard) -> None:
        """Forget the rows that an earlier attempt set aside."""
        self.forget(shard)
        with self._disk_errors():
            self._rejects[shard.name] = open(self._rejects_aside(shard), "wb")  # noqa: SIM115 (closed with the shard)

    def forget(self, shard: Shard) -> None:
        """An attempt has come to nothing."""
        file = self._rejects.pop(shard.name, None)
        if file is not None:
            file.close()
            with contextlib.suppress(OSError):
                self._rejects_aside(shard).unlink(missing_ok=True)

    def reject(self, shard: Shard, rows: Sequence[tuple[int, str]]) -> None:
        """Keep the rows that were set aside; they count with the shard."""
        with self._disk_errors():
            for line, reason in rows:
                record = {"shard": shard.name, "line": line, "reason": reason}
                self._rejects[shard.name].write(json.dumps(record, ensure_ascii=False).encode() + b"\n")

    def publish(self, shard: Shard, done: Done, *, output: str | None, ends: tuple[str, ...] = ()) -> None:
        """Give the output its name, and write the shard down as done."""
        self._agree(done.precision)
        with self._disk_errors():
            self._publish_rejects(shard, done.rejected)
            if output is not None:
                assert done.aside is not None
                target = self.root / output
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(done.aside, target)
                sync_folder(target.parent)
            record = Record(
                shard=shard.name,
                content=done.content,
                rows=done.rows,
                rejected=done.rejected,
                tokens=done.tokens,
                truncated=done.truncated,
                output=output,
                size=done.size,
                made_ids=done.made_ids,
                last_line=done.last_line,
                ends=ends,
            )
            assert self._file is not None
            write_all(self._file, _line(record))
            os.fsync(self._file.fileno())
        self.records[shard.name] = record

    def _agree(self, precision: str) -> None:
        if self.precision is None:
            self.precision = precision
            with self._disk_errors():
                self._save_job()
        elif self.precision != precision:
            raise DataError(
                f"workers compute in {precision} and in {self.precision}: the vectors would not be the same whoever "
                "made them; say which (--dtype, --device)"
            )

    def _publish_rejects(self, shard: Shard, count: int) -> None:
        file = self._rejects.pop(shard.name)
        file.flush()
        os.fsync(file.fileno())
        file.close()
        kept = self._rejects_kept(shard.key)
        if count:
            os.replace(self._rejects_aside(shard), kept)
            sync_folder(kept.parent)
        else:
            self._rejects_aside(shard).unlink()
            kept.unlink(missing_ok=True)

    def _rejects_aside(self, shard: Shard) -> Path:
        return self.aside / f"{shard.key}.rejects"

    def _rejects_kept(self, key: str) -> Path:
        return self.folder / "rejects" / f"{key}.jsonl"

    # --- the end -----------------------------------------------------------------------------------------------------

    def collect_rejects(self) -> Path | None:
        """All rows that were set aside in one file, in the order of shards and lines; None where there are none."""
        target = self.root / REJECTS
        names = sorted(name for name, record in self.records.items() if record.rejected)
        with self._disk_errors():
            if not names:
                target.unlink(missing_ok=True)
                return None
            with atomic_path(target) as temporary, open(temporary, "wb") as out:
                for name in names:
                    with open(self._rejects_kept(Shard(name, "", 0).key), "rb") as file:
                        shutil.copyfileobj(file, out)
        return target

    def tidy(self) -> None:
        """Take away what unfinished attempts left: nobody will go on with it."""
        shutil.rmtree(self.aside, ignore_errors=True)

    def close(self) -> None:
        for file in self._rejects.values():
            with contextlib.suppress(OSError):
                file.close()
        self._rejects = {}
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    def _disk_errors(self) -> contextlib.AbstractContextManager[None]:
        done = f"{len(self.records):,} shards are done and safe" if self.records else "no shard is done yet"
        return disk_errors(self.root, safe=f"{done}; when that is put right, the same command goes on from there")


def _line(record: Record) -> bytes:
    return json.dumps(asdict(record), ensure_ascii=False).encode() + b"\n"


def _load(path: Path) -> dict[str, Record]:
    """The records; a last line that was cut off by a kill is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    records: dict[str, Record] = {}
    for number, line in _whole_lines(data):
        try:
            found = json.loads(line)
            found["ends"] = tuple(found["ends"])
            record = Record(**{field.name: found[field.name] for field in fields(Record)})
        except (ValueError, KeyError, TypeError) as error:
            raise ResumeError(f"{path}, line {number}: damaged ({type(error).__name__}: {error}); {_AGAIN}") from error
        records[record.shard] = record
    return records


def _whole_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    lines = data.split(b"\n")
    yield from enumerate(lines[:-1], start=1)
