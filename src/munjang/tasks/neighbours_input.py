"""What a person hands to a task: texts or ready vectors, a model or none -> vectors, texts where there are any.

Everything that can be wrong is found here, before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from munjang.data.rows import Source, read_texts
from munjang.errors import InputError
from munjang.progress import Progress

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.vectors.similarity import Vectors

TextsOrVectors: TypeAlias = "Source | Vectors"


@dataclass(frozen=True, eq=False)
class Material:
    """Vectors, and the texts that they are of, where texts were given."""

    vectors: Vectors  # [n, d]
    texts: Sequence[str] | None


def texts_of(data: TextsOrVectors, task: str) -> list[str] | None:
    """The texts, checked; None for vectors."""
    is_array = isinstance(data, np.ndarray) and data.dtype.kind not in "OUT"
    if is_array or type(data).__module__.split(".")[0] == "torch":
        _check_shape(data, task)
        return None
    if isinstance(data, list) and data and isinstance(data[0], np.ndarray | list | tuple):
        raise InputError(
            f"{task}: text 0 must be a string, got {type(data[0]).__name__}; numpy.asarray(...) makes an array of a "
            "list of vectors"
        )
    texts = read_texts(data, name=task)
    if not texts:
        raise InputError(f"{task}: there are no texts")
    return texts


def model_for(texts: Sequence[str] | None, model: BiEncoder | None) -> BiEncoder | None:
    """The model; the bundled one where there are texts and no model."""
    if texts is None or model is not None:
        return model
    from munjang.loading import load

    return load()


def material_of(
    data: TextsOrVectors, texts: Sequence[str] | None, model: BiEncoder | None, *, progress: Progress
) -> Material:
    """The vectors: encoded, or as given."""
    if texts is None:
        return Material(data, None)  # type: ignore[arg-type]
    assert model is not None
    return Material(model.encode(texts, progress=progress), texts)


def threshold_for(given: float | None, model: BiEncoder | None, *, measured: str, task: str) -> float:
    """The threshold given, or the one that was measured for the model: cosines of two models are not comparable."""
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int | float | np.floating) or not math.isfinite(given):
            raise InputError(f"threshold must be a number, got {given!r}")
        if not -1 <= given <= 1:
            raise InputError(f"threshold is a cosine and must be -1..1, got {given}")
        return float(given)
    if model is not None and measured in model.thresholds:
        return float(model.thresholds[measured].value)
    why = (
        "ready vectors were given without their model"
        if model is None
        else f"{model!r} has no measured threshold for {measured!r}"
    )
    raise InputError(
        f"{task} needs threshold=..., a cosine: {why}. Cosines mean something else in every model, so there is no value"
        " that holds for all: look at the scores of some pairs that you would accept and of some that you would not"
    )


def _check_shape(data: object, task: str) -> None:
    shape = tuple(getattr(data, "shape", ()))
    if len(shape) != 2 or not shape[1]:
        raise InputError(f"{task} takes vectors [n, d] with d >= 1, got shape {shape}")
    if not shape[0]:
        raise InputError(f"{task}: there are no vectors, got shape {shape}")
