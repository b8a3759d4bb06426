"""Topics <-> a folder: facts in topics.json, arrays in safetensors, nothing that could run when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from munjang.errors import ModelError
from munjang.tasks.folders import Saved, read_folder, write_folder
from munjang.tasks.topics_parts import Topic

Array = np.ndarray[Any, Any]
KIND = "topics"
ARRAYS = ("vectors", "floors", "labels", "similarities")
_SHAPES = {"vectors": ("float32", 2), "floors": ("float32", 1), "labels": ("int64", 1), "similarities": ("float32", 1)}


@dataclass(frozen=True)
class SavedTopics:
    """What lay in the folder."""

    topics: tuple[Topic, ...]
    arrays: Mapping[str, Array]
    method: str
    language: str
    model: object  # what ModelReference reads, or None


def save(folder: str | Path, facts: Mapping[str, object], arrays: Mapping[str, Array]) -> None:
    """Write the folder; an older one of topics is replaced, anything else is refused."""
    from safetensors.numpy import save_file

    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_folder(folder, KIND, Saved(facts, {"arrays.safetensors": lambda path: save_file(whole, path)}))


def load(folder: str | Path) -> SavedTopics:
    """Read the folder and see that its parts fit together."""
    from safetensors.numpy import load_file

    found = read_folder(folder, KIND)
    try:
        facts: Mapping[str, Any] = found.facts
        topics = tuple(Topic.from_dict(one) for one in facts["topics"])
        arrays = load_file(found.files["arrays.safetensors"])
        for name, (dtype, dimensions) in _SHAPES.items():
            if arrays[name].dtype != dtype or arrays[name].ndim != dimensions:
                raise ValueError(f"{name} is {arrays[name].dtype} {list(arrays[name].shape)}")
        if not len(topics) == len(arrays["vectors"]) == len(arrays["floors"]):
            raise ValueError(f"{len(topics)} topics, but {len(arrays['vectors'])} vectors")
        return SavedTopics(topics, arrays, str(facts["method"]), str(facts["language"]), facts["model"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder}: its parts do not fit together ({error!r}): save the topics again") from error
