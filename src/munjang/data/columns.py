"""Which column of a table holds the texts: the one asked for, the only one, or one with a telling name."""

from __future__ import annotations

from collections.abc import Sequence

from munjang.errors import DataError

TEXT_COLUMNS = ("text", "sentence", "document", "content", "title", "문장", "본문", "내용", "텍스트")


def choose_column(names: Sequence[str], column: str | int | None, where: str) -> int:
    """Position of the text column; a string of digits that is no name counts as a 0-based number."""
    if column is None:
        return _obvious_column(names, where)
    if isinstance(column, str) and column not in names and column.isdecimal():
        column = int(column)
    if isinstance(column, int):
        if not 0 <= column < len(names):
            raise DataError(
                f"{where}: column number must be 0..{len(names) - 1}, got {column}. {_list(names)}",
            )
        return column
    return named_column(names, column, where)


def named_column(names: Sequence[str], name: str, where: str) -> int:
    """Position of the column of that name, which must be there exactly once."""
    found = [position for position, other in enumerate(names) if other == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(
            f"{where}: {len(found)} columns are named {name!r}; pass the number of one: {', '.join(map(str, found))}"
        )
    raise DataError(f"{where}: there is no column {name!r}. {_list(names)}")


def _obvious_column(names: Sequence[str], where: str) -> int:
    if len(names) == 1:
        return 0
    plain = [name.strip().lower() for name in names]
    for wanted in TEXT_COLUMNS:
        if wanted in plain:
            return plain.index(wanted)
    raise DataError(
        f"{where}: cannot tell which column holds the texts. {_list(names)}."
        " Pass the name or the number (from 0) of one (--column)"
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name if len(name) <= 40 else name[:39] + "…") for name in names[:30])
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    return f"Its columns are: {shown}{more}"
