"""The report: charts, escaping, one file that asks for nothing, and all that it must show."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape as escape_markup

from munjang import recipes
from munjang.bi_encoder import BiEncoder
from munjang.data import Examples, Reading, Refused
from munjang.recipes import RecipeOptions
from munjang.recipes.report import write_report
from munjang.report.html import table, visible
from munjang.report.svg import Series, line_chart, smoothed, ticks
from recipes.material import nli, scored

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
EVIL = '<script>alert("x")</script><img src=http://evil.example/a.png onerror=1>'
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "nav", "a", "section", "div"),
    *("span", "b", "i", "table", "thead", "tbody", "tr", "th", "td", "svg", "line", "text", "polyline", "circle"),
    *("details", "summary"),
}


def escape(text: str) -> str:
    return str(escape_markup(visible(text)))


class Seen(HTMLParser):
    """Every tag and attribute of a page, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "line", "polyline"):
            self.open.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another"


def check_page(page: str) -> Seen:
    """Nothing but known tags, all closed; no script, no request to anywhere."""
    seen = Seen(page)
    assert not seen.open
    assert set(seen.tags) <= ALLOWED, set(seen.tags) - ALLOWED
    for name, value in seen.attributes:
        assert not name.startswith("on"), name
        assert name not in ("src", "srcset", "style"), name
        if name == "href":
            assert value.startswith("#") or re.fullmatch(r"[\w.-]+/report\.html", value), value
    assert "http://" not in page.replace(escape(EVIL), "")
    assert "https://" not in page
    assert "@import" not in page
    assert "url(" not in page
    return seen


@pytest.fixture
def run(load: Callable[[], BiEncoder], tmp_path: Path) -> Path:
    """A finished run with everything in it: refusals, leakage, an evil text, cut texts."""
    train, dev, test = scored("our train"), scored("our dev", 8, 50), scored("our test", 8, 90)
    reading = Reading(
        "train.tsv", 26, 24, (Refused("train.tsv line 9", "score is empty", EVIL),), {"score is empty": 2}
    )
    texts = {"a": [EVIL, train.columns["a"][0], *test.columns["a"][2:]], "b": test.columns["b"]}
    chosen = RecipeOptions(folder=tmp_path / "run", changes={"epochs": 6, "batch_size": 8}, max_length=10)
    recipes.sts(
        load(), replace(train, reading=reading), dev, replace(test, columns=texts, name=f"our {EVIL}"), options=chosen
    )
    return tmp_path / "run"


def test_the_report_has_everything_and_asks_for_nothing(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    seen = check_page(page)
    assert seen.tags.count("svg") == 3, "loss, learning rate, development metric"
    for title in ("Summary", "Scores", "Curves", "Leakage", "Largest errors", "Data", "Timing", "Settings"):
        assert f"<h2>{title}</h2>" in page
    for text in (
        "development: chose the model",
        "test: reports",
        "95 % interval",
        "Share a sentence",
        "score is empty",
        "train.tsv line 9",
        "longer than 10 tokens and were cut",
        "Tokens a second",
        "learning_rate",
        "torch",
        "(chosen)",
    ):
        assert text in page, text


def test_no_text_becomes_markup(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<img" not in page
    assert page.count(escape(EVIL)) >= 3, "in the name, among refused rows, among mistakes or leakage"
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert "<script" not in card
    assert "<img" not in card


def test_the_report_is_made_again_from_the_folder_alone(run: Path) -> None:
    before = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    write_report(run)
    assert (run / "report.html").read_bytes() == before


def test_the_card_says_what_was_measured_and_how_to_load_it(run: Path) -> None:
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    record = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    assert f"{100 * record['test'][0]['values']['spearman']:.2f}" in card
    for text in (
        'munjang.load("run/model")',
        "SentenceTransformer(",
        "our train",
        "CosineMse",
        "Licence",
        "fill it in",
    ):
        assert text in card, text
    assert "stand in the training data" in card


def test_a_labelled_run_shows_its_mistakes_by_name(load: Callable[[], BiEncoder], tmp_path: Path) -> None:
    chosen = RecipeOptions(folder=tmp_path / "run", changes={"max_steps": 2})
    recipes.nli(load(), nli("n", 6), nli("d", 6, 50), options=chosen)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    check_page(page)
    record = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    assert {row["gold"] for row in record["mistakes"]["rows"]} <= {"entailment", "neutral", "contradiction"}
    assert "neutral" in page


def test_a_run_without_evaluation_says_so(load: Callable[[], BiEncoder], tmp_path: Path) -> None:
    recipes.sts(load(), scored("s"), options=RecipeOptions(folder=tmp_path, changes={"max_steps": 2}))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    check_page(page)
    assert "Nothing was measured" in page
    assert "no evaluation set to compare" in page


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(allow_nan=True, allow_infinity=True)), max_size=900))
def test_any_numbers_make_a_chart_that_parses(points: list[tuple[float, float]]) -> None:
    drawn = line_chart([Series("a < b", points), Series("c", points, faint=True)], x_name="x & y", y_name="<z>")
    if all(not abs(y) < 1e150 for _, y in points):
        assert "No values" in drawn
        return
    svg = ElementTree.fromstring(drawn.split('\n<p class="legend"')[0])
    for line in svg.iter("polyline"):
        places = [float(part) for pair in line.attrib["points"].split() for part in pair.split(",")]
        assert all(math.isfinite(place) and -1 <= place <= 721 for place in places)
    assert len(drawn) < 200_000


def test_long_series_are_thinned_but_keep_their_extremes() -> None:
    values = np.sin(np.arange(20_000) / 500) + np.random.default_rng(0).normal(0, 0.05, 20_000)
    values[7_777] = 9.0
    drawn = line_chart([Series("s", list(enumerate(values.tolist())))], x_name="x", y_name="y")
    (line,) = ElementTree.fromstring(drawn).iter("polyline")
    heights = [float(pair.split(",")[1]) for pair in line.attrib["points"].split()]
    assert len(heights) <= 402
    assert min(heights) == pytest.approx(12 + 0.05 / 1.1 * 208, abs=1), "the peak is drawn"


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    high = low + span
    found = ticks(low, high)
    step = 10 ** math.floor(math.log10(span / 5))
    assert len(found) <= 7
    assert all(low - 1e-6 * span - 1e-9 <= tick <= high + 1e-6 * span + 1e-9 for tick in found) or high == low
    if len(found) > 1 and span > abs(low) * 1e-6:
        assert (found[1] - found[0]) / step == pytest.approx(round((found[1] - found[0]) / step), rel=1e-3)


@given(st.lists(st.floats(-100, 100), max_size=60), st.integers(1, 9))
def test_smoothing_is_the_mean_around(values: list[float], window: int) -> None:
    half = window // 2
    wanted = [float(np.mean(values[max(0, i - half) : i + half + 1])) for i in range(len(values))]
    assert smoothed(values, window) == pytest.approx(wanted, abs=1e-9)


@given(st.text())
def test_escaped_text_is_text(text: str) -> None:
    parsed = Seen(table(("head",), [(text,)]))
    assert parsed.tags == ["div", "table", "thead", "tr", "th", "tbody", "tr", "td"]
    assert not any(ord(sign) < 32 and sign not in "\n\t" for sign in escape(text))
    assert "\u202e" not in escape(text)


def test_other_kinds_of_data_make_reports(load: Callable[[], BiEncoder], tmp_path: Path) -> None:
    pairs = Examples("p", "pairs", {"anchor": ["a man", "a woman"], "positive": ["at home", "in Seoul"]})
    dev = Examples("d", "pairs", {"anchor": ["my friend", "the child"], "positive": ["집에서", "서울에서"]})
    recipes.contrastive(load(), pairs, dev, options=RecipeOptions(folder=tmp_path, changes={"max_steps": 1}))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    check_page(page)
    assert "Largest errors" not in page


def test_between_two_steps_there_is_no_tick() -> None:
    drawn = line_chart([Series("s", [(1, 0.5), (2, 0.25), (3, 0.75)])], x_name="step", y_name="loss")
    svg = ElementTree.fromstring(drawn.split('\n<p class="legend"')[0])
    shown = [text.text for text in svg.iter("text")]
    assert {"1", "2", "3"} <= set(shown)
    assert "1.5" not in shown
    assert "1.5" in line_chart([Series("s", [(1, 0.5), (1.75, 0.25)])], x_name="x", y_name="loss")
