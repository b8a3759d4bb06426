"""Long texts -> items: one vector each, and chunks of it to look at more closely.

    text -> chunks of 128 tokens, 64 apart -> vectors of length 1 -> their mean, of length 1

All chunks go into the mean. Of a book's thousands only some are kept, spread evenly over it: they are what a
cross-encoder reads and what an explanation quotes, and they bound the memory that an item takes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.data.documents import open_documents
from munjang.errors import InputError
from munjang.index.results import Passage
from munjang.progress import Progress, track
from munjang.tasks.classifier_heads import unit
from munjang.text.chunks import Chunk, chunk_all

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Chunking:
    """How texts are cut, and how many pieces of each are kept."""

    tokens: int = 128
    stride: int = 64
    kept: int = 64  # chunks of an item

    def check(self, model: BiEncoder) -> None:
        """Refuse what the model cannot read, under the names that callers know."""
        specials, longest = model.tokenizer.specials, model.max_length
        if not specials < self.tokens <= longest:
            raise InputError(
                f"chunk_tokens must be {specials + 1}..{longest} (the model's max_length), got {self.tokens}"
            )
        if not 1 <= self.stride <= self.tokens - specials:
            raise InputError(
                f"stride must be 1..{self.tokens - specials} (chunk_tokens without special tokens), got {self.stride}"
            )
        if self.kept < 1:
            raise InputError(f"kept_chunks must be at least 1, got {self.kept}")


@dataclass(frozen=True)
class Items:
    """What can be recommended."""

    ids: list[str]
    metadata: list[dict[str, Any]]
    vectors: Array  # float32 [n, d], of length 1
    ends: Array  # int64 [n + 1]: the chunks of item i are ends[i]..ends[i + 1]
    passages: list[Passage]  # [chunks]
    chunk_vectors: Array  # float16 [chunks, d], of length 1
    empty: tuple[str, ...] = ()  # ids of items whose text has no words: they are left out

    def chunks_of(self, item: int) -> slice:
        return slice(int(self.ends[item]), int(self.ends[item + 1]))


@dataclass(frozen=True)
class Text:
    """One text in chunks, as a query."""

    vector: Array  # float32 [d], of length 1
    passages: Sequence[Passage]
    vectors: Array  # [chunks, d], of length 1


def encode_text(text: str, model: BiEncoder, how: Chunking) -> Text:
    """A text that is not among the items."""
    if not isinstance(text, str):
        raise InputError(f"expected a text, got {type(text).__name__}")
    made = _made(iter([("", text, {})]), model, how, lambda count: None)
    if not made:
        raise InputError("there is nothing to compare: the text has no words")
    return Text(made[0].vector, made[0].passages, made[0].vectors)


def make_items(
    records: Iterable[Mapping[str, object]], model: BiEncoder, how: Chunking, *, progress: Progress = False
) -> Items:
    """Items of records with `text`, `id` and anything else; in one pass, so that a stream will do."""
    how.check(model)
    records = open_documents(records)
    total = len(records) if isinstance(records, Sized) else None
    given: list[str] = []
    with track(progress, total) as done:
        made = _made(_checked(records, given), model, how, done)
    if not made:
        raise InputError(f"there is nothing to recommend: {len(given):,} items, none with words in its text")
    kept = {item.number for item in made}
    return Items(
        ids=[given[item.number] for item in made],
        metadata=[item.metadata for item in made],
        vectors=np.stack([item.vector for item in made]),
        ends=np.cumsum([0, *(len(item.passages) for item in made)], dtype=np.int64),
        passages=[passage for item in made for passage in item.passages],
        chunk_vectors=np.concatenate([item.vectors for item in made]),
        empty=tuple(id for number, id in enumerate(given) if number not in kept),
    )


Record = tuple[str, str, dict[str, Any]]  # id, text, metadata


def _checked(records: Iterable[Mapping[str, object]], ids: list[str]) -> Iterator[Record]:
    """The records, one at a time; their ids are put into `ids`."""
    seen: dict[str, int] = {}
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise InputError(f"item {row} must be a dict with id and text, got {type(record).__name__}")
        text, given = record.get("text"), record.get("id", row)
        if not isinstance(text, str):
            raise InputError(f"item {row} needs a 'text', got {text!r:.60}; it has {', '.join(map(repr, record))}")
        if isinstance(given, bool) or not isinstance(given, str | int | np.integer) or given == "":
            raise InputError(f"the id of item {row} must be a text or a whole number, got {given!r:.60}")
        id = str(given)
        if id in seen:
            raise InputError(f"ids must differ from each other, but items {seen[id]} and {row} both have {id!r}")
        metadata = {str(name): value for name, value in record.items() if name not in ("id", "text")}
        try:
            json.dumps(metadata)
        except (TypeError, ValueError) as error:
            raise InputError(f"what stands beside the text of item {id!r} must be fit for JSON: {error}") from error
        seen[id] = row
        ids.append(id)
        yield id, text, metadata


@dataclass(frozen=True)
class _Made:
    number: int
    metadata: dict[str, Any]
    vector: Array  # float32 [d]
    passages: list[Passage]
    vectors: Array  # float16 [kept, d]


def _made(records: Iterator[Record], model: BiEncoder, how: Chunking, done: Callable[[int], None]) -> list[_Made]:
    """Every item whose text has words: chunks are encoded in windows, whichever items they belong to."""
    metadata: list[dict[str, Any]] = []
    waiting: deque[tuple[int, Chunk]] = deque()
    made: list[_Made] = []
    told = 0

    def texts() -> Iterator[str]:
        for _, text, beside in records:
            metadata.append(beside)
            yield text

    def chunks() -> Iterator[str]:
        for number, chunk in chunk_all(texts(), model.tokenizer, size=how.tokens, stride=how.stride):
            waiting.append((number, chunk))
            yield chunk.text

    open_item: list[tuple[int, Chunk, Array]] = []

    def close() -> None:
        nonlocal told
        if open_item:
            number = open_item[0][0]
            made.append(_item(open_item, metadata[number], how.kept))
            done(number + 1 - told)
            told = number + 1
            open_item.clear()

    for window in model.encode_stream(chunks()):
        for vector in unit(window.vectors):
            number, chunk = waiting.popleft()
            if open_item and open_item[0][0] != number:
                close()
            open_item.append((number, chunk, vector))
    close()
    done(len(metadata) - told)
    return made


def _item(chunks: list[tuple[int, Chunk, Array]], metadata: dict[str, Any], kept: int) -> _Made:
    vectors = np.stack([vector for _, _, vector in chunks])
    mean = unit(vectors.mean(axis=0, keepdims=True))[0]
    # Evenly over the text, its beginning and its end among them.
    places = np.unique(np.linspace(0, len(chunks) - 1, min(kept, len(chunks))).round().astype(np.int64))
    passages = [Passage(chunks[at][1].text, chunks[at][1].start, chunks[at][1].end) for at in places.tolist()]
    return _Made(chunks[0][0], metadata, mean, passages, vectors[places].astype(np.float16))
