"""What metrics are given, checked: numbers in rows, as many of each, finite, at least one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError

Array: TypeAlias = npt.NDArray[Any]


def numbers(values: npt.ArrayLike, name: str) -> Array:
    """Finite float64 [n], n >= 1."""
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be one row of at least one number, got shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers, got dtype {array.dtype}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite, got {array[bad]} in row {bad}")
    return array


def classes(values: npt.ArrayLike, name: str) -> Array:
    """Class numbers, int64 [n], n >= 1."""
    array = numbers(values, name)
    whole = array.astype(np.int64)
    if (whole != array).any():
        bad = int(np.flatnonzero(whole != array)[0])
        raise InputError(f"{name} must be whole class numbers, got {array[bad]} in row {bad}")
    return whole


def binary(values: npt.ArrayLike, name: str = "labels", *, both: bool = True) -> Array:
    """Zeros and ones, bool [n]; `both`: of each at least one."""
    array = classes(values, name)
    if not np.isin(array, (0, 1)).all():
        raise InputError(f"{name} must be 0 or 1, got {sorted(set(array.tolist()) - {0, 1})[:5]}")
    if both and array.min() == array.max():
        raise InputError(f"{name} are all {array[0]}: both classes, 0 and 1, are needed")
    return array.astype(bool)


def same_length(**arrays: Array) -> None:
    """As many rows in each."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in lengths.items())
        raise InputError(f"expected as many rows in each, got {shown}")
