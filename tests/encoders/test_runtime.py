"""The runtime: batches that do not fit are halved; the master weights stay as they were read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import munjang
from munjang.encoders.runtime import BiRuntime, CallOptions, _fits
from munjang.errors import InputError
from munjang.text.packing import Batch, pack

TEXTS = [f"text {i} " + "word " * i for i in range(9)]


@pytest.fixture(scope="module")
def model(minilm_path: Path) -> munjang.BiEncoder:
    return munjang.load(minilm_path, device="cpu", dtype="float32")


def test_a_batch_that_does_not_fit_is_halved(model: munjang.BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.encode(TEXTS)
    body, seen = model.parts.body, []
    forward = type(body).forward

    def small_memory(self: torch.nn.Module, batch: object) -> torch.Tensor:
        seen.append(batch.total)
        if batch.total > 32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch)

    monkeypatch.setattr(type(body), "forward", small_memory)
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-6
    assert max(seen) > 64
    monkeypatch.setattr(type(body), "forward", lambda self, batch: (_ for _ in ()).throw(torch.OutOfMemoryError("x")))
    with pytest.raises(torch.OutOfMemoryError):
        model.encode(["one"])


def test_batches_on_the_cpu_have_few_sizes(model: munjang.BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every new size makes oneDNN compile and keep primitives, and the allocator keep blocks."""
    body, sizes = model.parts.body, []
    forward = type(body).forward

    def noting(self: torch.nn.Module, batch: object) -> torch.Tensor:
        sizes.append(batch.total)
        return forward(self, batch)

    monkeypatch.setattr(type(body), "forward", noting)
    texts = [["word " * words, "another text"] for words in range(1, 200, 2)]
    pairs = [model.encode(pair) for pair in texts]
    tokens = [len(model.tokenizer.encode(pair).ids) for pair in texts]
    assert len(set(tokens)) > 95
    assert len(set(sizes)) <= 32
    assert all(0 <= size - total <= max(7, total / 16) for size, total in zip(sizes, tokens, strict=True))
    together = model.encode([pair[0] for pair in texts])
    assert np.abs(np.stack([pair[0] for pair in pairs]) - together).max() < 1e-5


def test_ids_are_checked_before_the_device_sees_them(model: munjang.BiEncoder) -> None:
    runtime = BiRuntime(model.parts, torch.device("cpu"), torch.float32)

    def batch(ids: list[int]) -> Batch:
        return Batch(np.array(ids, np.int32), np.array([len(ids)], np.int32), np.array([0]))

    with pytest.raises(InputError, match=r"token ids must be 0\.\.30521"):
        runtime.forward(batch([101, 30_522, 102]), CallOptions())
    with pytest.raises(InputError, match="got -1"):
        runtime.forward(batch([101, -1, 102]), CallOptions())
    with pytest.raises(InputError, match="at most 512 tokens"):
        runtime.forward(batch([101] * 513), CallOptions())


def test_the_master_weights_stay_float32(minilm_path: Path) -> None:
    model = munjang.load(minilm_path, device="cpu", dtype="bfloat16")
    assert {p.dtype for p in model.parts.body.parameters()} == {torch.float32}
    runtime = model.runtime
    (batch,) = pack(model.tokenizer.encode(TEXTS), 10_000)
    with torch.inference_mode():
        assert runtime.forward(batch, CallOptions()).dtype == torch.float32


def test_weights_too_large_for_float16_are_noticed(minilm_path: Path) -> None:
    from munjang import checkpoint

    parts = checkpoint.read_bi(minilm_path)
    assert BiRuntime(parts, torch.device("cpu"), torch.float16).dtype == torch.float16
    with torch.no_grad():
        parts.body.layers[0].mlp.up.weight[0, 0] = 1e6
    assert BiRuntime(parts, torch.device("cpu"), torch.float16).dtype == torch.float32


def test_whether_weights_fit_is_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bool() of a tensor makes the host wait for the device."""
    body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    body.register_parameter("nothing", torch.nn.Parameter(torch.zeros(0)))
    looks: list[int] = []
    usual = torch.Tensor.__bool__

    def counted(tensor: torch.Tensor) -> bool:
        looks.append(1)
        return usual(tensor)

    monkeypatch.setattr(torch.Tensor, "__bool__", counted)
    assert _fits(body, torch.float16)
    assert len(looks) == 1
    for value in (65_505.0, -1e30, float("nan"), float("inf")):
        with torch.no_grad():
            body[1].weight[1, 2] = value
        assert not _fits(body, torch.float16)
        assert _fits(body, torch.bfloat16)
    with torch.no_grad():
        body[1].weight[1, 2] = -65_504.0
    assert _fits(body, torch.float16)
    assert _fits(torch.nn.Identity(), torch.float16)
