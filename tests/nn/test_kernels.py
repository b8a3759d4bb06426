"""The CUDA paths beside the CPU: kernels for inference, varlen attention and groups for training."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from munjang.nn.encoder import AttentionPlan, attend
from munjang.nn.packed import Packed, to_packed
from munjang.nn.pooling import POOLING_MODES, pool
from support import bodies

pytestmark = pytest.mark.gpu

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BATCHES = {"mixed": [1, 2, 2, 7, 7, 7, 33, 60], "longest": [94, 94], "many": [19] * 300, "one": [1]}


def _batch(lengths: list[int], device: torch.device) -> Packed:
    return to_packed(*bodies.random_batch(lengths), device)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", bodies.CASES)
def test_inference_agrees_with_the_cpu(case: str, batch: str) -> None:
    encoder = bodies.ours(bodies.theirs(case))
    on_cpu, on_cuda = _batch(BATCHES[batch], CPU), _batch(BATCHES[batch], CUDA)
    with torch.inference_mode():
        expected = encoder(on_cpu)
        for dtype, tolerance in ((torch.float32, 2e-5), (torch.float16, 2e-2), (torch.bfloat16, 1.2e-1)):
            hidden = copy.deepcopy(encoder).to(CUDA, dtype)(on_cuda)
            assert (hidden.float().cpu() - expected).abs().max() < tolerance, dtype
            for mode in POOLING_MODES:
                for skip in (0, 3):
                    ours, theirs = pool(hidden, on_cuda, mode, skip), pool(hidden.cpu(), on_cpu, mode, skip)
                    # A sequence of prompt tokens alone has a maximum of -inf, here as there.
                    assert torch.allclose(ours.cpu(), theirs, atol=1e-4, rtol=0), (mode, skip)


@pytest.mark.parametrize("case", bodies.CASES)
def test_training_agrees_with_the_cpu(case: str) -> None:
    encoder = bodies.ours(bodies.theirs(case))
    on_cuda = copy.deepcopy(encoder).to(CUDA)
    target = torch.randn(sum(BATCHES["mixed"]), encoder.hidden)
    (encoder(_batch(BATCHES["mixed"], CPU)) * target).mean().backward()
    (on_cuda(_batch(BATCHES["mixed"], CUDA)) * target.to(CUDA)).mean().backward()
    for (name, parameter), other in zip(encoder.named_parameters(), on_cuda.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        assert (parameter.grad - other.grad.cpu()).abs().max() < 1e-4, name


@pytest.mark.parametrize("case", ["bert", "mpnet", "modernbert"])
def test_training_in_half_precision_has_gradients(case: str) -> None:
    encoder = bodies.ours(bodies.theirs(case)).to(CUDA, torch.bfloat16)
    hidden = encoder(_batch(BATCHES["mixed"], CUDA))
    hidden.float().pow(2).mean().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("head_size", [24, 32, 64, 128])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_of_any_shape(head_size: int, window: int, biased: bool) -> None:
    lengths = [*sorted(np.random.default_rng(0).integers(1, 400, 20).tolist()), 512]
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, 2, head_size, generator=generator)
    table = torch.randn(2, 2 * 512 - 1, generator=generator) if biased else None
    plan = AttentionPlan(_batch(lengths, CPU), table, 0.0)
    other = AttentionPlan(_batch(lengths, CUDA), None if table is None else table.to(CUDA), 0.0)
    with torch.inference_mode():
        expected = attend(qkv, plan, window)
        assert (attend(qkv.to(CUDA), other, window).cpu() - expected).abs().max() < 1e-4
        half = attend(qkv.to(CUDA, torch.float16), other, window).float().cpu()
        assert (half - expected).abs().max() < 2e-2


def test_more_sequences_than_one_varlen_call_takes() -> None:
    encoder = bodies.ours(bodies.theirs("bert")).to(CUDA, torch.float16)
    with torch.inference_mode():
        hidden = encoder(_batch([2] * 70_000, CUDA))
    assert torch.isfinite(hidden).all()
