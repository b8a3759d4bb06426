"""`CrossEncoder` over real and small models: scores, labels, rankings, refusals, precision, calibration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import munjang
from munjang import CrossEncoder
from munjang.checkpoint import BiParts, read_bi
from munjang.errors import InputError, ModelError, ModelWarning, PrecisionWarning, TruncationWarning

PAIRS = [
    ("비가 온다", "It is raining"),
    ("a man is playing a guitar", "someone plays an instrument"),
    ("", "x"),
    ("the stock market fell sharply today", "stocks are up"),
    ("x", ""),
    ("A quick brown fox jumps over the lazy dog", "dog " * 12),
]


@pytest.fixture(scope="module")
def body(minilm_path: Path) -> BiParts:
    return read_bi(minilm_path)


def make(body: BiParts, labels: Any = 1, **options: Any) -> CrossEncoder:
    """A head with weights large enough that scores differ."""
    model = CrossEncoder.from_body(body, labels, device="cpu", dtype="float32", **options)
    generator = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(model.parts.head.dense.weight, std=0.1, generator=generator)
    torch.nn.init.normal_(model.parts.head.out.weight, std=0.2, generator=generator)
    return model


@pytest.fixture(scope="module")
def scorer(body: BiParts) -> CrossEncoder:
    return make(body)


@pytest.fixture(scope="module")
def labeller(body: BiParts) -> CrossEncoder:
    return make(body, ["entailment", "neutral", "contradiction"])


def test_a_real_body_saved_and_scored_by_sentence_transformers(scorer: CrossEncoder, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    scorer.save(tmp_path / "m")
    theirs = Theirs(str(tmp_path / "m"), device="cpu", local_files_only=True)
    assert theirs.max_seq_length == scorer.max_length == 256
    expected = theirs.predict([list(pair) for pair in PAIRS], show_progress_bar=False)
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(scorer.predict(PAIRS), expected, atol=1e-5)
    again = CrossEncoder.load(tmp_path / "m", device="cpu", dtype="float32")
    np.testing.assert_allclose(again.predict(PAIRS), expected, atol=1e-5)
    assert again.labels == ("score",)
    documents = [b for _, b in PAIRS]
    ranking = theirs.rank("playing music", documents, top_k=4)
    assert [found.index for found in again.rank("playing music", documents, 4)] == [r["corpus_id"] for r in ranking]


def test_probabilities_and_bare_outputs(labeller: CrossEncoder, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    labeller.save(tmp_path / "m")
    theirs = Theirs(str(tmp_path / "m"), device="cpu", local_files_only=True)
    pairs = [list(pair) for pair in PAIRS]
    raw, soft = labeller.predict(PAIRS, raw=True), labeller.predict(PAIRS)
    np.testing.assert_allclose(raw, theirs.predict(pairs, show_progress_bar=False), atol=1e-5)
    np.testing.assert_allclose(soft, theirs.predict(pairs, show_progress_bar=False, apply_softmax=True), atol=1e-5)
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-6)
    names = labeller.predict_labels(PAIRS)
    assert names == [labeller.labels[i] for i in raw.argmax(axis=1)]


def test_shapes(scorer: CrossEncoder, labeller: CrossEncoder) -> None:
    for pairs in ([], iter(())):
        assert scorer.predict(pairs).shape == (0,)
    assert labeller.predict([]).shape == (0, 3)
    assert labeller.predict_labels([]) == []
    assert scorer.rank("q", []) == []
    assert scorer.predict(PAIRS).shape == (6,)
    assert labeller.predict(PAIRS[:1]).shape == (1, 3)
    assert scorer.predict(PAIRS).dtype == labeller.predict([]).dtype == np.float32
    assert ((scorer.predict(PAIRS) > 0) & (scorer.predict(PAIRS) < 1)).all()


def test_pairs_of_every_form(scorer: CrossEncoder) -> None:
    expected = scorer.predict(PAIRS)
    for form in ([list(pair) for pair in PAIRS], np.array(PAIRS), tuple(PAIRS), iter(PAIRS), zip(*zip(*PAIRS))):  # noqa: B905
        np.testing.assert_array_equal(scorer.predict(form), expected)


def test_order_does_not_depend_on_company(scorer: CrossEncoder) -> None:
    many = PAIRS * 40
    together = scorer.predict(many)
    alone = np.array([scorer.predict([pair])[0] for pair in PAIRS])
    np.testing.assert_allclose(together, np.tile(alone, 40), atol=1e-6)
    scorer.threads = 3
    try:
        np.testing.assert_allclose(scorer.predict(many), together, atol=1e-6)
    finally:
        scorer.threads = 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("a text", "expected a list of pairs"),
        (None, "expected a list of pairs"),
        (["one", "two"], "pair 0 must be two texts .* got a single text: 'one'"),
        (("a", "b"), "pair 0 must be two texts .* got a single text"),
        ([("a", "b"), ("a", "b", "c")], r"pair 1 must be two texts \(a, b\), got 3"),
        ([("a", "b"), ("a",)], "pair 1 must be two texts .* got 1"),
        ([("a", "b"), None], "pair 1 must be two texts .* got NoneType"),
        ([("a", "b"), {"a": 1}], "pair 1 must be two texts .* got dict"),
        ([("a", "b"), ("a", None)], "the second text of pair 1 must be a string, got NoneType"),
        ([("a", "b"), (3.0, "a")], "the first text of pair 1 must be a string, got float"),
        ([("a", "b"), ("a", "x\ud800")], "pair 1, second text is not valid Unicode"),
    ],
)
def test_what_is_no_pair_is_refused(scorer: CrossEncoder, given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        scorer.predict(given)


def test_ranking(scorer: CrossEncoder, labeller: CrossEncoder) -> None:
    documents = ["guitar", "a man plays", "guitar", "", "비"]
    scores = scorer.predict([("music", text) for text in documents])
    ranked = scorer.rank("music", documents)
    assert [found.index for found in ranked] == sorted(range(5), key=lambda i: (-scores[i], i))
    assert all(found.text == documents[found.index] for found in ranked)
    assert [found.score for found in ranked] == [scores[found.index] for found in ranked]
    assert scorer.rank("music", iter(documents), 2) == ranked[:2]
    assert scorer.rank("music", documents, 99) == ranked
    for call, said in (
        (lambda: scorer.rank("q", "one text"), "single text"),
        (lambda: scorer.rank(["q"], documents), "query must be one text"),
        (lambda: scorer.rank("q", documents, 0), "top_k must be at least 1"),
        (lambda: labeller.rank("q", documents), "one score, this one has 3"),
        (lambda: scorer.predict_labels(PAIRS), "one score, not labels"),
    ):
        with pytest.raises(InputError, match=said):
            call()


def test_cutting_is_reported(body: BiParts) -> None:
    model = make(body)
    model.max_length = 12
    with pytest.warns(
        TruncationWarning, match=r"truncated: 3 of 6 pairs were longer than 12 tokens \(the longest has 24\)"
    ):
        cut = model.predict(PAIRS)
    report = model.predict_report(PAIRS).report
    assert (report.texts, report.truncated, report.longest, report.max_length) == (6, 3, 24, 12)
    model.max_length = 256
    assert np.abs(model.predict(PAIRS) - cut)[5] > 0
    with pytest.raises(InputError, match="at most 512"):
        model.max_length = 513


def test_a_stream_is_read_as_it_is_needed(scorer: CrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    from munjang.encoders.runtime import Plan

    monkeypatch.setattr(CrossEncoder, "_plan", lambda self: Plan((4, 1 << 20), 64, 1))
    pulled = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal pulled
        while True:
            pulled += 1
            yield PAIRS[pulled % 6]

    stream = scorer.predict_stream(endless())
    first = next(stream)
    assert first.scores.shape == (4,)
    assert pulled < 40
    stream.close()
    told: list[tuple[int, int | None]] = []
    whole = scorer.predict(PAIRS * 3, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (18, 18)
    monkeypatch.undo()
    np.testing.assert_allclose(whole, scorer.predict(PAIRS * 3), atol=1e-6)


def test_several_threads_at_once(scorer: CrossEncoder) -> None:
    expected = scorer.predict(PAIRS)
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(scorer.predict(PAIRS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for scores in found:
        np.testing.assert_array_equal(scores, expected)


def test_bfloat16_is_near_and_what_overflows_is_done_again(body: BiParts, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = make(body)
    near = CrossEncoder(exact.parts, device="cpu", dtype="bfloat16")
    assert near.dtype == torch.bfloat16
    np.testing.assert_allclose(near.predict(PAIRS), exact.predict(PAIRS), atol=0.05)
    forward = near.runtime.forward

    def broken(batch: Any, call: Any) -> torch.Tensor:
        logits = forward(batch, call)
        logits[0] = float("nan")
        return logits

    monkeypatch.setattr(near.runtime, "forward", broken)
    with pytest.warns(PrecisionWarning, match="1 scores were not finite in bfloat16"):
        scores = near.predict(PAIRS)
    assert np.isfinite(scores).all()
    monkeypatch.setattr(near.runtime, "dtype", torch.float32)
    with pytest.raises(ModelError, match="not finite even in float32"):
        near.predict(PAIRS)


def test_a_new_head_is_warned_of(minilm_path: Path, scorer: CrossEncoder, tmp_path: Path) -> None:
    with pytest.warns(ModelWarning, match="the head is new: the model has none; train it before use"):
        model = munjang.load_cross_encoder(minilm_path, device="cpu")
    assert model.labels == ("score",)
    scorer.save(tmp_path / "m")
    with pytest.warns(ModelWarning, match=r"it had 1 output \(score\), 3 \(a, b, c\) were asked for"):
        three = munjang.load_cross_encoder(tmp_path / "m", labels=["a", "b", "c"], device="cpu")
    assert three.predict(PAIRS[:2]).shape == (2, 3)
    assert munjang.load_reranker(tmp_path / "m", device="cpu").labels == ("score",)
    three.save(tmp_path / "three")
    with pytest.raises(InputError, match="a reranker gives one score"):
        munjang.load_reranker(tmp_path / "three")
    with (
        pytest.warns(ModelWarning, match="the head is new"),
        pytest.raises(ModelError, match="was never trained to rerank"),
    ):
        munjang.load_reranker(minilm_path, device="cpu")


def test_from_a_bi_encoder(minilm_path: Path) -> None:
    bi = munjang.load(minilm_path, device="cpu", dtype="float32")
    before = bi.encode(["x"])
    model = CrossEncoder.from_body(bi, 2, device="cpu", dtype="float32", seed=5)
    with torch.no_grad():
        for parameter in model.parts.body.parameters():
            parameter.mul_(0.5)
    np.testing.assert_array_equal(bi.encode(["x"]), before)
    again = CrossEncoder.from_body(bi, 2, device="cpu", dtype="float32", seed=5)
    assert torch.equal(model.parts.head.out.weight, again.parts.head.out.weight)


def test_training_changes_what_refresh_computes(body: BiParts) -> None:
    """A training step through tokens, packed batches, body and head, as the training loop does it."""
    from munjang.nn.packed import to_packed

    model = make(body)
    mark = model.fingerprint
    before = model.predict(PAIRS)
    tokens = model.parts.tokenise([a for a, _ in PAIRS], [b for _, b in PAIRS])
    packed = to_packed(tokens.ids, tokens.lengths, torch.device("cpu"), segments=tokens.segments)
    model.parts.body.train()
    model.parts.head.train()
    loss = model.parts.head(model.parts.body(packed), packed).square().mean()
    loss.backward()
    with torch.no_grad():
        for module in (model.parts.body, model.parts.head):
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
    model.refresh()
    after = model.predict(PAIRS)
    assert np.abs(after - before).max() > 1e-4
    np.testing.assert_array_equal(model.predict(PAIRS), after)  # no dropout is left on
    assert model.fingerprint != mark


def test_calibration_is_folded_in(body: BiParts, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    model = make(body)
    generator = np.random.default_rng(0)
    words = ["rain", "guitar", "stock", "dog", "비", "음악", "a man", "price"]
    pairs = [(" ".join(generator.choice(words, 4)), " ".join(generator.choice(words, 4))) for _ in range(120)]
    logits = model.predict(pairs, raw=True)
    chance = 1 / (1 + np.exp(-((logits - logits.mean()) / logits.std() * 2 - 1)))
    labels = (generator.random(120) < chance).astype(int)
    before = model.predict(pairs)
    found = model.calibrate(pairs, labels)
    after = model.predict(pairs)
    np.testing.assert_allclose(after, 1 / (1 + np.exp(-(found.scale * logits + found.shift))), atol=1e-5)
    assert found.log_loss_after < found.log_loss_before
    assert found.ece_after < found.ece_before
    assert (np.argsort(before) == np.argsort(after)).all()
    model.save(tmp_path / "m")
    theirs = Theirs(str(tmp_path / "m"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(theirs.predict([list(p) for p in pairs], show_progress_bar=False), after, atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1] * 6, "both classes, got a single class"),
        ([1, 0], r"6 pairs and labels of shape \(2,\)"),
        ([0, 1, 2, 0, 1, 0], "labels must be 0 or 1, got"),
    ],
)
def test_calibration_refuses(scorer: CrossEncoder, labels: list[int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        scorer.calibrate(PAIRS, labels)


def test_calibration_refuses_labels_that_are_turned_round(scorer: CrossEncoder, labeller: CrossEncoder) -> None:
    scores = scorer.predict(PAIRS)
    with pytest.raises(InputError, match="inverted"):
        scorer.calibrate(PAIRS, (scores < np.median(scores)).astype(int))
    np.testing.assert_array_equal(scorer.predict(PAIRS), scores)
    with pytest.raises(InputError, match="one score, this one has 3"):
        labeller.calibrate(PAIRS, [0, 1] * 3)


def test_describing(labeller: CrossEncoder) -> None:
    found = labeller.describe()
    assert found["labels"] == ["entailment", "neutral", "contradiction"]
    assert (found["kind"], found["head"]) == ("cross-encoder", "first token, linear, gelu, linear to 3")
    assert "contradiction" in repr(labeller)


def small_parts() -> BiParts:
    """A random BERT body with two segments and a tokenizer of single characters."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    from munjang.nn.encoder import Encoder
    from munjang.nn.families import family_of
    from munjang.nn.pooling import Pooling
    from munjang.text.tokenizer import Tokenizer

    characters = sorted({character for pair in PAIRS for text in pair for character in text if character != " "})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *characters]
    backend = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    config = {
        "model_type": "bert", "vocab_size": len(words), "hidden_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 128, "type_vocab_size": 2,
        "initializer_range": 0.1,
    }  # fmt: skip
    family = family_of(config)
    assert family is not None
    body = Encoder(family.read(config))
    body.initialise(torch.Generator().manual_seed(2))
    return BiParts(body=body, tokenizer=Tokenizer(backend, max_length=96), pooling=Pooling(), hf_config=config)


def test_segments_decide_scores() -> None:
    model = make(small_parts())
    assert model.parts.uses_segments
    told = model.predict(PAIRS, raw=True)
    model.tokenizer.ignores_segments = True
    assert np.abs(model.predict(PAIRS, raw=True) - told).max() > 1e-3


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    exact = make(small_parts())
    assert exact.parts.uses_segments
    near = CrossEncoder(exact.parts, device="cuda")
    assert near.dtype == torch.float16
    expected = exact.predict(PAIRS * 50, raw=True)
    assert np.ptp(expected) > 0.05
    np.testing.assert_allclose(near.predict(PAIRS * 50, raw=True), expected, atol=0.01)
    full = CrossEncoder(exact.parts, device="cuda", dtype="float32")
    np.testing.assert_allclose(full.predict(PAIRS * 50, raw=True), expected, atol=1e-4)
