"""What the processes of these tests do: train among others, fail, be slow, and say why they ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from munjang.errors import InputError, MunjangError
from munjang.evaluation import StsEvaluator
from munjang.training.trainee import Trainee
from training.material import Job, run_among


@dataclass(frozen=True)
class Among:
    """One process of several, and what happens to it."""

    job: Job
    rank: int
    count: int
    port: int
    timeout: float = 60.0  # MUNJANG_PEER_TIMEOUT
    fails_at: int | None = None  # call of the model
    evaluates: float = 0.0  # seconds that an evaluation takes longer
    other_folder: str | None = None  # of this process alone, as on a machine without the first one's disk
    environment: dict[str, str] = field(default_factory=dict)


def said_by(job: Job, rank: int) -> str:
    """What a process wrote to stderr."""
    return Path(f"{job.folder}-said-{rank}.txt").read_text(encoding="utf-8")


def work(among: Among) -> None:
    """Train; an error ends the process as the command line does, with a line on stderr."""
    job = among.job
    said = os.open(f"{job.folder}-said-{among.rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 2)
    os.environ |= {"MUNJANG_PEER_TIMEOUT": str(among.timeout), **among.environment}
    if among.fails_at is not None:
        _at_call(among.fails_at, _fail)
    if among.evaluates:
        _evaluate_slowly(among.evaluates)
    if among.other_folder is not None:
        job = replace(job, folder=among.other_folder)
    try:
        run_among(job, among.rank, among.count, among.port)
    except MunjangError as error:
        sys.stderr.write(f"munjang: error: {error}\n")
        sys.stderr.flush()
        raise SystemExit(1) from error


def die_in_the_first_start(rank: int, call: int) -> None:
    """A process of torchrun kills itself as nothing can prevent, unless it was started again."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == str(rank):
        _at_call(call, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _fail() -> None:
    raise InputError("이 글은 읽을 수 없습니다 (this text cannot be read)")


def _at_call(call: int, act: object) -> None:
    usual, calls = Trainee.__call__, 0

    def counted(self: Trainee, batch: object) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == call:
            act()  # type: ignore[operator]
        return usual(self, batch)  # type: ignore[arg-type]

    Trainee.__call__ = counted  # type: ignore[method-assign]


def _evaluate_slowly(seconds: float) -> None:
    usual = StsEvaluator.__call__

    def slowly(self: StsEvaluator, *given: object, **named: object) -> object:
        time.sleep(seconds)
        return usual(self, *given, **named)  # type: ignore[arg-type]

    StsEvaluator.__call__ = slowly  # type: ignore[assignment, method-assign]
