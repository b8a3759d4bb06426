"""Numbers as people write them: "100M" -> 100,000,000, and back as a few digits with a unit."""

from __future__ import annotations

import re
from decimal import Decimal

from munjang.errors import InputError

_SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_NUMBER = re.compile(r"(\d[\d,_]*(?:\.\d+)?)\s*([KMBT]?)", re.ASCII | re.IGNORECASE)
MOST = 10**13  # rows: more than anybody has; a slip of the finger is more likely


def parse_count(text: str, name: str = "a count") -> int:
    """A whole number with K, M, B or T behind it where it is large: 250k, 1.5M, 1,000,000."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{name} must be a number such as 5000, 250k, 1.5M or 2B, got {text!r}")
    value = Decimal(re.sub("[,_]", "", found[1])) * _SUFFIXES[found[2].upper()]
    if value != value.to_integral_value():
        raise InputError(f"{name} must be a whole number, got {text!r}")
    if not 1 <= value <= MOST:
        raise InputError(f"{name} must be 1 to {show_count(MOST)}, got {text!r}")
    return int(value)


def show_count(value: float) -> str:
    """Three digits and a letter: 100M."""
    return _scaled(value, 1000, ("", "K", "M", "B", "T"))


def show_bytes(value: float) -> str:
    """Three digits and a unit; a kB is 1,000 bytes, as disks are sold and billed."""
    return _scaled(value, 1000, (" B", " kB", " MB", " GB", " TB", " PB"))


def show_seconds(value: float) -> str:
    """A time as people say it: 0.35 ms, 12 s, 3 min, 5.2 h, 12 days."""
    for limit, size, unit in (
        (0.9995, 0.001, "ms"),
        (99.5, 1, "s"),
        (5970, 60, "min"),
        (172_800, 3600, "h"),
        (3.156e7, 86_400, "days"),
    ):
        if value < limit:
            return f"{_digits(value / size)} {unit}"
    return f"{_digits(value / 31_557_600)} years"


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    place = 0
    while value >= 0.9995 * step and place < len(units) - 1:
        value, place = value / step, place + 1
    return _digits(value) + units[place]


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"
