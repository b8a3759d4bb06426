"""A run that is killed, interrupted or called again ends as an unbroken one does, to the last bit."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from munjang.errors import DataError, ResumeError
from munjang.evaluation import StsEvaluator
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.checkpointing import checkpoints
from munjang.training.log import read_log
from munjang.training.lora import LoraSettings, apply_lora
from training.material import Job, bi, run, run_alone, same, scored, task, weights

# Dropout as the model has it (0.1), an average of weights, two tasks of which one has a head of its own.
SETTINGS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 4,
    "learning_rate": 1e-2,
    "ema": 0.8,
    "evaluate_every": 5,
    "save_every": 2,
    "log_every": 3,
}
STEPS = 4 * 8  # two tasks of 13 rows, in batches of 4


def job(folder: Path, **more: Any) -> Job:
    return Job(str(folder), ("softmax", "ranking"), SETTINGS, evaluate=True, **more)


def saved(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def story(folder: Path) -> list[dict[str, Any]]:
    return read_log(folder / "log.jsonl")


@pytest.fixture(scope="module")
def unbroken(server: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    process = server.Process(target=run_alone, args=(job(folder),))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return folder


def equal_runs(a: Path, b: Path) -> None:
    """The same model, the same story."""
    assert same(saved(a), saved(b))
    one, other = story(a), story(b)
    assert one == other
    steps = [record["step"] for record in other if "loss" in record]
    assert steps == list(range(1, STEPS + 1))
    assert [record["step"] for record in other if "evaluation" in record] == [*range(5, STEPS, 5), STEPS]


def killed_until_done(server: ForkServerContext, folder: Path, *, slow: float, seed: int, kills: int = 12) -> list[int]:
    """Kill at random moments; the checkpoints that were there each time."""
    moments = np.random.default_rng(seed)
    seen: list[int] = []
    for attempt in range(40):
        process = server.Process(target=run_alone, args=(job(folder, slow=slow if attempt < kills else 0.0),))
        process.start()
        log = folder / "log.jsonl"
        before = len(story(folder))
        while process.is_alive() and len(story(folder)) <= before:
            time.sleep(0.01)
        assert log.is_file()
        process.join(float(moments.uniform(0, 12 * slow)) if attempt < kills else 60)
        if process.exitcode is None:
            process.kill()
            process.join()
        if process.exitcode == 0:
            return seen
        assert process.exitcode == -signal.SIGKILL
        found = checkpoints(folder / "checkpoints")
        seen.append(int(found[-1].name.removeprefix("step-")) if found else 0)
    raise AssertionError("the run never finished")


def test_killed_again_and_again(server: ForkServerContext, unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen = killed_until_done(server, folder, slow=0.03, seed=1, kills=5)
    assert len(seen) >= 3, "the run was killed too seldom for this to say anything"
    assert seen == sorted(seen)
    equal_runs(unbroken, folder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_killed_at_other_moments(server: ForkServerContext, unbroken: Path, tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "run"
    assert killed_until_done(server, folder, slow=0.01 * seed, seed=seed)
    equal_runs(unbroken, folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(server: ForkServerContext, unbroken: Path, tmp_path: Path, number: int) -> None:
    folder = tmp_path / "run"
    process = server.Process(target=run_alone, args=(job(folder, slow=0.05),))
    process.start()
    while len(story(folder)) < 7:
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(30)
    assert process.exitcode == 130
    said = (folder / "said.txt").read_text(encoding="utf-8")
    last = checkpoints(folder / "checkpoints")[-1]
    step = int(last.name.removeprefix("step-"))
    assert f"interrupted after step {step} of {STEPS}" in said
    assert str(folder) in said
    assert not (folder / "model").exists()
    assert max(record["step"] for record in story(folder)) == step
    process = server.Process(target=run_alone, args=(job(folder),))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    equal_runs(unbroken, folder)


def test_one_run_at_a_time_in_a_folder(server: ForkServerContext, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = server.Process(target=run_alone, args=(job(folder, slow=0.3),))
    process.start()
    while not (folder / "log.jsonl").is_file():
        time.sleep(0.01)
    try:
        with pytest.raises(DataError, match="another process"):
            run(job(folder))
    finally:
        process.kill()
        process.join()


def finished(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    model = bi()
    evaluators = [StsEvaluator(scored(8, seed=20, name="dev"))]
    settings = TrainingSettings(max_steps=6, batch_size=4, learning_rate=1e-2, evaluate_every=2)
    result = train(model, [task("cosent")], settings, folder=folder, evaluators=evaluators)
    return result, weights(model)


def test_a_finished_run_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, learned = finished(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("munjang.training.stepping.Stepper.__call__", None)  # no step is computed
        second, again = finished(tmp_path)
    assert same(learned, again)
    assert second.resumed_from == 6
    one, other = first.as_dict(), second.as_dict()
    assert {k: v for k, v in one.items() if k != "resumed_from"} == {
        k: v for k, v in other.items() if k != "resumed_from"
    }
    with pytest.raises(ResumeError, match="another run"):
        train(bi(), [task("cosent")], TrainingSettings(max_steps=7, batch_size=4), folder=tmp_path)
    with pytest.raises(ResumeError, match="choose another folder"):
        train(bi(), [Task(scored(14), objectives.CoSent())], TrainingSettings(max_steps=6), folder=tmp_path)


def test_what_does_not_decide_the_outcome_may_change(tmp_path: Path) -> None:
    base = {"max_steps": 6, "batch_size": 4, "learning_rate": 1e-2, "dropout": 0.0}
    train(bi(), [task("cosent")], TrainingSettings(**base), folder=tmp_path)
    again = TrainingSettings(**base, token_budget=4096, keep_checkpoints=3, log_every=1, save_every=1)
    assert train(bi(), [task("cosent")], again, folder=tmp_path).resumed_from == 6


def test_a_log_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "lo', encoding="utf-8")
    assert read_log(path) == [{"step": 1, "loss": 0.5}]
    assert read_log(tmp_path / "none") == []


def test_another_development_set_is_another_run(tmp_path: Path) -> None:
    """It would choose another model, though it has the same name."""
    settings = TrainingSettings(max_steps=4, batch_size=4, evaluate_every=2)

    def again(seed: int) -> Any:
        evaluators = [StsEvaluator(scored(8, seed=seed, name="dev"))]
        return train(bi(), [task("cosent")], settings, folder=tmp_path, evaluators=evaluators)

    again(20)
    assert again(20).resumed_from == 4
    with pytest.raises(ResumeError, match="another run"):
        again(21)


def test_other_adapters_are_another_run(tmp_path: Path) -> None:
    """What they count, and their dropout, are not among the weights."""
    pytest.importorskip("peft")
    settings = TrainingSettings(max_steps=2, batch_size=4)

    def again(**changed: Any) -> Any:
        model = bi()
        apply_lora(model.parts.body, LoraSettings(rank=2, **changed))
        plain = model.save
        model.save = lambda path: None  # type: ignore[method-assign]
        try:
            return train(model, [task("cosent")], settings, folder=tmp_path)
        finally:
            model.save = plain  # type: ignore[method-assign]

    again(alpha=4)
    assert again(alpha=4).resumed_from == 2
    for changed in ({"alpha": 8}, {"alpha": 4, "dropout": 0.1}):
        with pytest.raises(ResumeError, match="another run"):
            again(**changed)
