"""Static models: sentence-transformers', model2vec's, and word vectors in text form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.checkpoint import read_bi, read_word_vectors, write_bi
from munjang.checkpoint.static import UNLIMITED
from munjang.errors import DataError, InputError, ModelError
from munjang.nn.heads import Normalize

GLOVE = "the 1 0 0\ncat 0 1 0\nsat 0 0 1\n, 5 5 5\n. . 7 7 7\n고양이 0 2 0\nThe 9 9 9\na 4 4 4\n"


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE, encoding="utf-8")
    return path


def mean(parts: Any, text: str) -> list[float]:
    ids = parts.tokenizer.encode([text]).ids
    return [] if len(ids) == 0 else parts.body.embedding.weight[torch.from_numpy(ids).long()].mean(dim=0).tolist()


def test_their_static_models_both_ways(
    bodies: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize as TheirNormalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    backend = tokenizers.Tokenizer.from_file(str(bodies("bert") / "tokenizer.json"))
    static = StaticEmbedding(backend, embedding_dim=16)
    SentenceTransformer(modules=[static, TheirNormalize()], device="cpu").save(str(tmp_path / "theirs"))
    parts = read_bi(tmp_path / "theirs")
    assert (parts.notes, parts.hf_config, parts.tokenizer.max_length) == ([], {}, UNLIMITED)
    expected = theirs(tmp_path / "theirs", texts)
    np.testing.assert_allclose(vectors_of(parts, texts), expected, atol=1e-6)
    write_bi(parts, tmp_path / "ours")
    np.testing.assert_allclose(theirs(tmp_path / "ours", texts), expected, atol=1e-6)
    np.testing.assert_allclose(vectors_of(read_bi(tmp_path / "ours"), texts), expected, atol=1e-6)


@pytest.mark.parametrize("listed", [True, False])
def test_model2vec(bodies: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path, listed: bool) -> None:
    """Its names, its mapping and weights per token, with and without modules.json."""
    folder = tmp_path / "m2v"
    folder.mkdir()
    backend = tokenizers.Tokenizer.from_file(str(bodies("bert") / "tokenizer.json"))
    backend.save(str(folder / "tokenizer.json"))
    size = backend.get_vocab_size()
    safetensors.torch.save_file(
        {
            "embeddings": torch.randn(7, 8).half(),
            "mapping": torch.arange(size) % 7,
            "weights": torch.rand(size, dtype=torch.float64),
        },
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    if listed:
        entries = [("StaticEmbedding", "."), ("Normalize", "1_Normalize")]
        (folder / "modules.json").write_text(
            json.dumps(
                [
                    {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"}
                    for i, (k, p) in enumerate(entries)
                ]
            )
        )
    parts = read_bi(folder)
    assert isinstance(parts.heads[0], Normalize)
    if listed:
        np.testing.assert_allclose(vectors_of(parts, texts), theirs(folder, texts), atol=2e-4)


def test_a_limit_in_the_tokenizer_is_kept(
    bodies: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    backend = tokenizers.Tokenizer.from_file(str(bodies("bert") / "tokenizer.json"))
    backend.enable_truncation(4)
    SentenceTransformer(modules=[StaticEmbedding(backend, embedding_dim=8)], device="cpu").save(str(tmp_path / "a"))
    parts = read_bi(tmp_path / "a")
    assert parts.tokenizer.max_length == 4
    write_bi(parts, tmp_path / "b")
    np.testing.assert_allclose(theirs(tmp_path / "b", texts), vectors_of(parts, texts), atol=1e-6)
    np.testing.assert_allclose(theirs(tmp_path / "b", texts), theirs(tmp_path / "a", texts), atol=1e-6)


def test_table_smaller_than_the_tokenizer(bodies: Any, tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer.from_file(str(bodies("bert") / "tokenizer.json"))
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "modules.json").write_text('[{"type": "a.StaticEmbedding", "path": ""}]')
    with pytest.raises(ModelError, match="has no weights"):
        read_bi(tmp_path)
    safetensors.torch.save_file({"embedding.weight": torch.zeros(5, 3)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"\d+ tokens, but the embedding only 5 rows"):
        read_bi(tmp_path)
    safetensors.torch.save_file({"other": torch.zeros(5, 3)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"'embedding.weight' or 'embeddings', got other"):
        read_bi(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer.json"):
        read_bi(tmp_path)


def test_glove(glove: Path, theirs: Any, tmp_path: Path) -> None:
    parts = read_word_vectors(glove)
    assert mean(parts, "the cat") == [0.5, 0.5, 0]
    assert mean(parts, "the unknown cat") == [0.5, 0.5, 0]
    assert mean(parts, "catsat tcat acat") == []
    assert mean(parts, "고양이, cat") == pytest.approx([5 / 3, 8 / 3, 5 / 3])
    assert mean(parts, "The") == [9, 9, 9]
    write_bi(parts, tmp_path / "saved")
    got = theirs(tmp_path / "saved", ["the cat", "the unknown cat", "nothing known", ""])
    np.testing.assert_allclose(got, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0], [0, 0, 0]], atol=1e-6)
    assert mean(read_bi(tmp_path / "saved"), "the unknown cat") == [0.5, 0.5, 0]


def test_lower_casing_keeps_the_first_of_two(glove: Path) -> None:
    parts = read_word_vectors(glove, lower_case=True)
    assert mean(parts, "THE Cat") == [0.5, 0.5, 0]
    assert "1 words occur again" in parts.notes[0]


def test_word2vec_header_gzip_and_limit(tmp_path: Path) -> None:
    path = tmp_path / "cc.ko.vec.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("3 2\n나무 1 2 \n숲 3 4\n산 5 6\n")
    parts = read_word_vectors(path)
    assert parts.body.embedding.weight.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert len(read_word_vectors(path, max_words=2).body.embedding.weight) == 2
    with pytest.raises(InputError, match="max_words"):
        read_word_vectors(path, max_words=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2\nb 1\n", "line 2: expected a word and 2 values, got 2 fields"),
        (b"a 1 2\nb 1 x\n", "line 2: expected a word and 2 numbers"),
        (b"a 1 2\n\nb nan 1\n", "line 3: the vector of 'b' has values that are not finite"),
        (b"", "holds no word vectors"),
        (b"2 3\n", "holds no word vectors"),
        (b"\xff\xfe\x00a 1\n", "not UTF-8"),
        (b"lonely\n", "line 1: expected a word"),
    ],
)
def test_malformed_word_vectors(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_word_vectors(path)


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_word_vectors(tmp_path / "none.txt")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"a 1 2\n" * 1000)[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        read_word_vectors(cut)


@settings(max_examples=50, deadline=None)
@given(words=st.lists(st.sampled_from(["the", "cat", "sat", "a", "고양이", "unknown", "xa", "ax", ""]), max_size=8))
def test_unknown_words_leave_nothing(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    table = {"the": 0, "cat": 1, "sat": 2, "고양이": 3, "a": 4}
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("".join(f"{word} {row}\n" for word, row in table.items()), encoding="utf-8")
    tokenizer = read_word_vectors(path).tokenizer
    assert tokenizer.encode([" ".join(words)]).ids.tolist() == [table[word] for word in words if word in table]


def test_only_mean_pooling_is_saved(glove: Path, tmp_path: Path) -> None:
    from munjang.nn.pooling import Pooling

    parts = read_word_vectors(glove)
    parts.pooling = Pooling(("max",))
    with pytest.raises(ModelError, match="mean pooling only"):
        write_bi(parts, tmp_path / "x")
    assert not (tmp_path / "x").exists()
