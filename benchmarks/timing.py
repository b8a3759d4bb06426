"""Interleaved timing: A B A B ..., so that whatever slows the machine down slows both sides down.

Enters: sides and texts. Leaves: seconds of every repetition, and from them medians and the ratios within each round.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.sides import Array, Side

PAUSE = 0.2  # seconds; idle OpenMP threads of the side before stop spinning


@dataclass(frozen=True)
class Timed:
    """One side's repetitions."""

    name: str
    texts: int
    seconds: list[float]
    vectors: Array  # [texts, dimension], the last repetition's

    @property
    def rate(self) -> float:
        """Texts per second, the median repetition's."""
        return self.texts / statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """How many times sooner, round by round."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"


def ratio(theirs: Timed, ours: Timed) -> Ratio:
    """Theirs over ours, of the repetitions that stood next to each other."""
    each = [a / b for a, b in zip(theirs.seconds, ours.seconds, strict=True)]
    return Ratio(statistics.median(each), min(each), max(each))


def once(side: Side, texts: Sequence[str]) -> tuple[float, Array]:
    """Seconds and vectors of one encoding."""
    side.prepare()
    gc.collect()
    time.sleep(PAUSE)
    started = time.perf_counter()
    vectors = side.encode(texts)
    return time.perf_counter() - started, vectors


def interleaved(sides: Sequence[Side], texts: Sequence[str], repeats: int, *, warm_up: int) -> list[Timed]:
    """Every side once, then every side again, `repeats` times; before that each encodes `warm_up` texts untimed."""
    import torch

    threads = torch.get_num_threads()
    for side in sides:
        once(side, texts[:warm_up])
    runs: list[list[tuple[float, Array]]] = [[] for _ in sides]
    for number in range(repeats):
        for side, found in zip(sides, runs, strict=True):
            progress(f"round {number + 1} of {repeats}: {side.name}")
            found.append(once(side, texts))
            if torch.get_num_threads() != threads:
                raise RuntimeError(
                    f"{side.name} left torch with {torch.get_num_threads()} threads, there were {threads}: "
                    "the other side would be measured wrongly"
                )
    progress("")
    return [
        Timed(side.name, len(texts), [seconds for seconds, _ in found], found[-1][1])
        for side, found in zip(sides, runs, strict=True)
    ]


def lowest_cosine(a: Array, b: Array) -> float:
    """The lowest cosine between rows that belong together."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    scale = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float((np.einsum("nd,nd->n", a, b) / np.maximum(scale, 1e-12)).min())


def progress(line: str) -> None:
    """What is going on, on one line of stderr."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line[:100]}")
        sys.stderr.flush()
    elif line:
        sys.stderr.write(f"... {line}\n")
