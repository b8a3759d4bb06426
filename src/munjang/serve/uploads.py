"""A file that somebody sends -> documents of an index, with news on the way.

Enters: a form with one file, as it comes from the network. Leaves: lines of JSON while it is encoded, the last with the
report or the error. The file goes to the disk first, because it is read twice: once to be checked, which also holds it
to the limits on what it unpacks to, and once to be added. All of its documents are added, or none. A client that hangs
up does not stop what has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, BinaryIO

from munjang.data.documents import DocumentFiles, DocumentSurvey, WholeFiles
from munjang.data.files import RowFile
from munjang.data.rows import ReadLimits, ReadOptions
from munjang.errors import DataError, LimitError, MunjangError
from munjang.files import OutputLock
from munjang.serve.errors import BadRequest, ClientGone, Empty, as_serve_error, hidden
from munjang.serve.indexes import Shelved
from munjang.serve.settings import Limits

if TYPE_CHECKING:
    from starlette.requests import Request

_WHOLE = (".md", ".markdown", ".rst")
_STRANGE = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]")
_NAME_BYTES = 255  # the longest file name of a file system
_PREFIX, _LOCK = "munjang-serve-", "lock"
_NEWS = 0.2  # seconds between two lines


class Workspace:
    """The temporary folder of one service, and whatever killed ones left.

    A service holds a lock in its folder for as long as it lives; the kernel lets go of it when the process dies. So a
    folder whose lock is free belongs to nobody.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._root: Path | None = None
        self._lock: OutputLock | None = None

    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """A new folder for one upload."""
        with self._guard:
            if self._root is None or not self._root.exists():  # a system may clean its temporary files
                self._root, self._lock = self._made()
        return tempfile.TemporaryDirectory(dir=self._root, prefix="upload-")

    def _made(self) -> tuple[Path, OutputLock]:
        while True:
            root = Path(tempfile.mkdtemp(prefix=_PREFIX))
            try:
                return root, OutputLock(root / _LOCK, root)
            except (DataError, FileNotFoundError):
                continue  # a service that starts now took it for one that was left

    def clean(self) -> int:
        """Remove the folders of services that were killed; returns how many. Those of living ones are left alone."""
        self.folder().cleanup()
        assert self._root is not None
        if _is_free(self._root):
            return 0  # a file system without locks: nobody can tell who lives
        removed = 0
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                own = not hasattr(os, "getuid") or path.lstat().st_uid == os.getuid()
                if own and path != self._root and path.is_dir() and not path.is_symlink():
                    removed += _is_free(path, remove=True)
        return removed

    def close(self) -> None:
        """Remove the folder."""
        with self._guard:
            if self._root is not None and self._lock is not None:
                self._lock.release()
                shutil.rmtree(self._root, ignore_errors=True)
            self._root = self._lock = None


def _is_free(root: Path, *, remove: bool = False) -> bool:
    """Whether nobody holds the lock of a folder; with `remove` it is removed then, while nobody else can take it."""
    try:
        lock = OutputLock(root / _LOCK, root)
    except DataError:
        return False
    if remove:
        shutil.rmtree(root, ignore_errors=True)
        lock.release()
        shutil.rmtree(root, ignore_errors=True)  # Windows removes no open file
    return True


@dataclass(frozen=True)
class Upload:
    """A file on the disk, and how its sender wants it read."""

    folder: tempfile.TemporaryDirectory[str]
    name: str
    documents: DocumentFiles | WholeFiles
    found: DocumentSurvey | MunjangError  # what the first reading found, or what is wrong with the file


async def receive(request: Request) -> Upload:
    """Take the file from the network; what cannot be read at all is an error here."""
    from starlette.requests import ClientDisconnect

    try:
        return await _received(request)
    except ClientDisconnect:
        raise ClientGone("the client hung up before its file was whole") from None


async def _received(request: Request) -> Upload:
    limits: Limits = request.app.state.settings.limits
    read_limits = ReadLimits(limits.unpacked_bytes, limits.file_rows, limits.file_columns)
    async with request.form(max_files=1, max_fields=8) as form:
        file = form.get("file")
        if file is None or isinstance(file, str):
            raise BadRequest("expected a form (multipart/form-data) with a file in the field 'file'", param="file")
        name = plain_name(file.filename or "")
        given = form.get("column")
        column, whole = (
            given if isinstance(given, str) and given else None,
            str(form.get("whole", "")).lower() in ("1", "true", "yes"),
        )
        whole = whole or Path(name).suffix.lower() in _WHOLE
        if not whole:
            _ = RowFile(Path(name), ReadOptions()).kind  # an unknown suffix is refused before anything is stored
        folder = await asyncio.to_thread(request.app.state.workspace.folder)
        path = Path(folder.name) / name
        await asyncio.to_thread(_store, file.file, path)
    documents: DocumentFiles | WholeFiles = (
        WholeFiles([path], limits=read_limits)
        if whole
        else DocumentFiles([RowFile(path, ReadOptions(limits=read_limits, name=name))], column=column)
    )
    found: DocumentSurvey | MunjangError
    try:
        found = await asyncio.to_thread(_survey, documents)
    except LimitError:
        await asyncio.to_thread(folder.cleanup)
        raise
    except MunjangError as error:
        found = error
    return Upload(folder, name, documents, found)


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
        found, documents = upload.found, upload.documents
        if isinstance(found, MunjangError):
            raise found
        total = found.documents
        news.put_nowait(
            {"read": total, "column": found.column, "id_column": found.id_column, "fields": list(found.fields)}
        )
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


def _survey(documents: DocumentFiles | WholeFiles) -> DocumentSurvey:
    try:
        (found,) = documents.survey()
    except OSError as error:
        raise DataError(f"the file cannot be read ({error})") from error
    return found


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
