"""HTML reports: one file with inline style, no script and no external resource.

Text from data or users reaches the page through jinja2 with autoescape: components return `Markup`, and a plain string
inside a page or a component is escaped. Control and bidirectional characters are made visible.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

# C0 and C1 controls, bidirectional overrides and isolates, unpaired surrogates.
_INVISIBLE = ((0x00, 0x1F), (0x7F, 0x9F), (0x202A, 0x202E), (0x2066, 0x2069), (0xD800, 0xDFFF))


@dataclass(frozen=True)
class Section:
    """A titled part of a page."""

    title: str
    body: str  # Markup; a plain string is escaped

    @property
    def anchor(self) -> str:
        return "".join(character if character.isalnum() else "-" for character in self.title.lower())


@dataclass(frozen=True)
class Tile:
    """A large value with its name below, and how it changed."""

    name: str
    value: str
    change: str = ""
    kind: str = ""  # CSS class of the change: up, down or quiet


def page(title: str, subtitle: str, sections: Iterable[Section]) -> str:
    """Render a whole page; sections without a body are left out."""
    template = _environment().get_template("page.html")
    return template.render(title=title, subtitle=subtitle, sections=[part for part in sections if part.body])


def paragraph(text: str, kind: str = "") -> Markup:
    """A paragraph; `kind` is its CSS class: quiet, warn, good."""
    return _render('<p{% if kind %} class="{{ kind }}"{% endif %}>{{ text }}</p>', text=text, kind=kind)


def heading(text: str) -> Markup:
    """A heading inside a section."""
    return _render("<h3>{{ text }}</h3>", text=text)


def folded(title: str, body: str) -> Markup:
    """A body that opens on click; empty where the body is."""
    if not body:
        return Markup()
    return _render("<details><summary>{{ title }}</summary>{{ body }}</details>", title=title, body=body)


def link(target: str, text: str) -> Markup:
    """A link to a file beside the page."""
    return _render('<p><a href="{{ target }}">{{ text }}</a></p>', target=target, text=text)


def tiles(items: Sequence[Tile]) -> Markup:
    """Large values in a row."""
    return _render(
        """<div class="tiles">{% for tile in items %}<div class="tile"><b>{{ tile.value }}</b>
{%- if tile.change %}<p class="{{ tile.kind }}">{{ tile.change }}</p>{% endif -%}
<span>{{ tile.name }}</span></div>{% endfor %}</div>""",
        items=items,
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> Markup:
    """A table of texts; the columns numbered in `right` are numbers. Empty where there are no rows."""
    lines = list(rows)
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"expected {len(header)} cells, got {len(line)}: {line!r:.100}")
    if not lines:
        return Markup()
    return _render(
        """{% macro line(tag, cells) -%}
<tr>{% for cell in cells -%}
<{{ tag }}{% if loop.index0 in right %} class="right"{% endif %}>{{ cell }}</{{ tag }}>
{%- endfor %}</tr>
{%- endmacro -%}
<div class="wide"><table>
{% if header | select | list %}<thead>{{ line("th", header) }}</thead>
{% endif %}<tbody>
{% for row in rows %}{{ line("td", row) }}
{% endfor %}</tbody></table></div>""",
        header=header,
        rows=lines,
        right=right,
    )


def visible(value: object) -> object:
    """Show control and bidirectional characters as escapes, so that text cannot move or hide other text."""
    if isinstance(value, Markup):
        return value
    return "".join(
        f"\\u{ord(character):04x}"
        if character not in "\n\t" and any(first <= ord(character) <= last for first, last in _INVISIBLE)
        else character
        for character in str(value)
    )


def _render(source: str, **values: Any) -> Markup:
    return Markup(_template(source).render(values))


@functools.cache
def _template(source: str) -> Any:
    return _environment().from_string(source)


@functools.cache
def _environment() -> Environment:
    return Environment(autoescape=True, finalize=visible, loader=PackageLoader("munjang.report", "."))
