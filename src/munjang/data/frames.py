"""Tables of other libraries as rows, batch by batch: pandas, polars, Arrow, Hugging Face datasets.

None of these is imported here: an object brings its own library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from munjang.data.rows import LIBRARIES, Row, RowSource, Table, unique_keys
from munjang.errors import InputError

_BATCH = 4096  # rows that become Python values at once
_STRINGS = ("object", "str", "string", "String", "Utf8", "Categorical", "Enum", "large_string", "string_view")

Batches = Callable[[Sequence[str] | None], Iterable[Sequence[Sequence[object]]]]  # for each batch, values by column


def open_frame(frame: Any, name: str) -> RowSource | Iterable[object]:
    """Open a table as rows; a single column (Series, array) becomes a list, any other iterable stays as it is.

    Raises:
        InputError: the object is not one table: it has several splits, is lazy, or is an array of numbers.
    """
    library = next(
        root for base in type(frame).__mro__ if (root := base.__module__.partition(".")[0]) in LIBRARIES
    )  # fmt: skip
    kind, label = type(frame).__name__, f"{name}: " if name else ""
    if library == "datasets" and hasattr(frame, "keys"):
        raise InputError(
            f"{label}expected one split, got a {kind} with {', '.join(map(repr, frame))}: pass one of them, such as "
            f"data[{next(iter(frame), 'train')!r}]"
        )
    if kind == "LazyFrame":
        raise InputError(f"{label}expected a DataFrame, got a LazyFrame: pass frame.collect()")
    if library == "numpy" and (frame.dtype.kind not in "OUT" or frame.ndim == 0):
        raise InputError(f"{label}expected strings, got an array of {frame.dtype} {list(frame.shape)}")
    if library == "datasets" and hasattr(frame, "with_format") and hasattr(frame, "__len__"):
        return _open_dataset(frame, name)
    if library == "pyarrow" and hasattr(frame, "schema"):
        return _open_arrow(frame, name)
    if library in ("pandas", "polars") and kind != "Series" and hasattr(frame, "columns"):
        return _open_polars(frame, name) if library == "polars" else _open_pandas(frame, name)
    to_list = next((found for method in _TO_LIST if (found := getattr(frame, method, None))), None)
    values: Iterable[object] = frame if to_list is None else to_list()
    return values


_TO_LIST = ("tolist", "to_list", "to_pylist")


def _open_pandas(frame: Any, name: str) -> RowSource:
    keys = unique_keys(tuple(map(str, frame.columns)))
    dtypes = [getattr(getattr(dtype, "categories", None), "dtype", dtype) for dtype in frame.dtypes]

    def batches(columns: Sequence[str] | None) -> Iterator[list[list[object]]]:
        places = [keys.index(column) for column in columns or keys]
        for at in range(0, len(frame), _BATCH):
            yield [frame.iloc[at : at + _BATCH, place].tolist() for place in places]

    return _source(name, tuple(map(str, frame.columns)), dtypes, batches, len(frame))


def _open_polars(frame: Any, name: str) -> RowSource:
    def batches(columns: Sequence[str] | None) -> Iterator[list[list[object]]]:
        for part in frame.select(list(columns or frame.columns)).iter_slices(_BATCH):
            yield [part[column].to_list() for column in part.columns]

    return _source(name, tuple(frame.columns), frame.dtypes, batches, len(frame))


def _open_arrow(table: Any, name: str) -> RowSource:
    """A Table, a RecordBatch, or a stream of batches, which can be read once."""
    names = tuple(table.schema.names)
    keys = unique_keys(names)
    is_stream = not hasattr(table, "num_rows")

    def batches(columns: Sequence[str] | None) -> Iterator[list[list[object]]]:
        places = [keys.index(column) for column in columns or keys]
        parts = table if is_stream else table.to_batches(_BATCH) if hasattr(table, "to_batches") else [table]
        for part in parts:
            yield [part.column(place).to_pylist() for place in places]

    types = [getattr(kind, "value_type", kind) for kind in table.schema.types]
    return _source(name, names, types, batches, None if is_stream else table.num_rows, reiterable=not is_stream)


def _open_dataset(dataset: Any, name: str) -> RowSource:
    plain = dataset.with_format(None)

    def batches(columns: Sequence[str] | None) -> Iterator[list[list[object]]]:
        chosen = list(columns or plain.column_names)
        for batch in plain.select_columns(chosen).iter(batch_size=_BATCH):
            yield [batch[column] for column in chosen]

    types = [getattr(plain.features[column], "dtype", "") for column in plain.column_names]
    return _source(name, tuple(plain.column_names), types, batches, len(plain))


def _source(
    name: str, names: tuple[str, ...], types: Sequence[object], batches: Batches, total: int | None, *,
    reiterable: bool = True,
) -> RowSource:  # fmt: skip
    keys = unique_keys(names)
    strings = tuple(
        key for key, kind in zip(keys, types, strict=True) if str(kind).partition("(")[0].partition("[")[0] in _STRINGS
    )

    def read(columns: Sequence[str] | None) -> Iterator[Row]:
        chosen, number = tuple(columns or keys), 0
        for batch in batches(columns):
            for values in zip(*batch, strict=True):
                yield Row(f"row {number}", dict(zip(chosen, values, strict=True)))
                number += 1

    return RowSource(name, lambda: Table(names, read, strings), total=total, reiterable=reiterable)
