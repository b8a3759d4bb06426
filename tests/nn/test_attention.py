"""Attention: relative buckets, and the implementations that GPUs train with, compared on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from munjang.nn.encoder import AttentionPlan, attend_groups, attend_padded, relative_buckets
from munjang.nn.packed import to_packed


def test_relative_buckets_are_those_of_mpnet() -> None:
    distance = torch.arange(-600, 601)
    assert torch.equal(relative_buckets(distance, 32), MPNetEncoder.relative_position_bucket(distance))


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 99))
def test_padded_attention_equals_attention_in_groups(lengths: list[int], seed: int) -> None:
    """Padded attention is what a GPU trains with if there is a relative bias: the same results and gradients."""
    packed = to_packed(np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    results = []
    for padded in (False, True):
        generator.manual_seed(seed)
        qkv = torch.randn(sum(lengths), 3, 2, 4, generator=generator, requires_grad=True)
        table = torch.randn(2, 2 * packed.longest - 1, generator=generator, requires_grad=True)
        plan = AttentionPlan(packed, table, 0.0)
        layers = [attend_padded(x, plan) if padded else attend_groups(x, plan, 0) for x in (qkv, 2 * qkv)]
        out = layers[0] + layers[1]  # two layers, which share the plan
        (out * torch.randn(out.shape, generator=generator)).sum().backward()
        results.append((out, qkv.grad, table.grad))
    for grouped, other in zip(*results, strict=True):
        assert torch.allclose(grouped, other, atol=1e-4)
