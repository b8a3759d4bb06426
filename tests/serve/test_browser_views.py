"""The other views of the page in a real Chromium: map, clusters, comparison, new documents; languages and looks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from serve.browsing import chromium, eventually, places, tab
from serve.fake_service import FakeService
from support.serving import running

pytestmark = pytest.mark.browser

VIEWS = ("search", "map", "clusters", "compare", "add")

# The contrast of every visible text with what lies behind it (WCAG 2, relative luminance); those under 4.5 (large: 3).
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if ((colour[3] ?? 1) > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const style = getComputedStyle(node);
    const shown = node.checkVisibility({opacityProperty: true}) && !node.closest("svg, .unseen, .toast, :disabled");
    if (!own || !shown) continue;
    const [a, b] = [light(numbers(style.color)), light(behind(node))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const wanted = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < wanted) found.push([node.className || node.tagName, node.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return found;
}"""

# Controls that a screen reader could not name.
NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea, a[href], [role=img]")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.title
    || [...(node.labels ?? [])].some((label) => label.textContent.trim())))
  .map((node) => node.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[FakeService, str]]:
    service = FakeService()
    with running(service.app(), ready=False) as address:
        yield service, address


@pytest.fixture
def service(stage: tuple[FakeService, str]) -> FakeService:
    found, _ = stage
    for name, value in vars(FakeService()).items():
        setattr(found, name, value)
    return found


@pytest.fixture
def page(browser: Browser, stage: tuple[FakeService, str], service: FakeService) -> Iterator[Page]:
    with tab(browser, stage[1]) as found:
        found.goto("/")
        yield found


def ask(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    page.get_by_role("searchbox").press("Enter")


def lasso(page: Page, around: list[list[float]], margin: float = 14) -> None:
    xs, ys = [x for x, _ in around], [y for _, y in around]
    left, right, top, bottom = min(xs) - margin, max(xs) + margin, min(ys) - margin, max(ys) + margin
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 2)):
        page.mouse.move(x, y, steps=6)
    page.mouse.up()


def test_a_lasso_lists_exactly_what_lies_within(page: Page, service: FakeService) -> None:
    page.get_by_role("link", name="Map").click()
    points = places(page)
    chosen = [number for number, one in enumerate(service.documents) if one["metadata"].get("category") == "food"]
    lasso(page, [points[number] for number in chosen])
    listed = page.locator(".map-list")
    expect(listed.get_by_role("heading")).to_have_text(f"{len(chosen)} selected")
    assert listed.locator("li button").all_inner_texts() == [service.documents[number]["text"] for number in chosen]
    listed.locator("li button").first.click()
    expect(page.get_by_role("dialog")).to_contain_text(service.documents[chosen[0]]["text"])
    page.keyboard.press("Escape")
    listed.get_by_role("button", name="Clear").click()
    expect(page.locator(".map-list")).to_have_count(0)
    group = page.locator(".map-groups").get_by_role("button", name="travel")  # the way without a mouse
    group.focus()
    page.keyboard.press("Enter")
    expect(listed.locator("li")).to_have_count(4)


def test_query_and_hits_are_lit_on_the_map(page: Page, service: FakeService) -> None:
    ask(page, "umbrella in the rain")
    expect(page.locator(".hit")).to_have_count(10)
    hits = [hit.get_attribute("data-id") for hit in page.locator(".hit").all()]
    page.get_by_role("link", name="Map").click()
    places(page)
    lit, mark = page.evaluate(
        "document.getElementById('map-plot').data.slice(1).map(({customdata, marker}) => [customdata, marker])"
    )
    assert [service.documents[number]["id"] for number in lit[0]] == hits  # the best first
    assert mark[1]["symbol"] == "star"
    expect(page.locator(".map-list li")).to_have_count(10)
    ask(page, "기차 예매")  # the box works here, too
    expect(page.locator(".map-list li button").first).to_contain_text("기차")
    points = places(page)
    page.mouse.move(*points[0])
    page.mouse.move(points[0][0] + 1, points[0][1])
    expect(page.locator(".bubble")).to_contain_text("김치찌개는 묵은지로")


def test_one_hit_can_be_shown_on_the_map(page: Page, service: FakeService) -> None:
    ask(page, "umbrella")
    page.locator(".hit").nth(2).get_by_role("button", name="On the map").click()
    places(page)
    expect(page.locator(".map-list li")).to_have_count(1)
    page.go_back()
    expect(page.locator(".hit")).to_have_count(10)


def test_the_map_is_waited_for(page: Page, service: FakeService) -> None:
    service.map_polls = 2
    page.get_by_role("link", name="Map").click()
    expect(page.get_by_role("progressbar", name="Building the map")).to_be_visible()
    places(page)
    assert service.map_polls == 0


def test_a_large_map_is_drawn_in_part_with_all_hits(page: Page, service: FakeService) -> None:
    service.documents += [
        {"id": f"many-{number}", "text": f"filler {number}", "metadata": {}} for number in range(9000)
    ]
    service.documents.append({"id": "last", "text": "zebra crossing", "metadata": {}})
    page.reload()
    ask(page, "zebra crossing")
    page.get_by_role("link", name="Map").click()
    expect(page.locator("#map-caption")).to_contain_text(" of 9,024.")
    expect(page.locator(".map-list li").first).to_contain_text("zebra crossing")
    assert page.evaluate("document.getElementById('map-plot').data[0].x.length") <= 6010
    assert page.evaluate("document.getElementById('map-plot').data[1].customdata[0]") == 9023


def test_clusters_with_words_and_members(page: Page, service: FakeService) -> None:
    page.get_by_role("link", name="Clusters").click()
    page.get_by_label("Number of clusters").fill("6")
    page.get_by_role("button", name="Cluster", exact=True).click()
    expect(page.locator(".cluster")).to_have_count(6)
    eventually(
        page, lambda: service.seen[-1] == ("/cluster", {"index": "sample", "method": "kmeans", "limit": 5000, "k": 6})
    )
    card = page.locator(".cluster").first
    expect(card.locator(".words li")).to_have_count(5)
    card.locator("summary").click()
    expect(card.locator(".members li")).to_have_count(5)  # ids with slashes are fetched as they are
    card.get_by_role("button", name="On the map").click()
    expect(page.locator(".map-list li")).to_have_count(5)
    page.get_by_role("link", name="Clusters").click()
    page.get_by_label("Method").select_option("communities")
    expect(page.get_by_label("Number of clusters")).to_be_hidden()
    page.get_by_label("Threshold").fill("0.7")
    page.get_by_role("button", name="Cluster", exact=True).click()
    expect(page.locator(".cluster")).to_have_count(6)
    eventually(
        page,
        lambda: service.seen[-1][1] == {"index": "sample", "method": "communities", "limit": 5000, "threshold": 0.7},
    )


def test_two_texts_and_two_lists_are_compared(page: Page, service: FakeService) -> None:
    page.get_by_role("link", name="Compare").click()
    button = page.locator("#compare-form").get_by_role("button", name="Compare")
    button.click()
    expect(page.get_by_text("Write a text in both boxes.")).to_be_visible()
    page.get_by_role("textbox", name="First").fill("비가 온다\n많이")
    page.get_by_role("textbox", name="Second").fill("비가 온다\n많이")
    button.click()
    expect(page.locator(".big")).to_have_text("1.000")
    eventually(page, lambda: service.seen[-1][1] == {"a": ["비가 온다\n많이"], "b": ["비가 온다\n많이"]})  # with lines
    page.get_by_role("radio", name="Two lists").check(force=True)
    page.get_by_role("textbox", name="First").fill("비가 온다\n\n  빵을 굽는다 \n눈이 온다")
    page.get_by_role("textbox", name="Second").fill("")
    button.click()
    expect(page.locator(".heat .heatmaplayer image")).to_be_attached()
    texts = ["비가 온다", "빵을 굽는다", "눈이 온다"]
    eventually(page, lambda: service.seen[-1][1] == {"a": texts})
    assert page.locator(".heat .ytick").all_text_contents() == texts
    assert page.evaluate("document.querySelector('.heat').data[0].z.map((row) => row.length)") == [3, 3, 3]
    expect(page.locator(".nearest li").first).to_contain_text("비가 온다눈이 온다")  # not a text with itself
    expect(page.locator(".nearest li")).to_have_count(3)


def drop(page: Page, files: dict[str, str]) -> None:
    page.evaluate(
        """(files) => {
          const data = new DataTransfer();
          for (const [name, text] of Object.entries(files)) data.items.add(new File([text], name));
          for (const kind of ["dragover", "drop"])
            document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        files,
    )


def test_a_dropped_file_is_added_with_progress_and_found(page: Page, service: FakeService) -> None:
    service.upload_delay = 0.15
    ask(page, STEW := "얼룩말은 줄무늬가 있다")
    expect(page.locator(".hit")).to_have_count(10)
    rows = [json.dumps({"text": text}) for text in (STEW, "Zebras have stripes", "셋째", "넷째")]
    drop(page, {"new.jsonl": "\n".join(rows)})
    expect(page.locator(".upload progress[value]")).to_be_attached()
    expect(page.locator(".upload .hint")).to_contain_text("of 4 encoded")
    expect(page.locator(".upload")).to_have_attribute("data-state", "done")
    expect(page.locator(".upload .hint")).to_have_text("4 added, 0 replaced, 0 unchanged, in 0.1 s")
    expect(page.get_by_text("27 documents, 27 passages")).to_be_visible()
    page.get_by_role("link", name="Search", exact=True).click()
    ask(page, STEW)
    expect(page.locator(".hit").first).to_contain_text(STEW)


def test_files_that_cannot_be_added_say_why(page: Page, service: FakeService) -> None:
    page.get_by_role("link", name="Add documents").click()
    files = [("broken.csv", b"a,b"), ("picture.png", b"x"), ("fine.txt", "한 줄\nanother".encode())]
    page.locator("#files").set_input_files(
        [{"name": name, "mimeType": "text/plain", "buffer": body} for name, body in files]
    )
    expect(page.locator('.upload[data-state="failed"]')).to_have_count(2)
    expect(page.get_by_role("alert")).to_contain_text("broken.csv, line 3: no column text")
    expect(page.get_by_text("Unsupported file type")).to_be_visible()
    expect(page.locator('.upload[data-state="done"]')).to_contain_text("2 added")
    service.upload_delay = 5
    page.locator("#files").set_input_files([{"name": "slow.txt", "mimeType": "text/plain", "buffer": b"one\ntwo"}])
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("stopped; nothing was added")).to_be_visible()


def test_a_file_that_comes_before_the_index_is_known_waits_for_it(
    browser: Browser, stage: tuple[FakeService, str], service: FakeService
) -> None:
    first: list[Route] = []
    sent: list[str] = []

    def hold(route: Route) -> None:
        if first:
            route.continue_()
        else:
            first.append(route)

    with tab(browser, stage[1]) as page:
        page.route("**/indexes", hold)
        page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
        page.goto("/#add")
        eventually(page, lambda: len(first) > 0)
        file = {"name": "early.txt", "mimeType": "text/plain", "buffer": "한 줄\nanother".encode()}
        page.locator("#files").set_input_files([file])
        first[0].continue_()
        expect(page.locator('.upload[data-state="done"]')).to_contain_text("2 added")
    assert sent == [f"{stage[1]}/documents/{service.names[0]}/file"]


def test_korean_and_english(browser: Browser, stage: tuple[FakeService, str], service: FakeService) -> None:
    with tab(browser, stage[1], locale="ko-KR") as page:
        page.goto("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("무엇을 찾아 드릴까요?")
        assert page.locator("html").get_attribute("lang") == "ko"
        ask(page, "우산")
        expect(page.locator("#live")).to_have_text("문서 10건 · 42 ms")
        page.get_by_role("button", name="영어로 바꾸기").click()
        expect(page.locator(".hit").first.get_by_role("button", name="More like this")).to_be_visible()
        expect(page.locator(".hit")).to_have_count(10)
        page.reload()
        expect(page.get_by_role("link", name="Clusters")).to_be_visible()
        assert page.locator("html").get_attribute("lang") == "en"
    with tab(browser, stage[1], locale="fr-FR") as page:
        page.goto("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("What would you like to find?")


def show_everything(page: Page) -> Iterator[str]:
    """Goes through the views, each with something in it."""
    page.goto("/")
    for view in VIEWS:
        page.locator(f'.tabs [data-view="{view}"]').click()
        if view == "search":
            ask(page, "김치찌개와 빵")
            expect(page.locator(".hit")).to_have_count(10)
        elif view == "map":
            places(page)
        elif view == "clusters":
            page.locator("#cluster-form .main").click()
            expect(page.locator(".cluster")).to_have_count(6)
        elif view == "compare":
            page.locator('input[value="lists"]').check(force=True)
            page.locator("#compare-example").click()
            expect(page.locator(".heat .heatmaplayer image")).to_be_attached()
        else:
            drop(page, {"broken.csv": "a"})
            expect(page.locator(".upload .note")).to_be_visible()
        yield view


def shoot(page: Page, name: str) -> None:
    """Pictures to look at, where MUNJANG_SCREENSHOTS names a folder."""
    if folder := os.environ.get("MUNJANG_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_names(
    browser: Browser, stage: tuple[FakeService, str], service: FakeService, scheme: str
) -> None:
    service.answered = False
    with tab(browser, stage[1], color_scheme=scheme, reduced_motion="reduce") as page:
        for view in show_everything(page):
            assert page.evaluate(CONTRAST) == [], view
            assert page.evaluate(NAMELESS) == [], view
            shoot(page, f"{scheme}-{view}")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 23)"
        assert dark == (scheme == "dark")


def test_the_colours_can_be_chosen_and_are_kept(page: Page) -> None:
    button = page.get_by_role("button", name="Theme: system")
    button.click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 23)"
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 23)"


def test_a_phone_shows_everything_without_scrolling_sideways(
    browser: Browser, stage: tuple[FakeService, str], service: FakeService
) -> None:
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with tab(browser, stage[1], locale="ko-KR", **phone) as page:
        for view in show_everything(page):
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wide) <= 0, view
            shoot(page, f"phone-{view}")
            if view == "search":
                expect(page.get_by_role("group", name="category")).to_be_hidden()
                page.locator(".filter-box summary").click()
                expect(page.get_by_role("group", name="category")).to_be_visible()
                page.get_by_role("button", name="food").click()
                expect(page.locator(".hit")).to_have_count(5)
                page.get_by_role("button", name="지우기").click()
                expect(page.locator(".hit")).to_have_count(10)
