"""What a task saves: a folder whose one JSON file says which other files belong to it.

    KIND.json             what it is, and the names, sizes and hashes of its files
    NAME-HASH.suffix      the files; one that changes has another name
    NAME-HASH/            a model, saved as models are

The JSON is written last, aside and renamed: a save that is killed leaves the old thing whole, or nothing. Only then are
the files removed that it no longer names. A reader that meets this moment reads the JSON again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError

from munjang.errors import DataError, InputError, ModelError, ModelNotFoundError
from munjang.files import OutputLock, atomic_write, disk_errors, sync_folder

FORMAT = 1
Fill = Callable[[Path], None]
# Names that saves make, killed ones too; the JSON itself is told apart by its kind.
_OURS = re.compile(r"[a-z]+-[0-9a-f]{16}(\.[a-z]+)?|\.[a-z]+\.tmp\.[a-z]+|\.[a-z]+-[0-9a-f]{16}\.(saving-.*|previous)")
_BLOCK = 1 << 20
_LOOKS = 5  # times that a reader reads the JSON anew


@dataclass(frozen=True)
class Saved:
    """What is to be saved: facts fit for JSON, files and model folders by name, each with what fills it."""

    facts: Mapping[str, object]
    files: Mapping[str, Fill] = field(default_factory=dict)  # "head.safetensors" -> writes it to a path
    models: Mapping[str, tuple[str, Fill]] = field(default_factory=dict)  # "model" -> (fingerprint, writes it)


@dataclass(frozen=True)
class Found:
    """What lies in a folder, looked at and whole."""

    facts: dict[str, object]
    files: dict[str, Path]
    models: dict[str, Path]


def write_folder(folder: str | Path, kind: str, saved: Saved) -> None:
    """Save to a folder, which is new, empty or holds an older one of the same kind; that one is replaced."""
    target = Path(folder).expanduser()
    check_target(target, kind)
    safe = f"the {kind} there is as it was" if (target / f"{kind}.json").is_file() else "nothing was saved"
    with disk_errors(target, safe=safe):
        target.mkdir(parents=True, exist_ok=True)
        lock = OutputLock(target / ".lock", target)
        try:
            files = {name: _write_file(target, name, fill) for name, fill in saved.files.items()}
            models = {name: _write_model(target, name, *given) for name, given in saved.models.items()}
            stated = {"format": FORMAT, "kind": kind, **saved.facts, "files": files, "models": models}
            text = json.dumps(stated, ensure_ascii=False, indent=2, allow_nan=False)
            atomic_write(target / f"{kind}.json", (text + "\n").encode())
            _clean(target, kind, {str(entry["name"]) for entry in files.values()} | set(models.values()))
        except SafetensorError as error:  # which passes errors of the disk on under a type of its own
            raise DataError(f"{target}: it could not be written ({error}); {safe}") from error
        finally:
            lock.release()


def check_target(target: Path, kind: str) -> None:
    """Refuse what is there and is something else; for before the work, too."""
    if not target.name:
        raise InputError(f"a {kind} is saved to a folder of its own, not to {target}")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError(f"a {kind} is saved to a folder, but {target} is a file")
    names = sorted(entry.name for entry in target.iterdir())
    left_behind = {".lock", f"{kind}.json.tmp"}
    if f"{kind}.json" not in names and not all(_OURS.fullmatch(name) or name in left_behind for name in names):
        raise InputError(
            f"{target} is there and is no {kind} (it holds {', '.join(names[:5])}): nothing was changed; choose "
            "another folder, or empty this one"
        )


def read_folder(folder: str | Path, kind: str) -> Found:
    """What `write_folder` saved; a file that is missing or damaged is an error."""
    target = Path(folder).expanduser()
    for look in range(_LOOKS):
        facts = _read_facts(target, kind)
        try:
            return _found(target, kind, facts)
        except FileNotFoundError as error:
            if look == _LOOKS - 1 or _read_facts(target, kind) == facts:
                raise ModelError(
                    f"{target} lacks {Path(str(error.filename)).name}, which its {kind}.json names: copy the whole "
                    "folder again"
                ) from error
    raise ModelError(f"{target} is being written all the time; read it later")


def _found(target: Path, kind: str, facts: dict[str, object]) -> Found:
    files: dict[str, Path] = {}
    for name, entry in _entries(facts.pop("files", None), target, kind).items():
        stated = entry if isinstance(entry, dict) else {}
        path = target / Path(str(stated.get("name"))).name
        if path.stat().st_size != stated.get("bytes") or _hash(path) != stated.get("blake2b"):
            raise ModelError(f"{path} is damaged (its content is not what {kind}.json says): copy the folder again")
        files[name] = path
    models = _entries(facts.pop("models", None), target, kind)
    return Found(facts, files, {name: target / Path(str(place)).name for name, place in models.items()})


def _entries(given: object, target: Path, kind: str) -> dict[str, object]:
    if not isinstance(given, dict):
        raise ModelError(f"{target / kind}.json must name its files and models, got {given!r:.80}: save it again")
    return given


def _read_facts(target: Path, kind: str) -> dict[str, object]:
    path = target / f"{kind}.json"
    if not path.is_file():
        raise ModelNotFoundError(f"there is no {kind} in {target} (looked for {path.absolute()})")
    try:
        facts = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is damaged, it is no JSON ({error}): save the {kind} again") from error
    stated = facts.get("format") if isinstance(facts, dict) else None
    if isinstance(stated, bool) or not isinstance(stated, int) or facts.get("kind") != kind:
        raise ModelError(f"{path} does not describe a {kind}: save the {kind} again")
    if stated > FORMAT:
        raise ModelError(
            f"{path} has format {stated}, which a newer munjang wrote; this one reads up to {FORMAT}: "
            "pip install --upgrade munjang"
        )
    return {name: value for name, value in facts.items() if name not in ("format", "kind")}


def _write_file(target: Path, name: str, fill: Fill) -> dict[str, object]:
    stem, _, suffix = name.partition(".")
    aside = target / f".{stem}.tmp.{suffix}"
    aside.unlink(missing_ok=True)
    aside.touch()
    mode = aside.stat().st_mode & 0o777  # safetensors makes its files for the owner alone
    fill(aside)
    aside.chmod(mode)
    with open(aside, "rb+") as file:
        os.fsync(file.fileno())
    digest = _hash(aside)
    path = target / f"{stem}-{digest[:16]}.{suffix}"
    os.replace(aside, path)
    sync_folder(target)
    return {"name": path.name, "bytes": path.stat().st_size, "blake2b": digest}


def _write_model(target: Path, name: str, fingerprint: str, fill: Fill) -> str:
    place = f"{name}-{hashlib.blake2b(fingerprint.encode(), digest_size=8).hexdigest()}"
    fill(target / place)  # whole or not at all, and the same for the same fingerprint
    return place


def _hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _clean(target: Path, kind: str, named: set[str]) -> None:
    """Remove what an older or a killed save left behind; what is not ours stays."""
    for entry in target.iterdir():
        if entry.name in named or not (_OURS.fullmatch(entry.name) or entry.name == f"{kind}.json.tmp"):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
