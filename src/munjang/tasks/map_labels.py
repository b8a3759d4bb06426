"""How a map is dressed, whatever draws it: colours of clusters, places of their names, the words shown on hover."""

from __future__ import annotations

import colorsys
import html
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Told apart on white and on near-black, neighbours in the list most of all (after Tableau's and Tol's palettes).
_COLOURS = (
    *("#4e79d7", "#f0883a", "#3fae5a", "#e0525b", "#9a6fd0", "#12a5b8"),
    *("#d46ab0", "#a9862c", "#6f9a2f", "#c2603f", "#5f7a94", "#b98ad6"),
)
NONE = "#9aa0a6"  # texts that belong to no cluster
MOST_LABELS = 40  # names that are written on a map: of the largest clusters


def colours(count: int) -> list[str]:
    """As many colours as there are clusters; beyond the hand-picked ones, hues at the golden angle."""
    more = []
    for number in range(max(0, count - len(_COLOURS))):
        red, green, blue = colorsys.hls_to_rgb(number * 0.61803 % 1, 0.52, 0.5)
        more.append(f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}")
    return [*_COLOURS[:count], *more]


def colours_of(labels: Array | None) -> dict[int, str]:
    """The colour of every label; -2 stands for a map without labels."""
    if labels is None:
        return {-2: _COLOURS[0]}
    found = [int(label) for label in np.unique(labels)]
    clusters = [label for label in found if label >= 0]
    return {**dict.fromkeys(found, NONE), **dict(zip(clusters, colours(len(clusters)), strict=True))}


def medians(points: Array, labels: Array, names: Mapping[int, str]) -> list[tuple[int, float, float]]:
    """(label, x, y) of the largest named clusters: the median of each, a place where its points are."""
    found, counts = np.unique(labels[labels >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_LABELS]
    places = []
    for label in (int(found[row]) for row in order):
        if names.get(label):
            x, y = np.median(points[labels == label], axis=0)
            places.append((label, float(x), float(y)))
    return places


def spread(places: Array, sizes: Array, *, rounds: int = 200) -> Array:
    """Boxes pushed up and down until none covers another, float64 [n, 2]. places: centres; sizes: widths and heights.

    All in one unit (pixels). Boxes that still touch after `rounds` stay so: better near their cluster than anywhere.
    """
    out = np.array(places, dtype=np.float64)
    need = (np.asarray(sizes)[:, None] + np.asarray(sizes)[None]) / 2  # [n, n, 2], least distances of centres
    for _ in range(rounds):
        away = out[:, None] - out[None]  # [n, n, 2]
        overlap = need - np.abs(away)
        touching = (overlap > 0).all(axis=2)
        np.fill_diagonal(touching, False)
        if not touching.any():
            break
        # Equal heights: the earlier one goes down.
        first = np.arange(len(out))[:, None] < np.arange(len(out))[None]
        side = np.where(away[:, :, 1] != 0, np.sign(away[:, :, 1]), np.where(first, -1, 1))
        out[:, 1] += np.where(touching, side * overlap[:, :, 1] / 2 + side * 0.5, 0).sum(axis=1)
    return out


def hover(text: str, *, characters: int = 200, line: int = 52) -> str:
    """A text for a hover box: one paragraph, shortened, broken into lines, with no mark-up left in it."""
    plain = " ".join("".join(" " if unicodedata.category(c)[0] == "C" else c for c in text[: characters * 4]).split())
    if len(plain) > characters or len(text) > characters * 4:
        plain = plain[: characters - 1].rstrip() + "…"
    wide = any(unicodedata.east_asian_width(c) in "WF" for c in plain)
    lines = textwrap.wrap(plain, line * 2 // 3 if wide else line, break_on_hyphens=False) or [""]
    return "<br>".join(html.escape(part, quote=False) for part in lines)


def cells(text: str) -> int:
    """The width of a text in letters; a Korean one counts as nearly two."""
    return sum(18 if unicodedata.east_asian_width(c) in "WF" else 10 for c in text) // 10 + 1


def shortened(name: str, most: int = 30) -> str:
    """A name that fits on a map."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "…"


def groups(labels: Array | None, count: int, names: Mapping[int, str]) -> Sequence[tuple[int, Array, str]]:
    """(label, rows, name) of every cluster, the texts without one first, so that they lie below."""
    if labels is None:
        return [(-2, np.arange(count), "")]
    found = [int(label) for label in np.unique(labels)]
    return [(label, np.flatnonzero(labels == label), names.get(label, "") or _unnamed(label)) for label in found]


def _unnamed(label: int) -> str:
    return "none" if label < 0 else f"{label}"
