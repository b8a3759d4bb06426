"""Tasks with shares of the steps: how often each trains, what is refused, and what a run's identity is made of."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from munjang.errors import InputError, ResumeError
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.run import describe_run, identity_of
from training.material import bi, cross, labelled, pairs, same, scored, weights

QUICK = TrainingSettings(max_steps=20, batch_size=4, learning_rate=1e-3)


def tasks(*shares: float | None) -> list[Task]:
    every = [
        Task(scored(20), objectives.CoSent()),
        Task(pairs(40), objectives.Ranking()),
        Task(scored(12, seed=4, name="more scores"), objectives.CosineMse()),
    ]
    return [replace(one, share=share) for one, share in zip(every, shares, strict=False)]


def counted(folder: Path) -> Counter[str]:
    lines = (folder / "log.jsonl").read_text("utf-8").splitlines()
    return Counter(record["task"] for record in map(json.loads, lines) if "task" in record)


# --- training --------------------------------------------------------------------------------------------------------


def test_a_run_trains_each_task_as_often_as_its_share_says(tmp_path: Path) -> None:
    train(bi(), tasks(0.2, 0.7, 0.1), replace(QUICK, max_steps=90), folder=tmp_path)
    found = counted(tmp_path)  # five epochs of 5 + 10 + 3 batches
    assert found == {"our scores": 18, "our pairs": 63, "more scores": 9}


def test_without_shares_by_their_batches(tmp_path: Path) -> None:
    train(bi(), tasks(None, None, None), replace(QUICK, max_steps=18), folder=tmp_path)
    assert counted(tmp_path) == {"our scores": 5, "our pairs": 10, "more scores": 3}


def test_equal_shares_beside_round_robin_decide_too(tmp_path: Path) -> None:
    train(bi(), tasks(3, 1), replace(QUICK, sampling="round_robin", max_steps=60), folder=tmp_path)
    found = counted(tmp_path)
    assert abs(found["our scores"] - 45) <= 2


def test_a_cross_encoder_has_shares_too(tmp_path: Path) -> None:
    given = [
        Task(scored(8), objectives.CrossScore(), share=0.25),
        Task(scored(8, seed=3, name="others"), objectives.CrossScore(), share=0.75),
    ]
    train(cross(), given, replace(QUICK, max_steps=16), folder=tmp_path)
    assert counted(tmp_path) == {"our scores": 4, "others": 12}


def test_the_same_shares_give_the_same_weights_and_others_another_run(tmp_path: Path) -> None:
    found = []
    for place, shares in enumerate([(0.5, 0.5), (5, 5), (0.9, 0.1)]):
        model = bi()
        train(model, tasks(*shares), QUICK, folder=tmp_path / str(place))
        found.append(weights(model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])
    with pytest.raises(ResumeError, match="holds another run"):
        train(bi(), tasks(0.9, 0.1), QUICK, folder=tmp_path / "0")


# --- refused before anything -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0, -0.5, float("inf"), float("nan")])
def test_a_share_that_is_none(share: float, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the share of our pairs must be above 0 and finite, got"):
        train(bi(), tasks(0.5, share), QUICK, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("shares", "named"),
    [((0.5, None), "our pairs"), ((None, 0.5, None), "our scores, more scores"), ((1, 1, None), "more scores")],
)
def test_some_with_and_some_without(shares: tuple[float | None, ...], named: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"shares of the steps need one for every task; {named} has none"):
        train(bi(), tasks(*shares), QUICK, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_task_may_have_a_share(tmp_path: Path) -> None:
    result = train(bi(), tasks(0.3), replace(QUICK, max_steps=3), folder=tmp_path)
    assert result.steps == 3


# --- identity --------------------------------------------------------------------------------------------------------


def test_a_run_without_shares_is_described_as_before() -> None:
    """A folder that an earlier release left can be gone on with: its tasks knew of no share."""
    model = bi()
    plain = describe_run(model, tasks(None, None), QUICK, evaluators=[])
    known = {
        "name", "kind", "rows", "data", "objective", "objective_settings", "batch_size", "weight",
    }  # fmt: skip
    assert all(set(task) == known for task in plain["tasks"])  # type: ignore[attr-defined]
    shared = describe_run(model, tasks(0.4, 0.6), QUICK, evaluators=[])
    found = shared["tasks"]
    assert isinstance(found, list)
    assert [task.pop("share") for task in found] == [0.4, 0.6]
    assert shared == plain, "nothing else is told otherwise"


def test_shares_are_part_of_the_identity() -> None:
    model = bi()

    def identity(*shares: float | None) -> str:
        return identity_of(describe_run(model, tasks(*shares), QUICK, evaluators=[]))

    assert len({identity(None, None), identity(0.5, 0.5), identity(0.4, 0.6)}) == 3
    assert identity(None, None) == identity_of(describe_run(model, tasks(None, None), QUICK, evaluators=[]))


def test_labels_beside_scores(tmp_path: Path) -> None:
    given = [Task(labelled(12), objectives.Softmax(), share=1), Task(scored(12), objectives.CosineMse(), share=2)]
    train(bi(), given, replace(QUICK, max_steps=18), folder=tmp_path)
    assert counted(tmp_path) == {"our NLI": 6, "our scores": 12}
