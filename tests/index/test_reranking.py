"""The second stage: its order against scoring everything, its early end, and what it says of the hits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.encoders import CrossEncoder, Predicted
from munjang.errors import InputError, TruncationWarning
from munjang.index import reranking
from munjang.index.reranking import Reranked, probabilities, rerank
from munjang.index.results import Hit, Passage, Stage
from munjang.types import EncodeReport, Threshold
from support.small_models import cross_encoder


@dataclass
class Scorer:
    """Scores that are told in advance, by the text; it remembers what it read."""

    told: dict[str, float]
    labels: tuple[str, ...] = ("score",)
    activation: str = "Sigmoid"
    max_length: int = 32
    thresholds: dict[str, Threshold] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Any:
        return SimpleNamespace(activation=self.activation)

    def predict_report(self, pairs: Sequence[tuple[str, str]]) -> Predicted:
        texts = [text for _, text in pairs]
        self.read += texts
        scores = np.array([self.told[text] for text in texts], np.float32)
        return Predicted(scores, EncodeReport(len(texts), 1, sum(len(text) > 40 for text in texts), 50, 32, 0.0))


def a_hit(place: int, text: str, score: float, stage: str = "semantic") -> Hit:
    return Hit(f"d{place}", text, {}, Passage(text, 0, len(text)), score, (Stage(stage, score, place + 1),))  # type: ignore[arg-type]


def run(scorer: Scorer, hits: Sequence[Hit], k: int, *, weight: float = 0.0, kind: Any = "cosine") -> Reranked:
    return rerank("비가 오면?", hits, cast(CrossEncoder, scorer), k, weight=weight, kind=kind)


def brute(told: dict[str, float], hits: Sequence[Hit], first: Sequence[float], k: int, weight: float) -> list[str]:
    """All scored, no bound: sorted in plain Python."""
    final = [
        (1.0 - weight) * float(np.float32(told[hit.passage.text])) + weight * one
        for hit, one in zip(hits, first, strict=True)
    ]
    order = sorted(range(len(hits)), key=lambda place: (-final[place], place))
    return [hits[place].id for place in order[:k]]


# Few different values, so that ties, perfect scores and repeated texts are common.
_LEVELS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), _LEVELS), max_size=24),
    st.dictionaries(st.integers(0, 12), _LEVELS, min_size=13),
    st.integers(1, 30),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]),
    st.integers(1, 5),
)
def test_stopping_early_changes_nothing(
    candidates: list[tuple[int, float]], cross: dict[int, float], k: int, weight: float, block: int
) -> None:
    candidates = sorted(candidates, key=lambda one: -one[1])
    told = {f"글 {number} text": cross[number] for number in range(13)}
    hits = [a_hit(place, f"글 {number} text", score) for place, (number, score) in enumerate(candidates)]
    scorer = Scorer(told)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reranking, "BLOCK", block)
        found = run(scorer, hits, k, weight=weight)
    assert [hit.id for hit in found.hits] == brute(told, hits, [hit.score for hit in hits], k, weight)
    assert len(scorer.read) == len(set(scorer.read)) == found.scored <= len({hit.passage.text for hit in hits})
    before = {hit.id: place for place, hit in enumerate(hits)}
    for place, hit in enumerate(found.hits):
        assert hit.moved == before[hit.id] - place
        assert hit.stages[-1] == Stage("rerank", float(np.float32(told[hit.passage.text])), place + 1)
        assert hit.stages[:-1] == hits[before[hit.id]].stages


def test_fewer_are_read_where_the_rest_cannot_matter() -> None:
    texts = [f"passage {place}" for place in range(200)]
    told = {text: 0.95 if place < 5 else 0.1 for place, text in enumerate(texts)}
    hits = [a_hit(place, text, 0.95 - place * 0.004) for place, text in enumerate(texts)]
    mixed = Scorer(told)
    assert [hit.id for hit in run(mixed, hits, 5, weight=0.2).hits] == ["d0", "d1", "d2", "d3", "d4"]
    assert len(mixed.read) == 2 * reranking.BLOCK  # candidate 64 ends below 0.8 + 0.2 * 0.694, and the fifth above
    alone = Scorer(told)
    assert run(alone, hits, 5).scored == 200  # any of them could have had a 1
    perfect = Scorer(dict.fromkeys(texts, 1.0))
    assert run(perfect, hits, 5).scored == reranking.BLOCK  # five perfect scores cannot be beaten


def test_a_small_rest_joins_the_last_block() -> None:
    texts = [f"t{place}" for place in range(100)]
    sizes: list[int] = []

    class Counting(Scorer):
        def predict_report(self, pairs: Sequence[tuple[str, str]]) -> Predicted:
            sizes.append(len(pairs))
            return super().predict_report(pairs)

    run(Counting(dict.fromkeys(texts, 0.5)), [a_hit(i, text, 0.5) for i, text in enumerate(texts)], 10)
    assert sizes == [32, 32, 36]


def test_first_scores_of_every_kind() -> None:
    told = {"a": 0.4, "b": 0.5}

    def order(scores: tuple[float, float], stage: str, kind: str) -> list[str]:
        hits = [a_hit(0, "a", scores[0], stage), a_hit(1, "b", scores[1], stage)]
        return [hit.id for hit in run(Scorer(told), hits, 2, weight=0.5, kind=kind).hits]

    assert order((0.9, 0.85), "semantic", "cosine") == ["d1", "d0"]  # 0.05 apart: the cross-encoder decides
    assert order((-0.1, -0.9), "semantic", "cosine") == ["d1", "d0"]  # both are 0
    assert order((30.0, 10.0), "keyword", "cosine") == ["d0", "d1"]  # relative to the best: 1 and 1/3
    assert order((-1.0, -7.0), "semantic", "euclidean") == ["d0", "d1"]  # distances: 1 and 0
    assert order((0.0, 0.0), "hybrid", "cosine") == ["d1", "d0"]


def test_scores_are_probabilities_whatever_the_activation() -> None:
    logits = np.array([-800.0, -1.5, 0.0, 2.5, 800.0], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = probabilities(logits, cast(CrossEncoder, Scorer({}, activation="Identity")))
    assert found == pytest.approx([0.0, 0.182425523806, 0.5, 0.924141819979, 1.0], abs=1e-9)
    tanh = probabilities(np.array([-1.0, 0.0, 1.0]), cast(CrossEncoder, Scorer({}, activation="Tanh")))
    assert tanh.tolist() == [0.0, 0.5, 1.0]


def test_no_good_answer_is_an_answer() -> None:
    hits = [a_hit(0, "a", 0.9), a_hit(1, "b", 0.8)]
    limit = {"answer": Threshold(0.5, "answer", "the passage answers the question")}
    assert run(Scorer({"a": 0.1, "b": 0.5}, thresholds=limit), hits, 2).answered is True
    assert run(Scorer({"a": 0.1, "b": 0.49}, thresholds=limit), hits, 2).answered is False
    assert run(Scorer({"a": 0.1, "b": 0.6}), hits, 2).answered is None
    assert run(Scorer({}, thresholds=limit), [], 2) == Reranked([], 0, False, pytest.approx(0, abs=1))  # type: ignore[arg-type]
    # A threshold of a model that gives logits is a logit; 0.6 of them is a probability above a half.
    logits = {"answer": Threshold(0.7, "answer", "in the units of predict")}
    assert run(Scorer({"a": 0.6, "b": 0.0}, thresholds=logits, activation="Identity"), hits, 2).answered is False


def test_what_was_cut_is_said() -> None:
    long = "길다 long " * 6
    with pytest.warns(TruncationWarning, match="longer than the 32 tokens"):
        found = run(Scorer({long: 0.2, "b": 0.3}), [a_hit(0, long, 0.9), a_hit(1, "b", 0.8)], 2)
    assert found.truncated == 1


def test_what_is_refused() -> None:
    hits = [a_hit(0, "a", 0.9)]
    for wrong, message in (
        ({"scorer": Scorer({}, labels=("no", "yes")), "k": 1}, "this model has 2 labels"),
        ({"scorer": Scorer({}), "k": 0}, "k must be at least 1, got 0"),
        ({"scorer": Scorer({}), "k": 1, "weight": 1.5}, "weight must be 0"),
    ):
        with pytest.raises(InputError, match=message):
            run(hits=hits, **cast(Any, wrong))
    with pytest.raises(InputError, match="reads the query's text, got ndarray"):
        rerank(cast(str, np.zeros(3)), hits, cast(CrossEncoder, Scorer({})), 1)
    with pytest.raises(InputError, match="reranker must be a CrossEncoder"):
        rerank("q", hits, cast(CrossEncoder, "munjang-rerank-ko-en"), 1)


def test_a_real_cross_encoder_gives_the_order_of_rank() -> None:
    model = cross_encoder()
    texts = ["비가 온다.", "It is raining.", "빵", "a bakery at the end of the street", "우산 없이 걷다", "비가 온다."]
    hits = [a_hit(place, text, 0.9 - place / 10) for place, text in enumerate(texts)]
    found = rerank("비가 오는 날", hits, model, 3)
    ranked = model.rank("비가 오는 날", texts, 3)
    assert [hit.id for hit in found.hits] == [f"d{one.index}" for one in ranked]
    assert [hit.score for hit in found.hits] == pytest.approx([one.score for one in ranked], abs=1e-5)
    assert found.scored == 5  # one text stands twice
    assert found.answered is None
