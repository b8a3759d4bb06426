"""A folder is replaced whole: written aside, forced to the disk, renamed into place.

    .NAME.saving-*     the new folder while it is written; left behind by a killed save, removed by the next
    .NAME.previous     the old folder, from the moment it is renamed aside until it is deleted

A process killed between the two renames leaves no NAME, but `.NAME.previous`: `repair` renames it back. So a reader
finds the old model or the new one, never a part of each.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from munjang.durable import sync_folder
from munjang.errors import InputError, ModelError, MunjangError

# What belongs to a model and goes when it is replaced. Whatever else lies in the folder (.git, notes) stays.
_MODEL_FILE = re.compile(
    r"modules\.json|config\.json|config_sentence_transformers\.json|sentence_[\w-]+_config\.json|generation_config\.json"
    r"|model[\w.-]*\.(safetensors|onnx)(\.index\.json)?|pytorch_model[\w.-]*\.bin(\.index\.json)?"
    r"|tf_model\.h5|flax_model\.msgpack|rust_model\.ot|onnx|openvino"
    r"|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|chat_template\.\w+"
    r"|vocab\.txt|vocab\.json|merges\.txt|sentencepiece\.bpe\.model|spiece\.model|spm\.model|tokenizer\.model"
    r"|munjang\.json|README\.md|\d+_[A-Z]\w*"
)
_DAY = 86_400


def previous_of(folder: Path) -> Path:
    """Where the old folder lies during a replacement."""
    return folder.with_name(f".{folder.name}.previous")


def repair(folder: Path) -> None:
    """Undo a replacement that was killed between its two renames."""
    if not folder.name or folder.name == "..":
        return
    previous = previous_of(folder)
    if not os.path.lexists(folder) and previous.is_dir():
        # A replacement that is going on may be faster: then there is nothing to repair.
        with contextlib.suppress(OSError):
            os.rename(previous, folder)


def replace_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a new folder aside, and put it in the place of `folder`, which any error leaves as it was."""
    target = Path(os.path.realpath(Path(folder).expanduser()))
    repair(target)
    _check_target(target)
    with _saying_why(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean(target)
        aside = _aside(target)
        try:
            aside.mkdir()
            fill(aside)
            _allow_reading(aside)
            if target.is_dir():
                shutil.copymode(target, aside)
            _sync(aside)
            _swap(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _aside(target: Path) -> Path:
    """A new name beside the target that tells whose it is."""
    return target.with_name(f".{target.name}.saving-{_host()}-{os.getpid()}-{secrets.token_hex(4)}")


def _check_target(target: Path) -> None:
    if not target.name:
        raise InputError(f"a model is saved to a folder of its own, not to {target}")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError(f"a model is saved to a folder, but {target} is a file")
    names = {entry.name for entry in target.iterdir()}
    if names and not names & {"modules.json", "config.json"}:
        some = ", ".join(sorted(names)[:5])
        raise InputError(
            f"{target} is there and is not a model (it holds {some}{', ...' if len(names) > 5 else ''}): "
            "nothing was changed; choose another folder, or empty this one"
        )


def _swap(aside: Path, target: Path) -> None:
    previous = previous_of(target)
    for _ in range(100):
        if target.is_dir() and previous.is_dir():
            _finish(previous, target)
        if target.is_dir() and any(target.iterdir()):
            os.rename(target, previous)
        elif target.is_dir() and os.name == "nt":
            target.rmdir()
        try:
            os.rename(aside, target)
            break
        except OSError as error:
            # Somebody who wanted to read found the folder missing and renamed the old one back: once more.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    else:
        raise ModelError(f"{target} is being replaced by others all the time; save to another folder")
    sync_folder(target.parent)
    if previous.is_dir():
        _finish(previous, target)


def _finish(previous: Path, target: Path) -> None:
    """Take over from the old folder what is not part of a model, and delete it."""
    for entry in list(previous.iterdir()):
        if not _MODEL_FILE.fullmatch(entry.name) and not os.path.lexists(target / entry.name):
            os.rename(entry, target / entry.name)
    sync_folder(target)
    # What lies under the name `previous` is always whole, because `repair` trusts it.
    doomed = _aside(target)
    os.rename(previous, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _clean(target: Path) -> None:
    """Remove what killed saves of the same folder left behind."""
    start = f".{target.name}.saving-"
    for entry in target.parent.iterdir():
        if entry.name.startswith(start) and entry.is_dir() and _abandoned(entry, entry.name.removeprefix(start)):
            shutil.rmtree(entry, ignore_errors=True)


def _abandoned(entry: Path, rest: str) -> bool:
    """Whether no process writes there any more; of another machine's only its age tells."""
    host, pid, _ = [*rest.rsplit("-", 2), "", ""][:3]
    if host == _host() and pid.isdigit() and os.name != "nt":
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return int(pid) == os.getpid() and time.time() - entry.stat().st_mtime > _DAY
    with contextlib.suppress(OSError):
        return time.time() - entry.stat().st_mtime > _DAY
    return False


def _host() -> str:
    return re.sub(r"[^\w.]", "_", platform.node())[:40] or "host"


def _allow_reading(folder: Path) -> None:
    """Give every file the mode of one made now: safetensors makes its files for the owner alone, whatever the umask."""
    if os.name == "nt":
        return
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)


def _sync(folder: Path) -> None:
    """Force every file and folder below to the disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(root, name), "rb+") as file:
                os.fsync(file.fileno())
        sync_folder(Path(root))


@contextlib.contextmanager
def _saying_why(target: Path) -> Iterator[None]:
    """Errors of the operating system, whichever library passes them on, as one that says what is safe."""
    try:
        yield
    except MunjangError:
        raise
    except Exception as error:  # safetensors and tokenizers pass errors of the disk on under types of their own
        number = error.errno if isinstance(error, OSError) else None
        safe = f"{target} is as it was" if target.exists() else "nothing was saved"
        if number in (errno.ENOSPC, errno.EDQUOT) or re.search(r"No space left|os error 28|quota", str(error)):
            raise ModelError(f"{target} cannot be saved: the disk is full (or the quota used up); {safe}") from error
        if isinstance(error, OSError) or "os error" in str(error):
            raise ModelError(f"{target} cannot be saved ({error}); {safe}") from error
        raise
