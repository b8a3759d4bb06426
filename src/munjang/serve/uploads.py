"""A file that somebody sends -> documents of an index, with news on the way.

Enters: a form with one file, as it comes from the network. Leaves: lines of JSON while it is read and encoded, the last
with the report or the error. The file goes to the disk first, because it is read twice: once to be checked, once to be
added. All of its documents are added, or none. A client that hangs up does not stop what has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, BinaryIO

from munjang.data.documents import DocumentFiles, WholeFiles
from munjang.data.files import TextSource
from munjang.errors import DataError
from munjang.serve.errors import BadRequest, ClientGone, Empty, as_serve_error, hidden
from munjang.serve.indexes import Shelved

if TYPE_CHECKING:
    from starlette.requests import Request

_WHOLE = (".md", ".markdown", ".rst")
_STRANGE = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]")
_NAME_BYTES = 255  # the longest file name of a file system
_NEWS = 0.2  # seconds between two lines


@dataclass(frozen=True)
class _Said(TextSource):
    """A file in a temporary folder; messages call it what its sender does."""

    said: str = ""

    @property
    def name(self) -> str:
        return self.said


@dataclass(frozen=True)
class Upload:
    """A file on the disk, and how its sender wants it read."""

    folder: tempfile.TemporaryDirectory[str]
    path: Path
    name: str
    column: str | None
    whole: bool

    def documents(self) -> DocumentFiles | WholeFiles:
        if self.whole:
            return WholeFiles([self.path])
        return DocumentFiles([_Said(self.path, column=self.column, said=self.name)])


async def receive(request: Request) -> Upload:
    """Take the file from the network; what cannot be read at all is an error here."""
    from starlette.requests import ClientDisconnect

    try:
        return await _received(request)
    except ClientDisconnect:
        raise ClientGone("the client hung up before its file was whole") from None


async def _received(request: Request) -> Upload:
    async with request.form(max_files=1, max_fields=8) as form:
        file = form.get("file")
        if file is None or isinstance(file, str):
            raise BadRequest("expected a form (multipart/form-data) with a file in the field 'file'", param="file")
        name = plain_name(file.filename or "")
        column, whole = form.get("column") or None, str(form.get("whole", "")).lower() in ("1", "true", "yes")
        whole = whole or Path(name).suffix.lower() in _WHOLE
        if not whole:
            _ = TextSource(name).kind  # an unknown suffix is refused before anything is stored
        folder = tempfile.TemporaryDirectory(prefix="munjang-")
        path = Path(folder.name) / name
        await asyncio.to_thread(_store, file.file, path)
    return Upload(folder, path, name, column if isinstance(column, str) else None, whole)


def _store(source: BinaryIO, path: Path) -> None:
    source.seek(0)
    with path.open("wb") as target:
        shutil.copyfileobj(source, target)


def plain_name(given: str) -> str:
    """The last part of a file's name, whatever system it comes from, without what names cannot hold."""
    name = PureWindowsPath(PurePosixPath(given).name).name
    name = _STRANGE.sub("_", name).strip(" ").rstrip(" .")
    name = f"_{name}" if name.startswith(".") else name  # .csv has no suffix, _.csv has
    name = name.encode()[-_NAME_BYTES:].decode(errors="ignore")
    if not name:
        raise BadRequest("the file has no name: it tells the format, such as documents.csv", param="file")
    return name


async def added(shelved: Shelved, upload: Upload, request_id: str) -> AsyncIterator[dict[str, Any]]:
    """Add the documents of a file, and tell how it goes; the last of the news is the report or the error."""
    news: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    task = asyncio.create_task(_add(shelved, upload, news, request_id))
    shelved.hold(task)
    while (one := await news.get()) is not None:
        yield one


async def _add(shelved: Shelved, upload: Upload, news: asyncio.Queue[dict[str, Any] | None], request_id: str) -> None:
    loop = asyncio.get_running_loop()
    told = _Teller(lambda line: loop.call_soon_threadsafe(news.put_nowait, line))
    try:
        documents = upload.documents()
        total, facts = await asyncio.to_thread(_survey, documents)
        news.put_nowait({"read": total, **facts})
        if not total:
            raise Empty(f"there is no document in {upload.name}")
        told.total = total
        report = await shelved.add_stream(_Counted(documents, total), progress=told)
        news.put_nowait({"report": asdict(report)})
    except Exception as error:
        known = as_serve_error(error) or hidden(error, request_id)
        news.put_nowait({"error": str(known), "error_type": known.kind})
    finally:
        news.put_nowait(None)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(upload.folder.cleanup)


def _survey(documents: DocumentFiles | WholeFiles) -> tuple[int, dict[str, Any]]:
    try:
        (found,) = documents.survey()
    except OSError as error:
        raise DataError(f"the file cannot be read ({error})") from error
    return found.documents, {"column": found.column, "id_column": found.id_column, "fields": list(found.fields)}


@dataclass(frozen=True)
class _Counted:
    """Documents whose number is known, so that progress has an end."""

    documents: DocumentFiles | WholeFiles
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.documents)


class _Teller:
    """Progress as news, not too often."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._last = 0.0
        self.total = 0

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._last >= _NEWS or done == self.total:
            self._last = now
            self._send({"encoded": done, "of": self.total})
