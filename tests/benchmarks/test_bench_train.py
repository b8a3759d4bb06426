"""The training benchmark: its rows, its clock, its arithmetic, that both sides train the same; and one tiny run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import models, timing, train, train_data, train_measure, train_page, train_sides  # noqa: E402
from benchmarks.train_sides import Clock, Job, Ours, Peer  # noqa: E402
from munjang.data import Examples  # noqa: E402


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory, minilm_path: Path) -> Path:
    return models.random_bert(tmp_path_factory.mktemp("tiny"), minilm_path, models.TINY)


@pytest.fixture(scope="module")
def still_path(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> Path:
    """The same without dropout: what it learns follows from the rows alone."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny_path), device="cpu")
    config = model[0].model.config
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    folder = tmp_path_factory.mktemp("still")
    model.save(str(folder))
    return folder


def _job(folder: Path, objective: str, *, batch_size: int = 8, steps: int = 3, rows: int | None = None) -> Job:
    examples = train_data.made().whole_batches(batch_size).train[objective]
    examples = examples if rows is None else examples.take(range(rows))
    return Job(folder, "cpu", objective, examples, batch_size, steps, 1e-3, 32)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_written_rows_are_always_the_same() -> None:
    first, again = train_data.made(), train_data.made()
    assert first.train["softmax"].columns == again.train["softmax"].columns
    assert set(first.train["softmax"].targets.tolist()) == {0, 1, 2}
    assert list(first.train["mnrl"].columns) == ["anchor", "positive", "negative"]
    assert len(set(np.round(first.measured["written here"].targets, 3))) > 10


def test_every_batch_is_full() -> None:
    corpus = train_data.made()
    size = len(corpus.train["softmax"])
    cut = corpus.whole_batches(7)
    assert len(cut.train["softmax"]) == size // 7 * 7 < size
    with pytest.raises(SystemExit, match="fewer than one batch"):
        corpus.whole_batches(10_000)


def test_a_batch_that_is_not_full_is_an_error(tiny_path: Path) -> None:
    """Rows a second would be wrong otherwise: here, in-batch negatives with one text in every row."""
    job = _job(tiny_path, "mnrl")
    columns = {**job.examples.columns, "negative": ["always this one"] * len(job.examples)}
    with pytest.raises(RuntimeError, match="not every batch was full"):
        Ours().train(replace(job, examples=Examples("same", "pairs", columns)), None)


# --- the clock -------------------------------------------------------------------------------------------------------


def test_the_clock_takes_its_two_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 17.0])
    monkeypatch.setattr(train_sides.time, "perf_counter", lambda: next(times))
    clock = Clock(2, 5, "cpu")
    for step in (1, 2, 2, 3, 5, 5):
        clock.tick(step)
    assert clock.seconds == 7.0
    assert clock.steps == 3


def test_a_clock_that_missed_its_step() -> None:
    clock = Clock(2, 5, "cpu")
    clock.tick(2)
    with pytest.raises(RuntimeError, match="step 5"):
        clock.seconds  # noqa: B018


@pytest.mark.parametrize("side", [Ours(), Peer()], ids=lambda side: side.name)
@pytest.mark.parametrize("first", [1, 10])
def test_both_sides_tell_the_clock_of_both_steps(side: train_sides.TrainSide, first: int, tiny_path: Path) -> None:
    job = _job(tiny_path, "softmax", steps=first + 3)
    clock = Clock(first, first + 3, "cpu")
    side.train(job, clock)
    assert clock.seconds > 0


# --- the sides train the same ----------------------------------------------------------------------------------------


def test_both_sides_move_the_weights_alike(still_path: Path) -> None:
    """One batch, no dropout, no layer of the loss: rows, loss, optimiser, schedule and clipping must be the same."""
    job = _job(still_path, "mnrl", rows=8, steps=4)
    start = train_sides._load_ours(still_path, job).parts.body.state_dict()
    ours, theirs = (side.train(job, None).parts.body.state_dict() for side in (Ours(), Peer()))
    for name, before in start.items():
        if not name.startswith("embeddings.position") and "bias" not in name:
            moved, expected = (state[name] - before for state in (ours, theirs))
            assert expected.norm() > 0
            # Adam makes a whole step of the smallest gradient, so that rounding shows in single values.
            apart = (moved - expected).norm() / expected.norm()
            assert apart < 0.02, name


def test_settings_reach_the_peers_trainer(tiny_path: Path, tmp_path: Path) -> None:
    from benchmarks.sides import load_peer

    job = replace(_job(tiny_path, "softmax", steps=40), seed=5)
    trainer = Peer()._trainer(load_peer(tiny_path, "cpu"), job, None, str(tmp_path))
    trainer.create_optimizer_and_scheduler(40)
    args = trainer.args
    assert (args.max_steps, args.per_device_train_batch_size, args.seed) == (40, 8, 5)
    assert (args.learning_rate, args.warmup_steps, args.max_grad_norm) == (1e-3, 4, 1.0)
    assert {group["weight_decay"] for group in trainer.optimizer.param_groups} == {0.0, 0.01}
    assert trainer.optimizer.defaults["fused"]
    assert sum(len(group["params"]) for group in trainer.optimizer.param_groups) == len(list(trainer.loss.parameters()))
    assert len(trainer.get_train_dataloader().dataset) == len(job.examples)


def test_the_softmax_layers_gradients_do_not_add_up(tiny_path: Path, tmp_path: Path) -> None:
    """Releases that clear only the model's gradients get help; others need none."""
    import transformers

    from benchmarks.sides import load_peer

    seen: list[bool] = []

    class Look(transformers.TrainerCallback):
        def on_step_begin(self, args: object, state: object, control: object, **given: object) -> None:
            seen.append(trainer.loss.classifier.weight.grad is None)

    for has_zeroing in (True, False):
        kept = train_sides.peer_trainer
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(train_sides, "peer_trainer", lambda kept=kept, has=has_zeroing: (kept()[0], has))
            job = _job(tiny_path, "softmax", steps=3)
            trainer = Peer()._trainer(load_peer(tiny_path, "cpu"), job, None, str(tmp_path))
        trainer.add_callback(Look())
        trainer.train()
        if not has_zeroing:
            assert seen[-3:] == [True] * 3


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _record(**changes: object) -> train_measure.Record:
    return {
        "part": "speed",
        "body": "B",
        "objective": "softmax",
        "rows": 1000,
        "steps": 100,
        "tokens a row": 30.0,
        "peer": "sentence-transformers bfloat16, 4 loader processes",
        "ours": "Munjang auto",
        "tried": {"sentence-transformers bfloat16, 4 loader processes": 20.0},
        "seconds": {
            "sentence-transformers bfloat16, 4 loader processes": [4.0, 6.0, 5.0],
            "Munjang auto": [1.0, 1.5, 1.5],
        },
        "tokenising seconds": [1.0, 0.5, 0.5],
        **changes,
    }


def test_the_ratio_counts_tokenising_and_stays_within_rounds() -> None:
    assert train_measure.our_seconds(_record()) == [2.0, 2.0, 2.0]
    assert train_measure.speed_ratio(_record()) == timing.Ratio(2.5, 2.0, 3.0)


def test_the_table_of_speed() -> None:
    (row,) = train_page.speed_table([_record()]).rows
    assert row == (
        *("B", "softmax", "500", "15,000", "15.00"),
        *("bfloat16, 4 loader processes", "200", "6,000", "50.00", "2.50 (2.00-3.00)"),
    )


def test_the_table_of_quality() -> None:
    names = {"ours": "Munjang auto", "peer": "sentence-transformers bfloat16, 0 loader processes"}
    spearman = {names["ours"]: {"S": [0.80, 0.83]}, names["peer"]: {"S": [0.81, 0.81]}}
    record = {"part": "quality", "body": "B", "objective": "mnrl", **names, "spearman": spearman}
    (row,) = train_page.quality_table([record]).rows
    assert row == ("B", "mnrl", "S", "2", "81.50 ± 2.12", "81.00 ± 0.00", "+0.50 ± 2.12")


def test_the_peers_best_setting_is_taken(monkeypatch: pytest.MonkeyPatch, tiny_path: Path) -> None:
    took = {"float32": 9.0, "float16": 3.0, "bfloat16": 4.0}
    calls: list[str] = []

    def timed(side: train_sides.TrainSide, job: Job, clock: Clock) -> float:
        calls.append(side.name)
        if isinstance(side, Ours):
            return 1.0
        return took[side.precision] - (0.5 if side.workers else 0)

    monkeypatch.setattr(train_measure, "timed_training", timed)
    plan = train_measure.Plan(steps=20, warm_up=10, repeats=2, search_steps=15)
    job = replace(_job(tiny_path, "softmax"), device="cuda")
    record = train_measure.measure_speed(job, plan, tokens=20.0)
    assert len(record["tried"]) == 5
    assert record["peer"] == "sentence-transformers float16, 4 loader processes"
    assert record["rows"] == 80
    assert calls[5:] == [record["peer"], "Munjang auto"] * 2  # in turns
    assert all(seconds > 0 for seconds in record["tokenising seconds"])


def test_a_part_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Benchmarks\n\n<!-- cuda:begin -->\nkept\n<!-- cuda:end -->\n")
    for body in ("first", "second"):
        train_page.write(path, "cuda", command="c", machine={"GPU": "g"}, body=body, how="so")
    text = path.read_text()
    assert "first" not in text
    assert text.count("<!-- training-cuda:begin -->") == text.count("second") == text.count("kept") == 1
    path.write_text(text.replace("<!-- training-cuda:end -->", ""))
    with pytest.raises(ValueError, match="training-cuda:end"):
        train_page.write(path, "cuda", command="c", machine={}, body="", how="")


# --- from end to end -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--device", "cpu", "--body", "tiny", "--steps", "4", "--repeats", "2", "--batch-size", "16"]
    arguments += ["--max-length", "32", "--epochs", "0.2", "--seeds", "0,1"]
    arguments += ["--output", str(tmp_path / "raw.json"), "--write", str(tmp_path / "page.md")]
    assert train.main(arguments) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "these numbers mean nothing" in text
    assert str(tmp_path) not in text
    records = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))["records"]
    parts = [(record["part"], record["objective"]) for record in records.values()]
    assert parts == [(part, objective) for objective in ("softmax", "mnrl") for part in ("speed", "quality")]
    for record in records.values():
        if record["part"] == "speed":
            assert record["rows"] == 3 * 16
            assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in record["seconds"].values())
    # Nothing is measured twice.
    monkeypatch.setattr(train, "measure_speed", None)
    monkeypatch.setattr(train, "measure_quality", None)
    assert train.main(arguments) == 0


@pytest.mark.parametrize("arguments", [["--objectives", "none"], ["--parts", ""], ["--steps", "1"]])
def test_wrong_settings_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        train.main(["--device", "cpu", "--body", "tiny", *arguments])
    assert stopped.value.code not in (0, None)
    assert arguments[0] in f"{stopped.value.code} {capsys.readouterr().err}"


@pytest.mark.slow
def test_loader_processes_do_not_hang(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    clock = Clock(1, 3, "cpu")
    Peer(workers=2).train(_job(tiny_path, "softmax"), clock)
    assert clock.seconds > 0


@pytest.mark.data
def test_the_public_data(data_path: Path) -> None:
    corpus = train_data.read(data_path)
    assert len(corpus.train["softmax"]) == 39_666
    assert len(corpus.train["mnrl"]) > 6_400
    assert {name: len(one) for name, one in corpus.measured.items()} == {"STSb dev": 1_500, "STSb test": 1_379}
