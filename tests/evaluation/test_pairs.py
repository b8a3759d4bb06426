"""Pairs, triplets, labels: the peers' numbers, roles, and labels that are matched by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation as theirs

from evaluation.sample import PAIRS, CrossStub, Stub, labelled
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.evaluation import LabelEvaluator, PairClassificationEvaluator, TripletEvaluator

TRIPLETS = {
    "anchor": [PAIRS[0][0], PAIRS[2][0], PAIRS[5][0], PAIRS[7][0], PAIRS[11][0]],
    "positive": [PAIRS[0][1], PAIRS[2][1], PAIRS[5][1], PAIRS[7][1], PAIRS[5][1]],
    "negative": [PAIRS[1][1], PAIRS[3][1], PAIRS[6][1], PAIRS[8][1], PAIRS[11][1]],
}


def test_pair_classification_is_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    examples = labelled()
    a, b = examples.columns.values()
    kinds = ["cosine", "euclidean", "manhattan", "dot"]
    expected = theirs.BinaryClassificationEvaluator(
        a, b, examples.targets.tolist(), similarity_fn_names=kinds, write_csv=False
    )(peer)
    ours = PairClassificationEvaluator(examples, bootstrap=30)(model)
    assert ours.main == "average_precision"
    for kind in kinds:
        suffix, sign = ("" if kind == "cosine" else f"_{kind}"), (-1 if kind in ("euclidean", "manhattan") else 1)
        for name, their_name in (("average_precision", "ap"), ("accuracy", "accuracy"), ("f1", "f1"), ("mcc", "mcc"),
                                 ("precision", "precision"), ("recall", "recall")):  # fmt: skip
            assert ours.values[name + suffix] == pytest.approx(expected[f"{kind}_{their_name}"], abs=1e-6), (kind, name)
        for name in ("accuracy_threshold", "f1_threshold"):  # theirs are distances, ours similarities
            assert ours.values[name + suffix] == pytest.approx(sign * expected[f"{kind}_{name}"], abs=1e-4)
    assert 0 < ours.intervals["average_precision"][0] <= ours.value


def test_which_label_means_together_can_be_said(model: BiEncoder) -> None:
    examples = labelled()
    turned = Examples("turned", "labelled", examples.columns, 1 - examples.targets, ("same", "different"))
    ours, same = (
        PairClassificationEvaluator(turned, positive="same")(model),
        PairClassificationEvaluator(examples)(model),
    )
    assert ours.values == same.values
    assert PairClassificationEvaluator(turned)(model).value != same.value
    with pytest.raises(InputError, match="turned: positive must be 'same' or 'different'"):
        PairClassificationEvaluator(turned, positive="alike")


def test_bad_pairs_are_named() -> None:
    columns = {"a": ["x", "y"], "b": ["z", "w"]}
    with pytest.raises(InputError, match="one: constant gold labels: all 2 rows have the label 'yes'"):
        PairClassificationEvaluator(Examples("one", "labelled", columns, np.array([1, 1]), ("no", "yes")))
    with pytest.raises(InputError, match="three: expected two labels, got 3"):
        PairClassificationEvaluator(Examples("three", "labelled", columns, np.array([0, 2]), ("a", "b", "c")))
    with pytest.raises(InputError, match="pair: expected a column of negatives"):
        TripletEvaluator(Examples("pair", "pairs", {"anchor": ["x"], "positive": ["y"]}))


def test_triplets_are_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    for kind in ("cosine", "euclidean", "manhattan"):
        expected = theirs.TripletEvaluator(*TRIPLETS.values(), main_similarity_function=kind, write_csv=False)(peer)
        ours = TripletEvaluator(Examples("t", "pairs", TRIPLETS), similarity=kind)(model)  # type: ignore[arg-type]
        assert ours.value == pytest.approx(expected[f"{kind}_accuracy"])
    assert 0 < ours.value < 1


def test_triplets_of_a_cross_encoder_and_of_several_negatives() -> None:
    columns = {"anchor": ["q", "r"], "positive": ["p", "p"], "negative": ["m", "m"], "negative_2": ["n", "n"]}
    table = {("q", "p"): 0.9, ("q", "m"): 0.1, ("q", "n"): 0.2, ("r", "p"): 0.5, ("r", "m"): 0.4, ("r", "n"): 0.6}
    assert TripletEvaluator(Examples("t", "pairs", columns))(CrossStub(table)).value == 0.5  # type: ignore[arg-type]


def test_triplets_use_the_models_prompts() -> None:
    stub = Stub(prompts={"query": "q: ", "passage": "p: "})
    TripletEvaluator(Examples("t", "pairs", TRIPLETS))(stub)  # type: ignore[arg-type]
    assert [prompt for prompt, _ in stub.calls] == ["query", "passage", "passage"]


NLI = ("entailment", "neutral", "contradiction")


def nli() -> tuple[Examples, dict[tuple[str, str], Any]]:
    """Examples, and a model's answers in the order contradiction, entailment, neutral."""
    pairs = [pair[:2] for pair in PAIRS]
    gold = np.arange(len(pairs)) % 3
    generator = np.random.default_rng(2)
    answers = generator.dirichlet([1, 1, 1], len(pairs))
    examples = Examples("nli", "labelled", {"a": [p[0] for p in pairs], "b": [p[1] for p in pairs]}, gold, NLI)
    return examples, dict(zip(pairs, answers, strict=True))


def test_labels_are_matched_by_name() -> None:
    examples, table = nli()
    stub = CrossStub(table, labels=("CONTRADICTION", "Entailment", "neutral"))
    ours = LabelEvaluator(examples, bootstrap=20)(stub)  # type: ignore[arg-type]
    # their number 0 is contradiction, which is 2 here; 1 is entailment, 0 here; 2 is neutral, 1 here
    guess = np.array([{0: 2, 1: 0, 2: 1}[int(np.argmax(row))] for row in table.values()])
    assert ours.value == pytest.approx(np.mean(guess == examples.targets))
    for average in ("macro", "micro", "weighted"):
        expected = sklearn.metrics.f1_score(examples.targets, guess, average=average)
        assert ours.values[f"f1_{average}"] == pytest.approx(expected)
    assert ours.notes == ()


def test_nameless_labels_go_by_number_and_that_is_noted() -> None:
    examples, table = nli()
    ours = LabelEvaluator(examples)(CrossStub(table, labels=("LABEL_0", "LABEL_1", "LABEL_2")))  # type: ignore[arg-type]
    assert "no names: taken in the order entailment, neutral, contradiction" in ours.notes[0]
    for labels in (("yes", "no", "maybe"), ("score",), ("entailment", "neutral")):
        with pytest.raises(InputError, match=r"nli has the labels entailment.*labels=\["):
            LabelEvaluator(examples)(CrossStub(table, labels=labels))  # type: ignore[arg-type]


def test_a_bi_encoder_with_a_classifier(model: BiEncoder) -> None:
    examples, _ = nli()
    torch.manual_seed(0)
    head = torch.nn.Linear(3 * 384, 3)

    def classifier(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return head(torch.cat([u, v, (u - v).abs()], dim=1))

    ours = LabelEvaluator(examples, classifier=classifier)(model)
    u, v = (torch.from_numpy(model.encode(column)) for column in examples.columns.values())
    expected = classifier(u, v).argmax(dim=1).numpy()
    assert ours.value == pytest.approx(np.mean(expected == examples.targets))
    with pytest.raises(InputError, match="nli: a bi-encoder gives no labels"):
        LabelEvaluator(examples)(model)
    with pytest.raises(InputError, match=r"expected logits \[12, 3\], got \(12, 384\)"):
        LabelEvaluator(examples, classifier=lambda u, v: u)(model)
