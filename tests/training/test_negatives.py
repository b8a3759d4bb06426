"""Mined negatives beside a brute-force search over all pairs of texts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import munjang
from munjang.data.examples import Examples
from munjang.data.overlaps import same_key
from munjang.errors import InputError
from munjang.training import negatives
from munjang.training.negatives import NegativeMining, mine_negatives
from munjang.vectors import similarity


class Small:
    """A bi-encoder whose vectors depend on nothing but the text."""

    device = torch.device("cpu")

    def __init__(self, kind: str = "cosine", spread: int = 1000) -> None:
        self.similarity_name = kind
        self.spread = spread
        self.encoded: list[str] = []
        self.calls: list[str] = []

    def vector(self, text: str) -> np.ndarray:
        seed = sum((i + 1) * ord(c) for i, c in enumerate(same_key(text))) % self.spread
        return np.random.default_rng(seed).normal(size=4)

    def encode(self, texts: list[str], *, progress: object = False) -> np.ndarray:
        self.encoded += texts
        self.calls.append("encode")
        return np.array([self.vector(text) for text in texts], np.float32).reshape(-1, 4)

    def encode_query(self, texts: list[str], *, progress: object = False) -> np.ndarray:
        found = self.encode(texts)
        self.calls[-1] = "query"
        return found

    def encode_document(self, texts: list[str], *, progress: object = False) -> np.ndarray:
        found = self.encode(texts)
        self.calls[-1] = "document"
        return found


class Judge:
    """A cross-encoder that scores by the letters two texts share."""

    labels = ("score",)

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def score(self, a: str, b: str) -> float:
        return len(set(a) & set(b)) / len(set(a) | set(b) | {""})

    def predict(self, pairs: list[tuple[str, str]], **_: object) -> np.ndarray:
        self.asked += pairs
        return np.array([self.score(a, b) for a, b in pairs], np.float32)


def pairs_of(rows: list[tuple[str, str]]) -> Examples:
    return Examples("small", "pairs", {"anchor": [a for a, _ in rows], "positive": [p for _, p in rows]})


def brute(rows: list[tuple[str, str]], model: Any, wish: NegativeMining) -> dict[int, list[str]]:
    """For every row with enough of them its negatives, found by comparing everything with everything."""
    corpus: dict[str, str] = {}
    for text in wish.corpus if wish.corpus is not None else [p for _, p in rows]:
        corpus.setdefault(same_key(text), text)
    known = {(same_key(a), same_key(p)) for a, p in rows} | {(same_key(p), same_key(a)) for a, p in rows}
    first = {}
    for text in (*corpus.values(), *(p for _, p in rows)):
        first.setdefault(same_key(text), text)
    spelled = {}
    for a, _ in rows:
        spelled.setdefault(same_key(a), a)

    def near(a: str, b: str) -> float:
        left, right = (model.vector(text).astype(np.float32)[None] for text in (a, b))
        return float(similarity(left, right, model.similarity_name)[0, 0])

    def judge(a: str, b: str) -> float:
        if wish.cross_encoder is None:
            return near(a, b)
        return wish.cross_encoder.score(spelled[same_key(a)], first[same_key(b)])

    found = {}
    for number, (anchor, positive) in enumerate(rows):
        key = same_key(anchor)
        allowed = [text for other, text in corpus.items() if other != key and (key, other) not in known]
        ranked = sorted(allowed, key=lambda text: -near(anchor, text))[wish.range_min : wish.range_max]
        own = np.float32(judge(anchor, positive))
        bounds = [own - wish.absolute_margin] if wish.absolute_margin is not None else []
        bounds += [own - wish.relative_margin * abs(own)] if wish.relative_margin is not None else []
        bounds += [wish.max_score] if wish.max_score is not None else []
        low = -np.inf if wish.min_score is None else wish.min_score
        good = [text for text in ranked if low <= judge(anchor, text) <= min(bounds, default=np.inf)]
        if len(good) >= wish.negatives_per_row:
            found[number] = good
    return found


words = st.text("가나다라ab ", min_size=1, max_size=3)
margins = st.sampled_from([None, 0.0, 0.013, 0.31])


@st.composite
def wishes(draw: st.DrawFn) -> NegativeMining:
    low, count = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    return NegativeMining(
        corpus=draw(st.none() | st.lists(words, min_size=1, max_size=12)),
        negatives_per_row=count,
        range_min=low,
        range_max=low + count + draw(st.integers(0, 5)),
        max_score=draw(st.sampled_from([None, 0.4321])),
        min_score=draw(st.sampled_from([None, -0.2345])),
        absolute_margin=draw(margins),
        relative_margin=draw(margins),
        cross_encoder=Judge() if draw(st.booleans()) else None,  # type: ignore[arg-type]
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(words, words), min_size=1, max_size=10),
    wishes(),
    st.sampled_from(["cosine", "dot", "euclidean", "manhattan"]),
    st.sampled_from([1, 7, 4_000_000]),
)
def test_the_same_as_brute_force(rows: list[tuple[str, str]], wish: NegativeMining, kind: str, window: int) -> None:
    model = Small(kind, spread=1_000_003)
    wanted = brute(rows, model, wish)
    before = negatives.WINDOW
    negatives.WINDOW = window
    try:
        if not wanted:
            with pytest.raises(InputError, match="not a single row"):
                mine_negatives(pairs_of(rows), model, settings=wish)
            return
        found, report = mine_negatives(pairs_of(rows), model, settings=wish)
    finally:
        negatives.WINDOW = before
    assert found.columns["anchor"] == [rows[number][0] for number in wanted]
    assert found.columns["positive"] == [rows[number][1] for number in wanted]
    got = list(zip(*list(found.columns.values())[2:], strict=True))
    assert [list(row) for row in got] == [good[: wish.negatives_per_row] for good in wanted.values()]
    assert (report.rows, report.used, report.too_few) == (len(rows), len(wanted), len(rows) - len(wanted))
    assert found.reading.refused_counts.get("too few negatives", 0) == report.too_few


ROWS = [(f"질문 {i}", f"대답 {i}번입니다") for i in range(40)]


def test_random_negatives_are_among_the_good_ones_and_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wish = NegativeMining(negatives_per_row=3, sampling="random", seed=5, relative_margin=None)
    found, _ = mine_negatives(pairs_of(ROWS), Small(), settings=wish)
    monkeypatch.setattr(negatives, "WINDOW", 60)
    again, _ = mine_negatives(pairs_of(ROWS), Small(), settings=wish)
    assert found.columns == again.columns
    good = brute(ROWS, Small(), wish)
    drawn = [found.row(i) for i in range(len(found))]
    for number, row in enumerate(drawn):
        chosen = [row["negative"], row["negative_2"], row["negative_3"]]
        assert len(set(chosen)) == 3
        assert set(chosen) <= set(good[number])
    other, _ = mine_negatives(pairs_of(ROWS), Small(), settings=dataclasses.replace(wish, seed=6))
    assert found.columns != other.columns
    nearest = [good[number][0] for number in range(len(found))]
    assert found.columns["negative"] != nearest


def test_texts_are_encoded_once_whatever_their_case_and_spaces() -> None:
    model = Small()
    rows = [("Seoul", "서울"), ("seoul ", "부산"), ("부산", "busan"), ("서울", "SEOUL"), ("대구", "daegu")]
    found, report = mine_negatives(pairs_of(rows), model, settings=NegativeMining(relative_margin=None))
    assert sorted(map(same_key, model.encoded)) == sorted({same_key(text) for row in rows for text in row})
    assert report.corpus == 5
    assert report.anchors == 4
    for i in range(len(found)):
        row = found.row(i)
        assert same_key(str(row["negative"])) not in ({"seoul", "서울", "부산"} if i < 2 else {row["anchor"]})


def test_a_pair_turned_round_is_a_known_positive() -> None:
    rows = [("가", "나"), ("나", "다"), ("다", "가")]  # of 나: 다 is a positive, and so is 가
    found, report = mine_negatives(
        pairs_of([*rows, ("라", "마")]), Small(), settings=NegativeMining(relative_margin=None)
    )
    assert found.columns["negative"][:3] == ["마"] * 3
    assert report.known > 0


def test_no_margin_leaves_out_a_known_negative() -> None:
    rows = [(f"질문 {i}", f"답 {i}") for i in range(6)]
    near = [("질문 0", "질문 0!"), ("질문 3", "질문 3!"), ("질문 5", "답 5"), ("없는 것", "다른 글")]

    class Near(Small):
        def vector(self, text: str) -> np.ndarray:
            return super().vector(text.removesuffix("!"))  # nearer to its anchor than any positive

    wish = NegativeMining(known_negatives=near, absolute_margin=0.01)
    found, report = mine_negatives(pairs_of(rows), Near(), settings=wish)  # type: ignore[arg-type]
    negatives = dict(zip(found.columns["anchor"], found.columns["negative"], strict=True))
    assert (negatives["질문 0"], negatives["질문 3"]) == ("질문 0!", "질문 3!")
    assert negatives["질문 5"] != "답 5"  # a known positive is never a negative
    assert report.corpus == 9
    plain, _ = mine_negatives(pairs_of(rows), Near(), settings=NegativeMining(absolute_margin=0.01))  # type: ignore[arg-type]
    assert not {"질문 0!", "질문 3!"} & set(plain.columns["negative"])


def test_queries_and_documents() -> None:
    model = Small()
    mine_negatives(pairs_of(ROWS), model, settings=NegativeMining(asymmetric=True, relative_margin=None))
    assert model.calls == ["query", "document"]


def test_a_cross_encoder_judges_and_may_leave_its_scores() -> None:
    judge = Judge()
    wish = NegativeMining(negatives_per_row=2, range_max=9, cross_encoder=judge, keep_scores=True)  # type: ignore[arg-type]
    rows = [*ROWS[:12], ROWS[3]]
    found, report = mine_negatives(pairs_of(rows), Small(), settings=wish)
    assert found.targets is not None
    assert found.targets.shape == (len(found), 3)
    for i in range(len(found)):
        texts = [found.columns[name][i] for name in found.columns]
        assert found.targets[i].tolist() == pytest.approx([judge.score(texts[0], other) for other in texts[1:]])
        assert (found.targets[i, 1:] <= found.targets[i, 0] * 0.95 + 1e-6).all()
    assert len(judge.asked) == len(rows) + 12 * 9  # one search for the anchor that comes twice
    assert report.negative_score == pytest.approx(float(found.targets[:, 1:].mean()))
    assert report.positive_score == pytest.approx(float(found.targets[:, 0].mean()))


def test_no_more_candidates_are_held_than_a_window_has(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def watched(queries: np.ndarray, corpus: np.ndarray, k: int, **options: Any) -> Any:
        sizes.append(len(queries) * k)
        assert options["memory_mb"] == 3
        return munjang.top_k(queries, corpus, k, **options)

    monkeypatch.setattr(negatives, "WINDOW", 100)
    monkeypatch.setattr(negatives, "top_k", watched)
    rows = [*ROWS, *[("많은 대답", f"대답 {i}번입니다") for i in range(25)]]
    wish = NegativeMining(range_max=10, memory_mb=3, relative_margin=None)
    found, report = mine_negatives(pairs_of(rows), Small(), settings=wish)
    assert max(sizes) <= 100
    assert len(sizes) > 5
    assert report.used == len(found) == 65


def test_the_report_counts_every_reason() -> None:
    wish = NegativeMining(range_max=8, max_score=0.6, min_score=-0.3, absolute_margin=0.1)
    _, report = mine_negatives(pairs_of(ROWS), Small(), settings=wish)
    assert report.false_negatives
    assert report.above + report.below
    assert report.candidates == 8 * len(ROWS)
    assert report.too_few
    told = str(report)
    for part in ("40 rows", f"{report.too_few} rows left out", f"{report.false_negatives} probably positives"):
        assert part in told


def test_progress_reaches_the_rows() -> None:
    seen: list[tuple[int, int | None]] = []
    mine_negatives(pairs_of(ROWS), Small(), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)


def test_a_real_model(minilm_path: Path) -> None:
    rows = [
        ("A cat sits on the mat.", "A cat is sitting on a mat."),
        ("The stock market fell.", "Shares dropped today."),
        ("Rain is expected.", "It will probably rain."),
        ("A dog sits on the mat.", "A dog is sitting on a mat."),
    ]
    model = munjang.load(minilm_path, device="cpu", dtype="float32")
    found, report = mine_negatives(pairs_of(rows), model)
    assert found.columns["negative"][0] == "A dog is sitting on a mat."
    assert found.columns["negative"][3] == "A cat is sitting on a mat."
    assert report.positive_score > report.negative_score


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"negatives_per_row": 0}, "1 or more"),
        ({"range_min": 5, "range_max": 5}, "below range_max"),
        ({"range_min": -1}, "0 or more"),
        ({"range_min": 99, "negatives_per_row": 2}, "raise range_max"),
        ({"absolute_margin": -0.1}, "absolute_margin must be 0 or more"),
        ({"relative_margin": float("nan")}, "relative_margin must be 0 or more"),
        ({"max_score": 0.1, "min_score": 0.2}, "below max_score"),
        ({"sampling": "best"}, "'top' or 'random'"),
        ({"keep_scores": True}, "give one"),
        ({"cross_encoder": type("Three", (), {"labels": ("a", "b", "c")})()}, "one score"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NegativeMining(**settings)


def test_pairs_that_are_refused() -> None:
    pairs = pairs_of(ROWS)
    scored = Examples("s", "scored", {"a": ["가"], "b": ["나"]}, np.array([0.5]))
    negated = Examples("n", "pairs", {**pairs.columns, "negative": pairs.columns["positive"]})
    taught = dataclasses.replace(pairs, targets=np.zeros((40, 1)))
    for bad, message in (
        (scored, "kind 'pairs'"),
        (negated, "negatives already"),
        (taught, "teacher"),
        (pairs.take([]), "no pairs"),
    ):
        with pytest.raises(InputError, match=message):
            mine_negatives(bad, Small())
    with pytest.raises(InputError, match="corpus to find negatives in is empty"):
        mine_negatives(pairs, Small(), settings=NegativeMining(corpus=[]))
