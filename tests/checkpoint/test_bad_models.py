"""Damaged, unsafe, inconsistent and foreign folders: each is an error that says what is wrong."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from munjang.checkpoint import read_bi
from munjang.errors import InputError, ModelError, ModelNotFoundError


def change(path: Path, **values: object) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items()}


def save(folder: Path, state: dict[str, torch.Tensor]) -> None:
    safetensors.torch.save_file(state, folder / "model.safetensors")


def modules(folder: Path, *kinds: str) -> None:
    entries = [{"idx": i, "name": str(i), "path": f"{i}_x" if i else "", "type": kind} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(entries))


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def cut_in_the_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def not_finite(folder: Path) -> None:
    state = weights(folder)
    state["encoder.layer.1.output.dense.weight"][3, 4] = float("nan")
    save(folder, state)


def wrong_shape(folder: Path) -> None:
    state = weights(folder)
    state["encoder.layer.1.attention.self.key.weight"] = torch.zeros(16, 32)
    save(folder, state)


def missing_weight(folder: Path) -> None:
    state = weights(folder)
    del state["encoder.layer.0.output.dense.bias"]
    save(folder, state)


def pickle_as_safetensors(folder: Path) -> None:
    torch.save(weights(folder), folder / "model.safetensors")


def raw_pickle_as_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps({"a": 1}))


def unsafe_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": Evil()}, folder / "pytorch_model.bin")


def damaged_pickle(folder: Path) -> None:
    torch.save(weights(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-2000])


def missing_shard(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    table = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


def large_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["zzzz"] = 999
    path.write_text(json.dumps(content))


def adapter(folder: Path) -> None:
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
    (folder / "adapter_config.json").write_text("{}")


def dense(folder: Path, **config: object) -> None:
    modules(folder, "a.Transformer", "a.Pooling", "a.Dense")
    shutil.copytree(folder / "1_Pooling", folder / "1_x")
    (folder / "2_x").mkdir()
    plain = {"in_features": 32, "out_features": 8, "bias": True, "activation_function": "torch.nn.Tanh"}
    (folder / "2_x" / "config.json").write_text(json.dumps(plain | config))
    safetensors.torch.save_file(
        {"linear.weight": torch.zeros(8, 32), "linear.bias": torch.zeros(8)}, folder / "2_x" / "model.safetensors"
    )


CASES: list[tuple[Callable[[Path], object], str]] = [
    (cut_off, r"model\.safetensors is cut off or damaged .*; fetch the model again"),
    (cut_in_the_header, "is cut off or damaged .*header.*; fetch the model again"),
    (lambda f: (f / "model.safetensors").write_bytes(b""), "not a safetensors file, or damaged"),
    (lambda f: (f / "model.safetensors").write_text("version https://git-lfs.github.com"), "git lfs pull"),
    (not_finite, r"'encoder.layer.1.output.dense.weight' has 1 values that are not finite"),
    (wrong_shape, r"self.key.weight' has shape \[16, 32\], but config.json asks for \[32, 32\]"),
    (missing_weight, "lacks 1 of the weights.*encoder.layer.0.output.dense.bias"),
    (pickle_as_safetensors, "pickle under a safetensors name: that is unsafe"),
    (raw_pickle_as_safetensors, "pickle under a safetensors name: that is unsafe"),
    (unsafe_pickle, "unsafe.*convert it"),
    (damaged_pickle, "damaged or cut off"),
    (missing_shard, "lacks 1 of the 2 weight files.*: model-00002-of-00002.safetensors"),
    (lambda f: change(f / "config.json", hidden_size=64), "asks for"),
    (lambda f: change(f / "config.json", hidden_size="big"), "must be a whole number"),
    (lambda f: (f / "config.json").write_text("{"), "config.json is not valid JSON"),
    (lambda f: (f / "config.json").write_text("[]"), "must hold a JSON object, got list"),
    (lambda f: (f / "config.json").unlink(), "has no config.json.*it holds 1_Pooling/"),
    (lambda f: (f / "model.safetensors").unlink(), "has no weights.*it holds"),
    (lambda f: (f / "model.safetensors").rename(f / "other.bin"), "other.bin is not a name that is read"),
    (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.*it holds"),
    (large_tokenizer, r"the tokenizer has 1000 tokens, but the model's embedding only \d+ rows"),
    (adapter, "an adapter, not a whole model: merge it"),
    (lambda f: change(f / "config.json", auto_map={"AutoModel": "x.Y"}), "code beside a model is never run"),
    (lambda f: change(f / "config.json", model_type=None), "no 'model_type'"),
    (lambda f: modules(f, "a.Transformer", "a.models.CNN"), "not known: a.models.CNN; known: Transformer"),
    (lambda f: modules(f, "a.Pooling"), "expected Transformer"),
    (lambda f: (f / "modules.json").write_text('[{"type": "a.Transformer", "path": "../x"}]'), "inside the model"),
    (lambda f: (f / "modules.json").write_text('[{"type": "a.Transformer", "path": "0_x"}]'), "no such folder"),
    (lambda f: (f / "modules.json").write_text("{}"), "must hold a list of modules"),
    (lambda f: change(f / "1_Pooling/config.json", word_embedding_dimension=64), "says the body gives 64.*gives 32"),
    (lambda f: change(f / "1_Pooling/config.json", pooling_mode="middle"), "pooling_mode must be one or several of"),
    (lambda f: change(f / "1_Pooling/config.json", pooling_mode=[]), "pooling_mode must be one or several of"),
    (lambda f: (f / "1_Pooling/config.json").unlink(), "has no config.json"),
    (lambda f: change(f / "sentence_bert_config.json", max_seq_length="long"), "max_seq_length must be a positive"),
    (lambda f: change(f / "sentence_bert_config.json", transformer_task="fill-mask"), "feature-extraction"),
    (lambda f: change(f / "config_sentence_transformers.json", prompts=["a"]), "must map names to texts"),
    (lambda f: change(f / "config_sentence_transformers.json", default_prompt_name="q"), "not among the prompts"),
    (lambda f: change(f / "config_sentence_transformers.json", similarity_fn_name="near"), "must be one of cosine"),
    (lambda f: change(f / "config_sentence_transformers.json", truncate_dim=0), "truncate_dim must be"),
    (lambda f: dense(f, in_features=31), "in_features is 31, but the module before it gives 32"),
    (lambda f: dense(f, out_features=9), r"shape \[8, 32\], but config.json asks for \[9, 32\]"),
    (lambda f: dense(f, module_input_name="token_embeddings"), "only over 'sentence_embedding'"),
    (lambda f: dense(f, activation_function="mine.Swirl"), "activation 'Swirl' is not known"),
    (lambda f: dense(f, use_residual=True), "use_residual"),
]  # fmt: skip


@pytest.mark.parametrize(("break_it", "message"), CASES, ids=[message[:40] for _, message in CASES])
def test_what_is_wrong_is_said(old_layout: Any, break_it: Callable[[Path], object], message: str) -> None:
    folder = old_layout()
    break_it(folder)
    with pytest.raises(ModelError, match=f"(?s){message}"):
        read_bi(folder)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model folder"):
        read_bi(tmp_path / "none")


def test_weights_in_other_files(old_layout: Any) -> None:
    """Shards, an old pickle, and names with a prefix hold the same model."""
    folder = old_layout()
    state = weights(folder)
    wanted = read_bi(folder).body.state_dict()
    names = sorted(state)
    (folder / "model.safetensors").unlink()
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in shards.items():
        safetensors.torch.save_file({name: state[name] for name in part}, folder / file)
    table = {name: file for file, part in shards.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    same(read_bi(folder).body.state_dict(), wanted)
    (folder / "model.safetensors.index.json").unlink()
    old_names = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor for name, tensor in state.items()
    }
    torch.save(old_names | {"cls.predictions.bias": torch.zeros(3)}, folder / "pytorch_model.bin")
    again = read_bi(folder)
    same(again.body.state_dict(), wanted)
    assert sorted(again.leftover) == ["pooler.dense.bias", "pooler.dense.weight"]
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    same(read_bi(folder).body.state_dict(), wanted)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_no_modules_means_mean_pooling_and_a_note(bodies: Any) -> None:
    parts = read_bi(bodies("bert"))
    assert parts.pooling.modes == ("mean",)
    assert len(parts.notes) == 1
    assert "mean pooling is assumed" in parts.notes[0]
    assert parts.tokenizer.max_length == 40
    asked = read_bi(bodies("bert"), pooling="cls")
    assert (asked.pooling.modes, asked.notes) == (("cls",), [])


def test_asked_pooling_wins_and_is_noted(old_layout: Any) -> None:
    folder = old_layout()
    assert read_bi(folder, pooling=["cls", "max"]).pooling.modes == ("cls", "max")
    assert "saved with mean" in read_bi(folder, pooling="cls").notes[0]
    assert read_bi(folder, pooling="mean").notes == []
    with pytest.raises(InputError, match="pooling must be one or several"):
        read_bi(folder, pooling="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize(("family", "positions"), [("bert", 40), ("roberta", 40), ("modernbert", 40)])
def test_length_is_capped_by_positions(old_layout: Any, family: str, positions: int) -> None:
    folder = old_layout(family, max_length=512)
    parts = read_bi(folder)
    assert parts.tokenizer.max_length == positions
    assert "max_seq_length 512 is more than the model's 40 positions" in parts.notes[0]
    assert read_bi(folder, max_length=12).tokenizer.max_length == 12
    with pytest.raises(InputError, match="at most 40"):
        read_bi(folder, max_length=41)


def test_length_from_the_tokenizer_where_it_is_not_said(old_layout: Any) -> None:
    folder = old_layout(max_length=None)
    assert read_bi(folder).tokenizer.max_length == 40
    change(folder / "tokenizer_config.json", model_max_length=18)
    assert read_bi(folder).tokenizer.max_length == 18
    assert read_bi(folder).notes == []


def test_old_names_of_the_length_file(old_layout: Any) -> None:
    folder = old_layout()
    (folder / "sentence_bert_config.json").rename(folder / "sentence_xlm-roberta_config.json")
    assert read_bi(folder).tokenizer.max_length == 24


def test_body_in_a_folder_of_its_own(old_layout: Any) -> None:
    folder = old_layout()
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file() and path.name != "modules.json":
            path.rename(inner / path.name)
    entries = json.loads((folder / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(entries[::-1]))
    assert read_bi(folder).tokenizer.max_length == 24


def test_cross_encoders_and_dropout_are_noted(old_layout: Any) -> None:
    folder = old_layout()
    modules(folder, "a.Transformer", "a.Pooling", "a.Dropout")
    shutil.copytree(folder / "1_Pooling", folder / "1_x")
    assert "Dropout" in read_bi(folder).notes[0]
    modules(folder, "a.Transformer")
    change(folder / "config_sentence_transformers.json", model_type="CrossEncoder")
    notes = " ".join(read_bi(folder).notes)
    assert "CrossEncoder" in notes
    assert "mean pooling is assumed" in notes


def test_finite_but_huge_weights_are_let_through(old_layout: Any) -> None:
    """A sum that overflows is no sign of a broken weight."""
    folder = old_layout()
    state = weights(folder)
    state["pooler.dense.weight"].fill_(3e38)
    save(folder, state)
    assert torch.isfinite(read_bi(folder).leftover["pooler.dense.weight"]).all()


def test_weights_are_copies_of_the_file(old_layout: Any) -> None:
    """A file rewritten in place must not change a model that was read from it."""
    folder = old_layout()
    parts = read_bi(folder)
    before = parts.body.embeddings.word.weight.clone()
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(0)
    assert torch.equal(parts.body.embeddings.word.weight, before)
