"""A name, a path or a hub id to a folder on disk. A bundled name comes first, then a folder that is there; the network
is the last thing tried.

`huggingface_hub` is imported only when a hub id has to be looked up, in its cache or on the network.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from munjang import bundled
from munjang.checkpoint.swap import repair
from munjang.errors import InputError, ModelError, ModelNotFoundError

# Where a name without '/' is looked for, as sentence-transformers does.
DEFAULT_ORGANISATION = "sentence-transformers"
CROSS_ORGANISATION = "cross-encoder"
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)?")
_FILES = ("*.json", "*.txt", "*.model", "model*.safetensors", "*/model*.safetensors", "*.vocab", "*.merges")
# Weights of other frameworks, and of this one in other precisions; none of them is read.
_NEVER = ("onnx/*", "openvino/*", "*.onnx", "*.ot", "*.msgpack", "*.h5", "coreml/*")
_PICKLES = ("pytorch_model*.bin", "*/pytorch_model*.bin", "pytorch_model*.bin.index.json")


def resolve(
    path_or_id: str | Path,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
    organisation: str = DEFAULT_ORGANISATION,
) -> Path:
    """The folder of a model: a bundled one by its name, `path_or_id` itself where it is a folder, else from the hub.

    A bundled name means the bundled model; './NAME' or a `Path` means a folder of that name.
    """
    given = os.fspath(path_or_id)
    if isinstance(path_or_id, str) and given in bundled.NAMES:
        if revision is not None:
            raise InputError(f"{given} lies in this installation and has no revisions, got revision={revision!r}")
        return bundled.path(given)
    if not given.strip():
        raise InputError("a model is named by a folder or a hub id ('name' or 'organisation/name'), got an empty text")
    folder = Path(given).expanduser()
    repair(folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelNotFoundError(f"a model is a folder, but {given} is a file: give the folder that holds it")
    if isinstance(path_or_id, Path) or _path_like(given):
        raise ModelNotFoundError(f"there is no folder {given} (looked for {folder.absolute()}){_nearest(folder)}")
    ids = [given] if "/" in given else [f"{organisation}/{given}", given]
    return _from_hub(given, ids, revision, local_files_only or _offline())


def _path_like(text: str) -> bool:
    """Whether a text can only mean a path."""
    if not _NAME.fullmatch(text) or text.endswith(".") or ".." in text or "--" in text:
        return True
    # 'models/mine' where ./models is there: a folder was meant, not an organisation of that name.
    first, slash, _ = text.partition("/")
    return bool(slash) and Path(first).is_dir()


def _nearest(folder: Path) -> str:
    """Where a path stops existing."""
    parent = folder.absolute()
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    return f"; the path exists as far as {parent}"


def _offline() -> bool:
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def _cache() -> Path:
    """The hub's cache, by the environment as it is now; huggingface_hub reads it once, at import."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _from_hub(name: str, ids: list[str], revision: str | None, local: bool) -> Path:
    cache = _cache()
    reasons: list[str] = []
    for hub_id in ids:
        try:
            return _snapshot(hub_id, revision, cache, local)
        except Exception as error:  # noqa: PERF203 (whatever the network, the hub and the library for them raise)
            if isinstance(error, ModelError):
                raise
            # A snapshot that another program fetched in part may still hold all that is read here: `read` will see.
            partial = Path(getattr(error, "snapshot_path", "") or cache / "none")
            if (partial / "config.json").is_file() or (partial / "modules.json").is_file():
                return partial
            if type(error).__name__ == "GatedRepoError":
                raise ModelError(
                    f"the hub model {hub_id!r} is open only to those who accepted its terms: accept them on its page, "
                    "then log in with `hf auth login` or set HF_TOKEN"
                ) from error
            reasons.append(f"{hub_id}: {_short(error)}")
    raise ModelNotFoundError(_not_found(name, reasons, cache, revision, local))


def _snapshot(hub_id: str, revision: str | None, cache: Path, local: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelError(f"the hub id {hub_id!r} needs huggingface_hub: pip install huggingface_hub") from error
    path = snapshot_download(
        hub_id,
        revision=revision,
        cache_dir=cache,
        local_files_only=local,
        allow_patterns=list(_FILES) if local else _patterns(hub_id, revision),
        ignore_patterns=list(_NEVER),
    )
    return Path(path)


def _patterns(hub_id: str, revision: str | None) -> list[str]:
    """What to download: pickles only from a model that has no safetensors."""
    from huggingface_hub import HfApi

    try:
        files = HfApi().list_repo_files(hub_id, revision=revision)
    except Exception:  # no network, perhaps, but a cache: the download looks there and says what is wrong
        return list(_FILES)
    safe = any(Path(file).name.startswith("model") and file.endswith(".safetensors") for file in files)
    return list(_FILES) if safe else [*_FILES, *_PICKLES]


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _not_found(name: str, reasons: list[str], cache: Path, revision: str | None, local: bool) -> str:
    at = f" at revision {revision!r}" if revision else ""
    where = "in the cache only, as asked (offline)" if local else "in the cache and on the network"
    remedy = (
        "download it once where there is a network, or give the path of a folder"
        if local
        else "check the name and the network, or give the path of a folder"
    )
    return (
        f"no model {name!r}{at}: there is no folder {Path(name).absolute()}, and the hub was tried {where} "
        f"({cache}): {'; '.join(reasons)}. What to do: {remedy}"
    )
