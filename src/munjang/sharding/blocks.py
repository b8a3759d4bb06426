"""Rows of a shard -> documents -> passages -> vectors, in blocks on their way into an index. Runs in a worker.

A document has the id of its row or, where rows have none, the name of the shard and the line: the same row always has
the same id, so that adding it twice leaves it there once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from munjang.data.documents import as_document
from munjang.errors import DataError, InputError
from munjang.index.cutting import Cutter
from munjang.index.documents import incoming, title_of
from munjang.sharding.messages import Block, Done, Plan
from munjang.sharding.options import Reading
from munjang.sharding.rows import Good, read_rows
from munjang.sharding.shards import Shard
from munjang.sharding.worker import Counting, precision_of

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder

_DOCUMENTS = 2048
_CHARACTERS = 4_000_000


@dataclass
class _Batch:
    """Documents that are encoded together."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    characters: int = 0

    def has_room_for(self, text: str) -> bool:
        return len(self.documents) < _DOCUMENTS and self.characters + len(text) <= _CHARACTERS

    def add(self, line: int, document: dict[str, Any]) -> None:
        self.documents.append(document)
        self.lines.append(line)
        self.characters += len(document["text"])


def made_id(shard: str, line: int) -> str:
    """The id of a row that has none."""
    return f"{shard}#{line}"


def send_blocks(plan: Plan, shard: Shard, content: str, model: BiEncoder, counting: Counting) -> Done:
    """Encode a shard and send it block by block; the answer says how much it was."""
    assert plan.cutting is not None
    cutter = Cutter.resolve(model.tokenizer, plan.cutting.size, plan.cutting.stride, prompt=plan.cutting.prompt)
    prompt_name = model.prompt_for("document", "passage", "corpus")
    rows = tokens = truncated = 0
    made = False
    documents = _Documents(shard, plan.reading, counting)
    for batch in documents.batches():
        texts = [document["text"] for document in batch.documents]
        titles = [title_of(document, plan.cutting.title) for document in batch.documents]
        passages = cutter.passages(texts, titles)[1]
        encoded = model.encode_report(passages, prompt_name=prompt_name)
        counting.tell(Block(batch.documents, batch.lines, passages, encoded.vectors))
        rows += len(texts)
        counting.encoded(rows)
        tokens, truncated = tokens + encoded.report.tokens, truncated + encoded.report.truncated
        made = documents.made
    counting.read = rows
    return Done(
        content,
        rows,
        counting.rejected,
        tokens,
        truncated,
        precision_of(model),
        None,
        0,
        made_ids=made,
        last_line=counting.last_line,
    )


class _Documents:
    """The rows of a shard as documents, those set aside that an index cannot hold."""

    def __init__(self, shard: Shard, reading: Reading, counting: Counting) -> None:
        self._shard = shard
        self._reading = reading
        self._counting = counting
        self._seen: set[bytes] = set()  # hashes of ids: an id names one document
        self.made = False

    def batches(self) -> Iterator[_Batch]:
        batch = _Batch()
        for row in self._counting.good(read_rows(self._shard, self._reading, whole=True)):
            try:
                document = self._document(row)
            except (DataError, InputError) as error:
                self._counting.reject(row.line, str(error))
                continue
            if not batch.has_room_for(document["text"]) and batch.documents:
                yield batch
                batch = _Batch()
            batch.add(row.line, document)
        self._counting.flush()
        if batch.documents:
            yield batch

    def _document(self, row: Good) -> dict[str, Any]:
        column = row.column or "text"
        cells = row.cells if row.column is not None else {"text": row.text}
        wanted = self._reading.id_column
        id_column = wanted or ("id" if "id" in cells and column != "id" else None)
        if wanted is not None and wanted not in cells:
            raise DataError(f"there is no {wanted!r} to be the id")
        document = as_document(cells, (column, id_column), self._reading.metadata)
        if id_column is None:
            document["id"] = made_id(self._shard.name, row.line)
            self.made = True
        incoming(document, 0)
        mark = hashlib.blake2b(str(document["id"]).encode(), digest_size=12).digest()
        if mark in self._seen:
            raise DataError(f"the id {document['id']!r} came before in this shard; an id names one document")
        self._seen.add(mark)
        return document
