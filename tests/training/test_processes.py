"""Two processes train as one does with the same batch: the same losses, the same weights, one log, one model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch

import munjang
from munjang.errors import InputError
from munjang.training.checkpointing import checkpoints
from munjang.training.log import read_log
from munjang.training.processes import Processes
from training.material import Job, near, run, run_among, sentences

# 13 rows in batches of 4: the last has one row, which leaves nothing for the second process.
SETTINGS: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 4,
    "learning_rate": 1e-2,
    "dropout": 0.0,
    "log_every": 1,
    "save_every": 2,
    "evaluate_every": 3,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def together(server: ForkServerContext, job: Job, count: int = 2) -> list[Any]:
    port = free_port()
    processes = [server.Process(target=run_among, args=(job, rank, count, port)) for rank in range(count)]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[Any]) -> None:
    for process in processes:
        process.join(90)
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in read_log(folder / "log.jsonl") if "loss" in record]


def out(folder: Path, rank: int = 0) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(folder / f"out-{rank}.pt", weights_only=False)
    return loaded


def compare(two: Path, one: Path) -> None:
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)
    assert len(losses(one)) == len(losses(two)) > 4
    near(out(two)["weights"], out(one)["weights"], atol=1e-5)
    near(out(two, 1)["weights"], out(two, 0)["weights"], atol=0)
    here, there = (read_log(folder / "log.jsonl") for folder in (one, two))
    assert [record["step"] for record in here] == [record["step"] for record in there]
    for a, b in zip(here, there, strict=True):
        assert a.get("main", 0) == pytest.approx(b.get("main", 0), abs=1e-4)
    for which in ("best", "steps", "rows", "tokens"):
        assert out(two, 0)["result"][which] == out(two, 1)["result"][which]
    model = munjang.load(two / "model", device="cpu", dtype="float32")
    assert model.encode(sentences(3)).shape == (3, 16)


@pytest.mark.parametrize("tasks", [("softmax", "ranking", "cosent")])
def test_two_processes_are_one(server: ForkServerContext, tmp_path: Path, tasks: tuple[str, ...]) -> None:
    jobs = [
        Job(str(tmp_path / name), tasks, SETTINGS, evaluate=True, out=str(tmp_path / name)) for name in ("one", "two")
    ]
    processes = together(server, jobs[1])
    run(jobs[0])
    finish(processes)
    compare(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["softmax", "ranking", "cosent", "cosine"])
@pytest.mark.parametrize("more", [{"batch_size": 5, "token_budget": 60}, {"batch_size": 3, "ema": 0.7}])
def test_three_processes_are_one(server: ForkServerContext, tmp_path: Path, task: str, more: dict[str, object]) -> None:
    settings = SETTINGS | more
    jobs = [Job(str(tmp_path / name), (task,), settings, out=str(tmp_path / name)) for name in ("one", "two")]
    processes = together(server, jobs[1], 3)
    run(jobs[0])
    finish(processes)
    compare(tmp_path / "two", tmp_path / "one")
    near(out(tmp_path / "two", 2)["weights"], out(tmp_path / "two")["weights"], atol=0)


def test_one_of_two_is_asked_to_stop(server: ForkServerContext, tmp_path: Path) -> None:
    """The signal reaches the processes at different steps, or one of them only: all stop at the same one."""
    job = Job(
        str(tmp_path / "run"), ("ranking",), SETTINGS | {"log_every": 3, "epochs": 5, "learning_rate": 1e-3}, slow=0.05
    )
    processes = together(server, job)
    while len(losses(tmp_path / "run")) < 4:
        time.sleep(0.02)
        assert all(process.is_alive() for process in processes)
    os.kill(processes[1].pid, signal.SIGINT)
    for process in processes:
        process.join(30)
    ended = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert ended == [1, 1]  # KeyboardInterrupt in both; neither waits for the other
    step = int(checkpoints(tmp_path / "run" / "checkpoints")[-1].name.removeprefix("step-"))
    assert 4 <= step < 5 * 4
    assert len(losses(tmp_path / "run")) == step
    plain = Job(str(tmp_path / "plain"), job.tasks, job.settings)
    again = together(server, Job(job.folder, job.tasks, job.settings))
    run(plain)
    finish(again)
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), abs=1e-5)


LAUNCHED = """
import json, sys
sys.path.insert(0, {tests!r})
from training.material import Job, run
run(Job(**json.loads(sys.argv[1])))
"""


# `accelerate launch --cpu` starts one process unless there is MPI; --multi_gpu starts several, on CPUs too.
LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port"],
    "accelerate": [
        *("-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--num_processes", "2"),
        *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["accelerate", "torchrun"])
def test_launched(tmp_path: Path, launcher: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(LAUNCHED.format(tests=str(Path(__file__).parents[1])), encoding="utf-8")
    jobs = [
        Job(str(tmp_path / name), ("ranking",), SETTINGS, evaluate=True, out=str(tmp_path / name))
        for name in ("one", "two")
    ]
    command = [sys.executable, *LAUNCHERS[launcher], str(free_port())]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(script), json.dumps(vars(jobs[1]))], capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 0, done.stderr
    run(jobs[0])
    compare(tmp_path / "two", tmp_path / "one")


@pytest.mark.parametrize("size", range(9))
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shares_are_the_whole(size: int, count: int) -> None:
    rows = list(range(size))
    parts = [rows[Processes(rank, count).share(size)] for rank in range(count)]
    assert [row for part in parts for row in part] == rows
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_model_on_the_gpu_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models on one GPU would be an error deep inside of NCCL."""

    class Second:
        process_index, num_processes, device = 1, 2, torch.device("cuda", 1)

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.PartialState", lambda cpu: Second)
    monkeypatch.setattr("munjang.training.processes._meet", lambda: (None, {}))
    with pytest.raises(InputError, match=r"process 1 computes on cuda:1, but its model is on cuda:0: load the model"):
        Processes.find(torch.device("cuda", 0))
    assert Processes.find(torch.device("cuda", 1)).rank == 1
