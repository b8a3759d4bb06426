"""Few labelled texts -> a body whose vectors are near where the labels are the same (SetFit, Tunstall et al. 2022).

Enters: a model, texts, targets. Leaves: a copy of the model, trained on pairs made of the texts; the model itself is
not changed. A pair's score is 1 for the same label and 0 for another (of several labels: the share that both have), and
its loss is the squared error of the cosine, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.recipes.augmenting.originals import copied_bi
from munjang.tasks.classifier_labels import Targets
from munjang.training import Task, TrainingSettings, objectives, train

Array = np.ndarray[Any, Any]
_PER_TEXT = 20  # pairs for each text, half of them alike; SetFit's 20 iterations make 40
_MOST = 10_000  # pairs, unless they are asked for


@dataclass(frozen=True)
class FineTune:
    """How to train the body before the head."""

    pairs: int | None = None  # None: 20 for every text, at most 10,000
    epochs: float = 1.0
    batch_size: int = 16
    learning_rate: float = 2e-5
    warm_up: float = 0.1
    calibrate: bool = True  # train a first body on four fifths of the rows, whose rest then makes probabilities honest
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pairs is not None and self.pairs < 2:
            raise InputError(f"pairs must be at least 2 (one alike, one not), got {self.pairs}")
        self.settings()  # which checks the rest

    def settings(self) -> TrainingSettings:
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warm_up=self.warm_up,
            seed=self.seed,
        )


def check_trainable(targets: Targets) -> None:
    """Say so before anything is computed where there are no pairs to train on."""
    if targets.multilabel:
        if len(np.unique(targets.values, axis=0)) > 1 and (targets.counts > 1).any():
            return
    elif (targets.counts > 1).any():
        return
    raise InputError(
        "fine-tuning needs pairs of texts with the same label and with different ones, but no label has two texts; add "
        "texts, or leave fine_tune out"
    )


def fine_tuned(
    model: BiEncoder, texts: list[str], targets: Targets, how: FineTune, *, progress: Progress = False
) -> BiEncoder:
    """A copy of the model, trained on pairs of these texts."""
    examples = contrastive_pairs(texts, targets, how)
    copy = copied_bi(model)
    train(copy, [Task(examples, objectives.CosineMse())], how.settings(), progress=progress)
    return copy


def contrastive_pairs(texts: list[str], targets: Targets, how: FineTune) -> Examples:
    """Scored pairs, half of them alike, each text in about as many as the others; the same for the same seed."""
    count = how.pairs or min(_MOST, _PER_TEXT * len(texts))
    random = np.random.default_rng(how.seed)
    groups, lonely = _groups(targets)
    alike = _alike(groups, lonely, -(-count // 2), random)
    other = _other(targets, count // 2, random)
    rows = np.concatenate([alike, other])  # [pairs, 2]
    rows = rows[random.permutation(len(rows))]
    columns = {name: [texts[row] for row in rows[:, at].tolist()] for at, name in enumerate(("a", "b"))}
    return Examples("pairs of labels", "scored", columns, _scores(targets, rows))


def _groups(targets: Targets) -> tuple[list[Array], Array]:
    """For each label the rows that have it; and which rows have no other row beside them."""
    if targets.multilabel:
        groups = [np.flatnonzero(targets.values[:, label]) for label in range(len(targets.names))]
    else:
        order = np.argsort(targets.values, kind="stable")
        groups = np.split(order, np.cumsum(targets.counts)[:-1])
    lonely = np.ones(len(targets), np.bool_)
    for group in groups:
        if len(group) > 1:
            lonely[group] = False
    return groups, lonely


def _turns(rows: Array, count: int, random: np.random.Generator) -> Array:
    """So many of the rows, each as often as any other, in random order."""
    rounds = [random.permutation(rows) for _ in range(-(-count // len(rows)))]
    return np.concatenate(rounds)[:count]


def _alike(groups: list[Array], lonely: Array, count: int, random: np.random.Generator) -> Array:  # [count, 2]
    of: dict[int, list[Array]] = {}
    for group in groups:
        if len(group) > 1:
            for row in group.tolist():
                of.setdefault(row, []).append(group)
    pairs = np.empty((count, 2), np.int64)
    for place, row in enumerate(_turns(np.flatnonzero(~lonely), count, random).tolist()):
        group = of[row][int(random.integers(len(of[row])))]
        other = int(group[int(random.integers(len(group) - 1))])
        pairs[place] = row, int(group[-1]) if other == row else other  # the last takes the place of the row itself
    return pairs


def _other(targets: Targets, count: int, random: np.random.Generator) -> Array:  # [count, 2]
    """Pairs with nothing in common; a row that shares a label with all others is in none."""
    pairs: list[tuple[int, int]] = []
    tried = 0
    while len(pairs) < count and tried < 50 * count + 50:
        rows = _turns(np.arange(len(targets)), count, random)
        others = random.integers(len(targets), size=count)
        tried += count
        if targets.multilabel:
            apart = ~(targets.values[rows] & targets.values[others]).any(axis=1) & (rows != others)
        else:
            apart = targets.values[rows] != targets.values[others]
        pairs.extend(zip(rows[apart].tolist(), others[apart].tolist(), strict=True))
    return np.array(pairs[:count], np.int64).reshape(-1, 2)


def _scores(targets: Targets, rows: Array) -> Array:  # float32 [pairs], 0..1
    left, right = targets.values[rows[:, 0]], targets.values[rows[:, 1]]
    if not targets.multilabel:
        same: Array = (left == right).astype(np.float32)
        return same
    both, either = (left & right).sum(axis=1), (left | right).sum(axis=1)
    shares: Array = np.divide(both, either, out=np.zeros(len(rows)), where=either > 0).astype(np.float32)
    return shares
