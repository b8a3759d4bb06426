"""The gate for texts, pairs and rows from any source.

Files, pandas and polars DataFrames and Series, Arrow tables, `datasets.Dataset`, lists of dicts, and any iterable of
texts come in; checked texts, pairs and rows come out, lazily and in order. Text columns are found by one rule, and
what is not a text is refused with its place. In memory a `str` is a text; a `Path` is a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from munjang.data.columns import ROLES, Kind, choose_column, choose_columns, named_column
from munjang.errors import DataError, DataWarning, InputError, LimitError, MunjangError, brief

Format = Literal["txt", "csv", "tsv", "jsonl", "json", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
Source: TypeAlias = "Iterable[object] | str | os.PathLike[str]"
Change: TypeAlias = Callable[[Mapping[str, Any]], "Mapping[str, object] | str | None"]
_LIBRARIES = ("pandas", "polars", "pyarrow", "datasets", "numpy")
_MISSING = ("nan", "none", "null", "n/a", "#n/a", "<na>", "nat")  # what programs write for a missing value
_MISSING_TEXTS = "An empty text is '', a missing one must be left out or replaced"
_REPEATED = re.compile(r"(.{1,8}?)\1{19,}", re.DOTALL)  # a unit of up to 8 code points, 20 times or more


class Row(NamedTuple):
    """One row of a source."""

    place: str  # within its source: "line 17" of a file counts from 1, "row 3" of an object in memory from 0
    values: Mapping[str, object]
    problem: str = ""  # why the record is not a row: "too many fields"


class TextRow(NamedTuple):
    """A text and the other columns that are kept."""

    text: str
    columns: dict[str, object]


@dataclass(frozen=True)
class ReadLimits:
    """Limits on what is read of a file. They count unpacked content: a few kilobytes can unpack to gigabytes."""

    unpacked_bytes: int
    file_rows: int
    file_columns: int

    def check(self, limit: Literal["unpacked_bytes", "file_rows", "file_columns"], count: int, name: str) -> None:
        """Raise `LimitError` where `count` is above the limit; name: the file in messages."""
        most = getattr(self, limit)
        if count > most:
            unit = limit.removeprefix("file_").replace("_", " ")
            raise LimitError(f"{name}: expected at most {most:,} {unit}, got {count:,} or more: split the file", limit)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file."""

    format: Format | None = None  # default: from the suffix; txt for stdin
    encoding: str | None = None  # default: detected (UTF-8, UTF-16 with a mark, cp949)
    quoting: bool | None = None  # default: on for csv, off for tsv
    header: bool = True  # whether the first record of a csv or tsv names the columns
    limits: ReadLimits | None = None  # for files from strangers
    name: str | None = None  # in messages; default: the path

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.format is not None and self.format not in FORMATS:
            raise InputError(f"format must be one of {', '.join(FORMATS)}, got {self.format!r}")


def check_encoding(encoding: str) -> None:
    """Raise `InputError` if Python has no text encoding of this name."""
    try:
        b" ".decode(encoding)
    except UnicodeError:  # one byte is not UTF-16, but the name is known
        return
    except LookupError:  # also for codecs that do not make text, such as base64
        raise InputError(
            f"unknown encoding {encoding!r}: expected a name such as utf-8, cp949, euc-kr or utf-16"
        ) from None


@dataclass(frozen=True)
class Table:
    """One pass over a source: its columns, and a function that reads its rows (of some columns, where that is cheaper).

    The keys of rows are `keys`: they differ from `names` only where two columns have the same name.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[str] | None], Iterator[Row]]
    strings: tuple[str, ...] | None = None  # columns of strings, of data in memory
    notes: tuple[str, ...] = ()
    has_names: bool = True  # False for plain lines

    @property
    def keys(self) -> tuple[str, ...]:
        """A unique key for every column: its name, with the position behind a name that came before."""
        names = self.names
        return tuple(name if names.index(name) == at else f"{name} ({at})" for at, name in enumerate(names))


EMPTY = Table((), lambda columns: iter(()))


class RowSource:
    """Rows of a file or of an object in memory; iterating raises at a record that is not a row.

    `open` starts a pass that hands on broken records as rows with a `problem`.
    """

    error: type[MunjangError] = InputError

    def __init__(self, name: str, open: Callable[[], Table], *, total: int | None = None, reiterable: bool = True):
        self.name = name
        self.short_name = name  # in reports: without the folder of a file
        self.open = open
        self.total = total
        self.reiterable = reiterable

    def __iter__(self) -> Iterator[Row]:
        return self.read(self.open())

    def read(self, table: Table, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield the rows of an opened table; raise at a broken one."""
        for row in table.read(columns):
            if row.problem.endswith("fields"):
                raise self.error(
                    f"{self.where(row)}: expected {len(table.names)} fields ({', '.join(table.names[:10])}), got "
                    f"{len(row.values)}. A delimiter or a quotation mark inside a text? Repair the line, or try the "
                    "other --quoting"
                )
            if row.problem:
                raise self.error(f"{self.where(row)}: {row.problem}")
            yield row

    def map(self, change: Change, names: tuple[str, ...] = ()) -> RowSource:
        """Return the source with changed rows.

        Args:
            change: takes the values of a row and returns new ones, the reason to refuse the row, or None to skip it.
            names: the columns of the changed rows; default: those of the source.
        """

        def changed(row: Row) -> Row | None:
            result = row.problem or change(row.values)
            if isinstance(result, str):
                return row._replace(problem=result)
            return None if result is None else row._replace(values=result)

        def open_table() -> Table:
            table = self.open()
            rows = filter(None, map(changed, table.read(None)))
            return Table(
                names or table.names, lambda _: rows, notes=table.notes, has_names=table.has_names or bool(names)
            )

        return RowSource(self.short_name, open_table)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raise problems with columns and cells as the error of this source."""
        try:
            yield
        except DataError as error:
            if isinstance(error, self.error):
                raise
            raise self.error(str(error)) from None

    def where(self, row: Row) -> str:
        """The place of a row in messages."""
        return f"{self.name}, {row.place}" if self.name else row.place


def open_rows(source: Source | RowSource, *, options: ReadOptions | None = None, name: str = "") -> RowSource:
    """Open anything that has rows.

    Args:
        source: a path (`-` is stdin), a DataFrame of pandas or polars, an Arrow table, a `datasets.Dataset`, or any
            iterable of dicts or of texts.
        options: how to read a file.
        name: of an object in memory, for messages.

    Returns:
        A source to iterate over, with `name`, `total` and `reiterable`.

    Example:
        >>> [row.values["text"] for row in open_rows([{"text": "비가 온다", "id": 1}])]
        ['비가 온다']
    """
    opened = open_source(Path(source) if isinstance(source, str) else source, options, name, "a list of dicts or texts")
    if isinstance(opened, RowSource):
        return opened
    total, reiterable = _extent(opened)
    rows = RowSource(
        name,
        lambda: table_of(((f"row {number}", value) for number, value in enumerate(opened)), rows),
        total=total,
        reiterable=reiterable,
    )
    return rows


def table_of(values: Iterable[tuple[str, object]], source: RowSource) -> Table:
    """Place and value of objects, the first of which names the columns; a string is an object with `text`."""
    in_memory = source.error is InputError

    def to_rows() -> Iterator[Row]:
        for number, (place, value) in enumerate(values):
            if isinstance(value, str):
                yield Row(place, {"text": value})
            elif isinstance(value, dict | Mapping) and (value or number):
                yield Row(place, value)
            else:
                problem = (
                    'expected an object with columns (a dict), such as {"text": "..."}, or a string, got '
                    f"{kind_of(value)}: {brief(value)}"
                )
                row = Row(place, {"": value}, problem)
                if in_memory or number == 0:
                    raise source.error(f"{source.where(row)}: {problem}")
                yield row

    rows = to_rows()
    first = next(rows, None)
    if first is None:
        return EMPTY
    strings = tuple(str(key) for key, value in first.values.items() if value is None or isinstance(value, str))
    names = tuple(map(str, first.values))
    return Table(names, lambda columns: chain([first], rows), strings if in_memory else None)


def open_source(source: object, options: ReadOptions | None, name: str, wanted: str) -> RowSource | Iterable[object]:
    """Open a Path or a table of another library; any other iterable stays as it is. wanted: for the error message."""
    if isinstance(source, RowSource):
        return source
    if isinstance(source, os.PathLike):
        from munjang.data.files import RowFile

        return RowFile(Path(source), options or ReadOptions())
    libraries = [base.__module__.partition(".")[0] for base in type(source).__mro__]
    library = next((name for name in libraries if name in _LIBRARIES), None)
    if library is not None:
        from munjang.data.tables import open_frame

        return open_frame(source, library, name)
    if isinstance(source, bytes | Mapping) or not isinstance(source, Iterable):
        raise InputError(
            f"{_for(name)}expected {wanted}, another iterable of these, a DataFrame or a Path, got "
            f"{type(source).__name__}: {brief(source)}"
        )
    return source


def _extent(source: Iterable[object] | RowSource) -> tuple[int | None, bool]:
    """Number of items, where it is known; and whether they can be read again, unlike pipes and generators."""
    if isinstance(source, RowSource):
        return source.total, source.reiterable
    return len(source) if isinstance(source, Sized) else None, not isinstance(source, Iterator)


class _Items:
    """A source of rows, or an iterable whose first item decides what it holds."""

    def __init__(self, source: Iterable[object] | RowSource, name: str) -> None:
        self.source = source
        self.name = source.name if isinstance(source, RowSource) else name
        self.total, self.reiterable = _extent(source)

    def _open(self) -> RowSource | Iterator[object]:
        if isinstance(self.source, RowSource):
            return self.source
        items = iter(self.source)
        head = list(islice(items, 1))
        items = chain(head, items)
        return open_rows(items, name=self.name) if head and isinstance(head[0], Mapping) else items


class Texts(_Items):
    """The texts of a source, read in order on each iteration."""

    def __init__(
        self, source: Iterable[object] | RowSource, column: str | int | None, keep: Sequence[str] | None, name: str,
        *, check: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(source, name)
        self._column = column
        self._keep = keep
        self._check = check
        self.column: str | None = None  # known after the first text

    @property
    def values(self) -> Sequence[str] | None:
        """The texts, where they came as a list of nothing but strings."""
        source = self.source
        is_plain = isinstance(source, list | tuple) and set(map(type, source)) <= {str}
        return source if is_plain else None  # type: ignore[return-value]  # checked in one pass above

    def __iter__(self) -> Iterator[str]:
        return (item if isinstance(item, str) else item.text for item in self.items())

    def rows(self) -> Iterator[TextRow]:
        """Yield the texts with the columns to keep."""
        return (TextRow(item, {}) if isinstance(item, str) else item for item in self.items())

    def survey(self) -> int:
        """Read everything once, so that an error shows before any work is done; return the number of texts."""
        return sum(1 for _ in self._read())

    def items(self) -> Iterator[str | TextRow]:
        """Yield a text, or a `TextRow` where the source has columns."""
        if not self._check:
            yield from self._read()
            return
        unusual_texts = UnusualTexts()
        for number, item in enumerate(self._read(), start=1):
            unusual_texts.add(item if isinstance(item, str) else item.text, f"text {number:,}")
            yield item
        if unusual_texts:
            warnings.warn(f"{self.name}: {unusual_texts}", DataWarning, stacklevel=2)

    def _read(self) -> Iterator[str | TextRow]:
        opened = self._open()
        if isinstance(opened, RowSource):
            with opened.errors():
                yield from self._rows_of(opened)
            return
        for position, text in enumerate(opened):
            if isinstance(text, str):
                yield text
            elif isinstance(text, Mapping):
                raise InputError(f"{_for(self.name)}row {position} is a dict, but the rows before it are texts")
            else:
                raise _not_a_string(text, f"{_for(self.name)}text {position}")

    def _rows_of(self, source: RowSource) -> Iterator[TextRow]:
        table = source.open()
        if not table.names:
            return
        if not table.has_names and (self._column is not None or self._keep):
            raise DataError(f"{source.name}: a txt file has no columns, so none can be chosen or kept")
        label = source.name or "rows"
        position = choose_column(table.names, self._column, label, strings=table.strings)
        keys = table.keys
        key = keys[position]
        self.column = table.names[position] if table.has_names else None
        if self._keep is None:
            kept = [name for name in keys if name != key]
        else:
            kept = [keys[named_column(table.names, name, label)] for name in self._keep]
        for row in source.read(table, [key, *kept]):
            values = row.values
            try:
                if self._keep is None and len(values) > len(kept) + 1:
                    extra = ", ".join(repr(name) for name in values if name not in (key, *kept))
                    raise DataError(f"got {extra} too, which the first row does not have")
                text = text_cell(values, key)
                if table.strings is None:  # of a file
                    check_characters(text)
                columns = {name: cell(values, name) for name in kept}
            except DataError as error:
                raise DataError(f"{source.where(row)}: {error}") from None
            yield TextRow(text, columns)


def open_texts(
    source: Source | RowSource,
    *,
    column: str | int | None = None,
    keep: Sequence[str] | None = (),
    options: ReadOptions | None = None,
    name: str = "",
    check: bool = False,
) -> Texts:
    """Open anything that holds texts: an iterable of texts, a Series, or whatever `open_rows` takes, but for a str.

    Args:
        column: of a table, the name or number (from 0) of the text column. By default `text`, or the only column of
            strings; of a file the only column, or one with a usual name.
        keep: columns to hand on beside the text; None for all others.
        options: how to read a file.
        name: what takes the texts, for messages.
        check: warn about texts that look empty, missing or repetitive.

    Raises:
        InputError: `source` holds no texts, or it is not clear which column does.
        DataError: a file cannot be read as texts; the message names the row.
    """
    if isinstance(source, str):
        raise InputError(f"{_for(name)}expected a list of texts, got a single text: [{brief(source)}] is a list of one")
    return Texts(open_source(source, options, name, "a list of texts"), column, keep, name, check=check)


def read_texts(
    source: Source | RowSource,
    *,
    column: str | int | None = None,
    options: ReadOptions | None = None,
    name: str = "",
) -> list[str]:
    """Return the texts of a source as a list; the arguments are those of `open_texts`.

    Example:
        >>> read_texts([{"id": 1, "text": "비가 온다"}])
        ['비가 온다']
    """
    texts = open_texts(source, column=column, options=options, name=name)
    return list(texts if texts.values is None else texts.values)


class Pairs(_Items):
    """The pairs of texts of a source, read in order on each iteration."""

    def __init__(self, source: Iterable[object] | RowSource, columns: Mapping[str, str | int] | None) -> None:
        super().__init__(source, "pairs")
        self._columns = columns or {}
        self.notes: tuple[str, ...] = ()  # which columns were guessed; known after the first pair

    def __iter__(self) -> Iterator[tuple[str, str]]:
        source = self._open()
        if not isinstance(source, RowSource):
            yield from (_checked_pair(pair, position) for position, pair in enumerate(source))
            return
        table = source.open()
        if not table.names:
            raise source.error(f"{source.name}: there is not a single row")
        with source.errors():
            first, second = self._choose(table, source.name or "pairs")
            for row in source.read(table, (first, second)):
                try:
                    pair = text_cell(row.values, first), text_cell(row.values, second)
                except DataError as error:
                    raise DataError(f"{source.where(row)}: {error}") from None
                yield pair

    def _choose(self, table: Table, where: str) -> tuple[str, str]:
        """The keys of the two texts: as named, or by the usual names of each kind of pairs in turn."""
        kinds: tuple[Kind, ...] = ("scored", "pairs", "ranked")
        failures: list[DataError] = []
        for kind in [kind for kind in kinds if set(self._columns) & set(ROLES[kind].texts)][:1] or kinds:
            try:  # the target is not read, so any column will do for it
                chosen = choose_columns(table.names, kind, {**self._columns, ROLES[kind].target or "": 0}, where)
            except DataError as error:
                failures.append(error)
                continue
            self.notes = chosen.note
            first, second = (table.keys[chosen.texts[role]] for role in ROLES[kind].texts)
            return first, second
        if table.strings is not None and not self._columns:
            for keys in (table.keys, table.strings):
                if len(keys) == 2:
                    return keys[0], keys[1]
        raise failures[0]


def open_pairs(
    source: Source | RowSource, *, columns: Mapping[str, str | int] | None = None, options: ReadOptions | None = None
) -> Pairs:
    """Open anything that holds pairs of texts: an iterable of (a, b), or whatever `open_rows` takes, but for a str.

    Args:
        columns: of a table, role -> column: a and b, anchor and positive, or query and document. By default guessed
            from usual names; of data in memory the only two columns (of strings) will do.
        options: how to read a file.
    """
    wanted = "a list of pairs (a, b)"
    if isinstance(source, str):
        raise InputError(f"expected {wanted}, got a single text: {brief(source)}. One pair is [(a, b)]")
    return Pairs(open_source(source, options, "", wanted), columns)


def _checked_pair(pair: object, position: int) -> tuple[str, str]:
    if isinstance(pair, str):
        raise InputError(
            f"pair {position} must be two texts (a, b), got a single text: {brief(pair)}. A cross-encoder reads two "
            "texts together: one pair is [(a, b)]; for vectors of single texts use a bi-encoder"
        )
    texts = pair.tolist() if type(pair).__module__ == "numpy" and hasattr(pair, "tolist") else pair
    if not isinstance(texts, tuple | list) or len(texts) != 2:
        got = len(texts) if isinstance(texts, tuple | list) else type(pair).__name__
        raise InputError(f"pair {position} must be two texts (a, b), got {got}: {brief(pair)}")
    for which, text in zip(("first", "second"), texts, strict=True):
        if not isinstance(text, str):
            raise _not_a_string(text, f"the {which} text of pair {position}")
    return texts[0], texts[1]


def _not_a_string(value: object, where: str) -> InputError:
    return InputError(f"{where} must be a string, got {type(value).__name__}: {brief(value)}. {_MISSING_TEXTS}")


@dataclass
class UnusualTexts:
    """Count of texts that look empty, missing or repetitive, by reason; its string names the first of each."""

    texts: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _first: dict[str, str] = field(default_factory=dict)

    def add(self, text: str, place: str) -> None:
        """Count a text; `place` is where messages say it is."""
        self.texts += 1
        reason = unusual(text)
        if reason is not None:
            self.counts[reason] += 1
            self._first.setdefault(reason, place)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        named = (
            f"{count:,} {reason} ({self._first[reason] if count == 1 else 'first: ' + self._first[reason]})"
            for reason, count in self.counts.most_common()
        )
        return f"{self.counts.total():,} of {self.texts:,} texts are empty, missing or repetitive: {', '.join(named)}"


def unusual(text: str) -> str | None:
    """Return why a text is probably not one, such as "empty"; None for an ordinary text. All of them are legal."""
    content = text.strip()
    if not content:
        return "only white space" if text else "empty"
    if len(content) <= 4 and content.casefold() in _MISSING:
        return repr(content)
    if len(content) >= 20 and _REPEATED.fullmatch(content):
        return "a few characters repeated"
    return None


def cell(values: Mapping[str, object], key: str) -> object:
    """Return the cell of a row; raise `DataError` where the row lacks the column."""
    if key not in values:
        has = ", ".join(map(repr, list(values)[:20])) or "nothing"
        raise DataError(f"there is no {key!r}; it has {has}")
    return values[key]


def text_cell(values: Mapping[str, object], key: str) -> str:
    """Return the text in a cell of a row; raise `DataError` where there is none."""
    text = cell(values, key)
    if not isinstance(text, str):
        raise DataError(f"expected a text in {key!r}, got {kind_of(text)}. {_MISSING_TEXTS}")
    return text


def check_characters(text: str) -> None:
    """Raise `DataError` for half a surrogate pair, which is not a character."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"half a surrogate pair (\\u{ord(text[error.start]):04x}) is not a character") from None


def is_missing(value: object) -> bool:
    """Whether a cell is empty: None, NaN, or the marks of pandas."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def kind_of(value: object) -> str:
    """The JSON name of a value: "null", "a number"."""
    if is_missing(value):
        return "null" if value is None else "a missing value"
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a string" if isinstance(value, str) else type(value).__name__)


def _for(name: str) -> str:
    return f"{name}: " if name else ""
