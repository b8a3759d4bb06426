"""Narrower bodies: right weights cut, saved and read the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from munjang import checkpoint
from munjang.errors import InputError
from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import Pooling
from munjang.students import StudentPlan, make_student, narrower
from students.material import CASES, TEXTS, parts_of, theirs, vectors


@pytest.mark.parametrize("texts", [[], TEXTS], ids=["even", "activations"])
@pytest.mark.parametrize("case", list(CASES))
def test_a_narrower_body_is_saved_and_read_the_same(case: str, texts: list[str], tmp_path: Path) -> None:
    parts = parts_of(case)
    before = vectors(parts)
    student = make_student(parts, StudentPlan(hidden=16), texts=texts)
    assert student.parts.body.hidden == 16
    assert student.parts.body.config.head_size == parts.body.config.head_size == 8
    assert student.parts.body.config.intermediate == 24
    assert student.parts.leftover == {}
    expected = vectors(student.parts)
    assert expected.shape == (len(TEXTS), 16)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(vectors(parts), before)
    checkpoint.write_bi(student.parts, tmp_path / "student")
    np.testing.assert_allclose(vectors(checkpoint.read_bi(tmp_path / "student")), expected, atol=1e-6)


@pytest.mark.parametrize("case", ["bert", "electra-unprojected", "mpnet", "distilbert", "modernbert"])
def test_sentence_transformers_reads_a_narrower_body(case: str, tmp_path: Path) -> None:
    student = make_student(parts_of(case), StudentPlan(hidden=24), texts=TEXTS)
    checkpoint.write_bi(student.parts, tmp_path / "student")
    np.testing.assert_allclose(theirs(tmp_path / "student"), vectors(student.parts), atol=2e-6)


@pytest.mark.parametrize("case", ["bert", "mpnet", "modernbert", "albert-groups"])
def test_units_that_do_nothing_are_the_ones_that_go(case: str) -> None:
    """Half of a body is switched off by hand; what is cut out is that half, and the vectors stay."""
    parts = parts_of(case)
    body, idle = parts.body, torch.arange(32) % 2 == 1
    with torch.no_grad():
        for name, tensor in body.state_dict().items():
            if ".qkv." in name or ".up." in name:
                continue
            if name.startswith("embeddings.") and body.config.projected and "project" not in name:
                continue
            if "relative_bias" in name:
                continue
            # What writes to the stream writes nothing into idle units; norms give them neither gain nor shift.
            if tensor.shape[0] == 32 and ("out." in name or "down." in name or "norm" in name or "project" in name):
                tensor[idle] = 0
            elif tensor.dim() == 2 and tensor.shape[1] == 32:
                tensor[:, idle] = 0
        for layer in body.layers:
            layer.attention.out.weight[:, 16:] = 0  # heads 2 and 3
            layer.mlp.down.weight[:, 24:] = 0
    made = narrower(parts, 16, TEXTS)
    weights = body.layers[0].state_dict()
    cut = made.body.layers[0].state_dict()
    busy = ~idle
    torch.testing.assert_close(cut["attention.out.weight"], weights["attention.out.weight"][busy][:, :16])
    torch.testing.assert_close(cut["mlp.down.weight"], weights["mlp.down.weight"][busy][:, :24])
    rows = torch.cat([torch.arange(16) + start for start in (0, 32, 64)])
    torch.testing.assert_close(cut["attention.qkv.weight"], weights["attention.qkv.weight"][rows][:, busy])
    if case == "mpnet":
        torch.testing.assert_close(made.body.relative_bias.weight, body.relative_bias.weight[:, :2])


def test_the_full_width_is_the_same_model() -> None:
    parts = parts_of("bert")
    np.testing.assert_allclose(vectors(narrower(parts, 32, TEXTS)), vectors(parts), atol=1e-6)


def test_heads_after_pooling_follow_the_units() -> None:
    dense = Dense(64, 10, activation="Tanh")
    parts = replace(
        parts_of("bert"), pooling=Pooling(("cls", "mean")), heads=nn.ModuleList([VectorNorm(64), dense, Normalize()])
    )
    made = narrower(parts, 8)
    assert [type(head) for head in made.heads] == [VectorNorm, Dense, Normalize]
    units = [0, 4, 9, 13, 18, 22, 27, 31]
    columns = units + [unit + 32 for unit in units]
    torch.testing.assert_close(made.heads[1].linear.weight, dense.linear.weight[:, columns])
    assert vectors(made).shape == (len(TEXTS), 10)


@pytest.mark.parametrize("hidden", [4, 12, 40, 33])
def test_a_width_that_splits_heads_is_an_error(hidden: int) -> None:
    with pytest.raises(InputError, match="one of 8, 16, 24, 32; got"):
        make_student(parts_of("bert"), StudentPlan(hidden=hidden))


def test_electra_cannot_be_as_narrow_as_its_embeddings() -> None:
    parts = parts_of("electra")
    config = dict(parts.hf_config) | {"embedding_size": 16}
    body = Encoder(family_of(config).read(config))
    with pytest.raises(InputError, match="embeddings of 16"):
        make_student(replace(parts, hf_config=config, body=body), StudentPlan(hidden=16))
