"""The loop as a whole: the best model wins, patience ends, the model is whole afterwards, its folder too."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as TheirCrossEncoder
from sentence_transformers import SentenceTransformer

import munjang
from munjang.checkpoint import BiParts
from munjang.checkpoint.static import plain_tokenizer
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.evaluation import LabelEvaluator, Scores, StsEvaluator
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.heads import Dense
from munjang.nn.pooling import Pooling
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.log import read_log
from training.material import (
    NLI,
    backend,
    bi,
    cross,
    labelled,
    near,
    pairs,
    ranked,
    same,
    scored,
    sentences,
    task,
    tiny_parts,
    weights,
)

SETTINGS: dict[str, Any] = {"max_steps": 8, "batch_size": 4, "learning_rate": 1e-2}


@dataclass
class Scripted:
    """Answers with the values it was given, and keeps the weights it was shown."""

    values: list[float]
    name: str = "dev"
    main: str = "good"
    shown: list[dict[str, torch.Tensor]] = field(default_factory=list)
    training: list[bool] = field(default_factory=list)

    def __call__(self, model: Any) -> Scores:
        value = self.values[len(self.shown)]
        self.shown.append(weights(model))
        self.training.append(model.parts.body.training)
        vectors = model.encode(["a man reads", "잔다"])
        return Scores(self.name, {"good": value, "bad": -value, "size": float(vectors.shape[1])}, self.main, 2)


# --- the best model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ema", [None, 0.6])
@pytest.mark.parametrize(("metric", "best"), [(None, 2), ("dev/good", 2), ("dev/bad", 3)])
def test_the_best_weights_win_not_the_last(tmp_path: Path, ema: float | None, metric: str | None, best: int) -> None:
    evaluator = Scripted([0.2, 0.5, 0.1, 0.5])
    model = bi()
    settings = TrainingSettings(**SETTINGS, evaluate_every=2, metric=metric, ema=ema)
    result = train(model, [task("cosent")], settings, folder=tmp_path, evaluators=[evaluator], start=())
    assert result.best is not None
    assert result.best.metric == (metric or "dev/good")
    assert result.best.step == 2 * best
    assert same(weights(model), evaluator.shown[best - 1])
    assert not same(weights(model), evaluator.shown[-1])
    assert not any(evaluator.training)
    assert same(weights(munjang.load(tmp_path / "model", device="cpu", dtype="float32")), weights(model))
    assert [record["main"] for record in result.evaluations] == ([0.2, 0.5, 0.1, 0.5] if best == 2 else
                                                                 [-0.2, -0.5, -0.1, -0.5])  # fmt: skip
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["best"]["step"] == 2 * best


def test_evaluating_does_not_change_the_training() -> None:
    plain, watched = bi(), bi()
    train(plain, [task("ranking")], TrainingSettings(**SETTINGS))
    settings = TrainingSettings(**SETTINGS, evaluate_every=1)
    evaluator = Scripted([float(i) for i in range(8)])
    train(watched, [task("ranking")], settings, evaluators=[evaluator], start=())
    assert same(weights(plain), weights(watched))


def test_patience() -> None:
    evaluator = Scripted([0.3, 0.2, 0.4, 0.4, 0.1, 0.9])
    model = bi()
    settings = TrainingSettings(max_steps=30, batch_size=4, evaluate_every=2, patience=2, learning_rate=1e-2)
    result = train(model, [task("cosent")], settings, evaluators=[evaluator], start=())
    assert result.stopped_early
    assert result.steps == 10
    assert result.best is not None
    assert (result.best.step, result.best.value) == (6, 0.4)
    assert same(weights(model), evaluator.shown[2])
    assert "stopped early" in str(result)


def test_a_value_that_is_no_number_is_never_the_best() -> None:
    evaluator = Scripted([float("nan"), 0.1, float("nan"), 0.2])
    result = train(
        bi(), [task("cosent")], TrainingSettings(**SETTINGS, evaluate_every=2), evaluators=[evaluator], start=()
    )
    assert result.best is not None
    assert result.best.step == 8


def test_evaluators_have_names_of_their_own() -> None:
    """Else the second's value would stand for the first's."""
    evaluators = [Scripted([0.1] * 8), Scripted([0.2] * 8)]
    with pytest.raises(InputError, match=r"evaluators need names of their own, got \['dev', 'dev'\]"):
        train(bi(), [task("cosent")], TrainingSettings(**SETTINGS), evaluators=evaluators)
    assert evaluators[0].shown == []


def test_the_metric_must_be_known() -> None:
    evaluator = Scripted([0.1] * 8)
    with pytest.raises(InputError, match="needs evaluators"):
        train(bi(), [task("cosent")], TrainingSettings(metric="dev/good"))
    with pytest.raises(InputError, match=r"for example dev/good, got 'test/good'"):
        train(bi(), [task("cosent")], TrainingSettings(metric="test/good"), evaluators=[evaluator])
    assert evaluator.shown == []  # before anything was trained
    model = bi()
    with pytest.raises(InputError, match=r"one of dev/good, dev/bad, dev/size, got 'dev/goood'"):
        train(
            model, [task("cosent")], TrainingSettings(**SETTINGS, metric="dev/goood"), evaluators=[evaluator], start=()
        )
    assert not model.parts.body.training


# --- afterwards ------------------------------------------------------------------------------------------------------


def test_a_trained_bi_encoder_is_an_ordinary_model(tmp_path: Path) -> None:
    model = bi()
    own = [model.parts.body.attention_dropout, model.parts.body.layers[0].dropout.p]
    before = model.encode(sentences(5))
    fingerprint = model.fingerprint
    state = torch.get_rng_state()
    tasks = [task("softmax"), task("ranking")]
    result = train(model, tasks, TrainingSettings(**SETTINGS, dropout=0.3), folder=tmp_path)
    assert torch.equal(torch.get_rng_state(), state)  # the caller's random numbers go on as if nothing had happened

    assert not any(part.training for part in model.parts.body.modules())
    assert all(weight.device.type == "cpu" and weight.grad is None for weight in model.parts.body.parameters())
    assert [model.parts.body.attention_dropout, model.parts.body.layers[0].dropout.p] == own  # 0.3 was the run's
    vectors = model.encode(sentences(5))
    assert np.abs(vectors - before).max() > 1e-3
    assert model.fingerprint != fingerprint
    assert np.array_equal(vectors, munjang.load(tmp_path / "model", device="cpu", dtype="float32").encode(sentences(5)))
    peer = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert np.allclose(peer.encode(sentences(5)), vectors, atol=1e-5)

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "log.jsonl", "model", "objectives.safetensors", "result.json"}
    saved = munjang.load(tmp_path / "model", device="cpu").parts
    assert len(saved.heads) == 0  # the softmax of the training stays behind
    assert not any("objective" in name for path in (tmp_path / "model").rglob("*.safetensors") for name in _keys(path))
    assert result.folder == tmp_path
    assert result.rows == sum(len(rows) for rows in _rows(tasks))
    assert set(result.losses) == {"our NLI", "our pairs"}
    assert result.truncated == {"our NLI": 0, "our pairs": 0}


def _keys(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return list(file.keys())


def _rows(tasks: list[Task]) -> list[Any]:
    from munjang.training import batching

    sources = [batching.source_of(t.examples, 4, unique_texts=t.objective.unique_texts) for t in tasks]
    stream = batching.batches(sources, sampling="proportional", temperature=2.0, seed=0)
    return [next(stream)[1] for _ in range(8)]


def test_a_trained_cross_encoder_is_an_ordinary_model(tmp_path: Path) -> None:
    model = cross(NLI)
    held = [("a man reads", "한 남자가 잔다"), ("my friend eats noodles in Seoul", "the woman reads")]
    before = model.predict(held)
    evaluators = [LabelEvaluator(labelled(9, seed=4, name="dev"))]
    result = train(
        model,
        [Task(labelled(12), objectives.CrossEntropy())],
        TrainingSettings(**SETTINGS),
        folder=tmp_path,
        evaluators=evaluators,
    )
    after = model.predict(held)
    assert np.abs(after - before).max() > 1e-3
    assert result.best is not None
    assert not model.parts.head.training
    again = CrossEncoder.load(tmp_path / "model", device="cpu", dtype="float32")
    assert np.allclose(again.predict(held), after, atol=1e-6)
    assert again.labels == NLI
    peer = TheirCrossEncoder(str(tmp_path / "model"), device="cpu")
    assert np.allclose(peer.predict(held, apply_softmax=True), after, atol=1e-5)


def test_training_learns() -> None:
    """Not only runs: the order of the scores is learned by heart."""
    data = scored(16)
    model = bi()
    settings = TrainingSettings(epochs=25, batch_size=16, learning_rate=1e-2, dropout=0.0)
    before = StsEvaluator(data)(model).value
    result = train(model, [Task(data, objectives.CoSent())], settings)
    assert StsEvaluator(data)(model).value > max(0.9, before + 0.2)
    assert result.losses["our scores"] < 3
    scorer = cross(1)
    settings = TrainingSettings(max_steps=80, batch_size=3, learning_rate=1e-2, dropout=0.0)
    train(scorer, [Task(ranked(6), objectives.CrossLists())], settings)
    examples = ranked(6)
    scores = scorer.predict(list(zip(examples.columns["query"], examples.columns["document"], strict=True)))
    assert examples.groups is not None
    assert examples.targets is not None
    best = [np.argmax(np.where(examples.groups == group, scores, -1)) for group in range(6)]
    assert sum(examples.targets[best]) == 6


def test_an_objective_begins_every_run_anew() -> None:
    softmax = objectives.Softmax()
    first, second = bi(), bi()
    train(first, [Task(labelled(12), softmax)], TrainingSettings(**SETTINGS))
    train(second, [Task(labelled(12), softmax)], TrainingSettings(**SETTINGS))
    assert same(weights(first), weights(second))


def test_the_log_tells_the_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int | None]] = []
    settings = TrainingSettings(**SETTINGS, log_every=2, warm_up=3)
    train(bi(), [task("cosine")], settings, folder=tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 8), (4, 8), (6, 8), (8, 8)]
    assert capsys.readouterr().err == ""
    records = read_log(tmp_path / "log.jsonl")
    assert [record["step"] for record in records] == list(range(1, 9))
    assert [record["rate"] for record in records[:4]] == pytest.approx([2.5e-3, 5e-3, 7.5e-3, 1e-2])
    assert all(record["task"] == "our scores" and record["norm"] > 0 and record["tokens"] > 0 for record in records)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["settings"]["learning_rate"] == 1e-2
    assert config["tasks"][0]["objective"] == "CosineMse"
    train(bi(), [task("cosent")], settings, progress=True)
    assert "step 8/8  loss " in capsys.readouterr().err


def test_in_another_thread() -> None:
    """Signals belong to the main thread; training does not."""
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(train(bi(), [task("cosent")], TrainingSettings(**SETTINGS)))
    )
    thread.start()
    thread.join()
    assert results[0].steps == 8


# --- other bodies ----------------------------------------------------------------------------------------------------


def test_a_static_model_trains(tmp_path: Path) -> None:
    words = backend()
    table = torch.randn(words.get_vocab_size(), 16, generator=torch.Generator().manual_seed(1))
    parts = BiParts(body=StaticEmbedding(table), tokenizer=plain_tokenizer(words), pooling=Pooling(), source="static")
    model = BiEncoder(parts, device="cpu", dtype="float32")
    before = weights(model)
    data = pairs(12)
    data.columns["anchor"][3] = ""  # a text without a token
    train(model, [Task(data, objectives.Ranking())], TrainingSettings(**SETTINGS, embedding_rate=0.05), folder=tmp_path)
    moved = (weights(model)["body.embedding.weight"] - before["body.embedding.weight"]).abs().max()
    assert float(moved) > 0.03  # at the rate of embeddings
    assert np.isfinite(model.encode(sentences(3))).all()
    near(weights(munjang.load(tmp_path / "model", device="cpu", dtype="float32")), weights(model))


def test_a_body_of_transformers_trains(tmp_path: Path) -> None:
    import transformers

    config = transformers.RoFormerConfig(
        vocab_size=backend().get_vocab_size(), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    body = TransformersBody(transformers.RoFormerModel(config).eval())
    parts = tiny_parts()
    model = BiEncoder(BiParts(body=body, tokenizer=parts.tokenizer, pooling=Pooling()), device="cpu", dtype="float32")
    before = weights(model)
    train(model, [task("cosent")], TrainingSettings(**SETTINGS, dropout=0.0))
    assert not same(before, weights(model))
    assert not model.parts.body.training


def test_a_frozen_body_and_a_dense_head() -> None:
    """Only what wants a gradient is trained, and saved in checkpoints."""
    parts = tiny_parts()
    parts.heads.append(Dense(16, 8))
    model = BiEncoder(parts, device="cpu", dtype="float32")
    for weight in parts.body.parameters():
        weight.requires_grad_(False)
    before = weights(model)
    train(model, [task("cosent")], TrainingSettings(**SETTINGS))
    changed = {name for name, tensor in weights(model).items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.startswith("head.")}
    for weight in parts.heads.parameters():
        weight.requires_grad_(False)
    with pytest.raises(InputError, match="no weight"):
        train(model, [task("cosent")], TrainingSettings(**SETTINGS))
