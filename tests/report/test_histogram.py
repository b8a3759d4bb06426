"""Histograms in reports: heights are shares, bars stand side by side, odd series are refused or left out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.report.svg import Bars, histogram_chart

EDGES = [0.0, 0.25, 0.5, 0.75, 1.0]


def rectangles(svg: str) -> list[dict[str, float | str]]:
    """Every bar: its colour, place, size and title."""
    root = ElementTree.fromstring(str(svg).split("</svg>")[0] + "</svg>")
    found = []
    for one in root.iter("rect"):
        sizes: dict[str, float | str] = {name: float(one.attrib[name]) for name in ("x", "y", "width", "height")}
        found.append({**sizes, "class": one.attrib["class"], "title": one.findtext("title") or ""})
    return found


def test_heights_are_shares_of_each_series() -> None:
    chart = histogram_chart(
        [Bars("gold", [1, 1, 0, 2], 0), Bars("silver", [100, 100, 0, 200], 1)], EDGES, x_name="score", y_name="per cent"
    )
    bars = rectangles(chart)
    gold, silver = bars[:3], bars[3:]  # an empty bin has no bar
    assert [bar["height"] for bar in gold] == [bar["height"] for bar in silver]
    assert float(gold[2]["height"]) == pytest.approx(2 * float(gold[0]["height"]), abs=0.2)
    for left, right in zip(gold, silver, strict=True):
        assert float(left["x"]) + float(left["width"]) == pytest.approx(float(right["x"]), abs=0.2)
    assert {bar["class"] for bar in gold} == {"dot c0"}
    assert {bar["class"] for bar in silver} == {"dot c1"}  # the page's colours, which know light and dark
    assert gold[2]["title"] == "gold, 0.75 to 1: 50.0 % (2 rows)"
    assert "silver</span>" in chart


def test_names_are_escaped_and_nothing_is_said() -> None:
    chart = histogram_chart([Bars('<b>"한국어"</b>', [1, 2, 3, 4])], EDGES, x_name="<x>", y_name='"y"')
    assert "<b>" not in chart
    assert "&lt;x&gt;" in chart
    assert len(rectangles(chart)) == 4
    assert "No values" in histogram_chart([Bars("empty", [0, 0, 0, 0])], EDGES, x_name="x", y_name="y")
    with pytest.raises(InputError, match="gold: expected 4 counts between 5 edges, got 2"):
        histogram_chart([Bars("gold", [1, 2])], EDGES, x_name="x", y_name="y")


@given(st.lists(st.lists(st.integers(0, 10**7), min_size=4, max_size=4), min_size=1, max_size=6))
def test_every_bar_stays_inside(counts: list[list[int]]) -> None:
    series = [Bars(f"set {place}", values, place) for place, values in enumerate(counts)]
    chart = histogram_chart(series, EDGES, x_name="x", y_name="y")
    if not np.sum(counts):
        return
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', chart)
    assert box is not None
    bars = rectangles(chart)
    assert len(bars) == sum(count > 0 for values in counts for count in values)
    for bar in bars:
        assert 0 <= float(bar["x"]) <= float(bar["x"]) + float(bar["width"]) <= float(box[1])
        assert 0 <= float(bar["y"]) <= float(bar["y"]) + float(bar["height"]) <= float(box[2])
