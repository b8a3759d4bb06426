"""Replace a model folder atomically, with errors that name the folder and what is intact."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from munjang.errors import InputError, ModelError, MunjangError
from munjang.files import repair_folder, replace_folder

# Entries that belong to a model and are removed when it is replaced; others in the folder (.git, notes) stay.
_MODEL_FILE = re.compile(
    r"modules\.json|config\.json|config_sentence_transformers\.json|sentence_[\w-]+_config\.json|generation_config\.json"
    r"|model[\w.-]*\.(safetensors|onnx)(\.index\.json)?|pytorch_model[\w.-]*\.bin(\.index\.json)?"
    r"|tf_model\.h5|flax_model\.msgpack|rust_model\.ot|onnx|openvino"
    r"|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|chat_template\.\w+"
    r"|vocab\.txt|vocab\.json|merges\.txt|sentencepiece\.bpe\.model|spiece\.model|spm\.model|tokenizer\.model"
    r"|munjang\.json|README\.md|\d+_[A-Z]\w*"
)


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
        raise InputError(f"a model is saved to a folder of its own, not to {target}")
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
