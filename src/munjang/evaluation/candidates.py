"""A retrieval set -> lists to rerank: for every query the documents whose letters are most like its own.

A reranker is judged on what a first, cheap search hands it. That search must not be one of the models under test, so
it is a lexical one: TF-IDF over runs of two and three characters, which needs no word list and serves Korean, where
words carry particles, as well as English. It is deterministic and takes seconds.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from munjang.data.examples import Examples
from munjang.errors import InputError
from munjang.evaluation.metrics.arrays import Array
from munjang.vectors import top_k

if TYPE_CHECKING:
    from munjang.data.examples import Retrieval

_BUCKETS = 8192  # runs of characters are hashed into so many columns


def lexical_lists(retrieval: Retrieval, *, size: int = 20, queries: int | None = None, name: str = "") -> Examples:
    """Ranked examples: each query with its `size` lexically nearest documents, in no telling order.

    Where no relevant document is among them, the most relevant one takes the place of the last. queries: a random
    choice of so many, always the same.
    """
    if size < 2:
        raise InputError(f"size must be 2 or more, got {size}")
    asked = [query for query, grades in retrieval.relevant.items() if any(grade > 0 for grade in grades.values())]
    if queries is not None and queries < len(asked):
        chosen = np.random.default_rng(0).choice(len(asked), queries, replace=False)
        asked = [asked[place] for place in sorted(chosen.tolist())]
    documents = list(retrieval.corpus)
    near = _nearest([retrieval.queries[query] for query in asked], list(retrieval.corpus.values()), size)
    rows: list[tuple[str, str, float, int]] = []
    for group, query in enumerate(asked):
        grades = retrieval.relevant[query]
        found = [documents[place] for place in near[group].tolist()]
        if not any(grades.get(document, 0) > 0 for document in found):
            found[-1] = max(grades, key=lambda document: grades[document])
        found.sort(key=lambda document: zlib.crc32(document.encode()))  # the order must tell nothing
        rows += [
            (retrieval.queries[query], retrieval.corpus[document], float(max(0, grades.get(document, 0))), group)
            for document in found
        ]
    asked_texts, texts, relevance, groups = zip(*rows, strict=True)
    return Examples(
        name or retrieval.name,
        "ranked",
        {"query": list(asked_texts), "document": list(texts)},
        np.array(relevance, np.float32),
        groups=np.array(groups, np.int64),
    )


def _nearest(queries: Sequence[str], corpus: Sequence[str], size: int) -> Array:  # [q, size] rows of the corpus
    counts = _counts(corpus)
    weight = np.log((1 + len(corpus)) / (1 + (counts > 0).sum(axis=0))).astype(np.float32) + 1
    documents = np.log1p(counts) * weight
    asked = np.log1p(_counts(queries)) * weight
    near: Array = top_k(asked, documents, min(size, len(corpus))).indices
    return near


def _counts(texts: Sequence[str]) -> Array:  # float32 [n, buckets]
    counts = np.zeros((len(texts), _BUCKETS), np.float32)
    for row, text in enumerate(texts):
        squeezed = " ".join(text.casefold().split())
        runs = Counter(squeezed[start : start + n] for n in (2, 3) for start in range(len(squeezed) - n + 1))
        for run, count in runs.items():
            counts[row, zlib.crc32(run.encode()) % _BUCKETS] += count
    return counts
