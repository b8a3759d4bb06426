"""What a service is told before it starts: models, indexes, address, keys, limits.

Enters: what a person wrote on the command line or in code. Leaves: one frozen `ServeSettings`, checked. An address that
other machines can reach is refused without keys, unless the person says that it shall be open.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from munjang.errors import InputError

Role = Literal["read", "write"]  # a writer may read too
LogFormat = Literal["text", "json"]

_NAME = re.compile(
    r"[\w][\w.@+-]{0,99}", re.UNICODE
)  # of models and indexes: one part of a path, no slash, no dots first
_ORIGIN = re.compile(r"https?://[^\s/*?#]+")


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how much may wait."""

    body_bytes: int = 8 << 20  # of a JSON body
    file_bytes: int = 256 << 20  # of an uploaded file
    unpacked_bytes: int = 256 << 20  # of an uploaded file, decompressed and decoded
    file_rows: int = 1_000_000
    file_columns: int = 1000
    body_seconds: float = 30.0  # between two pieces of a body; a file has as long as it keeps coming
    batch: int = 1024  # texts in one request
    tokens: int = 262_144  # in one request
    query_characters: int = 4096
    queue_tokens: int = 1_048_576  # waiting in one model's queue
    k: int = 1000  # hits; candidates for a reranker likewise
    cluster_texts: int = 20_000
    map_passages: int = 50_000  # a larger index is mapped by an even sample
    searches: int = 16  # at once, in threads; most of them wait for a model
    deadline_s: float = 60.0  # for one request
    rerank_budget: float = 0.2  # seconds for the reranker of a search that names no number of candidates
    drain_s: float = 30.0  # to finish what was accepted when the service ends

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            whole = isinstance(one.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
                kind = "a whole number" if whole else "a number"
                raise InputError(f"limits.{one.name} must be {kind} above 0, got {value!r}")


@dataclass(frozen=True)
class ServeSettings:
    """What is served, where, and to whom."""

    models: Mapping[str, str | Path] = field(default_factory=dict)  # name -> bi-encoder; the first is the default one
    rerankers: Mapping[str, str | Path] = field(default_factory=dict)  # name -> cross-encoder; the first likewise
    indexes: Mapping[str, str | Path] = field(default_factory=dict)  # name -> folder or address; the first likewise
    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    keys: Mapping[str, Role] = field(default_factory=dict, repr=False)  # key -> role
    key_names: Mapping[str, str] = field(default_factory=dict, repr=False)  # key -> its name in the log
    cors: tuple[str, ...] = ()  # origins whose pages may call, such as https://example.org; "*" for all
    allow_open: bool = False  # serve other machines without keys
    limits: Limits = Limits()
    log_format: LogFormat = "text"
    device: str | None = None  # of the models
    page: bool = True  # serve the page at /
    examples: tuple[str, ...] = ()  # queries that the page suggests
    title: str = "Munjang"

    def __post_init__(self) -> None:
        for what in ("models", "rerankers", "indexes"):
            for name in getattr(self, what):
                check_name(name, what)
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 0 <= self.port <= 65535:
            raise InputError(f"port must be 0..65535, got {self.port!r}")
        if self.log_format not in get_args(LogFormat):
            raise InputError(f"log_format must be one of {', '.join(get_args(LogFormat))}, got {self.log_format!r}")
        for role in self.keys.values():
            if role not in get_args(Role):
                raise InputError(f"the role of a key is one of {', '.join(get_args(Role))}, got {role!r}")
        for origin in self.cors:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InputError(f"a CORS origin is like https://example.org (no path), or *, got {origin!r}")
        if not is_loopback(self.host) and not self.keys and not self.allow_open:
            raise InputError(
                f"{self.host} can be reached by other machines, and there are no keys: give keys (--keys FILE or the "
                "environment variable MUNJANG_KEYS), serve 127.0.0.1 only, or say --allow-open"
            )


def check_name(name: str, what: str) -> None:
    """Names stand in addresses, so they must be one plain part of a path."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"the names of {what} are letters, digits and . _ - @ + (at most 100, the first a letter or digit), "
            f"got {name!r}: name it, NAME=PATH"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a host name: it may be anything
