"""What is made from the database to search it: dense vectors and keywords, kept in step with the committed state.

A search asks for a `Session`: one transaction and structures that show exactly its state. Structures are brought up to
a new commit by the first search after it, in memory; the process that writes saves them from time to time, so that the
next opening is quick. A file of theirs that cannot be written costs time later, never an answer: it is a warning.

`derived/saved.json` says up to which commit the files may reach. A database that is older than that was put back from a
copy, and its next commits would be others under the same numbers: then the files are thrown away before it goes on.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from munjang.errors import InputError, MissingExtraError, MunjangWarning
from munjang.files import atomic_write
from munjang.index.dense import DenseIndex, DenseState
from munjang.index.gate import Gate
from munjang.index.identity import Identity
from munjang.index.keyword import KeywordIndex
from munjang.index.options import IndexOptions
from munjang.index.schema import DERIVED
from munjang.index.state import State
from munjang.index.store import Store

_SMALL = 1000  # so many new or removed passages may wait for their saving,
_SHARE = 0.1  # or this share of all
_SAVED = "saved.json"


@dataclass(frozen=True)
class Session:
    """A state, and the structures that show it, as far as they were asked for."""

    state: State
    dense: DenseState | None
    keyword: KeywordIndex | None
    gate: contextlib.ExitStack

    def leave(self) -> None:
        """Searching is over; the state may be read on."""
        self.gate.close()


class Derived:
    """The structures of one index; may be used from several threads."""

    def __init__(self, store: Store, identity: Identity, options: IndexOptions, name: str) -> None:
        """name: the index's own, which no other index has."""
        self._store = store
        self._identity = identity
        self._options = options
        self._name = name
        self._folder: Path = store.folder / DERIVED
        self._gate = Gate()
        self._renew()

    def _renew(self) -> None:
        options = self._options
        self._dense = DenseIndex(
            self._folder,
            dimension=self._identity.dimension,
            similarity=self._identity.similarity,
            vectors=options.vectors,
            exact_up_to=options.exact_up_to,
            identity=self._name,
        )
        self._keyword = KeywordIndex(self._folder, identity=self._name) if options.keyword else None
        self._dense_shows = self._keyword_shows = -1  # the generation of each

    @property
    def has_keywords(self) -> bool:
        return self._options.keyword

    def check_keyword(self) -> None:
        if not self._options.keyword:
            raise InputError(
                "this index was created with keyword=False: search it with mode='semantic', or make a new one"
            )

    @contextlib.contextmanager
    def session(self, *, dense: bool, keyword: bool) -> Iterator[Session]:
        """The last committed state with the structures that are needed, the same for the length of the block."""
        with contextlib.ExitStack() as gate, contextlib.ExitStack() as reading:
            gate.enter_context(self._gate.shared())
            state = reading.enter_context(self._store.reading())
            current = (
                self._dense_shows if dense else state.generation,
                self._keyword_shows if keyword else state.generation,
            )
            if current == (state.generation, state.generation):
                yield self._session(state, gate, dense=dense, keyword=keyword)
                return
        # The transaction begins when nobody else can refresh: what others have refreshed to is never newer than it.
        with contextlib.ExitStack() as gate, contextlib.ExitStack() as reading:
            gate.enter_context(self._gate.alone())
            state = reading.enter_context(self._store.reading())
            yield self._session(state, gate, dense=dense, keyword=keyword)

    def _session(self, state: State, gate: contextlib.ExitStack, *, dense: bool, keyword: bool) -> Session:
        shown = None
        if dense:
            shown = self._dense.refresh(state)  # always: it reads vectors again through this very transaction
            self._dense_shows = state.generation
        if keyword and self._keyword_shows != state.generation:
            assert self._keyword is not None  # `check_keyword` came first
            self._keyword_shows = -1
            self._keyword.refresh(state)
            self._keyword_shows = state.generation
        return Session(state, shown, self._keyword if keyword else None, gate)

    # --- by the holder of the writer's lock --------------------------------------------------------------------------

    def check_lineage(self, connection: sqlite3.Connection) -> None:
        """Throw files away that reach further than the database, before that goes on another way."""
        if not self._folder.exists():
            return
        (generation,) = connection.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        saved = self._saved()
        if saved is None or saved[0] > int(generation):
            self._throw_away()

    def _throw_away(self) -> None:
        with self._gate.alone():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._renew()

    def _saved(self) -> tuple[int, int] | None:
        """The generation and the last number up to which the files may reach."""
        try:
            generation, last = json.loads((self._folder / _SAVED).read_text(encoding="utf-8"))
            return int(generation), int(last)
        except (OSError, ValueError, TypeError):
            return None

    def save(self, connection: sqlite3.Connection, *, always: bool = False, whole: bool = False) -> None:
        """Write the structures where enough has changed since they were written; a failure is a warning."""
        try:
            waiting, living = self._waiting(connection)
            if whole or (waiting and (always or waiting >= max(_SMALL, int(_SHARE * living)))):
                self._save(whole=whole)
        except Exception as error:
            # Whatever faiss or the disk throw: the documents are committed, and this can be made again.
            with contextlib.suppress(OSError):
                (self._folder / _SAVED).unlink()
            warnings.warn(
                f"{self._folder}: the files that make opening quick could not be written ({error}); no document is "
                "lost, they are made again when they are needed",
                MunjangWarning,
                stacklevel=3,
            )

    def _waiting(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """How many passages came or went since the files were written, and how many there are."""
        generation, last = self._saved() or (-1, 0)
        (living,) = connection.execute("SELECT count(*) FROM passages").fetchone()
        (fresh,) = connection.execute("SELECT count(*) FROM passages WHERE number > ?", (last,)).fetchone()
        (gone,) = connection.execute(
            "SELECT count(*) FROM removals WHERE generation > ? AND number <= ?", (generation, last)
        ).fetchone()
        return fresh + gone, living

    def _save(self, *, whole: bool) -> None:
        self._folder.mkdir(exist_ok=True)
        with self._store.reading() as state:
            reach = json.dumps([state.generation, state.last_number()])
        atomic_write(self._folder / _SAVED, reach.encode())
        # Refreshed first, and then once more in shared state: others may search while the files are written.
        with self.session(dense=True, keyword=False):
            pass
        with self.session(dense=True, keyword=False) as session:
            self._dense.save(session.state, whole=whole)
        if not self._options.keyword:
            return
        with contextlib.suppress(MissingExtraError):
            with self.session(dense=False, keyword=True):
                pass
            with self.session(dense=False, keyword=True) as session:
                assert session.keyword is not None
                session.keyword.save(session.state)

    def rebuild(self, connection: sqlite3.Connection) -> None:
        """Throw the files away and make them anew."""
        self._throw_away()
        self.save(connection, whole=True)
