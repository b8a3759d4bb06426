"""Models and a folder of public sets -> one file with everything that is measured about them.

Enters: models (loaded one after another), the folder, a reranker where there is one, and what each model was trained
on. Leaves: results.json, written whole after every score, so that a rerun goes on: `munjang evaluate`'s layout, and
under `about` of each model the machine, the versions, what the model is, its thresholds, and the overlap with training.

The sets are those of `munjang evaluate --suite all`, less the development sets that models are chosen by (a score on
them would flatter) and the sets that need labels; besides, the mean of STS12 to STS16, Banking77 with ten examples a
class, ParaKQC without the groups that thresholds are calibrated on, and a reranker over a bi-encoder's first hits.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.ko_en_0_1.calibrating import parakqc_parts
from models.ko_en_0_1.overlap import find_overlaps, read_training, training_names, unseen_trials
from munjang.data import DATASETS, Examples, Retrieval, load_dataset, load_retrieval
from munjang.errors import DataError, InputError
from munjang.evaluation import (
    ParaphraseMiningEvaluator,
    ProbeEvaluator,
    Results,
    RetrievalEvaluator,
    StsEvaluator,
    StsMeanEvaluator,
    Suite,
    Trial,
    TwoStageEvaluator,
    build_suite,
    score_model,
)
from munjang.evaluation.results import identity_of
from munjang.evaluation.scores import Model, cross_encoder
from munjang.evaluation.suites import capped, fewer_queries
from munjang.files import OutputLock, disk_errors
from munjang.progress import Progress
from munjang.recipes.record import model_facts, versions
from research.running import machine

CHOSEN_BY = ("KorSTS dev", "STSb dev")  # sets that models were chosen by
STS_MEAN = "STS12-16 mean"
_YEARS = tuple(f"STS{year} test" for year in range(12, 17))
_SHOTS = 10  # examples a class of Banking77
_DRAWS = 1000
_QUICK_DOCUMENTS = 6  # a query, for a first look
TWO_STAGE = {
    "KorQuAD dev two-stage": ("korquad", "dev", "recall@1"),
    "NFCorpus test two-stage": ("nfcorpus", "test", "ndcg@10"),
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Reranker:
    """The second stage: a cross-encoder, and the bi-encoders (by name) whose first hits it reorders."""

    name: str
    model: Any  # CrossEncoder
    over: tuple[str, ...]
    candidates: int = 100
    queries: int | None = None  # at most so many of a set, where a hundred pairs a query take too long


@dataclass(frozen=True)
class Subject:
    """A model to measure: its name, how to load it, and what it was trained on (see read_training)."""

    name: str
    load: Callable[[], Model]
    trained_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measuring:
    """What is measured on, and how much of it."""

    data: Path
    quick: int | None = None  # at most so many rows or queries of every set
    intervals: bool = True
    reranker: Reranker | None = None
    only: tuple[str, ...] = ()  # names of sets; empty: all
    progress: Progress = False  # of the second stage, which takes longest

    @property
    def draws(self) -> int:
        return _DRAWS if self.intervals else 0


def measure(subjects: Sequence[Subject], measuring: Measuring, output: str | Path, *, say: Say = print) -> None:
    """Measure every model on everything and keep it in `output`; what is there already is not measured again."""
    if len({subject.name for subject in subjects}) < len(subjects):
        raise InputError(f"every model needs a name of its own, got {', '.join(one.name for one in subjects)}")
    output = Path(output)
    for subject in subjects:
        read_training(subject.trained_on, measuring.data)  # names that are not there show before hours of work
    with _locked(output):
        results = Results(output)
        suite = build_trials(measuring)
        for title, reason in suite.absent.items():
            say(f"{title} skipped: {reason}")
        for subject in subjects:
            _measure_one(subject, suite, measuring, results, say)


def build_trials(measuring: Measuring) -> Suite:
    """The trials that every model is asked, without the second stage."""
    built = build_suite("all", measuring.data, intervals=measuring.intervals, quick=measuring.quick)
    asked = [trial for trial in built.trials if trial.name not in CHOSEN_BY and trial.kind != "labels"]
    trials = [_shown(trial, measuring.quick) for trial in asked]
    absent = {name: why for name, why in built.absent.items() if name not in CHOSEN_BY and name != "KLUE-NLI dev"}
    trials = [trial for trial in trials if trial.name != "ParaKQC mining"]
    with _naming(absent, "ParaKQC mining"):
        trials.append(_parakqc(measuring))
    with _naming(absent, f"Banking77 {_SHOTS}-shot probe"):
        trials.append(_few_shots(measuring))
    years = [trial for trial in trials if trial.name in _YEARS]
    if len(years) == len(_YEARS):
        trials.append(_mean(years, measuring))
    _check_names(measuring.only, [*(trial.name for trial in trials), *absent, *TWO_STAGE])
    wanted = [trial for trial in trials if not measuring.only or trial.name in measuring.only]
    return Suite(tuple(wanted), absent)


def _check_names(asked: Sequence[str], known: Sequence[str]) -> None:
    """A name that is no set's would be measured on nothing, in silence."""
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise InputError(f"there is no set {', '.join(map(repr, unknown))}; the sets are {', '.join(known)}")


def two_stage_trials(measuring: Measuring) -> list[Trial]:
    """The reranker over a first search, where the sets are there."""
    reranker = measuring.reranker
    if reranker is None:
        return []
    found = []
    for name, split, main in TWO_STAGE.values():
        with contextlib.suppress(DataError):  # named as absent by the suite already
            whole = load_retrieval(name, split, measuring.data)
            retrieval, notes = fewer_queries(whole, _least(measuring.quick, reranker.queries))
            retrieval, more = smaller_corpus(retrieval, measuring.quick)
            evaluator = TwoStageEvaluator(
                retrieval,
                reranker.model,
                reranker.candidates,
                bootstrap=measuring.draws,
                main=main,
                reranker_name=reranker.name,
                progress=measuring.progress,
            )
            found.append(Trial(evaluator, "two-stage", (*notes, *more)))
    return [trial for trial in found if not measuring.only or trial.name in measuring.only]


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _measure_one(subject: Subject, suite: Suite, measuring: Measuring, results: Results, say: Say) -> None:
    model = subject.load()
    identity = identity_of(subject.name, model)
    results.about(identity, _facts(model))
    trials = list(suite.trials)
    if measuring.reranker is not None and cross_encoder(model) is None and subject.name in measuring.reranker.over:
        trials += two_stage_trials(measuring)
    if subject.trained_on:
        say(f"{subject.name}: comparing the sets with its training text")
        overlaps = find_overlaps(trials, read_training(subject.trained_on, measuring.data))
        shared = {name: one.to_dict() for name, one in overlaps.items() if len(one.normalised)}
        results.about(identity, {"overlap": shared, "trained on": training_names(subject.trained_on)})
        trials += unseen_trials(trials, overlaps)
    score_model(subject.name, model, trials, results=results, tell=say)


def _facts(model: Model) -> dict[str, object]:
    """What the model is and where it was measured; no paths: the file is for others."""
    described = {name: value for name, value in model_facts(model).items() if name != "source"}
    thresholds: Mapping[str, Any] = getattr(model, "thresholds", {})
    return {
        "kind": "bi-encoder" if cross_encoder(model) is None else "cross-encoder",
        "model": described,
        "machine": machine(model.device),
        "measured": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "thresholds": {task: asdict(threshold) for task, threshold in thresholds.items()},
    }


def _shown(trial: Trial, quick: int | None) -> Trial:
    """KorQuAD has one right passage a question: recall@1 decides there, and more of it gets an interval."""
    evaluator = trial.evaluator
    if not isinstance(evaluator, RetrievalEvaluator):
        return trial
    if trial.name == "KorQuAD dev":
        evaluator = replace(evaluator, main="recall@1", also=("recall@10", "mrr@10"))
    retrieval, notes = smaller_corpus(evaluator.retrieval, quick)
    return replace(trial, evaluator=replace(evaluator, retrieval=retrieval), notes=(*trial.notes, *notes))


def smaller_corpus(retrieval: Retrieval, quick: int | None) -> tuple[Retrieval, tuple[str, ...]]:
    """For a first look: the most relevant documents of every query and some others; easier than the whole."""
    most = len(retrieval.corpus) if quick is None else _QUICK_DOCUMENTS * quick
    if most >= len(retrieval.corpus):
        return retrieval, ()
    kept: set[str] = set()
    for grades in retrieval.relevant.values():
        kept |= set(sorted(grades, key=lambda document: -grades[document])[: _QUICK_DOCUMENTS // 2])
    others = [document for document in retrieval.corpus if document not in kept]
    chosen = np.random.default_rng(0).permutation(len(others))[: max(0, most - len(kept))]
    kept |= {others[place] for place in chosen.tolist()}
    corpus = {document: text for document, text in retrieval.corpus.items() if document in kept}
    relevant = {
        query: {document: grade for document, grade in grades.items() if document in kept}
        for query, grades in retrieval.relevant.items()
    }
    notes = capped(len(corpus), len(retrieval.corpus), "documents")
    return replace(retrieval, corpus=corpus, relevant=relevant), notes


def _mean(years: Sequence[Trial], measuring: Measuring) -> Trial:
    evaluators = [trial.evaluator for trial in years]
    sets = tuple(one.examples for one in evaluators if isinstance(one, StsEvaluator))
    notes = ("of capped sets",) if any(trial.notes for trial in years) else ()
    return Trial(StsMeanEvaluator(sets, STS_MEAN, bootstrap=measuring.draws), "sts", notes)


def _parakqc(measuring: Measuring) -> Trial:
    _, judged = parakqc_parts(load_dataset("parakqc", "test", measuring.data))
    assert judged.targets is not None
    rows = np.arange(len(judged))
    if measuring.quick is not None:  # whole groups, the first ones
        groups = np.unique(judged.targets, return_inverse=True)[1].reshape(-1)
        rows = np.flatnonzero(groups < (groups.max() + 1) * measuring.quick / len(judged))
    left = len(np.unique(judged.targets[rows]))
    notes = (f"{left:,} groups that thresholds were not calibrated on", *capped(len(rows), len(judged), "texts"))
    title = f"{DATASETS['parakqc'].title} mining"
    return Trial(ParaphraseMiningEvaluator(judged.take(rows, name=title)), "mining", notes)


def _few_shots(measuring: Measuring) -> Trial:
    train, test = (load_dataset("banking77", split, measuring.data) for split in ("train", "test"))
    learnt = few_shots(train, _SHOTS)
    rows = np.arange(len(test))
    if measuring.quick is not None and measuring.quick < len(test):
        rows = np.sort(np.random.default_rng(0).choice(len(test), measuring.quick, replace=False))
    judged = test.take(rows, name=f"Banking77 {_SHOTS}-shot probe")
    notes = (f"{len(learnt):,} training rows", *capped(len(rows), len(test), "rows"))
    return Trial(ProbeEvaluator(learnt, judged, bootstrap=measuring.draws), "probe", notes)


def few_shots(examples: Examples, shots: int, *, seed: int = 0) -> Examples:
    """So many rows of every class, at random, always the same, in their order."""
    assert examples.targets is not None
    if shots < 1:
        raise InputError(f"shots must be 1 or more, got {shots}")
    random = np.random.default_rng(seed)
    order = random.permutation(len(examples))
    chosen = [order[examples.targets[order] == label][:shots] for label in np.unique(examples.targets)]
    return examples.take(np.sort(np.concatenate(chosen)))


@contextlib.contextmanager
def _naming(absent: dict[str, str], title: str) -> Iterator[None]:
    """A set that is not there is named with the reason."""
    try:
        yield
    except DataError as error:
        absent[title] = str(error)


@contextlib.contextmanager
def _locked(output: Path) -> Iterator[None]:
    with disk_errors(output, safe="nothing was measured yet"):
        output.parent.mkdir(parents=True, exist_ok=True)
    lock = OutputLock(output.with_name(output.name + ".lock"), output)
    try:
        yield
    finally:
        lock.release()
