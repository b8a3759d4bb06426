"""Heads: classifiers of every family against `transformers`, on pairs with segments; Dense, Normalize, VectorNorm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from munjang.errors import ModelError
from munjang.nn.families import family_of, import_weights, standard_head
from munjang.nn.heads import (
    DENSE_ACTIVATIONS,
    SBERT,
    ClassifierHead,
    Dense,
    HeadShape,
    Normalize,
    VectorNorm,
    apply_heads,
)
from munjang.nn.packed import to_packed
from support import bodies

LENGTHS = [3, 5, 5, 12, 12, 40, 60]
EXTRA: dict[str, tuple[str, dict[str, Any]]] = {
    "modernbert-mean": (
        "modernbert", {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True},
    ),
    "modernbert-tanh": ("modernbert", {"classifier_activation": "tanh"}),
}  # fmt: skip


def classifier(case: str, labels: int) -> transformers.PreTrainedModel:
    base, extra = EXTRA.get(case, (case, {}))
    name, arguments = bodies.CASES[base]
    torch.manual_seed(5)
    config = getattr(transformers, name)(**arguments, **extra, num_labels=labels)
    model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key.lower() and key.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            else:
                parameter.normal_(0.0, 0.15)
    return model


def ours(model: transformers.PreTrainedModel) -> tuple[torch.nn.Module, ClassifierHead]:
    """The packed encoder and our head with the same weights."""
    encoder = bodies.ours(model)
    config = model.config.to_dict()
    standard = standard_head(config)
    _, left = import_weights(model.state_dict(), family_of(config).weight_names(encoder.config))
    head = ClassifierHead(standard.shape, encoder.hidden, model.config.num_labels, dropout=standard.dropout)
    head.load_state_dict({name: left[standard.weight_name(name)] for name in head.state_dict()})
    return encoder, head.eval()


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("case", [*bodies.CASES, *EXTRA])
def test_logits_agree(case: str, labels: int) -> None:
    model = classifier(case, labels)
    encoder, head = ours(model)
    ids, lengths = bodies.random_batch(LENGTHS)
    table, mask = bodies.padded(ids, lengths, model.config.pad_token_id)
    extra, segments = {}, None
    if encoder.config.segments > 1:
        segments = np.concatenate([np.arange(n) >= n // 2 for n in LENGTHS]).astype(np.int32)
        extra["token_type_ids"] = bodies.padded(segments, lengths, 0)[0]
    with torch.inference_mode():
        expected = model(input_ids=table, attention_mask=mask, **extra).logits
        packed = to_packed(ids, lengths, torch.device("cpu"), segments=segments)
        logits = head(encoder(packed), packed)
    assert logits.shape == (len(LENGTHS), labels)
    assert expected.std() > 1e-3
    assert (logits - expected).abs().max() < 1e-5
    if segments is not None:
        plain = to_packed(ids, lengths, torch.device("cpu"))
        with torch.inference_mode():
            assert (head(encoder(plain), plain) - expected).abs().max() > 1e-4, "segments do not matter"


def test_dropout_agrees() -> None:
    """In training, the same random numbers drop the same values."""
    for case in ("electra", "bert", "roberta"):
        model = classifier(case, 2)
        _, head = ours(model)
        hidden = torch.randn(4, 32)
        packed = to_packed(np.zeros(4, np.int32), np.ones(4, np.int32), torch.device("cpu"))
        head.train()
        torch.manual_seed(0)
        logits = head(hidden, packed)
        torch.manual_seed(0)
        model.train()
        if case == "bert":
            expected = model.classifier(model.dropout(model.bert.pooler(hidden[:, None])))
        else:
            expected = model.classifier(hidden[:, None])
        assert torch.allclose(logits, expected, atol=1e-6), case


def test_a_head_computes_in_float32() -> None:
    head = ClassifierHead(SBERT, 8, 2).eval()
    packed = to_packed(np.zeros(5, np.int32), np.array([2, 3], np.int32), torch.device("cpu"))
    hidden = torch.randn(5, 8)
    expected = head(hidden, packed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(head(hidden, packed), expected)
    assert head(hidden.bfloat16(), packed).dtype == torch.float32


@pytest.mark.parametrize("shape", [SBERT, HeadShape(norm_eps=1e-5, norm_bias=True), HeadShape(dense=False)])
def test_initialization_is_seeded(shape: HeadShape) -> None:
    first, second = (ClassifierHead(shape, 16, 3) for _ in range(2))
    first.initialise(torch.Generator().manual_seed(3))
    second.initialise(torch.Generator().manual_seed(3))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert first.out.bias.abs().max() == 0
    second.initialise(torch.Generator().manual_seed(4))
    assert not torch.equal(first.out.weight, second.out.weight)


@pytest.mark.parametrize("name", DENSE_ACTIVATIONS)
def test_dense_is_a_linear_layer_and_the_activation_of_torch(name: str) -> None:
    dense, vectors = Dense(6, 4, activation=name), torch.randn(5, 6)
    expected = getattr(torch.nn, name)()(vectors @ dense.linear.weight.T + dense.linear.bias)
    assert torch.allclose(dense(vectors), expected, atol=1e-6)
    assert dense.dimension == 4


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(ModelError, match="'Mish' is not known; expected one of Tanh"):
        Dense(6, 4, activation="Mish")
    with pytest.raises(ModelError, match="must be one of gelu"):
        ClassifierHead(HeadShape("mish"), 6, 2)  # type: ignore[arg-type]


def test_heads_are_applied_in_order_and_truncated() -> None:
    dense, norm, vectors = Dense(6, 4), VectorNorm(4), torch.randn(3, 6)
    expected = torch.nn.functional.normalize(norm(dense(vectors)), dim=1)
    heads = torch.nn.ModuleList([dense, norm, Normalize()])
    assert torch.equal(apply_heads(heads, vectors), expected)
    assert torch.equal(apply_heads(heads, vectors, 3), expected[:, :3])
    assert torch.equal(apply_heads(heads, vectors, 9), expected)
    assert apply_heads(torch.nn.ModuleList([Normalize()]), torch.zeros(1, 4)).tolist() == [[0, 0, 0, 0]]
