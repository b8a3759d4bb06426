"""Every pooling mode against its definition and against sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules.pooling import Pooling as TheirPooling

from munjang.errors import InputError
from munjang.nn.pooling import POOLING_MODES, Pooling, PoolingMode, pool
from support import bodies

LENGTHS = [1, 2, 2, 7, 7, 33]
MODES: tuple[PoolingMode, ...] = tuple(POOLING_MODES)
# What each mode makes of the token vectors [length, width] of one sequence. A new mode needs an entry here.
EXPECTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(axis=0),
    "mean": lambda x: x.mean(axis=0),
    "mean_sqrt_len": lambda x: x.sum(axis=0) / np.sqrt(len(x)),
    "weighted_mean": lambda x: np.average(x, axis=0, weights=np.arange(1, len(x) + 1)),
    "last": lambda x: x[-1],
}


def batch(lengths: list[int], prompt_tokens: int = 0):
    ids = np.zeros(sum(lengths), np.int32)
    return bodies.to_packed(ids, np.array(lengths, np.int32), torch.device("cpu"), prompt_tokens=prompt_tokens)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_definition(mode: PoolingMode, dtype: torch.dtype) -> None:
    hidden = torch.randn(sum(LENGTHS), 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = hidden.clone()
    pooled = Pooling((mode,))(hidden, batch(LENGTHS))
    rows = np.split(hidden.float().numpy(), np.cumsum(LENGTHS)[:-1])
    assert pooled.dtype == torch.float32
    np.testing.assert_allclose(pooled.numpy(), np.stack([EXPECTED[mode](row) for row in rows]), atol=1e-5)
    assert torch.equal(hidden, before), "pooling changed the hidden states"


@pytest.mark.parametrize("mode", MODES)
def test_gradients_reach_every_counted_token(mode: PoolingMode) -> None:
    hidden = torch.randn(9, 4, requires_grad=True, dtype=torch.float64)
    packed = batch([3, 3, 3])
    assert torch.autograd.gradcheck(lambda x: pool(x, packed, mode).double(), (hidden,), eps=1e-3, atol=1e-2)


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("mode", [mode for mode in MODES if POOLING_MODES[mode].flag])
def test_sentence_transformers_agrees(mode: PoolingMode, include_prompt: bool) -> None:
    """Also where the four tokens of a prompt are left out."""
    model = bodies.theirs("bert")
    ids, lengths = bodies.random_batch([6, 9, 9])
    with torch.inference_mode():
        hidden, mask = bodies.hidden_states(model, ids, lengths)
        theirs = TheirPooling(32, pooling_mode=POOLING_MODES[mode].name, include_prompt=include_prompt)
        features = {"token_embeddings": hidden.clone(), "attention_mask": mask.clone(), "prompt_length": 4}
        expected = theirs(features)["sentence_embedding"]
        pooled = Pooling((mode,), include_prompt)(hidden[mask.bool()], batch([6, 9, 9], prompt_tokens=4))
    assert (pooled - expected).abs().max() < 1e-5


def test_modes_are_concatenated_in_order() -> None:
    hidden, packed = torch.randn(11, 4), batch([3, 8])
    pooling = Pooling(("max", "cls"))
    assert pooling.dimension(4) == 8
    expected = torch.cat([pool(hidden, packed, "max"), pool(hidden, packed, "cls")], 1)
    assert torch.equal(pooling(hidden, packed), expected)


@pytest.mark.parametrize("modes", [("median",), (), ("mean", "middle"), (["mean"],)])
def test_unknown_modes_are_refused(modes: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="pooling must be one or several of cls, max, mean"):
        Pooling(modes)  # type: ignore[arg-type]


def test_an_unknown_mode_is_never_computed() -> None:
    with pytest.raises(InputError, match="median"):
        pool(torch.zeros(2, 2), batch([2]), "median")  # type: ignore[arg-type]


def test_a_mode_without_implementation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new kind of reduction that one of its users forgot is an error, in vectors and in ONNX graphs."""
    from dataclasses import replace

    from munjang.errors import ModelError
    from munjang.exporting.outputs import bi_encoder_graph
    from support.small_models import bi_encoder

    model = bi_encoder("bert", Pooling(("mean",)))
    forgotten = replace(POOLING_MODES["mean"], reduction="something new")  # type: ignore[arg-type]
    monkeypatch.setitem(POOLING_MODES, "mean", forgotten)
    with pytest.raises(InputError, match="'mean' has no implementation"):
        pool(torch.zeros(2, 2), batch([2]), "mean")
    with pytest.raises(ModelError, match="'mean' cannot be exported"):
        bi_encoder_graph(model.parts, "float32")


def test_the_type_lists_every_mode() -> None:
    assert get_args(PoolingMode) == MODES
    assert set(EXPECTED) == set(MODES)


@pytest.mark.parametrize("page", ["guide.md", "guide.ko.md"])
def test_the_guide_lists_every_mode(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert [mode for mode in MODES if f'`"{mode}"`' not in text] == []
