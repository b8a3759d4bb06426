"""Vectors -> each row's nearest neighbours through FAISS (extra `search`): for millions of rows without a GPU.

The rows are sorted into cells about centres (IVF), and a row is compared only with the rows of the cells that lie
nearest to it. Pairs whose rows fall into far cells are missed; those that are found have their right cosine, to the
rounding of float32. FAISS holds a copy of all vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from munjang.errors import MissingExtraError
from munjang.progress import Progress, track
from munjang.tasks.neighbours_tiles import Pairs, UnitRows
from munjang.vectors.similarity import blocks

_BLOCK = 8192
_TRAIN = 64  # rows for each centre


def installed() -> bool:
    """Whether FAISS is there."""
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def neighbour_pairs(
    rows: UnitRows, *, threshold: float, per_text: int, probes: int, progress: Progress = False
) -> Iterator[Pairs]:
    """Pairs left < right at or above the threshold among each row's nearest, each once, a block of rows at a time.

    A pair counts for its left row if that found it, and for its right row only where it scores below all that the left
    one found: so none comes twice, and no list but the last scores must be kept.
    """
    index = _index(rows, probes)
    k = min(per_text + 1, rows.count)  # one more: the row itself
    last = np.full(rows.count, -np.inf, np.float32)  # [n], of each row's list; -inf where it is not full
    with track(progress, rows.count) as done:
        for part in blocks(rows.count, _BLOCK):
            scores, found = index.search(rows.read(part).cpu().numpy(), k)
            last[part] = np.where(found[:, -1] >= 0, scores[:, -1], -np.inf)
            one, other, values = np.repeat(np.arange(part.start, part.stop), k), found.reshape(-1), scores.reshape(-1)
            is_new = (one < other) | (values < last[np.maximum(other, 0)])
            chosen = (other >= 0) & (other != one) & (values >= np.float32(threshold)) & is_new
            one, other = one[chosen], other[chosen]
            left, right = np.minimum(one, other).astype(np.int32), np.maximum(one, other).astype(np.int32)
            yield Pairs(left, right, values[chosen])
            done(part.stop - part.start)


def _index(rows: UnitRows, probes: int) -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss-cpu", "search", "approximate mining") from error
    cells = max(1, min(int(4 * math.sqrt(rows.count)), rows.count // 40))
    quantizer = faiss.IndexFlatIP(rows.dimension)
    index = faiss.IndexIVFFlat(quantizer, rows.dimension, cells, faiss.METRIC_INNER_PRODUCT)
    size = min(rows.count, _TRAIN * cells)
    chosen = np.sort(np.random.default_rng(0).choice(rows.count, size, replace=False))
    index.train(rows.read(chosen).cpu().numpy())
    for part in blocks(rows.count, 65_536):
        index.add(rows.read(part).cpu().numpy())
    index.nprobe = min(probes, cells)
    return index
