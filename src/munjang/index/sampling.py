"""Documents of an index with one vector each, for what looks at a collection as a whole: clusters and maps.

Enters: a committed state. Leaves: ids, texts and the means of the passages' vectors, for all documents that can be
found or, where there are too many, for every so-many-th of them in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from munjang.index.state import State

_BLOCK = 4096  # passages whose vectors are read at once
_CHARACTERS = 4000  # of a text: enough to know it by


@dataclass(frozen=True, eq=False)
class Sample:
    """Documents with a vector each; all of the same state."""

    generation: int
    ids: list[str]
    texts: list[str]  # their beginnings, where they are long
    vectors: NDArray[np.float32]  # [n, d]
    documents: int  # that can be found, of which these are a choice

    def __len__(self) -> int:
        return len(self.ids)


def sample(state: State, most: int) -> Sample:
    """At most `most` documents, evenly chosen."""
    layout = state.layout
    rows = layout.rows  # of the documents that have passages
    chosen = rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
    places = np.searchsorted(chosen, layout.owners)
    places[places == len(chosen)] = 0
    mine = chosen[places] == layout.owners if len(chosen) else np.zeros(len(layout.owners), np.bool_)
    numbers, places = layout.numbers[mine], places[mine]
    sums = np.zeros((len(chosen), state.dimension), np.float32)
    for first in range(0, len(numbers), _BLOCK):
        part = slice(first, first + _BLOCK)
        np.add.at(sums, places[part], state.vectors(numbers[part]))
    counts = np.bincount(places, minlength=len(chosen)).astype(np.float32)
    ids, texts = _documents(state, chosen)
    sums /= np.maximum(counts, 1)[:, None]
    return Sample(state.generation, ids, texts, sums, len(rows))


def _documents(state: State, rows: NDArray[np.int64]) -> tuple[list[str], list[str]]:
    ids: list[str] = []
    texts: list[str] = []
    for first in range(0, len(rows), 500):
        part = rows[first : first + 500].tolist()
        places = ", ".join("?" * len(part))
        query = f"SELECT id, substr(text, 1, {_CHARACTERS}) FROM documents WHERE row IN ({places}) ORDER BY row"
        for id, text in state.connection.execute(query, part):
            ids.append(id)
            texts.append(text)
    return ids, texts
