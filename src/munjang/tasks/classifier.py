"""`Classifier`: texts in, labels and probabilities out; a small head on a bi-encoder's vectors.

    texts -> vectors -> head -> scores [n, labels] -> scaling -> probabilities

Fitted on a few labelled texts (`fit`), after a training of the body where that is asked for, or made of nothing but the
labels (`zero_shot`). The model that was given is never changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from munjang.data.rows import read_texts
from munjang.encoders import BiEncoder
from munjang.errors import InputError, MunjangWarning, TruncationWarning
from munjang.evaluation.encoding import gpu_of
from munjang.progress import Progress
from munjang.tasks import classifier_saving
from munjang.tasks.classifier_fitting import (
    COSINE_SCALE,
    Calibration,
    Choice,
    HeadName,
    HeadSettings,
    Logistic,
    Scaling,
    choose,
    fit_head,
    fit_scale,
    head_settings,
    judge,
    scaling_of_cosines,
    splits,
    told_right,
)
from munjang.tasks.classifier_heads import Head, PrototypeHead, unit
from munjang.tasks.classifier_labels import Labels, Targets, targets_for_fitting, targets_of
from munjang.tasks.classifier_report import ClassifierReport, report
from munjang.tasks.few_shot import FineTune, check_trainable, fine_tuned
from munjang.types import EncodeReport

Array = np.ndarray[Any, Any]
_LEAST_DISTANCE = 0.05  # of descriptions, for the scale of zero-shot logits


@dataclass(frozen=True)
class Classified:
    """Probabilities of a window of texts, and what encoding it took."""

    probabilities: Array  # float32 [n, labels]
    report: EncodeReport


@dataclass(frozen=True, eq=False)
class Classifier:
    """Tells which label a text has, or which labels. Make one with `fit` or `zero_shot`."""

    model: BiEncoder
    labels: tuple[str, ...]
    head: Head
    scaling: Scaling
    multilabel: bool = False
    own_body: bool = False  # the model was trained for this classifier and is saved with it
    facts: Mapping[str, object] = field(default_factory=dict)  # what it was made of, fit for JSON

    @classmethod
    def fit(
        cls,
        texts: Iterable[str],
        labels: Labels,
        model: BiEncoder,
        *,
        head: HeadName | HeadSettings = "logistic",
        multilabel: bool = False,
        any_labels: bool = False,
        fine_tune: FineTune | None = None,
        progress: Progress = False,
    ) -> Classifier:
        """Learn from labelled texts.

        labels: one for each text; with `multilabel` a list or set for each, which may be empty. any_labels: accept
        labels that look like scores, ids or texts (real numbers, hardly a row for each); otherwise they are an error.
        head: 'logistic', 'prototype', or `Logistic(c=..., balanced=True)`. fine_tune: train a copy of the model's body
        on pairs of the texts first (SetFit): better with few rows, and minutes instead of seconds. The same call gives
        the same classifier.
        """
        found = read_texts(texts)
        settings = head_settings(head)
        targets = targets_for_fitting(found, labels, multilabel=multilabel, any_labels=any_labels)
        if fine_tune is None:
            body, vectors = model, model.encode(found, progress=progress)
            choice = choose(vectors, targets, settings, device=_device(model))
        else:
            check_trainable(targets)
            choice = _choose_tuned(model, found, targets, (settings, fine_tune), progress)
            body = fine_tuned(model, found, targets, fine_tune, progress=progress)
            vectors = body.encode(found, progress=progress)
        facts: dict[str, object] = {
            "rows": len(found),
            "head": "logistic" if isinstance(settings, Logistic) else "prototype",
            "c": choice.c,
            "balanced": isinstance(settings, Logistic) and settings.balanced,
            "fine-tuned": fine_tune is not None,
        }
        return cls(
            body,
            targets.names,
            fit_head(vectors, targets, settings, c=choice.c, device=_device(model)),
            choice.scaling,
            multilabel=multilabel,
            own_body=fine_tune is not None,
            facts=facts,
        )

    @classmethod
    def zero_shot(
        cls, labels: Sequence[str] | Mapping[str, str | Sequence[str]], model: BiEncoder, *, template: str = "{}"
    ) -> Classifier:
        """Make a classifier of the labels alone: a text has the label whose description is nearest to it.

        labels: names, or names with one or several descriptions. template: a sentence around each description, with {}
        in its place. The probabilities are a guess until `calibrated` has seen labelled texts.
        """
        described = _descriptions(labels, template)
        lines = [line for group in described.values() for line in group]
        vectors = unit(model.encode(lines))
        ends = np.cumsum([len(group) for group in described.values()])[:-1]
        prototypes = unit(np.stack([group.mean(axis=0) for group in np.split(vectors, ends)]))
        facts: dict[str, object] = {"rows": 0, "head": "zero-shot", "descriptions": described}
        head = PrototypeHead(prototypes, np.zeros(prototypes.shape[1], np.float32))
        return cls(model, tuple(described), head, Scaling(_zero_shot_scale(prototypes)), facts=facts)

    @classmethod
    def load(cls, folder: str | Path, model: BiEncoder | None = None, *, device: str | None = None) -> Classifier:
        """Read a saved classifier. model: the one it was fitted with, where its name leads nowhere any more.

        A model that is not the same as then is an error: its vectors would mean something else.
        """
        read = classifier_saving.read(folder, model, device=device)
        return cls(
            read.model,
            read.labels,
            read.head,
            read.scaling,
            multilabel=read.multilabel,
            own_body=read.own_body,
            facts=read.facts,
        )

    # --- using it ----------------------------------------------------------------------------------------------------

    @property
    def calibration(self) -> Calibration | None:
        """How well probabilities agreed with what happened on rows held out; None: there was nothing to check with."""
        return self.scaling.calibration

    def predict(self, texts: Iterable[str], *, progress: Progress = False) -> list[str]:
        """The likeliest label of each text."""
        if self.multilabel:
            raise InputError("a text may have several labels here, or none: use predict_sets")
        return [
            self.labels[place]
            for window in self._windows(texts, progress)
            for place in window.probabilities.argmax(axis=1).tolist()
        ]

    def predict_sets(
        self, texts: Iterable[str], *, threshold: float = 0.5, progress: Progress = False
    ) -> list[tuple[str, ...]]:
        """The labels of each text that are at least so probable, the likeliest first."""
        if not self.multilabel:
            raise InputError("a text has exactly one label here: use predict")
        if not 0 < threshold < 1:
            raise InputError(f"threshold must be between 0 and 1, got {threshold}")
        return [
            self.chosen(row, threshold=threshold)
            for window in self._windows(texts, progress)
            for row in window.probabilities
        ]

    def chosen(self, probabilities: Array, *, threshold: float = 0.5) -> tuple[str, ...]:  # [labels]
        """The labels that one text's probabilities say."""
        order = np.argsort(-probabilities, kind="stable")
        if not self.multilabel:
            return (self.labels[int(order[0])],)
        return tuple(self.labels[place] for place in order.tolist() if probabilities[place] >= threshold)

    def probabilities(self, texts: Iterable[str], *, progress: Progress = False) -> Array:
        """Float32 [n, labels], in the order of `labels`; rows add up to 1, unless a text may have several labels."""
        found = [window.probabilities for window in self._windows(texts, progress)]
        return np.concatenate(found) if found else np.zeros((0, len(self.labels)), np.float32)

    def stream(self, texts: Iterable[str], *, progress: Progress = False) -> Iterator[Classified]:
        """Window after window, in input order, in bounded memory: for iterators of any length."""
        for window in self.model.encode_stream(texts, progress=progress):
            scores = self.head.scores(window.vectors)
            yield Classified(self.scaling.probabilities(scores, multilabel=self.multilabel), window.report)

    def evaluate(
        self, texts: Iterable[str], labels: Labels, *, threshold: float = 0.5, progress: Progress = False
    ) -> ClassifierReport:
        """How good it is on labelled texts, which should be others than it was fitted on."""
        found = read_texts(texts)
        targets = targets_of(found, labels, self.labels, multilabel=self.multilabel)
        return report(self.probabilities(found, progress=progress), targets, threshold=threshold)

    def calibrated(self, texts: Iterable[str], labels: Labels, *, progress: Progress = False) -> Classifier:
        """The same classifier with probabilities that fit these texts, which it was not fitted on."""
        found = read_texts(texts)
        targets = targets_of(found, labels, self.labels, multilabel=self.multilabel)
        scores = self.head.scores(self.model.encode(found, progress=progress))
        if self.multilabel and isinstance(self.head, PrototypeHead):
            return replace(self, scaling=scaling_of_cosines(scores, targets))
        scaling = Scaling(fit_scale(scores, targets, np.ones(targets.values.shape, np.float32)), self.scaling.shift)
        probabilities = [one.probabilities(scores, multilabel=self.multilabel) for one in (self.scaling, scaling)]
        before, after = (judge(one, targets) for one in probabilities)
        right, majority = told_right(probabilities[1], targets)
        told = Calibration(len(targets), before[0], after[0], before[1], after[1], right, majority)
        return replace(self, scaling=replace(scaling, calibration=told))

    def save(self, folder: str | Path) -> None:
        """Write the classifier to a folder: JSON and safetensors, no pickle.

        A body that was trained for it goes with it; any other model is named, and its fingerprint kept. A killed save
        leaves the old classifier or none, never a half one.
        """
        classifier_saving.write(self, folder)

    def __repr__(self) -> str:
        kind = ", several per text" if self.multilabel else ""
        return f"Classifier({len(self.labels)} labels{kind}, {self.facts.get('head')}, {self.model!r})"

    def _windows(self, texts: Iterable[str], progress: Progress) -> Iterator[Classified]:
        """`stream`, with a warning at the end where texts were cut."""
        total = None
        for window in self.stream(texts, progress=progress):
            total = window.report if total is None else total.plus(window.report)
            yield window
        if total is not None and total.truncated:
            warnings.warn(
                f"truncated: {total.truncated:,} of {total.texts:,} texts were longer than {total.max_length} tokens "
                f"(the longest has {total.longest:,}) and only their beginning counts",
                TruncationWarning,
                stacklevel=3,
            )


def _choose_tuned(
    model: BiEncoder,
    texts: list[str],
    targets: Targets,
    settings: tuple[HeadSettings, FineTune],
    progress: Progress,
) -> Choice:
    """C and scale by a first body that has not seen a fifth of the rows: the last one will have seen them all."""
    head, how = settings
    usual = Choice(Scaling(), head.c) if isinstance(head, Logistic) else Choice(Scaling(COSINE_SCALE))
    if not how.calibrate:
        return usual
    (held, *_) = splits(targets, seed=how.seed) or [np.zeros(len(texts), np.bool_)]
    rest = targets.take(~held)
    if not held.any() or not (rest.counts > 1).any():
        warnings.warn(
            "there are too few rows per label to hold some back from fine-tuning, so probabilities are not calibrated",
            MunjangWarning,
            stacklevel=3,
        )
        return usual
    seen = [text for text, out in zip(texts, held, strict=True) if not out]
    body = fine_tuned(model, seen, rest, how, progress=progress)
    return choose(body.encode(texts, progress=progress), targets, head, parts=[held], device=_device(model))


def _descriptions(labels: Sequence[str] | Mapping[str, str | Sequence[str]], template: str) -> dict[str, list[str]]:
    if isinstance(labels, str):
        raise InputError(f"expected a list of labels, got a single text: {labels[:60]!r}")
    if "{}" not in template:
        raise InputError(f"template must have {{}} where the label goes, got {template!r}")
    pairs = labels.items() if isinstance(labels, Mapping) else [(label, label) for label in labels]
    found: dict[str, list[str]] = {}
    for label, given in pairs:
        lines = [given] if isinstance(given, str) else list(given)
        if not isinstance(label, str) or not label.strip() or label in found:
            raise InputError(f"labels must be texts that differ from each other, got {label!r}")
        if not lines or not all(isinstance(line, str) and line.strip() for line in lines):
            raise InputError(f"the label {label!r} needs a description, a text or several, got {given!r:.80}")
        found[label] = [template.replace("{}", line) for line in lines]
    if len(found) < 2:
        raise InputError(f"a classifier tells at least two labels apart, got {len(found)}")
    return found


def _zero_shot_scale(prototypes: Array) -> float:  # [labels, d], unit rows
    """The scale of the logits: the farther apart the descriptions, the less a difference of cosines counts.

    Cosines of unrelated texts are about 0.2 in one model and 0.75 in another; a fixed scale would make all
    probabilities of the second nearly equal. For descriptions with a mean cosine of 0.4 it is COSINE_SCALE.
    """
    labels = len(prototypes)
    cosines = prototypes @ prototypes.T
    distance = 1 - (cosines.sum() - np.trace(cosines)) / (labels * (labels - 1))
    return COSINE_SCALE * 0.6 / max(float(distance), _LEAST_DISTANCE)


def _device(model: BiEncoder) -> str:
    return gpu_of(model) or "cpu"
