"""What a model learned from, and what it is measured on -> how much of the second stands in the first.

Enters: the trials, and the training sets one by one (so that no more than one is in memory). Leaves: for every
evaluation set the rows that share a text with training text, exactly and after normalisation, by training set; and for
each such set a trial over the rows that remain, whose score can be set beside the whole one.

A row is what the score counts: a pair, a text, a query. A query counts as seen where it, or a document that is relevant
to it, was seen; it is then not asked, while the corpus stays whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from munjang.data import DATASETS, Examples, Retrieval, join, leakage, load_dataset, read_texts, without
from munjang.data.datasets import find_files
from munjang.errors import DataError, InputError
from munjang.evaluation import ProbeEvaluator, RetrievalEvaluator, StsMeanEvaluator, Trial, TwoStageEvaluator
from munjang.evaluation.metrics.arrays import Array

UNSEEN = ", unseen rows"  # behind the name of a set: the trial that leaves shared rows out


@dataclass(frozen=True)
class SetOverlap:
    """The rows of one evaluation set that stand in training text."""

    name: str
    rows: int
    exact: Array  # int64: rows with a text that stands there letter by letter
    normalised: Array  # int64: the same without case, spaces and punctuation
    whole: Array  # int64: rows whose texts stand together in one training row
    by: Mapping[str, int] = field(default_factory=dict)  # training set -> rows, normalised; only where there are any

    def to_dict(self) -> dict[str, object]:
        """As JSON takes it."""
        counts = {"exact": len(self.exact), "normalised": len(self.normalised), "whole rows": len(self.whole)}
        return {"rows": self.rows, **counts, "by": dict(self.by)}


def find_overlaps(trials: Sequence[Trial], training: Iterator[Examples]) -> dict[str, SetOverlap]:
    """Compare every evaluation set with one training set after another."""
    judged = {trial.name: _rows_of(trial) for trial in trials}
    empty = np.zeros(0, np.int64)
    found = {name: SetOverlap(name, one.count, empty, empty, empty) for name, one in judged.items()}
    for train in training:
        shared = leakage([train], [one.examples for one in judged.values()])
        for (name, one), leak in zip(judged.items(), shared.sets, strict=True):
            seen = one.rows(leak.normalised.some)
            known = found[name]
            found[name] = replace(
                known,
                exact=np.union1d(known.exact, one.rows(leak.exact.some)),
                normalised=np.union1d(known.normalised, seen),
                whole=np.union1d(known.whole, one.rows(leak.normalised.whole)),
                by={**known.by, train.name: len(seen)} if len(seen) else known.by,
            )
    return found


def unseen_trials(trials: Sequence[Trial], overlaps: Mapping[str, SetOverlap]) -> list[Trial]:
    """A trial over the rows that were not seen, for every set that has seen ones; none where nothing remains.

    A reranker over a first search is not asked again: it would take as long as the whole.
    """
    found = []
    for trial in trials:
        overlap = overlaps.get(trial.name)
        if overlap is None or not len(overlap.normalised) or trial.kind == "two-stage":
            continue
        note = f"{len(overlap.normalised):,} of {overlap.rows:,} rows share a text with training text: left out"
        try:
            evaluator = _without(trial, overlap.normalised)
        except InputError:  # nothing to tell apart among the rows that remain
            continue
        found.append(replace(trial, evaluator=evaluator, notes=(*trial.notes, note)))
    return found


def read_training(names: Sequence[str], data: str | Path) -> Iterator[Examples]:
    """Training sets one after another: a public set with its split (korsts:train), a file of texts, or a making.json.

    A making.json stands for the sets that it names. Everything is looked for before anything is read.
    """
    readers = [_reader(name, data) for name in _every_set(names)]
    return (read() for read in readers)


def training_names(names: Sequence[str]) -> list[str]:
    """The same sets for people elsewhere: a public set as it was named, a file by its name without its folder."""
    return [name if name.partition(":")[0] in DATASETS else Path(name).name for name in _every_set(names)]


def _every_set(names: Sequence[str]) -> list[str]:
    wanted = [part for name in names for part in (_of_making(Path(name)) if name.endswith("making.json") else [name])]
    return list(dict.fromkeys(wanted))


def _of_making(path: Path) -> list[str]:
    try:
        sets: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["data"]
        return [str(one["set"]) for one in sets]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: expected a making.json whose data names its sets, as korsts:train: {error!r}"
        ) from None


def _reader(name: str, data: str | Path) -> Callable[[], Examples]:
    known, _, split = name.partition(":")
    if known in DATASETS:
        if split not in DATASETS[known].splits:
            raise InputError(f"{name}: expected {known}:SPLIT, with a split of {', '.join(DATASETS[known].splits)}")
        find_files(known, split, data)
        return lambda: load_dataset(known, split, data)
    path = next((one for one in (Path(name), Path(data) / name) if one.is_file()), None)
    if path is None:
        raise InputError(f"{name}: expected SET:SPLIT of a public set, such as korsts:train, or a file of texts")

    def read() -> Examples:
        texts = [text for text in read_texts(path) if text.strip()]
        if not texts:
            raise DataError(f"{path}: there are no texts in it")
        return Examples(path.name, "plain", {"text": texts})

    return read


@dataclass(frozen=True)
class _Rows:
    """The texts of an evaluation set, and which of its rows each row of texts belongs to."""

    examples: Examples
    count: int
    owner: Array | None = None  # int64 [rows of texts]: the row that the score counts; None: the same row

    def rows(self, found: Array) -> Array:
        return np.asarray(found) if self.owner is None else np.unique(self.owner[found])


def _rows_of(trial: Trial) -> _Rows:
    evaluator: Any = trial.evaluator
    if isinstance(evaluator, StsMeanEvaluator):
        joined = join(evaluator.sets, name=evaluator.name)
        return _Rows(joined, len(joined))
    if isinstance(evaluator, RetrievalEvaluator | TwoStageEvaluator):
        return _of_retrieval(evaluator.retrieval)
    if isinstance(evaluator, ProbeEvaluator):
        judged = evaluator.train if evaluator.test is None else evaluator.test
        return _Rows(judged, len(judged))
    examples: Examples = evaluator.examples
    if examples.groups is not None:  # lists to rerank: a query with all its documents
        return _Rows(examples, len(np.unique(examples.groups)), examples.groups)
    return _Rows(examples, len(examples))


def _of_retrieval(retrieval: Retrieval) -> _Rows:
    """The judged pairs of query and document."""
    judged = [(query, key, grade) for query, grades in retrieval.relevant.items() for key, grade in grades.items()]
    numbers = {query: number for number, query in enumerate(retrieval.relevant)}
    ranked = Examples(
        retrieval.name,
        "ranked",
        {
            "query": [retrieval.queries[query] for query, _, _ in judged],
            "document": [retrieval.corpus[key] for _, key, _ in judged],
        },
        np.asarray([grade for _, _, grade in judged], np.float32),
        groups=np.asarray([numbers[query] for query, _, _ in judged], np.int64),
        reading=retrieval.reading,
    )
    assert ranked.targets is not None
    assert ranked.groups is not None
    relevant = np.flatnonzero(ranked.targets > 0)
    queries = np.unique(ranked.groups[relevant], return_inverse=True)[1].reshape(-1)
    return _Rows(ranked.take(relevant), int(queries.max()) + 1, queries)


def _without(trial: Trial, rows: Array) -> Any:
    evaluator: Any = trial.evaluator
    name = trial.name + UNSEEN
    if isinstance(evaluator, RetrievalEvaluator):
        return replace(evaluator, retrieval=_fewer(evaluator.retrieval, rows, name))
    if isinstance(evaluator, ProbeEvaluator):
        if evaluator.test is not None:
            return replace(evaluator, test=replace(without(evaluator.test, rows), name=name))
        return replace(evaluator, train=replace(without(evaluator.train, rows), name=name))
    if isinstance(evaluator, StsMeanEvaluator):
        return replace(evaluator, sets=_fewer_each(evaluator.sets, rows), name=name)
    examples: Examples = evaluator.examples
    if examples.groups is not None:
        rows = np.flatnonzero(np.isin(examples.groups, rows))
    return replace(evaluator, examples=replace(without(examples, rows), name=name))


def _fewer_each(sets: Sequence[Examples], rows: Array) -> tuple[Examples, ...]:
    """Several sets less rows that are numbered through all of them."""
    starts = np.cumsum([0, *map(len, sets)])
    parts = [rows[(rows >= start) & (rows < end)] - start for start, end in pairwise(starts)]
    return tuple(without(one, part) if len(part) else one for one, part in zip(sets, parts, strict=True))


def _fewer(retrieval: Retrieval, rows: Array, name: str) -> Retrieval:
    asked = [query for query, grades in retrieval.relevant.items() if any(grade > 0 for grade in grades.values())]
    gone = {asked[row] for row in rows.tolist()}
    queries = {query: text for query, text in retrieval.queries.items() if query not in gone}
    relevant = {query: grades for query, grades in retrieval.relevant.items() if query not in gone}
    return replace(retrieval, name=name, queries=queries, relevant=relevant)
