"""`munjang train` started by torchrun: a chain of recipes in two processes, said and written once, the same model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import munjang
from munjang.data import Examples
from recipes.material import nli, scored, tiny_model
from training.material import sentences
from training.test_processes import free_port

pytestmark = pytest.mark.slow


def written(path: Path, examples: Examples) -> Path:
    target = "score" if examples.kind == "scored" else "label"
    rows = [examples.row(place) for place in range(len(examples))]
    lines = [f"a\tb\t{target}", *(f"{row['a']}\t{row['b']}\t{row[target]}" for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_chain_by_torchrun(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    arguments = [
        *("train", "chain", "nli,sts", "--model", str(model), "--device", "cpu", "--score-range", "0,1"),
        *("--train", f"nli={written(tmp_path / 'nli.tsv', nli('n', 6))}"),
        *("--train", f"sts={written(tmp_path / 'sts.tsv', scored('s'))}"),
        *("--test", f"sts={written(tmp_path / 'test.tsv', scored('s', 8, 90))}"),
        *("--epochs", "1", "--batch-size", "8", "--dropout", "0", "--log-every", "1"),
    ]
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port())]
    found = {}
    for name, launcher in (("one", []), ("two", torchrun)):
        done = subprocess.run(
            [sys.executable, *launcher, "-m", "munjang", *arguments, "-o", str(tmp_path / name)],
            capture_output=True, text=True, timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[name] = done
    assert found["two"].stdout.count("test.tsv") == found["one"].stdout.count("test.tsv") > 0
    for said in ("stage 1 of 2", "stage 2 of 2", "report: "):
        assert found["two"].stderr.count(said) == 1
    results = [json.loads((tmp_path / name / "2-sts" / "result.json").read_text("utf-8")) for name in ("one", "two")]
    assert results[0]["steps"] == results[1]["steps"] > 0
    assert results[0]["losses"] == pytest.approx(results[1]["losses"], abs=1e-5)
    vectors = [
        munjang.load(tmp_path / name / "2-sts" / "model", device="cpu", dtype="float32").encode(sentences(5))
        for name in ("one", "two")
    ]
    np.testing.assert_allclose(*vectors, atol=1e-4)
