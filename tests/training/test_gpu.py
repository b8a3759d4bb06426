"""On a GPU: recorded steps, half precision with loss scaling, and memory that is too small."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import munjang
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import TrainingError, TrainingWarning
from munjang.evaluation import StsEvaluator
from munjang.nn.packed import Packed
from munjang.training import Task, TrainingSettings, loop, objectives, train
from munjang.training.graphs import StepGraphs
from munjang.training.log import read_log
from munjang.training.stepping import Stepper
from munjang.training.trainee import Trainee
from support.bodies import ours, theirs
from training.material import NLI, labelled, pairs, plain, scored, sentences, taught, telling, tiny_parts, weights

pytestmark = pytest.mark.gpu

WIDTH = 64  # heads of 32, as small models have

SETTINGS: dict[str, Any] = {"max_steps": 24, "batch_size": 8, "learning_rate": 1e-3, "dropout": 0.0, "log_every": 6}


def bi() -> BiEncoder:
    return BiEncoder(tiny_parts(WIDTH), device="cuda")


def cross(labels: Any) -> CrossEncoder:
    return CrossEncoder.from_body(tiny_parts(WIDTH), labels, device="cuda")


TEACHERS = (
    objectives.Teaching(WIDTH, mse=0.5, cosine=1.0, contrastive=0.2, relational=0.3),
    objectives.Teaching(5, mse=0.0, relational=1.0),
)


def biased() -> BiEncoder:
    """MPNet: attention with a learned bias."""
    reference = theirs("mpnet")
    parts = replace(tiny_parts(), body=ours(reference), hf_config=reference.config.to_dict())
    return BiEncoder(parts, device="cuda")


CASES: dict[str, Any] = {
    "ranking": lambda: (bi(), Task(pairs(32, negatives=1), objectives.Ranking())),
    "cosent": lambda: (bi(), Task(scored(32), objectives.CoSent())),
    "relative bias": lambda: (biased(), Task(scored(32), objectives.CoSent())),
    "softmax": lambda: (bi(), Task(labelled(32), objectives.Softmax())),
    "matryoshka": lambda: (bi(), Task(pairs(32), objectives.Matryoshka(objectives.Ranking(), (64, 16)))),
    "distil": lambda: (bi(), Task(taught(WIDTH + 5, 32, translations=1), objectives.Distil(TEACHERS))),
    "distil row by row": lambda: (bi(), Task(taught(WIDTH, 32), objectives.Distil([objectives.Teaching(WIDTH)]))),
    "cross score": lambda: (cross(1), Task(scored(32), objectives.CrossScore())),
    "cross entropy": lambda: (cross(NLI), Task(labelled(32), objectives.CrossEntropy())),
}


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in read_log(folder / "log.jsonl") if "loss" in record]


@pytest.mark.parametrize("case", CASES)
def test_recorded_steps_are_the_same_steps(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[bool] = []
    usual = StepGraphs.__call__

    def counted(self: StepGraphs, *arguments: Any) -> Any:
        found = usual(self, *arguments)
        replayed.append(found is not None)
        return found

    monkeypatch.setattr(StepGraphs, "__call__", counted)
    settings = TrainingSettings(**SETTINGS, precision="bfloat16")
    model, task = CASES[case]()
    start = weights(model)
    train(model, [task], settings, folder=tmp_path / "recorded")
    assert sum(replayed) >= 8, "nothing was recorded"
    assert replayed[0] is False  # a shape is recorded when it comes again

    monkeypatch.setattr(Stepper, "shape", lambda self, work, rows: None)  # neither recorded nor filled up
    plain, task = CASES[case]()
    train(plain, [task], settings, folder=tmp_path / "plain")
    assert len(losses(tmp_path / "recorded")) == 24
    assert losses(tmp_path / "recorded") == pytest.approx(losses(tmp_path / "plain"), rel=0.03, abs=0.02)
    one, other = (torch.cat([(w[n] - start[n]).flatten() for n in start]) for w in (weights(model), weights(plain)))
    assert float(torch.cosine_similarity(one, other, dim=0)) > 0.95  # they went the same way


def test_recorded_steps_with_dropout_repeat(tmp_path: Path) -> None:
    """The same run again has the same losses: dropout follows the seed and the step in recorded steps too."""
    settings = TrainingSettings(**(SETTINGS | {"dropout": 0.1}), precision="bfloat16")
    found = []
    for name in ("one", "two"):
        model, task = CASES["ranking"]()
        train(model, [task], settings, folder=tmp_path / name)
        found.append(losses(tmp_path / name))
    assert found[0] == pytest.approx(found[1], rel=0.03, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_every_precision_learns(precision: Any) -> None:
    data = scored(32)
    model = bi()
    settings = TrainingSettings(max_steps=80, batch_size=32, learning_rate=1e-2, dropout=0.0, precision=precision)
    train(model, [Task(data, objectives.CoSent())], settings)
    assert StsEvaluator(data)(model).value > 0.9
    assert all(weight.dtype == torch.float32 for weight in model.parts.body.parameters())


def test_float16_survives_an_overflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss scale that is far too large is halved until gradients fit; those steps change nothing."""
    monkeypatch.setattr("munjang.training.updates._SCALE", 2.0**40)
    model = bi()
    settings = TrainingSettings(max_steps=60, batch_size=8, learning_rate=1e-3, dropout=0.0, precision="float16")
    train(model, [Task(scored(32), objectives.CoSent())], settings, folder=tmp_path)
    records = [record for record in read_log(tmp_path / "log.jsonl") if "loss" in record]
    assert records[0]["norm"] is None
    assert records[-1]["norm"] is not None
    assert all(np.isfinite(record["loss"]) for record in records)
    assert np.isfinite(model.encode(sentences(4))).all()


def test_a_loss_that_is_no_number_in_float16() -> None:
    data = scored(32)
    broken = copy.deepcopy(data)
    assert broken.targets is not None
    broken.targets[5] = np.nan
    model = bi()
    settings = TrainingSettings(max_steps=12, batch_size=8, precision="float16")
    with pytest.raises(TrainingError, match="gave a loss of nan"):
        train(model, [Task(broken, objectives.CosineMse())], settings)
    assert np.isfinite(model.encode(sentences(4))).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_out_of_memory_halves_the_budget(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Trainee.__call__
    asked: list[int] = []

    def refusing(self: Trainee, batch: Packed) -> Tensor:
        asked.append(batch.total)
        if batch.total > 100:
            raise torch.OutOfMemoryError("too many tokens")
        return usual(self, batch)

    monkeypatch.setattr(Trainee, "__call__", refusing)
    settings = TrainingSettings(max_steps=6, batch_size=16, precision=precision)
    model = bi()
    with pytest.warns(TrainingWarning, match="out of memory: the step is repeated"):
        result = train(model, [Task(scored(32), objectives.CoSent())], settings)
    assert result.steps == 6
    assert max(asked[-4:]) <= 100
    assert np.isfinite(model.encode(sentences(4))).all()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_resumed_on_the_gpu(dropout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to the last bit (the GPU adds in any order), but nearly, though other steps are recorded: also with dropout,
    which is the same in a recorded step and in one that is not."""
    settings = TrainingSettings(**(SETTINGS | {"dropout": dropout}), precision="bfloat16", save_every=8, ema=0.9)
    model, task = CASES["softmax"]()
    train(model, [task], settings, folder=tmp_path / "plain")
    write = loop.write_checkpoint

    def stopping(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_checkpoint", stopping)
        broken, task = CASES["softmax"]()
        with pytest.raises(KeyboardInterrupt):
            train(broken, [task], settings, folder=tmp_path / "run")
    broken, task = CASES["softmax"]()
    assert train(broken, [task], settings, folder=tmp_path / "run").resumed_from == 8
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), rel=0.05, abs=0.03)


def test_afterwards_the_model_is_on_the_gpu_again(tmp_path: Path) -> None:
    model, task = CASES["ranking"]()
    state, state_cuda = torch.get_rng_state(), torch.cuda.get_rng_state()  # making a model draws numbers too
    result = train(model, [task], TrainingSettings(**SETTINGS), folder=tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.cuda.get_rng_state(), state_cuda)
    assert model.device.type == "cuda"
    assert all(weight.device.type == "cpu" for weight in model.parts.body.parameters())
    assert result.peak_memory > 0
    loaded = munjang.load(tmp_path / "model", device="cuda")
    assert np.allclose(loaded.encode(sentences(5)), model.encode(sentences(5)), atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_targets_that_stay_on_the_host(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors in a file, sent row by row: not recorded, the same losses."""
    data = taught(WIDTH + 5, 32, translations=1)
    assert data.targets is not None
    np.save(tmp_path / "vectors.npy", data.targets.astype(dtype))
    mapped = replace(data, targets=np.load(tmp_path / "vectors.npy", mmap_mode="r"))
    settings = TrainingSettings(**SETTINGS, precision="bfloat16")
    train(bi(), [Task(mapped, objectives.Distil(TEACHERS))], settings, folder=tmp_path / "near")
    monkeypatch.setattr("munjang.training.stepping._ON_DEVICE", 0)
    train(bi(), [Task(mapped, objectives.Distil(TEACHERS))], settings, folder=tmp_path / "far")
    assert losses(tmp_path / "far") == pytest.approx(losses(tmp_path / "near"), rel=0.03, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_hidden_words_are_found(precision: Any, tmp_path: Path) -> None:
    """The tied table's gradient reaches the float32 weights from the computing copy: the loss falls."""
    model = bi()
    before = weights(model)
    settings = TrainingSettings(max_steps=150, batch_size=32, learning_rate=1e-2, dropout=0.0, precision=precision)
    train(model, [Task(telling(), objectives.MaskedWords(0.25))], settings, folder=tmp_path)
    found = losses(tmp_path)
    assert np.isfinite(found).all()
    assert np.mean(found[-10:]) < 0.5 * np.log(16)  # guessing has log 16
    after = weights(model)
    assert not torch.equal(after["body.embeddings.word.weight"], before["body.embeddings.word.weight"])


def test_hidden_words_in_half_precision_learn_as_in_full(tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        settings = TrainingSettings(**SETTINGS, precision=precision)  # type: ignore[arg-type]
        train(bi(), [Task(plain(32), objectives.MaskedWords())], settings, folder=tmp_path / precision)
    assert losses(tmp_path / "bfloat16") == pytest.approx(losses(tmp_path / "float32"), rel=0.05, abs=0.05)
