"""int8 weights: how far rows may be off, that nothing is lost twice, what damaged files say, every kind of model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang import BiEncoder, CrossEncoder, load, load_cross_encoder
from munjang.checkpoint import read_bi, read_cross, read_word_vectors, write_bi, write_cross
from munjang.checkpoint.weights import INT8, pack_int8, unpack_int8, weight_files
from munjang.errors import InputError, ModelError


def matrix(seed: int, rows: int, width: int, *, size: float = 1.0, far: float = 1.0) -> torch.Tensor:
    """Random rows of very different sizes; `far` times as large is one value of every third row."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(rows, width, generator=generator) * torch.rand(rows, 1, generator=generator).exp() * size
    found[::3, 0] *= far
    return found


matrices = st.builds(
    matrix,
    st.integers(0, 999),
    st.integers(16, 40),
    st.integers(1, 70),
    size=st.sampled_from([1e-12, 1e-3, 1.0, 1e12]),
    far=st.sampled_from([0.0, 1.0, 8.0, 1000.0]),
)


@settings(deadline=None, max_examples=60)
@given(matrices)
def test_no_value_is_further_off_than_half_a_step(weights: torch.Tensor) -> None:
    packed = pack_int8({"w": weights})
    steps, scale = packed["w"], packed["w.scale"]
    assert (steps.dtype, scale.dtype, scale.shape) == (torch.int8, torch.float32, weights.shape[:1])
    assert int(steps.min()) >= -127
    error = (unpack_int8(packed)["w"].double() - weights.double()).abs()
    inside = weights.double().abs() <= 127 * scale.double()[:, None]  # the rest was clipped
    assert bool((error[inside] <= scale.double()[:, None].expand_as(error)[inside] * (0.5 + 1e-6)).all())


@settings(deadline=None, max_examples=60)
@given(matrices)
def test_clipping_never_does_worse_than_the_largest_value(weights: torch.Tensor) -> None:
    """Brute force in float64 over plain rounding with the largest value as the end of the scale."""
    plain = weights.double().abs().amax(1, keepdim=True) / 127
    rounded = torch.where(plain > 0, (weights.double() / plain).round() * plain, 0.0)
    theirs = (rounded - weights).square().sum(1)
    ours = (unpack_int8(pack_int8({"w": weights}))["w"].double() - weights).square().sum(1)
    # A scale of 16 bits moves a value by 1/516 of a step at most.
    assert bool((ours <= theirs + weights.shape[1] * plain[:, 0].square() / 400).all())


def test_a_value_that_stands_far_out_is_cut() -> None:
    """Heavy tails: many small values, few large ones, where finer steps are worth more than the largest value."""
    weights = torch.distributions.StudentT(3.0).sample((64, 4000))
    found = pack_int8({"w": weights})
    clipped = weights.abs().amax(1) > 127.5 * found["w.scale"]
    assert 0.3 < clipped.double().mean() <= 1


@settings(deadline=None, max_examples=60)
@given(matrices)
def test_what_was_unpacked_is_packed_to_the_same_bytes(weights: torch.Tensor) -> None:
    once = pack_int8({"w": weights, "b": weights[0]})
    again = pack_int8(unpack_int8(once))
    assert once.keys() == again.keys()
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_rows_without_values() -> None:
    weights = torch.zeros(20, 8)
    weights[3] = 1e-35  # too small to be told from nothing
    weights[5, 2] = -3.0
    packed = pack_int8({"w": weights})
    assert packed["w.scale"][[0, 3]].tolist() == [1.0, 1.0]
    assert unpack_int8(packed)["w"][5, 2] == pytest.approx(-3.0, rel=1e-4)
    assert not unpack_int8(packed)["w"][:5].any()


def test_what_stays_as_it_is() -> None:
    weights = {
        "bias": torch.randn(50),
        "segments": torch.randn(2, 40),
        "out.weight": torch.randn(1, 40),
        "positions": torch.arange(40)[None],
        "cube": torch.randn(17, 3, 4),
        "half": torch.randn(30, 4).half(),
    }
    packed = pack_int8(weights)
    kept = ["bias", "segments", "out.weight", "positions"]
    assert sorted(packed) == sorted([*weights, "cube.scale", "half.scale"])
    assert all(torch.equal(packed[name], weights[name]) for name in kept)
    assert unpack_int8(packed)["cube"].shape == (17, 3, 4)
    torch.testing.assert_close(unpack_int8(packed)["cube"], weights["cube"], atol=0.02, rtol=0)
    assert unpack_int8(packed)["half"].dtype == torch.float32


def test_large_matrices_are_packed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"w": matrix(1, 100, 30, far=50.0)}
    whole = pack_int8(weights)
    monkeypatch.setattr("munjang.checkpoint.weights._BLOCK", 7 * 30)
    parts = pack_int8(weights)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
def test_what_cannot_be_packed(bad: float) -> None:
    weights = torch.ones(20, 4)
    weights[7, 1] = bad
    with pytest.raises(ModelError, match="'w' has values that are not finite or above"):
        pack_int8({"w": weights})
    with pytest.raises(ModelError, match="cannot be told from packed ones"):
        pack_int8({"w.scale": torch.ones(3)})
    with pytest.raises(ModelError, match="cannot be told from packed ones"):
        pack_int8({"w": torch.ones(20, 3, dtype=torch.int8)})


# --- folders ---------------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FAMILIES = ["bert", "roberta", "xlm-roberta", "electra", "albert", "distilbert", "mpnet", "modernbert"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_saved_and_saved_again_to_the_same_bytes(
    family: str, bodies: Any, tmp_path: Path, texts: list[str], vectors_of: Callable[..., np.ndarray]
) -> None:
    parts = read_bi(bodies(family), pooling="mean")
    write_bi(parts, tmp_path / "a" / "m", dtype="int8")
    assert weight_files(tmp_path / "a" / "m") == [tmp_path / "a" / "m" / INT8]
    assert not (tmp_path / "a" / "m" / "model.safetensors").exists()
    back = read_bi(tmp_path / "a" / "m")
    write_bi(back, tmp_path / "b" / "m", dtype=torch.int8)
    assert files_of(tmp_path / "a" / "m") == files_of(tmp_path / "b" / "m")
    ours, exact = vectors_of(back, texts), vectors_of(parts, texts)
    cosines = (ours * exact).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(exact, axis=1)
    assert cosines.min() > 0.999
    assert not np.array_equal(ours, exact)  # weights were really rounded
    # Written out in full, they are the same rounded weights.
    write_bi(back, tmp_path / "full", dtype="float32")
    np.testing.assert_array_equal(vectors_of(read_bi(tmp_path / "full"), texts), ours)


@pytest.mark.parametrize(
    ("family", "labels", "form"), [("bert", 1, "sbert"), ("bert", 3, "standard"), ("albert", 1, "sbert")]
)
def test_cross_encoders(
    family: str, labels: int, form: Any, bodies: Any, tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    parts = read_cross(bodies(family), labels=labels, head=form)
    write_cross(parts, tmp_path / "a" / "m", dtype="int8")
    assert (tmp_path / "a" / "m" / INT8).is_file()
    back = read_cross(tmp_path / "a" / "m")
    assert not back.notes
    assert back.labels == parts.labels
    write_cross(back, tmp_path / "b" / "m", dtype="int8")
    once, again = files_of(tmp_path / "a" / "m"), files_of(tmp_path / "b" / "m")
    card = once.pop("README.md").decode()
    again.pop("README.md")  # of a BERT with the paper's head it says ELECTRA from now on
    assert once == again
    exact = CrossEncoder(parts, device="cpu", dtype="float32").predict_report(pairs, raw=True).scores
    ours = CrossEncoder(back, device="cpu", dtype="float32").predict_report(pairs, raw=True).scores
    np.testing.assert_allclose(ours, exact, atol=0.05 * float(np.abs(exact).max()))
    assert torch.equal(back.head.out.weight, parts.head.out.weight)  # a few rows: kept whole
    assert "munjang export m -o" in card
    assert "from sentence_transformers" not in card


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_by_name(name: Any, bodies: Any, tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    model = CrossEncoder(read_cross(bodies("bert"), labels=1), device="cpu", dtype="float32")
    model.save(tmp_path / "m", dtype=name)
    stored = safetensors.torch.load_file(tmp_path / "m" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {getattr(torch, name)}
    assert json.loads((tmp_path / "m" / "config.json").read_text())["torch_dtype"] == name
    back = load_cross_encoder(str(tmp_path / "m"), device="cpu", dtype="float32")
    np.testing.assert_allclose(back.predict_report(pairs).scores, model.predict_report(pairs).scores, atol=0.02)


def test_a_static_model_with_a_dense_head(tmp_path: Path) -> None:
    words = "\n".join(f"{word} {' '.join(map(str, row))}" for word, row in zip(
        ["비가", "온다", "rain", *(f"w{i}" for i in range(30))],
        np.random.default_rng(0).normal(size=(33, 6)).round(3).tolist(),
        strict=True,
    ))  # fmt: skip
    (tmp_path / "words.txt").write_text(words, encoding="utf-8")
    model = BiEncoder(read_word_vectors(tmp_path / "words.txt"), device="cpu", dtype="float32")
    model.max_length = 7
    model.save(tmp_path / "m", dtype="int8")
    back = load(str(tmp_path / "m"), device="cpu", dtype="float32")
    assert back.max_length == 7
    np.testing.assert_allclose(back.encode(["비가 온다", "rain w3"]), model.encode(["비가 온다", "rain w3"]), atol=0.02)
    assert b"\n " not in (tmp_path / "m" / "0_StaticEmbedding" / "tokenizer.json").read_bytes()


def test_what_transformers_runs_stays_whole(bodies: Any, tmp_path: Path) -> None:
    parts = read_bi(bodies("t5"), pooling="mean")
    with pytest.raises(InputError, match="t5 model runs through transformers"):
        write_bi(parts, tmp_path / "m", dtype="int8")
    assert not (tmp_path / "m").exists()
    write_bi(parts, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / INT8)
    with pytest.raises(ModelError, match="which does not read that"):
        read_bi(tmp_path / "m")


def test_tokenizer_json_alone_is_enough(
    bodies: Any, tmp_path: Path, texts: list[str], vectors_of: Callable[..., np.ndarray]
) -> None:
    parts = read_bi(bodies("bert"), pooling="mean")
    write_bi(parts, tmp_path / "full")
    vocabulary = sorted(parts.tokenizer.backend.get_vocab().items(), key=lambda item: item[1])
    (tmp_path / "full" / "vocab.txt").write_text("\n".join(word for word, _ in vocabulary), encoding="utf-8")
    whole = read_bi(tmp_path / "full")
    write_bi(whole, tmp_path / "again")
    assert (tmp_path / "again" / "vocab.txt").is_file()
    write_bi(whole, tmp_path / "m", dtype="int8")
    assert not (tmp_path / "m" / "vocab.txt").exists()
    small, large = tmp_path / "m" / "tokenizer.json", tmp_path / "full" / "tokenizer.json"
    assert json.loads(small.read_text(encoding="utf-8")) == json.loads(large.read_text(encoding="utf-8"))
    assert small.stat().st_size < 0.8 * large.stat().st_size
    assert read_bi(tmp_path / "m").tokenizer.encode(texts).ids.tolist() == parts.tokenizer.encode(texts).ids.tolist()


def test_whole_weights_win(bodies: Any, tmp_path: Path) -> None:
    parts = read_bi(bodies("bert"), pooling="mean")
    write_bi(parts, tmp_path / "m", dtype="int8")
    write_bi(parts, tmp_path / "full")
    (tmp_path / "m" / "model.safetensors").write_bytes((tmp_path / "full" / "model.safetensors").read_bytes())
    assert [path.name for path in weight_files(tmp_path / "m")] == ["model.safetensors"]
    # And a save takes the other form's file away.
    write_bi(parts, tmp_path / "m", dtype="int8")
    assert [path.name for path in weight_files(tmp_path / "m")] == [INT8]


WORD = "embeddings.word_embeddings.weight"


def no_scale(state: dict[str, torch.Tensor]) -> None:
    del state[WORD + ".scale"]


def lone_scale(state: dict[str, torch.Tensor]) -> None:
    state["nothing.scale"] = torch.ones(3)


def short_scale(state: dict[str, torch.Tensor]) -> None:
    state[WORD + ".scale"] = state[WORD + ".scale"][:-1].clone()


def half_scale(state: dict[str, torch.Tensor]) -> None:
    state[WORD + ".scale"] = state[WORD + ".scale"].half()


def infinite_scale(state: dict[str, torch.Tensor]) -> None:
    state[WORD + ".scale"][4] = float("inf")


def zero_scale(state: dict[str, torch.Tensor]) -> None:
    state[WORD + ".scale"][2] = 0.0


def other_shape(state: dict[str, torch.Tensor]) -> None:
    state[WORD] = state[WORD][:, :-1].clone()


def bare_vector(state: dict[str, torch.Tensor]) -> None:
    state["embeddings.LayerNorm.bias"] = torch.ones(32, dtype=torch.int8)
    state["embeddings.LayerNorm.bias.scale"] = torch.ones(32)


DAMAGES = [
    (no_scale, rf"{INT8} lacks '{WORD}\.scale'.*fetch the model again"),
    (lone_scale, "has 'nothing.scale' without the matrix"),
    (short_scale, "needs one float32 scale a row"),
    (half_scale, "needs one float32 scale a row.*float16"),
    (infinite_scale, "1 of the .* scales .* not above 0 and finite, the first in row 4"),
    (zero_scale, "first in row 2"),
    (other_shape, "do not belong together"),
    (bare_vector, "needs one float32 scale a row"),
]


@pytest.fixture(scope="module")
def compact_folder(bodies: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compact") / "m"
    write_bi(read_bi(bodies("bert"), pooling="mean"), folder, dtype="int8")
    return folder


@pytest.mark.parametrize(("damage", "says"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_damaged_weights(damage: Any, says: str, compact_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(compact_folder, tmp_path / "m")
    state = {name: one.clone() for name, one in safetensors.torch.load_file(tmp_path / "m" / INT8).items()}
    damage(state)
    safetensors.torch.save_file(state, tmp_path / "m" / INT8)
    with pytest.raises(ModelError, match=says):
        read_bi(tmp_path / "m")


def test_a_file_that_is_cut_off(compact_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(compact_folder, tmp_path / "m")
    (tmp_path / "m" / INT8).write_bytes((tmp_path / "m" / INT8).read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cut off or damaged .*; fetch the model again"):
        read_bi(tmp_path / "m")


# --- the real model --------------------------------------------------------------------------------------------------

ENGLISH = [
    "It is raining in Seoul.",
    "The central bank raised its key interest rate by a quarter of a point on Thursday.",
    "A cat sat on the mat, and a dog barked at it for an hour.",
    "How do I get my money back?",
    "Who wrote this book, and when was it printed?",
]
KOREAN = [  # which MiniLM reads letter by letter, and does not know
    "한국어 문장을 벡터로 바꾼다.",
    "환불은 어떻게 하나요?",
    "내일 서울에는 비가 올 것으로 보입니다.",
    "두 사람이 공원에서 축구를 하고 있다. Two people play football in the park.",
]


def test_minilm_loses_little(minilm_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact = load(minilm_path, device="cpu", dtype="float32")
    exact.save(tmp_path / "m", dtype="int8")
    near = load(tmp_path / "m", device="cpu", dtype="float32")
    english, korean = ((exact.encode(texts) * near.encode(texts)).sum(1) for texts in (ENGLISH, KOREAN))
    with capsys.disabled():
        print(f" [int8 MiniLM: lowest cosine {english.min():.5f} English, {korean.min():.5f} Korean]", end="")
    assert english.min() >= 0.999
    assert korean.min() >= 0.998
    whole = (minilm_path / "model.safetensors").stat().st_size
    assert (tmp_path / "m" / INT8).stat().st_size < 0.26 * whole
