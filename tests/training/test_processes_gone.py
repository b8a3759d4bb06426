"""A process that is killed, stopped, or fails: the others end soon and say why, and the run can be gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch

from munjang.errors import InputError
from munjang.training.checkpointing import checkpoints
from munjang.training.log import read_log
from munjang.training.peers import PeerGoneError, meet, patience
from training.material import Job, near, run, same
from training.process_work import Among, said_by, work
from training.test_processes import SETTINGS, finish, free_port, losses, out, together

LONG = SETTINGS | {"epochs": 5, "learning_rate": 1e-3}  # 20 steps
SOON = 2.0  # seconds without a word


def start(server: ForkServerContext, job: Job, *, second: dict[str, Any] | None = None, **both: Any) -> list[Any]:
    """Two processes; what happens to the second, or to both."""
    port = free_port()
    given = [Among(job, rank, 2, port, **(both | ((second or {}) if rank else {}))) for rank in range(2)]
    processes = [server.Process(target=work, args=(one,)) for one in given]
    for process in processes:
        process.start()
    return processes


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(process: Any, seconds: float) -> int | None:
    process.join(seconds)
    code: int | None = process.exitcode
    process.kill()
    return code


# --- a process dies --------------------------------------------------------------------------------------------------


def test_killed_without_a_restart(server: ForkServerContext, tmp_path: Path) -> None:
    """The other one ends by itself; the same command, here with one process, goes on from the last checkpoint."""
    job = Job(str(tmp_path / "run"), ("ranking",), LONG, slow=0.05)
    processes = start(server, job)
    until(lambda: len(losses(tmp_path / "run")) >= 5)
    os.kill(processes[1].pid, signal.SIGKILL)
    assert ended(processes[0], 15) == 1
    said = said_by(job, 0)
    assert "process 0 of 2 cannot go on alone: a process was killed, or its machine is gone" in said
    assert "start the same command again" in said
    step = int(checkpoints(tmp_path / "run" / "checkpoints")[-1].name.removeprefix("step-"))
    assert 4 <= step < 20
    result = run(Job(job.folder, job.tasks, LONG, out=str(tmp_path / "run")))
    assert (result.resumed_from, result.steps) == (step, 20)
    run(Job(str(tmp_path / "plain"), job.tasks, LONG, out=str(tmp_path / "plain")))
    near(out(tmp_path / "run")["weights"], out(tmp_path / "plain")["weights"], atol=1e-5)
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), abs=1e-5)


def test_a_process_that_stands_still(server: ForkServerContext, tmp_path: Path) -> None:
    """Nothing closes its connections, so only its silence tells."""
    job = Job(str(tmp_path / "run"), ("ranking",), LONG, slow=0.05)
    processes = start(server, job, timeout=SOON)
    until(lambda: len(losses(tmp_path / "run")) >= 3)
    os.kill(processes[1].pid, signal.SIGSTOP)
    began = time.monotonic()
    assert ended(processes[0], 30) == 1
    assert time.monotonic() - began < 4 * SOON + 5
    assert "process 1 has not been heard of for" in said_by(job, 0)
    os.kill(processes[1].pid, signal.SIGCONT)
    assert ended(processes[1], 30) == 1  # and finds itself alone


def test_the_reason_reaches_the_others(server: ForkServerContext, tmp_path: Path) -> None:
    job = Job(str(tmp_path / "run"), ("ranking",), LONG)
    processes = start(server, job, second={"fails_at": 5})
    assert [ended(process, 30) for process in processes] == [1, 1]
    assert said_by(job, 1).endswith("이 글은 읽을 수 없습니다 (this text cannot be read)\n")
    assert "process 1 failed (InputError: 이 글은 읽을 수 없습니다 (this text cannot be read)); start" in said_by(
        job, 0
    )


def test_other_data_is_refused_by_all(server: ForkServerContext, tmp_path: Path) -> None:
    jobs = [Job(str(tmp_path / "run"), (task,), LONG) for task in ("ranking", "cosent")]
    port = free_port()
    processes = [server.Process(target=work, args=(Among(jobs[rank], rank, 2, port),)) for rank in range(2)]
    for process in processes:
        process.start()
    assert [ended(process, 30) for process in processes] == [1, 1]
    for rank in range(2):
        assert "process 1 has another model, other data or other settings than process 0" in said_by(jobs[0], rank)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow  # it waits for seconds
def test_evaluating_may_take_longer_than_silence(server: ForkServerContext, tmp_path: Path) -> None:
    """The first process evaluates alone; it is alive meanwhile, so the others wait."""
    job = Job(str(tmp_path / "run"), ("cosine",), SETTINGS | {"max_steps": 3, "epochs": 1}, evaluate=True)
    processes = start(server, job, timeout=1.0, evaluates=3.0)
    finish(processes)
    assert [record["step"] for record in read_log(tmp_path / "run" / "log.jsonl") if "main" in record] == [3]


@pytest.mark.slow
def test_only_the_first_needs_the_folder(server: ForkServerContext, tmp_path: Path) -> None:
    """Another machine does not see the checkpoints: it gets the state from the first process."""
    settings = LONG | {"ema": 0.7}
    job = Job(str(tmp_path / "run"), ("softmax", "ranking"), settings, evaluate=True, slow=0.05, out=str(tmp_path))
    elsewhere = {"other_folder": str(tmp_path / "elsewhere")}
    processes = start(server, job, second=elsewhere)
    until(lambda: len(losses(tmp_path / "run")) >= 5)
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    again = Job(job.folder, job.tasks, settings, evaluate=True, out=str(tmp_path))
    finish(start(server, again, second=elsewhere))
    assert not (tmp_path / "elsewhere").exists()
    here, there = out(tmp_path, 0), out(tmp_path, 1)
    assert here["result"]["resumed_from"] == there["result"]["resumed_from"] >= 4
    assert here["result"]["losses"] == there["result"]["losses"]
    assert same(here["weights"], there["weights"])
    plain = tmp_path / "plain"
    finish(together(server, Job(str(plain), job.tasks, settings, evaluate=True, out=str(plain))))
    assert same(here["weights"], out(plain)["weights"])
    # The processes start on the machines the other way round: the first finds nothing, the second does.
    swapped = Job(str(tmp_path / "elsewhere"), job.tasks, settings, evaluate=True)
    processes = start(server, swapped, second={"other_folder": job.folder})
    assert [ended(process, 30) for process in processes] == [1, 1]
    assert "process 0 none: processes may start on other machines" in said_by(swapped, 0)


# --- torchrun starts them again --------------------------------------------------------------------------------------

DYING = """
import json, sys
sys.path.insert(0, {tests!r})
from training.material import Job, run
from training.process_work import die_in_the_first_start
die_in_the_first_start(rank={rank}, call=12)
run(Job(**json.loads(sys.argv[1])))
"""


def launch(tmp_path: Path, job: Job, options: list[str], *, rank: int, name: str = "torchrun") -> subprocess.Popen[str]:
    script = tmp_path / f"script-{rank}.py"
    script.write_text(DYING.format(tests=str(Path(__file__).parents[1]), rank=rank), encoding="utf-8")
    module = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}[name]
    command = [sys.executable, "-m", module, *options, str(script), json.dumps(vars(job))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def as_unbroken(server: ForkServerContext, tmp_path: Path, job: Job) -> None:
    """To the last bit: two processes that nothing happened to end with the same weights, and the log is one story."""
    plain = tmp_path / "plain"
    finish(together(server, Job(str(plain), job.tasks, job.settings, evaluate=True, out=str(plain))))
    for rank in range(2):
        assert same(out(tmp_path / "run", rank)["weights"], out(plain, rank)["weights"])
        assert out(tmp_path / "run", rank)["result"]["resumed_from"] >= 2
    assert losses(tmp_path / "run") == losses(plain)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_killed_and_started_again(server: ForkServerContext, tmp_path: Path, launcher: str) -> None:
    job = Job(str(tmp_path / "run"), ("ranking",), LONG | {"dropout": 0.1}, evaluate=True, out=str(tmp_path / "run"))
    port = str(free_port())
    options = {
        "torchrun": ["--nproc_per_node", "2", "--max_restarts", "1", "--master_port", port],
        "accelerate": [
            *("--multi_gpu", "--num_machines", "1", "--num_processes", "2", "--mixed_precision", "no"),
            *("--dynamo_backend", "no", "--max_restarts", "1", "--main_process_port", port),
        ],
    }[launcher]
    process = launch(tmp_path, job, options, rank=1, name=launcher)
    text, _ = process.communicate(timeout=200)
    assert process.returncode == 0, text
    as_unbroken(server, tmp_path, job)


@pytest.mark.slow
def test_two_machines_of_which_one_loses_its_process(server: ForkServerContext, tmp_path: Path) -> None:
    """Two torchruns that find each other; the restart count of the one that only stopped its process may stay 0."""
    job = Job(str(tmp_path / "run"), ("ranking",), LONG | {"dropout": 0.1}, evaluate=True, out=str(tmp_path / "run"))
    shared = ["--nnodes", "2", "--nproc_per_node", "1", "--max_restarts", "2", "--rdzv_backend", "c10d"]
    shared += ["--rdzv_id", "munjang", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--local_addr", "127.0.0.1"]
    processes = [launch(tmp_path, job, shared, rank=1) for _ in range(2)]
    texts = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(texts)
    as_unbroken(server, tmp_path, job)


@pytest.mark.slow
def test_torchrun_without_restarts_ends_with_an_error(tmp_path: Path) -> None:
    job = Job(str(tmp_path / "run"), ("ranking",), LONG)
    process = launch(tmp_path, job, ["--nproc_per_node", "2", "--master_port", str(free_port())], rank=1)
    text, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "process 0 of 2 cannot go on alone" in text or "Signal 9" in text


# --- meeting ---------------------------------------------------------------------------------------------------------


def tcp_stores(count: int) -> list[Any]:
    """Connections to one store, as torchrun keeps it over its restarts."""
    port, short = free_port(), timedelta(seconds=20)
    kept = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=short)
    return [kept, *(torch.distributed.TCPStore("127.0.0.1", port, timeout=short) for _ in range(count - 1))]


def meet_all(stores: list[Any], *, delays: tuple[float, ...]) -> list[Any]:
    """Everybody meets, each after a delay."""
    found: list[Any] = [None] * len(delays)

    def one(rank: int) -> None:
        time.sleep(delays[rank])
        found[rank] = meet(stores[rank], rank, len(delays), wait=10)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(delays))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_starts_never_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """One store over four starts, of three, two and three processes, whoever comes first, whatever was counted."""
    stores = tcp_stores(3)
    starts = [(0.0, 0.1, 0.2), (0.2, 0.0), (0.1, 0.2, 0.0), (0.0, 0.0, 0.0)]
    for number, delays in enumerate(starts):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(min(number, 1)))
        shared = meet_all(stores, delays=delays)
        assert not any(store.check(["who"]) for store in shared)  # nothing of the starts before
        for rank, store in enumerate(shared):
            store.set(f"who/{rank}", str(number))
        shared[0].set("who", str(number))
        assert [store.get("who") for store in shared] == [str(number).encode()] * len(delays)
        assert [bytes(value) for value in shared[0].multi_get([f"who/{rank}" for rank in range(len(delays))])] == [
            str(number).encode()
        ] * len(delays)


def test_a_process_that_never_comes() -> None:
    first, second = tcp_stores(2)
    with pytest.raises(PeerGoneError, match=r"of 4 processes, processes 1, 2, 3 did not start"):
        meet(first, 0, 4, wait=0.3)
    with pytest.raises(PeerGoneError, match=r"process 1 found no other process of its run"):
        meet(second, 1, 2, wait=0.3)


@pytest.mark.parametrize("given", ["", "soon", "0", "-5", "nan", "inf", "0.5"])
def test_a_silence_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("MUNJANG_PEER_TIMEOUT", given)
    with pytest.raises(InputError, match="MUNJANG_PEER_TIMEOUT must be seconds, 1 or more, got"):
        patience()


def test_silence_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUNJANG_PEER_TIMEOUT", raising=False)
    assert patience() == 300
    monkeypatch.setenv("MUNJANG_PEER_TIMEOUT", "90")
    assert patience() == 90
