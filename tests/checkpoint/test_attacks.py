"""Model folders made to hang a program or to fill its memory: each is a `ModelError`, at once."""

from __future__ import annotations

import json
import resource
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import munjang
from munjang.errors import ModelError

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::munjang.errors.ModelWarning")]
_SECONDS = 10  # 2 on a machine that does nothing else
_BYTES = 2 << 30


@pytest.fixture
def bounded(bodies: Callable[[str], Path]) -> Iterator[None]:
    """Little time, and no more memory than the process has and 2 GiB."""
    munjang.load(bodies("bert"), device="cpu")  # imports are not counted
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + _BYTES, before[1]))
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert seconds < _SECONDS


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def config(**values: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "config.json", **values)


def tokenizer(**values: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "tokenizer.json", **values)


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def modules(folder: Path) -> None:
    one = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Normalize"}
    (folder / "modules.json").write_text(json.dumps([one | {"idx": i} for i in range(100_000)]))


def template(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    piece = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece] * 20_000 + [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2] * 20_000, "tokens": ["[CLS]"] * 20_000}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))


def header(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)


def state(folder: Path) -> dict[str, torch.Tensor]:
    loaded = {
        name: tensor.clone() for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items()
    }
    (folder / "model.safetensors").unlink()
    return loaded


def repeated_storage(folder: Path) -> None:
    weights = state(folder)
    weights["pooler.dense.weight"] = torch.zeros(1).expand(200_000, 200_000)
    torch.save(weights, folder / "pytorch_model.bin")


def zip_bomb(folder: Path) -> None:
    torch.save(state(folder), folder / "plain.bin")
    with zipfile.ZipFile(folder / "plain.bin") as plain:
        entries = {name: plain.read(name) for name in plain.namelist()}
    (folder / "plain.bin").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in entries.items():
            packed.writestr(name, data + bytes(100 << 20) if name.endswith("data.pkl") else data)


def dense(**values: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        kinds = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")
        entries = [{"idx": i, "path": path, "type": f"a.{kind}"} for i, (path, kind) in enumerate(kinds)]
        (folder / "modules.json").write_text(json.dumps(entries))
        (folder / "2_Dense").mkdir()
        plain = {"in_features": 32, "out_features": 8, "bias": True, "activation_function": "torch.nn.Tanh"}
        (folder / "2_Dense" / "config.json").write_text(json.dumps(plain | values))
        safetensors.torch.save_file({"linear.weight": torch.zeros(8, 32)}, folder / "2_Dense" / "model.safetensors")

    return make


NUMBERS = [10**7, 10**9, 10**30, 1e30, float("nan"), float("inf"), -1, 0, True, "32", [32], {}, 32.5]
SIZES = ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
         "max_position_embeddings", "type_vocab_size"]  # fmt: skip
DEEP = "[" * 200_000

ATTACKS: dict[str, Callable[[Path], object]] = {
    "modules": modules,
    "deep-modules": text("modules.json", DEEP),
    "deep-config": text("config.json", '{"model_type": "bert", "a": ' + DEEP),
    "deep-tokenizer": text("tokenizer.json", '{"a": ' + DEEP),
    "deep-tokenizer-config": text("tokenizer_config.json", '{"a": ' + DEEP),
    "deep-pooling": text("1_Pooling/config.json", '{"a": ' + DEEP),
    "many-digits": text("config.json", '{"model_type": "bert", "vocab_size": ' + "9" * 100_000 + "}"),
    "large-config": text("config.json", '{"a": "' + "a" * (65 << 20) + '"}'),
    "eps-nan": config(layer_norm_eps=float("nan")),
    "eps-negative": config(layer_norm_eps=-1.0),
    "dropout": config(hidden_dropout_prob=2.0),
    "activation": config(hidden_act=["gelu"]),
    "negative-window": config(model_type="modernbert", local_attention=-4),
    "no-step": config(model_type="modernbert", global_attn_every_n_layers=0),
    "layer-types": config(model_type="modernbert", layer_types=["sliding_attention", "strange"]),
    "heads": config(num_attention_heads=7),
    "similarity": text("config_sentence_transformers.json", '{"similarity_fn_name": ["cosine"]}'),
    "prompt-name": text("config_sentence_transformers.json", '{"prompts": {}, "default_prompt_name": ["a"]}'),
    "surrogate": text("tokenizer_config.json", '{"pad_token": "\\ud800"}'),
    "dense-large": dense(out_features=10**30),
    "dense-shape": dense(out_features=10**7),
    "dense-bool": dense(out_features=True),
    "header-deep": header(b'{"a": ' + b"[" * 200_000),
    "header-long": lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{"),
    "header-infinite": header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, Infinity]}}'),
    "header-shape": header(b'{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}}'),
    "header-negative": header(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}'),
    "repeated-storage": repeated_storage,
    "zip-bomb": zip_bomb,
    "replace-chain": tokenizer(normalizer={
        "type": "Sequence", "normalizers": [replace({"String": "a"}, "a" * 10)] * 12,
    }),
    "replace-regex": tokenizer(normalizer=replace({"Regex": "."}, "a" * 100_000)),
    "nested-chain": tokenizer(normalizer={"type": "Sequence", "normalizers": [
        {"type": "Sequence", "normalizers": [replace({"Regex": "a"}, "aa")] * 8},
    ] * 8}),
    "many-normalizers": tokenizer(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 50_000}),
    "pattern-replace": tokenizer(normalizer=replace({"Regex": "(\\w+\\s?)+$"}, "x")),
    "pattern-split": tokenizer(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a|a|.)*b"}, "behavior": "Isolated", "invert": False,
    }),
    "pattern-power": tokenizer(normalizer=replace({"Regex": ".*.*.*.*.*.*.*.*.*x"}, "x")),
    "template": template,
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused(attack: str, old_layout: Any, bounded: None) -> None:
    folder = old_layout()
    ATTACKS[attack](folder)
    with pytest.raises(ModelError):
        munjang.load(folder, device="cpu")


@pytest.mark.parametrize("key", SIZES)
def test_sizes_that_cannot_be_are_refused(key: str, old_layout: Any, bounded: None) -> None:
    folder = old_layout()
    for value in NUMBERS:
        change(folder / "config.json", **{key: value})
        with pytest.raises(ModelError):
            munjang.load(folder, device="cpu")
        with pytest.raises(ModelError):
            munjang.load_cross_encoder(folder, device="cpu")


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("albert", "inner_group_num"),
        ("albert", "num_hidden_groups"),
        ("albert", "embedding_size"),
        ("distilbert", "n_layers"),
        ("distilbert", "dim"),
        ("roberta", "pad_token_id"),
        ("electra", "embedding_size"),
        ("mpnet", "relative_attention_num_buckets"),
        ("modernbert", "hidden_size"),
        ("modernbert", "num_hidden_layers"),
    ],
)
def test_sizes_of_other_families(family: str, key: str, old_layout: Any, bounded: None) -> None:
    folder = old_layout(family)
    written = json.loads((folder / "config.json").read_text())
    written.pop("layer_types", None)
    for value in (10**7, 10**9, 10**30, 1e30, float("nan"), -1, "2"):
        (folder / "config.json").write_text(json.dumps(written | {key: value}))
        with pytest.raises(ModelError):
            munjang.load(folder, device="cpu")


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("t5", {"use_cache": []}),
        ("t5", {"dense_act_fn": []}),
        ("deberta-v2", {"num_hidden_layers": -1}),
        ("xlnet", {"d_head": 7}),
    ],
)
def test_what_transformers_stumbles_over(family: str, values: dict[str, object], old_layout: Any) -> None:
    folder = old_layout(family)
    change(folder / "config.json", **values)
    with pytest.raises(ModelError):
        munjang.load(folder, device="cpu")


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("t5", "num_layers"),
        ("t5", "d_model"),
        ("t5", "d_ff"),
        ("t5", "vocab_size"),
        ("deberta-v2", "num_hidden_layers"),
        ("deberta-v2", "intermediate_size"),
        ("deberta-v2", "max_position_embeddings"),
        ("gpt2", "n_layer"),
        ("gpt2", "num_labels"),
        ("gpt2", "n_positions"),
    ],
)
@pytest.mark.parametrize("value", [10**7, 10**9, 10**30])
def test_sizes_of_what_transformers_runs(family: str, key: str, value: int, old_layout: Any, bounded: None) -> None:
    folder = old_layout(family)
    change(folder / "config.json", **{key: value})
    with pytest.raises(ModelError):
        munjang.load(folder, device="cpu")


def test_a_mapping_longer_than_the_vocabulary(tmp_path: Path, old_layout: Any, bounded: None) -> None:
    """model2vec's mapping could repeat a row of the table as often as it is long."""
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((old_layout() / "tokenizer.json").read_bytes())
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    for mapping in (torch.zeros(10_000_000, dtype=torch.uint8), torch.full((160,), 200, dtype=torch.uint8)):
        weights = {"embeddings": torch.zeros(4, 4096), "mapping": mapping}
        safetensors.torch.save_file(weights, folder / "model.safetensors")
        with pytest.raises(ModelError):
            munjang.load(folder, device="cpu")
