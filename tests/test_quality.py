"""Vectors that mean something: all-MiniLM-L6-v2 on the STS benchmark and on KorSTS, beside the published figures."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from scipy.stats import spearmanr

import munjang

pytestmark = pytest.mark.data


def _spearman(model: munjang.BiEncoder, pairs: list[tuple[str, str, float]]) -> float:
    left, right, gold = zip(*pairs, strict=True)
    scores = munjang.pairwise_similarity(model.encode(left), model.encode(right))
    return float(spearmanr(scores, gold).statistic)


def test_minilm_reaches_its_published_figures(data_path: Path, minilm_path: Path) -> None:
    model = munjang.load(minilm_path, device="cpu")
    with open(data_path / "stsb-en" / "stsb-en-test.csv", encoding="utf-8", newline="") as file:
        english = [(row[0], row[1], float(row[2])) for row in csv.reader(file)]
    with open(data_path / "korsts" / "sts-test.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    korean = [(row[5], row[6], float(row[4])) for row in rows]
    assert len(english) == len(korean) == 1379
    assert _spearman(model, english) == pytest.approx(0.820, abs=0.002)
    assert _spearman(model, korean) == pytest.approx(0.420, abs=0.005)  # an English model: the honest figure
