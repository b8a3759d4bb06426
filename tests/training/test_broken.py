"""Losses that are no number, and disks that are full: the run stops, says why, and what was good stays good."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from munjang.data import Examples
from munjang.errors import DataError, ResumeError, TrainingError
from munjang.training import Task, TrainingSettings, batching, checkpointing, objectives, train
from munjang.training.checkpointing import checkpoints, read_checkpoint
from munjang.training.log import read_log
from munjang.training.objectives import Given
from training.material import Job, bi, run, same, scored, task, weights

ROWS = 24
SETTINGS: dict[str, Any] = {"max_steps": 12, "batch_size": 4, "learning_rate": 1e-2, "seed": 3}


def rows_of(step: int, examples: Examples, settings: TrainingSettings) -> list[int]:
    """The rows of a step (counted from 1)."""
    stream = batching.batches(
        [batching.source_of(examples, settings.batch_size, unique_texts=False)],
        sampling=settings.sampling,
        temperature=settings.temperature,
        seed=settings.seed,
    )
    rows: list[int] = next(batching.skip(stream, step - 1))[1].tolist()
    return rows


class BreaksAt(objectives.CosineMse):
    """Gives no number in one step."""

    def __init__(self, step: int, *, gradient_only: bool = False) -> None:
        super().__init__()
        self.step, self.gradient_only, self.calls = step, gradient_only, 0

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        self.calls += 1
        loss = super().forward(outputs, given)
        if self.calls != self.step:
            return loss
        if self.gradient_only:  # a root has no slope at zero: the loss is finite, its gradient is not
            return loss + (loss - loss).sqrt()
        return loss * float("nan")


@pytest.mark.parametrize("gradient_only", [False, True])
@pytest.mark.parametrize("log_every", [1, 10_000])
@pytest.mark.parametrize("ema", [None, 0.5])
def test_the_weights_are_those_from_before(
    tmp_path: Path, log_every: int, gradient_only: bool, ema: float | None
) -> None:
    examples = scored(ROWS)
    settings = TrainingSettings(**SETTINGS, log_every=log_every, save_every=20, ema=ema)
    model = bi()
    objective = BreaksAt(7, gradient_only=gradient_only)
    with pytest.raises(TrainingError, match=r"step 7 on our scores gave a loss of .*4 rows are in .*bad-batch") as said:
        train(model, [Task(examples, objective)], settings, folder=tmp_path)
    assert "lower the learning rate" in str(said.value)

    lines = [json.loads(line) for line in (tmp_path / "bad-batch.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in lines] == rows_of(7, examples, settings)
    for line in lines:
        assert {key: value for key, value in line.items() if key != "row"} == examples.row(line["row"])
    assert [record["step"] for record in read_log(tmp_path / "log.jsonl")] == list(range(1, 7))
    assert not (tmp_path / "model").exists()
    assert checkpoints(tmp_path / "checkpoints") == []  # nothing was saved after the bad step
    assert np.isfinite(model.encode(["a man reads"])).all()

    class StopsAfter(objectives.CosineMse):
        calls = 0

        def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
            self.calls += 1
            if self.calls == 7:
                raise KeyboardInterrupt
            return super().forward(outputs, given)

    good = bi()
    with pytest.raises(KeyboardInterrupt):
        train(good, [Task(examples, StopsAfter())], settings)
    assert same(weights(model), weights(good))


def test_a_broken_target(tmp_path: Path) -> None:
    """Examples refuse it, but arrays can be changed later."""
    examples = scored(ROWS)
    assert examples.targets is not None
    settings = TrainingSettings(**SETTINGS, save_every=1, keep_checkpoints=9)
    row = rows_of(5, examples, settings)[2]
    examples.targets[row] = np.nan
    with pytest.raises(TrainingError, match="step 5 "):
        train(bi(), [Task(examples, objectives.CosineMse())], settings, folder=tmp_path)
    lines = (tmp_path / "bad-batch.jsonl").read_text(encoding="utf-8").splitlines()
    assert row in [json.loads(line)["row"] for line in lines]
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == [f"step-{i:08d}" for i in (1, 2, 3, 4)]
    with pytest.raises(TrainingError, match="step 5 "):  # the same call goes on after step 4, and finds it again
        train(bi(), [Task(examples, objectives.CosineMse())], settings, folder=tmp_path)
    assert [record["step"] for record in read_log(tmp_path / "log.jsonl")] == [1, 2, 3, 4]


def test_a_transient_fault_can_be_resumed_from(tmp_path: Path) -> None:
    """The checkpoint from before the bad step goes on to the weights of a run without it."""
    settings = TrainingSettings(**SETTINGS, save_every=5)

    class CosineMse(BreaksAt):  # the name by which a run knows its objective
        pass

    plain = bi()
    train(plain, [Task(scored(ROWS), objectives.CosineMse())], settings)
    model = bi()
    with pytest.raises(TrainingError):
        train(model, [Task(scored(ROWS), CosineMse(8))], settings, folder=tmp_path)
    model = bi()
    result = train(model, [Task(scored(ROWS), objectives.CosineMse())], settings, folder=tmp_path)
    assert result.resumed_from == 5
    assert same(weights(model), weights(plain))


def test_without_a_folder() -> None:
    with pytest.raises(TrainingError, match="no folder was given"):
        train(bi(), [Task(scored(ROWS), BreaksAt(2))], TrainingSettings(**SETTINGS))


# --- the disk --------------------------------------------------------------------------------------------------------


def job(folder: Path) -> Job:
    return Job(str(folder), ("cosent",), SETTINGS | {"save_every": 3})


def no_room(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["atomic_write", "replace"])
def test_the_disk_is_full_while_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    run(job(tmp_path / "plain"))
    folder = tmp_path / "run"
    write, done = checkpointing.write_checkpoint, []

    def filling_up(*arguments: Any, **options: Any) -> None:
        if len(done) == 2:
            if fails == "atomic_write":
                usual = checkpointing.atomic_write

                def half(path: Path, data: bytes) -> None:
                    usual(path, data[: len(data) // 2])
                    no_room()

                monkeypatch.setattr(checkpointing, "atomic_write", half)
            else:
                monkeypatch.setattr(checkpointing.os, "replace", no_room)
        done.append(write(*arguments, **options))

    with monkeypatch.context() as patch:
        patch.setattr("munjang.training.loop.write_checkpoint", filling_up)
        with pytest.raises(DataError, match=r"disk is full.*the checkpoints before it are whole"):
            run(job(folder))
    monkeypatch.undo()
    found = checkpoints(folder / "checkpoints")
    assert [path.name for path in found] == ["step-00000003", "step-00000006"]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [path.name for path in found]
    for path in found:
        read_checkpoint(path)
    assert run(job(folder)).resumed_from == 6
    assert (folder / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "plain" / "model" / "model.safetensors"
    ).read_bytes()


def test_the_disk_is_full_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("munjang.bi_encoder.BiEncoder.save", no_room)
        with pytest.raises(DataError, match="make room and run the same command again"):
            run(job(tmp_path))
    assert run(job(tmp_path)).resumed_from == 9  # the end writes no checkpoint
    assert (tmp_path / "model").is_dir()


def test_the_log_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(DataError, match="the model and its checkpoints are as they were"):
        run(job(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="nothing was trained yet"):
        run(job(tmp_path / "file" / "run"))


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    kept = Job(str(tmp_path), ("cosent",), SETTINGS | {"save_every": 3, "keep_checkpoints": 2})
    run(kept)
    shutil.rmtree(tmp_path / "model")  # a finished run would be read from there
    newest = checkpoints(tmp_path / "checkpoints")[-1]
    path = newest / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ResumeError, match=rf"{newest.name} cannot be read.*remove it"):
        run(kept)


def test_old_checkpoints_go(tmp_path: Path) -> None:
    settings = TrainingSettings(**SETTINGS, save_every=1, keep_checkpoints=3)
    train(bi(), [task("cosent")], settings, folder=tmp_path)
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == [f"step-{i:08d}" for i in (10, 11, 12)]
