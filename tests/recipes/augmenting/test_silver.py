"""silver.tsv: written, read back, edited by hand; and what the report tells of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from munjang.data import read_examples
from munjang.data.overlaps import same_key
from munjang.errors import DataError, InputError
from munjang.recipes.augmenting import silver
from munjang.recipes.augmenting.pairs import CandidatePairs
from munjang.recipes.augmenting.scoring import PairScores
from munjang.recipes.augmenting.sentences import Sentences, collect
from munjang.recipes.augmenting.silver import agreement, histogram, read_silver, write_silver

ODD = [
    '그는 "네"라고 했다', 'a "quoted, text', "tab\tinside", "line\nend\r\nhere", "  spaces  ", "#", "'", "naïve café",
    "이모지 👍🏽", "nan", "0.5", "\u2028separator\x85", "sentence1", "\ufeffmark", "a\x00b", "\\t \\n", "=SUM(A1)",
]  # fmt: skip


def given_pairs(sentences: Sentences, seed: int = 0) -> tuple[CandidatePairs, PairScores]:
    left, right = (side.astype(np.int32) for side in np.triu_indices(len(sentences), 1))
    generator = np.random.default_rng(seed)
    scores = generator.random((2, len(left))).astype(np.float32)
    origin = generator.integers(1, 16, len(left)).astype(np.uint8)
    return CandidatePairs(left, right, origin), PairScores(scores[0], scores[1])


def check(texts: list[str], path: Path, mask: np.ndarray | None = None) -> None:
    sentences = collect([], texts)
    pairs, scores = given_pairs(sentences)
    mask = np.ones(len(pairs), np.bool_) if mask is None else mask
    assert write_silver(path, pairs, sentences, scores=scores, mask=mask) == int(mask.sum())
    rows = np.flatnonzero(mask)
    for found in (read_silver(path), read_examples(path, kind="scored")):
        assert len(found) == found.reading.rows == len(rows)
        for side, places in (("a", pairs.left[rows]), ("b", pairs.right[rows])):
            assert [same_key(text) for text in found.columns[side]] == [same_key(sentences[n]) for n in places.tolist()]
        np.testing.assert_allclose(np.asarray(found.targets), scores.scores[rows], atol=5.1e-5)
    assert (read_silver(path).name, read_silver(path).kind) == ("silver", "scored")


def test_odd_texts_come_back(tmp_path: Path) -> None:
    check(ODD, tmp_path / "silver.tsv")
    lines = (tmp_path / "silver.tsv").read_text(encoding="utf-8").split("\n")
    assert lines[0] == "sentence1\tsentence2\tscore\tspread\torigin"
    assert all(line.count("\t") == 4 for line in lines[:-1])
    assert lines[-1] == ""
    assert '그는 "네"라고 했다\ttab inside\t' in "\n".join(lines)
    assert not (tmp_path / "silver.tsv.tmp").exists()


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_texts_come_back(texts: list[str]) -> None:
    if len(collect([], texts)) < 2 or any(not text.strip() for text in collect([], texts).texts):
        return
    with tempfile.TemporaryDirectory() as folder:
        check(texts, Path(folder) / "silver.tsv")


def test_only_what_is_kept_is_written_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silver, "_WINDOW", 10)
    mask = np.random.default_rng(0).random(len(ODD) * (len(ODD) - 1) // 2) < 0.3
    check(ODD, tmp_path / "silver.tsv", mask)


def test_lines_say_score_spread_and_origin(tmp_path: Path) -> None:
    sentences = collect([], ["비가 온다", "It rains.", "눈"])
    numbers = np.array([0.123456, 1.0], np.float32), np.array([0.0, 0.25], np.float32)
    pairs = CandidatePairs(np.array([0, 0]), np.array([1, 2]), np.array([3, 4], np.uint8))
    path = tmp_path / "silver.tsv"
    write_silver(path, pairs, sentences, scores=PairScores(*numbers), mask=np.ones(2, np.bool_))
    assert path.read_text(encoding="utf-8").split("\n")[1:3] == [
        "비가 온다\tIt rains.\t0.1235\t0.0000\tbm25+semantic",
        "비가 온다\t눈\t1.0000\t0.2500\trandom",
    ]
    first = read_silver(path).columns["a"]
    assert first[0] is first[1]  # held once


def test_an_edited_file_is_read_with_its_refusals(tmp_path: Path) -> None:
    path = tmp_path / "silver.tsv"
    check(["가", "나", "다"], path)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1] = "가\t나\t7\t0\tby hand"
    lines += ["가\t라\t0.5\t\t", "가\t마", "가\t\t0.1\t0\tx", "가\t바\tmuch\t0\tx", ""]
    path.write_bytes("\r\n".join(lines).encode("utf-8-sig"))  # as a Windows editor saves it
    found = read_silver(path)
    assert len(found) == 3
    assert found.row(2) == {"a": "가", "b": "라", "score": 0.5}
    reasons = found.reading.refused_counts
    assert reasons == {
        "score is outside 0..1": 1,
        "too few fields": 1,
        "sentence2 is empty": 1,
        "score is not a number": 1,
    }
    path.write_text("one\ttwo\n", encoding="utf-8")
    with pytest.raises(DataError, match="sentence1"):
        read_silver(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "silver.tsv"
    check(["가", "나", "다"], path)
    before = path.read_bytes()
    sentences = collect([], ["가", "나", "다"])
    pairs, scores = given_pairs(sentences)
    with pytest.raises(IndexError):
        write_silver(path, pairs, collect([], ["가"]), scores=scores, mask=np.ones(3, np.bool_))
    with pytest.raises(InputError, match="not one of 3 pairs"):
        write_silver(path, pairs, sentences, scores=scores, mask=np.zeros(3, np.bool_))
    with pytest.raises(InputError, match="one length"):
        write_silver(path, pairs, sentences, scores=scores, mask=np.ones(2, np.bool_))
    assert path.read_bytes() == before
    assert sum(1 for _ in tmp_path.iterdir()) == 1


def test_histogram_counts_every_score() -> None:
    scores = np.random.default_rng(0).random(1000).astype(np.float32)
    assert histogram(scores) == np.histogram(scores, bins=20, range=(0, 1))[0].tolist()
    assert histogram([0.0, 0.5, 1.0], bins=2) == [1, 2]
    assert histogram([], bins=3) == [0, 0, 0]
    with pytest.raises(InputError, match=r"0\.\.1"):
        histogram([1.2])


def test_agreement_as_scipy_has_it() -> None:
    generator = np.random.default_rng(0)
    gold = np.round(generator.random(50), 1)
    scores = np.clip(gold + generator.normal(size=50) * 0.2, 0, 1)
    found = agreement(scores, gold)
    assert found.spearman == pytest.approx(spearmanr(scores, gold).statistic)
    assert found.pearson == pytest.approx(pearsonr(scores, gold).statistic)
    assert found.mean_difference == pytest.approx(np.abs(scores - gold).mean())
    constant = agreement([0.5, 0.5], [0.1, 0.9])
    assert (constant.spearman, constant.pearson, constant.pairs) == (None, None, 2)
    with pytest.raises(InputError, match="one length"):
        agreement([0.5], [0.1, 0.9])
