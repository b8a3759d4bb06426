"""Fewer layers: chosen evenly, saved and read the same, and the given model untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from munjang import checkpoint
from munjang.errors import InputError, ModelError
from munjang.students import StudentPlan, fewer_layers, make_student
from munjang.students.layers import cut_layers, evenly
from students.material import CASES, parts_of, theirs, vectors


@given(total=st.integers(1, 48), data=st.data())
def test_layers_are_chosen_evenly(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, total))
    chosen = evenly(total, count)
    assert len(chosen) == count
    assert chosen[0] == 0
    assert count < 2 or chosen[-1] == total - 1
    gaps = np.diff(chosen)
    assert count < 2 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)


@pytest.mark.parametrize("case", list(CASES))
def test_a_shorter_model_is_saved_and_read_the_same(case: str, tmp_path: Path) -> None:
    parts = parts_of(case)
    before = vectors(parts)
    student = make_student(parts, StudentPlan(layers=2))
    expected = vectors(student.parts)
    assert not np.allclose(expected, before, atol=1e-3)
    np.testing.assert_array_equal(vectors(parts), before)
    checkpoint.write_bi(student.parts, tmp_path / "student")
    again = checkpoint.read_bi(tmp_path / "student")
    assert again.body.config.steps == student.parts.body.config.steps
    np.testing.assert_allclose(vectors(again), expected, atol=1e-6)


@pytest.mark.parametrize("case", ["bert", "albert-groups", "distilbert", "mpnet", "modernbert"])
def test_sentence_transformers_reads_a_shorter_model_to_the_same_vectors(case: str, tmp_path: Path) -> None:
    student = make_student(parts_of(case), StudentPlan(layers=2))
    checkpoint.write_bi(student.parts, tmp_path / "student")
    np.testing.assert_allclose(theirs(tmp_path / "student"), vectors(student.parts), atol=2e-6)


def test_the_layers_that_stay_are_the_ones_named() -> None:
    parts = parts_of("bert")
    student = make_student(parts, StudentPlan(layers=3))
    assert student.report["layers"] == {"before": 4, "after": 3, "chosen": [0, 2, 3]}
    for new, old in enumerate([0, 2, 3]):
        weights = student.parts.body.layers[new].state_dict()
        for name, tensor in parts.body.layers[old].state_dict().items():
            torch.testing.assert_close(weights[name], tensor, rtol=0, atol=0)
    assert student.parts.leftover.keys() == parts.leftover.keys()
    assert student.parts.prompts == parts.prompts


def test_layers_can_be_named() -> None:
    parts = parts_of("bert")
    cut = cut_layers(parts.body, parts.hf_config, [1, 3])
    assert (cut.chosen, cut.hf_config["num_hidden_layers"]) == ((1, 3), 2)
    for new, old in enumerate([1, 3]):
        weights = cut.body.layers[new].state_dict()
        for name, tensor in parts.body.layers[old].state_dict().items():
            torch.testing.assert_close(weights[name], tensor, rtol=0, atol=0)
    evenly_cut = fewer_layers(parts, 3)
    np.testing.assert_array_equal(vectors(fewer_layers(parts, (0, 2, 3))), vectors(evenly_cut))
    assert not np.allclose(vectors(fewer_layers(parts, (0, 1, 3))), vectors(evenly_cut), atol=1e-3)


@pytest.mark.parametrize("named", [(), (0, 4), (-1, 2), (2, 1), (1, 1)])
def test_layers_that_are_not_there_or_out_of_order_are_refused(named: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"layers must be some of 0\.\.3, each once and in order, got"):
        fewer_layers(parts_of("bert"), named)


def test_alberts_layers_have_no_names() -> None:
    with pytest.raises(InputError, match="share their weights, so none can be named: say how many"):
        fewer_layers(parts_of("albert-groups"), (0, 1))


def test_all_layers_are_the_same_model() -> None:
    for case in ("bert", "albert-groups", "modernbert"):
        parts = parts_of(case)
        count = len(parts.body.layers) if case != "albert-groups" else 4
        np.testing.assert_array_equal(vectors(fewer_layers(parts, count)), vectors(parts))


def test_windows_move_with_modernberts_layers() -> None:
    parts = parts_of("modernbert")
    kinds = [bool(step.window) for step in parts.body.config.steps]
    assert kinds == [False, True, True, False, True, True]
    cut = cut_layers(parts.body, parts.hf_config, 3)
    assert cut.chosen == (0, 2, 5)
    assert [bool(step.window) for step in cut.body.config.steps] == [False, True, True]
    assert cut.notes == ()
    odd = cut_layers(parts.body, parts.hf_config, 5)
    assert odd.chosen == (0, 1, 2, 4, 5)
    assert [bool(step.window) for step in odd.body.config.steps] == [kinds[i] for i in odd.chosen]


def test_a_trained_student_does_not_change_its_teacher() -> None:
    parts = parts_of("bert")
    before = {name: tensor.clone() for name, tensor in parts.body.state_dict().items()}
    student = make_student(parts, StudentPlan(layers=4))
    with torch.no_grad():
        for parameter in student.parts.body.parameters():
            parameter.add_(1.0)
    student.parts.tokenizer.max_length = 9
    for name, tensor in parts.body.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert parts.tokenizer.max_length == 48


@pytest.mark.parametrize("count", [5, 100])
def test_more_layers_than_there_are_is_an_error(count: int) -> None:
    with pytest.raises(InputError, match=r"layers must be 1\.\.4 .* got"):
        make_student(parts_of("bert"), StudentPlan(layers=count))


@pytest.mark.parametrize("count", [0, -1, True, 2.0])
def test_a_plan_is_checked_when_it_is_made(count: object) -> None:
    with pytest.raises(InputError, match="layers must be a whole number"):
        StudentPlan(layers=count)  # type: ignore[arg-type]


def test_a_static_model_has_no_layers() -> None:
    from dataclasses import replace

    from munjang.nn.bodies import StaticEmbedding

    parts = replace(parts_of("bert"), body=StaticEmbedding(torch.zeros(10, 4)))
    with pytest.raises(ModelError, match="'static'"):
        make_student(parts, StudentPlan(layers=1))
