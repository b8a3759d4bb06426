"""Recommendations with a tiny random model: against brute force, with a cross-encoder, saved, and with bad input."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError, ModelError, MunjangWarning
from munjang.tasks.recommend import Recommender
from munjang.text.chunks import chunks
from training.material import bi, cross, sentences

SIZE, STRIDE = 16, 8


def books(count: int = 14, *, long: int = 12) -> list[dict[str, object]]:
    """Texts of one sentence and of many, each with a shelf."""
    every = sentences(count * long, 3)
    return [
        {"id": f"책-{i}", "text": ". ".join(every[i * long : i * long + 1 + i % long]), "shelf": i % 3}
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def model() -> BiEncoder:
    return bi()


@pytest.fixture(scope="module")
def reranker() -> CrossEncoder:
    model = cross()
    with torch.no_grad():
        for number, weight in enumerate(model.parts.head.parameters()):
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(number)))
    model.refresh()
    return model


@pytest.fixture(scope="module")
def shop(model: BiEncoder) -> Recommender:
    return Recommender.build(books(), model, chunk_tokens=SIZE, stride=STRIDE)


def mean_vector(text: str, model: BiEncoder) -> np.ndarray:
    rows = model.encode(
        [chunk.text for chunk in chunks(text, model.tokenizer, size=SIZE, stride=STRIDE)], normalize=True
    )
    mean = rows.mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_the_nearest_are_those_of_brute_force(shop: Recommender, model: BiEncoder) -> None:
    vectors = np.stack([mean_vector(str(book["text"]), model) for book in books()])
    cosines = vectors @ vectors.T
    for place, book in enumerate(books()):
        found = shop.like(str(book["id"]), 5)
        order = [other for other in np.argsort(-cosines[place], kind="stable") if other != place][:5]
        assert np.allclose([hit.score for hit in found], cosines[place][order], atol=1e-5)
        assert [hit.id for hit in found] == [f"책-{other}" for other in order]
        assert [hit.stages[0].rank for hit in found] == [1, 2, 3, 4, 5]
        assert all(hit.metadata == {"shelf": int(hit.id.split("-")[1]) % 3} for hit in found)


def test_an_item_is_never_recommended_to_itself(shop: Recommender, reranker: CrossEncoder) -> None:
    for id in shop.ids:
        for model in (None, reranker):
            found = shop.like(id, 100, reranker=model)
            assert len(found) == len(shop) - 1
            assert id not in {hit.id for hit in found}
    twins = Recommender.build(
        [{"id": str(i), "text": "기타를 친다"} for i in range(5)], shop.model, chunk_tokens=SIZE, stride=STRIDE
    )
    assert [hit.id for hit in twins.like("3", 10)] == ["0", "1", "2", "4"]
    only = Recommender.build([{"id": "only", "text": "a man"}], shop.model, chunk_tokens=SIZE, stride=STRIDE)
    assert only.like("only") == []


def test_the_reason_is_the_closest_pair_of_chunks(shop: Recommender, model: BiEncoder) -> None:
    texts = {str(book["id"]): str(book["text"]) for book in books()}
    for hit in shop.like("책-11", 5):
        mine, theirs = (
            [chunk.text for chunk in chunks(texts[id], model.tokenizer, size=SIZE, stride=STRIDE)]
            for id in ("책-11", hit.id)
        )
        cosines = model.encode(mine, normalize=True) @ model.encode(theirs, normalize=True).T
        assert hit.because.score == pytest.approx(cosines.max(), abs=2e-3)  # chunks are kept in float16
        for passage, text in ((hit.because.asked, texts["책-11"]), (hit.because.found, texts[hit.id])):
            assert passage.text == text[passage.start : passage.end]


def test_a_text_that_is_no_item(shop: Recommender, model: BiEncoder) -> None:
    text = "my friend reads at home. " * 8 + "그 여자는 국수를 먹는다"
    expected = mean_vector(text, model) @ np.stack([mean_vector(str(book["text"]), model) for book in books()]).T
    found = shop.like_text(text, 4)
    assert np.allclose([hit.score for hit in found], np.sort(expected)[::-1][:4], atol=1e-5)
    # The text of an item finds that item: nothing says that it is the same.
    assert shop.like_text(str(books()[3]["text"]), 1)[0].id == "책-3"


@pytest.mark.parametrize("combine", ["mean", "max"])
def test_a_cross_encoder_orders_the_shortlist(shop: Recommender, reranker: CrossEncoder, combine: str) -> None:
    # With as many samples as there are chunks, nothing is left to chance.
    found = shop.like("책-5", 4, reranker=reranker, shortlist=8, sampled_chunks=99, combine=combine)  # type: ignore[arg-type]
    listed = shop.like("책-5", 8)
    place = {id: number for number, id in enumerate(shop.ids)}
    passages = {id: shop.items.passages[shop.items.chunks_of(place[id])] for id in shop.ids}
    scores = {
        hit.id: reranker.predict([(a.text, b.text) for a, b in itertools.product(passages["책-5"], passages[hit.id])])
        for hit in listed
    }
    combined = {id: float(getattr(rows, combine)()) for id, rows in scores.items()}
    order = sorted(combined, key=lambda id: -combined[id])[:4]
    assert [hit.id for hit in found] == order
    for rank, hit in enumerate(found, start=1):
        first = [other.id for other in listed].index(hit.id) + 1
        assert (hit.stages[0].name, hit.stages[0].rank) == ("semantic", first)
        assert (hit.stages[1].name, hit.stages[1].rank) == ("rerank", rank)
        assert hit.moved == first - rank
        assert hit.score == hit.stages[1].score == pytest.approx(combined[hit.id], abs=1e-5)
        assert hit.because.score == pytest.approx(float(scores[hit.id].max()), abs=1e-5)


def test_samples_hang_on_the_seed_alone(shop: Recommender, reranker: CrossEncoder) -> None:
    def ask(seed: int) -> list[tuple[str, float]]:
        return [(hit.id, hit.score) for hit in shop.like("책-11", 8, reranker=reranker, sampled_chunks=1, seed=seed)]

    assert ask(0) == ask(0)
    assert any(ask(0) != ask(seed) for seed in range(1, 5))


def test_of_long_texts_some_chunks_are_kept(model: BiEncoder) -> None:
    long = {"id": "long", "text": ". ".join(sentences(80, 4))}
    every = chunks(long["text"], model.tokenizer, size=SIZE, stride=STRIDE)
    shop = Recommender.build(
        [long, {"id": "short", "text": "기타"}], model, chunk_tokens=SIZE, stride=STRIDE, kept_chunks=5
    )
    kept = shop.items.passages[shop.items.chunks_of(0)]
    assert len(every) > 20
    assert len(kept) == 5
    assert (kept[0].start, kept[-1].end) == (every[0].start, every[-1].end)
    assert np.allclose(shop.items.vectors[0], mean_vector(long["text"], model), atol=1e-5)  # the mean is of all


def test_saved_and_loaded_it_recommends_the_same(shop: Recommender, tmp_path: Path, reranker: CrossEncoder) -> None:
    bi().save(tmp_path / "model")
    model = BiEncoder.load(tmp_path / "model", device="cpu", dtype="float32")
    Recommender.build(books(), model, chunk_tokens=SIZE, stride=STRIDE).save(tmp_path / "shop")
    loaded = Recommender.load(tmp_path / "shop", model)
    assert loaded.ids == shop.ids
    for id in shop.ids[:4]:
        assert loaded.like(id, 5) == shop.like(id, 5)
        assert loaded.like(id, 5, reranker=reranker) == shop.like(id, 5, reranker=reranker)
    by_name = Recommender.load(tmp_path / "shop")
    assert [hit.id for hit in by_name.like_text("기타를 친다", 3)] == [
        hit.id for hit in shop.like_text("기타를 친다", 3)
    ]
    (lines,) = (tmp_path / "shop").glob("items-*.jsonl")
    assert [json.loads(line)["id"] for line in lines.read_text(encoding="utf-8").splitlines()] == shop.ids
    other = bi()
    with torch.no_grad():
        next(iter(other.parts.body.parameters())).add_(1)
    other.refresh()
    with pytest.raises(ModelError, match="made with another model"):
        Recommender.load(tmp_path / "shop", other)
    lines.write_text(lines.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    with pytest.raises(ModelError, match="damaged"):
        Recommender.load(tmp_path / "shop", model)


def test_a_stream_of_items_and_its_progress(model: BiEncoder) -> None:
    told: list[int] = []
    made = Recommender.build(
        iter(books()), model, chunk_tokens=SIZE, stride=STRIDE, progress=lambda done, _: told.append(done)
    )
    assert told[-1] == len(books()) == len(made)
    assert told == sorted(told)


def test_items_without_words_are_left_out_aloud(model: BiEncoder) -> None:
    items = [{"text": "a man"}, {"text": " \n"}, {"text": "집에서"}]
    with pytest.warns(MunjangWarning, match=r"1 items have no words .*'1'"):
        shop = Recommender.build(items, model, chunk_tokens=SIZE, stride=STRIDE)
    assert shop.ids == ["0", "2"]
    assert "1" not in shop
    with pytest.raises(InputError, match="'1' has no words"):
        shop.like("1")


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([], "nothing to recommend"),
        ([{"text": ""}], "nothing to recommend"),
        (["a man"], "item 0 must be a dict"),
        ([{"id": "a"}], "item 0 needs a 'text'"),
        ([{"id": "a", "text": None}], "item 0 needs a 'text'"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "items 0 and 1 both have 'a'"),
        ([{"id": None, "text": "x"}], "id of item 0"),
        ([{"id": "a", "text": "x", "when": object()}], "fit for JSON"),
        ({"id": "a", "text": "x"}, "got dict"),
    ],
)
def test_items_that_are_none(model: BiEncoder, items: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Recommender.build(items, model, chunk_tokens=SIZE, stride=STRIDE)  # type: ignore[arg-type]


def test_calls_that_cannot_be_answered(shop: Recommender, model: BiEncoder) -> None:
    with pytest.raises(InputError, match="no item '책-99' among the 14"):
        shop.like("책-99")
    with pytest.raises(InputError, match="no words"):
        shop.like_text("  ")
    for wrong, told in (
        ({"k": 0}, "k must"),
        ({"shortlist": 0}, "shortlist"),
        ({"sampled_chunks": 0}, "sampled"),
        ({"combine": "sum"}, "combine"),
    ):
        with pytest.raises(InputError, match=told):
            shop.like("책-1", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="labels"):
        shop.like("책-1", reranker=cross(("no", "yes", "perhaps")))
    for sizes, told in (
        ({"chunk_tokens": 10_000}, "chunk_tokens must be"),
        ({"stride": 500}, "stride must be"),
        ({"kept_chunks": 0}, "kept_chunks"),
    ):
        with pytest.raises(InputError, match=told):
            Recommender.build(books(), model, **{"chunk_tokens": SIZE, "stride": STRIDE, **sizes})  # type: ignore[arg-type]
