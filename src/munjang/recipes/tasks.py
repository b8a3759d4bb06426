"""A recipe's data -> what it is trained with and what measures it: tasks for the loop, evaluators for dev and test.

Which objective a set gets follows from the recipe, the choice of the caller and the kind of the data. Only entailments
become positives of a ranking objective (`munjang.data.nli_triplets`); a text with itself is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from munjang.data import Examples, Kind, join, labelled_to_scored, nli_triplets, scored_to_labelled
from munjang.data.columns import some_of
from munjang.data.overlaps import same_key
from munjang.errors import InputError
from munjang.evaluation import (
    BitextEvaluator,
    Evaluator,
    LabelEvaluator,
    PairClassificationEvaluator,
    RerankingEvaluator,
    StsEvaluator,
    TripletEvaluator,
)
from munjang.evaluation.pairs import label_order
from munjang.recipes.defaults import OBJECTIVES, RecipeName
from munjang.recipes.options import RecipeOptions
from munjang.recipes.sets import Kinds, Sets
from munjang.training import Task, losses, objectives

Classifier = Callable[[Tensor, Tensor], Tensor]

_OBJECTIVES: dict[tuple[RecipeName, str], Callable[[], objectives.Objective]] = {
    ("nli", "ranking"): objectives.Ranking,
    ("sts", "cosine"): objectives.CosineMse,
    ("sts", "cosent"): objectives.CoSent,
    ("sts", "angle"): objectives.Angle,
    ("triplet", "euclidean"): objectives.Triplet,
    ("triplet", "cosine"): lambda: objectives.Triplet(margin=0.5, distance="cosine"),
    ("triplet", "ranking"): objectives.Ranking,
    ("contrastive", "ranking"): objectives.Ranking,
    ("contrastive", "contrastive"): objectives.Contrastive,
    ("contrastive", "online"): lambda: objectives.Contrastive(online=True),
    ("cross_nli", "cross_entropy"): objectives.CrossEntropy,
    ("cross_sts", "bce"): objectives.CrossScore,
    ("cross_sts", "mse"): lambda: objectives.CrossScore("mse"),
    ("cross_sts", "order"): objectives.CrossOrder,
    ("cross_rank", "bce"): objectives.CrossScore,
    ("cross_rank", "ranking"): objectives.CrossRanking,
    ("cross_rank", "lambda"): lambda: objectives.CrossLists("lambda"),
    ("cross_rank", "list_net"): lambda: objectives.CrossLists("list_net"),
    ("cross_rank", "rank_net"): lambda: objectives.CrossLists("rank_net"),
}

KINDS: dict[RecipeName, Kinds] = {
    "nli": Kinds(("labelled", "pairs"), ("labelled", "scored", "pairs", "ranked")),
    "sts": Kinds(("scored",), ("scored", "labelled", "pairs", "ranked")),
    "triplet": Kinds(("pairs", "labelled"), ("pairs", "scored", "labelled", "ranked")),
    "contrastive": Kinds(("pairs", "labelled", "scored"), ("pairs", "labelled", "scored", "ranked")),
    "cross_nli": Kinds(("labelled",), ("labelled",)),
    "cross_sts": Kinds(("scored", "labelled"), ("scored", "labelled", "pairs", "ranked")),
    "cross_rank": Kinds(("ranked", "pairs", "scored", "labelled"), ("ranked", "pairs", "scored", "labelled")),
}


@dataclass(frozen=True)
class Work:
    """The tasks of a recipe, and the softmax that is trained with them, where there is one."""

    tasks: tuple[Task, ...]
    softmax: objectives.Softmax | None = None
    labels: tuple[str, ...] = ()  # of the softmax, or of a cross-encoder with several outputs


def is_cross(recipe: RecipeName) -> bool:
    """Whether a recipe trains cross-encoders."""
    return recipe.startswith("cross_")


def wanted_labels(recipe: RecipeName, train: Sequence[Examples]) -> tuple[str, ...] | int:
    """The outputs that a cross-encoder needs for this recipe."""
    return _same_labels(train) if recipe == "cross_nli" else 1


def work_of(recipe: RecipeName, train: Sequence[Examples], options: RecipeOptions, *, dimension: int) -> Work:
    """Tasks for the training sets, each with the objective that suits it."""
    _check_choices(recipe, options)
    for examples in train:
        _check_targets(examples)
    names = [objective_for(recipe, examples, options.objective) for examples in train]
    if "softmax" in names:
        # One softmax for all: sets of the same labels are one task, as SNLI and MultiNLI are in the paper.
        labels = _same_labels(train)
        joined = train[0] if len(train) == 1 else join(train, name=" + ".join(one.name for one in train))
        softmax = objectives.Softmax(options.concatenation, seed=options.seeded)
        if options.matryoshka:
            objectives.Matryoshka(softmax, options.matryoshka)  # raises: a softmax is of one width
        return Work((Task(joined, softmax),), softmax, labels)
    tasks = []
    for examples, name in zip(train, names, strict=True):
        ready = _converted(recipe, examples, name)
        objective = _OBJECTIVES[recipe, name]()
        if options.matryoshka:
            sizes = sorted({dimension, *options.matryoshka}, reverse=True)
            objective = objectives.Matryoshka(objective, sizes)
        tasks.append(Task(ready, objective))
    return Work(tuple(tasks), labels=_same_labels(train) if recipe == "cross_nli" else ())


def objective_for(recipe: RecipeName, examples: Examples, asked: str | None) -> str:
    """The name of the objective: as asked, or by the kind of the data."""
    kind = examples.kind
    if asked is None:
        if recipe in ("nli", "triplet") and kind == "pairs":
            asked = "ranking" if recipe == "nli" or len(examples.columns) > 3 else "euclidean"
        elif recipe == "contrastive":
            asked = "ranking" if kind == "pairs" or _is_nli(examples) else "contrastive"
        elif recipe == "cross_rank" and kind == "pairs":
            asked = "ranking"
        elif recipe == "cross_rank" and examples.targets is not None and kind == "ranked":
            asked = "bce" if float(examples.targets.max()) <= 1 and float(examples.targets.min()) >= 0 else "lambda"
        else:
            asked = OBJECTIVES[recipe][0]
    if asked not in OBJECTIVES[recipe]:
        raise InputError(f"objective of {recipe} must be one of {', '.join(OBJECTIVES[recipe])}, got {asked!r}")
    return asked


def _check_choices(recipe: RecipeName, options: RecipeOptions) -> None:
    if options.matryoshka and is_cross(recipe):
        raise InputError("matryoshka trains parts of vectors; a cross-encoder has none")
    if options.objective is not None and options.objective not in OBJECTIVES[recipe]:
        known = ", ".join(OBJECTIVES[recipe])
        raise InputError(f"objective of {recipe} must be one of {known}, got {options.objective!r}")


def _check_targets(examples: Examples) -> None:
    """Refuse scores and grades that are all the same: there is nothing to learn from them."""
    if examples.kind not in ("scored", "ranked") or examples.targets is None or len(examples) < 2:
        return
    if float(np.ptp(examples.targets)) == 0.0:
        what = "score" if examples.kind == "scored" else "relevance"
        raise InputError(
            f"{examples.name}: all {len(examples):,} rows have the same {what} ({examples.targets[0]:g}), so there is "
            f"nothing to learn; is this the column of the {what}s? Pairs that all belong together are for the recipe "
            "contrastive, without scores"
        )


def _converted(recipe: RecipeName, examples: Examples, objective: str) -> Examples:
    """The examples as the objective takes them."""
    if examples.kind == "labelled" and recipe != "cross_nli":
        if _is_nli(examples) and not is_cross(recipe):
            examples = nli_triplets(examples, both_directions=objective == "ranking")
        else:
            examples = labelled_to_scored(examples)
    if objective == "ranking" and examples.kind == "scored":
        raise InputError(
            f"ranking takes pairs that belong together, but {examples.name} has scores: munjang.data.scored_to_pairs "
            "takes those above a threshold"
        )
    return _without_itself(examples) if examples.kind == "pairs" else examples


def _without_itself(examples: Examples) -> Examples:
    """Without the rows whose positive is the anchor itself: they teach nothing."""
    first, second = list(examples.columns.values())[:2]
    kept = np.array([same_key(a) != same_key(b) for a, b in zip(first, second, strict=True)], bool)
    return examples if kept.all() else examples.less(~kept, reason="a text paired with itself")


def _is_nli(examples: Examples) -> bool:
    return {"entailment", "contradiction"} <= {label.strip().casefold() for label in examples.labels}


def _same_labels(train: Sequence[Examples]) -> tuple[str, ...]:
    first = train[0]
    for other in train[1:]:
        if other.labels != first.labels:
            raise InputError(
                f"sets that are trained together need the same labels in the same order, but {first.name} has "
                f"{some_of(first.labels)} and {other.name} has {some_of(other.labels)}"
            )
    return first.labels


# --- measuring -------------------------------------------------------------------------------------------------------


def evaluators(recipe: RecipeName, sets: Sequence[Examples], work: Work, *, bootstrap: int = 0) -> list[Evaluator]:
    """What measures a model on these sets, by their kind; checked before anything is trained."""
    return [evaluator_for(recipe, examples, work, bootstrap=bootstrap) for examples in sets]


def as_used(sets: Sets, work: Work, dev: Sequence[Evaluator], test: Sequence[Evaluator]) -> Sets:
    """The sets as the tasks and the evaluators made of them, whose readings count what is trained and measured on."""

    def measured(evaluators: Sequence[Evaluator], given: Sequence[Examples]) -> tuple[Examples, ...]:
        return tuple(getattr(one, "examples", examples) for one, examples in zip(evaluators, given, strict=True))

    train = tuple(task.examples for task in work.tasks)
    return replace(sets, train=train, dev=measured(dev, sets.dev), test=measured(test, sets.test))


def evaluator_for(recipe: RecipeName, examples: Examples, work: Work, *, bootstrap: int) -> Evaluator:
    """The evaluator of one set."""
    kind: Kind = examples.kind
    if kind == "labelled":
        return _label_evaluator(recipe, examples, work, bootstrap)
    if kind == "scored":
        assert examples.targets is not None
        if recipe == "contrastive" and set(np.unique(examples.targets).tolist()) == {0.0, 1.0}:
            return PairClassificationEvaluator(scored_to_labelled(examples, 0.5), bootstrap=bootstrap)
        return StsEvaluator(examples, bootstrap=bootstrap)
    if kind == "ranked":
        return RerankingEvaluator(examples, bootstrap=bootstrap)
    if len(examples.columns) > 2:
        return TripletEvaluator(examples, bootstrap=bootstrap)
    if is_cross(recipe):
        raise InputError(f"{examples.name}: a cross-encoder is measured on pairs with negatives, and this set has none")
    return BitextEvaluator(examples, bootstrap=bootstrap)


def _label_evaluator(recipe: RecipeName, examples: Examples, work: Work, bootstrap: int) -> Evaluator:
    if work.labels:
        order, _ = label_order(work.labels, examples.labels, name=examples.name)
        classifier = None if work.softmax is None else softmax_classifier(work.softmax, order)
        return LabelEvaluator(examples, classifier, bootstrap=bootstrap)
    if len(examples.labels) == 2:
        return PairClassificationEvaluator(examples, bootstrap=bootstrap)
    if is_cross(recipe):
        raise InputError(
            f"{examples.name} has the labels {some_of(examples.labels)}, but {recipe} trains a model with one score"
        )
    return TripletEvaluator(nli_triplets(examples), bootstrap=bootstrap)


def softmax_classifier(softmax: objectives.Softmax, order: Sequence[int]) -> Classifier:
    """The softmax that is being trained, as a function of vectors; its labels in the order of a set."""

    def classify(u: Tensor, v: Tensor) -> Tensor:
        assert softmax.layer is not None
        device = softmax.layer.weight.device
        with torch.no_grad():
            logits: Tensor = softmax.layer(losses.concatenate(u.to(device), v.to(device), softmax.parts))
        return logits[:, list(order)].cpu()

    return classify
