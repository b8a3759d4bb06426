"""Durable files: atomic writes, atomic folder replacement, one writer per output; JSON files, and the cache folder.

A rename is atomic, a write is not. So a file or folder is written beside its target, flushed to disk and renamed into
place, and then the parent folder is flushed. Locks are held by the kernel for the life of the process: a lock file that
a killed process left behind locks nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from munjang.errors import DataError, InputError, ModelError

DISK_FULL = {errno.ENOSPC, errno.EFBIG} | ({errno.EDQUOT} if sys.platform != "win32" else set())

_MAX_JSON_BYTES = 64 << 20  # the index of a model's shards, the largest file that is read, has a few megabytes
_MAX_NAMES = 20  # file names in a message
_ABANDONED = 86_400  # seconds after which the temporary folder of an unknown process is removed


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk. Windows neither can nor needs to."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and FUSE file systems refuse to sync folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write every byte to an unbuffered file, whose `write` may accept fewer."""
    rest = memoryview(data).cast("B")
    while rest.nbytes:
        rest = rest[file.write(rest) :]


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` when the block ends.

    On any error the temporary file is removed and `path` stays as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def atomic_write(path: Path, data: bytes | memoryview) -> None:
    """Write a file atomically: after a crash it holds the old content or the new."""
    with atomic_path(path) as temporary, open(temporary, "wb", buffering=0) as file:
        write_all(file, data)


@contextlib.contextmanager
def disk_errors(target: Path, *, safe: str) -> Iterator[None]:
    """Convert an OSError into a DataError that says what is intact (`safe`) and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in DISK_FULL
        reason = "the disk is full (or the quota is used up)" if full else f"it could not be written ({error})"
        raise DataError(f"{target}: {reason}; {safe}") from error


# --- replacing a folder ----------------------------------------------------------------------------------------------
#
#   .NAME.saving-*     the new folder while it is written; removed by the next save when its writer was killed
#   .NAME.previous     the old folder, from the moment it is renamed aside until it is deleted
#
# A process killed between the two renames leaves `.NAME.previous` and no NAME: `repair_folder` renames it back. So a
# reader finds the old folder or the new one, never parts of both.


def previous_of(folder: Path) -> Path:
    """Where the old folder is kept during a replacement."""
    return folder.with_name(f".{folder.name}.previous")


def repair_folder(folder: Path) -> None:
    """Undo a replacement that was killed between its two renames."""
    if not folder.name or folder.name == "..":
        return
    previous = previous_of(folder)
    if not os.path.lexists(folder) and previous.is_dir():
        # A replacement in progress may win this race: then there is nothing to repair.
        with contextlib.suppress(OSError):
            os.rename(previous, folder)


def replace_folder(target: Path, fill: Callable[[Path], None], *, owned: Callable[[str], object]) -> None:
    """Replace a folder atomically with one that `fill` writes; any error leaves the old one untouched.

    Args:
        target: The folder to create or replace; its parents are created.
        fill: Called with the temporary folder to write into.
        owned: Whether an entry of this name belongs to what is replaced. Other entries of the old folder (.git, notes)
            are moved into the new one.
    """
    repair_folder(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    temporary = _temporary_folder(target)
    try:
        temporary.mkdir()
        fill(temporary)
        _apply_umask(temporary)
        if target.is_dir():
            shutil.copymode(target, temporary)
        _sync_tree(temporary)
        _swap(temporary, target, owned)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_folder(target: Path) -> Path:
    """A new name beside the target that identifies the writing process."""
    return target.with_name(f".{target.name}.saving-{_host()}-{os.getpid()}-{secrets.token_hex(4)}")


def _swap(temporary: Path, target: Path, owned: Callable[[str], object]) -> None:
    previous = previous_of(target)
    for _ in range(100):
        if target.is_dir() and previous.is_dir():
            _delete_previous(previous, target, owned)
        if target.is_dir() and any(target.iterdir()):
            os.rename(target, previous)
        elif target.is_dir() and os.name == "nt":
            target.rmdir()
        try:
            os.rename(temporary, target)
            break
        except OSError as error:
            # A reader found the folder missing and renamed the old one back: retry.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    else:
        raise InputError(f"{target} is constantly being replaced by other processes; choose another folder")
    sync_folder(target.parent)
    if previous.is_dir():
        _delete_previous(previous, target, owned)


def _delete_previous(previous: Path, target: Path, owned: Callable[[str], object]) -> None:
    """Move entries that are not owned from the old folder to the new one, and delete the rest."""
    for entry in list(previous.iterdir()):
        if not owned(entry.name) and not os.path.lexists(target / entry.name):
            os.rename(entry, target / entry.name)
    sync_folder(target)
    # `repair_folder` trusts whatever has the name `previous`: rename it before deleting it file by file.
    doomed = _temporary_folder(target)
    os.rename(previous, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary folders of killed processes."""
    prefix = f".{target.name}.saving-"
    for entry in target.parent.iterdir():
        if entry.name.startswith(prefix) and entry.is_dir() and _abandoned(entry, entry.name.removeprefix(prefix)):
            shutil.rmtree(entry, ignore_errors=True)


def _abandoned(entry: Path, writer: str) -> bool:
    """Whether the process `HOST-PID-TOKEN` no longer writes there; for another machine only the age decides."""
    host, pid, _ = [*writer.rsplit("-", 2), "", ""][:3]
    if host == _host() and pid.isdigit() and os.name != "nt":
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return int(pid) == os.getpid() and time.time() - entry.stat().st_mtime > _ABANDONED
    with contextlib.suppress(OSError):
        return time.time() - entry.stat().st_mtime > _ABANDONED
    return False


def _host() -> str:
    return re.sub(r"[^\w.]", "_", platform.node())[:40] or "host"


def _apply_umask(folder: Path) -> None:
    """Give every file the mode of a newly created one: safetensors creates files readable by the owner only."""
    if os.name == "nt":
        return
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)


def _sync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder` to disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(root, name), "rb+") as file:
                os.fsync(file.fileno())
        sync_folder(Path(root))


# --- JSON files of a model folder ------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """Parse a JSON file of a model; raise `ModelError` if it is unreadable, damaged or too large."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ModelError(f"{path} has {path.stat().st_size:,} bytes, at most {_MAX_JSON_BYTES:,} are read")
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except RecursionError as error:
        raise ModelError(f"{path} is not valid JSON: it is nested too deeply") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}): the file is damaged; fetch the model again") from error


def read_object(path: Path, *, required: bool = False) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the file does not exist and is not required."""
    if not path.is_file():
        if required:
            raise ModelError(f"{path.parent} has no {path.name}; {list_contents(path.parent)}")
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def write_json(path: Path, content: object, *, compact: bool = False) -> None:
    """Write a JSON file, indented unless `compact`."""
    layout: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    path.write_text(json.dumps(content, ensure_ascii=False, **layout) + "\n", encoding="utf-8")


def list_contents(folder: Path) -> str:
    """Name the files of a folder, for messages."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    if not names:
        return "the folder is empty"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"it holds {', '.join(names[:_MAX_NAMES])}{more}"


# --- one writer per output -------------------------------------------------------------------------------------------


class OutputLock:
    """Exclusive lock on an output, held until `release` or the end of the process.

    Raises:
        DataError: another process holds it.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        while True:
            file = open(path, "ab")  # noqa: SIM115 (open for as long as the lock is held)
            if not _try_lock(file):
                file.close()
                raise DataError(
                    f"{target} is being written by another process (it holds {path.name}); "
                    "wait for it, or choose another output path"
                )
            # The previous holder may have removed the file after we opened it: then the lock is on a deleted file.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    break
            file.close()
        self._file: BinaryIO | None = file

    def release(self) -> None:
        """Release the lock and remove its file. Idempotent."""
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
            # A file system without locks (some NFS mounts): writing unguarded is better than refusing to write.
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        return True


def user_cache() -> Path:
    """The folder for data that can be rebuilt: $MUNJANG_CACHE, or `munjang` in the user's cache folder."""
    configured = os.environ.get("MUNJANG_CACHE")
    if configured:
        return Path(configured).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "munjang"
