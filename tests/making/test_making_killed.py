"""Kill -9 while the bundled model is made, then the same call: it goes on, and the model is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from making.conftest import Whole
from making.whole_run import BI_STAGES, make, skipped

# Imports once, then forks for every point: a child patches one function so that it ends by its own SIGKILL.
_KILLED = """
import os, signal, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from models.ko_en_0_1 import making, teaching
from munjang.training import loop
from making.whole_run import make

def after(owner, name, count):
    # The call number `count` is made, and then it ends.
    real, calls = getattr(owner, name), []
    def patched(*args, **more):
        found = real(*args, **more)
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(owner, name, patched)

points = {
    "targets": lambda: after(teaching, "save_arrays", 1),
    "multi": lambda: after(loop, "write_finished", 1),
    "finish": lambda: after(making, "calibrate_bi", 1),
}
folder, tiny, data = map(Path, sys.argv[2:5])
for name, patch in points.items():
    child = os.fork()
    if child == 0:
        patch()
        make(folder / name, tiny, data)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (name, status)
"""

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.skipif(sys.platform == "win32", reason="no fork there"),
]


@pytest.mark.slow
def test_a_making_that_was_killed_ends_as_an_unbroken_one(whole: Whole, tmp_path: Path) -> None:
    for name in ("targets", "multi", "finish"):  # each as far as it was before that stage
        shutil.copytree(whole.folder, tmp_path / name)
        for stage in BI_STAGES[BI_STAGES.index(name) :]:
            shutil.rmtree(next((tmp_path / name).glob(f"*-{stage}")))
    given = [str(Path(__file__).parents[1]), str(tmp_path), str(whole.tiny), str(whole.data)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, *given], capture_output=True, text=True, timeout=240, check=False, env=alone
    )
    assert done.returncode == 0, done.stderr
    digests = {name: one.digest for name, one in whole.made.stages.items()}
    for name in ("targets", "multi", "finish"):
        place = BI_STAGES.index(name)
        assert not (tmp_path / name / f"{place + 1}-{name}" / "stage.json").exists()
        again = make(tmp_path / name, whole.tiny, whole.data)
        assert tuple(skipped(again)) == BI_STAGES[:place], name
        assert {stage: one.digest for stage, one in again.stages.items()} == digests, name
        if name == "multi":
            assert again.stages[name].facts["training"]["resumed_from"] == 7, "its training was finished"
