"""Losses of a student against a teacher's vectors: beside plain loops, and their gradients beside differences."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from munjang.errors import InputError
from munjang.training import losses
from training.test_losses import check_gradient, close, cos, mean, quick, rows

shapes = st.tuples(st.integers(2, 6), st.integers(1, 7), st.integers(1, 7), st.integers(0, 10_000))


def chances(values: list[float]) -> list[float]:
    top = max(values)
    total = sum(math.exp(value - top) for value in values)
    return [math.exp(value - top) / total for value in values]


def brute_relational(student: Tensor, others: Tensor, teacher: Tensor, temperature: float) -> float:
    found = []
    for i in range(len(student)):
        rest = [j for j in range(len(student)) if j != i]
        p = chances([cos(teacher[i], teacher[j]) / temperature for j in rest])
        q = chances([cos(student[i], others[j]) / temperature for j in rest])
        found.append(sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a))
    return mean(found)


@quick
@given(shapes)
def test_cosine_distance(shape: tuple[int, int, int, int]) -> None:
    n, d, _, seed = shape
    student, teacher = rows(n, d, seed), rows(n, d, seed + 1)
    close(
        losses.cosine_distance(student, teacher), mean([1 - cos(s, t) for s, t in zip(student, teacher, strict=True)])
    )
    close(losses.cosine_distance(teacher * 3, teacher), 0)  # the length does not matter
    check_gradient(lambda x: losses.cosine_distance(x, teacher), student)


@quick
@given(shapes, st.sampled_from([1.0, 20.0]))
def test_teacher_contrastive(shape: tuple[int, int, int, int], scale: float) -> None:
    n, d, _, seed = shape
    student, teacher = rows(n, d, seed), rows(n, d, seed + 1)
    wanted = [-math.log(chances([scale * cos(s, t) for t in teacher])[i]) for i, s in enumerate(student)]
    close(losses.teacher_contrastive(student, teacher, scale=scale), mean(wanted))
    check_gradient(lambda x: losses.teacher_contrastive(x, teacher, scale=scale), student)


@quick
@given(shapes, st.sampled_from([0.2, 1.0]), st.booleans())
def test_relational(shape: tuple[int, int, int, int], temperature: float, crossed: bool) -> None:
    n, d, e, seed = shape
    student, teacher = rows(n, d, seed), rows(n, e, seed + 1)
    others = rows(n, d, seed + 2) if crossed else None
    wanted = brute_relational(student, student if others is None else others, teacher, temperature)
    close(losses.relational(student, teacher, temperature=temperature, others=others), wanted)
    inputs = (student,) if others is None else (student, others)
    check_gradient(
        lambda x, y=None: losses.relational(x, teacher, temperature=temperature, others=y),
        *inputs,
    )


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    teacher = rows(5, 8, 1)
    turned = teacher @ torch.linalg.qr(rows(8, 8, 2)).Q  # other vectors, the same relations
    for loss in (losses.relational,):
        close(loss(turned, teacher), 0)
        close(loss(turned * 7, teacher), 0)
        assert float(loss(rows(5, 8, 3), teacher)) > 0.01
    assert float(losses.cosine_distance(turned, teacher)) > 0.01


@pytest.mark.parametrize("loss", [losses.relational])
def test_one_row_has_no_relations(loss: object) -> None:
    assert callable(loss)
    student = rows(1, 4, 1).requires_grad_()
    found = loss(student, rows(1, 6, 2))
    assert float(found.detach()) == 0
    found.backward()
    assert student.grad is not None
    assert float(student.grad.abs().sum()) == 0


def test_half_precision_targets_are_widened() -> None:
    student, teacher = rows(4, 6, 1).float(), rows(4, 6, 2).half()
    for loss in (losses.mse, losses.cosine_distance, losses.teacher_contrastive, losses.relational):
        found = loss(student, teacher)
        assert found.dtype == torch.float32
        assert float(found) == pytest.approx(float(loss(student, teacher.float())))


def test_what_does_not_fit() -> None:
    for loss in (losses.cosine_distance, losses.teacher_contrastive):
        with pytest.raises(
            InputError, match=r"must have one shape \[n, d\], got vectors \(3, 4\) and targets \(3, 5\)"
        ):
            loss(rows(3, 4, 1), rows(3, 5, 1))
    for loss in (losses.relational,):
        with pytest.raises(InputError, match="a vector for every row each, got 3 and 2 rows"):
            loss(rows(3, 4, 1), rows(2, 4, 1))
        with pytest.raises(InputError, match="must have one shape"):
            loss(rows(3, 4, 1), rows(3, 4, 1), others=rows(2, 4, 1))
    with pytest.raises(InputError, match="scale must be above 0"):
        losses.teacher_contrastive(rows(3, 4, 1), rows(3, 4, 1), scale=0)
    with pytest.raises(InputError, match="temperature must be above 0"):
        losses.relational(rows(3, 4, 1), rows(3, 4, 1), temperature=-1)
