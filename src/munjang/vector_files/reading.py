"""Vectors back from the files that hold them: .npy (memory-mapped), .parquet, .jsonl. Float32 [n, dimension].

A file that is damaged is an error that says where, never a shorter or a wrong matrix.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from munjang.errors import DataError, InputError
from munjang.vector_files.parquet import import_pyarrow


def read_vectors(path: str | Path) -> np.ndarray:
    """The vectors of a file, float32 [n, dimension]; of a .npy file of float32, a read-only memory map.

    A .jsonl file without lines has no dimension either: it gives [0, 0].
    """
    path = Path(path)
    readers = {".npy": _read_npy, ".parquet": _read_parquet, ".jsonl": _read_jsonl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"a file of vectors must end in {', '.join(readers)}, got {path.name!r}")
    if not path.exists():
        unfinished = path.with_name(path.name + ".progress.json").exists()
        hint = "; it is unfinished: run what writes it again, and it goes on" if unfinished else ""
        raise DataError(f"{path} is not there{hint}")
    try:
        vectors = reader(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise DataError(f"{path} must hold floats [rows, dimension], but holds {vectors.dtype} {vectors.shape}")
    return vectors if vectors.dtype == np.float32 else vectors.astype(np.float32)


def _read_npy(path: Path) -> np.ndarray:
    there = path.stat().st_size
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, _, dtype = read_header(file)
            expected = file.tell() + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    except (ValueError, KeyError) as error:
        raise DataError(f"{path} is not a .npy file that can be read ({error}); it has {there:,} bytes") from error
    if dtype.hasobject:
        raise DataError(f"{path} holds pickled objects, which are never loaded; expected floats")
    if there != expected:
        raise DataError(
            f"{path} is damaged: {shape} of {dtype} are {expected:,} bytes with the header, it has {there:,}"
        )
    vectors: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return vectors


def _read_parquet(path: Path) -> np.ndarray:
    arrow = import_pyarrow("reading .parquet files")
    try:
        with arrow.parquet.ParquetFile(path) as file:
            if "vector" not in file.schema_arrow.names:
                raise DataError(f"{path} has no column 'vector', only {', '.join(file.schema_arrow.names)}")
            kind = file.schema_arrow.field("vector").type
            fixed = arrow.types.is_fixed_size_list(kind)
            if not (fixed or arrow.types.is_list(kind)) or not arrow.types.is_floating(kind.value_type):
                raise DataError(f"{path}: column 'vector' must hold lists of floats, but holds {kind}")
            dimension = kind.list_size if fixed else None
            vectors = np.zeros((file.metadata.num_rows, dimension or 0), np.float32)
            row = 0
            for group in range(file.num_row_groups):
                for chunk in file.read_row_group(group, columns=["vector"]).column("vector").chunks:
                    matrix = _matrix(arrow, path, chunk, dimension=dimension)
                    if dimension is None:  # plain lists: the first says how long they are
                        dimension = matrix.shape[1]
                        vectors = np.zeros((len(vectors), dimension), np.float32)
                    vectors[row : row + len(matrix)] = matrix
                    row += len(matrix)
    except arrow.ArrowException as error:
        raise DataError(f"{path} is not a .parquet file that can be read: {error}") from error
    return vectors


def _matrix(arrow: Any, path: Path, chunk: Any, *, dimension: int | None) -> np.ndarray:
    """The vectors of a chunk of lists, [rows, dimension]; their dimension is the first one's where none is given."""
    values = chunk.flatten()
    if chunk.null_count or values.null_count:
        raise DataError(f"{path}: column 'vector' has nulls")
    lengths = set(arrow.compute.list_value_length(chunk).to_pylist())
    dimension = dimension if dimension is not None else min(lengths, default=0)
    if lengths - {dimension}:
        raise DataError(f"{path}: the vectors have several lengths: {sorted({dimension, *lengths})}")
    matrix: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(len(chunk), dimension)
    return matrix


def _read_jsonl(path: Path) -> np.ndarray:
    rows: list[np.ndarray] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                vector = np.array(record["vector"], dtype=np.float64).astype(np.float32)
            except (ValueError, KeyError, TypeError) as error:
                problem = "has no 'vector'" if isinstance(error, KeyError) else f"cannot be read ({error})"
                raise DataError(
                    f"{path}: line {number:,} {problem}; expected an object with a list 'vector'"
                ) from error
            if vector.ndim != 1 or (rows and vector.shape != rows[0].shape):
                wanted = rows[0].shape if rows else "[dimension]"
                raise DataError(f"{path}: line {number:,} has a vector of shape {vector.shape}, expected {wanted}")
            rows.append(vector)
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)
