"""A name, a path or a hub id to a folder on disk. A bundled name comes first, then a folder that is there; the network
is the last thing tried.

`huggingface_hub` is imported only when a hub id has to be looked up, in its cache or on the network.
"""

from __future__ import annotations

import difflib
import os
import re
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from munjang import bundled
from munjang.errors import InputError, ModelError, ModelNotFoundError
from munjang.files import repair_folder

# Where a name without '/' is looked for, as sentence-transformers does.
DEFAULT_ORGANISATION = "sentence-transformers"
CROSS_ORGANISATION = "cross-encoder"
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)?")
_FILES = ("*.json", "*.txt", "*.model", "model*.safetensors", "*/model*.safetensors", "*.vocab", "*.merges")
# Weights of other frameworks, and of this one in other precisions; none of them is read.
_NEVER = ("onnx/*", "openvino/*", "*.onnx", "*.ot", "*.msgpack", "*.h5", "coreml/*")
_CONNECT = 2.0  # seconds to open a connection to the hub
_ANSWER = 10.0  # seconds for its first answer
_REMEMBERED = 10.0  # seconds: a command that names several models waits for a dead network once
_failed: dict[tuple[str, int], tuple[float, str]] = {}  # (host, port) -> when no connection opened, and why
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
    repair_folder(folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelNotFoundError(f"a model is a folder, but {given} is a file: give the folder that holds it")
    if isinstance(path_or_id, Path) or _path_like(given):
        raise ModelNotFoundError(
            f"there is no folder {given} (looked for {folder.absolute()}){_nearest(folder)}{_did_you_mean(given)}"
        )
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
    dead = None if local else _unreachable()
    reasons: list[str] = []
    for hub_id in ids:
        try:
            return _snapshot(hub_id, revision, cache, local or dead is not None)
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
            if not local and dead is None and _no_answer(error):
                dead = _short(error)  # nor would the next id get one
    raise ModelNotFoundError(_not_found(name, ids, reasons, cache, revision, "" if local else dead))


def _snapshot(hub_id: str, revision: str | None, cache: Path, local: bool) -> Path:
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError as error:
        raise ModelError(f"the hub id {hub_id!r} needs huggingface_hub: pip install huggingface_hub") from error
    patterns, missing = list(_FILES), None
    if not local:
        try:
            files = [
                file.rfilename for file in HfApi().model_info(hub_id, revision=revision, timeout=_ANSWER).siblings or ()
            ]
        except Exception as error:  # no such model, or no network: only the cache can have it
            local, missing = True, error
        else:  # pickles only from a model that has no safetensors
            safe = any(Path(file).name.startswith("model") and file.endswith(".safetensors") for file in files)
            patterns += [] if safe else _PICKLES
    try:
        path = snapshot_download(
            hub_id,
            revision=revision,
            cache_dir=cache,
            local_files_only=local,
            allow_patterns=patterns,
            ignore_patterns=list(_NEVER),
        )
    except Exception as error:
        # A partial snapshot may still do; otherwise the hub's own answer says more than an empty cache.
        if missing is None or getattr(error, "snapshot_path", None):
            raise
        raise missing from error
    return Path(path)


def _no_answer(error: Exception) -> bool:
    """Whether the network failed, and not the request: no response, and no id that is refused before it is sent."""
    return getattr(error, "response", None) is None and not isinstance(error, ValueError)


def _unreachable() -> str | None:
    """Why the hub cannot be reached; None if a connection opens in time.

    huggingface_hub retries every request for half a minute where there is no network. Only opening a connection is
    limited here: a slow network has all the time it needs for answers and downloads. A name server can hang too, and
    its look-up takes no time-out, hence the thread.
    """
    try:
        from huggingface_hub import constants
    except ImportError:
        return None  # `_snapshot` says so
    hop = _first_hop(str(constants.ENDPOINT))
    failed, reason = _failed.get(hop, (0.0, ""))
    if reason and time.monotonic() - failed < _REMEMBERED:
        return reason
    outcome: list[str] = []

    def connect() -> None:
        try:
            socket.create_connection(hop, timeout=_CONNECT).close()
            outcome.append("")
        except OSError as error:
            outcome.append(str(error))

    probe = threading.Thread(target=connect, daemon=True)
    probe.start()
    probe.join(_CONNECT)
    if outcome and not outcome[0]:
        return None
    problem = outcome[0] if outcome else f"none within {_CONNECT:g} s"
    _failed[hop] = time.monotonic(), f"no connection to {hop[0]}:{hop[1]}: {problem}"
    return _failed[hop][1]


def _first_hop(endpoint: str) -> tuple[str, int]:
    """Host and port to connect to first: the proxy's where the environment names one."""
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(url.netloc):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return url.hostname or "", url.port or {"https": 443, "http": 80}.get(url.scheme, 1080)


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _did_you_mean(name: str) -> str:
    """The bundled name that comes close, as a question; a full stop if none does."""
    near = difflib.get_close_matches(name.rstrip("/").rpartition("/")[2].lower(), bundled.NAMES, n=1, cutoff=0.8)
    return f"; did you mean the bundled model {near[0]!r}?" if near else "."


def _not_found(
    name: str, ids: list[str], reasons: list[str], cache: Path, revision: str | None, dead: str | None
) -> str:
    """`dead`: why the hub gave no answer, empty if it was not asked."""
    at = f" at revision {revision!r}" if revision else ""
    places = [f"a bundled model ({', '.join(bundled.NAMES)})"] if "/" not in name else []
    places += [f"a folder ({Path(name).absolute()})", f"the hub cache ({cache})"]
    if dead is None:
        places.append(f"the hub ({'; '.join(reasons)})")
        remedy = "check the name, or give the path of a folder"
    else:
        asked = " or ".join(ids)
        state = f"the hub was not reachable ({dead})" if dead else "the hub was not asked (offline mode)"
        places[-1] += f" for {asked}; {state}"
        remedy = "download the model once while online, or give the path of a folder"
    return f"no model {name!r}{at}{_did_you_mean(name)} Looked for: {', '.join(places)}. To fix it: {remedy}"
