"""csv and tsv lines -> records of fields, each with the line number it starts at.

csv is parsed strictly: the standard module's lenient mode lets one unclosed quote swallow the rest of a file in
silence. tsv is by default not quoted at all, because files such as KorSTS hold bare quotation marks that are part of
the text, and a quoting reader joins rows there without a word.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain

from munjang.data.encodings import csv_lines, text_lines
from munjang.errors import DataError

_LARGEST_FIELD = 2**31 - 1  # as much as csv's C long holds on every platform; the default, 131,072, is one long article


def records(texts: Iterable[str], delimiter: str, *, quoting: bool, name: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every record; a record without any field is a blank line."""
    if quoting:
        yield from _quoted(csv_lines(texts), delimiter, name)
        return
    for number, line in enumerate(text_lines(texts), start=1):
        yield number, line.split(delimiter) if line else []


def table(
    found: Iterator[tuple[int, list[str]]], *, header: bool, name: str
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Column names, and the records below them, each checked to have a field for every column.

    Blank lines are skipped where there are several columns, and are empty texts where there is one. Without a header
    the columns are named by their numbers.
    """
    for number, first in found:
        if first:
            names = first if header else [str(position) for position in range(len(first))]
            rest = found if header else chain([(number, first)], found)
            return names, _checked(rest, names, name)
    return [], iter(())


def _checked(found: Iterator[tuple[int, list[str]]], names: list[str], name: str) -> Iterator[tuple[int, list[str]]]:
    width = len(names)
    for number, fields in found:
        if len(fields) == width:
            yield number, fields
        elif not fields:
            if width == 1:
                yield number, [""]
        else:
            raise DataError(
                f"{name}, line {number}: expected {width} fields ({', '.join(names[:10])}), got {len(fields)}."
                " A delimiter or a quotation mark inside a text? Repair the line, or try the other --quoting"
            )


def _quoted(lines: Iterator[str], delimiter: str, name: str) -> Iterator[tuple[int, list[str]]]:
    if csv.field_size_limit() < _LARGEST_FIELD:
        csv.field_size_limit(_LARGEST_FIELD)  # one setting for the process: csv has no other
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{name}, in the record that starts at line {start}: {error}."
                " If its quotation marks are plain text, pass --quoting off"
            ) from None
        yield start, fields
