"""Rooms: what they answer is what the model itself gives, and names are found or told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from munjang import vectors
from munjang.checkpoint import BiParts
from munjang.encoders import BiEncoder
from munjang.errors import InputError, ModelError, ModelNotFoundError
from munjang.nn.heads import Normalize
from munjang.nn.pooling import Pooling
from munjang.serve.errors import Invalid, NotFound, Unready
from munjang.serve.rooms import Rooms, Wish
from munjang.serve.settings import Limits
from support.small_models import TEXTS, bi_encoder, cross_encoder

PAIRS = [(a, b) for a in TEXTS for b in TEXTS[:4]]
LONG = "비 rain 빵 bread " * 30


def with_prompts(*, include: bool) -> BiEncoder:
    made = bi_encoder("bert", Pooling(("mean",), include_prompt=include))
    parts: BiParts = replace(made.parts, prompts={"query": "비 rain: ", "document": "빵 "})
    return BiEncoder(parts, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def rooms() -> Iterator[Rooms]:
    models = {
        "plain": bi_encoder("bert", None, Normalize()),
        "prompts": with_prompts(include=True),
        "without": with_prompts(include=False),
    }
    made = Rooms.open(models, {"score": cross_encoder(), "labels": cross_encoder(labels=3)})
    yield made
    made.close()


def close_to(found: object, expected: object) -> None:
    np.testing.assert_allclose(found, expected, atol=2e-6, rtol=1e-5)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:truncated")
@pytest.mark.parametrize("name", ["plain", "prompts", "without"])
def test_vectors_are_those_of_encode(rooms: Rooms, name: str) -> None:
    room = rooms.bi(name)

    async def ask() -> None:
        whole, query, document, *single = await asyncio.gather(
            room.embed(TEXTS), room.embed_query(TEXTS), room.embed_document(TEXTS), *(room.embed([t]) for t in TEXTS)
        )
        close_to(whole.values, room.model.encode(TEXTS))
        close_to(query.values, room.model.encode_query(TEXTS))
        close_to(document.values, room.model.encode_document(TEXTS))
        close_to(np.concatenate([one.values for one in single]), room.model.encode(TEXTS))
        report = room.model.encode_report(TEXTS).report
        assert (whole.tokens, whole.truncated) == (report.tokens, report.truncated)
        assert whole.truncated == 1
        assert whole.values.dtype == np.float32

    asyncio.run(ask())


def test_prompts_matter(rooms: Rooms) -> None:
    room = rooms.bi("prompts")
    query = asyncio.run(room.embed_query(["a"])).values
    assert np.abs(query - asyncio.run(room.embed(["a"])).values).max() > 1e-3
    with pytest.raises(InputError, match="prompt_name must be one of"):
        asyncio.run(room.embed(["a"], prompt_name="nobody"))


def test_dimensions_are_cut_and_made_unit_length(rooms: Rooms) -> None:
    room = rooms.bi("plain")
    whole = room.model.encode(TEXTS[:4])
    cut = asyncio.run(room.embed(TEXTS[:4], dimensions=5)).values
    close_to(cut, vectors.normalize(whole[:, :5]))
    close_to(asyncio.run(room.embed(TEXTS[:4], dimensions=whole.shape[1])).values, whole)
    for wrong in (0, whole.shape[1] + 1):
        with pytest.raises(Invalid, match=rf"dimensions must be 1\.\.{whole.shape[1]} "):
            asyncio.run(room.embed(["a"], dimensions=wrong))


def test_normalize_and_truncate_dim_are_the_models_own() -> None:
    model = bi_encoder()
    model.truncate_dim = 7
    rooms = Rooms.open({"m": model})
    try:
        for normalize in (None, True, False):
            found = asyncio.run(rooms.bi().embed(TEXTS[:4], normalize=normalize)).values
            close_to(found, model.encode(TEXTS[:4], normalize=normalize))
            assert found.shape == (4, 7)
    finally:
        rooms.close()


def test_vectors_of_tokens_pool_to_the_vector_of_the_text(rooms: Rooms) -> None:
    room = rooms.bi("prompts")
    found = asyncio.run(room.embed_tokens(TEXTS[:4]))
    counts = room.model.tokenizer.encode(TEXTS[:4]).lengths.tolist()
    assert [len(rows) for rows in found.values] == counts
    pooled = np.stack([rows.mean(axis=0) for rows in found.values])  # the model's pooling is the mean
    close_to(pooled, asyncio.run(room.embed(TEXTS[:4])).values)


@pytest.mark.filterwarnings("ignore:truncated")
@pytest.mark.parametrize("name", ["score", "labels"])
@pytest.mark.parametrize("raw", [False, True])
def test_scores_are_those_of_predict(rooms: Rooms, name: str, raw: bool) -> None:
    room = rooms.reranker(name)
    answer = asyncio.run(room.score(PAIRS, raw=raw))
    close_to(answer.values, room.model.predict(PAIRS, raw=raw))
    report = room.model.predict_report(PAIRS).report
    assert (answer.tokens, answer.truncated) == (report.tokens, report.truncated)
    assert answer.truncated > 0


def test_probabilities_whatever_activation_was_saved(rooms: Rooms) -> None:
    logits = rooms.reranker("labels").model.predict(PAIRS[:3], raw=True)
    found = asyncio.run(rooms.reranker("labels").probabilities(PAIRS[:3])).values
    close_to(found, torch.softmax(torch.from_numpy(logits), 1).numpy())
    model = cross_encoder()
    model.parts.activation = "Identity"
    other = Rooms.open({}, {"bare": model})
    try:
        bare = asyncio.run(other.reranker().probabilities(PAIRS[:3])).values
        close_to(bare[:, 0], torch.sigmoid(torch.from_numpy(model.predict(PAIRS[:3]))).numpy())
    finally:
        other.close()


def test_truncated_texts_are_counted_where_they_repeat(rooms: Rooms) -> None:
    exactly = "a " * 62  # 64 tokens with the special ones: whole
    answer = asyncio.run(rooms.bi().embed([LONG, exactly, LONG, exactly, "a"]))
    assert rooms.bi().model.tokenizer.count([exactly]).tolist() == [64]
    assert answer.truncated == 2


def test_names(rooms: Rooms) -> None:
    assert rooms.bi().name == rooms.bi("plain").name == "plain"
    assert rooms.reranker().name == "score"
    assert [room.name for room in rooms.bi_rooms] == ["plain", "prompts", "without"]
    with pytest.raises(NotFound, match="no bi-encoder of the name 'other' here; there are: 'plain', 'prompts'"):
        rooms.bi("other")
    with pytest.raises(NotFound, match="no cross-encoder of the name 'plain'"):
        rooms.reranker("plain")
    with pytest.raises(NotFound, match="this service has no bi-encoder"):
        Rooms().bi()


def test_a_model_has_one_room_under_a_name(rooms: Rooms) -> None:
    room = rooms.bi("prompts")
    assert rooms.add_bi("prompts", room.model) is room
    assert rooms.bi_with(room.model.fingerprint) is room
    assert rooms.bi_with("other") is None
    with pytest.raises(InputError, match="two bi-encoders of the name 'prompts'"):
        rooms.add_bi("prompts", bi_encoder("electra"))
    with pytest.raises(InputError, match="two cross-encoders of the name 'score'"):
        rooms.add_reranker("score", cross_encoder(labels=2))


@pytest.mark.usefixtures("exact")
def test_opening_reads_folders_and_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    bi_encoder().save(tmp_path / "bi")
    cross_encoder().save(tmp_path / "cross")
    rooms = Rooms.open({"bi": tmp_path / "bi"}, {"cross": str(tmp_path / "cross")}, device="cpu")
    assert rooms.ready
    close_to(asyncio.run(rooms.bi().embed(TEXTS[:3])).values, bi_encoder().encode(TEXTS[:3]))
    rooms.close()
    assert not rooms.ready
    with pytest.raises(Unready):
        asyncio.run(rooms.bi().embed(["a"]))
    with pytest.raises(Unready):
        rooms.add_bi("late", bi_encoder())
    with pytest.raises(ModelNotFoundError):
        Rooms.open({"bi": tmp_path / "bi", "missing": tmp_path / "nothing"})


def test_what_is_not_finite_is_computed_again_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bi_encoder()
    expected = model.encode(TEXTS[:4])
    forward = model.runtime.forward

    def broken(batch: object, call: object) -> torch.Tensor:
        rows = forward(batch, call)  # type: ignore[arg-type]
        rows[0] = float("nan")
        return rows

    monkeypatch.setattr(model.runtime, "forward", broken)
    rooms = Rooms.open({"m": model})
    try:
        with pytest.raises(ModelError, match="not finite"):
            asyncio.run(rooms.bi().embed(TEXTS[:4]))
        model.runtime.dtype = torch.bfloat16  # as if it computed in bfloat16
        close_to(asyncio.run(rooms.bi().embed(TEXTS[:4])).values, expected)
    finally:
        rooms.close()


def test_limits_reach_the_batcher() -> None:
    rooms = Rooms.open({"m": bi_encoder()}, limits=Limits(tokens=20, queue_tokens=100))
    try:
        with pytest.raises(Exception, match="a request may have 20 tokens"):
            asyncio.run(rooms.bi().embed(TEXTS))
        assert asyncio.run(rooms.bi().embed(["a"], wish=Wish("bulk", 5.0))).values.shape == (1, 32)
    finally:
        rooms.close()
