"""STS: sentence-transformers' numbers, a cross-encoder's score, what is refused, what is worst."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from evaluation.sample import PAIRS, CrossStub, Stub, labelled, scored
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.evaluation import StsEvaluator, evaluate, largest_errors


def test_the_peers_numbers(model: BiEncoder, peer: SentenceTransformer) -> None:
    a, b, gold = map(list, zip(*PAIRS, strict=True))
    kinds = ["cosine", "euclidean", "manhattan", "dot"]
    theirs = EmbeddingSimilarityEvaluator(a, b, gold, similarity_fn_names=kinds, write_csv=False)(peer)
    ours = StsEvaluator(scored())(model)
    for kind in kinds:
        for metric in ("spearman", "pearson"):
            assert ours.values[f"{metric}_{kind}"] == pytest.approx(theirs[f"{metric}_{kind}"], abs=1e-5)
    assert ours.values["spearman"] == ours.values["spearman_cosine"] == ours.value
    assert (ours.name, ours.main, ours.rows, ours.intervals) == ("our STS", "spearman", 12, {})


def test_the_main_similarity_can_be_another(model: BiEncoder) -> None:
    ours = StsEvaluator(scored(), similarity="manhattan", bootstrap=50)(model)
    assert ours.value == ours.values["spearman_manhattan"]
    low, high = ours.intervals["spearman"]
    assert low <= ours.value <= high
    other = StsEvaluator(scored(), main="pearson_dot", bootstrap=20)(model)
    assert other.value == other.values["pearson_dot"]
    assert set(other.intervals) == {"spearman"}
    with pytest.raises(InputError, match="our STS: main must be one of spearman"):
        StsEvaluator(scored(), main="kendall")(model)


def test_a_cross_encoders_score() -> None:
    generator = np.random.default_rng(0)
    table = {(a, b): float(score + generator.normal() / 5) for a, b, score in PAIRS}
    found = StsEvaluator(scored(), bootstrap=20)(CrossStub(table))  # type: ignore[arg-type]
    said = [table[a, b] for a, b, _ in PAIRS]
    gold = [score for *_, score in PAIRS]
    assert found.values["spearman"] == pytest.approx(scipy.stats.spearmanr(gold, said).statistic)
    assert found.values["pearson"] == pytest.approx(scipy.stats.pearsonr(gold, said).statistic, abs=1e-6)
    assert set(found.values) == {"spearman", "pearson"}
    with pytest.raises(InputError, match=r"one score per pair.*no, yes"):
        StsEvaluator(scored())(CrossStub(labels=("no", "yes")))  # type: ignore[arg-type]


def test_bad_sets_are_named() -> None:
    same = Examples("flat set", "scored", {"a": ["x", "y"], "b": ["z", "w"]}, np.array([0.5, 0.5], np.float32))
    with pytest.raises(InputError, match="flat set: constant gold scores: all 2 rows"):
        StsEvaluator(same)
    with pytest.raises(InputError, match="our pairs: expected examples of kind scored, got labelled"):
        StsEvaluator(labelled())
    with pytest.raises(InputError, match="little: expected at least 2 rows, got 1"):
        StsEvaluator(Examples("little", "scored", {"a": ["x"], "b": ["z"]}, np.array([0.5], np.float32)))
    with pytest.raises(InputError, match="our STS needs vectors: expected a bi-encoder, got object"):
        StsEvaluator(scored())(object())  # type: ignore[arg-type]


def test_a_text_is_encoded_once_per_evaluation_and_prompt() -> None:
    stub = Stub({text: (len(text) % 7, 1.0) for a, b, _ in PAIRS for text in (a, b)})
    seen: list[tuple[int, int | None]] = []
    ones = [StsEvaluator(scored("one")), StsEvaluator(scored("two"))]
    first, second = evaluate(stub, ones, progress=lambda done, total: seen.append((done, total)))  # type: ignore[arg-type]
    encoded = [text for _, texts in stub.calls for text in texts]
    assert sorted(encoded) == sorted({text for a, b, _ in PAIRS for text in (a, b)})
    assert first.values == second.values
    assert seen == [(1, 2), (2, 2)]
    StsEvaluator(scored())(stub)  # type: ignore[arg-type]  # nothing is kept afterwards
    assert len([text for _, texts in stub.calls for text in texts]) > len(encoded)


def test_what_does_not_fit_into_memory_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Stub({text: (len(text) % 7, 1.0) for a, b, _ in PAIRS for text in (a, b)})
    kept = evaluate(stub, [StsEvaluator(scored())])  # type: ignore[arg-type]
    once = len(stub.calls)
    monkeypatch.setattr("munjang.evaluation.encoding._REMEMBERED_BYTES", 0)
    assert evaluate(stub, [StsEvaluator(scored()), StsEvaluator(scored())]) == kept * 2  # type: ignore[arg-type]
    assert len(stub.calls) == 3 * once


def test_what_was_cut_is_noted() -> None:
    stub = Stub({text: (len(text) % 7, 1.0) for a, b, _ in PAIRS for text in (a, b)}, cut=2)
    notes = StsEvaluator(scored())(stub).notes  # type: ignore[arg-type]
    assert notes[0] == "truncated: 2 of 7 texts to 5 tokens"
    again = evaluate(stub, [StsEvaluator(scored()), StsEvaluator(scored("two"))])[1]  # type: ignore[arg-type]
    assert again.notes == ("truncated: texts beyond 5 tokens, counted at an earlier set",)


def test_the_largest_errors() -> None:
    table: dict[tuple[str, str], object] = {(a, b): score for a, b, score in PAIRS}
    table[PAIRS[3][:2]] = 0.95  # people gave 0
    table[PAIRS[0][:2]] = 0.05  # people gave 0.9
    worst = largest_errors(CrossStub(table), scored(), 2)  # type: ignore[arg-type]
    assert {mistake.row for mistake in worst} == {0, 3}
    by_row = {mistake.row: mistake for mistake in worst}
    assert by_row[3].difference > 0.5
    assert by_row[0].difference < -0.5
    assert by_row[0].texts == PAIRS[0][:2]
    assert (by_row[3].gold, by_row[3].predicted) == pytest.approx((0.0, 0.95))
    assert len(largest_errors(CrossStub(table), scored(), 99)) == len(PAIRS)  # type: ignore[arg-type]


def test_the_largest_errors_of_labels() -> None:
    truth = labelled()
    answers: dict[tuple[str, str], Any] = {pair[:2]: ([0.2, 0.8] if pair[2] >= 0.6 else [0.7, 0.3]) for pair in PAIRS}
    answers[PAIRS[1][:2]] = [0.1, 0.9]
    worst = largest_errors(CrossStub(answers, labels=("different", "same")), truth, 1)  # type: ignore[arg-type]
    assert (worst[0].row, worst[0].gold, worst[0].predicted) == (1, "different", "same")
    assert worst[0].difference == pytest.approx(0.9)


@pytest.mark.data
def test_published_figures(data_path: Path, model: BiEncoder) -> None:
    from munjang.data import load_dataset

    for name, expected, tolerance in (("stsb", 0.820, 0.002), ("korsts", 0.420, 0.005)):
        found = StsEvaluator(load_dataset(name, "test", data_path), bootstrap=1000)(model)
        assert found.rows == 1379
        assert found.value == pytest.approx(expected, abs=tolerance)
        low, high = found.intervals["spearman"]
        assert low < expected < high
