"""Retrieval and reranking: the peers' numbers, grades, prompts, what is left out."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation as theirs

from evaluation.sample import TOPICS, CrossStub, Stub, topics
from munjang.data import Examples
from munjang.data.examples import Retrieval
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.evaluation import RerankingEvaluator, RetrievalEvaluator

QUERIES = {
    "q-food": "something to eat",
    "q-sport": "games and athletes",
    "q-money": "finance and banks",
    "q-x": "축구 경기",
}


def retrieval(name: str = "our corpus") -> Retrieval:
    texts = topics().columns["text"]
    corpus = {f"d{place}": text for place, text in enumerate(texts)}
    relevant = {
        f"q-{topic}": {f"d{texts.index(text)}": 1 for text in some[: 3 + row]}
        for row, (topic, some) in enumerate(TOPICS.items())
    }
    relevant["q-x"] = {"d8": 1, "d9": 1}
    return Retrieval(name, QUERIES, corpus, relevant)


def test_retrieval_is_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    data, at = retrieval(), (1, 3, 5, 10)
    expected = theirs.InformationRetrievalEvaluator(
        data.queries,
        data.corpus,
        {query: set(found) for query, found in data.relevant.items()},
        mrr_at_k=list(at),
        ndcg_at_k=list(at),
        accuracy_at_k=list(at),
        precision_recall_at_k=list(at),
        map_at_k=list(at),
        write_csv=False,
    )(peer)
    ours = RetrievalEvaluator(data, at=at, bootstrap=50)(model)
    assert ours.rows == 4
    for k in at:
        for metric in ("ndcg", "mrr", "map", "recall", "precision"):
            assert ours.values[f"{metric}@{k}"] == pytest.approx(expected[f"cosine_{metric}@{k}"]), (metric, k)
        assert ours.values[f"hit_rate@{k}"] == pytest.approx(expected[f"cosine_accuracy@{k}"])
    assert 0 < ours.value < 1
    low, high = ours.intervals["ndcg@10"]
    assert low <= ours.value <= high


def test_grades_count_in_ndcg() -> None:
    table = {"q": (1, 0), "best": (0.7, 0.7), "good": (1, 0.1), "bad": (0, 1)}
    data = Retrieval("g", {"1": "q"}, {"a": "best", "b": "good", "c": "bad"}, {"1": {"a": 2, "b": 1, "c": 0}})
    found = RetrievalEvaluator(data)(Stub(table))  # type: ignore[arg-type]
    expected = sklearn.metrics.ndcg_score([[2, 1, 0]], [[2, 3, 1]], k=10)
    assert found.value == pytest.approx(expected)
    assert found.values["recall@1"] == 0.5
    assert found.values["precision@100"] == pytest.approx(0.02)


def test_prompts_and_the_models_own_similarity() -> None:
    table = {"q": (1, 1), "near": (1.1, 1), "far": (9, 9)}
    data = Retrieval("p", {"1": "q"}, {"a": "near", "b": "far"}, {"1": {"b": 1}})
    stub = Stub(table, prompts={"query": "Q", "document": "D"}, similarity_name="euclidean")
    assert RetrievalEvaluator(data)(stub).values["mrr@1"] == 0  # type: ignore[arg-type]
    assert RetrievalEvaluator(data, similarity="dot")(stub).values["mrr@1"] == 1  # type: ignore[arg-type]
    assert [prompt for prompt, _ in stub.calls] == ["query", "document"] * 2


def test_queries_without_an_answer_are_left_out_and_noted() -> None:
    data = Retrieval("p", {"1": "q", "2": "r", "3": "s"}, {"a": "x", "b": "yy"}, {"1": {"a": 1}, "2": {"a": 0}})
    found = RetrievalEvaluator(data)(Stub())  # type: ignore[arg-type]
    assert found.rows == 1
    assert found.notes == ("2 of 3 queries have no relevant document: left out",)
    with pytest.raises(InputError, match="empty: expected documents and queries"):
        RetrievalEvaluator(Retrieval("empty", {"1": "q"}, {"a": "x"}, {}))
    with pytest.raises(InputError, match=r"p: main must be one of ndcg.*'ndcg@7'"):
        RetrievalEvaluator(data, main="ndcg@7")
    with pytest.raises(InputError, match="expected a bi-encoder"):
        RetrievalEvaluator(data)(CrossStub())  # type: ignore[arg-type]


def ranked() -> tuple[Examples, list[dict[str, object]]]:
    rows, samples = [], []
    for group, (query, (topic, right)) in enumerate(zip(list(QUERIES.values())[:3], TOPICS.items(), strict=True)):
        wrong = [text for other, some in TOPICS.items() if other != topic for text in some][: 7 + group]
        rows += [(query, text, 1.0, group) for text in right[:4]] + [(query, text, 0.0, group) for text in wrong]
        samples.append({"query": query, "positive": right[:4], "negative": wrong})
    query, document, grade, group = zip(*rows, strict=True)
    columns = {"query": list(query), "document": list(document)}
    return Examples("our lists", "ranked", columns, np.array(grade, np.float32), groups=np.array(group)), samples


def test_reranking_is_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    examples, samples = ranked()
    for k in (3, 10):
        expected = theirs.RerankingEvaluator(samples, at_k=k, write_csv=False, show_progress_bar=False)(peer)
        ours = RerankingEvaluator(examples, at=k, bootstrap=20)(model)
        assert ours.main == f"ndcg@{k}"
        assert ours.rows == 3
        for metric, theirs_name in ((f"ndcg@{k}", f"ndcg@{k}"), (f"mrr@{k}", f"mrr@{k}"), ("map", "map")):
            assert ours.values[metric] == pytest.approx(expected[theirs_name], abs=1e-6)


def test_lists_that_cannot_be_ordered_are_left_out() -> None:
    columns = {"query": ["q", "q", "r", "s", "s"], "document": ["a", "b", "c", "d", "e"]}
    grades, groups = np.array([1, 0, 1, 0, 0], np.float32), np.array([0, 0, 1, 2, 2])
    examples = Examples("lists", "ranked", columns, grades, groups=groups)
    found = RerankingEvaluator(examples)(CrossStub({("q", "a"): 0.1, ("q", "b"): 0.9}))  # type: ignore[arg-type]
    assert found.rows == 1
    assert found.values["mrr@10"] == 0.5
    assert found.notes == ("2 queries have only relevant or only other documents: left out",)
    with pytest.raises(InputError, match="none: no query has both"):
        RerankingEvaluator(Examples("none", "ranked", columns, grades * 0 + 1, groups=groups))
