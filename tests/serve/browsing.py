"""A real browser for tests of the page, and a tab that sees to what no page of ours may do."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

_PATIENCE = 30_000  # milliseconds; a busy machine is no fault of the page
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (  # --no-sandbox: Chromium refuses to run as root with one; the others keep it off the network and the GPU
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium of the system (or MUNJANG_CHROMIUM), else the one that playwright has fetched; a fresh profile.

    Without any the test is skipped; under CI=true it fails.
    """
    path = os.environ.get("MUNJANG_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        except Error as error:
            missing = f"Chromium does not start, install it or set MUNJANG_CHROMIUM: {str(error).splitlines()[0]}"
            if os.environ.get("CI") == "true":
                pytest.fail(missing)
            pytest.skip(missing)
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A tab with a fresh session. Afterwards: no request left the service, and the console holds no error.

    An answer of 4xx that the page handles is written to the console by the browser itself; that is no error of ours.
    """
    options = {"locale": "en-US", "viewport": {"width": 1280, "height": 860}, "color_scheme": "light"} | options
    context = browser.new_context(base_url=address, **options)
    context.set_default_timeout(_PATIENCE)
    expect.set_options(timeout=_PATIENCE)
    errors: list[str] = []
    foreign: list[str] = []

    def request(url: str) -> None:
        if not url.startswith((f"{address}/", "data:", "blob:")):
            foreign.append(url)

    page = context.new_page()
    page.on("console", lambda one: errors.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda one: errors.append(str(one)))
    page.on("request", lambda one: request(one.url))
    yield page
    assert not foreign
    assert [one for one in errors if "Failed to load resource" not in one] == []
    context.close()


def eventually(page: Page, holds: Callable[[], bool]) -> None:
    """Wait until something holds that the page brings about elsewhere, such as a request that it sends."""
    end = time.monotonic() + 15
    while True:
        try:
            if holds():
                return
        except (IndexError, KeyError):
            pass
        assert time.monotonic() < end, "it never came to hold"
        page.wait_for_timeout(50)


def places(page: Page) -> list[list[float]]:
    """Where the points of the map are on the screen."""
    expect(page.locator("#map-plot .scatterlayer path.point").first).to_be_attached()
    found: list[list[float]] = page.evaluate(
        """() => {
          const plot = document.getElementById("map-plot");
          const {xaxis, yaxis} = plot._fullLayout;
          const box = plot.getBoundingClientRect();
          const {x, y} = plot.data[0];
          const [left, top] = [box.x + xaxis._offset, box.y + yaxis._offset];
          return [...x].map((one, at) => [left + xaxis.d2p(one), top + yaxis.d2p(y[at])]);
        }"""
    )
    return found
