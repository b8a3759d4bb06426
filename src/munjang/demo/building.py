"""Documents and a model -> an index in a folder: there whole, or not at all.

An index is filled aside and renamed into place, so that a kill in the middle leaves no half of one behind. In the
user's cache its name holds a hash of the documents and of the model: when either changes, another one is made. What
nobody has touched for a month is removed when a new one is made.

    CACHE/demo/sample-HASH              an index of the sample
    CACHE/demo/docs-HASH                an index of somebody's own files
    CACHE/demo/.NAME.building-PID-*     one that is being made; left behind by a kill, removed later

CACHE is $MUNJANG_CACHE, else the folder that the operating system has for such things.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang.demo import corpus
from munjang.errors import InputError, MunjangError
from munjang.files import disk_errors, sync_folder, user_cache
from munjang.progress import Progress

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.index.adding import AddReport
    from munjang.index.index import Index

_DAY = 86_400.0
_FORGOTTEN = 30 * _DAY  # seconds without a change after which a cached index goes
_THERE = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # what a rename onto something says
_BUSY = (errno.EACCES, errno.EPERM)  # the same on Windows


def build_index(path: str | Path, model: BiEncoder, *, progress: Progress = False) -> Index:
    """Make an index of the sample corpus in a folder that is not there yet, or is empty, and open it."""
    from munjang.index.index import Index

    fill(Path(path), model, corpus.documents(), progress=progress)
    return Index.open(path, model)


def fill(
    path: Path, model: BiEncoder, documents: Iterable[Mapping[str, Any] | str], *, progress: Progress = False
) -> AddReport:
    """Make an index of documents in a folder that is not there yet, or is empty: aside, then renamed."""
    from munjang.index.index import Index

    target = path.expanduser().absolute()
    check_vacant(target)
    with disk_errors(target, safe="no index was made"):
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.building-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with Index.create(aside, model) as index:
            report = index.add(documents, progress=progress)
        _move(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return report


def check_vacant(folder: Path) -> None:
    """Raise unless an index can be made there."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise InputError(f"an index is a folder, but {folder} is a file: choose another path")
    if is_index(folder):
        raise InputError(f"there is an index at {folder} already: Index.open opens it")
    if any(folder.iterdir()):
        raise InputError(f"{folder} is a folder with other files: an index needs one of its own")


def is_index(folder: Path) -> bool:
    """Whether the folder holds the database of an index, sound or not."""
    from munjang.index.schema import DATABASE

    return (folder / DATABASE).is_file()


def _move(aside: Path, target: Path) -> None:
    with disk_errors(target, safe="no index was made"):
        if os.name == "nt" and target.is_dir():
            target.rmdir()  # a rename there replaces no folder, not even an empty one
        try:
            os.rename(aside, target)
        except OSError as error:
            if error.errno in (*_THERE, *(_BUSY if os.name == "nt" else ())):
                raise InputError(f"{target} was made by another process meanwhile: Index.open opens it") from error
            raise
        sync_folder(target.parent)


# --- the cache -------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where indexes of the demo are kept: $MUNJANG_CACHE/demo, else below the user's cache folder."""
    return user_cache() / "demo"


def cached_folder(kind: str, model: BiEncoder, digest: str) -> Path:
    """The folder of an index of these documents (their digest) with this model; it need not be there."""
    from munjang.index.identity import Identity
    from munjang.index.schema import FORMAT

    facts = {**Identity.of(model).as_json(), "source": "", "documents": digest, "format": FORMAT}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return cache_folder() / f"{kind}-{key[:24]}"


def usable(folder: Path, model: BiEncoder) -> bool:
    """Whether a cached index is there, opens with the model, and has documents."""
    from munjang.index.index import Index

    if not is_index(folder):
        return False
    try:
        with Index.open(folder, model) as index:
            found = index.count > 0
    except MunjangError:
        return False
    with contextlib.suppress(OSError):
        os.utime(folder)  # it is in use: `forget` leaves it alone
    return found


def fill_cached(
    folder: Path, model: BiEncoder, documents: Iterable[Mapping[str, Any] | str], *, progress: Progress = False
) -> AddReport | None:
    """Make a cached index anew; None where another process has just made it."""
    if os.path.lexists(folder):
        _remove(folder)
    forget(folder.parent)
    try:
        return fill(folder, model, documents, progress=progress)
    except InputError:
        if usable(folder, model):
            return None
        raise


def forget(folder: Path) -> None:
    """Remove indexes that nobody has touched for a month, and what killed processes left."""
    now = time.time()
    for entry in list(folder.iterdir()) if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            age = now - max(file.stat().st_mtime for file in (entry, *entry.glob("*")))
            if age > (_DAY if entry.name.startswith(".") else _FORGOTTEN):
                shutil.rmtree(entry, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Take a cached index away: out of sight at once, then file by file."""
    doomed = folder.with_name(f".{folder.name}.building-{os.getpid()}-{secrets.token_hex(4)}")
    with disk_errors(folder, safe="it cannot be replaced; end what uses it, or remove it by hand"):
        os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
