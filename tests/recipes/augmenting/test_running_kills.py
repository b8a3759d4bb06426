"""Killed with -9 in the middle of every stage, and called again: finished stages are skipped, the weights the same.

One process loads everything and computes nothing; the runs are its forked children, each of which is killed in the next
stage. So nothing of a killed run survives but its files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from recipes.augmenting.small import lively

ZYGOTE = """
    import json, os, signal, sys, warnings
    warnings.simplefilter("ignore")
    from pathlib import Path
    from munjang import recipes
    from munjang.recipes import Candidates
    from munjang.recipes.augmenting import candidates, labelling, running, scoring
    from munjang.training import loop
    from munjang.vectors import VectorWriter
    from recipes.augmenting.small import data, options

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def run(model, folder, stage):
        write = loop.write_checkpoint
        def checkpoint(path, step, *rest, **named):
            write(path, step, *rest, **named)
            if Path(path).parent.name.endswith(stage or "-"):
                die()
        def half(path, *rest, **named):
            Path(path).with_name("silver.tsv.tmp").write_text("sentence1")
            die()
        whole = labelling.write_blended
        def labels(folder, *rest):
            whole(folder, *rest)
            (folder / "spread.npy").rename(folder / "spread.npy.tmp")
            die()
        loop.write_checkpoint = checkpoint
        last = {"vectors": (VectorWriter, "finish"), "candidates": (candidates, "_merge"),
                "scores": (scoring, "_split"), "compare": (running, "_gain"), "model": (running, "_fill")}
        if stage in last:
            setattr(*last[stage], lambda *_, **__: die())
        if stage == "silver":
            labelling.write_silver = half
        if stage == "labels":
            labelling.write_blended = labels
        saving = {"save_every": 2}
        chosen = options(Path(folder), pretrain=True, pretrain_changes=saving, blend=0.4, mix="then", progress=True)
        recipes.augmented(Path(model), **data(), options=chosen)

    model, folder, unbroken, *stages = sys.argv[1:]
    told = []
    for stage in [*stages, None, "unbroken"]:
        said = Path(folder).with_name(f"said-{stage}")
        child = os.fork()
        if not child:
            os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY), 2)
            try:
                run(model, unbroken if stage == "unbroken" else folder, None if stage == "unbroken" else stage)
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
        told.append([stage, code, said.read_text()])
    print(json.dumps(told))
"""
STAGES = ["baseline", "vectors", "candidates", "pretrain", "cross", "scores", "labels", "silver", "bi-silver", "bi",
          "compare"]  # fmt: skip
FILES = ("model/model.safetensors", "silver.tsv", "vectors.npy", "left.npy", "right.npy", "scores.npy", "spread.npy",
         "compared.npz")  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9")
def test_killed_in_every_stage(tiny: Path, tmp_path: Path) -> None:
    model = lively(tiny, tmp_path)
    broken, unbroken = tmp_path / "broken", tmp_path / "unbroken"
    code = [sys.executable, "-c", textwrap.dedent(ZYGOTE), str(model), str(broken), str(unbroken), *STAGES, "model"]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        code,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    told = json.loads(done.stdout)
    assert [code for _, code, _ in told] == [9] * (len(STAGES) + 1) + [0, 0], told[-1][2]
    names = [f"{place}-{name}" for place, name in enumerate(STAGES, start=1)]
    for number, (_, _, said) in enumerate(told[:-1]):
        lines = [line.split(": ") for line in said.splitlines()]
        whole = names[: max(0, number - 1)] if number <= len(STAGES) else names
        assert [name for name, *words in lines if words == ["done before, skipped"]] == whole
        broken_one = names[number - 1 : number] if number <= len(STAGES) else []  # by the kill before this one
        assert [name for name, *words in lines if words == ["goes on"]] == broken_one
        if number < len(STAGES):
            assert [names[number], "begins"] in lines
    for name in [*names, "."]:
        for file in FILES:
            one, other = unbroken / name / file, broken / name / file
            assert one.is_file() == other.is_file()
            if one.is_file():
                assert one.read_bytes() == other.read_bytes(), f"{name}/{file}"
    scored, blended = (broken / f"{place}-{name}" / "scores.npy" for place, name in ((6, "scores"), (7, "labels")))
    assert scored.read_bytes() != blended.read_bytes()  # the cosines count
    assert not list(broken.rglob("*.tmp"))
