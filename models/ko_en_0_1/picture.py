"""Measured models and published rows -> one SVG that compares them.

Above: KorSTS, KLUE-STS and STSb, a panel each, a bar for every model; filled bars are measured and carry their 95 %
interval, hollow ones are published. Below: the measured models on the other tasks. The picture brings its own paper,
light or dark as the reader's system asks, so that it can be read on any page; no script, nothing fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from models.ko_en_0_1.measuring import STS_MEAN
from models.ko_en_0_1.published import SIMILARITY
from models.ko_en_0_1.results import Measured
from models.ko_en_0_1.tables import SIMILARITY_SETS, ordered
from models.ko_en_0_1.words import Language, word
from munjang.errors import InputError
from munjang.evaluation import Scores

_WIDTH = 960
_LEFT = 262  # for names
_GAP = 54  # between panels: room for the figure behind a bar
_ROW, _BAR = 22, 12
_EDGE = 20
_OTHERS: tuple[tuple[str, str | None], ...] = (
    (STS_MEAN, None),
    ("Tatoeba en-ko test", None),
    ("KorQuAD dev", "recall@1"),
    ("KorQuAD dev", "recall@10"),
    ("NFCorpus test", "ndcg@10"),
    ("YNAT probe", None),
    ("NSMC probe", None),
    ("Banking77 10-shot probe", None),
    ("YNAT clustering", None),
    ("ParaKQC mining", None),
    ("Question pair test", None),
)
_STYLE = """
.paper { fill: #ffffff; stroke: #d8dce2; } .ink { fill: #1c2024; } .quiet { fill: #5b626b; }
.grid { stroke: #e4e7ec; } .axis { stroke: #9aa1aa; } .whisker { stroke: #1c2024; stroke-width: 1.2; }
.hollow { fill: none; stroke: #7b848f; stroke-width: 1.2; }
.m0 { fill: #1f6feb; } .m1 { fill: #d1495b; } .m2 { fill: #2a9d8f; } .m3 { fill: #8e6bbf; } .m4 { fill: #c77d0a; }
text { font: 12px system-ui, "Segoe UI", "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", sans-serif; }
.title { font-size: 14px; font-weight: 600; } .small { font-size: 11px; } .ours { font-weight: 600; }
@media (prefers-color-scheme: dark) {
.paper { fill: #15181c; stroke: #363c44; } .ink { fill: #e6e8eb; } .quiet { fill: #a3abb5; }
.grid { stroke: #2a2f36; } .axis { stroke: #6f7781; } .whisker { stroke: #e6e8eb; } .hollow { stroke: #98a1ac; }
.m0 { fill: #6ea8ff; } .m1 { fill: #ff8896; } .m2 { fill: #5fd0c0; } .m3 { fill: #c0a0f0; } .m4 { fill: #f0b04a; } }
"""
_TITLES = {
    "similarity": ("Similarity of sentences: Spearman x 100", "문장 유사도: Spearman x 100"),
    "others": ("Other tasks, x 100", "다른 과제, x 100"),
    "filled": ("filled: measured, with the 95 % interval", "채운 막대: 직접 측정, 95 % 구간"),
    "hollow": ("hollow: published by others", "빈 막대: 다른 이들이 공개한 값"),
}


@dataclass(frozen=True)
class _Bar:
    """One value: measured with an interval, or published."""

    value: float  # x 100
    low: float | None = None
    high: float | None = None
    colour: int | None = None  # None: published


@dataclass(frozen=True)
class _Panel:
    """Where values 0..100 lie. Bars begin at 0: one cut off would make small differences look large."""

    left: float
    width: float

    def x(self, value: float) -> float:
        return self.left + self.width * min(100.0, max(0.0, value)) / 100


def picture(results: Mapping[str, Measured], language: Language = "en") -> str:
    """The whole picture as SVG text."""
    models = ordered(results)
    if not any(_bar(model, name, None, 0) for model in models for name in SIMILARITY_SETS):
        raise InputError("there is nothing to draw: no model was measured on KorSTS, KLUE-STS or STSb")
    above, height = _similarity(models, language, top=_EDGE)
    below, height = _others(models, language, top=height + 18)
    height += _EDGE - 6
    name = escape(_title("similarity", language), quote=True)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
            f'height="{height:.0f}" role="img" aria-label="{name}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1:.0f}" rx="10"/>',
            *above,
            *below,
            "</svg>\n",
        ]
    )


def _similarity(models: Sequence[Measured], language: Language, *, top: float) -> tuple[list[str], float]:
    """Models down, the three sets across."""
    rows: list[tuple[str, bool, list[_Bar | None]]] = []
    for number, model in enumerate(models):
        bars = [_bar(model, name, None, number) for name in SIMILARITY_SETS]
        if any(bars):
            rows.append((model.name, True, bars))
    for row in SIMILARITY:
        known = [_Bar(row.scores[name]) if name in row.scores else None for name in SIMILARITY_SETS]
        rows.append((row.name, False, known))
    panels = _panels(len(SIMILARITY_SETS))
    drawn = [_text(_EDGE, top + 10, _title("similarity", language), "title ink")]
    legend = f"{_title('filled', language)}; {_title('hollow', language)}"
    drawn.append(_text(_EDGE, top + 28, legend, "small quiet"))
    start, end = top + 58, top + 58 + _ROW * len(rows)
    for panel, name in zip(panels, SIMILARITY_SETS, strict=True):
        drawn.append(_text(panel.left, start - 8, name, "ours ink"))
        drawn += _grid(panel, start, end)
    for place, (name, ours, bars) in enumerate(rows):
        y = start + _ROW * place
        drawn.append(_text(_LEFT - 10, y + 15, _short(name), f"{'ours ink' if ours else 'quiet'}", anchor="end"))
        for panel, bar in zip(panels, bars, strict=True):
            drawn += [] if bar is None else _drawn(bar, panel, y + (_ROW - _BAR) / 2, f"{name}: {bar.value:.2f}")
    return drawn, end + 22


def _others(models: Sequence[Measured], language: Language, *, top: float) -> tuple[list[str], float]:
    """Tasks down, one panel, a bar for every measured bi-encoder, in the colour that it has above."""
    rows = []
    shown = [(number, model) for number, model in enumerate(models) if not model.is_cross]
    for name, metric in _OTHERS:
        bars = [(model.name, _bar(model, name, metric, number)) for number, model in shown]
        there = [(who, bar) for who, bar in bars if bar is not None]
        if there:
            main = metric or next(model.scores[name].main for _, model in shown if name in model.scores)
            rows.append((f"{name}, {word(main, language)}", there))
    if not rows:
        return [], top
    panel = _Panel(_LEFT, _WIDTH - _LEFT - _GAP - _EDGE)
    drawn = [_text(_EDGE, top + 10, _title("others", language), "title ink")]
    drawn += _keys(shown, top + 28)
    start = top + 46
    y = start
    for title, there in rows:
        drawn.append(_text(_LEFT - 10, y + 4 + _BAR * len(there) / 2 + 4, _short(title), "ink", anchor="end"))
        for place, (who, bar) in enumerate(there):
            drawn += _drawn(bar, panel, y + 4 + _BAR * place, f"{who}, {title}: {bar.value:.2f}", size=_BAR - 2)
        y += _BAR * len(there) + 10
    return [*drawn[:1], *_grid(panel, start, y), *drawn[1:]], y + 22


def _keys(shown: Sequence[tuple[int, Measured]], y: float) -> list[str]:
    drawn, x = [], float(_EDGE)
    for number, model in shown:
        drawn.append(f'<rect class="m{number % 5}" x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" rx="2"/>')
        drawn.append(_text(x + 15, y, model.name, "ink"))
        x += 15 + 7.2 * len(model.name) + 22
    return drawn


def _panels(count: int) -> list[_Panel]:
    room = (_WIDTH - _LEFT - _EDGE - count * _GAP) / count
    return [_Panel(_LEFT + place * (room + _GAP), room) for place in range(count)]


def _grid(panel: _Panel, start: float, end: float) -> list[str]:
    step = 10 if panel.width > 400 else 25
    found = []
    for value in range(0, 101, step):
        x = panel.x(value)
        found.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{start:.1f}" y2="{end:.1f}"/>')
        found.append(_text(x, end + 14, str(value), "small quiet", anchor="middle"))
    found.append(f'<line class="axis" x1="{panel.left:.1f}" x2="{panel.left:.1f}" y1="{start:.1f}" y2="{end:.1f}"/>')
    return found


def _drawn(bar: _Bar, panel: _Panel, y: float, title: str, *, size: float = _BAR) -> list[str]:
    kind = "hollow" if bar.colour is None else f"m{bar.colour % 5}"
    end = panel.x(bar.value)
    found = [
        f'<rect class="{kind}" x="{panel.left:.1f}" y="{y:.1f}" width="{max(1.0, end - panel.left):.1f}" '
        f'height="{size:.1f}" rx="2"><title>{escape(title)}</title></rect>'
    ]
    edge, middle = end, y + size / 2
    if bar.low is not None and bar.high is not None:
        left, edge = panel.x(bar.low), max(end, panel.x(bar.high))
        found.append(f'<path class="whisker" d="M{left:.1f} {middle:.1f}H{edge:.1f}"/>')
    found.append(_text(edge + 5, middle + 4, f"{bar.value:.1f}", "small ink"))
    return found


def _bar(model: Measured, name: str, metric: str | None, number: int) -> _Bar | None:
    scores: Scores | None = model.scores.get(name)
    metric = metric or (scores.main if scores is not None else "")
    if scores is None or metric not in scores.values:
        return None
    bounds = scores.intervals.get(metric)
    low, high = (None, None) if bounds is None else (100 * bounds[0], 100 * bounds[1])
    return _Bar(100 * scores.values[metric], low, high, colour=number)


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(name: str) -> str:
    return name if len(name) <= 38 else name[:37] + "…"


def _title(key: str, language: Language) -> str:
    return _TITLES[key][0 if language == "en" else 1]
