"""Rows and their groups -> what stands for each group: its centre, the row nearest to it, how close the group lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from munjang.errors import InputError
from munjang.tasks.neighbours_tiles import UnitRows
from munjang.vectors.similarity import blocks, unit_rows

Numbers = npt.NDArray[np.int64]
_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Representatives:
    """Of each group 0..k-1."""

    centres: npt.NDArray[np.float32]  # [k, d], the mean of the rows at length 1, itself at length 1
    nearest: Numbers  # [k], the row with the greatest cosine to the centre; of equal ones the first
    cohesion: npt.NDArray[np.float64]  # [k], the mean cosine of the rows to the centre


def representatives(rows: UnitRows, labels: Numbers) -> Representatives:
    """Look at groups numbered 0..k-1, each with a row or more; -1 is in none."""
    if len(labels) != rows.count:
        raise InputError(f"every row needs a label: got {rows.count:,} rows and {len(labels):,} labels")
    count = int(labels.max()) + 1 if len(labels) else 0
    sizes = np.bincount(labels[labels >= 0], minlength=count)
    if (sizes == 0).any():
        raise InputError(f"groups must be numbered without a gap, but {int(np.argmin(sizes))} has no row")
    given = torch.from_numpy(np.asarray(labels, np.int64)).to(rows.device)
    sums = torch.zeros((count, rows.dimension), dtype=torch.float64, device=rows.device)
    for part in blocks(rows.count, _BLOCK):
        inside = given[part] >= 0
        sums.index_add_(0, given[part][inside], rows.read(part)[inside].double())
    centres = unit_rows(sums.float())
    cosines = np.full(rows.count, -np.inf)
    for part in blocks(rows.count, _BLOCK):
        inside = given[part] >= 0
        values = torch.linalg.vecdot(rows.read(part)[inside], centres[given[part][inside]])
        cosines[part][inside.cpu().numpy()] = values.double().cpu().numpy()
    order = np.lexsort((-cosines, labels))
    nearest = order[np.searchsorted(labels[order], np.arange(count))]
    inside_all = labels >= 0
    totals = np.bincount(labels[inside_all], weights=cosines[inside_all], minlength=count)
    return Representatives(centres.cpu().numpy(), nearest, totals / np.maximum(sizes, 1))
