"""Kill -9 in every stage, then the same call: only the broken stage repeats, and the student is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from munjang.encoders import CrossEncoder
from munjang.recipes import DistillResult
from munjang.recipes.distilling import targets
from recipes.distilling.material import cross_run, parallel_file, reranker, whole_run

# Imports once, then forks for every point: a child patches one function so that it ends by its own SIGKILL.
_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from recipes.distilling import material
from munjang.vectors import VectorWriter
from munjang.recipes.distilling import making, measuring, negatives, record, targets, teacher_vectors
from munjang.training import loop

def die(*args, **more):
    os.kill(os.getpid(), signal.SIGKILL)

def nth(module, name, count):
    # The call number `count` is made, and then it ends.
    real, calls = getattr(module, name), []
    def patched(*args, **more):
        found = real(*args, **more)
        calls.append(1)
        return die() if len(calls) == count else found
    setattr(module, name, patched)

vectors = {
    "teacher": lambda: nth(teacher_vectors.TeacherVectors, "_append", 2),
    "targets": lambda: nth(targets, "_assemble", 1),
    "student": lambda: nth(making, "_carry_out", 1),
    "warm-up": lambda: nth(loop, "write_checkpoint", 2),
    "distill": lambda: nth(loop, "write_checkpoint", 4),
    "measure": lambda: nth(measuring, "evaluate", 1),
    "report": lambda: setattr(record, "write_page", die),
}
scores = {
    "student": lambda: nth(making, "_carry_out", 1),
    "negatives": lambda: nth(negatives, "mine_negatives", 1),
    "teacher": lambda: nth(VectorWriter, "append", 2),
    "distill": lambda: nth(loop, "write_checkpoint", 2),
    "measure": lambda: nth(measuring, "evaluate", 1),
    "report": lambda: setattr(record, "write_page", die),
}
run = getattr(material, sys.argv[5])
for name, patch in (scores if sys.argv[5] == "cross_run" else vectors).items():
    child = os.fork()
    if child == 0:
        patch()
        run(Path(sys.argv[2]) / name, Path(sys.argv[3]), Path(sys.argv[4]))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (name, status)
"""
_ALL = ("teacher", "student", "warm-up", "distill", "measure")
_SKIPPED = {
    "teacher": (),
    "targets": (),
    "student": _ALL[:1],
    "warm-up": _ALL[:2],
    "distill": _ALL[:3],
    "measure": _ALL[:4],
    "report": _ALL,
}


_CROSS = ("student", "negatives", "teacher", "distill", "measure")
_CROSS_SKIPPED = {
    "student": (),
    "negatives": _CROSS[:1],
    "teacher": _CROSS[:2],
    "distill": _CROSS[:3],
    "measure": _CROSS[:4],
    "report": _CROSS,
}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork there")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The last bits of sums depend on how many threads make them: as many here as in the processes that are killed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def killed(name: str, folder: Path, *models_and_data: Path) -> None:
    """Runs of this name in `folder`, one killed at each point."""
    given = [str(Path(__file__).parents[2]), str(folder), *map(str, models_and_data), name]
    script = [sys.executable, "-c", _KILLED, *given]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(script, capture_output=True, text=True, timeout=240, check=False, env=alone)
    assert done.returncode == 0, done.stderr


def same(result: DistillResult, whole: DistillResult) -> bool:
    """Whether two runs ended alike: the student, what was measured, and what a reader is told."""
    return (
        result.model.fingerprint == whole.model.fingerprint
        and [str(one) for one in result.compared] == [str(one) for one in whole.compared]
        and result.notes == whole.notes
    )


@pytest.mark.slow  # tests/test_kills.py kills a short run through the public call
def test_a_run_that_was_killed_anywhere_ends_as_an_unbroken_one(tiny: Path, tmp_path: Path) -> None:
    file = parallel_file(tmp_path / "p.tsv")
    whole = whole_run(tmp_path / "whole", tiny, file)
    killed("whole_run", tmp_path, tiny, file)
    for name, skipped in _SKIPPED.items():
        assert not (tmp_path / name / "index.html").exists()
        result = whole_run(tmp_path / name, tiny, file)
        assert result.skipped == skipped, name
        assert same(result, whole), name
        assert (tmp_path / name / "index.html").is_file()
        if name == "distill":
            assert result.training.resumed_from == 2
        if name == "teacher":
            assert result.facts["teacher"]["teachers"][0]["known"] == 32, "two blocks of sixteen texts were there"


@pytest.mark.slow
def test_the_same_where_a_cross_encoder_teaches(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "PAIRS", 16)  # which cross_run sets: put back afterwards
    teacher = reranker(tiny, tmp_path)
    whole = cross_run(tmp_path / "whole", tiny, teacher)
    killed("cross_run", tmp_path, tiny, teacher)
    scored: list[int] = []
    predict = CrossEncoder.predict_report

    def counted(self: CrossEncoder, pairs: list[tuple[str, str]], **more: bool) -> object:
        scored.append(len(pairs))
        return predict(self, pairs, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(CrossEncoder, "predict_report", counted)
    for name, skipped in _CROSS_SKIPPED.items():
        scored.clear()
        assert not (tmp_path / name / "index.html").exists()
        result = cross_run(tmp_path / name, tiny, teacher)
        assert result.skipped == skipped, name
        assert same(result, whole), name
        assert (tmp_path / name / "index.html").is_file()
        if name == "teacher":
            assert scored == [16, 12], "two blocks of sixteen pairs were there, of sixty"
        if name == "distill":
            assert result.training.resumed_from == 2
