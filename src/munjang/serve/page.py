"""The search page: files of `page/` and plotly's JavaScript -> HTTP answers, all from this machine.

Enters: a request for `/` or `/page/NAME`. Leaves: the file, with headers under which a browser runs no script and loads
nothing that does not come from this service, so that a text in an index cannot act, whatever it holds. The files are
read once into a table; a name that is not in the table does not exist, so that no path can lead out of the folder.
plotly lies in its Python package (several MB): it is read and packed when the map or a heat map first asks for it.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from fastapi import APIRouter, Request, Response

PAGE_PATHS = ("/", "/page/", "/favicon.ico")  # what a browser reads before anybody can have typed a key

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # plotly hands the cells of a heat map to the browser as a data: picture
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asks again each time, and is mostly answered with 304
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page, ready to be sent."""

    body: bytes
    packed: bytes  # with gzip
    media_type: str
    tag: str  # changes with the content

    @classmethod
    def of(cls, body: bytes, suffix: str) -> PageFile:
        """The file with this content."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        return cls(body, gzip.compress(body, 6, mtime=0), _TYPES[suffix], tag)


@lru_cache(maxsize=1)
def page_files() -> dict[str, PageFile]:
    """Every file of the page by its name."""
    folder = resources.files("munjang.serve").joinpath("page")
    found = {
        entry.name: PageFile.of(entry.read_bytes(), Path(entry.name).suffix)
        for entry in folder.iterdir()
        if Path(entry.name).suffix in _TYPES
    }
    if "index.html" not in found:
        raise DataError(f"the files of the page are not in {folder}: this installation is damaged; install it again")
    return found


@lru_cache(maxsize=1)
def plotly_file() -> PageFile:
    """plotly's JavaScript, from its Python package (which is not imported: that alone would take a second)."""
    found = importlib.util.find_spec("plotly")
    roots = list(found.submodule_search_locations or ()) if found else []
    for root in roots:
        path = Path(root) / "package_data" / "plotly.min.js"
        if path.is_file():
            return PageFile.of(_without_styles(path.read_bytes()), ".js")
    raise MissingExtraError("plotly", "viz", "the map and the heat map of the page")


def _without_styles(plotly: bytes) -> bytes:
    """plotly that writes no style elements, which the policy of the page would refuse with an error in the console.

    Parts of it (maps of the world, which the page does not draw) write one unless an element with its id is there.
    """
    ids = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', plotly)
    there = b'document.head.append(Object.assign(document.createElement("meta"), {id: "%s"}));\n'
    return b"".join(there % one for one in dict.fromkeys(ids)) + plotly


def page_router() -> APIRouter:
    """The routes `/` and `/page/...`, which need no key; they stand in no OpenAPI description."""
    try:
        from fastapi import APIRouter
    except ImportError as error:
        raise MissingExtraError("fastapi", "serve", "the page") from error
    page_files()  # a damaged installation is told when the service starts, not by its first reader
    router = APIRouter()
    routes = {"/": _index, "/favicon.ico": _icon, "/page/plotly.js": _plotly, "/page/{name}": _part}
    for path, answer in routes.items():
        router.add_route(path, answer, methods=["GET"], include_in_schema=False)  # HEAD comes with GET
    return router


# Not async: they run in the service's threads, and packing plotly takes a part of a second.


def _index(request: Request) -> Response:
    return _answer(page_files()["index.html"], request)


def _icon(request: Request) -> Response:
    return _answer(page_files()["icon.svg"], request)


def _plotly(request: Request) -> Response:
    try:
        return _answer(plotly_file(), request)
    except MissingExtraError as error:
        return _missing(str(error))


def _part(request: Request) -> Response:
    name = request.path_params["name"]
    file = page_files().get(name)
    return _missing(f"the page has no file {name!r:.80}") if file is None else _answer(file, request)


def _answer(file: PageFile, request: Request) -> Response:
    from fastapi import Response

    headers = {**_HEADERS, "ETag": file.tag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.tag in known:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.media_type, headers=headers)


def _missing(message: str) -> Response:
    from fastapi.responses import JSONResponse

    return JSONResponse({"error": message, "error_type": "not_found"}, status_code=404, headers=_HEADERS)
