"""LoRA: nothing changes at first, only adapters learn, and merged they are the model."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import munjang
from munjang.errors import InputError, MissingExtraError, ModelError
from munjang.nn.encoder import Encoder
from munjang.training.lora import LoraSettings, apply_lora, describe_lora, has_lora, merge_lora, merged_copy
from munjang.training.trainee import set_dropout
from support.bodies import ours, pack, random_batch, theirs

BATCH = pack(*random_batch([3, 5, 5, 9]))


@pytest.fixture(params=["bert", "albert", "mpnet", "modernbert", "electra"])
def body(request: pytest.FixtureRequest) -> Encoder:
    return ours(theirs(request.param))


def train(body: Encoder, steps: int = 3) -> None:
    parameters = [parameter for parameter in body.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        body(BATCH).square().mean().backward()
        optimiser.step()


def state(body: Encoder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in body.state_dict().items()}


def test_from_putting_in_to_merging(body: Encoder) -> None:
    before, weights = body(BATCH).detach(), state(body)
    trained = apply_lora(body, LoraSettings(rank=4))
    assert has_lora(body)
    assert 0 < trained < sum(parameter.numel() for parameter in body.parameters()) / 2
    torch.testing.assert_close(body(BATCH).detach(), before, rtol=0, atol=1e-5)  # B is zero
    adapted = state(body)

    train(body)
    changed = {name for name, value in body.state_dict().items() if not torch.equal(value, adapted[name])}
    assert changed
    assert changed == {name for name in adapted if ".lora_" in name}
    after = body(BATCH).detach()
    assert (after - before).abs().max() > 1e-3

    copied = merged_copy(body)
    assert has_lora(body)
    merge_lora(body)
    assert not has_lora(body)
    assert list(body.state_dict()) == list(weights)
    assert all(parameter.requires_grad for parameter in body.parameters())
    torch.testing.assert_close(body(BATCH).detach(), after, rtol=0, atol=1e-5)
    with torch.no_grad():  # the way that reuses buffers
        torch.testing.assert_close(body(BATCH), after, rtol=0, atol=1e-5)
    torch.testing.assert_close(copied.state_dict(), body.state_dict())
    moved = {name for name, value in body.state_dict().items() if not torch.equal(value, weights[name])}
    assert {name.rsplit(".", 2)[1] for name in moved} == {"qkv", "out", "up", "down"}


def test_adapters_may_be_put_in_again_after_merging() -> None:
    body = ours(theirs("bert"))
    apply_lora(body, LoraSettings(targets=("qkv",)))
    with pytest.raises(InputError, match="already"):
        apply_lora(body)
    merge_lora(body)
    before = body(BATCH).detach()
    apply_lora(body, LoraSettings(targets=("up", "down"), dropout=0.2))
    assert torch.equal(body(BATCH).detach(), before)  # in evaluation there is no dropout
    assert not any("qkv.lora" in name for name, _ in body.named_parameters())


def test_the_seed_decides_and_other_random_numbers_stay() -> None:
    states = []
    for seed in (1, 1, 2):
        body = ours(theirs("bert"))
        torch.manual_seed(5)
        apply_lora(body, LoraSettings(seed=seed))
        assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(5))
        states.append(torch.cat([value.flatten() for name, value in body.state_dict().items() if "lora_A" in name]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_a_trained_model_is_an_ordinary_model(minilm_path: Path, tmp_path: Path) -> None:
    texts = ["A cat sits on the mat.", "비가 온다", "It rains"]
    model = munjang.load(minilm_path, device="cpu", dtype="float32")
    plain = model.encode(texts)
    body = model.parts.body
    apply_lora(body, LoraSettings(targets=("qkv", "down")))
    model.refresh()
    assert np.array_equal(model.encode(texts), plain)
    with torch.no_grad():
        for name, parameter in body.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.02, generator=torch.Generator().manual_seed(1))
    model.refresh()
    adapted = model.encode(texts)
    assert np.abs(adapted - plain).max() > 1e-3
    merge_lora(body)
    model.refresh()
    assert np.allclose(model.encode(texts), adapted, atol=1e-5)
    model.save(tmp_path / "model")
    assert np.allclose(
        munjang.load(tmp_path / "model", device="cpu", dtype="float32").encode(texts), adapted, atol=1e-5
    )
    peer = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert np.allclose(peer.encode(texts), adapted, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank must be 1"),
        ({"alpha": 0}, "alpha must be above 0"),
        ({"dropout": 1.0}, "below 1"),
        ({"targets": ()}, "at least one"),
    ],
)
def test_settings_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LoraSettings(**arguments)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    body = ours(theirs("bert"))
    with pytest.raises(InputError, match=r"query.*it has down, out, qkv, up"):
        apply_lora(body, LoraSettings(targets=("query", "out")))
    with pytest.raises(InputError, match="no LoRA adapters"):
        merge_lora(body)
    assert not has_lora(merged_copy(body))
    apply_lora(body)
    next(value for name, value in body.named_parameters() if "lora_B" in name).data.fill_(float("nan"))
    with pytest.raises(ModelError, match="cannot be merged"):
        merge_lora(body)
    usual = builtins.__import__

    def without_peft(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("peft"):
            raise ImportError(name)
        return usual(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    with pytest.raises(MissingExtraError, match=r"munjang\[lora\]"):
        apply_lora(ours(theirs("bert")))


def test_dropout_of_the_run_leaves_that_of_the_adapters() -> None:
    body = ours(theirs("bert"))
    assert describe_lora(body) is None
    apply_lora(body, LoraSettings(rank=4, alpha=8, dropout=0.2))
    assert describe_lora(body) == {"factors": [2.0], "dropouts": [0.2]}
    before = set_dropout(body, 0.4)
    assert describe_lora(body) == {"factors": [2.0], "dropouts": [0.2]}
    assert body.layers[0].dropout.p == body.attention_dropout == 0.4
    assert len(before) == 2 + len(body.layers)  # the embeddings', every layer's, the attention's
