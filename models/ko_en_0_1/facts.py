"""making.json -> the facts of a card, checked: what the making of a model leaves for people to read.

    format     1
    name       munjang-ko-en
    kind       bi-encoder or cross-encoder
    licence    of the weights
    command    that makes the model again
    seed
    model      {layers, hidden size, vocabulary, parameters, dimension, max length, ...}, shown as it is
    sizes      [{what, bytes, source}]
    data       [{name, set, licence, rows, use, source}]     set: as `python -m models.ko_en_0_1 models --trained-on` takes it
    teachers   [{name, licence, use, source}]
    stages     [{name, seconds, settings}]
    selection  [{set, metric, value, source}]                scores that chose; 0..1
    speed      [{what, per second, device, source}]          from `python -m benchmarks.encode`
    limits     {en: [...], ko: [...]}                        beside those that every such model has
    machine    {device, torch, ...}

A text is a string, or {en, ko}. `source` says where a figure or a file comes from: no figure stands in a card without
one. speed, limits and machine may be absent; the card then says that there is nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.ko_en_0_1.words import Language
from munjang.errors import DataError

_TOP = ("name", "kind", "licence", "command", "seed", "model")
_LISTS: dict[str, tuple[str, ...]] = {
    "sizes": ("what", "bytes", "source"),
    "data": ("name", "set", "licence", "rows", "use", "source"),
    "teachers": ("name", "licence", "use", "source"),
    "stages": ("name", "seconds", "settings"),
    "selection": ("set", "metric", "value", "source"),
    "speed": ("what", "per second", "device", "source"),
}
_OPTIONAL = ("speed",)
KINDS = ("bi-encoder", "cross-encoder")


@dataclass(frozen=True)
class Making:
    """What making.json says, with everything in it that a card needs."""

    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.content["name"])

    @property
    def is_cross(self) -> bool:
        return bool(self.content["kind"] == "cross-encoder")

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """A list of facts; empty where it is absent and may be."""
        return list(self.content.get(key, []))


def read_making(path: str | Path) -> Making:
    """Read and check; what is missing is named."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; the making of a model leaves it beside the model") from None
    except ValueError as error:
        raise DataError(f"{path}: expected JSON, got something else: {error}") from None
    return check_making(content, str(path))


def check_making(content: object, where: str = "making.json") -> Making:
    """The facts, or an error that names everything that is missing."""
    if not isinstance(content, dict) or content.get("format") != 1:
        raise DataError(f"{where}: expected the facts of a making with format 1")
    missing = [key for key in _TOP if key not in content]
    if "kind" in content and content["kind"] not in KINDS:
        missing.append(f"kind must be {' or '.join(KINDS)}")
    for key, wanted in _LISTS.items():
        rows = content.get(key, [] if key in _OPTIONAL else None)
        if not isinstance(rows, list):
            missing.append(f"{key} (a list)")
            continue
        for place, row in enumerate(rows):
            lacks = [part for part in wanted if not isinstance(row, dict) or part not in row]
            missing += [f"{key}[{place}].{part}" for part in lacks]
    if missing:
        raise DataError(f"{where}: a card needs {', '.join(missing)}; no figure stands in it without its source")
    return Making(content)


def said(value: object, language: Language) -> str:
    """A text of the facts in the language of the card."""
    if isinstance(value, Mapping):
        return str(value.get(language, value.get("en", "")))
    return str(value)
