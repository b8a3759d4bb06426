"""Vectors -> pairs of rows that are alike: all above a cosine, the best of all, or the nearest of every row; exactly.

The upper triangle of the matrix of cosines is gone through tile by tile (`neighbours_tiles`); nothing of it is kept but
the pairs that may be part of the answer (`neighbours_best`). To know early which may be, a sample is looked at first:
it tells about which score the last pair of the answer has. That is only a guess, so the answer is checked: where the
guess was too high, more is computed, and the result never depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from munjang.progress import Progress, track
from munjang.tasks.neighbours_best import BestPairs
from munjang.tasks.neighbours_tiles import Floats, Pairs, Tiles, UnitRows, joined
from munjang.vectors.search import stable_top_k
from munjang.vectors.similarity import blocks

Numbers = npt.NDArray[np.int64]

_SAMPLE = 512  # rows whose scores with all others tell where the best pairs end
_COLUMNS = 1024  # rows that tell about every row where its nearest end


@dataclass
class Limit:
    """The least score that matters; it may rise while pairs are looked for."""

    least: float = -math.inf  # of all pairs
    rows: Floats | None = field(default=None)  # [n] of each row's own pairs; of a pair's two the lower counts

    def of(self, rows: slice, columns: slice) -> float | tuple[Floats, Floats]:
        """As `Tiles.pairs` wants it."""
        if self.rows is None:
            return float(self.least)
        floor = np.float32(self.least)
        return np.maximum(self.rows[rows], floor), np.maximum(self.rows[columns], floor)


def scan(tiles: Tiles, limit: Limit, *, many: bool = False, progress: Progress = False) -> Iterator[Pairs]:
    """All pairs left < right at or above the limit, a tile's at a time, each once; many: see `Tiles.pairs`."""
    count = tiles.rows.count
    work = count * (count + 1) / 2
    told = done_pairs = 0
    with track(progress, count) as done:
        for rows in blocks(count, tiles.side):
            for start in range(rows.start, count, tiles.side):
                columns = slice(start, min(start + tiles.side, count))
                yield from tiles.pairs(rows, columns, limit.of(rows, columns), many=many)
                height, width = rows.stop - rows.start, columns.stop - columns.start
                done_pairs += height * (height + 1) // 2 if columns == rows else height * width
                reached = int(count * done_pairs / work)
                done(reached - told)
                told = reached


def best_pairs(
    tiles: Tiles,
    *,
    threshold: float | None = None,
    top: int | None = None,
    per_text: int | None = None,
    most: Callable[[int], None] = lambda found: None,
    progress: Progress = False,
) -> Pairs:
    """The pairs that `BestPairs` keeps of all at or above the threshold, best first; exactly.

    most: is told how many pairs an answer without `top` and `per_text` has so far, and may raise.
    """
    floor = -math.inf if threshold is None else threshold
    rows = tiles.rows.count
    guess = max(floor, _guess(tiles.rows, top, per_text))
    # Where no score parts the answer from the rest, each row's own list must.
    lists = per_text is not None and guess == -math.inf
    many = lists or (top is not None and top > rows * (rows - 1) / 2 / 500)
    while True:
        limit = Limit(guess, _row_limits(tiles.rows, per_text) if lists and per_text is not None else None)
        kept = BestPairs(rows, top=top, per_text=per_text)
        found = 0
        for pairs in scan(tiles, limit, many=many, progress=progress):
            kept.add(pairs)
            found += len(pairs)
            if top is None and per_text is None:
                most(found)
            limit.least = max(limit.least, kept.least)
        pairs = _completed(tiles.rows, limit, kept, per_text)
        if guess <= floor or len(pairs) == top:
            return pairs
        guess = floor  # the sample was not like the rest


def _guess(rows: UnitRows, top: int | None, per_text: int | None) -> float:
    """A score that probably at least `top` pairs reach, from some rows' scores with all others."""
    count = rows.count
    if top is None or count < 4 * _SAMPLE:
        return -math.inf
    expected = 2 * top * _SAMPLE / count  # each pair is in two rows
    rank = math.ceil(1.25 * expected + 4 * math.sqrt(expected) + 4)
    # Of one row not too many: a crowd about some sampled row must not raise the guess.
    nearest = min(count - 1, 4 * rank // _SAMPLE + 16, count - 1 if per_text is None else per_text)
    if rank > 0.7 * _SAMPLE * nearest:
        return -math.inf
    chosen = np.sort(np.random.default_rng(0).choice(count, _SAMPLE, replace=False))
    scores, _ = _nearest(rows, chosen, nearest)
    return float(scores.flatten().topk(rank).values[-1])


def _nearest(rows: UnitRows, chosen: Numbers, k: int) -> tuple[Tensor, Tensor]:  # scores, indices: [len(chosen), k]
    """The k nearest of some rows among all others; of equals the lowest."""
    queries = rows.read(chosen)
    scores = torch.full((len(chosen), k), -torch.inf, device=rows.device)
    indices = torch.full((len(chosen), k), -1, device=rows.device)
    for part in blocks(rows.count, 8192):
        tile = queries @ rows.read(part).T
        own = np.flatnonzero((chosen >= part.start) & (chosen < part.stop))
        tile[own, chosen[own] - part.start] = -torch.inf
        values, places = stable_top_k(tile, k)
        values, places = torch.cat((scores, values), dim=1), torch.cat((indices, places + part.start), dim=1)
        order = torch.sort(values, dim=1, descending=True, stable=True)
        scores, indices = order.values[:, :k], places.gather(1, order.indices[:, :k])
    return scores, indices


def _row_limits(rows: UnitRows, per_text: int) -> Floats:
    """For each row a score that probably at least `per_text` others reach, from its scores with a sample."""
    count = rows.count
    size = min(count, _COLUMNS)
    expected = per_text * size / count
    rank = math.ceil(expected + 2.5 * math.sqrt(expected) + 1) + 1  # one more: a row may be in the sample itself
    limits = np.full(count, -np.inf, np.float32)
    if rank >= 0.7 * size:
        return limits
    chosen = np.sort(np.random.default_rng(0).choice(count, size, replace=False))
    sample = rows.read(chosen)
    for part in blocks(count, 2048):
        scores = rows.read(part) @ sample.T
        limits[part] = scores.topk(rank, dim=1).values[:, -1].cpu().numpy()
    return limits


def _completed(rows: UnitRows, limit: Limit, kept: BestPairs, per_text: int | None) -> Pairs:
    """The best pairs; rows that found too few above their own limit are compared with all others first."""
    if limit.rows is None or per_text is None:
        return kept.finish()
    pairs = kept.waiting()
    most = min(per_text, rows.count - 1)
    own = np.zeros(rows.count, np.int64)
    for one in (pairs.left, pairs.right):
        own += np.bincount(one[pairs.scores >= limit.rows[one]], minlength=rows.count)
    short = np.flatnonzero((own < most) & (limit.rows > limit.least))
    parts = [_pairs_of(rows, short[part], most) for part in blocks(len(short), 512)]
    if parts:
        kept.add(_fresh(joined(parts), pairs, rows.count))
    return kept.finish()


def _pairs_of(rows: UnitRows, chosen: Numbers, k: int) -> Pairs:
    """Some rows with their k nearest."""
    scores, indices = (found.cpu().numpy().reshape(-1) for found in _nearest(rows, chosen, k))
    one = np.repeat(chosen, k)
    left, right = np.minimum(one, indices), np.maximum(one, indices)
    return Pairs(left.astype(np.int32), right.astype(np.int32), scores)


def _fresh(pairs: Pairs, known: Pairs, rows: int) -> Pairs:
    """Those that are not known, each once."""
    keys, first = np.unique(pairs.left.astype(np.int64) * rows + pairs.right, return_index=True)
    there = np.sort(known.left.astype(np.int64) * rows + known.right)
    place = np.minimum(np.searchsorted(there, keys), max(0, len(there) - 1))
    return pairs.at(first[there[place] != keys] if len(there) else first)
