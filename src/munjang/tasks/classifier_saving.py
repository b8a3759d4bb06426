"""A classifier on disk: classifier.json, the head as safetensors, and its body where that was trained for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from munjang.errors import ModelError
from munjang.loading import load
from munjang.tasks.classifier_fitting import Calibration, Scaling
from munjang.tasks.classifier_heads import Head, LinearHead, PrototypeHead
from munjang.tasks.folders import Saved, read_folder, write_folder
from munjang.tasks.model_reference import ModelReference

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder
    from munjang.tasks.classifier import Classifier

KIND = "classifier"
_HEAD = "head.safetensors"


@dataclass(frozen=True)
class Read:
    """The parts of a classifier, as a folder has them."""

    model: BiEncoder
    labels: tuple[str, ...]
    head: Head
    scaling: Scaling
    multilabel: bool
    own_body: bool
    facts: dict[str, object]


def write(classifier: Classifier, folder: str | Path) -> None:
    """Save; whatever happens, the folder holds the old classifier or the new one."""
    head, scaling, model = classifier.head, classifier.scaling, classifier.model
    tensors = (
        {"weight": head.weight, "bias": head.bias}
        if isinstance(head, LinearHead)
        else {"prototypes": np.ascontiguousarray(head.prototypes), "centre": head.centre}
    )
    facts = {
        "labels": list(classifier.labels),
        "multilabel": classifier.multilabel,
        "scale": scaling.scale,
        "shift": scaling.shift,
        "calibration": None if scaling.calibration is None else asdict(scaling.calibration),
        "model": ModelReference.of(model).as_dict(),
        "facts": dict(classifier.facts),
    }
    models = {"model": (model.fingerprint, model.save)} if classifier.own_body else {}
    write_folder(folder, KIND, Saved(facts, {_HEAD: lambda path: save_file(tensors, path)}, models))


def read(folder: str | Path, model: BiEncoder | None, *, device: str | None = None) -> Read:
    """Load; everything is looked at before the model is."""
    found = read_folder(folder, KIND)
    what = f"the classifier in {folder}"
    reference = ModelReference.from_dict(found.facts.get("model"))
    try:
        labels = tuple(str(label) for label in cast("list[Any]", found.facts["labels"]))
        scaling = _scaling(found.facts)
        multilabel = bool(found.facts["multilabel"])
        facts = dict(cast("Mapping[str, object]", found.facts.get("facts") or {}))
        head = _head(found.files[_HEAD], (len(labels), reference.dimension))
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ModelError(f"{what} is damaged or incomplete ({error!r}): save it again") from error
    own = found.models.get("model")
    if model is not None:
        reference.check(model, what)
    elif own is not None:
        model = reference.check(reference.fitted(load(own, device=device)), what)
    else:
        model = reference.load(what, device=device)
    return Read(model, labels, head, scaling, multilabel, own is not None, facts)


def _scaling(facts: Mapping[str, object]) -> Scaling:
    scale, shift = float(cast("float", facts["scale"])), float(cast("float", facts["shift"]))
    if not (scale > 0 and math.isfinite(scale) and math.isfinite(shift)):
        raise ValueError(f"scale and shift must be finite, the scale above 0, got {scale} and {shift}")
    told = facts.get("calibration")
    return Scaling(scale, shift, None if told is None else Calibration(**cast("dict[str, Any]", told)))


def _head(path: Path, shape: tuple[int, int]) -> Head:
    tensors = load_file(path)
    matrix = tensors["weight"] if "weight" in tensors else tensors["prototypes"]
    if matrix.shape != shape:
        raise ValueError(f"expected a head of shape {list(shape)} (labels, dimension), got {list(matrix.shape)}")
    return LinearHead(matrix, tensors["bias"]) if "weight" in tensors else PrototypeHead(matrix, tensors["centre"])
