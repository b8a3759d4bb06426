"""Counts as people write them, and figures as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.planning.sizes import MOST, parse_count, show_bytes, show_count, show_seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("250k", 250_000), ("1.5M", 1_500_000), ("2B", 2 * 10**9), ("1,000,000", 10**6), ("1_000", 1000),
     (" 100M ", 10**8), ("0.001K", 1), ("10T", 10**13), ("1.000000001b", 1_000_000_001)],
)  # fmt: skip
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "M", "ten", "-5", "1.5", "1e6", "nan", "inf", "0", "0K", "11T", "1.0005K", "100만", "1 000", "5 MB", "٣"],
)
def test_nonsense(text: str) -> None:
    with pytest.raises(InputError, match="--rows must be"):
        parse_count(text, "--rows")


@given(st.integers(1, MOST))
def test_every_count_as_digits(value: int) -> None:
    assert parse_count(str(value)) == parse_count(f"{value:,}") == value


@given(st.integers(1, MOST))
def test_shown_counts_are_near(value: int) -> None:
    assert parse_count(show_count(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.00035, "0.35 ms"), (0.9999, "1 s"), (12, "12 s"), (180, "3 min"), (7200, "2 h"), (86_400 * 12, "12 days"),
     (31_557_600 * 3, "3 years")],
)  # fmt: skip
def test_times(seconds: float, told: str) -> None:
    assert show_seconds(seconds) == told


@pytest.mark.parametrize(("size", "told"), [(0, "0 B"), (999, "999 B"), (999_900, "1 MB"), (1.5e12, "1.5 TB")])
def test_bytes(size: float, told: str) -> None:
    assert show_bytes(size) == told
