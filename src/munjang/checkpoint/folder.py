"""A model folder: its JSON files, read with limits, and reads that a concurrent save cannot mix up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from munjang.checkpoint.swap import repair
from munjang.errors import ModelError, ModelNotFoundError

_MAX_JSON_BYTES = 64 << 20  # the index of a model's shards, the largest of these files, has a few megabytes
_MAX_NAMES = 20  # file names in a message
_ATTEMPTS = 5
Result = TypeVar("Result")


def read_json(path: Path) -> Any:
    """Parse a JSON file; raise `ModelError` if it is unreadable, damaged or too large."""
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


def read_consistently(folder: Path, read: Callable[[Path], Result]) -> Result:
    """Call `read(folder)`, again if the folder was replaced meanwhile: the result is never half old, half new."""
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            result = read(folder)
        except ModelError:
            if _identity(folder) == before:
                raise
            continue
        if _identity(folder) == before:
            return result
    raise ModelError(f"{folder} was replaced {_ATTEMPTS} times while it was read; wait until it is no longer written")


def _identity(folder: Path) -> tuple[int, int]:
    repair(folder)
    if not folder.is_dir():
        raise ModelNotFoundError(f"there is no model folder {folder}")
    status = folder.stat()
    return status.st_dev, status.st_ino
