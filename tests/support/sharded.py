"""For tests of jobs of many shards: shards to encode, and a team that works in this process and dies when told to."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from munjang.sharding.messages import Event, Lost, Message, Plan, Ready, Task
from munjang.sharding.worker import Worker

TEXTS = [
    "비가 온다.",
    "It is raining.",
    "빵 냄새를 따라 골목 끝까지 갔다.",
    "a bakery at the end of the street",
    "",
    "빵",
]


def rows(count: int, name: str = "a") -> list[dict[str, Any]]:
    """Rows with an id, a text and a number."""
    return [{"id": f"{name}-{n}", "text": f"{TEXTS[n % 6]} {n}", "year": 2000 + n % 20} for n in range(count)]


def write_jsonl(path: Path, records: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def write_parquet(path: Path, records: list[dict[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


def outputs(folder: Path) -> dict[str, bytes]:
    """Every output of a job by its name, and the rows that were set aside; not the record of the job itself."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "_munjang" not in file.relative_to(folder).parts
    }


def rows_aside(folder: Path) -> int:
    """Rows of the shards that are under way that are on the disk already."""
    found = 0
    for path in (folder / "_munjang" / "aside").glob("*.progress.json"):
        with contextlib.suppress(OSError, ValueError):
            found += int(json.loads(path.read_bytes())["rows"])
    return found


@contextlib.contextmanager
def once_under_way(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Does something as soon as rows of a shard are on the disk; a thread of its own looks, often enough to see it."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            if rows_aside(folder):
                act()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Inline:
    """A team without processes. `dies(number of the message, the message)` kills the worker before it is heard."""

    def __init__(self, plan: Plan, size: int, dies: Callable[[int, Message], bool] = lambda *_: False) -> None:
        self.size = size
        self._plan = plan
        self._dies = dies
        self._workers: dict[int, Worker] = {}
        self._happened: deque[tuple[int, Event]] = deque()
        self._told = 0
        self.given: list[tuple[int, str]] = []  # who got which shard
        self.started = 0
        self.stopped = False

    def start(self, number: int) -> None:
        self.started += 1
        self._workers[number] = Worker(self._plan)
        self._happened.append((number, Ready("here")))

    def loses(self, number: int, reason: str) -> None:
        self._happened.append((number, Lost(reason)))

    def give(self, number: int, task: Task) -> None:
        self.given.append((number, task.shard.name))

        def tell(message: Message) -> None:
            self._told += 1
            if self._dies(self._told, message):
                raise KilledHere
            self._happened.append((number, message))

        try:
            self._workers[number].work(task, tell)
        except KilledHere:
            self._happened.append((number, Lost("killed by the test")))

    def events(self, seconds: float) -> list[tuple[int, Event]]:
        return [self._happened.popleft()] if self._happened else []

    def stop(self) -> None:
        self.stopped = True


class KilledHere(BaseException):
    """A worker ends here, without a word."""
