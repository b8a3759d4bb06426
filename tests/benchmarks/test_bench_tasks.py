"""The benchmark of mining and communities: one tiny run of each from end to end, and its comparison of answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import tasks  # noqa: E402


@pytest.mark.parametrize("side", [tasks.OURS, tasks.THEIRS])
@pytest.mark.parametrize("job", ["mining", "communities"])
def test_both_sides_answer(job: str, side: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors = tasks.generated(300, 16)
    np.save(tmp_path / "v.npy", vectors)
    arguments = [job, "--child", side, "--vectors", str(tmp_path / "v.npy"), "--answer", str(tmp_path / "a.npz")]
    assert tasks.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seconds"] > 0
    answer = np.load(tmp_path / "a.npz")
    assert told["answers"] == len(answer["scores" if job == "mining" else "sizes"]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("job", ["mining", "communities"])
def test_a_tiny_run(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", tasks.generated(300, 16))
    assert tasks.main([job, "--rows", "200", "--repeats", "1", "--vectors", str(tmp_path / "v.npy")]) == 0
    shown = capsys.readouterr().out
    assert "sentence-transformers / Munjang" in shown
    if job == "mining":
        assert "0 of them above the last score" in shown
    else:
        assert "communities: " in shown


def test_different_answers_are_told(tmp_path: Path) -> None:
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    np.savez(tmp_path / f"{tasks.OURS}.npz", scores=scores, pairs=pairs)
    np.savez(tmp_path / f"{tasks.THEIRS}.npz", scores=scores, pairs=np.array([[0, 1], [1, 7], [2, 3]]))
    assert "2 the same; 2 in one answer only, 2 of them above the last score" in tasks._same_pairs(tmp_path)
    np.savez(tmp_path / f"{tasks.OURS}.npz", sizes=np.array([2, 2]), members=np.array([0, 1, 2, 3]))
    np.savez(tmp_path / f"{tasks.THEIRS}.npz", sizes=np.array([2, 2]), members=np.array([0, 1, 3, 2]))
    assert tasks._same_communities(tmp_path) == (
        "communities: 2 and 2; 1 the same in place and order of members, 2 the same as sets"
    )
