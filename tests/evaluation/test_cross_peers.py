"""A real cross-encoder, judged by us and, saved and loaded there, by sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as PeerCrossEncoder
from sentence_transformers.cross_encoder import evaluation as theirs

from evaluation.sample import PAIRS, TOPICS, labelled, scored
from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.evaluation import LabelEvaluator, PairClassificationEvaluator, RerankingEvaluator, StsEvaluator

TEXTS = [list(pair[:2]) for pair in PAIRS]


@pytest.fixture(scope="module")
def peer_cross(cross: CrossEncoder, tmp_path_factory: pytest.TempPathFactory) -> PeerCrossEncoder:
    return _saved(cross, tmp_path_factory.mktemp("cross"))


def _saved(model: CrossEncoder, folder: Path) -> PeerCrossEncoder:
    model.save(folder / "model")
    return PeerCrossEncoder(str(folder / "model"), device="cpu", model_kwargs={"dtype": torch.float32})


def test_correlation(cross: CrossEncoder, peer_cross: PeerCrossEncoder) -> None:
    gold = [score for *_, score in PAIRS]
    expected = theirs.CrossEncoderCorrelationEvaluator(TEXTS, gold, write_csv=False)(peer_cross)
    ours = StsEvaluator(scored())(cross)
    assert ours.values["pearson"] == pytest.approx(expected["pearson"], abs=1e-3)
    assert ours.values["spearman"] == pytest.approx(expected["spearman"], abs=1e-3)


def test_binary_classification(cross: CrossEncoder, peer_cross: PeerCrossEncoder) -> None:
    examples = labelled()
    expected = theirs.CrossEncoderClassificationEvaluator(TEXTS, examples.targets.tolist(), write_csv=False)(peer_cross)
    ours = PairClassificationEvaluator(examples)(cross)
    for metric in ("accuracy", "f1", "precision", "recall", "average_precision"):
        assert ours.values[metric] == pytest.approx(expected[metric], abs=1e-3)
    assert ours.values["f1_threshold"] == pytest.approx(expected["f1_threshold"], abs=1e-4)


def test_labels(model: BiEncoder, tmp_path: Path) -> None:
    names = ("entailment", "neutral", "contradiction")
    three = CrossEncoder.from_body(model, names, device="cpu", dtype="float32")
    gold = np.arange(len(PAIRS)) % 3
    columns = {"a": [a for a, _ in TEXTS], "b": [b for _, b in TEXTS]}
    peer = _saved(three, tmp_path)
    expected = theirs.CrossEncoderClassificationEvaluator(TEXTS, gold.tolist(), write_csv=False)(peer)
    ours = LabelEvaluator(Examples("nli", "labelled", columns, gold, names))(three)
    for average in ("macro", "micro", "weighted"):
        assert ours.values[f"f1_{average}"] == pytest.approx(expected[f"f1_{average}"])


def test_reranking(cross: CrossEncoder, peer_cross: PeerCrossEncoder) -> None:
    samples = [
        {"query": f"a text about {topic}", "positive": some[:3], "negative": TOPICS[other][:6]}
        for (topic, some), other in zip(TOPICS.items(), ("sport", "money", "food"), strict=True)
    ]
    rows = [
        (sample["query"], text, float(kind == "positive"), group)
        for group, sample in enumerate(samples)
        for kind in ("positive", "negative")
        for text in sample[kind]
    ]
    query, document, grade, group = zip(*rows, strict=True)
    columns = {"query": list(query), "document": list(document)}
    examples = Examples("lists", "ranked", columns, np.array(grade, np.float32), groups=np.array(group))
    expected = theirs.CrossEncoderRerankingEvaluator(samples, at_k=5, write_csv=False)(peer_cross)
    ours = RerankingEvaluator(examples, at=5)(cross)
    for metric in ("map", "mrr@5", "ndcg@5"):
        assert ours.values[metric] == pytest.approx(expected[metric], abs=1e-6)
