"""Packed batches: places, groups and the checks before the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from munjang.errors import InputError, ModelError
from munjang.nn import device as devices
from munjang.nn.attention import AttentionPlan, _attend_groups, _attend_padded, relative_buckets
from munjang.nn.families import family_of
from munjang.nn.packed import check_ids, to_packed
from munjang.nn.pooling import Pooling
from support import bodies

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_groups_tile_the_batch(lengths: list[int]) -> None:
    packed = to_packed(np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32), CPU)
    spread = [group.length for group in packed.groups for _ in range(group.sequences)]
    assert spread == lengths
    starts = [group.start for group in packed.groups]
    ends = [group.start + group.sequences * group.length for group in packed.groups]
    assert starts == [0, *ends[:-1]]
    assert ends[-1] == sum(lengths)
    assert packed.positions.tolist() == [place for length in lengths for place in range(length)]
    assert packed.offsets.tolist() == [0, *np.cumsum(lengths).tolist()]


def test_segments_are_checked() -> None:
    config = family_of({"model_type": "roberta"}).read(bodies.theirs("roberta").config.to_dict())
    ids, lengths = bodies.random_batch([4])
    check_ids(ids, lengths, config, np.zeros(4, np.int32))
    with pytest.raises(InputError, match="segment ids must be below 1"):
        check_ids(ids, lengths, config, np.array([0, 0, 1, 1]))
    assert config.max_positions == 94, "two of RoBERTa's 96 rows are never used"
    with pytest.raises(InputError, match="at most 94 tokens"):
        check_ids(*bodies.random_batch([95]), config)


def test_relative_buckets_are_mpnets() -> None:
    distance = torch.arange(-600, 601)
    assert torch.equal(relative_buckets(distance, 32), MPNetEncoder.relative_position_bucket(distance))


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 99))
def test_padded_attention_is_attention_in_groups(lengths: list[int], seed: int) -> None:
    """What a GPU trains with where there is a relative bias: the same answers and the same gradients."""
    packed = to_packed(np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32), CPU)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for attend in (_attend_groups, _attend_padded):
        generator.manual_seed(seed)
        qkv = torch.randn(sum(lengths), 3, 2, 4, generator=generator, requires_grad=True)
        table = torch.randn(2, 2 * packed.longest - 1, generator=generator, requires_grad=True)
        plan = AttentionPlan(packed, table, 0.0)
        more = (0,) if attend is _attend_groups else ()
        out = attend(qkv, plan, *more) + attend(2 * qkv, plan, *more)  # two layers, which share the plan
        (out * torch.randn(out.shape, generator=generator)).sum().backward()
        found.append((out, qkv.grad, table.grad))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "wide"}, "'hidden_size' must be a whole number"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"num_attention_heads": 5}, "not a multiple of 5 attention heads"),
        ({"hidden_act": "mish"}, "activation 'mish' is not known"),
        ({"layer_norm_eps": "small"}, "'layer_norm_eps' must be a number"),
    ],
)
def test_configs_that_make_no_sense_are_named(change: dict[str, object], message: str) -> None:
    config = {**bodies.theirs("bert").config.to_dict(), **change}
    with pytest.raises(ModelError, match=message):
        family_of(config).read(config)


def test_what_the_packed_encoder_does_not_do_is_left_to_transformers() -> None:
    assert family_of({"model_type": "deberta-v2"}) is None
    assert family_of({"model_type": "bert", "position_embedding_type": "relative_key"}) is None
    assert family_of({"model_type": "bert", "is_decoder": True}) is None


def test_pooling_modes_are_checked() -> None:
    with pytest.raises(InputError, match="pooling must be one or several of"):
        Pooling(("median",))
    with pytest.raises(InputError, match="pooling must be one or several of"):
        Pooling(())


def test_the_container_quota_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cgroup_quota", lambda: 0.5)
    devices.cpu_cores.cache_clear()
    assert devices.cpu_cores() == 1
    monkeypatch.setattr(devices, "_cgroup_quota", lambda: None)
    devices.cpu_cores.cache_clear()
    assert devices.cpu_cores() >= 1
    devices.cpu_cores.cache_clear()
