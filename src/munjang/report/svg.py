"""SVG charts: lines and histograms with axes, grid and hover titles. Colours come from the page (light and dark).

A chart is one <svg> element without script or external resource. A series of many points is thinned to what the width
can show, keeping the minimum and maximum of every stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from munjang.errors import InputError

Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 82, 14, 12, 40
_MOST = 400  # points of a series that are drawn
_HIGHEST = 1e150
_GAP = 1.0  # between bins
_DOTS = 60  # series up to this long get a dot and a hover title for every point


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    faint: bool = False  # drawn thin and behind the others, such as raw values behind smoothed ones
    colour: int = 0  # which of the page's colours
    marked: float | None = None  # an x to highlight, such as the step of the best score


def line_chart(series: Sequence[Series], *, x_name: str, y_name: str) -> Markup:
    """Draw lines through the finite points; a sentence where there are none."""
    drawn = [_finite(one) for one in series]
    everything = [point for one in drawn for point in one.points]
    if not everything:
        return Markup('<p class="quiet">No values to draw.</p>')
    scale = _Scale.of(everything)
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(y_name)} by {escape(x_name)}">',
        *_grid(scale, x_name, y_name),
        *(_line(one, scale) for one in sorted(drawn, key=lambda one: not one.faint)),
        "</svg>",
    ]
    return Markup("\n".join(parts) + _legend([one for one in drawn if not one.faint]))


@dataclass(frozen=True)
class Bars:
    """One series of a histogram."""

    name: str
    counts: Sequence[float]  # of every bin
    colour: int = 0  # which of the page's colours


def histogram_chart(series: Sequence[Bars], edges: Sequence[float], *, x_name: str, y_name: str) -> Markup:
    """Draw histograms over the same bins, each as per cent of its rows, so that sets of different size compare.

    edges: bounds of the bins, one more than counts. A series without rows is left out; a sentence where all are.
    """
    for one in series:
        if len(one.counts) != len(edges) - 1:
            raise InputError(f"{one.name}: expected {len(edges) - 1} counts between {len(edges)} edges, "
                             f"got {len(one.counts)}")  # fmt: skip
    drawn = [one for one in series if sum(one.counts) > 0]
    if not drawn:
        return Markup('<p class="quiet">No values to draw.</p>')
    highest = max(100 * max(one.counts) / sum(one.counts) for one in drawn)
    scale = _Scale(edges[0], edges[-1], 0.0, 1.05 * highest)
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(y_name)} by {escape(x_name)}">',
        *_grid(scale, x_name, y_name),
        *(_bars(one, edges, scale, place=(number, len(drawn))) for number, one in enumerate(drawn)),
        "</svg>",
    ]
    return Markup("\n".join(parts) + _legend([Series(one.name, (), colour=one.colour) for one in drawn]))


def _bars(series: Bars, edges: Sequence[float], scale: _Scale, *, place: tuple[int, int]) -> str:
    """The bars of one series; place: its number among the series that share a bin, and their count."""
    total = sum(series.counts)
    number_, among = place
    elements = []
    for count, low, high in zip(series.counts, edges, edges[1:], strict=False):
        if count <= 0:
            continue
        share = 100 * count / total
        left, right = scale.x(low) + _GAP, scale.x(high) - _GAP
        width = (right - left) / among
        top = scale.y(share)
        title = f"{series.name}, {number(low)} to {number(high)}: {share:.1f} % ({count:,.0f} rows)"
        elements.append(
            f'<rect class="dot c{series.colour % 6}" x="{left + number_ * width:.1f}" y="{top:.1f}" '
            f'width="{width:.1f}" height="{scale.y(0) - top:.1f}"><title>{escape(title)}</title></rect>'
        )
    return "\n".join(elements)


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """The moving average over `window` values, fewer at the ends."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    half = window // 2
    elements = []
    for place in range(len(values)):
        first, last = max(0, place - half), min(len(values), place + half + 1)
        elements.append((sums[last] - sums[first]) / (last - first))
    return elements


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover low..high: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def number(value: float) -> str:
    """Format a number for an axis or a title."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 0.01 else f"{value:.4g}"


@dataclass(frozen=True)
class _Scale:
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    whole: bool = False  # integers only, such as steps

    @classmethod
    def of(cls, points: Sequence[Point]) -> _Scale:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        low_x, high_x, low_y, high_y = min(xs), max(xs), min(ys), max(ys)
        space = 0.05 * (high_y - low_y) or max(abs(high_y) * 0.05, 1e-12)
        whole = all(float(x).is_integer() for x in xs)
        if high_x == low_x:
            low_x, high_x = low_x - 0.5, high_x + 0.5
        return cls(low_x, high_x, low_y - space, high_y + space, whole)

    def x(self, value: float) -> float:
        return _LEFT + (value - self.low_x) / (self.high_x - self.low_x) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - self.low_y) / (self.high_y - self.low_y) * (_HEIGHT - _TOP - _BOTTOM)


def _grid(scale: _Scale, x_name: str, y_name: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    elements = []
    for value in ticks(scale.low_y, scale.high_y):
        y = scale.y(value)
        elements.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        elements.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>')
    for value in (tick for tick in ticks(scale.low_x, scale.high_x, 8) if float(tick).is_integer() or not scale.whole):
        x = scale.x(value)
        elements.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        elements.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{number(value)}</text>')
    elements.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    elements.append(f'<line class="axis" x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP}" y2="{bottom}"/>')
    middle = (_LEFT + right) / 2
    elements.append(
        f'<text class="name" x="{middle:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_name)}</text>'
    )
    turned = f"rotate(-90 14 {(_TOP + bottom) / 2:.1f})"
    elements.append(
        f'<text class="name" x="14" y="{(_TOP + bottom) / 2:.1f}" text-anchor="middle" transform="{turned}">'
        f"{escape(y_name)}</text>"
    )
    return elements


def _line(series: Series, scale: _Scale) -> str:
    points = _thinned(series.points)
    places = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
    kind = f"line c{series.colour % 6}" + (" faint" if series.faint else "")
    elements = [f'<polyline class="{kind}" points="{places}"/>'] if len(points) > 1 else []
    if not series.faint and len(points) <= _DOTS:
        elements += [_dot(series, scale, point) for point in points]
    elif not series.faint:
        elements += [_hover(series, scale, points)]
        elements += [_dot(series, scale, point) for point in points if point[0] == series.marked]
    return "\n".join(elements)


def _dot(series: Series, scale: _Scale, point: Point) -> str:
    best = point[0] == series.marked
    title = f"{series.name}: {number(point[1])} at {number(point[0])}" + (" (chosen)" if best else "")
    return (
        f'<circle class="dot c{series.colour % 6}{" best" if best else ""}" cx="{scale.x(point[0]):.1f}" '
        f'cy="{scale.y(point[1]):.1f}" r="{6 if best else 3}"><title>{escape(title)}</title></circle>'
    )


def _hover(series: Series, scale: _Scale, points: Sequence[Point]) -> str:
    """Wide invisible dots along a long line, which carry the hover titles."""
    every = max(1, len(points) // _DOTS)
    return "\n".join(
        f'<circle class="hover" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="8">'
        f"<title>{escape(f'{series.name}: {number(y)} at {number(x)}')}</title></circle>"
        for x, y in points[::every]
    )


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    items = "".join(f'<span><i class="key c{one.colour % 6}"></i>{escape(one.name)}</span>' for one in series)
    return f'\n<p class="legend">{items}</p>'


def _finite(series: Series) -> Series:
    """The points that can be drawn: finite, with finite differences."""
    kept = [(x, y) for x, y in series.points if abs(x) < _HIGHEST and abs(y) < _HIGHEST]
    return Series(series.name, kept, series.faint, series.colour, series.marked)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most `_MOST` points: the minimum and maximum of every stretch, in order."""
    if len(points) <= _MOST:
        return list(points)
    size = 2 * len(points) / _MOST
    kept: list[Point] = [points[0]]
    for stretch in range(_MOST // 2):
        part = points[int(stretch * size) : int((stretch + 1) * size)]
        if part:
            extremes = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
            kept += sorted(extremes)
    return [*kept, points[-1]]
