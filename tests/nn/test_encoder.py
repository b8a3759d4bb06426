"""Every family computes what `transformers` computes, forwards and backwards, independently of the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from munjang.nn.families import family_of, import_weights
from munjang.nn.pooling import Pooling
from support import bodies

BATCHES = {
    "mixed": [1, 2, 2, 7, 7, 7, 33, 60],
    "one": [19],
    "equal": [12] * 5,
    "unsorted": [9, 3, 9, 40, 3],
    "longest": [94, 94],
}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", bodies.CASES)
def test_hidden_states_agree(case: str, batch: str) -> None:
    model = bodies.theirs(case)
    ids, lengths = bodies.random_batch(BATCHES[batch])
    with torch.inference_mode():
        expected, mask = bodies.hidden_states(model, ids, lengths)
        hidden = bodies.ours(model)(bodies.pack(ids, lengths))
    assert (hidden - expected[mask.bool()]).abs().max() < 1e-5


@pytest.mark.parametrize("case", bodies.CASES)
def test_gradients_agree(case: str) -> None:
    model = bodies.theirs(case)
    encoder = bodies.ours(model)
    ids, lengths = bodies.random_batch(BATCHES["mixed"])
    expected, mask = bodies.hidden_states(model, ids, lengths)
    target = torch.from_numpy(np.random.default_rng(1).standard_normal((int(lengths.sum()), encoder.hidden))).float()
    (expected[mask.bool()] * target).mean().backward()
    (encoder(bodies.pack(ids, lengths)) * target).mean().backward()
    family = family_of(model.config.to_dict())
    assert family is not None
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    theirs, _ = import_weights(gradients, family.weight_names(encoder.config))
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad - theirs[name]).abs().max() < 1e-4, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("case", ["bert", "mpnet", "modernbert", "albert"])
def test_vectors_do_not_depend_on_the_batch(case: str) -> None:
    """A sequence has the same vector alone, among others, and in another order."""
    encoder = bodies.ours(bodies.theirs(case))
    ids, lengths = bodies.random_batch([5, 5, 17, 30, 30, 44])
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    with torch.inference_mode():
        together = Pooling()(encoder(bodies.pack(ids, lengths)), bodies.pack(ids, lengths))
        for order in ([3, 1], [5, 4, 3, 2, 1, 0], [2]):
            batch = bodies.pack(np.concatenate([rows[i] for i in order]), lengths[order])
            apart = Pooling()(encoder(batch), batch)
            assert (apart - together[order]).abs().max() < 1e-6


@pytest.mark.parametrize("case", ["bert", "modernbert"])
def test_initialization_is_seeded(case: str) -> None:
    first, second = (bodies.ours(bodies.theirs(case)) for _ in range(2))
    for encoder in (first, second):
        encoder.initialise(torch.Generator().manual_seed(3))
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert abs(first.embeddings.word.weight.detach().std().item() - first.config.initializer_range) < 0.002


@pytest.mark.parametrize("activation", ["gelu_new", "silu", "relu"])
def test_activations_agree(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arguments = bodies.CASES["bert"]
    monkeypatch.setitem(bodies.CASES, "other", (name, {**arguments, "hidden_act": activation}))
    model = bodies.theirs("other")
    ids, lengths = bodies.random_batch([3, 9])
    with torch.inference_mode():
        expected, mask = bodies.hidden_states(model, ids, lengths)
        assert (bodies.ours(model)(bodies.pack(ids, lengths)) - expected[mask.bool()]).abs().max() < 1e-5
