"""An index as one .parquet file, and back: ids, texts, metadata, passages and vectors; nothing is encoded again.

    id, text, metadata (JSON), start [list], end [list], vectors [list of d floats]      a row is a document

The model's identity and the number of documents stand in the file's own metadata. The file is written aside, forced to
the disk, read again and compared, and only then renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from munjang.errors import DataError, InputError
from munjang.files import atomic_path, disk_errors
from munjang.index.adding import write_passages
from munjang.index.codes import Codec
from munjang.index.documents import incoming
from munjang.index.state import State, metadata_of
from munjang.index.store import Store, commit, next_generation
from munjang.progress import Progress, track
from munjang.vectors.files import import_pyarrow

_KEY = b"munjang.index"
_FORMAT = 2  # 2: options may name a title
GROUP_BYTES = 32 << 20  # of texts and vectors in a row group
_NAMES = ("id", "text", "metadata", "start", "end", "vectors")
Row = dict[str, Any]


def export(
    store: Store, path: Path, header: Mapping[str, object], *, overwrite: bool = False, progress: Progress = False
) -> int:
    """Write one state of an index; returns how many documents. The file is there whole, or as it was before."""
    with store.reading() as state:
        content = Content(state.count(), state.dimension, _groups(state))
        return write(content, path, header, overwrite=overwrite, progress=progress)


@dataclass(frozen=True)
class Content:
    """What is exported: documents, so many in all, in groups that memory can hold."""

    count: int
    dimension: int
    groups: Iterator[list[Row]]


def write(
    content: Content, path: Path, header: Mapping[str, object], *, overwrite: bool = False, progress: Progress = False
) -> int:
    """Write documents from wherever they are; the file is there whole, or as it was before."""
    arrow = import_pyarrow("exporting an index")
    if path.suffix != ".parquet":
        raise InputError(f"an index is exported to a .parquet file, got {path.name}")
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already: choose another path, or overwrite=True")
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {path.absolute().parent} to write {path.name} to")
    with disk_errors(path, safe="nothing was written"), atomic_path(path.absolute()) as temporary:
        count = content.count
        facts = {"format": _FORMAT, "documents": count, **header}
        with track(progress, 2 * count) as done:
            written = _write(arrow, temporary, _schema(arrow, content.dimension, facts), content, done)
            read = _digest(arrow, temporary, done)
        if written != read:
            raise DataError(f"{path}: what was written does not read back as it was: is the disk sound?")
    return count


def _schema(arrow: Any, dimension: int, facts: Mapping[str, object]) -> Any:
    vector = arrow.list_(arrow.float32(), dimension)
    types = (
        arrow.string(), arrow.large_string(), arrow.string(), arrow.list_(arrow.int64()), arrow.list_(arrow.int64()),
        arrow.list_(vector),
    )  # fmt: skip
    metadata = {_KEY: json.dumps(facts, ensure_ascii=False).encode()}
    return arrow.schema(list(zip(_NAMES, types, strict=True)), metadata=metadata)


def _write(arrow: Any, path: Path, schema: Any, content: Content, done: Callable[[int], None]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with (
        open(path, "wb") as file,
        arrow.parquet.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer,
    ):
        for group in content.groups:
            for row in group:
                absorb(digest, row)
            columns = {name: [row[name] for row in group] for name in _NAMES[:-1]}
            columns["vectors"] = [row["vectors"].tolist() for row in group]
            writer.write_table(arrow.table(columns, schema=schema))
            done(len(group))
    return digest.hexdigest()


def _groups(state: State) -> Iterator[list[Row]]:
    """The documents with their passages, so many at a time as a row group holds."""
    group: list[Row] = []
    size = 0
    for row, id, text, metadata in state.connection.execute(
        "SELECT row, id, text, metadata FROM documents ORDER BY row"
    ):
        numbers = state.passages_of(row)
        spans = state.spans(numbers.tolist())
        group.append(
            {
                "id": id,
                "text": text,
                "metadata": metadata,
                "start": [spans[number][1] for number in numbers.tolist()],
                "end": [spans[number][2] for number in numbers.tolist()],
                "vectors": state.vectors(numbers) if len(numbers) else np.zeros((0, state.dimension), np.float32),
            }
        )
        size += len(text) + 4 * len(numbers) * state.dimension + 200
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def absorb(digest: Any, row: Row) -> None:
    """Add a document to a checksum: id, text, metadata, passages and vectors."""
    for name in ("id", "text", "metadata"):
        digest.update(row[name].encode() + b"\0")
    digest.update(json.dumps([row["start"], row["end"]]).encode())
    digest.update(np.ascontiguousarray(row["vectors"], dtype="<f4").tobytes())


def _digest(arrow: Any, path: Path, done: Callable[[int], None]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for group in read_groups(arrow, path):
        for row in group:
            absorb(digest, row)
        done(len(group))
    return digest.hexdigest()


def read_groups(arrow: Any, path: Path) -> Iterator[list[Row]]:
    """The rows of a file, a row group at a time."""
    with _damage(arrow, path), arrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, columns=list(_NAMES))
            width = table.schema.field("vectors").type.value_type.list_size
            rows = table.drop_columns(["vectors"]).to_pylist()
            place = 0
            for chunk in table.column("vectors").chunks:
                flat = chunk.flatten().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
                cuts = np.cumsum(chunk.value_lengths().to_numpy(zero_copy_only=False))[:-1]
                for vectors in np.split(flat, cuts):
                    rows[place]["vectors"] = vectors
                    place += 1
            yield rows


@contextlib.contextmanager
def _damage(arrow: Any, path: Path) -> Iterator[None]:
    try:
        yield
    except (arrow.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path} cannot be read as an exported index ({error}): it is damaged, or not one") from error


def read_header(path: Path) -> dict[str, Any]:
    """What an exported file says of its index."""
    arrow = import_pyarrow("importing an index")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    with _damage(arrow, path):
        metadata = arrow.parquet.read_schema(path).metadata or {}
    if _KEY not in metadata:
        raise InputError(f"{path} is not an exported index: Index.export writes one; texts are added with Index.add")
    header: dict[str, Any] = json.loads(metadata[_KEY])
    if header.get("format", 0) > _FORMAT:
        raise DataError(
            f"{path} has format {header['format']}, which a newer munjang wrote: pip install --upgrade munjang"
        )
    return header


def fill(connection: sqlite3.Connection, path: Path, codec: Codec, done: Callable[[int], None]) -> None:
    """Put the documents of an exported file into an empty index, checked, in one transaction."""
    arrow = import_pyarrow("importing an index")
    expected = read_header(path)["documents"]
    connection.execute("BEGIN IMMEDIATE")
    generation = next_generation(connection)
    count = 0
    for group in read_groups(arrow, path):
        for row in group:
            _insert(connection, checked(row, count, path, codec.dimension), codec, generation)
            count += 1
        done(len(group))
    if count != expected:
        raise DataError(f"{path} holds {count:,} documents, but says that it has {expected:,}: it is damaged")
    commit(connection, generation)


def checked(row: Row, position: int, path: Path, dimension: int) -> Row:
    """A row as an index may hold it: a document as `Index.add` takes it, offsets inside the text, finite vectors."""
    try:
        document = incoming({**metadata_of(row["metadata"]), "id": row["id"], "text": row["text"]}, position)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: document {position} cannot be imported: {error}") from error
    starts, ends, vectors = row["start"], row["end"], row["vectors"]
    if not len(starts) == len(ends) == len(vectors) or vectors.shape[1] != dimension:
        raise DataError(
            f"{path}: document {document.id!r} must have as many passages as vectors of {dimension} dimensions, "
            f"got {len(starts)} passages and vectors {vectors.shape}"
        )
    if not all(0 <= start < end <= len(document.text) for start, end in zip(starts, ends, strict=True)):
        raise DataError(f"{path}: a passage of document {document.id!r} lies outside its text")
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: a vector of document {document.id!r} is not finite")
    return row


def _insert(connection: sqlite3.Connection, row: Row, codec: Codec, generation: int) -> None:
    try:
        cursor = connection.execute(
            "INSERT INTO documents (id, generation, metadata, text) VALUES (?, ?, ?, ?)",
            (row["id"], generation, row["metadata"], row["text"]),
        )
    except sqlite3.IntegrityError:
        raise DataError(f"the id {row['id']!r} stands twice in the exported file: it is damaged") from None
    owner = int(cursor.lastrowid or 0)
    passages = [(owner, start, end) for start, end in zip(row["start"], row["end"], strict=True)]
    write_passages(connection, passages, codec.encode(row["vectors"]))
