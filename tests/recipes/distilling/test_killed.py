"""Kill -9 in every stage, then the same call: only the broken stage repeats, and the student is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recipes.distilling.material import parallel_file, whole_run

# Imports once, then forks for every point: a child patches one function so that it ends by its own SIGKILL.
_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from recipes.distilling.material import whole_run
from munjang.recipes.distilling import making, measuring, record, targets, teacher_vectors
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

points = {
    "teacher": lambda: nth(teacher_vectors.TeacherVectors, "_append", 2),
    "targets": lambda: nth(targets, "_assemble", 1),
    "student": lambda: nth(making, "_carry_out", 1),
    "warm-up": lambda: nth(loop, "write_checkpoint", 2),
    "distill": lambda: nth(loop, "write_checkpoint", 5),
    "measure": lambda: nth(measuring, "evaluate", 1),
    "report": lambda: setattr(record, "write_page", die),
}
for name, patch in points.items():
    child = os.fork()
    if child == 0:
        patch()
        whole_run(Path(sys.argv[2]) / name, Path(sys.argv[3]), Path(sys.argv[4]))
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


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_a_run_that_was_killed_anywhere_ends_as_an_unbroken_one(tiny: Path, tmp_path: Path) -> None:
    file = parallel_file(tmp_path / "p.tsv")
    whole = whole_run(tmp_path / "whole", tiny, file)
    tests = Path(__file__).parents[2]
    script = [sys.executable, "-c", _KILLED, str(tests), str(tmp_path), str(tiny), str(file)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    for name, skipped in _SKIPPED.items():
        assert not (tmp_path / name / "index.html").exists()
        result = whole_run(tmp_path / name, tiny, file)
        assert result.skipped == skipped, name
        assert result.model.fingerprint == whole.model.fingerprint, name
        assert [str(one) for one in result.compared] == [str(one) for one in whole.compared]
        assert (tmp_path / name / "index.html").is_file()
        if name == "distill":
            assert result.training.resumed_from == 2
        if name == "teacher":
            assert result.facts["teacher"]["teachers"][0]["known"] == 32, "two blocks of sixteen texts were there"
