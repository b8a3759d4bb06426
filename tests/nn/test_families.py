"""Families: names of weights both ways, and which config.json is read, refused or left to `transformers`."""

from __future__ import annotations

import pytest
import torch

from munjang.errors import ModelError
from munjang.nn.families import FAMILIES, export_weights, family_of, import_weights, standard_head
from support import bodies


@pytest.mark.parametrize("case", bodies.CASES)
def test_weights_round_trip(case: str) -> None:
    model = bodies.theirs(case)
    encoder = bodies.ours(model)
    family = family_of(model.config.to_dict())
    assert family is not None
    names = family.weight_names(encoder.config)
    assert set(names) == set(encoder.state_dict())
    back = export_weights(encoder.state_dict(), names)
    original = model.state_dict()
    assert set(back) == {name for name in original if not name.startswith("pooler")}
    for name, tensor in back.items():
        assert torch.equal(tensor, original[name]), name
    assert family.architecture == type(model).__name__


def test_every_family_has_a_case() -> None:
    """A new family is compared with transformers by the tests that run over `bodies.CASES`."""
    assert {bodies.ours(bodies.theirs(case)).config.family for case in bodies.CASES} == set(FAMILIES)


def test_prefixes_and_old_names_are_understood() -> None:
    model = bodies.theirs("bert")
    encoder = bodies.ours(model)
    names = FAMILIES["bert"].weight_names(encoder.config)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {}
    for name, tensor in model.state_dict().items():
        for modern, former in old.items():
            name = name.replace(modern, former)
        state[f"0.auto_model.{name}"] = tensor
    ours, unused = import_weights(state, names)
    assert all(torch.equal(ours[name], tensor) for name, tensor in encoder.state_dict().items())
    assert set(unused) == {"pooler.dense.weight", "pooler.dense.bias"}


def test_missing_weights_are_named() -> None:
    model = bodies.theirs("bert")
    names = FAMILIES["bert"].weight_names(bodies.ours(model).config)
    state = model.state_dict()
    del state["encoder.layer.1.attention.self.key.bias"]
    with pytest.raises(ModelError, match=r"the folder lacks 1 .*'encoder.layer.1.attention.self.key.bias'"):
        import_weights(state, names, source="the folder")
    with pytest.raises(ModelError, match="has no word embeddings"):
        import_weights({"classifier.weight": torch.zeros(2)}, names)


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("bert", {"hidden_size": "wide"}, "'hidden_size' must be a whole number"),
        ("bert", {"hidden_size": None}, "lacks 'hidden_size'"),
        ("bert", {"num_attention_heads": 5}, "not a multiple of 5 attention heads"),
        ("bert", {"hidden_act": "mish"}, "activation 'mish' is not known"),
        ("bert", {"hidden_act": ["gelu"]}, "activation .* is not known"),
        ("bert", {"layer_norm_eps": "small"}, "'layer_norm_eps' must be a number"),
        ("bert", {"num_hidden_layers": 1001}, "'num_hidden_layers' must be a whole number from 1 to 1,000"),
        ("albert", {"num_hidden_groups": 4}, "num_hidden_groups must be 1..3"),
        ("mpnet", {"relative_attention_num_buckets": 16}, "at least 32"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types must be a list of 4"),
        ("modernbert", {"layer_types": ["full_attention"] * 3 + ["none"]}, "layer_types may be .* got 'none'"),
        ("modernbert", {"layer_types": [["full_attention"]] * 4}, "layer_types may be"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type 'yarn' is not known"),
    ],
)
def test_inconsistent_configs_are_refused(family: str, change: dict[str, object], message: str) -> None:
    config = {**bodies.theirs(family).config.to_dict(), **change}
    with pytest.raises(ModelError, match=message):
        FAMILIES[family].read(config)


def test_what_the_packed_encoder_does_not_support_is_left_to_transformers() -> None:
    assert family_of({"model_type": "deberta-v2"}) is None
    assert family_of({}) is None
    assert family_of({"model_type": "bert", "position_embedding_type": "relative_key"}) is None
    assert family_of({"model_type": "bert", "is_decoder": True}) is None
    assert family_of({"model_type": "bert", "add_cross_attention": True}) is None


def test_heads_of_sequence_classifiers() -> None:
    assert standard_head({"model_type": "t5"}) is None
    bert = standard_head({"model_type": "bert"})
    assert bert is not None
    assert bert.saved_name("dense.weight") == "bert.pooler.dense.weight"
    assert bert.saved_name("out.bias") == "classifier.bias"
    deberta = standard_head({"model_type": "deberta-v2", "pooler_hidden_act": "tanh"})
    assert deberta is not None
    assert (deberta.shape.activation, deberta.architecture) == ("tanh", "DebertaV2ForSequenceClassification")
    with pytest.raises(ModelError, match="classifier_pooling must be 'cls' or 'mean'"):
        standard_head({"model_type": "modernbert", "classifier_pooling": "max"})
    with pytest.raises(ModelError, match="classifier_activation: activation 'mish' is not known"):
        standard_head({"model_type": "modernbert", "classifier_activation": "mish"})
