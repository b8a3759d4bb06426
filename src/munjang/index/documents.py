"""What a person adds, checked: texts or dicts enter, `Incoming` leaves; and windows of them, bounded by count and size.

A dict has `text`, optionally `id`, and anything else is metadata: texts, numbers, booleans, None, and lists of them.
Whatever cannot be kept as it is (NaN, a date, a dict in a dict) is an error that names the field and the position of
the document, counted from 0, before anything of its window is encoded.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.data.documents import open_documents
from munjang.errors import InputError
from munjang.text.fast_words import LONE_SURROGATE, check_unicode

WINDOW_DOCUMENTS = 2048
WINDOW_CHARACTERS = 4_000_000
LARGEST_INTEGER = 2**63


@dataclass(frozen=True)
class Incoming:
    """A document on its way into the index."""

    position: int  # among all that the call was given, from 0
    id: str
    text: str
    metadata: str  # JSON, keys in the order given
    named: bool  # whether the id was given


def windows(documents: object, every: int | None = None) -> Iterator[list[Incoming]]:
    """The documents in windows of at most so many texts and, unless a single text is longer, so many characters.

    every: a window also ends with each so-many-th document.
    """
    window: list[Incoming] = []
    characters = 0
    for position, given in enumerate(open_documents(documents)):
        document = incoming(given, position)
        if window and (len(window) >= WINDOW_DOCUMENTS or characters + len(document.text) > WINDOW_CHARACTERS):
            yield window
            window, characters = [], 0
        window.append(document)
        characters += len(document.text)
        if every is not None and (position + 1) % every == 0:  # at once: the next one may be long in coming
            yield window
            window, characters = [], 0
    if window:
        yield window


def incoming(given: object, position: int) -> Incoming:
    """One document, checked."""
    if isinstance(given, str):
        given = {"text": given}
    if not isinstance(given, Mapping):
        raise InputError(
            f"document {position} must be a text or a dict with 'text', got {type(given).__name__}: {_short(given)}"
        )
    if "text" not in given:
        raise InputError(f"document {position} has no 'text', only {', '.join(map(repr, given)) or 'nothing'}")
    text = given["text"]
    if not isinstance(text, str):
        raise InputError(
            f"the text of document {position} must be a string, got {type(text).__name__}: {_short(text)}. An empty "
            "text is '', a missing one must be left out or replaced"
        )
    check_unicode([text], first=position)
    id = given.get("id")
    if isinstance(id, str) and not id.strip():
        raise InputError(
            f"the id of document {position} is empty: give a text or a number, or leave it out for one to be made"
        )
    metadata = {name: value for name, value in given.items() if name not in ("id", "text")}
    return Incoming(
        position,
        secrets.token_hex(8) if id is None else id_of(id, f"document {position}"),
        text,
        _json(metadata, position),
        id is not None,
    )


def title_of(metadata: Mapping[str, Any] | str, field: str | None) -> str:
    """The title of a document, by its metadata or the JSON of it; '' where it has none or the index knows no field."""
    if field is None or metadata == "{}":
        return ""
    title = (json.loads(metadata) if isinstance(metadata, str) else metadata).get(field)
    return title.strip() if isinstance(title, str) else ""


def titled(title: str, passage: str) -> str:
    """What is searched of a passage: the document's title, where it has one, and the passage below it."""
    return f"{title}\n{passage}" if title else passage


def id_of(given: object, whose: str) -> str:
    """An id as a text; whole numbers become one."""
    if isinstance(given, np.integer):
        given = int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    if not isinstance(given, str):
        raise InputError(
            f"the id of {whose} must be a text or a whole number, got {type(given).__name__}: {_short(given)}"
        )
    if LONE_SURROGATE.search(given):
        raise InputError(f"the id of {whose} is not valid Unicode: {_short(given)}")
    return given


def _json(metadata: Mapping[object, object], position: int) -> str:
    if not metadata:
        return "{}"
    checked = {_name(name, position): _value(value, str(name), position) for name, value in metadata.items()}
    return json.dumps(checked, ensure_ascii=False, allow_nan=False)


def _name(name: object, position: int) -> str:
    if not isinstance(name, str) or not name.strip() or LONE_SURROGATE.search(name):
        raise InputError(f"document {position}: a field must be named by a text, got {_short(name)}")
    return name


def _value(value: object, name: str, position: int) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_scalar(item, name, position, within=True) for item in value]
    return _scalar(value, name, position)


def _scalar(value: object, name: str, position: int, *, within: bool = False) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    where = f"document {position}: {'a value in the list' if within else 'the field'} {name!r}"
    if value is None and not within:
        return None
    if isinstance(value, str):
        if LONE_SURROGATE.search(value):
            raise InputError(f"{where} is not valid Unicode: {_short(value)}")
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}, which JSON does not have: leave the field out, or give a number")
    if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        raise InputError(f"{where} must fit into 64 bits, got {value}: give it as a text")
    if isinstance(value, bool | int | float):
        return value
    raise InputError(
        f"{where} must be a text, a number, true or false, or a list of them, got {type(value).__name__}: "
        f"{_short(value)}. Make it one (a date: '2024-05-01', so that ranges work), or leave it out"
    )


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
