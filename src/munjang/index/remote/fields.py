"""Which metadata fields a remote index has, and of which kinds their values are: so that a filter that can find nothing
is an error there too, without asking the server to look at every document.

Kept as notes of the engine, one for every field and kind ("field:number:year"), written before the first document that
has it. Notes are only added, by any number of writers, so they never contradict each other; a field stays known after
its last document is gone, and a filter on it then finds nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from munjang.errors import InputError
from munjang.index.columns import Kind, columns_of
from munjang.index.filters import Filter
from munjang.index.remote.engine import Engine

_PREFIX = "field:"
_NONE = "none"  # a field of which no value is known: null, or an empty list
_EXAMPLES: dict[Kind, Any] = {"number": 0, "boolean": False, "text": ""}


class Fields:
    """The fields of one index, as far as this process knows them; may be used from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: set[tuple[str, str]] = set()  # name, kind
        self._lock = threading.Lock()

    def learn(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Have the server know the fields of documents that are about to be written."""
        seen = {(name, kind) for metadata in documents for name, value in metadata.items() for kind in _kinds(value)}
        fresh = seen - self._known
        if fresh:
            self._engine.put_notes({f"{_PREFIX}{kind}:{name}": "1" for name, kind in sorted(fresh)})
            with self._lock:
                self._known = self._known | fresh

    def check(self, filter: Filter) -> None:
        """Raise where no document could meet the filter; the server is asked only where this process knows too little.

        An empty index has no fields, and that is no mistake of the filter.
        """
        try:
            self._check(filter)
        except InputError:
            self.read()
            if self._known:
                self._check(filter)

    def read(self) -> None:
        """Take over what other writers have learnt."""
        found = set()
        for note in self._engine.notes():
            if note.startswith(_PREFIX):
                kind, _, name = note.removeprefix(_PREFIX).partition(":")
                found.add((name, kind))
        with self._lock:
            self._known = self._known | found

    def _check(self, filter: Filter) -> None:
        known = self._known
        filter.check_names({name for name, _ in known})
        wanted = set(filter.fields())
        # One document with a value of every kind: what a filter cannot be compared with, it says of this one too.
        filter.documents(
            columns_of(
                [
                    {
                        name: [example for kind, example in _EXAMPLES.items() if (name, kind) in known]
                        for name in sorted(wanted)
                    }
                ]
            )
        )


def _kinds(value: Any) -> set[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    found = {_kind(one) for one in values}
    return found or {_NONE}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"
