"""`munjang demo`: the sample, or somebody's own files, in an index, behind the page, in the browser.

    files -> documents -> index (cached) -> service on this machine -> browser

Everything that can be wrong with what was asked for is found before the model is loaded; every step says how long it
took. The service goes on with the model that made the index.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import itertools
import os
import re
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang import bundled
from munjang.demo import building, corpus
from munjang.errors import DataError, InputError, MissingExtraError, ModelNotFoundError
from munjang.progress import Progress

if TYPE_CHECKING:
    from munjang.data.documents import DocumentFiles, WholeFiles
    from munjang.encoders import BiEncoder
    from munjang.serve.settings import ServeSettings

HOST = "127.0.0.1"
_TRIES = 100  # ports after the one that was asked for
_WHOLE = (".md", ".markdown", ".rst")  # one document each; the rows or lines of other files are
_NEEDED = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
}  # module -> package

Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoOptions:
    """What to show, and where."""

    docs: tuple[str, ...] = ()  # files and folders; none: the sample
    column: str | None = None  # of the texts, in files that have columns
    index: Path | None = None  # serve this one, or make it here; None: in the cache
    model: str | None = None  # None: that of MUNJANG_MODEL, else the bundled one
    reranker: str | None = None  # None: that of MUNJANG_RERANKER, else the bundled one where it is there
    device: str | None = None
    port: int = 8000  # or the next free one; 0: any
    browser: bool = True
    rebuild: bool = False  # make the cached index anew

    def __post_init__(self) -> None:
        if isinstance(self.port, bool) or not 0 <= self.port <= 65535:
            raise InputError(f"port must be 0..65535, got {self.port!r}")
        if self.column is not None and not self.docs:
            raise InputError("a column is one of your own files: give them too (--docs)")
        if self.rebuild and self.index is not None:
            raise InputError(f"only a cached index is made anew: remove {self.index} yourself, then start again")
        if self.index is not None and self.docs and building.is_index(self.index.expanduser()):
            raise InputError(
                f"{self.index} is an index already: show it without files, or add them to it first "
                f"(`munjang index add {self.index} FILE...`)"
            )


@dataclass
class _Steps:
    """Says what was done and how long it took."""

    say: Say
    _since: float = field(default_factory=time.monotonic)

    def done(self, what: str) -> None:
        now = time.monotonic()
        self.say(f"{what} ({now - self._since:.1f} s)")
        self._since = now


def run(options: DemoOptions, *, say: Say, tell: Say, progress: Progress = False) -> None:
    """Make what is to be shown, and serve it until Ctrl-C.

    say: takes what happens meanwhile, a line at a time. tell: takes the address and what to try.
    """
    _check_extra()
    steps = _Steps(say)
    shown = _index(options, _files(options), steps, progress)
    settings = _settings(options, shown, say)
    with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
        _serve(settings, shown, steps, tell, browser=options.browser and has_browser())


def _check_extra() -> None:
    for module, package in _NEEDED.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(package, "serve", "the demo")


# --- documents and index ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shown:
    """The index that is shown."""

    folder: Path
    name: str
    sample: bool  # it holds the passages that the examples ask for
    model: BiEncoder | None = None  # where it was loaded already; otherwise the service takes the index's own


@dataclass(frozen=True)
class _Own:
    """Somebody's own files, as they are read: folders and .md files whole, the rows or lines of others."""

    parts: Sequence[DocumentFiles | WholeFiles]
    total: int

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return itertools.chain.from_iterable(self.parts)


def _files(options: DemoOptions) -> _Own | None:
    """The files that were given, read once: what is wrong with them shows before a model is loaded."""
    from munjang.data.documents import DocumentFiles, WholeFiles
    from munjang.data.files import RowFile
    from munjang.data.rows import ReadOptions
    from munjang.index.documents import incoming

    if not options.docs:
        return None
    paths = [Path(path).expanduser() for path in options.docs]
    missing = next((path for path in paths if not path.exists()), None)
    if missing is not None:
        raise InputError(f"there is no file or folder {missing}")
    whole = [path for path in paths if path.is_dir() or path.suffix.lower() in _WHOLE]
    rows = [RowFile(path, ReadOptions()) for path in paths if path not in whole]
    parts: list[DocumentFiles | WholeFiles] = [DocumentFiles(rows, column=options.column)] if rows else []
    parts += [WholeFiles(whole)] if whole else []
    surveys = [found for part in parts for found in part.survey()]
    for found in surveys:
        incoming({"text": "", **dict.fromkeys(found.fields, 0)}, 0)  # names that metadata cannot have
    total = sum(found.documents for found in surveys)
    if not total:
        raise DataError(f"there is no document in {', '.join(map(str, paths))}")
    return _Own(parts, total)


def _index(options: DemoOptions, files: _Own | None, steps: _Steps, progress: Progress) -> _Shown:
    """The index that is shown, made where it is not there yet."""
    given = None if options.index is None else options.index.expanduser()
    if given is not None and building.is_index(given):
        return _there(given, options, steps)
    if given is not None:
        building.check_vacant(given)
    model = _load(options, steps)
    documents: Iterable[dict[str, Any]] = corpus.documents() if files is None else files
    kind = "sample" if files is None else "docs"
    name = kind if len(options.docs) != 1 else plain_name(Path(options.docs[0]).expanduser().absolute().stem)
    shown = _Shown(given or _cached(kind, model, documents), name, files is None, model)
    if given is None and not options.rebuild and building.usable(shown.folder, model):
        steps.done(f"index: {shown.folder}, made before")
        return shown
    told = progress
    if files is not None and callable(progress):
        told = lambda done, _: progress(done, files.total)  # noqa: E731 (a stream does not know its length)
    make = building.fill if given is not None else building.fill_cached
    report = make(shown.folder, model, documents, progress=told)
    steps.done(f"index: {shown.folder}: {report or 'made by another process'}")
    return shown


def _cached(kind: str, model: BiEncoder, documents: Iterable[dict[str, Any]]) -> Path:
    return building.cached_folder(kind, model, corpus.digest(documents))


def _there(folder: Path, options: DemoOptions, steps: _Steps) -> _Shown:
    """An index that is there; with a model that was named, that must be its own."""
    from munjang.index.index import Index

    model = None if options.model is None else _load(options, steps)
    with Index.open(folder, model) as index:
        if not index.count:
            raise InputError(f"the index at {folder} is empty: `munjang index add {folder} FILE...` fills it")
        sample = corpus.FIRST in index
        steps.done(f"index: {folder}: {index.count:,} documents")
    return _Shown(folder, plain_name(folder.absolute().name), sample, model)


def _load(options: DemoOptions, steps: _Steps) -> BiEncoder:
    from munjang.loading import load

    name = options.model or os.environ.get("MUNJANG_MODEL") or bundled.BI_ENCODER
    model = load(name, device=options.device)
    steps.done(f"model: {name}")
    return model


def plain_name(name: str) -> str:
    """A name that can stand in an address: letters, digits and . _ - only, the first a letter or digit."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-._")[:80] or "documents"


# --- the service -----------------------------------------------------------------------------------------------------


def _settings(options: DemoOptions, shown: _Shown, say: Say) -> ServeSettings:
    from munjang.serve.settings import ServeSettings

    reranker = _reranker(options, say)
    return ServeSettings(
        rerankers={} if reranker is None else {_room_name(reranker): reranker},
        indexes={shown.name: shown.folder},
        host=HOST,
        port=free_port(options.port, say),
        device=options.device,
        examples=corpus.EXAMPLES if shown.sample else (),
    )


def _room_name(model: str) -> str:
    return model if model in bundled.NAMES else plain_name(Path(model.partition("@")[0]).absolute().name)


def _reranker(options: DemoOptions, say: Say) -> str | None:
    named = options.reranker or os.environ.get("MUNJANG_RERANKER")
    if named:
        return named
    try:
        bundled.path(bundled.RERANKER)
    except ModelNotFoundError:
        say(f"no reranker: {bundled.RERANKER} is not in this installation (--reranker names another)")
        return None
    return bundled.RERANKER


def free_port(wanted: int, say: Say) -> int:
    """The port that was asked for, or the next one that nobody has; 0 stays 0."""
    if wanted == 0:
        return 0
    last = min(wanted + _TRIES, 65535)
    for port in range(wanted, last + 1):
        if _is_free(port):
            if port != wanted:
                say(f"port {wanted} is taken, so it is {port}")
            return port
    raise InputError(f"the ports {wanted}..{last} are all taken or not allowed: choose another (--port; 0 is any)")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name != "nt":  # there it would let us share a port that somebody has
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _serve(settings: ServeSettings, shown: _Shown, steps: _Steps, tell: Say, *, browser: bool) -> None:
    from munjang.serve.rooms import Rooms
    from munjang.serve.running import run as serve

    rooms = Rooms(settings.limits)
    if shown.model is not None:
        rooms.add_bi(_room_name(shown.model.parts.source or "model"), shown.model)

    def ready(address: str) -> None:
        steps.done("service: ready")
        for line in [address, *_to_try(sample=shown.sample, rerank=bool(settings.rerankers)), "Ctrl-C ends it"]:
            tell(line)
        if browser:  # it may take its time, or never return; the service goes on meanwhile
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    serve(settings, on_ready=ready, rooms=rooms)


def _to_try(*, sample: bool, rerank: bool) -> list[str]:
    things = [f"search  {query}" for query in corpus.EXAMPLES]
    if not sample:
        switch = "switch reranking on and off" if rerank else "switch between meaning, words and both"
        things = ["ask a question in your own words", switch, "open the map of your documents"]
    return ["three things to try:", *(f"  {number}. {thing}" for number, thing in enumerate(things, start=1))]


def has_browser() -> bool:
    """Whether a browser with a window can be opened here; one that takes over the terminal is none."""
    if sys.platform in ("win32", "darwin") or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
