"""The second stage: its order, its budget, and what it says of the hits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.encoders import CrossEncoder, Predicted
from munjang.errors import InputError, TruncationWarning
from munjang.index.reranking import Reranked, probabilities, rerank
from munjang.index.results import Hit, Passage, Stage
from munjang.types import EncodeReport, Threshold
from support.small_models import cross_encoder


@dataclass
class Scorer:
    """Logits by the text; it remembers what it read."""

    told: dict[str, float]
    labels: tuple[str, ...] = ("score",)
    activation: str = "Sigmoid"
    max_length: int = 32
    thresholds: dict[str, Threshold] = field(default_factory=dict)
    first_stage_weight: float = 0.0
    seconds: float = 0.0  # for each text
    read: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Any:
        return SimpleNamespace(activation=self.activation)

    def predict_report(self, pairs: Sequence[tuple[str, str]], *, raw: bool) -> Predicted:
        assert raw
        texts = [text for _, text in pairs]
        time.sleep(self.seconds * len(texts))
        self.read += texts
        scores = np.array([self.told[text] for text in texts], np.float32)
        return Predicted(scores, EncodeReport(len(texts), 1, sum(len(text) > 40 for text in texts), 50, 32, 0.0))


def a_hit(place: int, text: str, score: float, *, known: bool = True) -> Hit:
    stage = Stage("semantic", score, place + 1, score if known else None)
    return Hit(f"d{place}", text, {}, Passage(text, 0, len(text)), score, (stage,))


def run(scorer: Scorer, hits: Sequence[Hit], k: int, **options: Any) -> Reranked:
    return rerank("비가 오면?", hits, cast(CrossEncoder, scorer), k, **options)


# Few different values, so that ties and repeated texts are common.
_LEVELS = st.sampled_from([-4.0, -1.0, 0.0, 0.5, 3.0])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=24),
    st.dictionaries(st.integers(0, 12), _LEVELS, min_size=13),
    st.integers(1, 30),
    st.sampled_from([0.0, 0.5, 4.0]),
)
def test_the_order_is_that_of_logit_and_first_stage(
    candidates: list[tuple[int, float]], logits: dict[int, float], k: int, weight: float
) -> None:
    candidates = sorted(candidates, key=lambda one: -one[1])
    told = {f"글 {number} text": logits[number] for number in range(13)}
    hits = [a_hit(place, f"글 {number} text", score) for place, (number, score) in enumerate(candidates)]
    scorer = Scorer(told, first_stage_weight=weight)
    found = run(scorer, hits, k)
    final = [told[hit.passage.text] + weight * hit.score for hit in hits]
    order = sorted(range(len(hits)), key=lambda place: (-final[place], place))[:k]
    assert [hit.id for hit in found.hits] == [hits[place].id for place in order]
    assert found.scored == len(hits)
    assert len(scorer.read) == len({hit.passage.text for hit in hits})  # each text once
    for rank, (hit, place) in enumerate(zip(found.hits, order, strict=True), start=1):
        chance = pytest.approx(1 / (1 + np.exp(-told[hit.passage.text])))
        assert (hit.score, hit.moved, hit.stages[:-1]) == (chance, place + 1 - rank, hits[place].stages)
        assert hit.stages[-1] == Stage("rerank", chance, rank, chance)


def test_a_first_stage_without_a_scale_has_no_say() -> None:
    hits = [a_hit(0, "a", 0.9, known=False), a_hit(1, "b", 0.1, known=False)]
    assert [hit.id for hit in run(Scorer({"a": 0.0, "b": 0.1}, first_stage_weight=10), hits, 2).hits] == ["d1", "d0"]


def test_a_budget_says_how_many_are_read() -> None:
    texts = [f"passage {place}" for place in range(100)]
    hits = [a_hit(place, text, 0.5) for place, text in enumerate(texts)]
    told = {text: float(place) for place, text in enumerate(texts)}

    def read(k: int, budget: float | None) -> int:
        scorer = Scorer(told, seconds=0.002)  # 16 ms for the first eight
        found = run(scorer, hits, k, budget=budget)
        assert found.scored == len(scorer.read)
        assert scorer.read == texts[: found.scored]  # from the best down
        return found.scored

    assert read(5, None) == 100
    assert read(5, 0.0) == 8
    assert read(20, 0.0) == 20  # k hits are read in any case
    assert 8 < read(5, 0.1) < 60
    assert read(5, 10.0) == 100


def test_the_title_is_read_before_the_passage() -> None:
    hits = [replace(a_hit(0, "a", 0.9), metadata={"title": " Jet lag "}), a_hit(1, "b", 0.8)]
    scorer = Scorer({"Jet lag\na": 1.0, "b": 0.0})
    assert [hit.text for hit in run(scorer, hits, 2, title="title").hits] == ["a", "b"]


def test_scores_are_probabilities_whatever_the_activation() -> None:
    logits = np.array([-800.0, -1.5, 0.0, 2.5, 800.0], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = probabilities(logits, cast(CrossEncoder, Scorer({}, activation="Identity")))
    assert found == pytest.approx([0.0, 0.182425523806, 0.5, 0.924141819979, 1.0], abs=1e-9)
    tanh = probabilities(np.array([-9.0, 0.0, 9.0]), cast(CrossEncoder, Scorer({}, activation="Tanh")))
    assert tanh == pytest.approx([0.0, 0.5, 1.0], abs=1e-6)


def test_no_good_answer_is_an_answer() -> None:
    hits = [a_hit(0, "a", 0.9), a_hit(1, "b", 0.8)]
    limit = {"answer": Threshold(0.5, "answer", "the passage answers the question")}
    assert run(Scorer({"a": -2.0, "b": 0.0}, thresholds=limit), hits, 2).answered is True
    assert run(Scorer({"a": -2.0, "b": -0.1}, thresholds=limit), hits, 2).answered is False
    assert run(Scorer({"a": -2.0, "b": 0.6}), hits, 2).answered is None
    # The best probability counts, also where the first stage keeps it from the first places.
    assert run(Scorer({"a": -2.0, "b": 0.1}, thresholds=limit, first_stage_weight=90), hits, 1).answered is True
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
    assert found.scored == 6
    assert found.answered is None
