"""`resolve`: a bundled name, a path or a hub id to a folder. The network comes last.

`huggingface_hub` is imported only to look a hub id up, in its cache or on the network.
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

_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)?")
_FILES = ("*.json", "*.txt", "*.model", "model*.safetensors", "*/model*.safetensors", "*.vocab", "*.merges")
_PICKLES = ("pytorch_model*.bin", "*/pytorch_model*.bin", "pytorch_model*.bin.index.json")
_IGNORED = ("onnx/*", "openvino/*", "*.onnx", "*.ot", "*.msgpack", "*.h5", "coreml/*")
_CONNECT_TIMEOUT = 2.0  # seconds to open a connection to the hub
_ANSWER_TIMEOUT = 10.0  # seconds for its first answer
_FAILURE_TTL = 10.0  # seconds: a command that names several models waits only once for a dead network
_failures: dict[tuple[str, int], tuple[float, str]] = {}  # (host, port) -> time and reason


def resolve(
    path_or_id: str | Path, *, revision: str | None = None, local_files_only: bool = False, cross: bool = False
) -> Path:
    """Find the folder of a model.

    Args:
        path_or_id: The name of a bundled model, a folder, or a hub id. './NAME' or a `Path` is always a folder.
        revision: A commit, branch or tag of the hub.
        local_files_only: Look in the hub's cache only.
        cross: Look for a name without '/' under 'cross-encoder' instead of 'sentence-transformers'.

    Returns:
        The folder; a hub model is downloaded into the hub's cache first.

    Raises:
        ModelNotFoundError: There is no such model; the message lists where it was looked for.
        ModelError: The hub refuses access, or huggingface_hub is not installed.
        InputError: The name is empty, or a bundled model was requested with a revision.
    """
    name = os.fspath(path_or_id)
    if isinstance(path_or_id, str) and name in bundled.NAMES:
        if revision is not None:
            raise InputError(f"{name} is part of this installation and has no revisions, got revision={revision!r}")
        return bundled.path(name)
    if not name.strip():
        raise InputError("a model is named by a folder or a hub id ('name' or 'organisation/name'), got an empty text")
    folder = Path(name).expanduser()
    repair_folder(folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelNotFoundError(f"a model is a folder, but {name} is a file: give the folder that holds it")
    if isinstance(path_or_id, Path) or _is_path(name):
        parent = folder.absolute()
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        raise ModelNotFoundError(
            f"there is no folder {name} (looked for {folder.absolute()}); the path exists as far as {parent}"
            f"{_suggestion(name)}"
        )
    organisation = "cross-encoder" if cross else "sentence-transformers"
    ids = [name] if "/" in name else [f"{organisation}/{name}", name]
    switches = (os.environ.get(switch, "").upper() for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    offline = local_files_only or any(switch in ("1", "ON", "YES", "TRUE") for switch in switches)
    return _find_on_hub(name, ids, revision, offline=offline)


def source_of(folder: Path) -> str:
    """Where a folder came from: a bundled name, id@revision of a snapshot in the hub's cache, or the path."""
    own = bundled.name_of(folder)
    if own is not None:
        return own
    parts = folder.absolute().parts
    if len(parts) >= 3 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return f"{parts[-3].removeprefix('models--').replace('--', '/')}@{parts[-1]}"
    return str(folder)


def _is_path(text: str) -> bool:
    """Whether a text can only be a path."""
    if not _NAME.fullmatch(text) or text.endswith(".") or ".." in text or "--" in text:
        return True
    # 'models/mine' where ./models exists is a path, not an organisation of that name.
    first, slash, _ = text.partition("/")
    return bool(slash) and Path(first).is_dir()


def _cache() -> Path:
    """The hub's cache by the current environment; huggingface_hub reads it once, at import."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"


def _find_on_hub(name: str, ids: list[str], revision: str | None, *, offline: bool) -> Path:
    try:
        from huggingface_hub import errors
    except ImportError as error:
        raise ModelError(f"the hub id {name!r} needs huggingface_hub: pip install huggingface_hub") from error
    # The base of HfHubHTTPError covers the errors of the HTTP library, which differs between releases.
    hub_errors: tuple[type[Exception], ...] = (*errors.HfHubHTTPError.__bases__, OSError, ValueError, RuntimeError)
    cache = _cache()
    unreachable = None if offline else _connection_problem()
    reasons: list[str] = []
    for hub_id in ids:
        try:
            return _download(hub_id, revision, cache, offline or unreachable is not None, hub_errors)
        except hub_errors as error:  # noqa: PERF203 (at most two ids)
            # A partial snapshot of another program may still have all files that are read here.
            partial = Path(getattr(error, "snapshot_path", "") or cache / "none")
            if (partial / "config.json").is_file() or (partial / "modules.json").is_file():
                return partial
            if isinstance(error, errors.GatedRepoError):
                raise ModelError(
                    f"the hub model {hub_id!r} is open only to those who accepted its terms: accept them on its page, "
                    "then log in with `hf auth login` or set HF_TOKEN"
                ) from error
            reasons.append(f"{hub_id}: {_summarize(error)}")
            answered = getattr(error, "response", None) is not None or isinstance(error, ValueError)
            if not offline and unreachable is None and not answered:
                unreachable = _summarize(error)
    at = f" at revision {revision!r}" if revision else ""
    places = [f"a bundled model ({', '.join(bundled.NAMES)})"] if "/" not in name else []
    places += [f"a folder ({Path(name).absolute()})", f"the hub cache ({cache})"]
    remedy = "download the model once while online, or give the path of a folder"
    if offline:
        places[-1] += f" for {' or '.join(ids)}; the hub was not asked (offline mode)"
    elif unreachable is not None:
        places[-1] += f" for {' or '.join(ids)}; the hub was not reachable ({unreachable})"
    else:
        places.append(f"the hub ({'; '.join(reasons)})")
        remedy = "check the name, or give the path of a folder"
    suggestion = _suggestion(name) or "."
    raise ModelNotFoundError(f"no model {name!r}{at}{suggestion} Looked for: {', '.join(places)}. To fix it: {remedy}")


def _download(
    hub_id: str, revision: str | None, cache: Path, local: bool, hub_errors: tuple[type[Exception], ...]
) -> Path:
    """Download a snapshot into the cache, or find it there; pickles only of a model without safetensors."""
    from huggingface_hub import HfApi, snapshot_download

    patterns = list(_FILES)
    refusal: Exception | None = None
    if not local:
        try:
            siblings = HfApi().model_info(hub_id, revision=revision, timeout=_ANSWER_TIMEOUT).siblings or ()
        except hub_errors as error:  # no such model, or no network: only the cache can have it
            local, refusal = True, error
        else:
            names = [Path(file.rfilename).name for file in siblings]
            safe = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
            patterns += [] if safe else _PICKLES
    try:
        path = snapshot_download(
            hub_id,
            revision=revision,
            cache_dir=cache,
            local_files_only=local,
            allow_patterns=patterns,
            ignore_patterns=list(_IGNORED),
        )
    except hub_errors as error:
        # The hub's own refusal explains more than an empty cache.
        if refusal is None or getattr(error, "snapshot_path", None):
            raise
        raise refusal from error
    return Path(path)


def _connection_problem() -> str | None:
    """Why no connection to the hub opens, or None.

    huggingface_hub retries every request for half a minute without a network. Only opening the connection is limited
    here, so that a slow network has all its time for answers and downloads. A name server can hang too, and its look-up
    takes no time-out, hence the thread.
    """
    from huggingface_hub import constants

    hop = _first_hop(str(constants.ENDPOINT))
    failed, reason = _failures.get(hop, (0.0, ""))
    if reason and time.monotonic() - failed < _FAILURE_TTL:
        return reason
    problems = [f"none within {_CONNECT_TIMEOUT:g} s"]

    def connect() -> None:
        try:
            socket.create_connection(hop, timeout=_CONNECT_TIMEOUT).close()
            problems.append("")
        except OSError as error:
            problems.append(str(error) or type(error).__name__)

    probe = threading.Thread(target=connect, daemon=True)
    probe.start()
    probe.join(_CONNECT_TIMEOUT)
    problem = problems[-1]
    if not problem:
        return None
    _failures[hop] = time.monotonic(), f"no connection to {hop[0]}:{hop[1]}: {problem}"
    return _failures[hop][1]


def _first_hop(endpoint: str) -> tuple[str, int]:
    """Host and port of the first connection: the proxy's, if the environment names one."""
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(url.netloc):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return url.hostname or "", url.port or {"https": 443, "http": 80}.get(url.scheme, 1080)


def _summarize(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _suggestion(name: str) -> str:
    """A question that names the most similar bundled model, or nothing."""
    near = difflib.get_close_matches(name.rstrip("/").rpartition("/")[2].lower(), bundled.NAMES, n=1, cutoff=0.8)
    return f"; did you mean the bundled model {near[0]!r}?" if near else ""
