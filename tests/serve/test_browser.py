"""The page in a real Chromium, against a service without models: searching, filtering, reading, and going wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from serve.browsing import chromium, eventually, tab
from serve.fake_service import NASTY, FakeService
from support.serving import running

pytestmark = pytest.mark.browser

STEW = "김치찌개 맛있게 끓이는 법"


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


def asked(service: FakeService) -> dict[str, Any]:
    return dict(service.seen[-1][1])


def ids(page: Page) -> list[str | None]:
    return [hit.get_attribute("data-id") for hit in page.locator(".hit").all()]


def test_a_search_shows_passages_scores_and_times(page: Page, service: FakeService) -> None:
    ask(page, STEW)
    first = page.locator(".hit").first
    expect(first.locator("mark")).to_have_text("김치찌개는 묵은지로 끓여야 깊은 맛이 난다.")
    expect(first.locator(".passage")).to_have_text(service.documents[0]["text"])
    expect(first.locator(".stage-name")).to_have_text(["hybrid", "rerank"])
    expect(page.locator(".hit")).to_have_count(10)
    expect(page.locator("#live")).to_have_text("10 documents in 42 ms")
    expect(page.get_by_role("img", name="Time: tokenize 0.4 ms, queue 0.2 ms, encode 6.1 ms")).to_be_visible()
    width = "parseFloat(getComputedStyle(node).width) / parseFloat(getComputedStyle(node.parentNode).width)"
    bars = [bar.evaluate(f"node => {width}") for bar in page.locator(".s-rerank i").all()]
    scores = [float(text) for text in page.locator(".s-rerank .stage-score").all_inner_texts()]
    assert bars == pytest.approx(scores, abs=0.02)  # a probability is shown as it is
    assert asked(service) == {
        "index": "sample", "query": STEW, "k": 10, "mode": "hybrid", "rerank": True,
    }  # fmt: skip
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".hit")).to_have_count(20)


def test_offsets_are_characters_also_after_an_emoji(page: Page, service: FakeService) -> None:
    ask(page, "천천히 걸으세요")
    hit = page.locator('.hit[data-id="doc/9"]')
    expect(hit.locator("mark")).to_contain_text("천천히 걸으세요.")
    found = page.evaluate(
        """async () => {
          const {unitOffsets, shorten} = await import("/page/dom.js");
          const text = "가😀나 👍🏽 끝";
          const [from, to] = unitOffsets(text, 2, 3);
          return [text.slice(from, to), ...unitOffsets("abc", 3, 0, 9), shorten("😀😀😀😀", 3)];
        }"""
    )
    assert found == ["나", 3, 0, 3, "😀😀…"]


def test_reranking_can_be_switched_off_and_tells_how_far_it_moved(page: Page, service: FakeService) -> None:
    ask(page, STEW)
    expect(page.locator(".hit")).to_have_count(10)
    answer = service._answer(STEW, {"k": 10, "rerank": True})
    marks = {0: "–"}
    wanted = [
        marks.get(hit["moved"], f"{'▲' if hit['moved'] > 0 else '▼'}{abs(hit['moved'])}") for hit in answer["hits"]
    ]
    assert page.locator(".moved > [aria-hidden]").all_inner_texts() == wanted
    assert any(mark != "–" for mark in wanted)
    assert ids(page) == [hit["id"] for hit in answer["hits"]]
    page.get_by_role("switch", name="Rerank").click()
    expect(page.locator(".moved")).to_have_count(0)
    expect(page.locator(".s-rerank")).to_have_count(0)
    eventually(page, lambda: asked(service)["rerank"] is False)
    assert ids(page) == [hit["id"] for hit in service._answer(STEW, {"k": 10})["hits"]]
    assert "rerank=0" in page.url


def test_modes_and_a_service_without_reranker(page: Page, service: FakeService) -> None:
    ask(page, "umbrella")
    page.get_by_role("radio", name="Keywords").check(force=True)
    expect(page.locator(".s-keyword").first).to_be_visible()
    eventually(page, lambda: asked(service)["mode"] == "keyword")
    page.get_by_role("radio", name="Hybrid").check(force=True)
    expect(page.locator(".s-hybrid").first).to_be_visible()
    service.rerankers = ()
    page.reload()
    expect(page.get_by_role("switch", name="Rerank")).to_be_disabled()
    expect(page.locator(".s-hybrid").first).to_be_visible()  # the address kept question and mode
    eventually(page, lambda: asked(service)["rerank"] is False)


def test_filters_come_from_the_fields(page: Page, service: FakeService) -> None:
    ask(page, "time")
    page.get_by_role("button", name="weather").click()
    expect(page.locator(".hit")).to_have_count(5)
    eventually(page, lambda: asked(service)["filter"] == {"category": {"in": ["weather"]}})
    page.get_by_role("button", name="ko 12").click()
    expect(page.locator(".hit")).to_have_count(3)
    expect(page.get_by_role("button", name="ko 12")).to_be_focused()  # the keyboard stays where it was
    page.get_by_label("date from").fill("2024-06-01")
    page.get_by_label("date from").blur()
    page.get_by_label("year to").fill("2025")
    page.get_by_label("year to").blur()
    page.get_by_role("group", name="draft").get_by_role("button", name="no").click()
    expect(page.get_by_text("5 on")).to_be_visible()
    eventually(
        page,
        lambda: (
            asked(service)["filter"]
            == {
                "category": {"in": ["weather"]},
                "language": {"in": ["ko"]},
                "date": {">=": "2024-06-01"},
                "year": {"<=": 2025},
                "draft": False,
            }
        ),
    )
    page.go_back()
    expect(page.get_by_text("4 on")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="weather")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".hit")).to_have_count(10)
    eventually(page, lambda: "filter" not in asked(service))


def test_which_controls_a_field_gets(page: Page) -> None:
    def kind(field: dict[str, Any]) -> str | None:
        code = "async (field) => (await import('/page/filters.js')).kindOf(field)"
        found: str | None = page.evaluate(code, {"name": "field", **field})
        return found

    many = [{"value": f"title {number}", "count": 1} for number in range(20)]
    assert kind({"kind": "text", "values": many}) is None  # every document its own value: no category
    assert kind({"kind": "text", "values": [{"value": "a", "count": 9}, {"value": "b", "count": 1}]}) == "chips"
    assert kind({"kind": "text", "values": [{"value": "2024-01-02", "count": 1}]}) == "dates"
    assert kind({"kind": "text", "min": "2024-01-02T10:00:00", "max": "2025-01-02T10:00:00"}) == "dates"
    assert kind({"kind": "text"}) is None
    assert kind({"kind": "number", "min": 0, "max": 1.5}) == "range"
    assert kind({"kind": "number", "min": 3, "max": 3}) is None
    assert kind({"kind": "bool"}) == "truth"


def test_more_like_this_and_back(page: Page, service: FakeService) -> None:
    ask(page, STEW)
    page.locator(".hit").first.get_by_role("button", name="More like this").click()
    expect(page.locator(".like")).to_contain_text("More like: 김치찌개는 묵은지로")
    expect(page.locator(".hit")).to_have_count(10)
    eventually(
        page, lambda: service.seen[-1] == ("/indexes/sample/more-like", {"id": "doc/0", "k": 10, "rerank": True})
    )
    assert "doc/0" not in ids(page)
    page.get_by_role("link", name="Map").click()
    page.get_by_role("link", name="Search", exact=True).click()
    page.reload()
    expect(page.locator(".hit")).to_have_count(10)
    page.get_by_role("button", name="Back to the search").click()
    expect(page.locator(".like")).to_have_count(0)
    eventually(page, lambda: asked(service)["query"] == STEW)


def test_empty_state_suggests_and_says_when_there_is_no_good_answer(page: Page, service: FakeService) -> None:
    expect(page.locator(".example")).to_have_count(3)
    service.answered = False
    page.locator(".example").nth(1).click()
    expect(page.get_by_text("Probably no good answer here", exact=True)).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("how to get a refund")
    expect(page.locator("#live")).to_contain_text("Probably no good answer")
    ask(page, "")
    expect(page.locator(".example")).to_have_count(3)
    page.get_by_role("radio", name="Keywords").check(force=True)
    ask(page, "zzzz")
    expect(page.get_by_text("Nothing found").first).to_be_visible()


def test_suggestions_come_from_the_documents_where_the_service_has_none(page: Page, service: FakeService) -> None:
    service.suggests = False
    page.reload()
    expect(page.locator(".example")).to_have_count(3)
    texts = [one["text"] for one in service.documents]
    for suggestion in page.locator(".example").all_inner_texts():
        assert any(suggestion.removesuffix("…") in text for text in texts)


def test_another_index_and_none_and_an_empty_one(page: Page, service: FakeService) -> None:
    service.names = ("sample", "no words")
    page.reload()
    ask(page, "umbrella")
    expect(page.locator(".hit")).to_have_count(10)
    page.get_by_label("Index").select_option("no words")
    expect(page.get_by_role("radio", name="Keywords")).to_be_disabled()
    expect(page.locator(".hit")).to_have_count(10)
    eventually(page, lambda: asked(service)["index"] == "no words")
    page.reload()
    expect(page.get_by_label("Index")).to_have_value("no words")
    service.documents.clear()
    page.goto("/")
    page.reload()
    expect(page.get_by_text("This index is still empty")).to_be_visible()
    service.names = ()
    page.reload()
    expect(page.get_by_text("No index is loaded")).to_be_visible()
    for view in ("Map", "Clusters", "Add documents"):
        page.get_by_role("link", name=view).click()
        expect(page.locator(".note:visible")).to_contain_text("No index is loaded")


def test_what_is_typed_while_the_page_loads_stays(page: Page, service: FakeService) -> None:
    page.route("**/indexes", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.reload(wait_until="commit")
    page.get_by_role("searchbox").fill("half a quest")
    expect(page.locator(".example")).to_have_count(3)
    expect(page.get_by_role("searchbox")).to_have_value("half a quest")


def test_the_keyboard_is_enough(page: Page) -> None:
    box = page.get_by_role("searchbox")
    page.locator("body").click(position={"x": 5, "y": 400})
    page.keyboard.press("/")
    expect(box).to_be_focused()
    assert box.input_value() == ""  # the key itself is not typed
    page.keyboard.type("rain/umbrella")
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(10)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".hit").nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".hit").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(box).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    assert box.input_value() == ""


def test_texts_cannot_act(page: Page, service: FakeService) -> None:
    ask(page, NASTY)
    hit = page.locator(".hit").first
    expect(hit.locator(".passage")).to_have_text(NASTY)
    assert hit.locator("script, img, b").count() == 0
    hit.get_by_role("button", name="Whole document").click()
    expect(page.get_by_role("dialog").locator(".passage")).to_have_text(NASTY)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Map").click()
    expect(page.locator("#map-plot .annotation").first).to_be_visible()
    assert "<i>odd</i>" in page.locator("#map-plot .annotation").all_text_contents()
    assert page.locator("#map-plot i, #map-side i:not(.dot), #map-side script").count() == 0
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("radio", name="Two lists").check(force=True)
    page.get_by_role("textbox", name="First").fill(f"{NASTY}\nsecond <b>line</b>")
    page.locator("#compare-form").get_by_role("button", name="Compare").click()
    expect(page.locator(".heat .ytick").first).to_contain_text("<script>")
    page.goto(f"/#search?q={NASTY}&filter=[1&index=<b>")
    expect(page.get_by_role("searchbox")).not_to_have_value("")
    assert page.evaluate("window.stolen === undefined")


def test_a_refusal_can_be_tried_again_after_its_time(page: Page, service: FakeService) -> None:
    service.busy = 1
    ask(page, STEW)
    again = page.locator("#search-note").get_by_role("button", name="Try again")
    expect(again).to_be_disabled()
    expect(page.get_by_role("alert")).to_contain_text("Try again in 1 s.")
    expect(again).to_be_enabled()
    again.click()
    expect(page.locator(".hit")).to_have_count(10)


def test_a_key_is_asked_for_and_kept_in_the_tab(page: Page, service: FakeService) -> None:
    expect(page.locator(".example")).to_have_count(3)
    service.key = "secret-key"
    page.reload()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key", exact=True).fill("wrong")
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog.get_by_text("Invalid API key")).to_be_visible()
    dialog.get_by_label("API key", exact=True).fill("secret-key")
    dialog.get_by_role("button", name="Use it").click()
    expect(page.locator(".example")).to_have_count(3)
    page.reload()
    expect(page.locator(".example")).to_have_count(3)
    assert page.evaluate("[sessionStorage.length, JSON.stringify(localStorage).includes('secret')]") == [1, False]
    ask(page, STEW)
    expect(page.locator(".hit")).to_have_count(10)
    code = page.evaluate("import('/page/snippets.js').then(m => [m.curlOf('/search', {}), m.pythonOf('/search', {})])")
    assert all("secret-key" not in one and "MUNJANG_KEY" in one for one in code)


def test_errors_say_what_to_do(page: Page, service: FakeService) -> None:
    ask(page, "boom")
    expect(page.get_by_role("alert")).to_contain_text("See the server log.")
    page.context.set_offline(True)
    ask(page, STEW)
    expect(page.get_by_role("alert")).to_contain_text("Restart it with munjang serve")
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".hit")).to_have_count(10)


def test_copied_commands_give_the_same_answer(page: Page, service: FakeService) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, 'it\'s "rain" $HOME \\ 우산')
    page.get_by_role("button", name="food").click()
    expect(page.locator(".hit")).to_have_count(5)
    wanted = asked(service)
    found = ids(page)
    environment = {"PATH": os.environ["PATH"], "no_proxy": "127.0.0.1", "PYTHONIOENCODING": "utf-8"}
    for name, command in {"Copy as curl": ["sh", "-c"], "Copy as Python": [sys.executable, "-c"]}.items():
        page.get_by_role("button", name=name).click()
        expect(page.locator("#toast")).to_have_text("Copied")
        text = page.evaluate("navigator.clipboard.readText()")
        done = subprocess.run([*command, text], capture_output=True, text=True, timeout=30, env=environment, check=True)
        assert asked(service) == wanted, name
        if name == "Copy as curl":
            assert [hit["id"] for hit in json.loads(done.stdout)["hits"]] == found
        else:
            assert [line.split()[1] for line in done.stdout.splitlines()] == found


def test_where_the_clipboard_is_refused_there_is_a_box(page: Page) -> None:
    ask(page, STEW)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_role("button", name="Copy as curl").click()
    assert "/search" in page.get_by_role("dialog").get_by_role("textbox").input_value()
