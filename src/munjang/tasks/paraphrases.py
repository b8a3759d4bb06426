"""`mine_paraphrases`: texts or vectors -> the pairs of them that mean the same, without comparing n x n in memory.

    mine_paraphrases     all pairs at or above a threshold, or the best n, best first
    stream_paraphrases   the same pairs above a threshold as they are found, for answers that outgrow memory
    near_duplicates      groups of texts that are joined by such pairs

Exact unless `approximate` is asked for. `neighbours` says how; cosines are float32 whatever computed them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.progress import Progress
from munjang.tasks.neighbours_input import TextsOrVectors, material_of, model_for, texts_of, threshold_for
from munjang.tasks.paraphrase_groups import Duplicates, Joined, equal_texts

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.tasks.neighbours_tiles import Pairs, Tiles, UnitRows
    from munjang.vectors.similarity import Vectors

_AUTO = 200_000  # rows: from here on 'auto' is approximate on a CPU
_LISTED = 100  # neighbours of a row that an approximate search looks at where no number is given


@dataclass(frozen=True)
class MiningOptions:
    """What is seldom changed."""

    device: str | None = None  # where to compare vectors; by default that of the model, or where they lie
    memory_mb: float | None = None  # of tiles and unit vectors, by default 64, on a GPU 2,048; pairs are counted apart
    approximate: bool | Literal["auto"] = False  # through FAISS; 'auto': from 200,000 rows on, if there is no GPU
    probes: int = 32  # of an approximate search: cells that a row is compared with; more find more
    most_pairs: int = 50_000_000  # an answer with more is an error: 800 MB


class Paraphrase(NamedTuple):
    """One pair of rows, left < right."""

    score: float
    left: int
    right: int


@dataclass(frozen=True, eq=False)
class Paraphrases:
    """Pairs of rows that mean the same, best first (a stream: as they are found)."""

    pairs: npt.NDArray[np.int64]  # [m, 2], left < right
    scores: npt.NDArray[np.float32]  # [m], cosines
    texts: Sequence[str] | None  # where texts were given
    threshold: float | None
    approximate: bool
    seconds: float  # without encoding

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Paraphrase]:
        for score, (left, right) in zip(self.scores.tolist(), self.pairs.tolist(), strict=True):
            yield Paraphrase(score, left, right)


def mine_paraphrases(
    data: TextsOrVectors,
    model: BiEncoder | None = None,
    *,
    threshold: float | None = None,
    top: int | None = None,
    per_text: int | None = None,
    options: MiningOptions | None = None,
    progress: Progress = False,
) -> Paraphrases:
    """Find the pairs of texts, or of vectors [n, d], that are most alike; best first, equal ones in order of rows.

    threshold: the least cosine; without it and without `top` the one that was measured for the model ('paraphrase').
    top: at most so many pairs. per_text: a pair counts only if it is among the so many best of one of its two texts:
    with top=500_000 and per_text=100 these are the pairs of sentence-transformers' `paraphrase_mining`.
    """
    options = options or MiningOptions()
    _check(top, per_text, options)
    texts = texts_of(data, "mine_paraphrases")
    model = model_for(texts, model)
    if threshold is not None or top is None:
        threshold = threshold_for(threshold, model, measured="paraphrase", task="mine_paraphrases")
    vectors = material_of(data, texts, model, progress=progress).vectors
    started = time.perf_counter()
    search = _Search.over(vectors, model, options)
    if search.approximate:
        found = _collected(search, threshold, (top, per_text), progress)
    else:
        from munjang.tasks.neighbours import best_pairs

        limits = {"threshold": threshold, "top": top, "per_text": per_text}
        found = best_pairs(search.tiles(), **limits, most=search.refuse_more_than, progress=progress)  # type: ignore[arg-type]
    return _answer(found, texts, threshold, (search.approximate, time.perf_counter() - started))


def stream_paraphrases(
    data: TextsOrVectors,
    model: BiEncoder | None = None,
    *,
    threshold: float | None = None,
    options: MiningOptions | None = None,
    progress: Progress = False,
) -> Iterator[Paraphrases]:
    """All pairs at or above the threshold, a block at a time as they are found, in bounded memory; each pair once.

    Arguments are checked, and texts encoded, before the first block is asked for.
    """
    options = options or MiningOptions()
    _check(None, None, options)
    texts = texts_of(data, "stream_paraphrases")
    model = model_for(texts, model)
    least = threshold_for(threshold, model, measured="paraphrase", task="stream_paraphrases")
    vectors = material_of(data, texts, model, progress=progress).vectors
    search = _Search.over(vectors, model, options)

    def found() -> Iterator[Paraphrases]:
        started = time.perf_counter()
        for pairs in search.stream(least, _LISTED, progress):
            if len(pairs):
                yield _answer(pairs, texts, least, (search.approximate, time.perf_counter() - started))

    return found()


def near_duplicates(
    data: TextsOrVectors,
    model: BiEncoder | None = None,
    *,
    threshold: float | None = None,
    options: MiningOptions | None = None,
    progress: Progress = False,
) -> Duplicates:
    """Groups of rows that are joined by pairs at or above the threshold, directly or through others.

    Equal texts are encoded and compared once.
    """
    options = options or MiningOptions()
    _check(None, None, options)
    started = time.perf_counter()
    texts = texts_of(data, "near_duplicates")
    model = model_for(texts, model)
    least = threshold_for(threshold, model, measured="paraphrase", task="near_duplicates")
    same = None if texts is None else equal_texts(texts)
    some = None if texts is None or same is None else [texts[row] for row in same.first.tolist()]
    vectors = material_of(data, some, model, progress=progress).vectors
    groups = Joined(len(vectors))
    for pairs in _Search.over(vectors, model, options).stream(least, _LISTED, progress):
        groups.join(pairs.left, pairs.right)
    roots = groups.roots()
    if same is not None:
        roots = same.first[roots][same.place]
    return Duplicates.of(roots, texts, least, seconds=time.perf_counter() - started)


def _check(top: int | None, per_text: int | None, options: MiningOptions) -> None:
    for name, value in (("top", top), ("per_text", per_text)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
            raise InputError(f"{name} must be a whole number, 1 or more, got {value!r}")
    if options.approximate not in (True, False, "auto"):
        raise InputError(f"approximate must be True, False or 'auto', got {options.approximate!r}")
    if options.probes < 1:
        raise InputError(f"probes must be 1 or more, got {options.probes}")
    if options.memory_mb is not None and not options.memory_mb > 0:
        raise InputError(f"memory_mb must be above 0, got {options.memory_mb}")


@dataclass(frozen=True, eq=False)
class _Search:
    """Rows that are ready, and how to look for pairs among them."""

    rows: UnitRows
    approximate: bool
    memory_mb: float
    options: MiningOptions

    @classmethod
    def over(cls, vectors: Vectors, model: BiEncoder | None, options: MiningOptions) -> _Search:
        from munjang.tasks.neighbours_tiles import UnitRows
        from munjang.tasks.paraphrase_approximate import installed

        own = str(model.device) if model is not None and model.device.type == "cuda" else None
        device = options.device or own
        memory = options.memory_mb
        if memory is None:
            memory = 2048 if str(device or getattr(vectors, "device", "cpu")).startswith("cuda") else 64
        rows = UnitRows(vectors, device=device, memory_mb=memory)
        approximate = options.approximate
        if approximate == "auto":
            approximate = rows.count >= _AUTO and rows.device.type == "cpu" and installed()
        return cls(rows, approximate, memory, options)

    def tiles(self) -> Tiles:
        from munjang.tasks.neighbours_tiles import Tiles

        return Tiles(self.rows, memory_mb=self.memory_mb)

    def stream(self, threshold: float, per_text: int, progress: Progress) -> Iterator[Pairs]:
        """Pairs at or above a threshold, each once."""
        if self.approximate:
            from munjang.tasks.paraphrase_approximate import neighbour_pairs

            return neighbour_pairs(
                self.rows, threshold=threshold, per_text=per_text, probes=self.options.probes, progress=progress
            )
        from munjang.tasks.neighbours import Limit, scan

        return scan(self.tiles(), Limit(threshold), progress=progress)

    def refuse_more_than(self, found: int) -> None:
        if found > self.options.most_pairs:
            raise InputError(
                f"there are more than {self.options.most_pairs:,} pairs: raise the threshold, pass top= or per_text=,"
                " take them as they come with stream_paraphrases, or raise MiningOptions(most_pairs=...)"
            )


def _collected(
    search: _Search, threshold: float | None, limits: tuple[int | None, int | None], progress: Progress
) -> Pairs:
    from munjang.tasks.neighbours_best import BestPairs

    top, per_text = limits
    kept = BestPairs(search.rows.count, top=top, per_text=per_text)
    found = 0
    for pairs in search.stream(-1.0 if threshold is None else threshold, per_text or _LISTED, progress):
        kept.add(pairs)
        found += len(pairs)
        if top is None and per_text is None:
            search.refuse_more_than(found)
    return kept.finish()


def _answer(found: Pairs, texts: Sequence[str] | None, threshold: float | None, how: tuple[bool, float]) -> Paraphrases:
    pairs = np.stack([found.left, found.right], axis=1).astype(np.int64)
    return Paraphrases(pairs, found.scores, texts, threshold, *how)
