"""The bundled models: names and folders. They need no network.

    munjang-ko-en           ko-en/          bi-encoder, Korean and English: `munjang.load()`
    munjang-rerank-ko-en    rerank-ko-en/   cross-encoder over it: `munjang.load_reranker()`

A bundled name always means the bundled model. To name a folder that happens to be called the same, give a path:
'./munjang-ko-en', or a `pathlib.Path`.
"""

from __future__ import annotations

from pathlib import Path

from munjang.errors import InputError, ModelNotFoundError

BI_ENCODER = "munjang-ko-en"
RERANKER = "munjang-rerank-ko-en"
_FOLDERS = {BI_ENCODER: "ko-en", RERANKER: "rerank-ko-en"}
NAMES = tuple(_FOLDERS)

_FOLDER = Path(__file__).parent


def path(name: str) -> Path:
    """Return the folder of a bundled model.

    Raises:
        InputError: There is no bundled model of this name.
        ModelNotFoundError: The installation lacks its files.
    """
    if name not in _FOLDERS:
        raise InputError(f"a bundled model is one of {', '.join(NAMES)}, got {name!r}")
    folder = _FOLDER / _FOLDERS[name]
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(
            f"this installation of munjang lacks the files of its model {name} (looked for {folder}): install munjang "
            "from its wheel or from a whole copy of its repository, or give the folder or hub id of another model"
        )
    return folder


def name_of(folder: Path) -> str | None:
    """Return the name of the bundled model in this folder; None for any other folder."""
    absolute = Path(folder).absolute()
    return next((name for name, own in _FOLDERS.items() if absolute == (_FOLDER / own).absolute()), None)
