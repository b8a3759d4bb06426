"""Small reads from a model folder: JSON objects, and what the folder holds, for messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from munjang.errors import ModelError

_LISTED = 20
_LARGEST = 64 << 20  # bytes of a JSON file; the index of a model's shards, the largest of them, has a few megabytes


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(f"{path} has {path.stat().st_size:,} bytes, at most {_LARGEST:,} are read")
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except RecursionError as error:
        raise ModelError(f"{path} is not valid JSON: it is nested too deeply") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}): the file is damaged; fetch the model again") from error


def read_object(path: Path, *, required: bool = False) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no such file and it is not required."""
    if not path.is_file():
        if required:
            raise ModelError(f"{path.parent} has no {path.name}; {contents(path.parent)}")
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def contents(folder: Path) -> str:
    """What a folder holds, in words."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    if not names:
        return "the folder is empty"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"it holds {', '.join(names[:_LISTED])}{more}"
