"""Who may ask: API keys with roles, and what a browser may do to a service that needs none.

Enters: a file of keys or the environment variable MUNJANG_KEYS, and requests. Leaves: requests with a role, or 401/403.
Keys are kept and compared as SHA-256 digests, all of them, in constant time. A service without keys lets everybody on
this machine write, and every browser on it runs pages of strangers: so such a service refuses requests that a page of
another origin makes, and host names that a stranger could point at this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from munjang.errors import DataError, InputError
from munjang.serve.errors import Forbidden, ServeError, Unauthorized, answer, routed_path
from munjang.serve.settings import Role, ServeSettings, is_loopback

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Receive, Scope, Send

ENVIRONMENT = "MUNJANG_KEYS"
LEAST_CHARACTERS = 8
_KEY = re.compile(r"[\x21-\x7e]+")  # what a header can carry without quoting
_OPEN = ("/", "/health", "/ready", "/favicon.ico")  # need no key: probes, and the page that asks for one
_OPEN_BELOW = "/page/"


@dataclass(frozen=True)
class Keys:
    """Keys with their roles and names."""

    roles: Mapping[str, Role]
    names: Mapping[str, str]


def read_keys(path: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Keys:
    """The keys of a file (`KEY ROLE [NAME]` in each line, or JSON) and of MUNJANG_KEYS; none is legal.

    JSON: {"KEY": "read"} or [{"key": "KEY", "role": "write", "name": "the crawler"}]. MUNJANG_KEYS: lines, or entries
    apart by commas, such as "KEY:read,KEY:write".
    """
    roles: dict[str, Role] = {}
    names: dict[str, str] = {}
    for where, key, role, name in [*_of_file(path), *_of_environment(environment or os.environ)]:
        if not _KEY.fullmatch(key) or len(key) < LEAST_CHARACTERS:
            raise DataError(
                f"{where}: a key is at least {LEAST_CHARACTERS} letters, digits or signs without spaces (`python -c "
                '"import secrets; print(secrets.token_urlsafe(24))"` makes one)'
            )
        if role not in get_args(Role):
            raise DataError(f"{where}: the role must be one of {', '.join(get_args(Role))}, got {role!r}")
        if roles.get(key, role) != role:
            raise DataError(f"{where}: this key stands twice, with two roles")
        roles[key] = role  # type: ignore[assignment]
        names[key] = name or f"key {len(roles)}"
    return Keys(roles, names)


_Entry = tuple[str, str, str, str]  # where it stands, key, role, name


def _of_file(path: str | Path | None) -> list[_Entry]:
    if path is None:
        return []
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the keys cannot be read ({error})") from error
    found = _of_json(text, str(path)) if text.lstrip()[:1] in ("{", "[") else _of_lines(text, str(path))
    if not found:
        raise DataError(f"{path}: there is no key in it; a line is KEY ROLE [NAME]")
    return found


def _of_environment(environment: Mapping[str, str]) -> list[_Entry]:
    text = environment.get(ENVIRONMENT, "")
    if text.lstrip()[:1] in ("{", "["):
        return _of_json(text, ENVIRONMENT)
    entries = [part.strip() for line in text.splitlines() for part in line.split(",")]
    return _of_lines("\n".join(re.sub(r":(read|write)\b", r" \1", entry) for entry in entries), ENVIRONMENT)


def _of_lines(text: str, name: str) -> list[_Entry]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split(maxsplit=2)
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2:
            raise DataError(f"{name}, line {number}: expected KEY ROLE [NAME], got {len(words)} word")
        found.append((f"{name}, line {number}", words[0], words[1], words[2].strip() if len(words) > 2 else ""))
    return found


def _of_json(text: str, name: str) -> list[_Entry]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise DataError(f"{name}: the keys are no valid JSON ({error})") from None
    rows = [{"key": key, "role": role} for key, role in given.items()] if isinstance(given, dict) else given
    found = []
    for number, row in enumerate(rows, start=1):
        where = f"{name}, entry {number}"
        if not isinstance(row, dict) or not isinstance(row.get("key"), str) or not isinstance(row.get("role"), str):
            raise DataError(f'{where}: expected {{"key": "...", "role": "read"}}')
        found.append((where, row["key"], row["role"], str(row.get("name") or "")))
    return found


@dataclass(frozen=True)
class Caller:
    """Who made a request."""

    role: Role
    name: str  # for the log; never the key


class Doorkeeper:
    """Tells who made a request, or refuses it."""

    def __init__(self, settings: ServeSettings) -> None:
        self._keys = [
            (_digest(key), Caller(role, settings.key_names.get(key, f"key {number}")))
            for number, (key, role) in enumerate(settings.keys.items(), start=1)
        ]
        self._cors = set(settings.cors)
        self._guarded = not self._keys and not settings.allow_open and is_loopback(settings.host)

    def caller(self, connection: HTTPConnection) -> Caller:
        """The caller; a ServeError where there is none."""
        if not self._keys:
            if self._guarded:
                self._check_browser(connection)
            return Caller("write", "")
        found = self._known(_given_key(connection))
        if found is not None:
            return found
        path = routed_path(connection.scope)  # what is routed; `url.path` can be steered by a malformed Host header
        if connection.scope["method"] in ("GET", "HEAD") and (path in _OPEN or path.startswith(_OPEN_BELOW)):
            return Caller("read", "")
        given = _given_key(connection)
        raise Unauthorized(
            "this service needs a key: send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
            if given is None
            else "the key is not one of this service's",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _known(self, given: str | None) -> Caller | None:
        """Compares with every key, whatever is found: the time tells nothing."""
        digest, found = _digest(given or ""), None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found if given else None

    def _check_browser(self, connection: HTTPConnection) -> None:
        host = connection.headers.get("host", "")
        if not _is_local_name(host):
            raise Forbidden(
                f"this service has no keys and answers on this machine only, but was asked as {host[:100]!r}: ask it "
                "as 127.0.0.1, give it keys, or start it with --allow-open"
            )
        origin = connection.headers.get("origin")
        if origin is None or origin in self._cors or "*" in self._cors:
            return
        if not host or urlsplit(origin).netloc.lower() != host.lower():
            raise Forbidden(
                f"a page of {origin[:100]!r} may not call this service: start it with --cors {origin[:100]}"
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _given_key(connection: HTTPConnection) -> str | None:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return connection.headers.get("x-api-key") or None


def _is_local_name(host: str) -> bool:
    """Whether a name cannot be one that a stranger registered: an address, localhost, or a name without a dot."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if "." not in name or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class KeyCheck:
    """Lets nobody through without a role; `request.state.caller` is who it is."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self._doorkeeper = Doorkeeper(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":  # nothing here speaks it, and it would pass by the keys
                raise InputError("there are no web sockets here")
            await self._app(scope, receive, send)
            return
        from starlette.requests import HTTPConnection

        connection = HTTPConnection(scope)
        try:
            caller = self._doorkeeper.caller(connection)
        except ServeError as error:
            await answer(routed_path(scope), error)(scope, receive, send)
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        state["caller"] = caller
        await self._app(scope, receive, send)
