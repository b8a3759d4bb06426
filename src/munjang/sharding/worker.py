"""A worker: holds the model, takes a shard, tells what happens. It knows neither the engine nor the other workers.

The model is loaded by the first shard that needs it, so that a rerun over done shards only hashes. Every packed batch
is computed by one thread: the vectors, to the last bit, do not depend on how many threads or workers there are.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.errors import DataError, MissingExtraError, ModelError, MunjangError, ResumeError
from munjang.files import DISK_FULL, OutputLock
from munjang.sharding.messages import (
    Advanced,
    Began,
    Done,
    Failed,
    Message,
    Plan,
    Rejects,
    Skipped,
    Stopped,
    Task,
    own_version,
)
from munjang.sharding.rows import Bad, Good, read_rows
from munjang.sharding.shards import Content, Shard, content_of
from munjang.types import EncodeReport

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder

Tell = Callable[[Message], None]
TOKEN = "token"
_OFTEN = 0.3  # seconds between two Advanced
_REJECTS = 500  # told at a time


class _Stop(Exception):
    """Nothing more can be done at all."""


class Counting:
    """Passes good rows on, tells of bad ones, and counts both."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._bad: list[tuple[int, str]] = []
        self._last = 0.0
        self._guard = threading.Lock()
        self.read = 0  # good rows
        self.rejected = 0
        self.first_reason = ""
        self.last_line = 0

    def good(self, rows: Iterator[Good | Bad]) -> Iterator[Good]:
        for row in rows:
            self.last_line = row.line
            if isinstance(row, Bad):
                self.reject(row.line, row.reason)
            else:
                self.read += 1
                yield row
        self.flush()

    def reject(self, line: int, reason: str) -> None:
        self.first_reason = self.first_reason or f"line {line:,}: {reason}"
        self.rejected += 1
        self._bad.append((line, reason))
        if len(self._bad) >= _REJECTS:
            self.flush()

    def flush(self) -> None:
        if self._bad:
            self.tell(Rejects(tuple(self._bad)))
            self._bad = []

    def encoded(self, rows: int, _: int | None = None) -> None:
        """Called from the threads that compute."""
        now = time.monotonic()
        with self._guard:
            if now - self._last < _OFTEN:
                return
            self._last = now
        self.tell(Advanced(rows + self.rejected))


class Worker:
    """Does tasks one after another."""

    def __init__(self, plan: Plan) -> None:
        # Before torch and the tokenizers are imported: they look at these once.
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["RAYON_NUM_THREADS"] = str(plan.threads)
        self._plan = plan
        self._model: BiEncoder | None = None

    def work(self, task: Task, tell: Tell) -> None:
        """Do a task; whatever happens is told, the last message says how it ended."""
        try:
            self._check()
            tell(self._do(task, tell))
        except _Stop as error:
            tell(Stopped(str(error)))
        except (ModelError, MissingExtraError) as error:
            tell(Stopped(f"{error} (on {where()})"))
        except MunjangError as error:
            full = isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FULL
            tell(Stopped(str(error)) if full else Failed(str(error), again=False))
        except BrokenPipeError:
            raise
        except Exception as error:  # out of memory, a fault: perhaps not the next time, or elsewhere
            tell(Failed(f"{type(error).__name__}: {error} (on {where()})", again=True))

    def _check(self) -> None:
        plan = self._plan
        if plan.version != own_version():
            raise _Stop(f"{where()} has munjang {own_version()}, the job runs with {plan.version}: install the same")
        if plan.cutting is not None:
            return
        try:
            seen = (Path(plan.folder) / TOKEN).read_text(encoding="utf-8")
        except OSError as error:
            seen = str(error)
        if seen != plan.token:
            raise _Stop(
                f"{where()} does not see the folder {plan.folder} that the job writes to ({seen:.200}): it must lie "
                "on a disk that all machines share"
            )

    def _do(self, task: Task, tell: Tell) -> Message:
        shard = task.shard
        before = _stamp(shard)
        content = content_of(shard)
        if content.digest == task.known:
            return Skipped(content.digest)
        model = self._ready(task)
        for overwrite in (False, True):
            tell(Began(_rows_in(shard, content)))  # whatever was told of an earlier attempt is void
            counting = Counting(tell)
            try:
                done = self._encode(task, content, model, counting, overwrite=overwrite)
                break
            except ResumeError:  # what an earlier attempt left is damaged, or of other settings
                if overwrite:
                    raise
        if counting.rejected and not counting.read:
            return Failed(
                f"{shard.name}: none of its {counting.rejected:,} rows can be used; {counting.first_reason}",
                again=False,
            )
        if _stamp(shard) != before:
            return Failed(f"{shard.name}: it was changed while it was read; run the job again", again=True)
        return done

    def _encode(
        self, task: Task, content: Content, model: BiEncoder, counting: Counting, *, overwrite: bool
    ) -> Message:
        if self._plan.cutting is not None:
            from munjang.sharding.blocks import send_blocks

            return send_blocks(self._plan, task.shard, content.digest, model, counting)
        folder, plan = Path(self._plan.folder), self._plan
        with _Claim(folder / f"{task.shard.key}-{content.digest[:16]}.{plan.format}") as aside:
            anew = overwrite or aside.exists()  # whole, but its worker died before it could say so
            report = _write(plan, task.shard, aside, model, counting, overwrite=anew)
            return Done(
                content.digest,
                report.texts,
                counting.rejected,
                report.tokens,
                report.truncated,
                precision_of(model),
                str(aside),
                aside.stat().st_size,
            )

    def _ready(self, task: Task) -> BiEncoder:
        if self._model is None:
            import torch

            torch.set_num_threads(1)
            model = self._plan.model.load()
            model.threads = self._plan.threads
            if model.fingerprint != self._plan.fingerprint:
                raise _Stop(f"{self._plan.model.name} on {where()} is another model than the job began with")
            self._model = model
        precision = precision_of(self._model)
        if task.precision is not None and task.precision != precision:
            raise _Stop(
                f"{where()} computes in {precision}, the shards that are done were computed in {task.precision}: say "
                "which (--dtype, --device), or begin anew (--overwrite)"
            )
        return self._model


class _Claim:
    """A path to write to that nobody else writes to now.

    It is the same for every attempt, so that what a killed worker left is gone on with; unless that worker is still
    there after all, cut off from the coordinator: then another one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: OutputLock | None = None

    def __enter__(self) -> Path:
        try:
            self._lock = OutputLock(self._path.with_name(self._path.name + ".claim"), self._path)
        except DataError:
            self._path = self._path.with_name(f"{self._path.stem}-{secrets.token_hex(4)}{self._path.suffix}")
        return self._path

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()


def _write(
    plan: Plan, shard: Shard, aside: Path, model: BiEncoder, counting: Counting, *, overwrite: bool
) -> EncodeReport:
    """Encode a shard to a file; what an earlier attempt wrote of it is kept."""
    rows = counting.good(read_rows(shard, plan.reading, whole=False))
    return model.encode_to(
        ({"text": row.text, **row.cells} for row in rows) if plan.reading.keep else (row.text for row in rows),
        aside,
        overwrite=overwrite,
        prompt=plan.prompting.prompt,
        prompt_name=plan.prompting.prompt_name,
        normalize=plan.prompting.normalize,
        progress=counting.encoded,
    )


def precision_of(model: BiEncoder) -> str:
    """What decides the last bits of a vector: the kind of device and the precision."""
    return f"{str(model.dtype).removeprefix('torch.')} on {model.device.type}"


def where() -> str:
    """This machine and process, for messages."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def _stamp(shard: Shard) -> tuple[int, int]:
    try:
        found = os.stat(shard.path)
    except OSError as error:
        raise DataError(f"{shard.name}: cannot be read on {where()}: {error}") from error
    return found.st_size, found.st_mtime_ns


def _rows_in(shard: Shard, content: Content) -> int | None:
    if shard.kind == "jsonl":
        return None if shard.is_packed else content.lines
    try:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(shard.path).num_rows)
    except Exception:  # it is only for the progress; reading it in earnest tells what is wrong
        return None
