"""A folder of public data sets -> the trials that a model is compared by, Korean and English.

A set that is not in the folder is named with the reason, and so is one that a model cannot be asked about (a
cross-encoder makes no vectors): nothing is left out in silence. Large sets can be capped; the scores then say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from munjang.data import DATASETS, RETRIEVAL_DATASETS, Examples, Retrieval, load_dataset, load_retrieval
from munjang.errors import DataError, InputError
from munjang.evaluation.candidates import lexical_lists
from munjang.evaluation.clustering import ClusteringEvaluator
from munjang.evaluation.mining import BitextEvaluator, ParaphraseMiningEvaluator
from munjang.evaluation.pairs import LabelEvaluator, PairClassificationEvaluator, label_order
from munjang.evaluation.probe import ProbeEvaluator
from munjang.evaluation.retrieval import RerankingEvaluator, RetrievalEvaluator
from munjang.evaluation.scores import Evaluator, Model, Scores, cross_encoder
from munjang.evaluation.sts import StsEvaluator

SuiteName = Literal["korean", "english", "all"]
TrialKind = Literal[
    "sts", "pairs", "labels", "retrieval", "reranking", "two-stage", "mining", "bitext", "clustering", "probe"
]
_PROBE_ROWS = 20_000  # of a probe's training and test rows each: more moves the accuracy little and takes an hour
_RERANKED = 500  # queries of a reranking set
_CANDIDATES = 20  # documents to rerank per query


@dataclass(frozen=True)
class Trial:
    """An evaluator of a suite: what kind it is, and what was capped."""

    evaluator: Evaluator
    kind: TrialKind
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.evaluator.name

    @property
    def main(self) -> str:
        return self.evaluator.main

    def __call__(self, model: Model) -> Scores:
        scores = self.evaluator(model)
        return replace(scores, notes=(*self.notes, *scores.notes))

    def unsuited(self, model: Model) -> str | None:
        """Why this model cannot be asked, or None."""
        cross = cross_encoder(model)
        if cross is None:
            return "a bi-encoder gives no labels" if self.kind == "labels" else None
        if self.kind not in ("sts", "pairs", "labels", "reranking"):
            return "needs vectors, and a cross-encoder makes none"
        if self.kind != "labels":
            return None if len(cross.labels) == 1 else f"needs one score per pair, the model has {len(cross.labels)}"
        assert isinstance(self.evaluator, LabelEvaluator)
        try:
            label_order(tuple(cross.labels), self.evaluator.examples.labels, name=self.name)
        except InputError:
            return f"its labels ({', '.join(self.evaluator.examples.labels)}) are not the model's"
        return None


@dataclass(frozen=True)
class Suite:
    """Trials that can be run, and sets that are missing or unusable, with the reason."""

    trials: tuple[Trial, ...]
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Options:
    folder: Path
    bootstrap: int
    quick: int | None


@dataclass(frozen=True)
class _Entry:
    title: str
    kind: TrialKind
    language: Literal["ko", "en"]
    make: Callable[[_Options], Trial]


def suite(name: SuiteName, folder: str | Path, *, intervals: bool = True, quick: int | None = None) -> list[Evaluator]:
    """The evaluators of a suite; a set that is missing or unusable is a DataError (`build_suite` lists it instead)."""
    built = build_suite(name, folder, intervals=intervals, quick=quick)
    if built.absent:
        raise DataError("; ".join(built.absent.values()))
    return list(built.trials)


def build_suite(
    name: SuiteName,
    folder: str | Path,
    *,
    only: Sequence[TrialKind] = (),
    intervals: bool = True,
    quick: int | None = None,
) -> Suite:
    """The trials of a suite. only: just these kinds. quick: at most so many rows or queries of every set."""
    if name not in get_args(SuiteName):
        raise InputError(f"suite must be one of {', '.join(get_args(SuiteName))}, got {name!r}")
    for kind in only:
        if kind not in get_args(TrialKind):
            raise InputError(f"only must be of {', '.join(get_args(TrialKind))}, got {kind!r}")
    if quick is not None and quick < 10:
        raise InputError(f"quick must be 10 rows or more, got {quick}")
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder: expected the folder that holds the data sets")
    options = _Options(Path(folder), 1000 if intervals else 0, quick)
    trials, absent = [], {}
    for entry in _ENTRIES:
        if (name == "all" or entry.language == name[:2]) and (not only or entry.kind in only):
            try:
                trials.append(entry.make(options))
            except (DataError, InputError) as error:  # not in the folder, or not usable, such as a label without rows
                absent[entry.title] = str(error)
    return Suite(tuple(trials), absent)


def _sts(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        examples, notes = _some(load_dataset(name, split, options.folder), options.quick)
        return Trial(StsEvaluator(examples, bootstrap=options.bootstrap), "sts", notes)

    return make


def _pairs(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        examples, notes = _some(load_dataset(name, split, options.folder), options.quick)
        return Trial(PairClassificationEvaluator(examples, bootstrap=options.bootstrap), "pairs", notes)

    return make


def _labels(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        examples, notes = _some(load_dataset(name, split, options.folder), options.quick)
        return Trial(LabelEvaluator(examples, bootstrap=options.bootstrap), "labels", notes)

    return make


def _probe(name: str, train: str, test: str | None = None) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        most = min(_PROBE_ROWS, options.quick or _PROBE_ROWS)
        learnt, notes = _some(load_dataset(name, train, options.folder), most, what="training rows")
        learnt = replace(learnt, name=f"{DATASETS[name].title} probe")
        if test is None:
            return Trial(ProbeEvaluator(learnt, bootstrap=options.bootstrap), "probe", notes)
        judged, more = _some(load_dataset(name, test, options.folder), most)
        judged = replace(judged, name=learnt.name)
        return Trial(ProbeEvaluator(learnt, judged, bootstrap=options.bootstrap), "probe", (*notes, *more))

    return make


def _clustering(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        examples, notes = _some(load_dataset(name, split, options.folder), options.quick)
        examples = replace(examples, name=f"{DATASETS[name].title} clustering")
        return Trial(ClusteringEvaluator(examples), "clustering", notes)

    return make


def _mining(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        examples = load_dataset(name, split, options.folder)
        rows: Sequence[int] = range(len(examples))
        if options.quick is not None and examples.targets is not None:  # whole groups, the first ones
            kept = examples.targets < len(np.unique(examples.targets)) * options.quick / len(examples)
            rows = np.flatnonzero(kept).tolist()
        notes = capped(len(rows), len(examples), "texts")
        return Trial(
            ParaphraseMiningEvaluator(examples.take(rows, name=f"{DATASETS[name].title} mining")), "mining", notes
        )

    return make


def _bitext(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        examples, notes = _some(load_dataset(name, split, options.folder), options.quick)
        return Trial(BitextEvaluator(examples, bootstrap=options.bootstrap), "bitext", notes)

    return make


def _retrieval(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        found, notes = fewer_queries(load_retrieval(name, split, options.folder), options.quick)
        return Trial(RetrievalEvaluator(found, bootstrap=options.bootstrap), "retrieval", notes)

    return make


def _reranking(name: str, split: str) -> Callable[[_Options], Trial]:
    def make(options: _Options) -> Trial:
        found = load_retrieval(name, split, options.folder)
        queries = min(_RERANKED, options.quick or _RERANKED)
        title = f"{RETRIEVAL_DATASETS[name].title} reranking"
        lists = lexical_lists(found, size=_CANDIDATES, queries=queries, name=title)
        notes = (f"{_CANDIDATES} lexical candidates per query", *capped(queries, len(found), "queries"))
        return Trial(RerankingEvaluator(lists, bootstrap=options.bootstrap), "reranking", notes)

    return make


def _some(examples: Examples, most: int | None, *, what: str = "rows") -> tuple[Examples, tuple[str, ...]]:
    """A random choice of rows, always the same, in their order; and the note that says so."""
    if most is None or len(examples) <= most:
        return examples, ()
    chosen = np.sort(np.random.default_rng(0).choice(len(examples), most, replace=False))
    return examples.take(chosen), capped(most, len(examples), what)


def fewer_queries(retrieval: Retrieval, most: int | None) -> tuple[Retrieval, tuple[str, ...]]:
    """A random choice of queries, always the same; and the note that says so."""
    if most is None or len(retrieval.queries) <= most:
        return retrieval, ()
    names = list(retrieval.queries)
    chosen = np.sort(np.random.default_rng(0).choice(len(names), most, replace=False)).tolist()
    queries = {names[place]: retrieval.queries[names[place]] for place in chosen}
    relevant = {query: retrieval.relevant[query] for query in queries if query in retrieval.relevant}
    return replace(retrieval, queries=queries, relevant=relevant), capped(most, len(names), "queries")


def capped(kept: int, every: int, what: str) -> tuple[str, ...]:
    """The note that a set was capped, where it was."""
    return (f"capped: {kept:,} of {every:,} {what}",) if kept < every else ()


_ENTRIES: tuple[_Entry, ...] = (
    _Entry("KorSTS dev", "sts", "ko", _sts("korsts", "dev")),
    _Entry("KorSTS test", "sts", "ko", _sts("korsts", "test")),
    _Entry("KLUE-STS dev", "sts", "ko", _sts("klue-sts", "dev")),
    _Entry("KLUE-NLI dev", "labels", "ko", _labels("klue-nli", "dev")),
    _Entry("Question pair test", "pairs", "ko", _pairs("question-pair", "test")),
    _Entry("KorQuAD dev", "retrieval", "ko", _retrieval("korquad", "dev")),
    _Entry("KorQuAD reranking", "reranking", "ko", _reranking("korquad", "dev")),
    _Entry("ParaKQC mining", "mining", "ko", _mining("parakqc", "test")),
    _Entry("Tatoeba en-ko test", "bitext", "ko", _bitext("tatoeba", "test")),
    _Entry("YNAT probe", "probe", "ko", _probe("ynat", "train", "test")),
    _Entry("YNAT clustering", "clustering", "ko", _clustering("ynat", "test")),
    _Entry("NSMC probe", "probe", "ko", _probe("nsmc", "train", "test")),
    _Entry("STSb dev", "sts", "en", _sts("stsb", "dev")),
    _Entry("STSb test", "sts", "en", _sts("stsb", "test")),
    *(_Entry(f"STS{year} test", "sts", "en", _sts(f"sts{year}", "test")) for year in range(12, 17)),
    *(
        _Entry(f"{DATASETS[name].title} probe", "probe", "en", _probe(name, "all"))
        for name in ("mr", "cr", "subj", "mpqa")
    ),
    _Entry("TREC probe", "probe", "en", _probe("trec", "train", "test")),
    _Entry("SST-2 probe", "probe", "en", _probe("sst2", "train", "test")),
    _Entry("Banking77 probe", "probe", "en", _probe("banking77", "train", "test")),
    _Entry("Banking77 clustering", "clustering", "en", _clustering("banking77", "test")),
    _Entry("NFCorpus test", "retrieval", "en", _retrieval("nfcorpus", "test")),
    _Entry("NFCorpus reranking", "reranking", "en", _reranking("nfcorpus", "test")),
)
