"""Vectors of another width: principal directions, regression to a teacher, orthogonal starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from munjang import checkpoint
from munjang.errors import InputError
from munjang.nn.heads import Dense, Normalize
from munjang.students import StudentPlan, make_student, projected
from students.material import ENGLISH, KOREAN, TEXTS, parts_of, theirs, vectors


def bare(parts):
    return replace(parts, heads=nn.ModuleList())


def many(count: int) -> list[str]:
    words = " ".join(ENGLISH + KOREAN).split()
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, size=6)) for _ in range(count)]


def test_a_narrower_layer_keeps_the_principal_directions() -> None:
    from sklearn.decomposition import TruncatedSVD

    parts, texts = parts_of("bert"), many(200)
    pooled = vectors(bare(parts), texts)
    made = projected(bare(parts), 8, texts=texts)
    assert [type(head) for head in made.heads] == [Dense]
    got = vectors(made, texts)
    expected = TruncatedSVD(8, algorithm="arpack", random_state=0).fit_transform(pooled.astype(np.float64))
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, atol=1e-3)


def test_the_layer_stands_before_the_last_normalize_and_is_saved(tmp_path: Path) -> None:
    parts = parts_of("bert")
    student = make_student(parts, StudentPlan(dimension=12), texts=TEXTS)
    assert [type(head) for head in student.parts.heads] == [Dense, Normalize]
    assert student.parts.heads[0].activation == "Identity"
    assert student.report["dimension"] == {"before": 32, "after": 12, "start": "principal directions"}
    expected = vectors(student.parts)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    checkpoint.write_bi(student.parts, tmp_path / "student")
    np.testing.assert_allclose(vectors(checkpoint.read_bi(tmp_path / "student")), expected, atol=1e-6)
    np.testing.assert_allclose(theirs(tmp_path / "student"), expected, atol=2e-6)
    assert len(parts.heads) == 1


def test_a_wider_layer_leaves_every_cosine() -> None:
    parts = parts_of("bert")
    before, after = vectors(parts), vectors(projected(parts, 50, seed=3))
    assert after.shape == (len(TEXTS), 50)
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=1e-5)
    assert not np.allclose(after, vectors(projected(parts, 50, seed=4)))
    np.testing.assert_array_equal(after, vectors(projected(parts, 50, seed=3)))


@pytest.mark.parametrize("dimension", [20, 48])
def test_a_teachers_vectors_are_met_by_regression(dimension: int) -> None:
    from sklearn.linear_model import Ridge

    parts, texts = parts_of("bert"), many(300)
    pooled = vectors(bare(parts), texts).astype(np.float64)
    map_ = np.random.default_rng(1).standard_normal((32, dimension))
    teacher = (pooled @ map_ + 0.5).astype(np.float32)
    made = projected(bare(parts), dimension, texts=texts, teacher_vectors=teacher)
    got = vectors(made, texts)
    centred = pooled - pooled.mean(axis=0)
    alpha = 1e-3 * (centred**2).sum() / 32
    np.testing.assert_allclose(got, Ridge(alpha=alpha).fit(pooled, teacher).predict(pooled), atol=1e-3)
    assert np.mean((got - teacher) ** 2) < 0.01 * teacher.var()


def test_a_width_that_is_there_needs_no_layer() -> None:
    parts = parts_of("bert")
    student = make_student(parts, StudentPlan(dimension=32), texts=TEXTS)
    assert [type(head) for head in student.parts.heads] == [Normalize]
    assert any("no layer was added" in note for note in student.notes)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((len(TEXTS), 9), "teacher's vectors have 9: choose dimension=9"), ((3, 8), r"teacher_vectors must be \[16 ")],
)
def test_a_teacher_that_does_not_fit_is_found_first(shape: tuple[int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_student(parts_of("bert"), StudentPlan(dimension=8), texts=TEXTS, teacher_vectors=np.zeros(shape))
    with pytest.raises(InputError, match="for a plan with a dimension"):
        make_student(parts_of("bert"), StudentPlan(), texts=TEXTS, teacher_vectors=np.zeros((16, 8)))
