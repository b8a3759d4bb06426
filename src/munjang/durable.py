"""Bytes that survive a kill or a power cut, and one writer per output.

A rename is atomic, a write is not. So whatever must be whole is written aside, forced to the disk and renamed,
and the folder is forced to the disk after it. The lock is held by the kernel for as long as the process lives:
a lock file that a killed process left behind locks nobody out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from munjang.errors import DataError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} if sys.platform != "win32" else {errno.ENOSPC, errno.EFBIG}


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk (Windows cannot, and does not need to)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and FUSE file systems refuse to sync folders; there is nothing more to be done there.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write every byte to an unbuffered file, which may take fewer at a time than it was given."""
    rest = memoryview(data).cast("B")
    while rest.nbytes:
        rest = rest[file.write(rest) :]


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that it is there whole or, after a crash, as it was before."""
    aside = path.with_name(path.name + ".tmp")
    try:
        with open(aside, "wb", buffering=0) as file:
            write_all(file, data)
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def disk_errors(target: Path, *, safe: str) -> Iterator[None]:
    """Turn an error of the operating system into one that says what is safe and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        happened = "the disk is full (or the quota is used up)" if full else f"it could not be written ({error})"
        raise DataError(f"{target}: {happened}; {safe}") from error


class OutputLock:
    """Held by the one process that writes an output; a second one gets an error."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        while True:
            file = open(path, "ab")  # noqa: SIM115 (stays open for as long as the lock is held)
            if not _try_lock(file):
                file.close()
                raise DataError(
                    f"{target} is being written by another process (it holds {path.name}); "
                    "wait for it, or choose another output path"
                )
            # Its last holder may have removed the file after we opened it: then we hold a lock on nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    break
            file.close()
        self._file: BinaryIO | None = file

    def release(self) -> None:
        if self._file is None:
            return
        if os.name == "nt":  # an open file cannot be removed there
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink()
        self._file.close()
        self._file = None


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: BinaryIO) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            # A file system without locks (some NFS mounts): better to write unguarded than not at all.
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        return True


def user_cache() -> Path:
    """Where things that can be made again are kept: $MUNJANG_CACHE, else `munjang` in the user's cache folder."""
    named = os.environ.get("MUNJANG_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        given = os.environ.get("XDG_CACHE_HOME", "")
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "munjang"
