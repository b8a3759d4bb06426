"""From gradients to weights, beside torch's own AdamW and plain formulas."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from munjang.training import Task, TrainingSettings, batching, objectives, train
from munjang.training.processes import Processes
from munjang.training.settings import rate_at
from munjang.training.stepping import Stepper, work_of
from munjang.training.trainee import Trainee, precision_for
from munjang.training.updates import Updates
from training.material import bi, cross, labelled, near, scored, weights

SETTINGS: dict[str, Any] = {"batch_size": 4, "learning_rate": 3e-3, "dropout": 0.0, "seed": 2}


def plain_training(
    settings: TrainingSettings, steps: int, *, groups: Any = None
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """The same run as a plain torch loop; the weights, and those after every step."""
    model = bi()
    examples = scored(12)
    trainee = Trainee(model, "float32", 0.0)
    trainee.train()
    work = work_of(examples, objectives.CosineMse(), trainee)
    named = dict(trainee.named_weights())
    parameters = groups(named) if groups else [
        {"params": [w for w in named.values() if w.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [w for w in named.values() if w.dim() == 1], "weight_decay": 0.0},
    ]  # fmt: skip
    for group in parameters:
        group["base"] = group.setdefault("lr", settings.learning_rate)
    optimiser = torch.optim.AdamW(parameters, betas=settings.betas, foreach=False)
    stream = batching.batches(
        [batching.Source(12, settings.batch_size)], sampling="proportional", temperature=1.0, seed=settings.seed
    )
    after = []
    warm_up = settings.warm_up_steps(steps)
    for step, (_, rows) in enumerate(islice(stream, steps)):
        optimiser.zero_grad()
        packed = work.sequences.pack(rows, trainee.device, sort=True)
        loss = work.objective(packed.by_stream(trainee(packed.batch)), work.given(rows, trainee.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), settings.max_grad_norm)
        for group in optimiser.param_groups:
            group["lr"] = group["base"] * rate_at(step, steps, warm_up, settings.schedule)
        optimiser.step()
        after.append({name: weight.detach().clone() for name, weight in named.items()})
    return weights(model), after


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_grad_norm": 0.05},
        {"weight_decay": 0.3, "betas": (0.8, 0.95)},
        {"schedule": "cosine", "warm_up": 2},
    ],
)
def test_against_a_plain_loop_with_torchs_adamw(more: dict[str, Any]) -> None:
    settings = TrainingSettings(**SETTINGS, max_steps=5, **more)
    model = bi()
    train(model, [Task(scored(12), objectives.CosineMse())], settings)
    near(weights(model), plain_training(settings, 5)[0], atol=2e-6)


def test_clipping_matters_there() -> None:
    loose, tight = (TrainingSettings(**SETTINGS, max_steps=5, max_grad_norm=norm) for norm in (1e9, 0.05))
    with pytest.raises(AssertionError):
        near(plain_training(loose, 5)[0], plain_training(tight, 5)[0], atol=2e-6)


def test_embeddings_and_heads_have_rates_of_their_own() -> None:
    settings = TrainingSettings(**SETTINGS, max_steps=3, embedding_rate=0.0, weight_decay=0.0)
    model = bi()
    before = weights(model)
    train(model, [Task(scored(12), objectives.CosineMse())], settings)
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, before[name]) == name.startswith("body.embeddings."), name

    def groups(named: dict[str, Tensor]) -> list[dict[str, Any]]:
        inside = {name: name.startswith("body.embeddings.") for name in named}
        return [
            {"params": [w for n, w in named.items() if inside[n] == where and (w.dim() > 1) == wide],
             "lr": 1e-4 if where else 3e-3, "weight_decay": 0.01 if wide else 0.0}
            for where in (True, False) for wide in (True, False)
        ]  # fmt: skip

    settings = TrainingSettings(**SETTINGS, max_steps=3, embedding_rate=1e-4)
    model = bi()
    train(model, [Task(scored(12), objectives.CosineMse())], settings)
    near(weights(model), plain_training(settings, 3, groups=groups)[0], atol=2e-6)


def test_head_rate() -> None:
    scorer = cross(1)
    settings = TrainingSettings(**SETTINGS, max_steps=2, head_rate=0.0, weight_decay=0.0)
    before = weights(scorer)
    train(scorer, [Task(scored(12), objectives.CrossScore())], settings)
    changed = {name for name, tensor in weights(scorer).items() if not torch.equal(tensor, before[name])}
    assert changed
    assert not any(name.startswith("head.") for name in changed)
    softmax = objectives.Softmax()
    train(bi(), [Task(labelled(12), softmax)], settings)
    assert softmax.layer is not None
    untouched = objectives.Softmax()
    untouched.prepare(labelled(12), 16)
    assert untouched.layer is not None
    assert torch.equal(softmax.layer.weight, untouched.layer.weight)


def test_no_decay_of_biases_and_norms() -> None:
    """With gradients of zero, AdamW does nothing but decay."""
    trainee = Trainee(bi(), "float32")
    updates = Updates(trainee, [], TrainingSettings(learning_rate=0.5, weight_decay=0.5))
    updates.begin()
    before = {name: weight.detach().clone() for name, weight in updates.named.items()}
    updates.set_rates(1.0)
    norm = updates.apply(torch.zeros(()))
    assert float(norm) == 0.0
    for name, weight in updates.named.items():
        factor = 0.75 if weight.dim() > 1 else 1.0
        torch.testing.assert_close(weight.detach(), before[name] * factor, rtol=1e-6, atol=0)
        assert (factor == 1.0) == ("norm" in name or name.endswith("bias")), name


def test_the_average_of_weights_against_the_formula() -> None:
    settings = TrainingSettings(**SETTINGS, max_steps=6, ema=0.7)
    model = bi()
    wanted = weights(model)
    train(model, [Task(scored(12), objectives.CosineMse())], settings)
    for after in plain_training(settings, 6)[1]:
        wanted = {name: 0.7 * tensor + 0.3 * after[name] for name, tensor in wanted.items()}
    near(weights(model), wanted, atol=2e-6)


def test_exchanging_the_average_twice_changes_nothing() -> None:
    trainee = Trainee(bi(), "float32")
    updates = Updates(trainee, [], TrainingSettings(ema=0.5))
    for value in updates.average.values():
        value.add_(1.0)
    before = weights(trainee.model)
    updates.swap_average()
    near({name: tensor - 1.0 for name, tensor in weights(trainee.model).items()}, before, atol=1e-6)
    updates.swap_average()
    near(weights(trainee.model), before, atol=0)


# --- half precision --------------------------------------------------------------------------------------------------


def test_the_computing_copy_follows_the_float32_weights() -> None:
    model = bi()
    trainee = Trainee(model, "bfloat16", 0.0)
    assert trainee.dtype == torch.bfloat16
    assert trainee.computing is not trainee.body
    examples, objective = scored(12), objectives.CoSent()
    updates = Updates(trainee, [objective], TrainingSettings(learning_rate=1e-3))
    stepper = Stepper(trainee, updates, Processes(), budget=10**6, seed=0)
    exact = Trainee(bi(), "float32", 0.0)
    reference = Updates(exact, [], TrainingSettings())
    exact_stepper = Stepper(exact, reference, Processes(), budget=10**6, seed=0)
    trainee.train()
    exact.train()
    rows = np.arange(12)
    for step in range(3):
        before = weights(model)
        updates.set_rates(1.0)
        loss = stepper(work_of(examples, objective, trainee), rows, step)
        if step == 0:
            assert float(loss) == pytest.approx(
                float(exact_stepper(work_of(examples, objectives.CoSent(), exact), rows, step)), rel=0.05
            )
            mine, theirs = (torch.cat([g.flatten() for g in u.gradients]) for u in (updates, reference))
            assert float(torch.cosine_similarity(mine, theirs, dim=0)) > 0.99
        assert all(gradient.dtype == torch.float32 for gradient in updates.gradients)
        updates.apply(loss)
        assert any(not torch.equal(tensor, before[name]) for name, tensor in weights(model).items())
        for weight, copied in trainee.copies():
            assert weight.dtype == torch.float32
            assert copied.dtype == torch.bfloat16
            assert torch.equal(weight.to(torch.bfloat16), copied)
    assert len(trainee.copies()) == len(list(trainee.body.parameters()))


def test_small_updates_add_up_in_bfloat16() -> None:
    """Steps smaller than bfloat16 can tell apart are not lost: the sums are float32."""
    model = bi()
    before = weights(model)
    settings = TrainingSettings(**(SETTINGS | {"learning_rate": 1e-6}), max_steps=5, precision="bfloat16", warm_up=0)
    train(model, [Task(scored(12), objectives.CoSent())], settings)
    name = "body.layers.0.mlp.up.weight"
    moved = (weights(model)[name] - before[name]).abs()
    assert 1e-7 < float(moved.median()) < 1e-5
    rounded = before[name].to(torch.bfloat16) == weights(model)[name].to(torch.bfloat16)
    assert float(rounded.float().mean()) > 0.95  # bfloat16 alone would have lost them
    assert model.encode(["a man reads"]).dtype == np.float32


def test_precisions() -> None:
    cpu = torch.device("cpu")
    assert precision_for(cpu, "auto") == torch.float32
    assert precision_for(cpu, "bfloat16") == torch.bfloat16
    with pytest.raises(ValueError, match="float16 trains on GPUs only"):
        precision_for(cpu, "float16")


def test_one_objective_for_two_tasks() -> None:
    """Its weights are trained once a step, not twice."""
    softmax = objectives.Softmax()
    trainee = Trainee(bi(), "float32")
    softmax.prepare(labelled(12), 16)
    updates = Updates(trainee, [softmax, softmax], TrainingSettings())
    assert [name for name in updates.named if name.startswith("objective")] == [
        "objective.0.layer.weight",
        "objective.0.layer.bias",
    ]
    tasks = [Task(labelled(12), softmax), Task(labelled(9, seed=3, name="more"), softmax)]
    assert train(bi(), tasks, TrainingSettings(batch_size=4)).steps == 6
