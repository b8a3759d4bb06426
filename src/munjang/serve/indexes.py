"""The indexes of a service by name: opened once, each with the room of the model that made it.

Enters: names with folders, and the rooms of the models. Leaves: a `Shelf` of which handlers ask an index by name, or
the first. An index whose model has a room already shares it (same fingerprint, same dimension); otherwise its model is
loaded and given a room. Documents are encoded through the room's batcher as bulk, so that queries go before them. One
thread writes to an index; additions that wait for it are committed together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError, InputError, ModelError
from munjang.index.adding import AddReport
from munjang.index.identity import Identity
from munjang.index.index import Index
from munjang.index.remote.address import is_address, masked
from munjang.index.remote.engine import Unreachable
from munjang.loading import load
from munjang.progress import Progress
from munjang.serve.errors import NotFound, Overloaded, Unready
from munjang.serve.fields import FieldSummary, summaries
from munjang.serve.metrics import IndexSize
from munjang.serve.rooms import PLAIN, BiRoom, Rooms, Wish
from munjang.serve.sentences import SentenceFinder
from munjang.serve.settings import ServeSettings, check_name
from munjang.serve.threads import Threads

Result = TypeVar("Result")

_AT_ONCE = 32  # passages in one request to the batcher; a request is cut into batches anyway
_AHEAD = 4  # requests that wait there at once
_BULK = Wish(priority="bulk")
_WRITERS_WAITING = 64
_ENCODING = 8  # requests whose documents are encoded at once
_log = logging.getLogger("munjang.serve")


@dataclass
class _Addition:
    """Documents of one request, and the vectors of their passages as far as they are known."""

    documents: list[dict[str, Any]]
    vectors: dict[str, NDArray[np.float32]]


@dataclass
class _Group:
    """Additions that are committed together."""

    additions: list[_Addition] = field(default_factory=list)
    committed: asyncio.Task[list[AddReport | InputError | ModelError]] | None = None


class Shelved:
    """One index in service."""

    def __init__(
        self, name: str, index: Index, room: BiRoom, loop: asyncio.AbstractEventLoop, *, request_tokens: int
    ) -> None:
        self.name = name
        self.index = index
        self.room = room
        self.finder = SentenceFinder(self._encode_sentences, room.model.similarity_name)
        self._loop = loop
        self._at_once = max(1, min(_AT_ONCE, request_tokens // room.model.max_length))
        self._writer = Threads(f"write-{name}", 1, waiting=_WRITERS_WAITING)
        self._encoders = Threads(f"encode-{name}", _ENCODING, waiting=_WRITERS_WAITING)
        self._group = _Group()  # takes further additions until the writer begins with it
        self._adding = 0
        self._fields: tuple[int, list[FieldSummary]] | None = None
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    def hold(self, task: asyncio.Task[Any]) -> None:
        """Keep a task that writes here, whoever waits for it: asyncio itself holds tasks weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, timeout: float) -> None:
        """Wait for such tasks."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)

    async def add(self, documents: list[dict[str, Any]]) -> AddReport:
        """Add the documents of a request; they are on the disk when it returns.

        They are encoded before the index is locked, and committed together with other requests that wait.
        """
        if self._adding >= _WRITERS_WAITING:
            raise Overloaded(1.0)
        self._adding += 1
        try:
            vectors = await self._encoders.run(lambda: self._encode_ahead(documents))
            result = await self._commit(_Addition(documents, vectors))
        finally:
            self._adding -= 1
        if isinstance(result, AddReport):
            return result
        raise result

    async def add_stream(self, documents: Iterable[Mapping[str, Any]], *, progress: Progress = False) -> AddReport:
        """Add documents of any number, whole or not at all; other writers wait until it is done."""
        return await self._write(lambda: self.index.add(documents, progress=progress, encode=self._encode))

    async def _commit(self, addition: _Addition) -> AddReport | InputError | ModelError:
        with self._lock:
            group, place = self._group, len(self._group.additions)
            group.additions.append(addition)
        if group.committed is None:
            group.committed = asyncio.create_task(self._write_group(group))
            self.hold(group.committed)
        # Shielded: a request that is cancelled must not take the others along.
        return (await asyncio.shield(group.committed))[place]

    async def _write_group(self, group: _Group) -> list[AddReport | InputError | ModelError]:
        try:
            return await self._write(lambda: self._add_together(group))
        finally:
            self._close_group(group)  # it may have been refused

    def _close_group(self, group: _Group) -> None:
        with self._lock:
            if self._group is group:
                self._group = _Group()

    def _add_together(self, group: _Group) -> list[AddReport | InputError | ModelError]:
        """Write a group; called in the thread that writes."""
        self._close_group(group)
        vectors = {text: row for addition in group.additions for text, row in addition.vectors.items()}

        def encode(texts: list[str], *, progress: Progress) -> NDArray[np.float32]:
            missing = [text for text in texts if text not in vectors]  # another request replaced their documents
            vectors.update(zip(missing, self._encode(missing, progress=progress), strict=True))
            return np.stack([vectors[text] for text in texts])

        return self.index.add_together([addition.documents for addition in group.additions], encode=encode)

    def _encode_ahead(self, documents: list[dict[str, Any]]) -> dict[str, NDArray[np.float32]]:
        passages = list(dict.fromkeys(self.index.passages_to_encode(documents)))
        # A short request need not wait behind bulk work, no more than a short /embed does: the batcher goes by size.
        wish = PLAIN if len(passages) <= self._at_once else _BULK
        return dict(zip(passages, self._encode(passages, progress=False, wish=wish), strict=True))

    async def delete(self, ids: list[str]) -> int:
        """Delete documents; they are gone from the disk when it returns."""
        return await self._write(lambda: self.index.delete(ids))

    async def _write(self, call: Callable[[], Result]) -> Result:
        try:
            return await self._writer.run(call)
        except Unreachable:
            raise
        except DataError as error:  # a full disk, another process that writes: not the client's doing
            raise Unready(str(error), headers={"Retry-After": "5"}) from error

    def describe(self) -> dict[str, Any]:
        """What `GET /indexes` says of it. It reads the index: call it in a thread."""
        facts = self.index.describe()
        return {
            "name": self.name,
            "documents": facts["documents"],
            "passages": facts["passages"],
            "model": self.room.name,
            "dimension": facts["dimension"],
            "generation": facts["generation"],
            "keyword": bool(facts["keyword"]),
            "fields": [one.as_json() for one in self._summaries(int(str(facts["generation"])))],
        }

    def generation(self) -> int:
        """The number of the last commit."""
        return int(str(self.index.describe()["generation"]))

    def size(self) -> IndexSize:
        facts = self.index.describe()
        return IndexSize(int(str(facts["documents"])), int(str(facts["passages"])))

    def close(self, timeout: float) -> bool:
        """Finish the writing that was accepted, and let go of the files; whether there was time enough."""
        until = time.monotonic() + timeout
        finished = self._encoders.close(timeout)
        finished = self._writer.close(max(0.0, until - time.monotonic())) and finished
        if finished:
            self.index.close()
        return finished

    def _summaries(self, generation: int) -> list[FieldSummary]:
        with self._lock:
            if self._fields is None or self._fields[0] != generation:
                self._fields = (generation, summaries(self.index.columns()))
            return self._fields[1]

    async def _encode_sentences(self, texts: list[str]) -> NDArray[np.float32]:
        answer = await self.room.embed_document(texts, wish=Wish(priority="query"))
        return np.asarray(answer.values, np.float32)

    def _encode(self, texts: list[str], *, progress: Progress, wish: Wish = _BULK) -> NDArray[np.float32]:
        """The vectors of passages, through the batcher; called in a thread."""
        vectors = np.empty((len(texts), self.index.dimension), np.float32)
        done, waiting = 0, list[tuple[int, Future[Any]]]()
        for first in [*range(0, len(texts), self._at_once), *[-1] * _AHEAD]:
            if first >= 0:
                part = self._patiently(texts[first : first + self._at_once], wish)
                waiting.append((first, asyncio.run_coroutine_threadsafe(part, self._loop)))
            if waiting and (first < 0 or len(waiting) >= _AHEAD):
                place, future = waiting.pop(0)
                rows = future.result()
                vectors[place : place + len(rows)] = rows
                done += len(rows)
                if callable(progress):
                    progress(done, len(texts))
        return vectors

    async def _patiently(self, texts: list[str], wish: Wish) -> NDArray[np.float32]:
        """A part of a long job comes back to a full queue; it was accepted as a whole."""
        while True:
            try:
                return np.asarray((await self.room.embed_document(texts, wish=wish)).values, np.float32)
            except Overloaded as refusal:  # noqa: PERF203
                await asyncio.sleep(min(refusal.retry_after, 2.0))


class Shelf:
    """Every index of a service. The first is the one that is meant where no name is given."""

    def __init__(self, settings: ServeSettings) -> None:
        limits = settings.limits
        self._settings = settings
        self._indexes: dict[str, Shelved] = {}
        self.searches = Threads("search", limits.searches, waiting=limits.searches * 16)
        self.heavy = Threads("heavy", 1, waiting=4)  # clusterings

    def fill(self, rooms: Rooms, loop: asyncio.AbstractEventLoop) -> None:
        """Open every index and load what models are missing; it takes a while: call it in a thread."""
        for name, path in self._settings.indexes.items():
            started = time.perf_counter()
            index, room = self._open(str(path) if is_address(path) else Path(path), rooms)
            self._indexes[name] = Shelved(name, index, room, loop, request_tokens=self._settings.limits.tokens)
            _log.info(
                "index %s: %s documents, model %s, opened in %.1f s",
                name,
                f"{index.count:,}",
                room.name,
                time.perf_counter() - started,
            )

    def _open(self, path: Path | str, rooms: Rooms) -> tuple[Index, BiRoom]:
        probe = Index.open(path)
        identity = probe.identity
        probe.close()
        room = rooms.bi_with(identity.fingerprint)
        if room is not None and _fits(identity, room, masked(path)):
            return Index.open(path, room.model), room
        model = _load(identity, masked(path), self._settings.device)
        room = rooms.add_bi(_free_name(identity, rooms), model)
        return Index.open(path, model), room

    def get(self, name: str | None = None) -> Shelved:
        """The index of that name, or the first."""
        if name is None:
            if not self._indexes:
                raise NotFound("this service has no index: start it with one, `munjang serve INDEX`", param="index")
            return next(iter(self._indexes.values()))
        if name not in self._indexes:
            known = ", ".join(map(repr, self._indexes)) or "none"
            raise NotFound(f"there is no index of the name {name[:100]!r} here; there are: {known}", param="index")
        return self._indexes[name]

    def all(self) -> tuple[Shelved, ...]:
        return tuple(self._indexes.values())

    def close(self, timeout: float) -> bool:
        """Finish what was accepted, and close the files; whether there was time enough."""
        until = time.monotonic() + timeout
        finished = True
        closing: list[Threads | Shelved] = [self.searches, self.heavy, *self._indexes.values()]
        for one in closing:
            finished = one.close(max(0.0, until - time.monotonic())) and finished
        return finished


def _fits(identity: Identity, room: BiRoom, path: Path | str) -> bool:
    try:
        identity.check(room.model, path)
    except ModelError:
        return False
    return True


def _load(identity: Identity, path: Path | str, device: str | None) -> Any:
    """The index's own model, where it was; on the device of the service."""
    if device is None or not identity.source or "@" in identity.source:
        return identity.load(path)
    model = load(identity.source, device=device)
    if identity.max_length <= model.parts.body.max_positions:
        model.max_length = identity.max_length
    if identity.dimension < model.full_dimension:
        model.truncate_dim = identity.dimension
    identity.check(model, path)
    return model


def _free_name(identity: Identity, rooms: Rooms) -> str:
    """A name for a model that the settings do not name: that of its folder or hub id."""
    name = Path(identity.source.partition("@")[0]).name or "model"
    try:
        check_name(name, "models")
    except InputError:
        name = "model"
    taken = {room.name for room in rooms.bi_rooms}
    if name not in taken:
        return name
    return next(f"{name}-{number}" for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)
