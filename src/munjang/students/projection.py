"""Vectors of another width: a Dense layer after the pooling, fitted before it is trained.

Enters: a model, a width, and perhaps texts and a teacher's vectors of them. Leaves: the model with the layer, in front
of its last Normalize where it ends with one. The layer starts as

- the ridge regression from the model's vectors to the teacher's, where these are given;
- the principal directions of the model's vectors of the texts, where it becomes narrower. They are not centred: what is
  kept best is the dot product, which cosine is made of;
- a seeded orthogonal matrix otherwise; a wider one leaves every cosine as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from munjang.checkpoint import BiParts
from munjang.encoders.bi import Array, BiEncoder
from munjang.errors import InputError
from munjang.nn.heads import Dense, Normalize
from munjang.students.plans import StudentPlan

SAMPLE = 8_192  # texts that a layer is fitted to, spread evenly
_WINDOW = 512  # texts that are encoded at once
RIDGE = 1e-3  # share of the mean variance that is added to every direction


@dataclass(frozen=True)
class Projected:
    """A model with vectors of another width."""

    parts: BiParts
    report: dict[str, object]
    notes: tuple[str, ...]


def projected(
    parts: BiParts,
    dimension: int,
    *,
    texts: Sequence[str] = (),
    teacher_vectors: Array | None = None,
    seed: int = 0,
    device: torch.device | None = None,
) -> BiParts:
    """The model with vectors of this width; where they have it already, the model as it is."""
    return project(parts, dimension, texts=texts, teacher_vectors=teacher_vectors, seed=seed, device=device).parts


def full_dimension(parts: BiParts) -> int:
    """Width of the vectors."""
    width = parts.pooling.dimension(parts.body.hidden)
    for head in parts.heads:
        width = getattr(head, "dimension", width)
    return width


def check_dimension(dimension: int, texts: Sequence[str], teacher_vectors: Array | None) -> None:
    """Raise where a teacher's vectors do not fit the texts or the width."""
    if dimension < 1:
        raise InputError(f"dimension must be at least 1, got {dimension}")
    if teacher_vectors is None:
        return
    shape = np.shape(teacher_vectors)
    if len(shape) != 2 or shape[0] != len(texts):
        raise InputError(f"teacher_vectors must be [{len(texts)} (the texts), width], got shape {list(shape)}")
    if shape[1] != dimension:
        raise InputError(
            f"the student shall have {dimension} dimensions, but the teacher's vectors have {shape[1]}: choose "
            f"dimension={shape[1]}, or leave teacher_vectors out"
        )
    if not len(texts):
        raise InputError("teacher_vectors need the texts that they are of, got none")


def project(
    parts: BiParts,
    dimension: int,
    *,
    texts: Sequence[str] = (),
    teacher_vectors: Array | None = None,
    seed: int = 0,
    device: torch.device | None = None,
    done: Callable[[int], None] = lambda n: None,
) -> Projected:
    """`projected`, with a report; `done` is told of the texts that were encoded, `work_of` in all."""
    check_dimension(dimension, texts, teacher_vectors)
    width = full_dimension(parts)
    if width == dimension:
        note = f"the vectors have {dimension} dimensions already: no layer was added"
        return Projected(parts, {"before": width, "after": dimension, "start": "none"}, (note,))
    heads = list(parts.heads)
    place = len(heads) - (bool(heads) and isinstance(heads[-1], Normalize))
    before = replace(parts, heads=nn.ModuleList(heads[:place]), truncate_dim=None)
    if teacher_vectors is None and (dimension > width or not len(texts)):
        weight, bias, start = _orthogonal(dimension, width, seed), np.zeros(dimension, np.float32), "orthogonal"
    else:
        weight, bias, start = _fitted(before, dimension, texts=texts, teacher=teacher_vectors, device=device, done=done)
    dense = Dense(width, dimension, activation="Identity")
    with torch.no_grad():
        dense.linear.weight.copy_(torch.from_numpy(weight))
        dense.linear.bias.copy_(torch.from_numpy(bias))
    made = replace(parts, heads=nn.ModuleList([*heads[:place], dense, *heads[place:]]).eval(), truncate_dim=None)
    return Projected(made, {"before": width, "after": dimension, "start": start}, ())


def _fitted(
    parts: BiParts,
    dimension: int,
    *,
    texts: Sequence[str],
    teacher: Array | None,
    device: torch.device | None,
    done: Callable[[int], None],
) -> tuple[Array, Array, str]:
    """Weight [dimension, width], bias [dimension], and what they come from."""
    places = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), SAMPLE)).astype(np.int64))
    encoder = BiEncoder(parts, device=device, dtype="float32")
    encoded = []
    for start in range(0, len(places), _WINDOW):
        window = [texts[place] for place in places[start : start + _WINDOW]]
        encoded.append(encoder.encode_report(window).vectors)
        done(len(window))
    vectors = np.concatenate(encoded).astype(np.float64)
    if teacher is None:
        return _directions(vectors, dimension), np.zeros(dimension, np.float32), "principal directions"
    weight, bias = _regression(vectors, np.asarray(teacher[places], np.float64))
    return weight, bias, "teacher"


def work_of(plan: StudentPlan, texts: Sequence[str]) -> int:
    """How many texts `project` will tell of, at most."""
    return 0 if plan.dimension is None else min(len(texts), SAMPLE)


def _orthogonal(rows: int, columns: int, seed: int) -> Array:
    """A random [rows, columns] matrix whose shorter side is orthonormal."""
    tall = np.random.default_rng(seed).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # one answer, whatever signs the factorisation chose
    return np.asarray(q if rows >= columns else q.T, np.float32)


def _directions(vectors: Array, count: int) -> Array:
    """The directions [count, width] that keep most of the vectors' dot products."""
    _, directions = np.linalg.eigh(vectors.T @ vectors)  # ascending
    kept = directions[:, ::-1][:, :count].T
    largest = np.abs(kept).argmax(axis=1)
    kept = kept * np.sign(kept[np.arange(count), largest])[:, None]  # one answer, whatever signs eigh chose
    return np.asarray(kept, np.float32)


def _regression(vectors: Array, targets: Array) -> tuple[Array, Array]:
    """Weight [targets' width, width] and bias that bring the vectors nearest to the targets."""
    centre, aim = vectors.mean(axis=0), targets.mean(axis=0)
    inputs, outputs = vectors - centre, targets - aim
    square = inputs.T @ inputs
    square[np.diag_indices_from(square)] += RIDGE * np.trace(square) / len(square) + 1e-12
    weight = np.linalg.solve(square, inputs.T @ outputs).T
    return np.asarray(weight, np.float32), np.asarray(aim - weight @ centre, np.float32)
