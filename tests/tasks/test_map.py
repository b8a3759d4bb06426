"""Maps: names and colours, one HTML page without requests, PNG with Hangul."""

from __future__ import annotations

import io
import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import DataError, InputError, MunjangWarning
from munjang.tasks import map_png
from munjang.tasks.cluster import cluster
from munjang.tasks.map import Map, text_map
from munjang.tasks.map_html import for_script
from munjang.tasks.map_labels import colours, hover, medians, spread
from serve.browsing import chromium
from support import small_models

TEXTS = [
    "은행이 금리를 올렸다",
    "금리가 오르면 은행 대출이 비싸진다",
    "The bank raised interest rates",
    "축구 경기에서 골을 넣었다",
    "경기장에 축구 팬이 가득했다",
    "A late goal decided the football match",
    "비와 바람이 강해진다",
    "Heavy rain and wind tonight",
]
NASTY = '</script><script>document.title="stolen"</script><!-- <b>bold</b> & "quoted" \u2028 \ud800'


class Page(HTMLParser):
    """The parts of a page: its tags with attributes, the scripts, the words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)


def vectors(count: int = len(TEXTS)) -> np.ndarray:
    generator = np.random.default_rng(0)
    return (
        generator.normal(size=(3, 6))[np.arange(count) * 3 // count] + 0.1 * generator.normal(size=(count, 6))
    ).astype(np.float32)


@pytest.fixture(scope="module")
def plain() -> Map:
    labels = ["금융 & 은행"] * 3 + ["축구"] * 3 + [NASTY, ""]
    return text_map([*TEXTS[:7], NASTY], vectors=vectors(), labels=labels, method="pca")


def test_labels_may_be_words_numbers_or_what_cluster_returns() -> None:
    rows = vectors()
    words = text_map(TEXTS, vectors=rows, labels=["나", "가", "나", "가", "", "가", "가", "나"], method="pca")
    assert words.labels is not None
    assert words.labels.tolist() == [1, 0, 1, 0, -1, 0, 0, 1]
    assert dict(words.names) == {0: "가", 1: "나"}
    found = cluster(rows, k=3)
    grouped = text_map(TEXTS, vectors=rows, labels=found, method="pca")
    assert grouped.labels is not None
    assert grouped.labels.tolist() == found.labels.tolist()
    assert "금리" in grouped.names[int(found.labels[0])]
    chosen = text_map(TEXTS, vectors=rows, labels="clusters", method="pca")
    assert set(chosen.names) == set(np.unique(chosen.labels).tolist())
    assert text_map(rows, labels=np.array([0] * 7 + [-1]), method="pca").names == {}
    assert text_map(rows, method="pca").labels is None


def test_texts_are_encoded_by_the_model() -> None:
    model = small_models.bi_encoder()
    done: list[int] = []
    found = text_map(TEXTS, model, method="pca", progress=lambda count, total: done.append(count))
    expected = text_map(model.encode(TEXTS), method="pca")
    np.testing.assert_allclose(found.points, expected.points, atol=1e-5)
    assert done[-1] == len(TEXTS)
    assert found.points.shape == (len(TEXTS), 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["a"]}, "got 1 labels for 8 rows"),
        ({"labels": ["a"] * 7 + [3]}, "all numbers or all words, got 3 for row 7"),
        ({"labels": "themes"}, "labels must be 'clusters'"),
        ({"vectors": vectors(6)}, "got 6 for 8 rows"),
        ({"method": "mds"}, "method must be one of"),
    ],
)
def test_errors_say_what_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        text_map(TEXTS, **{"vectors": vectors(), "method": "pca", **change})  # type: ignore[arg-type]


def test_nothing_cannot_be_mapped() -> None:
    with pytest.raises(InputError, match="nothing to map"):
        text_map([])
    with pytest.raises(InputError, match="text 1 must be a string"):
        text_map(["a", None])  # type: ignore[list-item]


# --- HTML ------------------------------------------------------------------------------------------------------------


def test_the_page_asks_nobody_for_anything(plain: Map, tmp_path: Path) -> None:
    page = Page(plain.html(tmp_path / "map.html", title="지도 <1>").read_text(encoding="utf-8"))
    assert not [
        (tag, attributes) for tag, attributes in page.tags if {"src", "href", "srcset", "action"} & set(attributes)
    ]
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "img", "object", "embed", "base")]
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'none'" in policy
    assert not re.search(r"https?:|//[a-z]", policy)
    data, plotly, ours = page.scripts
    assert not re.search(r"https?:", data + ours)
    assert len(plotly) > 1_000_000
    assert "지도 <1>" in page.words


def test_texts_cannot_leave_their_script(plain: Map, tmp_path: Path) -> None:
    page = Page(plain.html(tmp_path / "map.html").read_text(encoding="utf-8"))
    assert len(page.scripts) == 3
    data = json.loads(page.scripts[0])
    hovers = [text for trace in data["traces"] for text in trace["text"]]
    assert len(hovers) == len(plain.points)
    shown = next(text for text in hovers if "stolen" in text).replace("<br>", " ")
    assert "<" not in shown
    assert "&lt;/script&gt;&lt;script&gt;" in shown
    assert any(trace["name"] == "금융 &amp; 은행 (3)" for trace in data["traces"])


def test_every_point_is_there_in_its_colour(plain: Map, tmp_path: Path) -> None:
    data = json.loads(Page(plain.html(tmp_path / "map.html").read_text(encoding="utf-8")).scripts[0])
    points = sorted((x, y) for trace in data["traces"] for x, y in zip(trace["x"], trace["y"], strict=True))
    np.testing.assert_allclose(points, sorted(map(tuple, plain.points.tolist())), rtol=1e-3, atol=1e-4)
    assert len({trace["marker"]["color"] for trace in data["traces"]}) == 4
    assert {label["text"] for label in data["labels"]} >= {"금융 &amp; 은행", "축구"}
    assert data["theme"] == "auto"
    assert {trace["type"] for trace in data["traces"]} == {"scatter"}


@given(st.text())
def test_json_in_a_script_reads_back(text: str) -> None:
    written = for_script({"text": text})
    assert not set(written) & set("<>&\u2028\u2029")
    assert json.loads(written)["text"] == text.encode("utf-8", "replace").decode("utf-8")


@given(st.text())
def test_hover_texts_hold_no_mark_up_and_stay_short(text: str) -> None:
    shown = hover(text)
    assert not re.search(r"<(?!br>)", shown)
    assert len(shown) < 200 * 6 + 100


@pytest.mark.browser
def test_a_browser_draws_the_page(plain: Map, tmp_path: Path) -> None:
    path = plain.html(tmp_path / "map.html", title="map")
    with chromium() as browser, browser.new_context(offline=True) as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        page.locator('html[data-ready="yes"]').wait_for(state="attached", timeout=60_000)
        assert page.title() == "map"  # no script of a text has changed it
        assert page.locator(".point").count() == len(plain.points)
        assert page.locator(".annotation").count() == 3
        assert errors == []


# --- PNG -------------------------------------------------------------------------------------------------------------


def pixels(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(io.BytesIO(path.read_bytes())))[:, :, :3]


def test_a_picture_has_points_names_and_ground(plain: Map, tmp_path: Path) -> None:
    safe = Map(plain.points, plain.labels, {0: "finance", 1: "football"}, None, "pca", 0, 0.0)  # any font has them
    light = pixels(safe.png(tmp_path / "light.png", title="map"))
    dark = pixels(safe.png(tmp_path / "dark.png", title="map", dark=True))
    assert light.shape == dark.shape == (1125, 1500, 3)
    assert light[0, 0].tolist() == [1, 1, 1]
    assert dark[0, 0].max() < 0.2
    bare = pixels(Map(plain.points, plain.labels, {}, None, "pca", 0, 0.0).png(tmp_path / "bare.png"))
    blue = np.array([0x4E, 0x79, 0xD7]) / 255
    assert (np.abs(bare * 1.0 - (0.85 * blue + 0.15)).max(axis=2) < 0.02).sum() > 50
    assert (light != bare).any()


def test_hangul_is_drawn_and_not_as_empty_boxes(tmp_path: Path) -> None:
    if map_png.hangul_font() is None:
        pytest.skip("no font with Hangul here")
    points, labels = np.zeros((1, 2), dtype=np.float32), np.zeros(1, dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a missing glyph
        one, other = (
            Map(points, labels, {0: name}, None, "pca", 0, 0.0).png(tmp_path / f"{place}.png").read_bytes()
            for place, name in enumerate(["각", "뵯"])
        )
    assert one != other


def test_a_font_of_last_resort_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib brings one: it has every character, and draws all syllables as the same box."""
    import matplotlib
    from matplotlib import font_manager

    own = [one for one in font_manager.fontManager.ttflist if one.fname.startswith(matplotlib.get_data_path())]
    assert len(own) > 5
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    assert map_png.hangul_font.__wrapped__() is None


def test_without_such_a_font_names_are_left_out_with_a_warning(
    plain: Map, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_png, "hangul_font", lambda: None)
    korean = Map(plain.points, plain.labels, {0: "금융"}, None, "pca", 0, 0.0)
    with pytest.warns(MunjangWarning, match="no font with Hangul"):
        written = korean.png(tmp_path / "map.png").read_bytes()
    assert written == Map(plain.points, plain.labels, {}, None, "pca", 0, 0.0).png(tmp_path / "bare.png").read_bytes()
    english = Map(plain.points, plain.labels, {0: "$bank_$"}, None, "pca", 0, 0.0)
    assert english.png(tmp_path / "english.png").stat().st_size > 0


def test_a_folder_that_is_not_there_is_named(plain: Map, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        plain.html(tmp_path / "no" / "map.html")


# --- labels ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500)), min_size=1, max_size=8),
    st.integers(20, 120),
)
def test_spread_boxes_do_not_cover_each_other(places: list[tuple[float, float]], width: int) -> None:
    sizes = np.tile([float(width), 20.0], (len(places), 1))
    moved = spread(np.array(places), sizes)
    np.testing.assert_array_equal(moved[:, 0], np.array(places)[:, 0])
    for a in range(len(places)):
        for b in range(a):
            apart = np.abs(moved[a] - moved[b])
            assert apart[0] >= width - 1e-6 or apart[1] >= 20 - 1e-6


def test_boxes_that_stand_free_are_not_moved() -> None:
    places = np.array([[0.0, 0.0], [300.0, 0.0], [0.0, 50.0]])
    np.testing.assert_array_equal(spread(places, np.tile([100.0, 20.0], (3, 1))), places)


def test_colours_differ_and_names_stand_at_medians() -> None:
    assert len(set(colours(60))) == 60
    assert colours(0) == []
    points = np.array([[0, 0], [1, 1], [2, 8], [9, 9]], dtype=np.float32)
    assert medians(points, np.array([0, 0, 0, -1]), {0: "a", -1: "none"}) == [(0, 1.0, 1.0)]
