"""Compact weights: named float tensors to int8 rows with one scale a row, and back. A quarter of float32's bytes.

    NAME          int8 [rows, ...]     -127..127
    NAME.scale    float32 [rows]       what a step of 1 in that row is worth

Vectors (biases, norms) and matrices of few rows (segments, output layers) stay float32: they are small, and every value
of theirs counts. Quantisation is symmetric. A row's scale is the one with the least squared error among a few clippings
of its largest value: where a single value stands far out, it pays to cut that one and to step finer through the rest.

A scale has 16 significant bits, so that 127 times it is exact in float32. Hence what was unpacked is packed to the very
same bytes again, and a model loses nothing by being loaded and saved once more.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from munjang.errors import ModelError

SUFFIX = ".scale"
_STEPS = 127
_FEW_ROWS = 16
_CLIPPINGS = (1.0, 0.98, 0.95, 0.92, 0.88, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4)  # shares of a row's largest value
_BLOCK = 1 << 22  # values worked on at once
_LEAST, _MOST = 2.0**-100, 2.0**120  # rows below count as 0; values above would not survive the way back
_DROPPED_BITS = 8  # of float32's 24
_REMEDY = "the file is damaged; fetch the model again, or save it again from the original"


def pack(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8 rows and their scales, everything else as it is, floats as float32; all on the CPU."""
    packed: dict[str, Tensor] = {}
    for name, given in weights.items():
        if name.endswith(SUFFIX) or given.dtype == torch.int8:
            raise ModelError(f"the weight {name!r} ({given.dtype}) cannot be told from packed ones: save as float32")
        tensor = given.detach().to("cpu", torch.float32) if given.is_floating_point() else given.detach().cpu()
        if not given.is_floating_point() or tensor.dim() < 2 or len(tensor) < _FEW_ROWS:
            packed[name] = tensor.clone(memory_format=torch.contiguous_format)
            continue
        rows = tensor.flatten(1)  # [rows, values]
        _check_range(name, rows)
        parts = [_quantise(block) for block in rows.split(max(1, _BLOCK // max(1, rows.shape[1])))]
        packed[name] = torch.cat([steps for steps, _ in parts]).reshape(tensor.shape)
        packed[name + SUFFIX] = torch.cat([scale for _, scale in parts])
    return packed


def unpack(packed: Mapping[str, Tensor], *, source: str = "the packed weights") -> dict[str, Tensor]:
    """Float32 weights from what `pack` made; `source` names the file in errors."""
    weights: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if tensor.dtype == torch.int8:
            scale = _scale_of(name, tensor, packed, source)
            weights[name] = tensor.float() * scale.reshape(-1, *[1] * (tensor.dim() - 1))
        elif not name.endswith(SUFFIX):
            weights[name] = tensor
        elif name.removesuffix(SUFFIX) not in packed:
            raise ModelError(f"{source} has {name!r} without the matrix that it scales: {_REMEDY}")
    return weights


def _scale_of(name: str, tensor: Tensor, packed: Mapping[str, Tensor], source: str) -> Tensor:
    scale = packed.get(name + SUFFIX)
    if scale is None:
        raise ModelError(f"{source} lacks {name + SUFFIX!r}, the scales of the int8 matrix {name!r}: {_REMEDY}")
    if tensor.dim() < 2 or scale.dtype != torch.float32 or scale.shape != tensor.shape[:1]:
        raise ModelError(
            f"{source}: {name!r} of shape {list(tensor.shape)} needs one float32 scale a row, but {name + SUFFIX!r} is "
            f"{str(scale.dtype).removeprefix('torch.')} of shape {list(scale.shape)}: {_REMEDY}"
        )
    bad = ~(torch.isfinite(scale) & (scale > 0))
    if bad.any():
        raise ModelError(
            f"{source}: {int(bad.sum())} of the {len(scale)} scales in {name + SUFFIX!r} are not above 0 and finite, "
            f"the first in row {int(bad.nonzero()[0])}: {_REMEDY}"
        )
    return scale


def _check_range(name: str, rows: Tensor) -> None:
    if rows.numel() and not bool(rows.abs().max() <= _MOST):  # a NaN is not
        raise ModelError(
            f"the weight {name!r} has values that are not finite or above {_MOST:.0e}: they cannot be saved as int8; "
            "the model comes from a broken training"
        )


def _quantise(rows: Tensor) -> tuple[Tensor, Tensor]:  # [rows, values] -> int8 [rows, values], float32 [rows]
    """Of every row the clipping with the least squared error; of equal ones the one that clips least."""
    largest = rows.abs().amax(1) if rows.shape[1] else rows.new_zeros(len(rows))
    empty = largest < _LEAST
    best = _short(largest / _STEPS)
    best[empty] = 1.0
    steps = _steps(rows, best).masked_fill_(empty[:, None], 0)
    least = _error(rows, steps, best)
    for share in _CLIPPINGS[1:]:
        scale = torch.where(empty, best, _short(largest * (share / _STEPS)))
        tried = _steps(rows, scale)
        error = _error(rows, tried, scale)
        better = (error < least) & ~empty
        best, least = torch.where(better, scale, best), torch.where(better, error, least)
        steps = torch.where(better[:, None], tried, steps)
    return steps.to(torch.int8), best


def _steps(rows: Tensor, scale: Tensor) -> Tensor:
    return (rows / scale[:, None]).round_().clamp_(-_STEPS, _STEPS)


def _error(rows: Tensor, steps: Tensor, scale: Tensor) -> Tensor:  # float64 [rows]
    return (steps * scale[:, None]).sub_(rows).square_().sum(1, dtype=torch.float64)


def _short(scale: Tensor) -> Tensor:
    """Rounded up to 16 significant bits; up, so that the largest value is never cut where nothing is to be clipped."""
    bits = scale.contiguous().view(torch.int32)
    mask = (1 << _DROPPED_BITS) - 1
    return ((bits + mask) & ~mask).view(torch.float32)
