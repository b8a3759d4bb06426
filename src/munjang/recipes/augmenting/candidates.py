"""Sentences -> candidate pairs, by one strategy or a mix of them, written window by window.

    semantic  the nearest sentences of each, by the vectors of a bi-encoder
    bm25      those that share the most telling words with it
    random    any two
    kde       any two, several times as many as wanted: after scoring they are thinned to the distribution of the
              labelled pairs' scores (`sampling.py`)

Neighbours that the rules forbid are passed over: each sentence is asked for as many more as it has forbidden ones (at
most SLACK), and the first `top_k` that are allowed count. As two sentences are often neighbours of each other, there
are fewer pairs than sentences * top_k.

Every window of sentences becomes a sorted piece on disk as soon as it is searched. In the end the pieces are merged
range by range, so that memory holds a few million pairs at most; a pair that two strategies found carries both names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.nn.device import choose_device
from munjang.progress import Progress, track
from munjang.recipes.augmenting.bm25 import BM25
from munjang.recipes.augmenting.neighbours import Search, check_vectors, exact_search, graph_search, is_approximate
from munjang.recipes.augmenting.pairs import FILES, ORIGINS, CandidatePairs, PairFilter, among
from munjang.recipes.augmenting.parts import Parts
from munjang.recipes.augmenting.sentences import Sentences
from munjang.vectors.files import create_npy

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[Any]
Strategy = Literal["semantic", "bm25", "random", "kde"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

WINDOW = 8192  # sentences that are searched before a piece is written
SLACK = 64  # neighbours that are looked at beyond top_k, at most
MERGED = 1 << 22  # pairs that are merged at once
_DRAWN = 1 << 22  # random pairs drawn at once
_RECORD = "candidates.json"


@dataclass(frozen=True)
class Candidates:
    """How candidate pairs are found."""

    strategies: tuple[Strategy, ...] = ("semantic",)  # several: a mix
    top_k: int = 5  # neighbours of every sentence (semantic, bm25)
    pairs: int | None = None  # random and kde: how many are wanted; None: top_k * sentences
    approximate: bool | None = None  # semantic; None: exact, except for more than 200,000 sentences on a CPU
    pool_factor: int = 5  # kde: so many times as many are drawn as are wanted
    seed: int = 0

    def __post_init__(self) -> None:
        given: Any = self.strategies  # a list, or a single name, will do
        object.__setattr__(self, "strategies", (given,) if isinstance(given, str) else tuple(given))
        unknown = [name for name in self.strategies if name not in STRATEGIES]
        if unknown or not self.strategies or len(set(self.strategies)) < len(self.strategies):
            raise InputError(
                f"strategies must be some of {', '.join(STRATEGIES)}, each once; got "
                + (", ".join(self.strategies) or "none")
            )
        for name in ("top_k", "pairs", "pool_factor"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")

    def wanted(self, sentences: int) -> int:
        """How many random pairs are wanted, and how many of the KDE pool are to be kept."""
        return self.top_k * sentences if self.pairs is None else self.pairs


def find_candidates(
    sentences: Sentences,
    plan: Candidates,
    *,
    rules: PairFilter,
    folder: Path,
    vectors: Array | None = None,
    device: str | None = None,
    progress: Progress = False,
) -> CandidatePairs:
    """Find pairs and leave them in `folder`: left.npy, right.npy, origin.npy, candidates.json.

    vectors: float [sentences, d], for the semantic strategy; a memory map will do. After a kill at any moment the same
    call goes on at the next window and ends with the same pairs. progress counts sentences, for each strategy anew.
    """
    _check(sentences, rules)
    if "semantic" in plan.strategies:
        vectors = check_vectors(vectors, len(sentences))
    where = choose_device(device)
    graph = "semantic" in plan.strategies and is_approximate(plan.approximate, len(sentences), where)
    parts = Parts(Path(folder), _RECORD, _made_of(plan, rules, vectors, graph=graph), results=FILES)
    if not parts.finished():
        job = _Job(sentences, plan, rules, parts, vectors)
        with track(progress, len(sentences) * (len(plan.strategies) + graph)) as done:
            names = [
                name
                for strategy in plan.strategies
                for name in job.find(strategy, graph=graph, device=where, done=done)
            ]
        _merge(parts, names, rules)
    return CandidatePairs.read(folder)


@dataclass(frozen=True)
class _Job:
    sentences: Sentences
    plan: Candidates
    rules: PairFilter
    parts: Parts
    vectors: Array | None

    def find(self, strategy: Strategy, *, graph: bool, device: torch.device, done: Callable[[int], None]) -> list[str]:
        """The names of the strategy's pieces, all of which are there then."""
        count = len(self.sentences)
        if strategy in ("random", "kde"):
            if not self.parts.has(strategy):
                wanted = self.plan.wanted(count) * (self.plan.pool_factor if strategy == "kde" else 1)
                # kde draws from a stream of its own: a mix of both would find the same pairs twice.
                generator = np.random.default_rng([self.plan.seed, ORIGINS[strategy]])
                self.parts.write(strategy, random_pairs(self.rules, wanted, generator))
            done(count)
            return [strategy]
        starts = range(0, count, WINDOW)
        names = [f"{strategy}-{number:06}" for number in range(len(starts))]
        missing = [name for name in names if not self.parts.has(name)]
        search: Search | None = None
        if strategy == "semantic" and graph:
            search = self._graph(done) if missing else None
            done(0 if missing else count)
        barred = self.rules.barred() if missing else np.zeros(count, np.int64)
        for name, start in zip(names, starts, strict=True):
            rows = slice(start, min(start + WINDOW, count))
            if name in missing:
                search = search or self._search(strategy, device)
                slack = min(SLACK, int(barred[rows].max()))
                near = search(rows, min(count, self.plan.top_k + slack + 1))  # and itself
                self.parts.write(name, self._taken(rows, near))
            done(rows.stop - rows.start)
        return names

    def _graph(self, done: Callable[[int], None]) -> Search:
        assert self.vectors is not None
        return graph_search(self.vectors, self.parts.path("semantic").with_suffix(".hnsw"), done)

    def _search(self, strategy: Strategy, device: torch.device) -> Search:
        if strategy == "bm25":
            return BM25.of(self.sentences.texts).nearest
        assert self.vectors is not None
        return exact_search(self.vectors, device)

    def _taken(self, rows: slice, near: Array) -> Array:  # [rows, k] -> int64 [pairs], ascending keys
        """The first top_k neighbours of each row that are allowed."""
        own = np.broadcast_to(np.arange(rows.start, rows.stop)[:, None], near.shape)
        found = near >= 0
        fits = found & self.rules.allowed(own, np.where(found, near, own))
        fits &= np.cumsum(fits, axis=1) <= self.plan.top_k
        keys: Array = np.unique(self.rules.keys(own[fits], near[fits]))
        return keys


def random_pairs(rules: PairFilter, wanted: int, generator: np.random.Generator) -> Array:  # int64 [pairs], ascending
    """Keys of different allowed pairs, uniformly: as many as wanted, or all that there are."""
    count = rules.count
    total = count * (count - 1) // 2
    if 2 * (wanted + int(rules.barred().sum())) >= total:  # too few to hit at random: look at all of them
        every = _every_pair(rules)
        return every if len(every) <= wanted else np.sort(generator.choice(every, wanted, replace=False))
    found: Array = np.zeros(0, np.int64)
    while len(found) < wanted:
        missing = wanted - len(found)
        drawn = generator.integers(count, size=(2, min(_DRAWN, 2 * missing + 64)))
        keys = np.unique(rules.keys(*drawn[:, rules.allowed(*drawn)]))
        fresh = keys[~among(found, keys)]
        if len(fresh) > missing:  # they are in order: the first ones would all be of the first sentences
            fresh = generator.choice(fresh, missing, replace=False)
        found = np.sort(np.concatenate([found, fresh]), kind="stable")
    return found


def _every_pair(rules: PairFilter) -> Array:
    pieces = [np.zeros(0, np.int64)]
    for left in range(rules.count - 1):
        right = np.arange(left + 1, rules.count)
        own = np.full(len(right), left)
        fits = rules.allowed(own, right)
        pieces.append(rules.keys(own[fits], right[fits]))
    return np.concatenate(pieces)


def _merge(parts: Parts, names: list[str], rules: PairFilter) -> None:
    """All pieces -> the arrays of the result, each pair once, in ascending order."""
    pieces = [(ORIGINS[name.partition("-")[0]], parts.read(name)) for name in names]
    counts = [len(keys) for keys, _ in _merged(pieces)]
    if not sum(counts):
        raise InputError(
            f"not one candidate pair was found among {rules.count:,} sentences: all near ones are labelled already or "
            "belong to the evaluation; give more sentences, a larger top_k, or the strategy random"
        )
    place = np.int32 if rules.count < 2**31 else np.int64
    left, right, origin = (parts.folder / name for name in FILES)
    with (
        create_npy(left, (sum(counts),), place) as lefts,
        create_npy(right, (sum(counts),), place) as rights,
        create_npy(origin, (sum(counts),), np.uint8) as origins,
    ):
        start = 0
        for keys, bits in _merged(pieces):
            window = slice(start, start + len(keys))
            lefts[window], rights[window] = rules.sides(keys)
            origins[window] = bits
            start = window.stop
    parts.finish({"pairs": sum(counts)})


def _merged(pieces: list[tuple[int, Array]]) -> Iterator[tuple[Array, Array]]:  # keys int64 [m], bits uint8 [m]
    """Sorted pieces as one sorted stream in ranges of about MERGED pairs; a pair that stands twice has both bits."""
    total = sum(len(keys) for _, keys in pieces)
    step = max(1, MERGED // 1024)
    looked = np.sort(np.concatenate([np.asarray(keys[::step]) for _, keys in pieces]))
    ranges = max(1, -(-total // MERGED))
    bounds = looked[(np.arange(1, ranges) * len(looked)) // ranges]
    cuts = [np.concatenate([[0], np.searchsorted(keys, bounds), [len(keys)]]) for _, keys in pieces]
    for number in range(ranges):
        spans = [slice(int(cut[number]), int(cut[number + 1])) for cut in cuts]
        found = np.concatenate([keys[span] for (_, keys), span in zip(pieces, spans, strict=True)])
        bits = np.concatenate(
            [np.full(span.stop - span.start, bit, np.uint8) for (bit, _), span in zip(pieces, spans, strict=True)]
        )
        if len(found):
            order = np.argsort(found, kind="stable")
            found, bits = found[order], bits[order]
            first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
            yield found[first], np.bitwise_or.reduceat(bits, first)


def _made_of(plan: Candidates, rules: PairFilter, vectors: Array | None, *, graph: bool) -> dict[str, object]:
    """Everything that decides the pairs; `device` does so only where it decides between exact and approximate."""
    digest = hashlib.blake2b(digest_size=16)
    if "semantic" in plan.strategies and vectors is not None:
        for start in range(0, len(vectors), WINDOW):
            digest.update(np.ascontiguousarray(vectors[start : start + WINDOW]).data)
    return {
        "plan": asdict(plan) | {"approximate": graph},
        "sentences and rules": rules.hash,
        "vectors": digest.hexdigest(),
        "window": WINDOW,
    }


def _check(sentences: Sentences, rules: PairFilter) -> None:
    if rules.sentences_hash != sentences.hash:
        raise InputError("the rules were made for other sentences: make PairFilter(sentences, ...) of these")
    if len(sentences) < 2:
        raise InputError(f"pairs need at least two different sentences, got {len(sentences)}")
