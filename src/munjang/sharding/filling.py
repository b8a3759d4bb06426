"""Blocks of documents with ready vectors -> `Index.add`, in the coordinator. The index may be a folder or an address.

A shard is done when the index has acknowledged every block of it. Whoever adds a block again adds the same ids, which
an index keeps once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from munjang.errors import DataError
from munjang.progress import Progress
from munjang.sharding.blocks import made_id
from munjang.sharding.manifest import Book, Record
from munjang.sharding.messages import Block, Done
from munjang.sharding.shards import Shard

if TYPE_CHECKING:
    from munjang.index.index import Index

_DELETE = 1000  # ids at a time


@dataclass
class _Filling:
    """A shard that is under way."""

    ends: list[str] = field(default_factory=list)
    came: bytearray = field(default_factory=bytearray)  # by line: 1 where a document with a made id came


class Filler:
    """Puts the shards into one index."""

    def __init__(self, index: Index, book: Book) -> None:
        self._index = index
        self._book = book
        self._under_way: dict[str, _Filling] = {}

    def known(self, shard: Shard) -> str | None:
        """The content of the shard that is done, where its first and last document are still there."""
        record = self._book.records.get(shard.name)
        if record is None or not all(id in self._index for id in record.ends):
            return None
        return record.content

    def begin(self, shard: Shard) -> None:
        """A new attempt."""
        earlier = self._earlier(shard)
        self._under_way[shard.name] = _Filling(came=bytearray(earlier.last_line + 1 if earlier else 0))

    def add(self, shard: Shard, block: Block) -> None:
        """Add a block; it is in the index when this returns."""
        places = {text: place for place, text in enumerate(block.passages)}

        def ready(texts: list[str], *, progress: Progress = False) -> np.ndarray[Any, Any]:
            try:
                return block.vectors[[places[text] for text in texts]]
            except KeyError:
                raise DataError(
                    f"{shard.name}: a worker cut a document into other passages than the index: is the same version "
                    "of munjang and of its tokenizer on all machines?"
                ) from None

        self._index.add(block.documents, encode=ready)
        filling = self._under_way[shard.name]
        ids = [str(block.documents[0]["id"]), str(block.documents[-1]["id"])]
        filling.ends = [(filling.ends or ids)[0], ids[1]]
        for line, document in zip(block.lines, block.documents, strict=True):
            if line < len(filling.came) and document["id"] == made_id(shard.name, line):
                filling.came[line] = 1

    def finish(self, shard: Shard, done: Done) -> None:
        """Take out the rows that an earlier version of the shard had and this one has not, and write it down."""
        filling = self._under_way.pop(shard.name)
        stale = [made_id(shard.name, line) for line, came in enumerate(filling.came) if line and not came]
        for start in range(0, len(stale), _DELETE):
            self._index.delete(stale[start : start + _DELETE])
        self._book.publish(shard, done, output=None, ends=tuple(dict.fromkeys(filling.ends)))

    def _earlier(self, shard: Shard) -> Record | None:
        """What was done of the shard, where its documents are called by lines; other ids may be in other shards now."""
        record = self._book.records.get(shard.name)
        return record if record is not None and record.made_ids else None
