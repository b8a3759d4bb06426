"""Label names: what was asked for, what config.json says, and how both are written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from munjang.errors import InputError

_GENERIC = re.compile(r"(?i)label_\d+|score|\d+")


def generic_labels(count: int) -> tuple[str, ...]:
    """Names where nobody gave any: 'score' for one output, LABEL_0... as transformers has them for more."""
    return ("score",) if count == 1 else tuple(f"LABEL_{i}" for i in range(count))


def is_generic(labels: Sequence[str]) -> bool:
    """Whether the names say nothing, so that better ones may take their place."""
    return all(_GENERIC.fullmatch(name) for name in labels)


def as_labels(asked: Sequence[str] | int | None) -> tuple[str, ...] | None:
    """The labels asked for, by number or by name; None where nothing was asked."""
    if asked is None:
        return None
    if isinstance(asked, bool | str) or not isinstance(asked, int | Sequence):
        raise InputError(f"labels must be a number or a list of names, got {asked!r}")
    if isinstance(asked, int):
        if asked < 1:
            raise InputError(f"labels must be at least 1, got {asked}")
        return generic_labels(asked)
    names = tuple(asked)
    if not names or any(not isinstance(name, str) or not name for name in names):
        raise InputError(f"labels must be a number or a list of names that are not empty, got {asked!r}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"every label must have a name of its own, got {', '.join(repeated)} more than once")
    return names


def saved_labels(config: Mapping[str, object], count: int, notes: list[str]) -> tuple[str, ...]:
    """id2label of config.json, if it fits the head's outputs."""
    if not count:
        return ()
    table = config.get("id2label")
    if not isinstance(table, Mapping):
        return generic_labels(count)
    names = [table.get(str(place), table.get(place)) for place in range(count)]
    found = tuple(str(name) for name in names if name is not None)
    if len(found) != count or len(table) != count or len(set(found)) != count:
        notes.append(f"id2label in config.json names {len(table)} labels, the head has {count} outputs: not used")
        return generic_labels(count)
    return found


def to_config(labels: Sequence[str]) -> dict[str, object]:
    """id2label and label2id as config.json has them."""
    return {
        "id2label": {str(place): name for place, name in enumerate(labels)},
        "label2id": {name: place for place, name in enumerate(labels)},
    }
