"""One step: the gradient of the whole batch, whatever fits at a time; too little memory; repeated dropout."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import TrainingError, TrainingWarning
from munjang.nn.encoder import MAX_PADDED
from munjang.nn.packed import Packed
from munjang.training import Task, TrainingSettings, loop, objectives, stepping, train
from munjang.training.objectives import Objective
from munjang.training.processes import Processes
from munjang.training.stepping import Stepper, Work, seed_dropout, work_of
from munjang.training.trainee import Trainee
from munjang.training.updates import Updates
from support.bodies import ours, theirs
from training import material
from training.material import bi, cross, pairs, same, scored, weights

WIDTH = 16
GUIDE = bi()

# Objective -> how it and its data are made.
BI: dict[str, Callable[[], tuple[Objective, Examples]]] = {
    "softmax": lambda: (objectives.Softmax(smoothing=0.1), material.labelled()),
    "cosine": lambda: (objectives.CosineMse(), scored()),
    "cosent": lambda: (objectives.CoSent(), scored()),
    "angle": lambda: (objectives.Angle(), scored()),
    "contrastive": lambda: (objectives.Contrastive(), material.binary()),
    "contrastive online": lambda: (objectives.Contrastive(online=True), material.binary()),
    "triplet": lambda: (objectives.Triplet(), pairs(negatives=1)),
    "batch hard": lambda: (objectives.BatchTriplets(), material.classified()),
    "batch semi-hard": lambda: (objectives.BatchTriplets("semi_hard", distance="cosine"), material.classified()),
    "batch all": lambda: (objectives.BatchTriplets("all"), material.classified()),
    "batch hard soft": lambda: (objectives.BatchTriplets("hard_soft"), material.classified()),
    "ranking": lambda: (objectives.Ranking(), pairs()),
    "ranking symmetric with negatives": lambda: (objectives.Ranking(symmetric=True), pairs(negatives=2)),
    "ranking guided": lambda: (objectives.Ranking(guide=GUIDE), pairs(negatives=1)),
    "mse": lambda: (objectives.Mse(), material.taught(WIDTH)),
    "mse of translations": lambda: (objectives.Mse(), material.taught(WIDTH, translations=2)),
    "distil": lambda: (objectives.Distil(material.TEACHERS), material.taught(WIDTH + 5, translations=1)),
    "distil row by row": lambda: (
        objectives.Distil([objectives.Teaching(WIDTH, cosine=0.5)]),
        material.taught(WIDTH, translations=1),
    ),
    "margin mse of cosines": lambda: (
        objectives.MarginMse(similarity="cosine", scale=3.0),
        pairs(negatives=2, taught=True),
    ),
    "margin mse": lambda: (objectives.MarginMse(), pairs(negatives=2, taught=True)),
    "kl": lambda: (objectives.Kl(), pairs(negatives=2, taught=True)),
    "matryoshka ranking": lambda: (objectives.Matryoshka(objectives.Ranking(), (16, 8, 4)), pairs(negatives=1)),
    "matryoshka cosine": lambda: (objectives.Matryoshka(objectives.CosineMse(), (16, 4)), scored()),
}
CROSS: dict[str, Callable[[], tuple[Objective, Examples]]] = {
    "cross entropy": lambda: (objectives.CrossEntropy(), material.labelled()),
    "cross score": lambda: (objectives.CrossScore(), scored()),
    "cross score of rankings": lambda: (objectives.CrossScore(), material.ranked()),
    "cross score mse": lambda: (objectives.CrossScore("mse"), scored()),
    "cross order": lambda: (objectives.CrossOrder(), scored()),
    "cross ranking": lambda: (objectives.CrossRanking(), pairs(negatives=2)),
    "cross list net": lambda: (objectives.CrossLists("list_net"), material.ranked()),
    "cross lambda": lambda: (objectives.CrossLists("lambda"), material.ranked()),
    "cross rank net": lambda: (objectives.CrossLists("rank_net"), material.ranked()),
    "cross margin mse": lambda: (objectives.CrossMarginMse(), pairs(negatives=2, taught=True)),
    "cross kl": lambda: (objectives.CrossKl(), pairs(negatives=2, taught=True)),
}


@dataclass
class Bench:
    """A stepper on one set, and the pieces that went through the model."""

    stepper: Stepper
    work: Work
    pieces: list[int]

    def __call__(self, step: int = 0, rows: Any = None) -> tuple[float, dict[str, Tensor]]:
        rows = np.arange(self.work.sequences.rows) if rows is None else rows
        loss = self.stepper(self.work, rows, step)
        named = self.stepper.updates.named
        return float(loss), {name: weight.grad.clone() for name, weight in named.items() if weight.grad is not None}


def bench(
    name: str, budget: int, monkeypatch: pytest.MonkeyPatch, *, dropout: float = 0.0, weight: float = 1.0
) -> Bench:
    objective, examples = (BI | CROSS)[name]()
    model: BiEncoder | CrossEncoder = bi()
    if name in CROSS:
        model = cross(examples.labels or 1)
    trainee = Trainee(model, "float32", dropout)
    objective.prepare(examples, trainee.dimension)
    work = work_of(examples, objective, trainee, weight=weight)
    updates = Updates(trainee, [objective], TrainingSettings())
    trainee.train()
    pieces: list[int] = []
    usual = Trainee.__call__

    def counted(self: Trainee, batch: Packed) -> Tensor:
        pieces.append(batch.total)
        return usual(self, batch)

    monkeypatch.setattr(Trainee, "__call__", counted)
    return Bench(Stepper(trainee, updates, Processes(), budget=budget, seed=5), work, pieces)


@pytest.mark.parametrize("name", [*BI, *CROSS])
def test_pieces_give_the_gradient_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against one forward pass over all rows, and plain autograd."""
    with monkeypatch.context() as patch:
        whole = bench(name, 10**6, patch, weight=0.7)
        loss, gradients = whole()
        assert len(whole.pieces) == 1
    with monkeypatch.context() as patch:
        budget = whole.pieces[0] // 4
        cut = bench(name, budget, patch, weight=0.7)
        cut_loss, cut_gradients = cut()
        twice = 1 if cut.work.objective.rowwise else 2
        assert len(cut.pieces) >= 3 * twice
        assert sum(cut.pieces) == whole.pieces[0] * twice
        assert max(cut.pieces) <= budget
    assert cut_loss == pytest.approx(loss, rel=1e-5)
    assert max(float(gradient.abs().max()) for gradient in gradients.values()) > 1e-4, "nothing to compare"
    assert gradients.keys() == cut_gradients.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(cut_gradients[key], gradient, rtol=1e-4, atol=2e-6, msg=lambda m, k=key: f"{k}: {m}")

    trainee, work = whole.stepper.trainee, whole.work
    rows = np.arange(work.sequences.rows)
    for weight in whole.stepper.updates.named.values():
        weight.grad = None
    packed = work.sequences.pack(rows, trainee.device, sort=True)
    plain = 0.7 * work.objective(packed.by_stream(trainee(packed.batch)), work.given(rows, trainee.device))
    plain.backward()
    assert float(plain.detach()) == pytest.approx(loss, rel=1e-6)
    for key, weight in whole.stepper.updates.named.items():
        if weight.grad is not None:
            torch.testing.assert_close(gradients[key], weight.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["ranking", "cosent", "cross lambda"])
def test_both_passes_see_the_same_dropout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(name, 60, monkeypatch, dropout=0.3)
    outputs: list[Tensor] = []
    counted = Trainee.__call__

    def recorded(self: Trainee, batch: Packed) -> Tensor:
        found = counted(self, batch)
        outputs.append(found.detach().clone())
        return found

    seeds: list[tuple[int, ...]] = []

    def seeding(device: torch.device, *numbers: int) -> None:
        seeds.append(numbers)
        seed_dropout(device, *numbers)

    monkeypatch.setattr(Trainee, "__call__", recorded)
    monkeypatch.setattr(stepping, "seed_dropout", seeding)
    loss, gradients = made(step=4)
    half = len(outputs) // 2
    assert half >= 3
    assert len(set(seeds[:half])) == half  # every piece has its own
    for first, second in zip(outputs[:half], outputs[half:], strict=True):
        assert torch.equal(first, second)
    before = list(outputs)
    again, repeated = made(step=4)  # a repeated step is the same one
    assert again == loss
    assert all(torch.equal(gradients[key], repeated[key]) for key in gradients)
    made(step=5)
    assert not torch.equal(before[0], outputs[2 * len(before)])  # another step has other dropout


def test_dropout_differs_between_processes() -> None:
    drawn = []
    for step, rank, piece in itertools.product(range(3), range(2), range(3)):
        seed_dropout(torch.device("cpu"), 1, step, rank, piece)
        drawn.append(float(torch.rand(1)))
    assert len(set(drawn)) == len(drawn)


def test_a_large_batch_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 rows: what is kept at a time follows the budget, not the batch."""
    model = bi()
    examples = scored(4096)
    settings = TrainingSettings(max_steps=1, batch_size=4096, token_budget=2048, warm_up=0)
    longest: list[int] = []
    usual = Trainee.__call__

    def counted(self: Trainee, batch: Packed) -> Tensor:
        longest.append(batch.total)
        return usual(self, batch)

    monkeypatch.setattr(Trainee, "__call__", counted)
    before = psutil.Process().memory_info().rss
    result = train(model, [Task(examples, objectives.CosineMse())], settings)
    assert result.rows == 4096
    assert max(longest) <= 2048
    assert len(longest) > 20
    assert psutil.Process().memory_info().rss - before < 150 * 2**20


# --- memory ----------------------------------------------------------------------------------------------------------


def small_memory(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """A device that takes so many tokens at a time."""
    usual = Trainee.__call__
    asked: list[int] = []

    def refusing(self: Trainee, batch: Packed) -> Tensor:
        asked.append(batch.total)
        if batch.total > most:
            raise torch.OutOfMemoryError(f"{batch.total} tokens are too many")
        return usual(self, batch)

    monkeypatch.setattr(Trainee, "__call__", refusing)
    return asked


def learned(objective: Objective, examples: Examples, budget: int | None) -> dict[str, Tensor]:
    model = bi()
    settings = TrainingSettings(max_steps=4, batch_size=8, learning_rate=1e-2, token_budget=budget)
    train(model, [Task(examples, objective)], settings)
    return weights(model)


@pytest.mark.parametrize("make", [objectives.CoSent, objectives.CosineMse])
def test_out_of_memory_halves_the_budget(make: type[Objective], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights, to the last bit and with dropout, as with the small budget from the start."""
    examples = scored(8)
    trainee = Trainee(bi())
    total = work_of(examples, make(), trainee).sequences.count(np.arange(8))
    with monkeypatch.context() as patch:
        asked = small_memory(patch, most=total // 3)
        with pytest.warns(TrainingWarning, match="out of memory: the step is repeated") as said:
            small = learned(make(), examples, None)
    found = [str(warning.message).split("at most ")[1].split()[0] for warning in said]
    assert found == [str(total // 2), str(total // 2 // 2)]  # for good, not in every step
    assert asked.count(total) == 1
    assert same(small, learned(make(), examples, total // 2 // 2))


def test_out_of_memory_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the failed attempt added to the gradients is forgotten."""
    made = bench("cosine", 200, monkeypatch)
    loss, gradients = made()
    fold = Updates.fold
    failed: list[int] = []

    def failing(self: Updates) -> None:
        fold(self)
        if not failed:
            failed.append(1)
            raise torch.OutOfMemoryError("in the backward pass")

    monkeypatch.setattr(Updates, "fold", failing)
    with pytest.warns(TrainingWarning, match="out of memory"):
        again, repeated = made()
    assert again == pytest.approx(loss, rel=1e-6)
    for key in gradients:
        torch.testing.assert_close(repeated[key], gradients[key], rtol=1e-4, atol=2e-6)


def test_a_row_that_never_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    small_memory(monkeypatch, most=5)
    with (
        pytest.warns(TrainingWarning, match="out of memory"),
        pytest.raises(TrainingError, match=r"a single row of our scores \(\d+ tokens\) .*lower max_length"),
    ):
        learned(objectives.CosineMse(), scored(8), None)
    with (
        pytest.warns(TrainingWarning, match="out of memory"),
        pytest.raises(TrainingError, match=r"lower the batch size \(the loss compares all rows\) or take a smaller"),
    ):
        learned(objectives.CoSent(), scored(8), None)


def test_the_budget_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run begins with the budget that the broken one had found."""
    settings = TrainingSettings(max_steps=4, batch_size=8, learning_rate=1e-2, save_every=2)
    task = Task(scored(8), objectives.CosineMse())
    asked = small_memory(monkeypatch, most=60)
    write = loop.write_checkpoint

    def stopping(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_checkpoint", stopping)
        with pytest.warns(TrainingWarning, match="out of memory"), pytest.raises(KeyboardInterrupt):
            train(bi(), [task], settings, folder=tmp_path)
    assert max(asked) > 60
    asked.clear()
    assert train(bi(), [task], settings, folder=tmp_path).resumed_from == 2  # and without a warning
    assert max(asked) <= 60


def test_a_larger_budget_may_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given budget that was halved stays halved in a resumed run, unless another one is given."""
    task = Task(scored(8), objectives.CosineMse())
    settings: dict[str, Any] = {"max_steps": 8, "batch_size": 8, "learning_rate": 1e-2, "save_every": 2}
    write = loop.write_checkpoint

    def stopping(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise KeyboardInterrupt

    for budget, most, warned in ((5000, 60, True), (5000, 60, False), (4000, 10_000, False)):
        with monkeypatch.context() as patch:
            asked = small_memory(patch, most=most)
            patch.setattr(loop, "write_checkpoint", stopping)
            given = TrainingSettings(**settings, token_budget=budget)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                with pytest.raises(KeyboardInterrupt):
                    train(bi(), [task], given, folder=tmp_path)
        assert any(issubclass(one.category, TrainingWarning) for one in said) == warned
        assert (max(asked) > 60) == (budget == 4000 or warned)


# --- round shapes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ranking", "cosine", "distil", "cross score", "cross lambda"])
def test_filling_up_changes_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that could be recorded are filled up to a round shape, and give the same gradient."""
    with monkeypatch.context() as patch:
        plain = bench(name, 10**6, patch)
        loss, gradients = plain()
    made = bench(name, 10**6, monkeypatch)
    rows = np.arange(made.work.sequences.rows)
    assert made.stepper.fills is False  # nothing is recorded on a CPU
    assert made.stepper.shape(made.work, rows) is None
    made.stepper.fills = True
    filled_loss, filled = made()
    assert made.work.objective.recordable == (name != "cross lambda")
    assert (made.pieces[0] % 128 == 0) == made.work.objective.recordable
    assert filled_loss == pytest.approx(loss, rel=1e-5)
    for key, gradient in gradients.items():
        torch.testing.assert_close(filled[key], gradient, rtol=1e-4, atol=2e-6, msg=lambda m, k=key: f"{k}: {m}")


def test_what_is_not_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench("ranking", 60, monkeypatch)
    made.stepper.fills = True
    rows = np.arange(made.work.sequences.rows)
    assert made.stepper.shape(made.work, rows) is None  # more than the budget: it goes in pieces
    made()
    assert max(made.pieces) <= 60
    made.stepper.budget = 10**6
    assert made.stepper.shape(made.work, rows) is not None
    monkeypatch.setattr(stepping, "MAX_SEQUENCES", 20)
    assert made.stepper.shape(made.work, rows) is None  # more sequences than one call of attention takes


def test_what_attention_does_not_pad_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench("ranking", 10**6, monkeypatch)
    made.stepper.fills = True
    rows = np.arange(made.work.sequences.rows)
    shape = made.stepper.shape(made.work, rows)
    assert shape is not None
    for longest, recorded in ((shape.longest, True), (shape.longest - 1, False)):
        made.stepper._longest = longest
        assert (made.stepper.shape(made.work, rows) is not None) == recorded


def test_only_attention_over_any_lengths_takes_rows_as_they_come() -> None:
    """MPNet's bias, float32 and CPUs need sequences of one length beside each other, or each is computed alone."""

    def made(family: str, *, device: str = "cuda", dtype: torch.dtype = torch.bfloat16, **changed: Any) -> Stepper:
        body = ours(theirs(family))
        body.config = replace(body.config, **changed)
        parts = replace(material.tiny_parts(), body=body)
        trainee = Trainee(BiEncoder(parts, device="cpu", dtype="float32"), "float32")
        updates = Updates(trainee, [], TrainingSettings())
        trainee.device, trainee.dtype = torch.device(device), dtype  # as far as a stepper looks at them
        return Stepper(trainee, updates, Processes(), budget=100, seed=0)

    assert (made("bert").fills, made("bert")._sort) == (True, False)
    assert (made("mpnet").fills, made("mpnet")._sort) == (True, True)
    assert (made("bert")._longest, made("mpnet")._longest) == (None, MAX_PADDED)
    assert (made("bert", dtype=torch.float32).fills, made("bert", dtype=torch.float32)._sort) == (False, True)
    assert (made("bert", device="cpu").fills, made("bert", device="cpu")._sort) == (False, True)
    short = made("bert", max_positions=33)  # a sequence that fills up would not find its positions
    assert (short.fills, short._sort) == (False, False)
