"""Vectors of topics -> how topics join into larger ones: average linkage over cosine distances.

The nearest two join, again and again; the distance of two groups is the mean over all pairs of their topics (UPGMA,
updated by the formula of Lance and Williams). Numbers as in scipy: the topics are 0..k-1, and merge i makes k + i.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.tasks.class_tfidf import Word
from munjang.vectors import normalize

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Merge:
    """Two topics, or groups of them, that join."""

    number: int  # of the new group
    left: int
    right: int
    distance: float  # 1 - cosine, the mean over pairs of topics
    topics: tuple[int, ...]  # all that are now together
    words: tuple[str, ...]  # the heaviest of them


def average_linkage(vectors: Array) -> list[tuple[int, int, float]]:
    """(left, right, distance) of every merge, nearest first; left < right. vectors: [k, d]."""
    unit = np.asarray(normalize(np.asarray(vectors)), dtype=np.float64)
    count = len(unit)
    distances = np.maximum(1 - unit @ unit.T, 0)  # [k, k]
    np.fill_diagonal(distances, np.inf)
    names = list(range(count))  # which group stands in which row
    sizes = np.ones(count)
    merges = []
    for number in range(count, 2 * count - 1):
        a, b = divmod(int(np.argmin(distances)), count)
        left, right = sorted((names[a], names[b]))
        merges.append((left, right, float(distances[a, b])))
        joined = (sizes[a] * distances[a] + sizes[b] * distances[b]) / (sizes[a] + sizes[b])
        distances[a], distances[:, a] = joined, joined
        distances[b], distances[:, b] = np.inf, np.inf
        distances[a, a] = np.inf
        names[a] = number
        sizes[a] += sizes[b]
    return merges


def merges_of(vectors: Array, words: Sequence[Sequence[Word]], sizes: Sequence[int], *, top: int = 5) -> list[Merge]:
    """The merges of topics with the words of each group: the sums of their weights, large topics counting more."""
    members: list[tuple[int, ...]] = [(topic,) for topic in range(len(vectors))]
    weights = [Counter({word.text: word.weight * size for word in row}) for row, size in zip(words, sizes, strict=True)]
    found = []
    for left, right, distance in average_linkage(vectors) if len(vectors) > 1 else []:
        members.append(tuple(sorted(members[left] + members[right])))
        weights.append(weights[left] + weights[right])
        heaviest = sorted(weights[-1].items(), key=lambda entry: (-entry[1], entry[0]))[:top]
        shown = tuple(text for text, _ in heaviest)
        found.append(Merge(len(members) - 1, left, right, distance, members[-1], shown))
    return found


def tree_text(merges: Sequence[Merge], names: Sequence[str], sizes: Sequence[int]) -> str:
    """The merges as an indented tree, the last one on top; every line ends in the size or the distance."""
    if not merges:
        return "\n".join(f"{name} ({size:,})" for name, size in zip(names, sizes, strict=True))
    by_number = {merge.number: merge for merge in merges}
    lines: list[str] = []
    waiting = [(merges[-1].number, "", "")]  # node, what stands before it, what stands before its children
    while waiting:
        node, before, below = waiting.pop()
        if node not in by_number:
            lines.append(f"{before}{node}  {names[node]} ({sizes[node]:,})")
            continue
        merge = by_number[node]
        lines.append(f"{before}· {', '.join(merge.words[:3])} [{merge.distance:.3f}]")
        waiting.append((merge.right, below + "└─ ", below + "   "))
        waiting.append((merge.left, below + "├─ ", below + "│  "))
    return "\n".join(lines)
