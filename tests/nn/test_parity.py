"""The proof of the packed encoder: every family gives the numbers that `transformers` gives, forwards and backwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules.pooling import Pooling as TheirPooling

from munjang.nn.families import family_of, from_theirs, to_theirs
from munjang.nn.pooling import MODES, Pooling
from support import bodies

BATCHES = {
    "mixed": [1, 2, 2, 7, 7, 7, 33, 60],
    "one": [19],
    "equal": [12] * 5,
    "unsorted": [9, 3, 9, 40, 3],
    "longest": [94, 94],
}
THEIR_NAMES = {"mean_sqrt_len": "mean_sqrt_len_tokens", "weighted_mean": "weightedmean", "last": "lasttoken"}


def _hidden(model: torch.nn.Module, ids: np.ndarray, lengths: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    table, mask = bodies.padded(ids, lengths, model.config.pad_token_id)
    return model(input_ids=table, attention_mask=mask).last_hidden_state, mask


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", bodies.CASES)
def test_hidden_states_and_every_pooling_agree(case: str, batch: str) -> None:
    model = bodies.theirs(case)
    encoder = bodies.ours(model)
    ids, lengths = bodies.random_batch(BATCHES[batch])
    with torch.inference_mode():
        expected, mask = _hidden(model, ids, lengths)
        packed = bodies.pack(ids, lengths)
        hidden = encoder(packed)
        assert (hidden - expected[mask.bool()]).abs().max() < 1e-5
        before = hidden.clone()
        for mode in MODES:
            pooling = TheirPooling(encoder.hidden, pooling_mode=THEIR_NAMES.get(mode, mode))
            theirs = pooling({"token_embeddings": expected.clone(), "attention_mask": mask})["sentence_embedding"]
            ours = Pooling((mode,))(hidden, packed)
            assert (ours - theirs).abs().max() < 1e-5, mode
        assert torch.equal(before, hidden), "pooling changed the hidden states"


@pytest.mark.parametrize("case", bodies.CASES)
def test_gradients_agree(case: str) -> None:
    model = bodies.theirs(case)
    encoder = bodies.ours(model)
    ids, lengths = bodies.random_batch(BATCHES["mixed"])
    expected, mask = _hidden(model, ids, lengths)
    target = torch.from_numpy(np.random.default_rng(1).standard_normal((int(lengths.sum()), encoder.hidden))).float()
    (expected[mask.bool()] * target).mean().backward()
    (encoder(bodies.pack(ids, lengths)) * target).mean().backward()
    family = family_of(model.config.to_dict())
    names = family.names(encoder.config)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    theirs, _ = from_theirs(gradients, names)
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad - theirs[name]).abs().max() < 1e-4, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("case", bodies.CASES)
def test_weights_survive_the_way_there_and_back(case: str) -> None:
    model = bodies.theirs(case)
    encoder = bodies.ours(model)
    family = family_of(model.config.to_dict())
    back = to_theirs(encoder.state_dict(), family.names(encoder.config))
    original = model.state_dict()
    assert set(back) == {name for name in original if not name.startswith("pooler")}
    for name, tensor in back.items():
        assert torch.equal(tensor, original[name]), name


@pytest.mark.parametrize("case", ["bert", "mpnet", "modernbert", "albert"])
def test_company_does_not_matter(case: str) -> None:
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


def test_concatenated_poolings_keep_their_order() -> None:
    encoder = bodies.ours(bodies.theirs("bert"))
    ids, lengths = bodies.random_batch([3, 8])
    packed = bodies.pack(ids, lengths)
    with torch.inference_mode():
        hidden = encoder(packed)
        both = Pooling(("max", "cls"))(hidden, packed)
        assert torch.equal(both, torch.cat([Pooling(("max",))(hidden, packed), Pooling(("cls",))(hidden, packed)], 1))


@pytest.mark.parametrize("mode", MODES)
def test_prompt_tokens_are_left_out_as_the_peer_does(mode: str) -> None:
    model = bodies.theirs("bert")
    encoder = bodies.ours(model)
    ids, lengths = bodies.random_batch([6, 9, 9])
    with torch.inference_mode():
        expected, mask = _hidden(model, ids, lengths)
        pooling = TheirPooling(encoder.hidden, pooling_mode=THEIR_NAMES.get(mode, mode), include_prompt=False)
        theirs = pooling({"token_embeddings": expected, "attention_mask": mask, "prompt_length": 4})
        packed = bodies.to_packed(ids, lengths, torch.device("cpu"), prompt_tokens=4)
        ours = Pooling((mode,), include_prompt=False)(encoder(packed), packed)
        assert (ours - theirs["sentence_embedding"]).abs().max() < 1e-5
