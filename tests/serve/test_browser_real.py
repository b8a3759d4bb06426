"""The page on the whole real service, with tiny models; and that the service without models answers in its shapes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

from munjang.errors import ModelNotFoundError
from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import ServeSettings
from serve.browsing import chromium, tab
from serve.fake_service import FakeService, documents
from support.indexed import bi_encoder, make_index, reranker
from support.serving import running

KEY = "a-key-that-may-read"
WRITER = "a-key-that-may-write"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rows = [{"id": one["id"], "text": one["text"], **one["metadata"]} for one in documents()]
    folder = make_index(tmp_path_factory.mktemp("real") / "sample", rows)
    settings = ServeSettings(indexes={"sample": folder}, keys={KEY: "read", WRITER: "write"})
    rooms = Rooms(settings.limits)
    rooms.add_bi("tiny", bi_encoder())
    rooms.add_reranker("cross", reranker())
    with running(create_app(settings, rooms=rooms)) as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with tab(browser, address) as found:
        found.goto("/")
        give(found, KEY)
        yield found


def give(page: Page, key: str) -> None:
    page.get_by_label("API key", exact=True).fill(key)
    page.get_by_role("button", name="Use it").click()


def ask(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    page.get_by_role("searchbox").press("Enter")


@pytest.mark.browser
def test_search_rerank_filter_and_more_like(page: Page) -> None:
    ask(page, "장마철 우산")
    expect(page.locator(".hit")).to_have_count(10)
    expect(page.locator(".hit mark")).to_have_count(10)
    expect(page.locator(".hit").first.locator(".stage-name")).to_have_text(["semantic", "hybrid", "rerank"])
    expect(page.locator(".time-part.t-rerank")).to_be_visible()
    page.get_by_role("switch", name="Rerank").click()
    expect(page.locator(".s-rerank")).to_have_count(0)
    page.get_by_role("button", name="weather 5").click()
    expect(page.locator(".hit")).to_have_count(5)
    page.get_by_label("date from").fill("2024-01-01")
    page.get_by_label("date from").blur()
    dates = [one["metadata"]["date"] for one in documents() if one["metadata"].get("category") == "weather"]
    expect(page.locator(".hit")).to_have_count(sum(date >= "2024-01-01" for date in dates))
    page.get_by_role("radio", name="Hybrid").check(force=True)
    expect(page.locator(".s-hybrid").first).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".hit")).to_have_count(10)
    page.locator(".hit").first.get_by_role("button", name="More like this").click()
    expect(page.locator(".like")).to_be_visible()
    expect(page.locator(".hit")).to_have_count(10)


@pytest.mark.browser
def test_map_clusters_and_comparison(page: Page) -> None:
    ask(page, "kimchi stew")
    expect(page.locator(".hit")).to_have_count(10)
    page.get_by_role("link", name="Map").click()
    expect(page.locator("#map-plot .scatterlayer path.point").first).to_be_attached(timeout=60_000)
    expect(page.locator(".map-list li")).to_have_count(10)
    assert page.evaluate("document.getElementById('map-plot').data.length") == 3  # all, hits, the query
    page.get_by_role("link", name="Clusters").click()
    page.get_by_label("Number of clusters").fill("4")
    page.get_by_role("button", name="Cluster", exact=True).click()
    expect(page.locator(".cluster")).to_have_count(4)
    page.locator(".cluster").first.locator("summary").click()
    expect(page.locator(".cluster").first.locator(".members li").first).to_be_visible()
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("textbox", name="First").fill("비가 온다")
    page.get_by_role("textbox", name="Second").fill("비가 온다")
    page.locator("#compare-form").get_by_role("button", name="Compare").click()
    expect(page.locator(".big")).to_have_text("1.000")


@pytest.mark.browser
def test_a_reader_is_told_and_a_writer_adds(page: Page) -> None:
    page.get_by_role("link", name="Add documents").click()
    expect(page.get_by_text("Read-only API key").first).to_be_visible()
    file = {
        "name": "zoo.csv",
        "mimeType": "text/csv",
        "buffer": "text,category\n얼룩말 zebra,zoo\n기린 giraffe,zoo\n".encode(),
    }
    page.locator("#files").set_input_files([file])
    expect(page.locator('.upload[data-state="failed"]')).to_contain_text("role write")
    page.evaluate("sessionStorage.clear()")
    page.reload()
    give(page, WRITER)
    page.locator("#files").set_input_files([file])
    expect(page.locator('.upload[data-state="done"]')).to_contain_text("2 added")
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("button", name="zoo 2").click()  # the new category is a filter at once
    ask(page, "zebra")
    expect(page.locator(".hit")).to_have_count(2)
    page.get_by_role("link", name="Add documents").click()
    rows = {"name": "rows.json", "mimeType": "application/json", "buffer": b'[{"text": "quagga", "category": "zoo"}]'}
    page.locator("#files").set_input_files([rows])
    expect(page.locator('.upload[data-state="done"]').first).to_contain_text("1 added")
    bad = {"name": "bad.csv", "mimeType": "text/csv", "buffer": b"text,category\na,b\nc,d,e\n"}
    page.locator("#files").set_input_files([bad])
    expect(page.get_by_role("alert")).to_contain_text("bad.csv, line 3")


def test_the_service_without_models_answers_in_the_same_shapes(address: str) -> None:
    fake = TestClient(FakeService().app())
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as real:
        for path, body in {
            "/search": {"query": "우산", "rerank": True, "k": 3},
            "/indexes/sample/more-like": {"id": "doc/1", "k": 2, "rerank": False},
            "/similarity": {"a": ["a", "b"]},
            "/cluster": {"index": "sample", "method": "kmeans", "k": 3},
            "/indexes/sample/map": None,
            "/indexes/sample/place": {"query": "비"},
            "/documents/sample/doc/3": None,
            "/documents/sample?id=doc/3": None,
            "/info": None,
            "/indexes": None,
        }.items():
            ours = fake.get(path) if body is None else fake.post(path, json=body)
            theirs = real.get(path) if body is None else real.post(path, json=body)
            while theirs.status_code == 202:
                theirs = real.get(path)
            assert ours.status_code == theirs.status_code == 200, (path, ours.text[:300], theirs.text[:300])
            assert not _missing(ours.json(), theirs.json(), path)


def _missing(ours: Any, theirs: Any, path: str) -> list[str]:
    """What the one has and the other has not: names, and kinds of values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if path.endswith(("/metadata", "/timings", "/names")):
            return []
        lost = [f"{path}/{name}" for name in ours if name not in theirs]
        return lost + [
            one for name in ours if name in theirs for one in _missing(ours[name], theirs[name], f"{path}/{name}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        if path.endswith("/fields"):
            ours, theirs = ([one for one in side if one["name"] == "category"] for side in (ours, theirs))
        return _missing(ours[0], theirs[0], f"{path}/0") if ours and theirs else []
    numbers = isinstance(ours, int | float) and isinstance(theirs, int | float)
    same = numbers or type(ours) is type(theirs) or theirs is None or ours is None
    return [] if same else [f"{path}: {type(ours).__name__} here, {type(theirs).__name__} there"]


@pytest.mark.browser
@pytest.mark.skipif(
    not os.environ.get("MUNJANG_SCREENSHOTS"), reason="MUNJANG_SCREENSHOTS names no folder for pictures"
)
def test_pictures_of_the_sample(browser: Browser, tmp_path: Path) -> None:
    """The pictures of the README: the sample, with the bundled models or those of two environment variables."""
    from munjang import demo, load
    from munjang.demo import corpus

    given = os.environ.get("MUNJANG_SCREENSHOTS_MODEL"), os.environ.get("MUNJANG_SCREENSHOTS_RERANKER")
    try:
        model = load(given[0]) if given[0] else load()
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    demo.build_index(tmp_path / "sample", model).close()
    settings = ServeSettings(
        indexes={"sample": tmp_path / "sample"}, rerankers={"reranker": given[1]} if given[1] else {}
    )
    rooms = Rooms(settings.limits)
    rooms.add_bi("munjang-ko-en", model)
    if not given[1]:
        from munjang import load_reranker

        rooms.add_reranker("munjang-rerank-ko-en", load_reranker())
    folder = Path(os.environ["MUNJANG_SCREENSHOTS"])
    queries = {"en": "screen time before bed", "ko": corpus.EXAMPLES[2]}
    with running(create_app(settings, rooms=rooms)) as address:
        for language, query in queries.items():
            options = {"locale": f"{language}-{'US' if language == 'en' else 'KR'}", "device_scale_factor": 2}
            with tab(browser, address, **options) as page:
                page.set_default_timeout(60_000)
                page.goto("/")
                page.locator('input[value="hybrid"]').check(force=True)
                for _ in range(3):  # the first searches of a service are slower
                    ask(page, query)
                    page.wait_for_timeout(2000)
                expect(page.locator(".hit")).to_have_count(10, timeout=60_000)
                page.get_by_role("searchbox").blur()
                _picture(page, folder / f"search-{language}.png")
                page.locator('[data-view="map"]').click()
                expect(page.locator("#map-plot .annotation").first).to_be_visible(timeout=120_000)
                page.wait_for_timeout(500)
                _picture(page, folder / f"map-{language}.png")
                page.locator('[data-view="compare"]').click()
                page.locator('input[value="lists"]').check(force=True)
                page.locator("#compare-example").click()
                expect(page.locator(".heat .heatmaplayer image")).to_be_attached(timeout=60_000)
                page.wait_for_timeout(300)
                _picture(page, folder / f"compare-{language}.png")


def _picture(page: Page, path: Path) -> None:
    """A screenshot in 256 colours, which makes it less than half as large."""
    from PIL import Image

    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(256, kmeans=5, dither=Image.Dither.NONE).save(path, optimize=True)
