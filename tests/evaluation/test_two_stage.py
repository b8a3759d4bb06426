"""Two stages: what the reranker adds is what sorting by hand gives; every pair is asked once, in one stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.sample import TOPICS, CrossStub, Predicted, Stub
from munjang.data import Retrieval
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.evaluation import RetrievalEvaluator, TwoStageEvaluator
from munjang.evaluation.results import content_of
from munjang.types import EncodeReport


@dataclass
class StreamStub(CrossStub):
    """A reranker whose scores are looked up, window after window."""

    max_length: int = 8
    windows: list[int] = field(default_factory=list)
    cut: int = 0

    def predict_stream(self, pairs: Iterable[tuple[str, str]], *, progress: object = False) -> Iterator[Predicted]:
        every = list(pairs)
        self.pairs.extend(every)
        for start in range(0, len(every), 7):
            part = every[start : start + 7]
            self.windows.append(len(part))
            scores = np.array([self.table[pair] for pair in part], np.float32)
            yield Predicted(scores, EncodeReport(len(part), 0, self.cut, 9, 8, 0.0))
        if callable(progress):
            progress(len(every), len(every))


def _case(seed: int, queries: int, documents: int) -> tuple[Retrieval, Stub, StreamStub]:
    """Random vectors, grades and scores with many ties."""
    random = np.random.default_rng(seed)
    asked = {f"q{i}": f"질문 {i}" for i in range(queries)}
    corpus = {f"d{i}": f"document {i}" for i in range(documents)}
    relevant = {
        query: {f"d{int(place)}": int(random.integers(0, 3)) for place in random.choice(documents, 3, replace=False)}
        for query in asked
    }
    relevant["q0"] = {"d0": 1}
    table = {text: tuple(random.normal(size=2)) for text in (*asked.values(), *corpus.values())}
    scores = {(q, d): float(random.integers(0, 4)) / 4 for q in asked.values() for d in corpus.values()}
    return Retrieval("our search", asked, corpus, relevant), Stub(table), StreamStub(scores)


def _by_hand(retrieval: Retrieval, stub: Stub, reranker: StreamStub, candidates: int) -> dict[str, float]:
    """Recall@1, MRR@10 and the first search's recall with plain loops and sorts."""
    found: dict[str, list[float]] = {"before": [], "after": [], "mrr@10": [], "candidates": []}
    for query, text in retrieval.queries.items():
        right = {document for document, grade in retrieval.relevant.get(query, {}).items() if grade > 0}
        if not right:
            continue
        vector = np.array(stub.table[text])

        def cosine(document: str, vector: np.ndarray = vector) -> float:
            other = np.array(stub.table[retrieval.corpus[document]])
            return float(vector @ other / np.linalg.norm(vector) / np.linalg.norm(other))

        first = sorted(retrieval.corpus, key=lambda document: -cosine(document))[:candidates]
        second = sorted(first, key=lambda document: -float(reranker.table[text, retrieval.corpus[document]]))  # stable
        found["before"].append(len(right & set(first[:1])) / len(right))
        found["after"].append(len(right & set(second[:1])) / len(right))
        found["candidates"].append(len(right & set(first)) / len(right))
        ranks = [rank for rank, document in enumerate(second[:10], 1) if document in right]
        found["mrr@10"].append(1 / ranks[0] if ranks else 0.0)
    return {name: float(np.mean(values)) for name, values in found.items()}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 6), documents=st.integers(3, 20))
def test_it_is_what_sorting_by_hand_gives(seed: int, queries: int, documents: int) -> None:
    retrieval, stub, reranker = _case(seed, queries, documents)
    scores = TwoStageEvaluator(retrieval, reranker, candidates=10)(stub)  # type: ignore[arg-type]
    wanted = _by_hand(retrieval, stub, reranker, 10)
    assert scores.values["recall@1_before"] == pytest.approx(wanted["before"])
    assert scores.values["recall@1"] == pytest.approx(wanted["after"])
    assert scores.values["recall@1_gain"] == pytest.approx(wanted["after"] - wanted["before"])
    assert scores.values["mrr@10"] == pytest.approx(wanted["mrr@10"])
    assert scores.values["recall_of_candidates"] == pytest.approx(wanted["candidates"])


def test_before_is_the_search_itself() -> None:
    retrieval, stub, reranker = _case(3, 6, 20)
    alone = RetrievalEvaluator(retrieval, at=(1, 10))(stub)  # type: ignore[arg-type]
    both = TwoStageEvaluator(retrieval, reranker, candidates=20)(stub)  # type: ignore[arg-type]
    for metric in ("recall@1", "ndcg@10", "mrr@10", "map@10", "precision@10", "hit_rate@1"):
        assert both.values[f"{metric}_before"] == pytest.approx(alone.values[metric])
    assert both.values["recall@1"] == both.value


def test_every_pair_is_asked_once_and_progress_counts_pairs() -> None:
    retrieval, stub, reranker = _case(0, 4, 12)
    heard: list[tuple[int, int | None]] = []
    evaluator = TwoStageEvaluator(
        retrieval, replace(reranker, cut=2), candidates=10, progress=lambda done, of: heard.append((done, of))
    )
    scores = evaluator(stub)  # type: ignore[arg-type]
    asked = evaluator.reranker.pairs  # type: ignore[attr-defined]
    assert len(asked) == len(set(asked)) == 10 * scores.rows
    assert heard == [(len(asked), len(asked))]
    assert "first 10 of the bi-encoder reranked" in scores.notes
    assert any(note.startswith("truncated:") and note.endswith("pairs to 8 tokens") for note in scores.notes)


def test_a_perfect_reranker_finds_what_is_among_the_candidates() -> None:
    retrieval, stub, reranker = _case(5, 6, 20)
    for (query, text), _ in list(reranker.table.items()):
        name = next(key for key, value in retrieval.queries.items() if value == query)
        place = next(key for key, value in retrieval.corpus.items() if value == text)
        reranker.table[query, text] = float(retrieval.relevant[name].get(place, 0))
    scores = TwoStageEvaluator(retrieval, reranker, candidates=20, bootstrap=200)(stub)  # type: ignore[arg-type]
    assert scores.values["ndcg@10"] == pytest.approx(1)
    low, high = scores.intervals["recall@1_gain"]
    assert low <= scores.values["recall@1_gain"] <= high
    assert {"recall@1", "recall@1_before", "ndcg@10", "ndcg@10_gain"} <= set(scores.intervals)


def test_real_models(model: BiEncoder, cross: CrossEncoder) -> None:
    texts = [text for some in TOPICS.values() for text in some]
    corpus = {f"d{i}": text for i, text in enumerate([*texts, "서울에 비가 온다.", "열차가 지연되었다."])}
    queries = {"a": "Who won the game?", "b": "비가 오나요?"}
    retrieval = Retrieval("our search", queries, corpus, {"a": {"d8": 2, "d9": 1}, "b": {"d24": 1}})
    scores = TwoStageEvaluator(retrieval, cross, candidates=12)(model)
    first = {query: model.encode([text]) @ model.encode(list(corpus.values())).T for query, text in queries.items()}
    kept = {query: np.argsort(-row[0], kind="stable")[:12] for query, row in first.items()}
    best = {
        query: rows[int(np.argmax(cross.predict([(queries[query], list(corpus.values())[row]) for row in rows])))]
        for query, rows in kept.items()
    }
    recall = [np.isin(best["a"], [8, 9]) / 2, float(best["b"] == 24)]
    assert scores.value == pytest.approx(np.mean(recall))


def test_another_reranker_is_another_result() -> None:
    retrieval, _, reranker = _case(0, 2, 12)
    one = content_of(TwoStageEvaluator(retrieval, reranker, 10))  # type: ignore[arg-type]
    assert one == content_of(TwoStageEvaluator(retrieval, reranker, 10, progress=print))  # type: ignore[arg-type]
    other = replace(reranker, fingerprint="another")
    assert one != content_of(TwoStageEvaluator(retrieval, other, 10))  # type: ignore[arg-type]
    assert one != content_of(TwoStageEvaluator(retrieval, reranker, 11))  # type: ignore[arg-type]


def test_what_cannot_be_is_said_before_anything_is_computed() -> None:
    retrieval, stub, reranker = _case(0, 2, 12)
    with pytest.raises(InputError, match="candidates must be 10 or more, got 5"):
        TwoStageEvaluator(retrieval, reranker, 5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one score per pair, got one with 2"):
        TwoStageEvaluator(retrieval, replace(reranker, labels=("no", "yes")))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="main must be of"):
        TwoStageEvaluator(retrieval, reranker, main="recall@7")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs vectors"):
        TwoStageEvaluator(retrieval, reranker, 10)(reranker)  # type: ignore[arg-type]
    assert not stub.calls
    assert not reranker.pairs
