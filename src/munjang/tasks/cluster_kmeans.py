"""Unit rows and a number -> that many clusters by direction: spherical k-means (Dhillon and Modha 2001), in torch.

A centre is the mean of its rows at length 1, and a row belongs to the centre with the greatest cosine. The start is
k-means++ (Arthur and Vassilvitskii 2007) on a sample. Up to 100,000 rows all are looked at in every step (Lloyd);
beyond, centres move by random batches first (Sculley 2010), and all rows are looked at only at the end. Rows are read
in blocks, so a memory map larger than memory will do. The same seed gives the same clusters on the same device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.progress import Progress, track
from munjang.tasks.neighbours_tiles import UnitRows
from munjang.vectors.similarity import blocks, unit_rows

Numbers = npt.NDArray[np.int64]

_ALL = 100_000  # rows: beyond, batches come first
_BATCH = 8192  # rows of a step over batches, and of a block
_BATCHES = 200  # such steps at most
_LAST = 2  # steps over all rows after the batches
_TRIED = 4  # steps after which starts are compared
_FEW = 2_048  # rows: among so few, many starts cost nothing
_STARTS, _MANY = 4, 32
_START = 16_384  # rows among which the first centres are sought, at least 20 for each


@dataclass(frozen=True, eq=False)
class KMeans:
    """Clusters by direction. There may be fewer than were asked for, where rows are equal."""

    labels: Numbers  # [n]
    centres: Tensor  # float32 [k, d], at length 1
    steps: int  # over all rows

    @property
    def k(self) -> int:
        return len(self.centres)


def k_means(
    rows: UnitRows,
    k: int,
    *,
    seed: int = 0,
    max_steps: int = 100,
    starts: int | None = None,
    progress: Progress = False,
) -> KMeans:
    """Group rows into k clusters; `starts`: how many beginnings are tried (4; 32 among few rows)."""
    if starts is None:
        starts = _MANY if rows.count <= _FEW else _STARTS
    if not 1 <= k <= rows.count:
        raise InputError(f"k must be 1..{rows.count:,} (the rows), got {k}")
    if max_steps < 1 or starts < 1:
        raise InputError(f"max_steps and starts must be 1 or more, got {max_steps} and {starts}")
    generator = np.random.default_rng(seed)
    centres = _start(rows, k, generator, starts)
    if rows.count > _ALL:
        centres = _by_batches(rows, centres, generator)
        max_steps = min(max_steps, _LAST)
    labels = torch.full((rows.count,), -1, device=rows.device)
    step = 0
    with track(progress, max_steps) as done:
        while step < max_steps:
            step += 1
            before = labels
            labels, nearest, sums = _assign(rows, centres)
            done(1)
            if torch.equal(labels, before):
                break
            centres = _moved(rows, centres, labels, (nearest, sums))
    return _without_empty(_assign(rows, centres)[0], centres, step)


def _start(rows: UnitRows, k: int, generator: np.random.Generator, starts: int) -> Tensor:  # [k, d]
    """The best of several starts on a sample, after a few steps each: where k-means ends hangs on where it begins."""
    size = min(rows.count, max(_START, 20 * k))
    sample = rows
    if size < rows.count:
        chosen = np.sort(generator.choice(rows.count, size, replace=False))
        sample = UnitRows(rows.read(chosen), memory_mb=math.inf)
    unit = sample.read(slice(0, size))
    best, most = _plus_plus(unit, k, generator), -math.inf
    for number in range(starts if 1 < k < size else 1):
        centres = best if number == 0 else _plus_plus(unit, k, generator)
        for _ in range(_TRIED if starts > 1 else 0):
            labels, nearest, sums = _assign(sample, centres)
            centres = _moved(sample, centres, labels, (nearest, sums))
        reached = float(_assign(sample, centres)[1].double().mean()) if starts > 1 else 0.0
        if reached > most:
            best, most = centres, reached
    return best


def _plus_plus(sample: Tensor, k: int, generator: np.random.Generator) -> Tensor:  # [k, d]
    """k-means++: each next centre far from the others, the best of a few draws."""
    size, device = len(sample), sample.device
    tries = 2 + int(math.log(k))
    places = torch.empty(k, dtype=torch.int64, device=device)
    places[0] = int(generator.integers(size))
    nearest = _distances(sample, sample[places[:1]])[:, 0].double()
    for number in range(1, k):
        running = nearest.cumsum(0)
        drawn = torch.from_numpy(generator.random(tries)).to(device) * running[-1]
        tried = torch.searchsorted(running, drawn, right=True).clamp_(max=size - 1)
        closer = torch.minimum(nearest[:, None], _distances(sample, sample[tried]).double())  # [size, tries]
        best = closer.sum(dim=0).argmin()
        places[number] = tried[best]
        nearest = closer.index_select(1, best.reshape(1))[:, 0]
    return sample[places]


def _distances(rows: Tensor, centres: Tensor) -> Tensor:  # half the squared distance of unit vectors, [n, k]
    return (1 - rows @ centres.T).clamp_(min=0)


def _assign(rows: UnitRows, centres: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest centre of every row [n], its cosine [n], and the sum of every centre's rows [k, d]."""
    labels = torch.empty(rows.count, dtype=torch.int64, device=rows.device)
    nearest = torch.empty(rows.count, device=rows.device)
    sums = torch.zeros(centres.shape, dtype=torch.float64, device=rows.device)
    for part in blocks(rows.count, _BATCH):
        block = rows.read(part)
        nearest[part], labels[part] = (block @ centres.T).max(dim=1)
        sums += _sums(block, labels[part], len(centres))
    return labels, nearest, sums


def _sums(block: Tensor, labels: Tensor, k: int) -> Tensor:  # [k, d]
    """The sum of the rows with each label."""
    if block.device.type == "cpu":
        return torch.zeros((k, block.shape[1])).index_add_(0, labels, block).double()
    # On a GPU index_add_ adds in any order, so that a seed would not fix the result; a product does not.
    member = torch.zeros((len(block), k), device=block.device).scatter_(1, labels[:, None], 1.0)
    return (member.T @ block).double()


def _moved(rows: UnitRows, centres: Tensor, labels: Tensor, found: tuple[Tensor, Tensor]) -> Tensor:
    """Centres in the midst of their rows; one that lost all takes the row that lies farthest from its own."""
    nearest, sums = found
    moved = unit_rows(sums.float())
    counts = torch.bincount(labels, minlength=len(centres))
    still = (moved == 0).all(dim=1) & (counts > 0)  # rows that cancel out leave it where it was
    moved[still] = centres[still]
    empty = (counts == 0).nonzero().flatten()
    if len(empty):
        farthest = torch.argsort(nearest, stable=True)[: len(empty)].cpu().numpy()
        moved[empty] = rows.read(farthest)
    return moved


def _by_batches(rows: UnitRows, centres: Tensor, generator: np.random.Generator) -> Tensor:
    """Centres moved by random batches, each less the more rows it has had."""
    sums = centres.double()
    had = torch.ones(len(centres), dtype=torch.float64, device=rows.device)
    for _ in range(min(_BATCHES, math.ceil(10 * rows.count / _BATCH))):
        chosen = np.sort(generator.integers(rows.count, size=_BATCH))
        block = rows.read(chosen)
        labels = (block @ centres.T).argmax(dim=1)
        counts = torch.bincount(labels, minlength=len(centres)).double()
        sums += _sums(block, labels, len(centres))
        had += counts
        # The oldest rows were assigned to centres that have long moved: they fade.
        fading = had > 50 * _BATCH / len(centres)
        sums[fading], had[fading] = sums[fading] / 2, had[fading] / 2
        centres = unit_rows(sums.float())
    return centres


def _without_empty(labels: Tensor, centres: Tensor, steps: int) -> KMeans:
    used, numbers = torch.unique(labels, return_inverse=True)
    return KMeans(numbers.cpu().numpy(), centres[used], steps)
