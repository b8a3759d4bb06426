"""The page in a real Chromium with hostile texts: no script of theirs runs, and every id and file name works."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import HTTPException, Request
from playwright.sync_api import Browser, Page, expect

from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import ServeSettings
from serve.browsing import chromium, places, tab
from serve.fake_service import FakeService
from support.indexed import bi_encoder, make_index, reranker
from support.serving import running

pytestmark = pytest.mark.browser

IDS = [
    "..", ".", "a/b", "/lead", "a//b", "a/../b", "./x", "//", "file", "%2F", "%2e%2e", "%", "a?b=c&d", "#c", "+", "\\",
    "..\\x", " spaced ", "q\"'<", "line\nbreak", "\ttab", "http://x/", unicodedata.normalize("NFD", "한국어"), "😀",
    "x" * 1000, "😀" * 1000,
]  # fmt: skip
FILES = [
    ".csv", "..csv", "...csv", "#?.csv", "%2F.csv", "a;b=c.csv", 'q"uote.csv', "it's.csv", "back\\slash.csv",
    "line\nbreak.csv", " spaced .csv", "CSV.CSV", "a:b|c.md", "가" * 80 + ".csv", "😀" * 60 + ".csv",
    unicodedata.normalize("NFD", "한국어 문서") + ".md",
]  # fmt: skip

# What each payload would run is `xss()`, which the tests listen for.
PAYLOADS = [
    "<a href='javascript:xss()'>link</a>",
    "&lt;i&gt;&lt;img src=x onerror=xss()&gt; &#60;script&#62;xss()&#60;/script&#62; &amp;lt;b&amp;gt;",
    "<script>xss()</script>",
    "<SCRIPT/x>xss()</SCRIPT>",
    "<scr<script>ipt>xss()</scr</script>ipt>",
    "</script><script>xss()</script>",
    "</title><script>xss()</script>",
    "</textarea><script>xss()</script>",
    "</option></select><img src=x onerror=xss()>",
    "</style><svg onload=xss()>",
    "<!--><img src=x onerror=xss()>-->",
    "<![CDATA[<img src=x onerror=xss()>]]>",
    "<img src=x onerror=xss()>",
    "<img src=x onerror='xss()'//",
    "<IMG SRC=x OnErRoR=xss&#40;&#41;>",
    "<svg onload=xss()>",
    "<svg><script>xss()</script></svg>",
    "<svg><animate onbegin=xss() attributeName=x dur=1s>",
    "<svg><a xlink:href='javascript:xss()'><text x=9 y=9>go</text></a></svg>",
    "<math><mi xlink:href='javascript:xss()'>go</mi></math>",
    "<body onload=xss()>",
    "<details open ontoggle=xss()>",
    "<input autofocus onfocus=xss()>",
    "<video><source onerror=xss()></video>",
    "<marquee onstart=xss()>go</marquee>",
    "<iframe srcdoc='<script>top.xss()</script>'></iframe>",
    "<iframe src='javascript:top.xss()'></iframe>",
    "<object data='javascript:xss()'></object>",
    "<embed src='javascript:xss()'>",
    "<form action='javascript:xss()'><button autofocus>go</button></form>",
    "<base href='javascript:xss()//'>",
    "<link rel=stylesheet href='data:text/css,*{color:red}'>",
    "<style>*{background:url('javascript:xss()')}</style>",
    "<p style='animation:x' onanimationstart=xss()>go</p>",
    "<meta http-equiv=refresh content='0;url=javascript:xss()'>",
    "javascript:xss()",
    '"><img src=x onerror=xss()><i title="',
    "' onmouseover='xss()' autofocus onfocus='xss()' x='",
    "${xss()}{{constructor.constructor('xss()')()}}`+xss()+`",
    "\u202e\u200b＜script＞xss()＜/script＞ \\u003cscript\\u003exss()\\u003c/script\\u003e %3Cscript%3Exss()",
]
FIELDS = ["__proto__", "constructor", "<img src=x onerror=xss()>", '"><svg onload=xss()>']

LISTEN = """
window.xss = () => window.heard("xss() ran");
document.addEventListener("securitypolicyviolation", (event) => window.heard(`${event.violatedDirective} refused`));
"""

# Elements that the page and plotly do not make, attributes that are scripts, links that are.
STRANGE = """() => [...document.querySelectorAll("*")].filter((node) =>
  node.matches("iframe, object, embed, base, marquee, math, video, source, animate, #content :is(style, title, body)")
  || node.matches("script:not([src^='/page/']), link:not([href^='/page/']), meta[http-equiv], img:not([src^='/page/'])")
  || [...node.attributes].some(({name, value}) => name.startsWith("on")
    || (["href", "xlink:href", "src", "action", "data"].includes(name) && /^\\s*javascript:/i.test(value)))
).map((node) => node.outerHTML.slice(0, 120))"""


class Hostile(FakeService):
    """Every text that the page shows is a payload, one document for each."""

    def __init__(self) -> None:
        documents = [
            {
                "id": payload,
                "text": payload,
                "metadata": {"title": payload, "category": payload, FIELDS[number % len(FIELDS)]: payload},
            }
            for number, payload in enumerate(PAYLOADS)
        ]
        super().__init__(documents=documents, names=("sample", *PAYLOADS))

    def _info(self) -> dict[str, Any]:
        return {"model_id": PAYLOADS[0], "rerankers": PAYLOADS[:2], "examples": PAYLOADS[:3], "title": PAYLOADS[4]}

    def _indexes(self) -> list[dict[str, Any]]:
        values = [{"value": payload, "count": 2} for payload in PAYLOADS]
        fields = [{"name": name, "kind": "text", "values": values} for name in (*FIELDS, "category")]
        count = len(self.documents)
        row = {"documents": count, "passages": count, "model": PAYLOADS[1], "fields": fields, "keyword": True}
        return [{"name": name, **row} for name in self.names]

    async def _search(self, request: Request) -> dict[str, Any]:
        query = (await request.json())["query"]
        if query.startswith("refuse"):
            raise HTTPException(422, query.removeprefix("refuse"))
        return await super()._search(request)

    async def _cluster(self, request: Request) -> dict[str, Any]:
        return {
            "clusters": [
                {
                    "number": number,
                    "size": 2,
                    "keywords": [payload, payload],
                    "representative": {"id": payload, "text": payload},
                    "members": [payload, PAYLOADS[0]],
                }
                for number, payload in enumerate(PAYLOADS)
            ]
        }

    def _map(self, name: str) -> Any:
        count = len(PAYLOADS)
        return {
            "points": [self._point(number, number) for number in range(count)],
            "ids": PAYLOADS,
            "texts": PAYLOADS,
            "clusters": list(range(count)),
            "names": {str(number): payload for number, payload in enumerate(PAYLOADS)},
            "method": PAYLOADS[0],
            "built_at": PAYLOADS[0],
        }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    with running(Hostile().app(), ready=False) as address:
        yield address


@contextmanager
def guarded(browser: Browser, address: str) -> Iterator[Page]:
    """A tab in which nothing may run but the page itself."""
    heard: list[str] = []
    with tab(browser, address) as page:
        page.expose_function("heard", lambda what: heard.append(what))
        page.add_init_script(LISTEN)
        page.on("dialog", lambda dialog: heard.append(dialog.message))
        page.goto("/")
        yield page
        check(page)
        assert heard == []


@pytest.fixture
def page(browser: Browser, hostile: str) -> Iterator[Page]:
    with guarded(browser, hostile) as found:
        yield found


def check(page: Page) -> None:
    assert page.evaluate(STRANGE) == []
    assert len(page.frames) == 1


def shown(page: Page, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).all_text_contents()
    return found


def short(text: str, limit: int) -> str:
    """As the page shortens a text."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def ask(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    page.get_by_role("searchbox").press("Enter")


def opened(page: Page) -> list[str]:
    """Heading and text of the document that is open; it is closed afterwards."""
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".passage")).to_be_visible()
    found = dialog.locator("h2, .passage").all_text_contents()
    check(page)
    page.keyboard.press("Escape")
    return found


# --- scripts ---------------------------------------------------------------------------------------------------------


def test_the_frame_shows_payloads_as_text(page: Page) -> None:
    expect(page.locator(".example")).to_have_text(PAYLOADS[:3])
    assert page.title() == f"Search · {PAYLOADS[4]}"
    assert shown(page, "#index option") == ["sample", *PAYLOADS]
    assert shown(page, ".filter legend") == [*FIELDS, "category"]
    assert [text.removesuffix("2") for text in shown(page, ".filter >> nth=0 >> .chip")] == PAYLOADS
    page.goto("/#add")
    for name in PAYLOADS:
        page.locator("#index").select_option(name)
        expect(page.locator("#add-index h2")).to_contain_text(name)


def test_queries_and_messages_of_errors(page: Page) -> None:
    for payload in PAYLOADS:
        ask(page, payload)
        expect(page.locator(".hit")).to_have_count(10)
        assert page.get_by_role("searchbox").input_value() == payload
        ask(page, f"refuse{payload}")
        expect(page.get_by_role("alert")).to_contain_text(payload)
        check(page)


def test_hits_and_whole_documents(page: Page) -> None:
    ask(page, PAYLOADS[0])
    for count in (10, 20, 30, 40):
        expect(page.locator(".hit")).to_have_count(count)
        if count < 40:
            page.get_by_role("button", name="Show more").click()
    assert sorted(shown(page, ".hit .passage")) == sorted(PAYLOADS)
    assert sorted(shown(page, ".hit h3")) == sorted(short(one, 120) for one in PAYLOADS)
    assert set(shown(page, ".metadata .field")) == {f"{name} " for name in (*FIELDS, "category")}
    for hit in page.locator(".hit").all():
        hit.hover()
        hit.get_by_role("button", name="Whole document").click()
        heading, text = opened(page)
        assert heading == text == hit.locator(".passage").text_content()


def test_filters_by_any_field_and_value(page: Page) -> None:
    ask(page, "script")
    for name, payload in zip(FIELDS, PAYLOADS, strict=False):
        chip = page.locator(".filter", has=page.get_by_text(name, exact=True)).locator(".chip")
        chip.nth(PAYLOADS.index(payload)).click()
        expect(page.locator(".hit")).to_have_count(1)
        expect(page.locator(".hit .passage")).to_have_text(payload)
        page.reload()  # the address holds the filter
        expect(page.locator(".hit .passage")).to_have_text(payload)
        page.get_by_role("button", name="Clear").click()
        expect(page.locator(".hit")).to_have_count(10)


def test_addresses(page: Page) -> None:
    for payload in PAYLOADS:
        coded = quote(payload, safe="")
        page.evaluate("hash => (location.hash = hash)", f"#search?like={coded}&filter={coded}&mode={coded}")
        expect(page.locator(".like")).to_contain_text(f"More like: {payload}")
        page.evaluate("hash => (location.hash = hash)", f"#search?q={coded}&index={coded}")
        expect(page.get_by_role("searchbox")).to_have_value(payload)
        expect(page.locator("#index")).to_have_value(payload)
        page.evaluate("hash => (location.hash = hash)", f"#search?q=x&index=sample&{payload}")
        expect(page.locator("#index")).to_have_value("sample")
        page.evaluate("hash => (location.hash = hash)", f"#{payload}")
        expect(page.get_by_role("searchbox")).to_have_value("")
        check(page)


def test_the_map(page: Page) -> None:
    page.goto("/#map")
    points = places(page)
    assert len(points) == len(PAYLOADS)
    assert set(shown(page, "#map-plot .annotation")) <= {short(one, 26) for one in PAYLOADS}
    assert len(shown(page, "#map-plot .annotation")) == 12
    bubbles = set()
    for x, y in points:
        page.mouse.move(x, y, steps=3)
        expect(page.locator(".bubble")).to_be_visible()
        bubbles |= set(shown(page, ".bubble > *"))
    assert bubbles <= set(PAYLOADS)
    assert len(bubbles) > 20  # some points cover others
    assert [text.removesuffix("1") for text in shown(page, ".map-groups button")] == PAYLOADS
    for number, payload in enumerate(PAYLOADS):
        page.locator(".map-groups button").nth(number).click()
        expect(page.locator(".map-list h2")).to_have_text(short(payload, 60))
        page.locator(".map-list li button").click()
        assert opened(page) == [payload, payload]


def test_clusters(page: Page) -> None:
    page.goto("/#clusters")
    page.get_by_role("button", name="Cluster", exact=True).click()
    expect(page.locator(".cluster")).to_have_count(len(PAYLOADS))
    assert shown(page, ".words li:first-child") == PAYLOADS
    assert shown(page, ".cluster .middle") == [short(one, 180) for one in PAYLOADS]
    for card, payload in zip(page.locator(".cluster").all(), PAYLOADS, strict=True):
        card.locator("summary").click()
        card.locator(".members button").first.click()
        assert opened(page) == [payload, payload]


def test_comparisons(page: Page) -> None:
    page.goto("/#compare")
    page.get_by_role("radio", name="Two lists").check(force=True)
    page.get_by_role("textbox", name="First").fill("\n".join(PAYLOADS))
    page.locator("#compare-form").get_by_role("button", name="Compare").click()
    expect(page.locator(".heat .ytick").first).to_be_visible()
    assert shown(page, ".heat .ytick") == [short(one, 34) for one in PAYLOADS]
    expect(page.locator(".nearest li")).to_have_count(5)
    plot = page.locator(".heat .nsewdrag")
    for share in (0.1, 0.2, 0.3):
        box = plot.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"], steps=2)
        expect(page.locator(".bubble")).to_be_visible()
        assert set(shown(page, ".bubble p")) <= {short(one, 140) for one in PAYLOADS}


def test_file_names(page: Page) -> None:
    page.goto("/#add")
    names = [f"{payload}.{end}" for payload in PAYLOADS for end in ("txt", "broken.txt", "exe")]
    files = "names => names.map((name) => new File(['x'], name))"
    page.evaluate(
        f"""names => {{
          const carried = new DataTransfer();
          for (const file of ({files})(names)) carried.items.add(file);
          dispatchEvent(new DragEvent("drop", {{ dataTransfer: carried, cancelable: true }}));
        }}""",
        names,
    )
    expect(page.locator('.upload[data-state="done"]')).to_have_count(len(PAYLOADS))
    expect(page.locator('.upload[data-state="failed"]')).to_have_count(2 * len(PAYLOADS))
    assert shown(page, ".upload b") == names[::-1]


# --- ids and file names ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The real service, over documents of odd ids; its address, and the texts by their ids."""
    texts = {id: f"문서 {number}: {id[:20]} 비가 온다" for number, id in enumerate((*IDS, *PAYLOADS))}
    folder = make_index(tmp_path_factory.mktemp("odd") / "odd", [{"id": id, "text": texts[id]} for id in texts])
    settings = ServeSettings(indexes={"odd": folder})
    rooms = Rooms(settings.limits)
    rooms.add_bi("tiny", bi_encoder())
    rooms.add_reranker("cross", reranker())
    with running(create_app(settings, rooms=rooms)) as address:
        yield address, texts


def test_documents_of_any_id_open_from_clusters(browser: Browser, real: tuple[str, dict[str, str]]) -> None:
    address, texts = real
    with guarded(browser, address) as page:
        page.goto("/#clusters")
        page.get_by_label("Number of clusters").fill("16")
        page.get_by_role("button", name="Cluster", exact=True).click()
        expect(page.locator(".cluster")).to_have_count(16)
        found = {}
        for card in page.locator(".cluster").all():
            card.locator("summary").click()
            expect(card.locator(".members button").first).to_be_visible()
            for member in card.locator(".members button").all():
                member.click()
                id, text = opened(page)
                found[id] = text
        left_out = sum(int(text.split()[1]) for text in shown(page, ".members .hint"))
        assert found.items() <= texts.items()
        assert len(found) == len(texts) - left_out


def test_documents_of_any_id_open_from_their_address(browser: Browser, real: tuple[str, dict[str, str]]) -> None:
    address, texts = real
    with guarded(browser, address) as page:
        expect(page.get_by_role("searchbox")).to_be_visible()
        for id, text in texts.items():
            body = page.evaluate("id => import('/page/api.js').then(({ api }) => api.document('odd', id))", id)
            assert body == {"id": id, "text": text, "metadata": {}}
            page.evaluate("id => (location.hash = `#search?${new URLSearchParams({ like: id })}`)", id)
            expect(page.locator(".hit")).to_have_count(10)
            expect(page.locator(".like")).to_be_visible()
            assert id not in [hit.get_attribute("data-id") for hit in page.locator(".hit").all()]


def test_files_of_any_name_can_be_added(browser: Browser, real: tuple[str, dict[str, str]]) -> None:
    with guarded(browser, real[0]) as page:
        page.goto("/#add")
        files = [
            {"name": name, "mimeType": "", "buffer": f"text\nfile {number}\n".encode()}
            for number, name in enumerate(FILES)
        ]
        page.locator("#files").set_input_files(files)  # type: ignore[arg-type]
        expect(page.locator('.upload[data-state="done"]')).to_have_count(len(FILES))
        assert shown(page, ".upload b") == FILES[::-1]
