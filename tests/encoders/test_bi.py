"""The bi-encoder: the peer's vectors, every promise of the interface, bad input, threads, resuming."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

import munjang
from munjang.encoders import BiEncoder
from munjang.errors import InputError, ModelError, ResumeError, TruncationWarning
from munjang.nn.device import cpu_has_bfloat16
from munjang.vectors import normalize

LONG = "long " * 5000
TEXTS = [
    "A man is playing a guitar on the stage.",
    "한 남자가 무대에서 기타를 치고 있다.",
    "서울의 겨울은 춥고, 눈이 자주 온다. It snows a lot.",
    "",
    " ",
    "😀😀 emoji 👩‍👩‍👧‍👦 family",
    "a",
    "각각 NFD 자모",
    "[SEP] inside [CLS] and [MASK]",
    "tab\tnew\nline\r\n" * 10,
    "中文字符 and 日本語",
    *(f"number {i} " * (i % 19 + 1) for i in range(29)),
]


@pytest.fixture(scope="module")
def model(minilm_path: Path) -> BiEncoder:
    return munjang.load(minilm_path, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def peer(minilm_path: Path) -> SentenceTransformer:
    return SentenceTransformer(str(minilm_path), device="cpu", model_kwargs={"dtype": torch.float32})


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_float32_vectors_are_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    with pytest.warns(TruncationWarning, match=r"truncated: 1 of 41 texts were longer than 256 tokens"):
        ours = model.encode([*TEXTS, LONG])
    theirs = peer.encode([*TEXTS, LONG])
    assert ours.dtype == np.float32
    assert _cosines(ours, theirs).min() > 0.99999
    assert np.abs(ours - theirs).max() < 1e-5


def test_auto_is_close_to_the_peer(minilm_path: Path, peer: SentenceTransformer) -> None:
    auto = munjang.load(minilm_path, device="cpu")
    texts = [*TEXTS, LONG]
    assert _cosines(auto.encode_report(texts).vectors, peer.encode(texts)).min() > 0.9995


def test_bfloat16_is_close_to_float32(minilm_path: Path, model: BiEncoder) -> None:
    half = munjang.load(minilm_path, device="cpu", dtype="bfloat16")
    assert half.dtype == torch.bfloat16
    floor = 0.9995 if cpu_has_bfloat16() else 0.999  # emulated bfloat16 rounds more often
    assert _cosines(half.encode(TEXTS), model.encode(TEXTS)).min() > floor


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(len(TEXTS))), st.integers(1, len(TEXTS)))
def test_neither_order_nor_company_matters(model: BiEncoder, order: list[int], count: int) -> None:
    whole = model.encode(TEXTS)
    some = model.encode([TEXTS[i] for i in order[:count]])
    assert np.abs(some - whole[order[:count]]).max() < 1e-6


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=5))
def test_any_text_gives_the_peers_vector(model: BiEncoder, peer: SentenceTransformer, texts: list[str]) -> None:
    assert np.abs(model.encode(texts) - peer.encode(texts)).max() < 1e-5


def test_shapes(model: BiEncoder) -> None:
    assert model.encode([]).shape == (0, 384)
    assert model.encode([]).dtype == np.float32
    assert model.encode(iter([])).shape == (0, 384)
    assert model.encode("one text").shape == (1, 384)
    assert model.encode([""]).shape == (1, 384)
    assert np.isfinite(model.encode(["", " "])).all()
    assert model.encode(np.array(["numpy", "strings"])).shape == (2, 384)
    assert model.encode(text for text in TEXTS).shape == (len(TEXTS), 384)


@pytest.mark.parametrize("bad", [None, 7, float("nan"), b"bytes", ["nested"]])
def test_what_is_not_a_text_is_an_error_that_names_its_position(model: BiEncoder, bad: object) -> None:
    with pytest.raises(InputError, match="text 2 must be a string"):
        model.encode(["fine", "fine", bad])


def test_a_lone_surrogate_is_an_error_that_names_its_position(model: BiEncoder) -> None:
    with pytest.raises(InputError, match="1"):
        model.encode(["fine", "broken \ud800 text"])


def test_truncation_is_counted(model: BiEncoder) -> None:
    report = model.encode_report([LONG, "short", LONG]).report
    assert (report.truncated, report.texts, report.longest, report.max_length) == (2, 3, 5002, 256)
    assert "truncated: 2 of 3 to 256 tokens (longest 5,002)" in str(report)
    assert report.tokens == 256 + 3 + 256


def test_stream_equals_encode_in_order(minilm_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from munjang.encoders import base, runtime

    small = runtime.Plan(window=(7, 400), budget=64, workers=2)
    model = munjang.load(minilm_path, device="cpu", dtype="float32")
    whole = model.encode(TEXTS)
    monkeypatch.setattr(base, "plan_for", lambda device, threads: small)
    parts = list(model.encode_stream(iter(TEXTS)))
    assert len(parts) > len(TEXTS) // 7
    assert np.abs(np.concatenate([part.vectors for part in parts]) - whole).max() < 1e-6
    told: list[int] = []
    model.encode(TEXTS, progress=lambda done, total: told.append(done))
    assert told[-1] == len(TEXTS)
    assert told == sorted(told)


def test_normalize_and_truncate_dim(model: BiEncoder, peer: SentenceTransformer, minilm_path: Path) -> None:
    small = munjang.load(minilm_path, device="cpu", dtype="float32")
    small.truncate_dim = 64
    assert small.dimension == 64
    assert small.full_dimension == 384
    vectors = small.encode(TEXTS)
    assert np.allclose(vectors, model.encode(TEXTS)[:, :64], atol=1e-6)
    unit = small.encode(TEXTS, normalize=True)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)
    theirs = peer.encode(TEXTS, truncate_dim=64, normalize_embeddings=True)
    assert np.abs(unit - theirs).max() < 1e-5
    with pytest.raises(InputError, match=r"truncate_dim must be 1\.\.384"):
        small.truncate_dim = 385


def test_max_length_is_checked_and_obeyed(minilm_path: Path, peer: SentenceTransformer) -> None:
    model = munjang.load(minilm_path, device="cpu", dtype="float32", max_length=16)
    assert model.encode_report([LONG]).report.tokens == 16
    model.max_length = 512
    before = peer.max_seq_length
    peer.max_seq_length = 512
    try:
        assert np.abs(model.encode_report([LONG]).vectors - peer.encode([LONG])).max() < 1e-5
    finally:
        peer.max_seq_length = before
    with pytest.raises(InputError, match="at most 512"):
        model.max_length = 513


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", ("cls", "mean")])
@pytest.mark.filterwarnings("ignore::munjang.errors.ModelWarning")
def test_pooling_can_be_chosen_for_baselines(minilm_path: Path, pooling: str) -> None:
    model = munjang.load(minilm_path, device="cpu", pooling=pooling)
    assert model.dimension == (768 if isinstance(pooling, tuple) else 384)
    assert np.isfinite(model.encode(TEXTS)).all()


def test_prompts(model: BiEncoder, peer: SentenceTransformer) -> None:
    ours = model.encode(TEXTS, prompt="query: ")
    assert np.abs(ours - peer.encode(TEXTS, prompt="query: ")).max() < 1e-5
    assert np.abs(ours - model.encode([f"query: {text}" for text in TEXTS])).max() < 1e-6
    with pytest.raises(InputError, match="prompt_name must be one of the model's prompts"):
        model.encode(TEXTS, prompt_name="poem")
    with pytest.raises(InputError, match="not both"):
        model.encode(TEXTS, prompt="a", prompt_name="b")
    assert np.array_equal(model.encode_query(["q"]), model.encode(["q"]))
    assert np.array_equal(model.encode_document(["d"]), model.encode(["d"]))


def test_a_prompt_can_be_left_out_of_the_pooling(minilm_path: Path, tmp_path: Path) -> None:
    theirs = SentenceTransformer(str(minilm_path), device="cpu", prompts={"query": "find what answers: "})
    theirs[1].include_prompt = False
    theirs.save_pretrained(str(tmp_path))
    model = munjang.load(tmp_path, device="cpu", dtype="float32")
    assert np.abs(model.encode_query(TEXTS) - theirs.encode(TEXTS, prompt_name="query")).max() < 1e-5
    assert np.abs(model.encode_query(TEXTS) - model.encode(TEXTS)).max() > 1e-3


def test_similarity_of_texts_and_of_vectors(model: BiEncoder, peer: SentenceTransformer) -> None:
    vectors = model.encode(TEXTS[:6])
    expected = peer.similarity(vectors, vectors).numpy()
    assert np.abs(model.similarity(TEXTS[:6], TEXTS[:6]) - expected).max() < 1e-5
    assert np.abs(model.similarity(vectors) - expected).max() < 1e-6
    assert model.similarity(TEXTS[:2], TEXTS[:5]).shape == (2, 5)


def test_several_threads_at_once(model: BiEncoder) -> None:
    expected = model.encode(TEXTS)
    failures: list[float] = []

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(TEXTS))
        for _ in range(2):
            got = model.encode([TEXTS[i] for i in order])
            failures.append(float(np.abs(got - expected[order]).max()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 8
    assert max(failures) < 1e-6


def test_vectors_that_are_not_finite_are_computed_again_or_refused(minilm_path: Path) -> None:
    model = munjang.load(minilm_path, device="cpu", dtype="bfloat16")
    good = munjang.load(minilm_path, device="cpu", dtype="float32").encode(TEXTS)
    with torch.no_grad():  # the computing copy alone is damaged, as an overflow would
        model.runtime._body.layers[3].mlp.up.weight.fill_(float("inf"))
    with pytest.warns(munjang.errors.PrecisionWarning, match="computed again in float32"):
        assert _cosines(model.encode(TEXTS), good).min() > 0.99999
    with torch.no_grad():
        model.parts.body.layers[3].mlp.up.weight.fill_(float("nan"))
    model.refresh()
    with pytest.raises(ModelError, match="not finite even in float32"):
        model.encode(TEXTS)


def test_save_and_load_again(model: BiEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    again = munjang.load(tmp_path / "saved", device="cpu", dtype="float32")
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.fingerprint == model.fingerprint
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.abs(theirs.encode(TEXTS) - model.encode(TEXTS)).max() < 1e-5


def test_the_fingerprint_knows_what_decides_the_vectors(minilm_path: Path, model: BiEncoder) -> None:
    other = munjang.load(minilm_path, device="cpu", dtype="bfloat16")
    assert other.fingerprint == model.fingerprint
    other.max_length = 100
    assert other.fingerprint != model.fingerprint
    other.max_length = model.max_length
    assert other.fingerprint == model.fingerprint
    with torch.no_grad():
        other.parts.body.layers[0].mlp.up.weight[0, 0] += 1e-3
    other.refresh()
    assert other.fingerprint != model.fingerprint


def test_devices_are_checked(minilm_path: Path) -> None:
    with pytest.raises(InputError, match="device must be like"):
        munjang.load(minilm_path, device="gpu please")
    with pytest.raises(InputError, match="dtype must be"):
        munjang.load(minilm_path, device="cpu", dtype="int3")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch sees 0 CUDA devices"):
            munjang.load(minilm_path, device="cuda")


def test_describe_and_repr(model: BiEncoder) -> None:
    facts = model.describe()
    assert facts["family"] == "bert"
    assert facts["layers"] == 6
    assert facts["parameters"] == 22_565_376
    assert "dimension=384" in repr(model)


# --- encode_to ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".jsonl"])
def test_encode_to_writes_what_encode_gives(model: BiEncoder, tmp_path: Path, suffix: str) -> None:
    from munjang.vectors import read_vectors

    path = tmp_path / f"vectors{suffix}"
    report = model.encode_to(iter(TEXTS), path)
    assert report.texts == len(TEXTS)
    assert np.abs(read_vectors(path) - model.encode(TEXTS)).max() < 1e-6
    assert sorted(tmp_path.iterdir()) == [path]


def test_encode_to_keeps_columns(model: BiEncoder, tmp_path: Path) -> None:
    import pyarrow.parquet

    rows = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    model.encode_to(rows, tmp_path / "vectors.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "vectors.parquet")
    assert table["id"].to_pylist() == list(range(len(TEXTS)))
    assert table["text"].to_pylist() == TEXTS


@pytest.fixture
def interrupted(model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output that stopped after some windows of eight texts."""
    from munjang.encoders import base, runtime

    small = runtime.Plan(window=(8, 10**6), budget=256, workers=1)
    monkeypatch.setattr(base, "plan_for", lambda device, threads: small)

    def breaks_off():
        yield from TEXTS[:30]
        raise KeyboardInterrupt

    path = tmp_path / "vectors.npy"
    with pytest.raises(KeyboardInterrupt):
        model.encode_to(breaks_off(), path)
    assert not path.exists()
    return path


def test_an_interrupted_encode_to_goes_on_and_encodes_nothing_twice(model: BiEncoder, interrupted: Path) -> None:
    report = model.encode_to(TEXTS, interrupted)
    assert 8 <= report.skipped <= 30
    assert report.tokens < model.encode_report(TEXTS).report.tokens
    assert np.abs(np.load(interrupted, mmap_mode="r") - model.encode(TEXTS)).max() < 1e-6


def test_a_resumed_encode_to_refuses_other_texts_and_other_settings(model: BiEncoder, interrupted: Path) -> None:
    with pytest.raises(ResumeError):
        model.encode_to(["other", *TEXTS[1:]], interrupted)
    with pytest.raises(ResumeError):
        model.encode_to(TEXTS, interrupted, prompt="query: ")
    model.encode_to(TEXTS, interrupted)
    assert np.load(interrupted).shape == (len(TEXTS), 384)


# --- importing ----------------------------------------------------------------------------------------------------


def test_importing_munjang_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import munjang, sys; print([m for m in ('torch', 'transformers', 'numpy', 'tokenizers') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_encoding_never_loads_transformers(minilm_path: Path) -> None:
    code = (
        "import munjang, sys; munjang.load(sys.argv[1], device='cpu').encode(['a']); "
        "print([m for m in ('transformers', 'sentence_transformers', 'huggingface_hub') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(minilm_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


# --- other bodies --------------------------------------------------------------------------------------------------


def test_averaged_word_vectors_are_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("cat 1 0\ndog 0 1\n고양이 2 0\n", encoding="utf-8")
    model = munjang.from_word_vectors(tmp_path / "vectors.txt")
    vectors = model.encode(["Cat dog", "고양이", "", "unknown words", "cat cat dog"])
    assert np.allclose(vectors, [[0.5, 0.5], [2, 0], [0, 0], [0, 0], [2 / 3, 1 / 3]])
    model.save(tmp_path / "static")
    theirs = SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert np.allclose(theirs.encode(["Cat dog", "", "cat cat dog"]), vectors[[0, 2, 4]], atol=1e-6)


@pytest.mark.usefixtures("exact")
def test_other_encoders_go_through_transformers(tmp_path: Path, minilm_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=30_522, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    transformers.DebertaV2Model(config).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(minilm_path).save_pretrained(tmp_path)
    with pytest.warns(munjang.errors.ModelWarning, match="mean pooling is assumed"):
        model = munjang.load(tmp_path, device="cpu", max_length=128)
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    theirs.max_seq_length = 128
    assert np.abs(model.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5


def test_the_report_counts_texts_that_look_empty_or_missing(model: BiEncoder, tmp_path: Path) -> None:
    texts = ["a cat", "", "nan", "", "😀" * 1000]
    expected = {"empty": 2, "'nan'": 1, "a few characters repeated": 1}
    encoded = model.encode_report(texts)
    assert encoded.report.unusual == expected
    assert model.encode_to(iter(texts), tmp_path / "v.npy").unusual == expected
    assert np.allclose(encoded.vectors[0], model.encode("a cat")[0], atol=1e-6)


def test_a_table_is_encoded_by_its_text_column(model: BiEncoder) -> None:
    table = [{"title": text, "body": f"{text} body", "id": number} for number, text in enumerate(TEXTS[:5])]
    expected = model.encode([row["body"] for row in table])
    assert np.array_equal(model.encode(table, column="body"), expected)
    assert np.array_equal(np.concatenate([part.vectors for part in model.encode_stream(table, column=1)]), expected)
    with pytest.raises(InputError, match="column"):
        model.encode(table)
    with pytest.raises(InputError, match="'text'"):
        model.encode(table, column="text")


@pytest.mark.parametrize("prompt", [None, "query: "])
def test_token_vectors_average_to_the_vector(model: BiEncoder, prompt: str | None) -> None:
    texts = [*TEXTS[:9], ""]
    tokens = model.encode_tokens(iter(texts), prompt=prompt)
    lengths = model.tokenizer.encode([(prompt or "") + text for text in texts]).lengths
    assert [part.shape for part in tokens] == [(length, 384) for length in lengths]
    means = np.stack([part.mean(axis=0) for part in tokens])  # the model pools by the mean, then normalizes
    assert np.abs(normalize(means) - model.encode(texts, prompt=prompt)).max() < 1e-5


def test_token_vectors_are_those_of_sentence_transformers(model: BiEncoder, peer: SentenceTransformer) -> None:
    theirs = peer.encode(TEXTS[:7], output_value="token_embeddings")
    for ours, expected in zip(model.encode_tokens(TEXTS[:7]), theirs, strict=True):
        assert np.abs(ours - expected.cpu().numpy()[: len(ours)]).max() < 1e-4
