"""What reading a file of examples found: how many rows, how many of them serve, and why the others do not.

A row that cannot be used is refused, never dropped in silence: every refusal is counted under its reason, and the
first ones are kept with their place so that people can look them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

SHOWN = 20  # refused rows that are kept to be shown
_LONGEST = 100  # characters of a row that are shown


@dataclass(frozen=True)
class Refused:
    """One row that could not be used."""

    place: str  # "sts-train.tsv line 17"
    reason: str  # "score is empty"
    shown: str  # the beginning of the row, for people

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.shown}"


@dataclass(frozen=True)
class Reading:
    """How many rows were seen, how many are used, and why the others are not."""

    source: str = ""
    rows: int = 0
    used: int = 0
    refused: tuple[Refused, ...] = ()  # the first SHOWN of them
    refused_counts: dict[str, int] = field(default_factory=dict)  # reason -> how many, all of them
    notes: tuple[str, ...] = ()  # what had to be guessed, such as the columns

    def plus(self, other: Reading) -> Reading:
        """Both together."""
        return Reading(
            source=", ".join(dict.fromkeys(name for name in (self.source, other.source) if name)),
            rows=self.rows + other.rows,
            used=self.used + other.used,
            refused=(self.refused + other.refused)[:SHOWN],
            refused_counts=dict(Counter(self.refused_counts) + Counter(other.refused_counts)),
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )

    def refusing(self, left_out: dict[str, int], *notes: str) -> Reading:
        """The same reading after a later step refused rows: reason -> how many."""
        counts = Counter(self.refused_counts) + Counter(left_out)
        used = self.used - sum(left_out.values())
        return replace(self, used=used, refused_counts=dict(counts), notes=(*self.notes, *notes))

    def taken(self, used: int, count: int) -> Reading:
        """The same reading after some of its rows were chosen: not refused, but not there."""
        if used == count:
            return self
        return replace(self, used=used, notes=(*self.notes, f"{used:,} of {count:,} taken"))

    def __str__(self) -> str:
        line = f"{self.rows:,} rows, {self.used:,} used"
        total = sum(self.refused_counts.values())
        if total:
            most = sorted(self.refused_counts.items(), key=lambda item: -item[1])
            line += f", {total:,} refused: " + ", ".join(f"{reason} ({count:,})" for reason, count in most)
        return "; ".join([line, *self.notes])


class Refusal(ValueError):
    """A cell or a row cannot be used; its message is the reason. Caught where rows are gathered."""


class Outside(Refusal):
    """A cell is well formed, but outside of the score range or the label map that the caller declared."""

    def __init__(self, reason: str, value: float | str) -> None:
        super().__init__(reason)
        self.value = value


class Counting:
    """Counts refusals while rows are read."""

    def __init__(self, source: str, unit: str) -> None:
        self._source = source
        self._unit = unit
        self._first: list[Refused] = []
        self._counts = Counter[str]()

    def refuse(self, number: int, reason: str, cells: Sequence[object]) -> None:
        self._counts[reason] += 1
        if len(self._first) < SHOWN:
            shown = " | ".join("" if cell is None else str(cell) for cell in cells).replace("\n", " ")
            shown = shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
            self._first.append(Refused(f"{self._source} {self._unit} {number}".lstrip(), reason, shown))

    def reading(self, rows: int, notes: tuple[str, ...] = ()) -> Reading:
        used = rows - sum(self._counts.values())
        return Reading(self._source, rows, used, tuple(self._first), dict(self._counts), notes)


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Names for a message: the first of them, and how many more there are."""
    shown = ", ".join(name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
