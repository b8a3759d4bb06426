"""Objectives check their data before anything is computed, and say what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from munjang.data import Examples, nli_triplets
from munjang.errors import InputError
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.objectives import Given, Objective
from training.material import (
    NLI,
    bi,
    binary,
    classified,
    cross,
    labelled,
    pairs,
    plain,
    ranked,
    same,
    scored,
    taught,
    weights,
)


def one_label(examples: Examples) -> Examples:
    return replace(examples, targets=np.zeros(len(examples), np.int64))


def constant(examples: Examples) -> Examples:
    return replace(examples, targets=np.full(len(examples), 0.5, np.float32))


def refused(objective: Objective, examples: Examples, message: str, *, labels: Any = None) -> None:
    """Before anything was changed."""
    model = bi() if labels is None else cross(labels)
    before = weights(model)
    with pytest.raises(InputError, match=message):
        train(model, [Task(examples, objective)], TrainingSettings(batch_size=4))
    assert same(before, weights(model))
    assert not model.parts.body.training


# --- pitfalls that peers walk into -----------------------------------------------------------------------------------


def test_pitfall_mnrl_gets_labelled_pairs() -> None:
    """NLI pairs as they are, neutral and contradicting ones too, would all be taught as positives."""
    message = r"Ranking is trained on pairs data, but our NLI is labelled: .*nli_triplets; neutral and contradicting"
    refused(objectives.Ranking(), labelled(), message)
    names = {"a": ["a man reads"] * 3, "b": ["the man reads", "잔다", "nobody reads"]}
    good = nli_triplets(Examples("ours", "labelled", names, np.arange(3), NLI))
    assert good.columns == {"anchor": ["a man reads"], "positive": ["the man reads"], "negative": ["nobody reads"]}
    train(bi(), [Task(good, objectives.Ranking())], TrainingSettings(max_steps=1, warm_up=0))


def test_pitfall_pair_with_itself() -> None:
    examples = pairs(6)
    examples.columns["positive"][2] = f"  {examples.columns['anchor'][2]} "
    refused(objectives.Ranking(), examples, r"1 of 6 pairs of our pairs are a text with itself")
    left = examples.less([2], reason="a text with itself")
    train(bi(), [Task(left, objectives.Ranking())], TrainingSettings(max_steps=1, warm_up=0))


def test_pitfall_one_class_only() -> None:
    refused(objectives.Softmax(), one_label(labelled()), r"our NLI has one class only \(entailment\)")
    refused(objectives.BatchTriplets(), one_label(classified()), "one class only")
    refused(objectives.CrossEntropy(), one_label(labelled()), "one class only", labels=NLI)
    zeros = replace(binary(), targets=np.zeros(12, np.float32))
    refused(objectives.Contrastive(), zeros, "one class only")


# --- what fits together ----------------------------------------------------------------------------------------------

DATA: dict[str, Callable[[], Examples]] = {
    "scored": scored,
    "labelled": labelled,
    "pairs": lambda: pairs(negatives=1, taught=True),
    "classified": classified,
    "ranked": ranked,
    "taught": lambda: taught(16),
    "plain": plain,
}
FITS: dict[type[Objective], tuple[str, ...]] = {
    objectives.Softmax: ("labelled",),
    objectives.CosineMse: ("scored",),
    objectives.CoSent: ("scored",),
    objectives.Angle: ("scored",),
    objectives.Triplet: ("pairs",),
    objectives.BatchTriplets: ("classified",),
    objectives.Ranking: ("pairs",),
    objectives.Mse: ("taught",),
    objectives.MaskedWords: ("plain",),
    objectives.MarginMse: ("pairs",),
    objectives.Kl: ("pairs",),
    objectives.CrossEntropy: ("labelled",),
    objectives.CrossScore: ("scored", "ranked"),
    objectives.CrossOrder: ("scored",),
    objectives.CrossRanking: ("pairs",),
    objectives.CrossLists: ("ranked",),
    objectives.CrossMarginMse: ("pairs",),
    objectives.CrossKl: ("pairs",),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("make", FITS)
def test_kinds_of_data(make: type[Objective], kind: str) -> None:
    objective = make()
    dimension = 16 if not objective.cross else 3 if make is objectives.CrossEntropy else 1
    if kind in FITS[make]:
        objective.prepare(DATA[kind](), dimension)
        return
    with pytest.raises(InputError, match=f"{make.__name__} is trained on {' or '.join(FITS[make])} data, but our") as e:
        objective.prepare(DATA[kind](), dimension)
    assert f"is {kind}: " in str(e.value)


def test_the_wrong_sort_of_model() -> None:
    refused(objectives.CrossScore(), scored(), "CrossScore does not train a bi-encoder")
    refused(objectives.CoSent(), scored(), "CoSent does not train a cross-encoder", labels=1)


def test_the_number_of_labels_and_the_head() -> None:
    message = r"the cross-encoder has 2 outputs, but our NLI has 3 labels .*load it with labels=\['entailment'"
    refused(objectives.CrossEntropy(), labelled(), message, labels=2)
    refused(objectives.CrossScore(), scored(), "needs a cross-encoder with one output, this one has 3", labels=NLI)
    softmax = objectives.Softmax()
    two = Examples("two", "labelled", {"a": ["a", "b"], "b": ["c", "d"]}, np.array([0, 1]), ("no", "yes"))
    tasks = [Task(labelled(), softmax), Task(two, softmax)]
    with pytest.raises(InputError, match="this softmax has 3 labels, but two has 2"):
        train(bi(), tasks, TrainingSettings())


@pytest.mark.parametrize(
    ("make", "examples", "message", "labels"),
    [
        (objectives.CosineMse, lambda: constant(scored()), "our scores has one score only", None),
        (objectives.CoSent, lambda: constant(scored()), r"one score only \(0.5\)", None),
        (objectives.BatchTriplets, lambda: classified(3), "our topics has no class with two rows", None),
        (objectives.Angle, lambda: constant(scored()), "no order to learn", None),
        (objectives.CrossOrder, lambda: constant(scored()), "one score only", 1),
        (objectives.CrossScore, lambda: constant(scored()), "one score only", 1),
        (objectives.Contrastive, scored, "scores 0 .different. and 1 .same. only", None),
        (objectives.Triplet, pairs, "three columns .*has 2", None),
        (objectives.Triplet, lambda: pairs(negatives=2), "three columns .*has 4", None),
        (objectives.CrossRanking, pairs, "needs negatives", 1),
        (objectives.MarginMse, lambda: pairs(negatives=1), r"targets \[12, 2\], got None", None),
        (objectives.Kl, lambda: pairs(negatives=1), "the teacher's score", None),
        (objectives.CrossKl, lambda: pairs(negatives=1), "the teacher's score", 1),
        (objectives.Mse, lambda: taught(24), "the teacher's vectors have 24 values, the student's 16", None),
        (lambda: objectives.Matryoshka(objectives.CoSent(), (17,)), scored, r"1..16 .*got \[17\]", None),
        (lambda: objectives.Matryoshka(objectives.CoSent(), ()), scored, r"1..16", None),
        (objectives.CosineMse, lambda: scored().take([]), "has no rows to train on", None),
        (objectives.Ranking, lambda: pairs().take([]), "has no rows to train on", None),
        (objectives.MarginMse, lambda: pairs(taught=True), "negative", None),
        (objectives.Kl, lambda: pairs(taught=True), "negative", None),
        (objectives.CrossMarginMse, lambda: pairs(taught=True), "negative", 1),
        (objectives.CrossKl, lambda: pairs(taught=True), "negative", 1),
    ],
)
def test_data_that_teaches_nothing(make: Any, examples: Any, message: str, labels: Any) -> None:
    refused(make(), examples(), message, labels=labels)


def test_graded_relevance_is_for_lists() -> None:
    graded = replace(ranked(), targets=3 * ranked().targets)
    refused(objectives.CrossScore(), graded, r"needs targets in 0..1, but .*0..3: use CrossLists", labels=1)


@pytest.mark.parametrize("make", [lambda: objectives.CrossScore("hinge"), lambda: objectives.CrossLists("list")])
def test_unknown_losses(make: Callable[[], Objective]) -> None:
    with pytest.raises(InputError, match="loss must be"):
        make()


def test_matryoshka_of_what_has_a_fixed_width() -> None:
    for inner in (objectives.Softmax(), objectives.Mse(), objectives.CrossScore()):
        with pytest.raises(InputError, match="Matryoshka needs an objective that compares vectors"):
            objectives.Matryoshka(inner, (8,))


def test_matryoshka_is_as_its_inner_objective_is() -> None:
    class Odd(objectives.CoSent):
        recordable = False
        forgotten = 0

        def forget(self) -> None:
            self.forgotten += 1

    inner = Odd()
    outer = objectives.Matryoshka(inner, (8,))
    assert (outer.recordable, outer.rowwise, outer.unique_texts) == (False, False, False)
    assert objectives.Matryoshka(objectives.Ranking(), (8,)).recordable
    outer.forget()
    assert inner.forgotten == 1


def test_tasks() -> None:
    with pytest.raises(InputError, match="nothing to train on"):
        train(bi(), [], TrainingSettings())
    tasks = [Task(scored(), objectives.CoSent()), Task(scored(seed=5), objectives.CosineMse())]
    with pytest.raises(InputError, match=r"names of their own, got \['our scores', 'our scores'\]"):
        train(bi(), tasks, TrainingSettings())
    with pytest.raises(InputError, match="batch_size must be at least 1, got 0"):
        train(bi(), [Task(scored(), objectives.CoSent(), batch_size=0)])
    for weight in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="the weight of our scores must be above 0 and finite, got"):
            train(bi(), [Task(scored(), objectives.CoSent(), weight=weight)])


def test_a_cross_encoder_needs_pairs() -> None:
    with pytest.raises(InputError, match="CrossEntropy is trained on labelled data"):
        train(cross(3), [Task(classified(), objectives.CrossEntropy())], TrainingSettings())


def test_settings_tell_objectives_apart() -> None:
    """They go into a run's identity: another scale is another run."""
    assert objectives.Ranking(scale=10).settings() != objectives.Ranking().settings()
    guided = objectives.Ranking(guide=bi()).settings()
    assert guided["guide"] == bi().fingerprint
    inner = objectives.Matryoshka(objectives.Ranking(scale=10), (8,)).settings()
    assert inner["inner"] == "Ranking"
    assert inner["scale"] == 10
    assert objectives.Softmax(("u", "v")).settings()["parts"] == ["u", "v"]


def test_a_softmax_begins_the_same_from_the_same_seed() -> None:
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(made))
        softmax = objectives.Softmax(seed=seed)
        softmax.prepare(labelled(), 16)
        outputs = [torch.ones(2, 16), torch.zeros(2, 16)]
        made.append(float(softmax(outputs, Given(torch.tensor([0, 1]))).detach()))
    assert made[0] == made[1] != made[2]
