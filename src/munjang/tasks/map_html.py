"""A map -> one HTML page that needs nothing else: no network, no server, no other file.

Plotly's JavaScript comes out of the installed Python package (extra `viz`) and lies in the page, 4 to 5 MB. A content
security policy in the page forbids every request, so that texts cannot leave by accident, whatever they hold. Texts are
escaped twice over: as mark-up, because plotly reads some of it, and as JSON within a script.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from munjang.errors import MissingExtraError
from munjang.tasks.map_labels import cells, colours_of, groups, hover, medians, shortened, spread

Array = np.ndarray[Any, Any]

_WEBGL_FROM = 4_000  # points; below it vector graphics look better and need no graphics card
_PIXELS = (1000.0, 700.0)  # of the plot, about: for keeping names apart
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; connect-src 'none'; form-action 'none'; base-uri 'none'"
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%(policy)s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%(title)s</title>
<style>
:root { color-scheme: light dark; --ground: #ffffff; --ink: #202124; --soft: #5f6368; --line: #dadce0; }
:root[data-theme="dark"] { --ground: #16181d; --ink: #e8eaed; --soft: #9aa0a6; --line: #3c4043; }
html, body { margin: 0; height: 100%%; background: var(--ground); color: var(--ink);
  font: 15px/1.4 system-ui, "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", "Noto Sans CJK KR", NanumGothic,
  sans-serif; }
body { display: flex; flex-direction: column; }
header { display: flex; align-items: baseline; gap: 1em; padding: .7em 1.1em .4em; }
h1 { font-size: 1.15em; margin: 0; font-weight: 650; }
header p { margin: 0; color: var(--soft); font-size: .87em; flex: 1; }
button { font: inherit; font-size: .87em; color: var(--ink); background: transparent; border: 1px solid var(--line);
  border-radius: .5em; padding: .2em .8em; cursor: pointer; }
#map { flex: 1; min-height: 0; }
</style>
</head>
<body>
<header><h1>%(title)s</h1><p>%(note)s</p><button id="theme" type="button" aria-pressed="false">◐ Dark</button></header>
<main id="map" role="img" aria-label="%(label)s"></main>
<script id="data" type="application/json">%(data)s</script>
<script>%(plotly)s</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, plot = document.getElementById("map"), button = document.getElementById("theme");
const font = getComputedStyle(document.body).fontFamily;
const themes = {
  light: {ink: "#202124", ground: "#ffffff", plate: "rgba(255,255,255,.82)", box: "#ffffff", line: "#dadce0"},
  dark: {ink: "#e8eaed", ground: "#16181d", plate: "rgba(22,24,29,.82)", box: "#24272e", line: "#3c4043"},
};
function layout(theme) {
  const t = themes[theme], axis = {visible: false, zeroline: false, showgrid: false};
  return {
    margin: {l: 8, r: 8, t: 34, b: 8}, paper_bgcolor: t.ground, plot_bgcolor: t.ground, dragmode: "pan",
    font: {family: font, color: t.ink, size: 13}, hovermode: "closest",
    xaxis: axis, yaxis: {...axis}, showlegend: data.legend,
    legend: {itemsizing: "constant", bgcolor: "rgba(0,0,0,0)", font: {size: 13, color: t.ink}},
    hoverlabel: {bgcolor: t.box, bordercolor: t.line, font: {family: font, color: t.ink, size: 13}, align: "left"},
    annotations: data.labels.map((label) => ({
      x: label.x, y: label.y, yshift: label.shift, text: "<b>" + label.text + "</b>", showarrow: false,
      bgcolor: t.plate, borderpad: 3, bordercolor: label.colour, borderwidth: 1.5,
      font: {size: 13, color: t.ink}, captureevents: false,
    })),
  };
}
function draw(theme) {
  root.dataset.theme = theme;
  button.textContent = theme === "dark" ? "◑ Light" : "◐ Dark";
  button.setAttribute("aria-pressed", String(theme === "dark"));
  return Plotly.react(plot, data.traces, layout(theme), {responsive: true, displaylogo: false, scrollZoom: true,
    showSendToCloud: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"]});
}
const wanted = window.matchMedia("(prefers-color-scheme: dark)");
let theme = data.theme === "auto" ? (wanted.matches ? "dark" : "light") : data.theme;
button.addEventListener("click", () => { theme = theme === "dark" ? "light" : "dark"; draw(theme); });
draw(theme).then(() => { root.dataset.ready = "yes"; });
</script>
</body>
</html>
"""


def page(
    points: Array,
    texts: Sequence[str] | None,
    labels: Array | None,
    names: Mapping[int, str],
    *,
    title: str,
    note: str,
    theme: str = "auto",
) -> bytes:
    """The bytes of the page. points: [n, 2]; labels: int64 [n] or None; theme: auto, light or dark."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError("plotly", "viz", "a map as HTML") from error
    data = {
        "traces": _traces(points, texts, labels, names),
        "labels": [] if labels is None else _labels(points, labels, names),
        "legend": labels is not None,
        "theme": theme,
    }
    clusters = "" if labels is None else f", {len(np.unique(labels[labels >= 0]))} clusters"
    filled = _PAGE % {
        "policy": _POLICY,
        "title": html.escape(title),
        "note": html.escape(note),
        "label": html.escape(f"{title}: {len(points)} texts as points{clusters}"),
        "data": for_script(data),
        "plotly": get_plotlyjs().replace("</script", "<\\/script"),
    }
    return filled.encode("utf-8")


def for_script(data: object) -> str:
    """JSON that cannot end the script it lies in, nor open a comment in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone surrogate, which some scraped texts have, cannot be written as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def _traces(
    points: Array, texts: Sequence[str] | None, labels: Array | None, names: Mapping[int, str]
) -> list[dict[str, object]]:
    found = groups(labels, len(points), names)
    palette = colours_of(labels)
    dot = float(np.clip(1500 / max(len(points), 1) ** 0.75, 4, 11))
    traces: list[dict[str, object]] = []
    for label, rows, name in found:
        shown = html.escape(shortened(name, 40), quote=False)
        trace: dict[str, object] = {
            "type": "scattergl" if len(points) >= _WEBGL_FROM else "scatter",
            "mode": "markers",
            "name": f"{shown} ({len(rows):,})" if labels is not None else "",
            "x": [float(f"{value:.5g}") for value in points[rows, 0]],
            "y": [float(f"{value:.5g}") for value in points[rows, 1]],
            "marker": {
                "size": dot,
                "color": palette[label],
                "opacity": 0.4 if label == -1 else 0.85,
                "line": {"width": 0},
            },
            "hoverinfo": "text",
            "text": [hover(texts[row]) if texts is not None else f"row {row}" for row in rows.tolist()],
        }
        traces.append(trace)
    return traces


def _labels(points: Array, labels: Array, names: Mapping[int, str]) -> list[dict[str, object]]:
    """Names at the medians, and by how many pixels each is moved so that it covers no other."""
    places = medians(points, labels, names)
    if not places:
        return []
    low, high = points.min(axis=0), points.max(axis=0)
    unit = np.array(_PIXELS) / np.maximum(high - low, 1e-9)
    pixels = (np.array([(x, y) for _, x, y in places]) - low) * unit
    shown = [shortened(names[label]) for label, _, _ in places]
    moved = spread(pixels, np.array([(cells(name) * 8.0 + 8, 24.0) for name in shown]))
    shifts = (moved - pixels)[:, 1]
    palette = colours_of(labels)
    return [
        {
            "x": x,
            "y": y,
            "shift": round(float(shift), 1),
            "text": html.escape(name, quote=False),
            "colour": palette[label],
        }
        for (label, x, y), shift, name in zip(places, shifts, shown, strict=True)
    ]
