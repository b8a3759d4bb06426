"""Where a remote index is: a text with a scheme enters, a checked `Address` leaves.

    postgresql://user:password@host:5432/database?index=NAME&sslmode=require
    milvus://user:password@host:19530/NAME?secure=true

What stands after the question mark is for the engine (`m`, `ef_search`, `partitions`, TLS files), but for `timeout`
(seconds for one answer) and `attempts` (how often a call is tried), which all engines have. Credentials that the text
leaves out come from the environment: PGUSER and PGPASSWORD, or MILVUS_USER, MILVUS_PASSWORD and MILVUS_TOKEN. A
password is never shown: `str(address)` masks it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from munjang.errors import InputError

Scheme = Literal["postgresql", "milvus"]

_PORTS: dict[Scheme, int] = {"postgresql": 5432, "milvus": 19530}
_PREFIXES: dict[Scheme, str] = {"postgresql": "PG", "milvus": "MILVUS_"}
_SYNONYMS = {"postgres": "postgresql"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SECRETS = ("password", "token", "sslpassword")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")

TIMEOUT = 30.0
ATTEMPTS = 6


@dataclass(frozen=True)
class Address:
    """Where an index is, and how to get there. `host` may be the folder of a PostgreSQL socket."""

    scheme: Scheme
    host: str
    port: int
    name: str  # of the index
    database: str = ""  # PostgreSQL: the database; Milvus: too, by ?database=
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)  # Milvus
    timeout: float = TIMEOUT
    attempts: int = ATTEMPTS
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)  # everything else after the question mark

    def __str__(self) -> str:
        """The address without its secrets."""
        user = f"{quote(self.user)}{':***' if self.password else ''}@" if self.user else ""
        host = quote(self.host, safe="") if self.host.startswith("/") else self.host
        host = f"[{host}]" if ":" in host else host
        place = self.name if self.scheme == "milvus" else self.database
        asked = {} if self.scheme == "milvus" else {"index": self.name}
        asked |= {key: value for key, value in self.parameters.items() if key not in _SECRETS}
        query = urlencode(asked, safe="/:")
        return f"{self.scheme}://{user}{host}:{self.port}/{quote(place)}{'?' if query else ''}{query}"

    def whole(self, key: str, default: int, *, least: int = 1, most: int = 1_000_000) -> int:
        """A parameter that is a whole number."""
        given = self.parameters.get(key)
        if given is None:
            return default
        if not re.fullmatch(r"\d{1,9}", given) or not least <= int(given) <= most:
            raise InputError(f"{self}: {key} must be a whole number of {least}..{most}, got {given!r}")
        return int(given)

    def truth(self, key: str, *, default: bool) -> bool:
        """A parameter that is true or false."""
        given = self.parameters.get(key)
        if given is None:
            return default
        if given.lower() not in _TRUE + _FALSE:
            raise InputError(f"{self}: {key} must be true or false, got {given!r}")
        return given.lower() in _TRUE

    def check_parameters(self, known: tuple[str, ...]) -> None:
        """Raise where a parameter is none that the engine has: a misspelt one would silently do nothing."""
        for key in self.parameters:
            if key not in known:
                raise InputError(
                    f"{self}: unknown parameter {key!r}; there are: timeout, attempts, {', '.join(sorted(known))}"
                )


def is_address(given: object) -> bool:
    """Whether a path is meant for a server: it has a scheme. A folder never has '://' in it."""
    return isinstance(given, str) and _SCHEME.match(given) is not None


def masked(given: str | Path) -> str:
    """A path as it may be shown: an address without its password, a folder as it is."""
    if not is_address(given):
        return str(given)
    try:
        return str(parse(str(given)))
    except InputError:
        return _blanked(str(given))


def parse(text: str) -> Address:
    """Read an address; an InputError says what is wrong, without the password."""
    found = _SCHEME.match(text)
    if found is None:
        raise InputError(f"an address begins with postgresql:// or milvus://, got {text!r:.60}")
    scheme = _SYNONYMS.get(found.group(1).lower(), found.group(1).lower())
    if scheme not in get_args(Scheme):
        raise InputError(
            f"an index is in a folder, or at an address that begins with postgresql:// or milvus://, got "
            f"{found.group(1)}://"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{_blanked(text)} cannot be read as an address ({error}): {_form(scheme)}") from None
    return _checked(cast(Scheme, scheme), parts, port)


def _checked(scheme: Scheme, parts: SplitResult, port: int | None) -> Address:
    shown = _blanked(parts.geturl())
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in parameters:
            raise InputError(f"{shown}: the parameter {key!r} stands twice")
        parameters[key] = value
    place = unquote(parts.path.strip("/"))
    name = parameters.pop("index", "") if scheme == "postgresql" else place
    database = place if scheme == "postgresql" else parameters.pop("database", "")
    if not _NAME.fullmatch(name):
        where = "?index=NAME" if scheme == "postgresql" else "the part after the host"
        raise InputError(
            f"{shown}: the index needs a name ({where}) of letters, digits and _, at most 48, beginning with a letter; "
            f"got {_secretless(name)!r:.80}: {_form(scheme)}"
        )
    if scheme == "postgresql" and (not database or "/" in database):
        raise InputError(f"{shown}: the name of the database is missing: {_form(scheme)}")
    timeout, attempts = _waiting(parameters, shown)
    prefix = _PREFIXES[scheme]

    def secret(value: str | None, key: str) -> str | None:
        return value if value is not None else os.environ.get(prefix + key.upper()) or None

    return Address(
        scheme,
        unquote(parts.hostname or "") or "localhost",
        _PORTS[scheme] if port is None else port,
        name,
        database,
        secret(unquote(parts.username) if parts.username else None, "user"),
        secret(unquote(parts.password) if parts.password else parameters.pop("password", None), "password"),
        secret(parameters.pop("token", None), "token") if scheme == "milvus" else None,
        timeout,
        attempts,
        parameters,
    )


def _waiting(parameters: dict[str, str], shown: str) -> tuple[float, int]:
    timeout, attempts = parameters.pop("timeout", str(TIMEOUT)), parameters.pop("attempts", str(ATTEMPTS))
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", timeout) or float(timeout) <= 0:
        raise InputError(f"{shown}: timeout must be a number of seconds above 0, got {timeout!r}")
    if not re.fullmatch(r"\d{1,3}", attempts) or int(attempts) < 1:
        raise InputError(f"{shown}: attempts must be a whole number of 1..999, got {attempts!r}")
    return float(timeout), int(attempts)


def _blanked(text: str) -> str:
    """An address that may be broken, with whatever stands before the last @, or after a secret's name, hidden."""
    scheme, _, rest = text.partition("://")
    credentials, at, place = rest.rpartition("@")
    user = credentials.partition(":")[0]
    return f"{scheme}://{user}{':***' if ':' in credentials else ''}{at}{_secretless(place)}"


def _secretless(text: str) -> str:
    return re.sub(rf"({'|'.join(_SECRETS)})=[^&]*", r"\1=***", text)


def _form(scheme: str) -> str:
    if scheme == "milvus":
        return "milvus://user:password@host:19530/NAME"
    return "postgresql://user:password@host:5432/database?index=NAME"
