"""Every declared module type and pooling mode: its files, and the vectors of sentence-transformers both ways.

A new entry of `HEADS` fails here until it has its expected value; a new pooling mode is compared at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from munjang.checkpoint import read_bi, write_bi
from munjang.checkpoint.parts import BODIES, HEADS, IGNORED
from munjang.errors import ModelError
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import POOLING_MODES, Pooling, PoolingMode

# Per type: a head over 32 values, its config.json (None: no file), and the names of its weights.
EXPECTED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any] | None, set[str]]] = {
    "Dense": (
        lambda: Dense(32, 8, activation="GELU"),
        {
            "in_features": 32,
            "out_features": 8,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.GELU",
        },
        {"linear.weight", "linear.bias"},
    ),
    "Normalize": (Normalize, None, set()),
    "LayerNorm": (lambda: VectorNorm(32), {"dimension": 32}, {"norm.weight", "norm.bias"}),
}


def test_every_entry_has_its_expected_value() -> None:
    assert EXPECTED.keys() == HEADS.keys()
    assert POOLING_MODES.keys() == set(get_args(PoolingMode))
    assert not {*HEADS, *IGNORED} & {*BODIES, "Pooling"}


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_both_ways(
    kind: str, old_layout: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path
) -> None:
    make, config, weights = EXPECTED[kind]
    parts = read_bi(old_layout())
    torch.manual_seed(1)
    head = make()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    parts.heads = nn.ModuleList([head]).eval()
    write_bi(parts, tmp_path / "saved")
    folder = tmp_path / "saved" / f"2_{kind}"
    assert json.loads((tmp_path / "saved" / "modules.json").read_text())[-1] == {
        "idx": 2,
        "name": "2",
        "path": f"2_{kind}",
        "type": f"sentence_transformers.models.{kind}",
    }
    assert (json.loads((folder / "config.json").read_text()) if config else None) == config
    assert (folder / "model.safetensors").exists() == bool(weights)
    if weights:
        from safetensors.torch import load_file

        assert load_file(folder / "model.safetensors").keys() == weights
    again = read_bi(tmp_path / "saved")
    assert type(again.heads[0]) is HEADS[kind].head
    np.testing.assert_array_equal(vectors_of(again, texts), vectors_of(parts, texts))
    np.testing.assert_allclose(theirs(tmp_path / "saved", texts), vectors_of(parts, texts), atol=1e-5)


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_a_pooling_mode_in_every_notation(
    mode: PoolingMode, old_layout: Any, theirs: Any, vectors_of: Any, texts: list[str], tmp_path: Path
) -> None:
    spec = POOLING_MODES[mode]
    folder = old_layout()
    path = folder / "1_Pooling" / "config.json"
    notations: list[dict[str, object]] = [{"pooling_mode": spec.name}, {"pooling_mode": [spec.name.upper()]}]
    if spec.flag is not None:
        notations.append({spec.flag: True, "word_embedding_dimension": 32})
    for config in notations:
        path.write_text(json.dumps(config))
        assert read_bi(folder).pooling == Pooling((mode,))
    parts = read_bi(folder)
    write_bi(parts, tmp_path / "saved")
    assert read_bi(tmp_path / "saved").pooling == Pooling((mode,))
    np.testing.assert_allclose(theirs(tmp_path / "saved", texts), vectors_of(parts, texts), atol=1e-5)


def test_a_head_that_cannot_be_saved(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    parts.heads = nn.ModuleList([nn.Linear(32, 8)])
    with pytest.raises(ModelError, match="Linear cannot be saved"):
        write_bi(parts, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
