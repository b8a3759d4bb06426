"""Material to measure with: Korean and English texts of so many words, and vectors that crowd as real ones do.

Everything follows from a seed. A model computes the same for any words, so that nobody's data is needed. How much a
graph costs does depend on how its vectors lie: a walk among vectors that crowd around centres compares far fewer
than one among those of news titles, and without any structure more. These are loose enough to take as many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TEXT = (
    "오늘 비가 많이 와서 우산을 들고 나갔다 친구와 역 앞에서 만나 점심으로 국수를 먹고 새로 연 책방에 들렀다 저녁에는 "
    "집에 돌아와 음악을 들으며 편지를 썼다 창밖의 바람이 차가웠지만 방 안은 따뜻했다 "
    "the parcel arrived late but everything in it was whole and the shop answered my question within an hour "
    "we walked along the river until it grew dark talked about the new library and took the last train home"
)
_WORDS = _TEXT.split()
_CENTRES = 200
_DIRECTIONS = 120  # that vectors differ in, whatever their length
_NEAR = 0.35  # how much of a vector is its centre
_STRUCTURE = 7  # the seed of centres and directions: those of documents and of queries are the same


def texts(count: int, words: int, *, seed: int = 0) -> list[str]:
    """So many different texts of about so many words."""
    drawn = np.random.default_rng([seed, words]).integers(0, len(_WORDS), (count, max(1, words - 1)))
    return [f"{number} " + " ".join(_WORDS[word] for word in row) for number, row in enumerate(drawn.tolist())]


def vectors(count: int, dimension: int, *, seed: int = 0) -> NDArray[np.float32]:  # [count, dimension]
    """Unit vectors loosely around centres, themselves around a few broad directions."""
    random = np.random.default_rng([_STRUCTURE, dimension])
    broad = random.standard_normal((20, dimension), dtype=np.float32)
    noise = random.standard_normal((_CENTRES, dimension), dtype=np.float32)
    centres = _NEAR * (broad[random.integers(0, len(broad), _CENTRES)] + 0.9 * noise)
    directions = random.standard_normal((min(_DIRECTIONS, dimension), dimension), dtype=np.float32)
    directions *= 0.8 / np.sqrt(len(directions))
    random = np.random.default_rng([seed, dimension])
    found = random.standard_normal((count, len(directions)), dtype=np.float32) @ directions
    found += centres[random.integers(0, _CENTRES, count)]
    unit: NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit
