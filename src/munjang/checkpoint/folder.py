"""A model folder: JSON files with limits, reads that a concurrent save cannot mix up, and atomic replacement."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from munjang.errors import InputError, ModelError, ModelNotFoundError, MunjangError
from munjang.files import repair_folder, replace_folder
from munjang.text import tokenizer

_MAX_NAMES = 20  # file names in a message
_ATTEMPTS = 5
Result = TypeVar("Result")

# Entries that belong to a model and are removed when it is replaced; others in the folder (.git, notes) stay.
_MODEL_FILE = re.compile(
    r"modules\.json|config\.json|config_sentence_transformers\.json|sentence_[\w-]+_config\.json|generation_config\.json"
    r"|model[\w.-]*\.(safetensors|onnx)(\.index\.json)?|pytorch_model[\w.-]*\.bin(\.index\.json)?"
    r"|tf_model\.h5|flax_model\.msgpack|rust_model\.ot|onnx|openvino"
    r"|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|chat_template\.\w+"
    r"|vocab\.txt|vocab\.json|merges\.txt|sentencepiece\.bpe\.model|spiece\.model|spm\.model|tokenizer\.model"
    r"|munjang\.json|README\.md|\d+_[A-Z]\w*"
)


def read_object(path: Path, *, required: bool = False) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the file does not exist and is not required."""
    if required and not path.is_file():
        raise ModelError(f"{path.parent} has no {path.name}; {list_contents(path.parent)}")
    return tokenizer.read_object(path)


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
    repair_folder(folder)
    if not folder.is_dir():
        raise ModelNotFoundError(f"there is no model folder {folder}")
    status = folder.stat()
    return status.st_dev, status.st_ino


def replace_model_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Replace a model folder with what `fill` writes into a temporary one; any error leaves the old model untouched."""
    target = Path(os.path.realpath(Path(folder).expanduser()))
    repair_folder(target)
    _check_target(target)
    with _model_errors(target):
        replace_folder(target, fill, owned=_MODEL_FILE.fullmatch)


def _check_target(target: Path) -> None:
    """Refuse a target that is neither a model, nor an empty folder, nor absent."""
    if not target.name:
        raise InputError(f"a model is saved to a folder with a name, not to {target}")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError(f"a model is saved to a folder, but {target} is a file")
    names = {entry.name for entry in target.iterdir()}
    if names and not names & {"modules.json", "config.json"}:
        some = ", ".join(sorted(names)[:5])
        raise InputError(
            f"{target} exists and is not a model (it contains {some}{', ...' if len(names) > 5 else ''}): "
            "nothing was changed; choose another folder, or empty this one"
        )


@contextlib.contextmanager
def _model_errors(target: Path) -> Iterator[None]:
    """Convert disk errors into a ModelError that says what is intact."""
    try:
        yield
    except MunjangError:
        raise
    except Exception as error:  # safetensors and tokenizers raise disk errors as exception types of their own
        number = error.errno if isinstance(error, OSError) else None
        safe = f"{target} is unchanged" if target.exists() else "nothing was saved"
        if number in (errno.ENOSPC, errno.EDQUOT) or re.search(r"No space left|os error 28|quota", str(error)):
            raise ModelError(f"{target} cannot be saved: the disk is full (or the quota used up); {safe}") from error
        if isinstance(error, OSError) or "os error" in str(error):
            raise ModelError(f"{target} cannot be saved ({error}); {safe}") from error
        raise
