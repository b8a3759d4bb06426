"""Measured models -> Markdown tables, in English or Korean, for the models page and the cards.

Every figure comes from results.json or from `published.py`, and a row says which. Values are times 100.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.ko_en_0_1.measuring import STS_MEAN, TWO_STAGE
from models.ko_en_0_1.overlap import UNSEEN
from models.ko_en_0_1.published import ENGLISH, SIMILARITY, Published
from models.ko_en_0_1.results import Measured
from models.ko_en_0_1.words import Language, note, word
from munjang.evaluation import Scores
from munjang.recipes.card import plain_cell

Results = Mapping[str, Measured]
SIMILARITY_SETS = ("KorSTS test", "KLUE-STS dev", "STSb test")
_PIPE = re.compile(r"(?<!\\)\|")  # one that `plain_cell` has not dealt with yet
YEARS = tuple(f"STS{year} test" for year in range(12, 17))
# task -> (set, metric; none: the set's main one), in the order of the tables
TASKS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "sts": tuple((name, None) for name in (*SIMILARITY_SETS, *YEARS, STS_MEAN)),
    "bitext": (("Tatoeba en-ko test", None),),
    "retrieval": (
        ("KorQuAD dev", "recall@1"),
        ("KorQuAD dev", "recall@10"),
        ("KorQuAD dev", "mrr@10"),
        ("NFCorpus test", "ndcg@10"),
    ),
    "reranking": (("KorQuAD reranking", None), ("NFCorpus reranking", None)),
    "classification": tuple(
        (f"{name} probe", None)
        for name in ("YNAT", "NSMC", "Banking77 10-shot", "Banking77", "MR", "CR", "SUBJ", "MPQA", "TREC", "SST-2")
    ),
    "clustering": (("YNAT clustering", None), ("Banking77 clustering", None)),
    "paraphrase": (("ParaKQC mining", None), ("Question pair test", None)),
}


@dataclass
class _Notes:
    """Numbered notes below a table; the same note keeps its number."""

    language: Language
    found: list[str] = field(default_factory=list)

    def mark(self, name: str, notes: Sequence[str]) -> str:
        if not notes:
            return ""
        text = "; ".join(note(one, self.language) for one in notes)
        text = f"{name}: {text}" if name else text
        if text not in self.found:
            self.found.append(text)
        return f" [{self.found.index(text) + 1}]"

    def lines(self) -> list[str]:
        return (
            ["", *(f"{number}. {plain_cell(text)}" for number, text in enumerate(self.found, 1))] if self.found else []
        )


def ordered(results: Results) -> list[Measured]:
    """Our models first, then the others, as they were measured."""
    return sorted(results.values(), key=lambda one: (not one.name.startswith("munjang-"), one.is_cross))


def value(scores: Scores, metric: str | None = None) -> str:
    """A score with half its interval: 81.30 ± 1.45."""
    metric = metric or scores.main
    shown = f"{100 * scores.values[metric]:.2f}"
    if metric in scores.intervals:
        low, high = scores.intervals[metric]
        shown += f" ± {50 * (high - low):.2f}"
    return shown


def similarity_table(results: Results, language: Language) -> str:
    """KorSTS, KLUE-STS and STSb: ours and all-MiniLM measured, others as published."""
    return _beside(results, SIMILARITY, SIMILARITY_SETS, language)


def english_table(results: Results, language: Language) -> str:
    """STS12 to STS16, their mean, and STSb, beside the rows of the Sentence-BERT paper."""
    published = [_with_mean(row) for row in ENGLISH]
    return _beside(results, published, (*YEARS, STS_MEAN, "STSb test"), language)


def _with_mean(row: Published) -> Published:
    mean = sum(row.scores[year] for year in YEARS) / len(YEARS)
    return Published(row.name, {**row.scores, STS_MEAN: mean}, row.source, row.kind)


def _beside(results: Results, published: Sequence[Published], sets: Sequence[str], language: Language) -> str:
    head = [word("model", language), *(name.removesuffix(" test") for name in sets), word("figures", language)]
    lines = []
    for model in ordered(results):
        if any(name in model.scores for name in sets):
            cells = [value(model.scores[name]) if name in model.scores else "-" for name in sets]
            lines.append([f"**{model.name}**", *cells, word("measured", language)])
    for row in published:
        cells = [f"{row.scores[name]:.2f}" if name in row.scores else "-" for name in sets]
        lines.append([row.name, *cells, f"{word('published', language)}: {row.source}"])
    return table(head, lines, right=range(1, len(sets) + 1))


def everything_table(results: Results, language: Language, *, tasks: Iterable[str] = tuple(TASKS)) -> str:
    """Sets down, measured models across, task by task; notes below."""
    models, notes = ordered(results), _Notes(language)
    head = [word("set", language), word("metric", language), *(model.name for model in models)]
    lines: list[list[str]] = []
    for task in tasks:
        rows = [(name, metric) for name, metric in TASKS[task] if any(name in model.scores for model in models)]
        if rows:
            lines.append([f"**{word(task, language)}**", "", *("" for _ in models)])
        for name, metric in rows:
            main = metric or next(model.scores[name].main for model in models if name in model.scores)
            lines.append([name, word(main, language), *(_cell(model, name, main, notes) for model in models)])
    if not lines:
        return word("no results", language)
    return "\n".join([table(head, lines, right=range(2, len(head))), *notes.lines()])


def _cell(model: Measured, name: str, metric: str, notes: _Notes) -> str:
    scores = model.scores.get(name)
    if scores is None or metric not in scores.values:
        return "-" + notes.mark("", [model.skipped[name]] if name in model.skipped else [])
    return value(scores, metric) + notes.mark(name, scores.notes)


def two_stage_table(results: Results, language: Language) -> str:
    """What the reranker adds to a bi-encoder's first hits."""
    notes = _Notes(language)
    names = ("set", "metric", "searcher", "found", "before", "after", "gain")
    lines = []
    for name, (_, _, metric) in TWO_STAGE.items():
        for model in ordered(results):
            scores = model.scores.get(name)
            if scores is not None:
                found = f"{100 * scores.values['recall_of_candidates']:.2f}"
                before, after = value(scores, f"{metric}_before"), value(scores, metric)
                title = name.removesuffix(" two-stage")
                cells = [model.name, found, before, after, _gain(scores, metric) + notes.mark(title, scores.notes)]
                lines.append([title, metric, *cells])
    if not lines:
        return word("no results", language)
    head = [word(key, language) for key in names]
    return "\n".join([table(head, lines, right=range(3, 7)), *notes.lines()])


def _gain(scores: Scores, metric: str) -> str:
    shown = f"{100 * scores.values[f'{metric}_gain']:+.2f}"
    bounds = scores.intervals.get(f"{metric}_gain")
    return shown if bounds is None else f"{shown} ({100 * bounds[0]:+.2f} … {100 * bounds[1]:+.2f})"


def overlap_table(model: Measured, language: Language) -> str:
    """Rows of every set that share a text with training text, and the score without them; no set it cannot be given."""
    told: Mapping[str, Mapping[str, Any]] | None = model.about.get("overlap")
    if told is None:
        return word("no training", language)
    overlap = {name: found for name, found in told.items() if name not in model.skipped}
    if not overlap:
        return word("no overlap", language)
    names = ("set", "rows", "shared exactly", "shared", "with", "all rows", "unseen")
    lines = []
    for name, found in overlap.items():
        whole, unseen = model.scores.get(name), model.scores.get(name + UNSEEN)
        by = sorted(found["by"].items(), key=lambda one: -one[1])
        counts = [f"{found[key]:,}" for key in ("rows", "exact", "normalised")]
        sources = ", ".join(f"{train} ({count:,})" for train, count in by)
        lines.append([name, *counts, sources, *("-" if one is None else value(one) for one in (whole, unseen))])
    return table([word(key, language) for key in names], lines, right=(1, 2, 3, 5, 6))


def threshold_table(results: Results, language: Language) -> str:
    """The thresholds that lie with the models, and what was measured where they were calibrated."""
    lines = []
    for model in ordered(results):
        for task, threshold in model.about.get("thresholds", {}).items():
            for place, one in enumerate(threshold["measured"].get("sets", [])):
                facts = ", ".join(f"{key} {100 * one[key]:.2f}" for key in ("f1", "precision", "recall") if key in one)
                name = word(f"{task} threshold", language)
                first = ["", "", ""] if place else [model.name, name, f"{threshold['value']:.3f}"]
                lines.append([*first, f"{one['set']} ({one['rows']:,})", facts])
    if not lines:
        return word("no results", language)
    head = [word(key, language) for key in ("model", "task", "threshold", "calibrated on", "there")]
    return table(head, lines, right=(2,))


def machine_line(results: Results, language: Language) -> str:
    """Where the figures were made, one line for every machine."""
    found: dict[str, list[str]] = {}
    for model in ordered(results):
        machine, versions = model.about.get("machine", {}), model.about.get("versions", {})
        if machine:
            line = f"{machine['device']}, {model.dtype}, torch {machine['torch']}, munjang {versions['munjang']}"
            found.setdefault(f"{line}, {machine['date']}", []).append(model.name)
    lines = [f"- {', '.join(names)}: {line}" for line, names in found.items()]
    return "\n".join([f"{word('machine', language)}:", "", *lines]) if lines else word("no results", language)


def table(head: Sequence[str], lines: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """A Markdown table; the columns numbered in `right` are set to the right."""
    ends = set(right)
    rule = "|".join("---:" if column in ends else "---" for column in range(len(head)))
    rows = ("| " + " | ".join(_PIPE.sub(r"\|", cell).replace("\n", " ") for cell in line) + " |" for line in lines)
    return "\n".join(["| " + " | ".join(head) + " |", f"|{rule}|", *rows])
