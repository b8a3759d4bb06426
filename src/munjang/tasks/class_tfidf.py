"""Words of texts that belong to classes -> the words that set each class apart.

Class-based TF-IDF (Grootendorst, BERTopic, arXiv 2203.05794, equation 2): all texts of a class count as one,

    W(t, c) = tf(t, c) * log(1 + A / tf(t))

tf(t, c) is the share of word t among the words of class c, tf(t) how often it comes in all classes, A the mean number
of words per class. The share, where the paper has the count, makes the weights of a large and a small class
comparable; within a class it changes no order.

Only pairs (class, word) that occur are held: compressed rows in numpy, no matrix of classes x words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from munjang.errors import InputError
from munjang.progress import Progress, track
from munjang.tasks.candidates import Language, topic_words


@dataclass(frozen=True)
class Word:
    """A word of a class and how much it sets the class apart."""

    text: str
    weight: float


@dataclass(frozen=True)
class ClassTerms:
    """The weights of all words in all classes, in compressed rows: class i has entries starts[i]..starts[i + 1]."""

    classes: tuple[int, ...]  # ascending
    vocabulary: tuple[str, ...]
    starts: NDArray[np.int64]  # [classes + 1]
    columns: NDArray[np.int64]  # [entries], numbers of words; of one class in the order in which they came
    weights: NDArray[np.float64]  # [entries]

    def top(self, label: int, count: int) -> tuple[Word, ...]:
        """The heaviest words of a class; of equal ones that which came first in its texts."""
        if label not in self.classes:
            raise InputError(f"class must be one of {', '.join(map(str, self.classes))}, got {label}")
        row = self.classes.index(label)
        first, last = int(self.starts[row]), int(self.starts[row + 1])
        order = first + np.argsort(-self.weights[first:last], kind="stable")[:count]
        return tuple(Word(self.vocabulary[self.columns[entry]], float(self.weights[entry])) for entry in order)


def class_tfidf(words: Iterable[Sequence[str]], labels: Iterable[int]) -> ClassTerms:
    """The weights, from the words of each text and the class of each text; the texts may be a stream."""
    counts: dict[int, Counter[str]] = {}
    for number, (row, label) in enumerate(_both(words, labels)):
        if isinstance(row, str):
            raise InputError(f"row {number} must be a list of words, got a text: split it first (topic_words does)")
        counts.setdefault(int(label), Counter()).update(row)
    return weigh_counts(counts)


def weigh_counts(counts: Mapping[int, Mapping[str, int]]) -> ClassTerms:
    """The weights, from how often each word comes in each class."""
    classes = tuple(sorted(counts))
    vocabulary = tuple(sorted({word for row in counts.values() for word in row}))
    number = {word: column for column, word in enumerate(vocabulary)}
    sizes = np.array([len(counts[label]) for label in classes], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    columns = np.array([number[word] for label in classes for word in counts[label]], dtype=np.int64)
    values = np.array([value for label in classes for value in counts[label].values()], dtype=np.float64)
    rows = np.repeat(np.arange(len(classes)), sizes)
    totals = np.bincount(rows, weights=values, minlength=len(classes))  # words of each class
    overall = np.bincount(columns, weights=values, minlength=len(vocabulary))  # tf(t)
    mean = totals.mean() if len(classes) else 0.0  # A
    weights = values / totals[rows] * np.log1p(mean / overall[columns])
    return ClassTerms(classes, vocabulary, starts, columns, weights)


def class_words(
    texts: Sequence[str],
    labels: Sequence[int] | NDArray[np.int64],
    *,
    top: int = 10,
    language: Language = "auto",
    progress: Progress = False,
) -> dict[int, tuple[Word, ...]]:
    """For every class but -1 (texts without one) its heaviest words: Korean nouns, English words.

    Of words that weigh the same those of earlier texts come first: put the texts that are most typical first.
    """
    if len(texts) != len(labels):
        raise InputError(f"every text needs a label: got {len(texts):,} texts and {len(labels):,} labels")
    counts: dict[int, Counter[str]] = {int(label): Counter() for label in sorted(set(labels)) if label >= 0}
    with track(progress, len(texts)) as done:
        for words, label in zip(topic_words(texts, language=language), labels, strict=True):
            if label >= 0:
                counts[int(label)].update(words)
            done(1)
    terms = weigh_counts(counts)
    return {label: terms.top(label, top) for label in terms.classes}


def _both(words: Iterable[Sequence[str]], labels: Iterable[int]) -> Iterable[tuple[Sequence[str], int]]:
    left, right = iter(words), iter(labels)
    missing = object()
    number = 0
    while True:
        row, label = next(left, missing), next(right, missing)
        if row is missing and label is missing:
            return
        if row is missing or label is missing:
            raise InputError(f"every text needs a label: the {'texts' if row is missing else 'labels'} end at {number}")
        yield row, label  # type: ignore[misc]
        number += 1
