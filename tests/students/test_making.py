"""All at once, in order; progress; and what importing the package costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from munjang import checkpoint
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.students import StudentPlan, VocabularyPlan, make_student
from students.material import ENGLISH, KOREAN, TEXTS, parts_of, theirs, vectors


@pytest.mark.parametrize(("case", "keep"), [("bert", "used"), ("roberta", "none"), ("modernbert", "none")])
def test_everything_at_once(case: str, keep: str, tmp_path: Path) -> None:
    model = BiEncoder(parts_of(case), device="cpu", dtype="float32")
    model.truncate_dim = 20
    print_before = model.fingerprint
    plan = StudentPlan(
        layers=3,
        hidden=24,
        dimension=10,
        vocabulary=VocabularyPlan(300, keep=keep, embeddings="translations"),  # type: ignore[arg-type]
    )
    student = make_student(model, plan, texts=TEXTS * 2, translations=(ENGLISH, KOREAN))
    assert list(student.report) == ["layers", "hidden", "vocabulary", "dimension", "parameters"]
    json.dumps(student.report)
    assert student.parts.truncate_dim is None
    assert student.parts.prompts == {"query": "질문: "}
    assert list(student.notes) == student.parts.notes
    expected = vectors(student.parts)
    assert expected.shape == (len(TEXTS), 10)
    checkpoint.write_bi(student.parts, tmp_path / "student")
    np.testing.assert_allclose(vectors(checkpoint.read_bi(tmp_path / "student")), expected, atol=1e-6)
    np.testing.assert_allclose(theirs(tmp_path / "student"), expected, atol=2e-6)
    model._fingerprint = None
    assert model.fingerprint == print_before


def test_an_empty_plan_is_a_copy() -> None:
    parts = parts_of("bert")
    student = make_student(parts, StudentPlan())
    assert student.parts.body is not parts.body
    np.testing.assert_array_equal(vectors(student.parts), vectors(parts))
    assert student.notes == ()


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int | None]] = []
    plan = StudentPlan(vocabulary=VocabularyPlan(300, embeddings="translations"))
    make_student(
        parts_of("bert"), plan, translations=(ENGLISH, KOREAN), progress=lambda done, total: told.append((done, total))
    )
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]


def test_translations_must_be_rows_of_one_table() -> None:
    plan = StudentPlan(vocabulary=VocabularyPlan(300, embeddings="translations"))
    with pytest.raises(InputError, match="8 and 7 texts"):
        make_student(parts_of("bert"), plan, translations=(ENGLISH, KOREAN[1:]))


def test_importing_students_does_not_load_torch() -> None:
    code = (
        "import sys; from munjang.students import StudentPlan, VocabularyPlan; StudentPlan(layers=2); "
        "VocabularyPlan(300); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
