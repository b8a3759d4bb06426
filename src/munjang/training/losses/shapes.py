"""Checks that losses share: what came must have the shape and the kind that the formula needs.

Only shapes, kinds and plain settings are looked at. The values of a tensor stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from munjang.errors import InputError


def exact(name: str, tensor: Tensor) -> Tensor:
    """The tensor in the precision to compute in: float32, or float64 where it comes as that."""
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    if tensor.is_floating_point():
        return tensor.float()
    raise InputError(f"{name} must hold floating-point numbers, got {tensor.dtype}")


def matrix(name: str, tensor: Tensor, *, width: int | None = None) -> Tensor:
    """One row per text, `[n, d]` with n and d of at least 1."""
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise InputError(f"{name} must be rows [n, d] with n and d of at least 1, got shape {tuple(tensor.shape)}")
    if width is not None and tensor.shape[1] != width:
        raise InputError(f"{name} must have {width} columns as the others have, got shape {tuple(tensor.shape)}")
    return exact(name, tensor)


def matrices(**named: Tensor) -> tuple[Tensor, ...]:
    """Several matrices of one shape."""
    shapes = {name: tuple(tensor.shape) for name, tensor in named.items()}
    if len(set(shapes.values())) > 1:
        told = " and ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(f"{' and '.join(named)} must have one shape [n, d], got {told}")
    return tuple(matrix(name, tensor) for name, tensor in named.items())


def column(name: str, tensor: Tensor, rows: int) -> Tensor:
    """One number per row, `[n]`, as floats (labels of 0 and 1 may come as integers)."""
    if rows < 1 or tuple(tensor.shape) != (rows,):
        raise InputError(f"{name} must have one number per row, shape ({rows},), got shape {tuple(tensor.shape)}")
    return exact(name, tensor if tensor.is_floating_point() else tensor.float())


def class_ids(name: str, tensor: Tensor, rows: int) -> Tensor:
    """One whole number per row, `[n]`."""
    if tuple(tensor.shape) != (rows,):
        raise InputError(f"{name} must have one class per row, shape ({rows},), got shape {tuple(tensor.shape)}")
    if tensor.is_floating_point() or tensor.is_complex():
        raise InputError(f"{name} must be whole numbers, got {tensor.dtype}: regression has losses of its own")
    return tensor.long()


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Only a choice that there is."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def positive(name: str, value: float) -> None:
    """A finite number above 0."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be above 0, got {value}")


def not_negative(name: str, value: float) -> None:
    """A finite number of 0 or more."""
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be 0 or more, got {value}")
