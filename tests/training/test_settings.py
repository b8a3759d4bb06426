"""Settings: every value that cannot be meant is refused by its name; the learning rate follows its schedule."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.settings import rate_at
from training.material import bi, same, scored, weights

BAD: dict[str, list[Any]] = {
    "epochs": [0, -1, math.nan, math.inf],
    "max_steps": [0, -3],
    "batch_size": [0, -1],
    "learning_rate": [0, -1e-5, 1, 20, math.nan],
    "embedding_rate": [-1e-5, 1, math.nan],
    "head_rate": [-1e-5, 2],
    "warm_up": [-0.1, math.nan, math.inf],
    "schedule": ["linea", ""],
    "weight_decay": [-0.1, 1, math.nan],
    "betas": [(0.9,), (0.9, 1.0), (-0.1, 0.9)],
    "max_grad_norm": [0, -1, math.nan],
    "dropout": [-0.1, 1, math.nan],
    "precision": ["half", "fp32"],
    "token_budget": [0],
    "sampling": ["random"],
    "temperature": [0, -1, math.nan],
    "seed": [-1],
    "ema": [0, 1, 1.5, math.nan],
    "evaluate_every": [0],
    "save_every": [0],
    "save_seconds": [-1, math.inf, math.nan],
    "keep_checkpoints": [0],
    "patience": [0],
    "log_every": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name} must be ") as said:
        TrainingSettings(**{name: value})
    assert repr(value) in str(said.value)


def test_every_setting_is_checked_or_free() -> None:
    free = {"metric"}  # any name; whether there is such a metric, the evaluators know
    assert set(BAD) | free == set(TrainingSettings().as_dict())


def test_settings_survive_json() -> None:
    settings = TrainingSettings(ema=0.9, betas=(0.8, 0.99))
    read = json.loads(json.dumps(settings.as_dict()))
    assert TrainingSettings(**{**read, "betas": tuple(read["betas"])}) == settings


def test_steps() -> None:
    assert TrainingSettings().step_count(100) == 100
    assert TrainingSettings(epochs=2.5).step_count(10) == 25
    assert TrainingSettings(epochs=0.001).step_count(10) == 1
    assert TrainingSettings(epochs=5, max_steps=7).step_count(100) == 7
    assert TrainingSettings().warm_up_steps(105) == 10
    assert TrainingSettings(warm_up=0).warm_up_steps(105) == 0
    assert TrainingSettings(warm_up=30).warm_up_steps(31) == 30


def test_pitfall_warm_up_longer_than_training() -> None:
    """Peers then train with a learning rate that hardly leaves zero, without a word."""
    model = bi()
    before = weights(model)
    with pytest.raises(InputError, match=r"warm_up must be shorter than the training, which has 3 steps, got 1,000"):
        train(model, [Task(scored(12), objectives.CoSent())], TrainingSettings(batch_size=4, warm_up=1000))
    assert same(before, weights(model))
    with pytest.raises(InputError, match="never be reached"):
        TrainingSettings(warm_up=10).warm_up_steps(10)


@given(st.integers(1, 200), st.floats(0, 0.9), st.sampled_from(["linear", "cosine", "constant"]))
def test_rates_rise_to_one_and_fall(steps: int, share: float, schedule: Any) -> None:
    warm_up = int(share * steps)
    rates = [rate_at(step, steps, warm_up, schedule) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)  # no step is for nothing
    assert rates[: warm_up + 1] == sorted(rates[: warm_up + 1])
    assert rates[warm_up:] == sorted(rates[warm_up:], reverse=True)
    assert rates[warm_up] == 1


@pytest.mark.parametrize(("steps", "warm_up"), [(40, 0), (40, 10), (7, 3), (100, 99)])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_rates_against_transformers(steps: int, warm_up: int, schedule: Any) -> None:
    """The same after the warm-up. Theirs spends its first step at a rate of zero; ours is theirs one step on."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = {
        "linear": lambda w, s: transformers.get_linear_schedule_with_warmup(optimiser, w, s),
        "cosine": lambda w, s: transformers.get_cosine_schedule_with_warmup(optimiser, w, s),
        "constant": lambda w, s: transformers.get_constant_schedule_with_warmup(optimiser, w),
    }[schedule]
    after = theirs(warm_up, steps).lr_lambdas[0]
    rising = theirs(warm_up + 1, steps + 1).lr_lambdas[0]
    for step in range(steps):
        wanted = after(step) if step >= warm_up else rising(step + 1)
        assert rate_at(step, steps, warm_up, schedule) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", ["learning_rate", "epochs", "batch_size", "seed"])
def test_a_word_for_a_number_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be a number, got 'x'"):
        TrainingSettings(**{name: "x"})  # type: ignore[arg-type]
