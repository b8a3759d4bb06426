"""A map -> a PNG picture, through matplotlib (extra `viz`).

Names with Hangul need a font that has it. One is looked for among the fonts of the system; where there is none, a
warning says so and the names are left out, for a row of empty boxes helps nobody.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from munjang.errors import MissingExtraError, MunjangWarning
from munjang.tasks.map_labels import cells, colours_of, groups, medians, shortened, spread

Array = np.ndarray[Any, Any]

_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
_FAMILIES = (
    "Pretendard",
    "Noto Sans KR",
    "Noto Sans CJK KR",
    "Noto Sans CJK JP",
    "NanumSquare",
    "NanumBarunGothic",
    "NanumGothic",
    "Apple SD Gothic Neo",
    "AppleGothic",
    "Malgun Gothic",
    "UnDotum",
    "Baekmuk Dotum",
)
_THEMES = {"light": ("#ffffff", "#202124", "#ffffffd9"), "dark": ("#16181d", "#e8eaed", "#16181dd9")}
_DPI = 150
_LABEL = 9.0  # points


def draw(
    points: Array,
    labels: Array | None,
    names: Mapping[int, str],
    *,
    title: str = "",
    dark: bool = False,
    size: tuple[float, float] = (10.0, 7.5),
) -> bytes:
    """The bytes of a PNG. points: [n, 2]; labels: int64 [n] or None; size: inches at 150 dots each."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "viz", "a map as PNG") from error
    ground, ink, plate = _THEMES["dark" if dark else "light"]
    families, written = _fonts([title, *names.values()])
    figure = Figure(figsize=size, dpi=_DPI, facecolor=ground)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.92 if title else 0.96), facecolor=ground)
    axes.set_axis_off()
    found = groups(labels, len(points), names)
    palette = colours_of(labels)
    dots = float(np.clip(9000 / max(len(points), 1), 3, 60))
    shade = 0.85 if len(points) < 5_000 else 0.55
    for label, rows, _ in found:
        x, y = points[rows].T
        axes.scatter(
            x, y, s=dots, c=palette[label], alpha=shade if label != -1 else shade / 2, linewidths=0, rasterized=True
        )
    axes.margins(0.08)
    if title and written:
        figure.text(0.03, 0.955, title, color=ink, fontsize=14, fontweight="bold", fontfamily=families, va="center")
    if labels is not None and written:
        _write_names(axes, medians(points, labels, names), names, (ink, plate, families, palette))
    out = io.BytesIO()
    canvas.print_png(out)
    return out.getvalue()


def _write_names(
    axes: Any,
    places: list[tuple[int, float, float]],
    names: Mapping[int, str],
    style: tuple[str, str, list[str], Mapping[int, str]],
) -> None:
    if not places:
        return
    ink, plate, families, palette = style
    shown = [shortened(names[label]) for label, _, _ in places]
    pixels = axes.transData.transform(np.array([(x, y) for _, x, y in places]))  # [n, 2]
    unit = _LABEL * _DPI / 72
    sizes = np.array([(cells(name) * unit * 0.58 + unit, unit * 1.9) for name in shown])
    moved = axes.transData.inverted().transform(_inside(axes, spread(pixels, sizes), sizes))
    for (label, _, _), name, (x, y) in zip(places, shown, moved, strict=True):
        axes.text(
            x,
            y,
            name,
            fontsize=_LABEL,
            color=ink,
            fontfamily=families,
            ha="center",
            va="center",
            parse_math=False,  # a dollar sign is a dollar sign
            bbox={"boxstyle": "round,pad=0.35", "facecolor": plate, "edgecolor": palette[label], "linewidth": 1.2},
            zorder=5,
        )


def _inside(axes: Any, places: Array, sizes: Array) -> Array:
    """No name sticks out of the picture."""
    box = axes.get_window_extent()
    low = np.array([box.x0, box.y0]) + sizes / 2
    high = np.array([box.x1, box.y1]) - sizes / 2
    return np.asarray(np.clip(places, low, np.maximum(low, high)))


def _fonts(words: list[str]) -> tuple[list[str], bool]:
    """Font families for these words, and whether they can be written at all."""
    if not any(_HANGUL.search(word) for word in words):
        return ["DejaVu Sans"], True
    family = hangul_font()
    if family is None:
        warnings.warn(
            "no font with Hangul was found on this system, so the map has no names; install one (for example "
            "fonts-nanum or fonts-noto-cjk) or write the map as HTML",
            MunjangWarning,
            stacklevel=2,
        )
        return ["DejaVu Sans"], False
    return [family, "DejaVu Sans"], True


@cache
def hangul_font() -> str | None:
    """The family of an installed font that has Hangul: a well-known one, else any."""
    from matplotlib import font_manager

    entries = font_manager.fontManager.ttflist
    known = {entry.name for entry in entries}
    for family in _FAMILIES:
        if family in known:
            return family
    return next((str(entry.name) for entry in entries if _has_hangul(entry.fname)), None)


def _has_hangul(path: str) -> bool:
    from matplotlib.ft2font import FT2Font

    try:
        glyphs = FT2Font(path).get_charmap()
    except (RuntimeError, OSError):  # a font that cannot be read is none
        return False
    # A font of last resort, such as matplotlib brings, has one box for all syllables.
    return ord("가") in glyphs and glyphs[ord("가")] != glyphs.get(ord("힣"))
