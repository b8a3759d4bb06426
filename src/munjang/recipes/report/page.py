"""The frame of a report: one HTML file with its style inside, no script, nothing fetched from anywhere.

Every text that comes from data or from the user goes through `escape` here; sections hand over plain texts and never
write markup around them on their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --quiet: #60646c; --paper: #fcfcfd; --card: #ffffff; --rule: #e0e3e8;
  --warn: #8a4b00; --warn-paper: #fff6e5; --good: #0b6e4f;
  --c0: #1f6feb; --c1: #d1495b; --c2: #2a9d8f; --c3: #8e6bbf; --c4: #c77d0a; --c5: #5b6b7b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --quiet: #9ba1a8; --paper: #141618; --card: #1b1e21;
  --rule: #33383e; --warn: #f5c06a; --warn-paper: #2e2413; --good: #5fd0a5;
  --c0: #6ea8ff; --c1: #ff8896; --c2: #5fd0c0; --c3: #c0a0f0; --c4: #f0b04a; --c5: #a8b3be; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, "Segoe UI", "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", sans-serif;
  word-break: keep-all; overflow-wrap: anywhere; }
main { max-width: 880px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 26px; margin: 8px 0 2px; overflow-wrap: anywhere; } h2 { font-size: 18px; margin: 0 0 10px; }
h3 { font-size: 15px; margin: 18px 0 6px; } p { margin: 6px 0; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px;
  margin: 16px 0; }
nav { color: var(--quiet); font-size: 13px; margin: 8px 0; } nav a { margin-right: 12px; }
a { color: var(--c0); text-decoration: none; } a:hover { text-decoration: underline; }
.quiet { color: var(--quiet); }
.warn { color: var(--warn); background: var(--warn-paper); border-radius: 6px; padding: 8px 12px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin-bottom: 12px; }
.tile { flex: 1 1 150px; border: 1px solid var(--rule);
  border-radius: 8px; padding: 8px 12px; }
.tile b { display: block; font-size: 21px; font-weight: 600; overflow-wrap: anywhere; }
.tile span { color: var(--quiet); font-size: 13px; overflow-wrap: anywhere; }
.tile p { margin: 0; font-weight: 600; } .up { color: var(--good); } .down { color: var(--warn); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--quiet); font-weight: 500; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; } td { overflow-wrap: anywhere; } th:not(.right), td:not(.right) { min-width: 8em; }
.right { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--quiet); }
tr:last-child td { border-bottom: 0; } .good { color: var(--good); font-weight: 600; }
code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
svg.chart { width: 100%; height: auto; display: block; } .grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--quiet); stroke-width: 1; } .tick, .name { fill: var(--quiet); font-size: 12px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .faint { stroke-width: 1; opacity: .28; }
.hover { fill: transparent; } .hover:hover { fill: var(--quiet); opacity: .3; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); } .line.c5 { stroke: var(--c5); }
.dot.c0 { fill: var(--c0); } .dot.c1 { fill: var(--c1); } .dot.c2 { fill: var(--c2); }
.dot.c3 { fill: var(--c3); } .dot.c4 { fill: var(--c4); } .dot.c5 { fill: var(--c5); }
.best { stroke: var(--card); stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--quiet); font-size: 13px; }
.legend i { display: inline-block; width: 14px; height: 3px; margin-right: 6px; vertical-align: middle; }
.key.c0 { background: var(--c0); } .key.c1 { background: var(--c1); } .key.c2 { background: var(--c2); }
.key.c3 { background: var(--c3); } .key.c4 { background: var(--c4); } .key.c5 { background: var(--c5); }
@media (max-width: 600px) { main { padding: 16px 10px 48px; } section { padding: 12px; }
  .tick { font-size: 19px; } .name { display: none; } .line { stroke-width: 3; } .tile { flex-basis: 130px; } }
@media print { section { break-inside: avoid; } }
"""


# Control signs, those that turn the direction of a line around, and halves of surrogate pairs.
_UNSEEN = ((0x00, 0x1F), (0x7F, 0x9F), (0x202A, 0x202E), (0x2066, 0x2069), (0xD800, 0xDFFF))


@dataclass(frozen=True)
class Section:
    """A part of a page; `body` is markup that this module's functions made."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        return "".join(sign if sign.isalnum() else "-" for sign in self.title.lower())


@dataclass(frozen=True)
class Tile:
    """A large value with its name below, and what became of it."""

    name: str
    value: str
    change: str = ""
    kind: str = ""  # up, down or quiet: the colour of the change


def page(title: str, subtitle: str, sections: Iterable[Section]) -> str:
    """A whole page."""
    shown = [section for section in sections if section.body]
    links = "".join(f'<a href="#{section.anchor}">{escape(section.title)}</a>' for section in shown)
    parts = "\n".join(
        f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n{section.body}\n</section>'
        for section in shown
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="quiet">{escape(subtitle)}</p>
<nav>{links}</nav>
{parts}
</main>
</body>
</html>
"""


def escape(text: object) -> str:
    """A text that no browser takes for markup; signs that could move others about are shown as what they are."""
    plain = "".join(_shown(sign) for sign in str(text))
    return _escape(plain, quote=True)


def _shown(sign: str) -> str:
    """Control signs and those that turn the direction of a line around become visible."""
    if sign in "\n\t":
        return sign
    return f"\\u{ord(sign):04x}" if any(first <= ord(sign) <= last for first, last in _UNSEEN) else sign


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def folded(title: str, body: str) -> str:
    """Something that opens when it is asked for."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""


def tiles(items: Sequence[Tile]) -> str:
    """Large values with small names below."""
    shown = [
        f"<b>{escape(one.value)}</b>"
        + (f'<p class="{one.kind}">{escape(one.change)}</p>' if one.change else "")
        + f"<span>{escape(one.name)}</span>"
        for one in items
    ]
    return '<div class="tiles">' + "".join(f'<div class="tile">{one}</div>' for one in shown) + "</div>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> str:
    """A table of texts; the columns numbered in `right` are numbers. Nothing where there are no rows."""

    def line(tag: str, cells: Sequence[object]) -> str:
        kinds = [' class="right"' if place in right else "" for place in range(len(header))]
        found = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    lines = [line("td", row) for row in rows]
    if not lines:
        return ""
    head = f"<thead>{line('th', header)}</thead>\n" if any(header) else ""
    body = "\n".join(lines)
    return f'<div class="wide"><table>\n{head}<tbody>\n{body}\n</tbody></table></div>'


def link(target: str, text: str) -> str:
    """A link to a file beside the page."""
    return f'<p><a href="{escape(target)}">{escape(text)}</a></p>'
