"""Labels from few texts and from all: the heads of `Classifier` beside scikit-learn on the same vectors and on TF-IDF.

    a set -> vectors, once -> for every number of texts and every seed: heads -> one table for each set

YNAT (Korean news titles, 7 topics, macro F1) and Banking77 (English questions, 77 intents, accuracy), on their test
splits. Every seed draws other training texts; a figure is the mean over them, with the standard deviation.
sentence-transformers has no classifier: its pages put scikit-learn's logistic regression on vectors, as is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import munjang
from benchmarks.application_vectors import Array, Asked
from benchmarks.clustering_quality import COUNTED, TITLES, WORDS, some, spread, targets_of
from benchmarks.twins import Cell, Said, TwinTable
from munjang.data import Examples, load_dataset
from munjang.evaluation.metrics import accuracy, f1
from munjang.tasks.classifier import Classifier
from munjang.tasks.classifier_fitting import HeadSettings, Logistic, Prototype, choose, fit_head, judge
from munjang.tasks.classifier_labels import Targets
from munjang.tasks.few_shot import FineTune

Vectors = tuple[Array, Array]  # of both splits, [n, d] each
SIZES: dict[str, tuple[int | None, ...]] = {"ynat": (8, 16, 64, None), "banking77": (8, 16, None)}  # None: all texts
SETS = tuple(SIZES)
METRICS = {"ynat": Said("Macro F1", "매크로 F1"), "banking77": Said("Accuracy", "정확도")}
FIRST_COLUMN, ALL = Said("texts per label", "라벨마다 글"), Said("all", "전부")
ZERO = Said("{name}, names of the labels alone", "{name}, 라벨 이름만")
LOGISTIC = Said("{name}, logistic head", "{name}, 로지스틱 머리")
PROTOTYPE = Said("{name}, prototype head", "{name}, 원형 머리")
TUNED = Said("{name}, body trained first", "{name}, 몸통 먼저 학습")
THEIRS = Said("{name}, LogisticRegression of scikit-learn", "{name}, scikit-learn의 LogisticRegression")
TF_IDF = Said("TF-IDF, LogisticRegression of scikit-learn", "TF-IDF, scikit-learn의 LogisticRegression")
ERROR = Said("{way}: calibration error", "{way}: 보정 오차")
NOTE = Said(
    "{metric} x 100 on the {rows} texts of the test split, mean ± standard deviation over {seeds} seeds that "
    "draw the training texts; all {train}: one run. LogisticRegression: C of 1, 10, 100 by the accuracy of three "
    "folds (all texts: 10). TF-IDF: {words}. Calibration error: how far probabilities are from frequencies "
    "(expected calibration error x 100), less is better.",
    "시험 쪽 글 {rows}개에서 {metric} x 100, 학습할 글을 뽑는 시드 {seeds}개의 평균 ± 표준편차. "
    "전부({train}개)는 한 번입니다. LogisticRegression: C는 1, 10, 100 가운데 세 겹의 정확도로 고릅니다(전부: "
    "10). TF-IDF: {words}. 보정 오차: 확률이 실제 빈도와 얼마나 다른가(기대 보정 오차 x 100). 작을수록 좋습니다.",
)


@dataclass(frozen=True)
class Set:
    """Both splits of a set."""

    name: str
    train: Examples
    test: Examples

    def score(self, probabilities: Array) -> float:
        """x 100; macro F1 where labels are uneven."""
        guess = probabilities.argmax(axis=1)
        return 100 * (f1 if self.name == "ynat" else accuracy)(targets_of(self.test), guess)

    def error(self, probabilities: Array) -> float:
        """x 100"""
        return 100 * judge(probabilities, Targets(self.test.labels, targets_of(self.test)))[1]


@dataclass(frozen=True)
class Way:
    """One way to learn labels."""

    name: Said
    learn: Callable[[Array, int], Array]  # rows of the training split, a seed -> probabilities of the test [n, labels]
    errors: bool = False  # whether the table has its calibration error, too
    all_texts: bool = True  # whether it is asked with all texts


def measure(
    data: Path,
    asked: Sequence[Asked],
    *,
    sets: Sequence[str] = SETS,
    seeds: int = 5,
    limit: int | None = None,
    fine_tune: bool = False,
) -> list[TwinTable]:
    """One table for each set. fine_tune: also train the body on pairs (SetFit), which takes long."""
    found = [Set(name, *(some(load_dataset(name, split, data), limit) for split in ("train", "test"))) for name in sets]
    return [_table(one, asked, seeds, fine_tune=fine_tune) for one in found]


def _table(found: Set, asked: Sequence[Asked], seeds: int, *, fine_tune: bool) -> TwinTable:
    counts = {"rows": f"{len(found.test):,}", "train": f"{len(found.train):,}", "seeds": seeds}
    note = NOTE.format(**counts, metric=METRICS[found.name], words=COUNTED[found.name])
    sizes = SIZES[found.name]
    columns: tuple[Cell, ...] = (FIRST_COLUMN, "0", *(ALL if size is None else str(size) for size in sizes))
    table = TwinTable(TITLES[found.name], columns, note=note)
    for one in asked:
        table.rows.append((ZERO.format(name=one.name), f"{_zero_shot(found, one):.1f}", *("-" for _ in sizes)))
    for way in _ways(found, asked, fine_tune=fine_tune):
        told = [_told(way, found, size, seeds) for size in sizes]
        table.rows.append((way.name, "-", *(score for score, _ in told)))
        print(way.name.en, *table.rows[-1][1:], flush=True)
        if way.errors:
            table.rows.append((ERROR.format(way=way.name), "-", *(error for _, error in told)))
    return table


def _told(way: Way, found: Set, size: int | None, seeds: int) -> tuple[str, str]:
    """Score and calibration error with so many texts of every label."""
    if size is None and not way.all_texts:
        return "-", "-"
    told = [
        way.learn(_drawn(found.train, size, seed), seed)
        for seed in range(seeds if size is not None else 1)  # all texts are the same texts for every seed
    ]
    return spread([found.score(one) for one in told]), spread([found.error(one) for one in told])


def _ways(found: Set, asked: Sequence[Asked], *, fine_tune: bool) -> list[Way]:
    """What is compared, in the order of the table."""
    listed: list[Way] = []
    for one in asked:
        vectors = _vectors(found, one)
        listed.append(Way(LOGISTIC.format(name=one.name), partial(_head, found, vectors, Logistic()), errors=True))
        listed.append(Way(PROTOTYPE.format(name=one.name), partial(_head, found, vectors, Prototype())))
        if fine_tune:
            listed.append(Way(TUNED.format(name=one.name), partial(_fine_tuned, found, one.model), all_texts=False))
    first = asked[0]
    listed.append(Way(THEIRS.format(name=first.name), partial(_regression, found, _vectors(found, first)), errors=True))
    listed.append(Way(TF_IDF, partial(_tf_idf, found)))
    return listed


def _zero_shot(found: Set, asked: Asked) -> float:
    names = [label.replace("_", " ") for label in found.train.labels]
    head = Classifier.zero_shot(names, asked.model).head
    return found.score(head.scores(_vectors(found, asked)[1]))


def _head(found: Set, vectors: Vectors, settings: HeadSettings, rows: Array, seed: int) -> Array:
    """What `Classifier.fit` does with vectors."""
    if isinstance(settings, Logistic):
        settings = replace(settings, seed=seed)
    train, test = vectors
    targets = Targets(found.train.labels, targets_of(found.train)[rows])
    choice = choose(train[rows], targets, settings)
    head = fit_head(train[rows], targets, settings, c=choice.c)
    return choice.scaling.probabilities(head.scores(test), multilabel=False)


def _fine_tuned(found: Set, model: munjang.BiEncoder, rows: Array, seed: int) -> Array:
    few = found.train.take(rows)
    labels = [few.labels[place] for place in targets_of(few).tolist()]
    tuned = Classifier.fit(few.columns["text"], labels, model, fine_tune=FineTune(seed=seed))
    said = tuned.probabilities(found.test.columns["text"])
    return said[:, [tuned.labels.index(label) for label in found.train.labels]]


def _tf_idf(found: Set, rows: Array, seed: int) -> Array:
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(sublinear_tf=True, **WORDS[found.name])
    train = counted.fit_transform([found.train.columns["text"][row] for row in rows.tolist()])
    return _learnt(found, train, counted.transform(found.test.columns["text"]), rows)


def _regression(found: Set, vectors: Vectors, rows: Array, seed: int) -> Array:
    train, test = vectors
    return _learnt(found, train[rows], test, rows)


def _learnt(found: Set, train: Any, test: Any, rows: Array) -> Array:
    """scikit-learn's logistic regression; features may be sparse."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    model: Any = LogisticRegression(C=10.0, max_iter=1000)
    if len(rows) < len(found.train):
        model = GridSearchCV(model, {"C": [1.0, 10.0, 100.0]}, cv=3)
    model.fit(train, targets_of(found.train)[rows])
    said = np.zeros((test.shape[0], len(found.train.labels)), np.float32)
    said[:, model.classes_] = model.predict_proba(test)
    return said


def _vectors(found: Set, asked: Asked) -> Vectors:
    train, test = (asked.vectors(one.columns["text"], one.name) for one in (found.train, found.test))
    return train, test


def _drawn(train: Examples, size: int | None, seed: int) -> Array:
    """So many rows of every label."""
    if size is None:
        return np.arange(len(train))
    random = np.random.default_rng(seed)
    places = [np.flatnonzero(targets_of(train) == label) for label in range(len(train.labels))]
    return np.sort(np.concatenate([random.permutation(own)[:size] for own in places]))
