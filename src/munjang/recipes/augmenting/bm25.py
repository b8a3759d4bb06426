"""BM25 (Robertson and Zaragoza 2009) over all sentences, to find for each those that share its telling words.

    score(q, d) = sum over the words t of q of  idf(t) * f(t, d) * (k1 + 1) / (f(t, d) + k1 * (1 - b + b * |d| / mean))
    idf(t) = log(1 + (n - df(t) + 1/2) / (df(t) + 1/2)), which is never negative; a word that q has twice counts twice

f(t, d) is how often d has t, |d| how many words d has, and `mean` the mean of these.

Words: lower case, letters and digits of a run. Hangul runs become their pairs of neighbouring syllables (서울에서:
서울, 울에, 에서), a lone syllable stays: Korean glues particles and endings to the word, and pairs of syllables let
서울에서 and 서울은 meet in 서울 without a dictionary, while endings occur everywhere and weigh next to nothing.

The search is exact. The words of a sentence are gone through from the one that can add most to the one that can add
least. As soon as all that is left together cannot lift a new sentence among the k best, only those seen so far that
still can get there are looked up in the remaining lists, which are the long ones (MaxScore, Turtle and Flood 1995).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.overlaps import same_key

Array: TypeAlias = npt.NDArray[Any]
_RUNS = re.compile(r"([가-힣]+)|([^\W_가-힣]+)")
_LONG = 32  # entries: a shorter list is added sooner than it is thought about
_ROUNDING = 1e-9  # relative: sums in another order differ by less


def analyse(text: str) -> list[str]:
    """The words that BM25 counts."""
    words: list[str] = []
    for hangul, other in _RUNS.findall(same_key(text)):
        if len(hangul) > 1:
            words += [hangul[place : place + 2] for place in range(len(hangul) - 1)]
        else:
            words.append(hangul or other)
    return words


@dataclass(frozen=True, eq=False, repr=False)
class BM25:
    """Sentences, ready to be searched: for every word, who has it and what that is worth."""

    words: dict[str, int]  # word -> its number
    starts: Array  # int64 [words + 1]: where the list of a word begins
    documents: Array  # int32 [entries]: sentences, ascending within a word
    weights: Array  # float64 [entries]: what the word adds to that sentence's score
    greatest: Array  # float64 [words]: the greatest weight of the word
    query_starts: Array  # int64 [n + 1]: where the words of a sentence begin
    query_words: Array  # int32 [tokens]: the words of all sentences, one after another

    @classmethod
    def of(cls, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> BM25:
        words: dict[str, int] = {}
        found, lengths = array("i"), array("i")
        for text in texts:
            numbers = [words.setdefault(word, len(words)) for word in analyse(text)]
            found.extend(numbers)
            lengths.append(len(numbers))
        tokens, length = np.array(found, np.int32), np.array(lengths, np.int64)
        count = len(length)
        own = np.repeat(np.arange(count), length)
        keys, times = np.unique(tokens.astype(np.int64) * max(1, count) + own, return_counts=True)
        numbers, documents = keys // max(1, count), (keys % max(1, count)).astype(np.int32)
        df = np.bincount(numbers, minlength=len(words))
        idf = np.log1p((count - df + 0.5) / (df + 0.5))
        mean = float(length.mean()) if len(tokens) else 1.0
        weights = idf[numbers] * times * (k1 + 1) / (times + k1 * (1 - b + b * length[documents] / mean))
        starts = np.concatenate([[0], np.cumsum(df)])
        greatest = np.maximum.reduceat(weights, starts[:-1]) if len(words) else np.zeros(0)
        query_starts = np.concatenate([[0], np.cumsum(length)])
        return cls(words, starts, documents, weights, greatest, query_starts, tokens)

    def __len__(self) -> int:
        return len(self.query_starts) - 1

    def scores(self, text: str) -> Array:  # float64 [n]
        """The score of every sentence for a text."""
        total = np.zeros(len(self))
        for word in analyse(text):
            if word in self.words:
                documents, weights = self._list(self.words[word])
                total[documents] += weights
        return total

    def nearest(self, rows: slice, k: int) -> Array:  # int64 [rows, k]
        """For each of these sentences the k best that share a word with it, itself too; -1 where there are fewer.

        Equal scores go to the earlier sentence.
        """
        found = np.full((rows.stop - rows.start, k), -1, np.int64)
        total = np.zeros(len(self))  # zero again after every sentence
        for line, row in enumerate(range(rows.start, rows.stop)):
            documents = self._best(row, k, total)
            found[line, : len(documents)] = documents
        return found

    def _best(self, row: int, k: int, total: Array) -> Array:  # int32 [at most k]
        own = self.query_words[self.query_starts[row] : self.query_starts[row + 1]]
        words, times = np.unique(own, return_counts=True)
        bounds = self.greatest[words] * times
        order = np.argsort(-bounds, kind="stable")
        # What a word and all words after it can add together; a little more, as sums are rounded.
        left = [*(np.cumsum(bounds[order][::-1])[::-1] * (1 + _ROUNDING)).tolist(), 0.0]
        asked = list(zip(words[order].tolist(), times[order].tolist(), strict=True))
        seen: list[Array] = []
        candidates, place = np.zeros(0, np.int32), 0
        for place, (word, count) in enumerate(asked):
            documents, weights = self._list(word)
            if left[place] < left[0] - left[place] and len(documents) > _LONG:  # else no sum can be that far ahead
                candidates = np.concatenate(seen)
                reached = total[candidates]
                if len(candidates) >= k and left[place] < _kth(reached, k):
                    break
            before = total[documents]
            seen.append(documents[before == 0.0])
            total[documents] = before + weights * count
        else:
            candidates, place = (np.concatenate(seen) if seen else candidates), len(asked)
        reached = total[candidates]
        for documents in seen:
            total[documents] = 0.0
        for rest, (word, count) in enumerate(asked[place:], start=place):
            hopeful = reached + left[rest] >= _kth(reached, k) * (1 - _ROUNDING)
            candidates, reached = candidates[hopeful], reached[hopeful]
            documents, weights = self._list(word)
            where = np.minimum(np.searchsorted(documents, candidates), len(documents) - 1)
            reached += np.where(documents[where] == candidates, weights[where] * count, 0.0)
        return candidates[np.lexsort((candidates, -reached))[:k]]

    def _list(self, word: int) -> tuple[Array, Array]:
        span = slice(int(self.starts[word]), int(self.starts[word + 1]))
        return self.documents[span], self.weights[span]


def _kth(values: Array, k: int) -> float:
    """The k-th greatest of at least k values."""
    return float(np.partition(values, len(values) - k)[len(values) - k])
