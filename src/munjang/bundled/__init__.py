"""The models that lie in the package: a name enters, the folder of its files leaves. No network is ever touched.

    munjang-ko-en           ko-en/          bi-encoder, Korean and English: what `munjang.load()` gives
    munjang-rerank-ko-en    rerank-ko-en/   cross-encoder over it: what `munjang.load_reranker()` gives

A bundled name means the bundled model wherever a model is named. A folder that happens to have the same name is meant
by a path: './munjang-ko-en', or a `pathlib.Path`.
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
    """The folder of a bundled model, which is there and holds a model."""
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
    """The name of the bundled model that lies in this folder; None for any other folder."""
    found = Path(folder).absolute()
    return next((name for name, place in _FOLDERS.items() if found == (_FOLDER / place).absolute()), None)
