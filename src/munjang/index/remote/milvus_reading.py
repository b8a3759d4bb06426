"""Rows of a collection in Milvus, by their keys or by a condition: always whole, also while others write.

Replacing a row is, in Milvus, a new row and the end of the old one, and for a moment both are there. An answer has a
key once, but its limit counts rows before that: a limit of as many rows as keys were asked for gives fewer, and rows of
other documents are missing. So a limit never stands for how many rows there are; a page may be short, and only an empty
one is the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from munjang.index.remote.address import Address
from munjang.index.remote.milvus_connecting import Connection
from munjang.index.remote.milvus_filters import quoted
from munjang.index.remote.milvus_rows import Fields, slices

MOST_ROWS = 16_384  # of one answer, by default of Milvus
MOST_KEYS = 2_000  # in one question: each may be there several times


@dataclass(frozen=True)
class Reading:
    """Reads collections, as consistently as `level` says in Milvus' words."""

    connection: Connection
    address: Address
    level: str

    def by_keys(
        self, collection: str, keys: Sequence[str], fields: Sequence[str], *, most: int = MOST_KEYS
    ) -> Iterator[Fields]:
        """The rows of those keys that are there; most: keys in one question, where rows are large."""
        for some in slices(keys, most):
            yield from self._rows(collection, f"key in [{quoted(some)}]", fields, limit=MOST_ROWS)

    def pages(
        self, collection: str, condition: str, fields: Sequence[str], *, after: str = "", size: int = MOST_ROWS
    ) -> Iterator[list[Fields]]:
        """All rows that meet a condition, ascending by their keys, in pages of at most `size`; none is empty."""
        while rows := self._rows(collection, f'key > "{after}" and ({condition})', fields, limit=size):
            yield rows
            after = rows[-1]["key"]

    def count(self, collection: str, condition: str) -> int:
        """How many rows meet a condition; one that is just being replaced may count twice."""
        return int(self._ask(collection, condition, ["count(*)"])[0]["count(*)"])

    def _rows(self, collection: str, condition: str, fields: Sequence[str], *, limit: int) -> list[Fields]:
        rows = self._ask(collection, condition, ["key", *fields], limit=limit)
        return sorted((dict(row) for row in rows), key=lambda row: str(row["key"]))

    def _ask(self, collection: str, condition: str, fields: list[str], **how: Any) -> Any:
        return self.connection.call(
            lambda client: client.query(
                collection,
                filter=condition,
                output_fields=fields,
                consistency_level=self.level,
                timeout=self.address.timeout,
                **how,
            )
        )
