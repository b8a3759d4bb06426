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

from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import DataError, ResumeError
from munjang.evaluation import StsEvaluator
from munjang.recipes.adapters import adapted
from munjang.training import Task, TrainingSettings, loop, objectives, train
from munjang.training.checkpointing import checkpoints
from munjang.training.log import read_log
from munjang.training.lora import LoraSettings
from munjang.training.state import State
from training.material import Job, bi, cross, run, run_alone, same, scored, sentences, task, weights

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


@pytest.mark.slow  # tests/test_kills.py kills a run once
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


def test_killed_without_a_development_set(server: ForkServerContext, tmp_path: Path) -> None:
    """Checkpoints come by time, also in the middle of an epoch, where nothing is evaluated."""
    settings = {"epochs": 3, "batch_size": 4, "learning_rate": 1e-2, "log_every": 1, "save_seconds": 0.2}
    slow = Job(str(tmp_path / "run"), ("softmax", "ranking"), settings, slow=0.05)
    process = server.Process(target=run_alone, args=(slow,))
    process.start()
    while process.is_alive() and not checkpoints(tmp_path / "run" / "checkpoints"):
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    result = run(Job(slow.folder, slow.tasks, settings))
    assert result.resumed_from is not None
    assert 0 < result.resumed_from < 3 * 8
    run(Job(str(tmp_path / "plain"), slow.tasks, settings))
    assert same(saved(tmp_path / "run"), saved(tmp_path / "plain"))
    assert story(tmp_path / "run") == story(tmp_path / "plain")
    assert TrainingSettings().save_seconds <= 60


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
        with adapted(bi(), LoraSettings(rank=2, **changed)) as learner:
            return train(learner, [task("cosent")], settings, folder=tmp_path)

    again(alpha=4)
    assert again(alpha=4).resumed_from == 2
    for changed in ({"alpha": 8}, {"alpha": 4, "dropout": 0.1}):
        with pytest.raises(ResumeError, match="another run"):
            again(**changed)


# --- finished runs ---------------------------------------------------------------------------------------------------


def test_a_finished_run_keeps_no_checkpoints(tmp_path: Path) -> None:
    first, learned = finished(tmp_path)
    assert not (tmp_path / "checkpoints").exists()
    assert (tmp_path / "model").is_dir()
    second, again = finished(tmp_path)
    assert second.resumed_from == first.steps
    assert same(learned, again)


def test_checkpoints_that_were_asked_for_stay(tmp_path: Path) -> None:
    settings = TrainingSettings(max_steps=6, batch_size=4, save_every=2, keep_checkpoints=2)
    train(bi(), [task("cosent")], settings, folder=tmp_path)
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["step-00000004", "step-00000006"]


def test_the_end_writes_no_optimiser_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model alone is written: several times its size would only be removed again."""
    steps: list[int] = []
    write = loop.write_checkpoint

    def counted(folder: Path, step: int, *rest: Any, **named: Any) -> None:
        steps.append(step)
        write(folder, step, *rest, **named)

    monkeypatch.setattr(loop, "write_checkpoint", counted)
    train(bi(), [task("cosent")], TrainingSettings(max_steps=6, batch_size=4, save_every=2), folder=tmp_path)
    assert steps == [2, 4]


def test_what_objectives_learned_is_there_again(tmp_path: Path) -> None:
    """The softmax of NLI is not in the saved model, and is needed to measure."""
    found = []
    for _ in range(2):
        one = task("softmax")
        result = train(bi(), [one], TrainingSettings(max_steps=4, batch_size=4, learning_rate=1e-2), folder=tmp_path)
        found.append({name: weight.detach().clone() for name, weight in one.objective.named_parameters()})
    assert result.resumed_from == 4
    assert found[0]
    assert same(*found)


def test_a_finished_cross_encoder_with_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    learned = []
    for _ in range(2):
        model = cross()
        with adapted(model, LoraSettings(rank=2)) as learner:
            settings = TrainingSettings(max_steps=4, batch_size=4, learning_rate=1e-2)
            result = train(learner, [Task(scored(13), objectives.CrossScore())], settings, folder=tmp_path)
        learned.append(model.predict([("a man", "reads"), ("아이들이", "잔다")]))
    assert result.resumed_from == 4
    np.testing.assert_allclose(learned[0], learned[1], atol=1e-6)


def test_a_finished_run_without_its_model_is_trained_again(tmp_path: Path) -> None:
    _, learned = finished(tmp_path)
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    second, again = finished(tmp_path)
    assert second.resumed_from is None
    assert same(learned, again)


def test_a_model_that_was_changed_is_not_written_over(tmp_path: Path) -> None:
    finished(tmp_path)
    other = bi()
    with torch.no_grad():
        next(other.parts.body.parameters()).add_(1)
    other.save(tmp_path / "model")
    with pytest.raises(ResumeError, match="not the model that this run saved"):
        finished(tmp_path)


# --- the model as given ----------------------------------------------------------------------------------------------


def harmful(folder: Path | None = None, **more: Any) -> tuple[Any, BiEncoder, dict[str, torch.Tensor]]:
    """A run that makes the model worse on its development set: scores that say the opposite."""
    model = bi()
    cosines = [float(np.dot(*model.encode([a, b], normalize=True))) for a, b in zip(*PAIRS, strict=True)]
    right = Examples("dev", "scored", {"a": PAIRS[0], "b": PAIRS[1]}, np.clip(cosines, 0, 1).astype(np.float32))
    wrong = Examples("wrong", "scored", right.columns, 1 - right.targets)  # type: ignore[operator]
    settings = TrainingSettings(max_steps=6, batch_size=4, learning_rate=3e-2, evaluate_every=2, dropout=0.0)
    before = weights(model)
    evaluators = [StsEvaluator(right)]
    result = train(model, [Task(wrong, objectives.CosineMse())], settings, folder=folder, evaluators=evaluators, **more)
    return result, model, before


PAIRS = (sentences(12, 1), sentences(12, 2))


def test_training_that_did_harm_delivers_the_model_as_given(tmp_path: Path) -> None:
    result, model, before = harmful(tmp_path)
    assert result.unchanged
    assert result.best.step == 0
    assert same(weights(model), before)
    assert all(record["main"] < result.start for record in result.evaluations)
    assert "nothing beat the model as given" in str(result)
    again, _, _ = harmful(tmp_path)
    assert again.unchanged
    assert str(again) == str(result)


def test_the_model_as_given_may_be_left_out_of_the_choice() -> None:
    result, model, before = harmful(start=())
    assert not result.unchanged
    assert not same(weights(model), before)


def test_a_new_head_is_no_candidate() -> None:
    """What it says means nothing yet."""
    settings = TrainingSettings(max_steps=2, batch_size=4, learning_rate=1e-9, evaluate_every=1)
    result = train(cross(), [Task(scored(13), objectives.CrossScore())], settings, evaluators=[StsEvaluator(scored(8))])
    assert result.start is None
    assert result.best is not None
    assert result.best.step > 0


def test_patience_does_not_count_the_start() -> None:
    """A model often gets worse before it gets better."""
    state = State(step=0)
    for step, value in enumerate([0.9, 0.5, 0.6, 0.7]):
        state.step = step
        state.judge("dev/main", value, {})
        assert state.worse == 0
    assert state.best is not None
    assert (state.best.step, state.start) == (0, 0.9)
