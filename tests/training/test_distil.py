"""`Distil`: what it computes, what it refuses, and that students learn from one teacher or two; scores of teachers."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError, TrainingWarning
from munjang.nn.encoder import Encoder
from munjang.training import Task, TrainingSettings, loop, losses, objectives, train
from munjang.training.log import read_log
from munjang.training.objectives import Distil, Given, Teaching
from training.material import (
    TEACHERS,
    Job,
    bi,
    cross,
    near,
    pairs,
    run,
    same,
    scored,
    sentences,
    task,
    taught,
    tiny_parts,
    weights,
)
from training.test_processes import SETTINGS as TWO
from training.test_processes import compare, finish, together


def story(folder: Path) -> list[float]:
    return [record["loss"] for record in read_log(folder / "log.jsonl") if "loss" in record]


# --- what it computes ------------------------------------------------------------------------------------------------


def test_the_sum_of_the_teachers_losses() -> None:
    generator = torch.Generator().manual_seed(1)
    en, ko, first = (torch.randn(6, 4, generator=generator) for _ in range(3))
    second = torch.randn(6, 3, generator=generator)
    how = (Teaching(4, 0.5, 2.0, 0.25, 0.125, scale=10, temperature=0.1), Teaching(3, mse=0, relational=3))
    found = Distil(how)((en, ko), Given(torch.cat([first, second], dim=1)))
    wanted = torch.zeros(())
    for vectors in (en, ko):
        wanted += 0.5 * losses.mse(vectors, first) / 2
        wanted += 2.0 * losses.cosine_distance(vectors, first) / 2
        wanted += 0.25 * losses.teacher_contrastive(vectors, first, scale=10) / 2
        for others in (en, ko):
            wanted += 0.125 * losses.relational(vectors, first, temperature=0.1, others=others) / 4
            wanted += 3.0 * losses.relational(vectors, second, others=others) / 4
    torch.testing.assert_close(found, wanted)
    one = Distil([Teaching(4)])((en,), Given(first))
    torch.testing.assert_close(one, losses.mse(en, first))


def test_how_its_batches_are_made() -> None:
    plain = Distil([Teaching(4, cosine=1), Teaching(4)])
    assert (plain.rowwise, plain.unique_texts, plain.recordable) == (True, False, True)
    assert (Distil([Teaching(4, contrastive=1)]).rowwise, Distil([Teaching(4, contrastive=1)]).unique_texts) == (
        False,
        True,
    )
    related = Distil([Teaching(4), Teaching(9, mse=0, relational=1)])
    assert (related.rowwise, related.unique_texts) == (False, False)
    assert related.settings() == {
        "teachers": [
            {"width": w, "mse": m, "relational": r}
            | {"cosine": 0.0, "contrastive": 0.0, "scale": 20.0, "temperature": 0.05}
            for w, m, r in ((4, 1.0, 0.0), (9, 0, 1))
        ]
    }


def test_what_it_refuses() -> None:
    wide = taught(24)
    with pytest.raises(
        InputError, match=r"teacher 1 have 24 values, the student's 16: .*StudentPlan\(dimension=24\).*rel"
    ):
        train(bi(), [Task(wide, Distil([Teaching(24)]))])
    with pytest.raises(InputError, match="teacher 2 have 8 values, the student's 16"):
        train(bi(), [Task(wide, Distil([Teaching(16), Teaching(8, mse=0, cosine=1)]))])
    Distil([Teaching(24, mse=0, relational=1)]).prepare(wide, 16)
    with pytest.raises(InputError, match=r"have 24 values a row, but the teachers have 16 \+ 4 = 20"):
        Distil([Teaching(16), Teaching(4, mse=0, relational=1)]).prepare(wide, 16)
    with pytest.raises(InputError, match="Distil is trained on taught data, but our scores is scored"):
        train(bi(), [Task(scored(), Distil(TEACHERS))])
    with pytest.raises(InputError, match="Distil does not train a cross-encoder"):
        train(cross(), [Task(wide, Distil(TEACHERS))])
    with pytest.raises(InputError, match="Distil needs at least one teacher"):
        Distil([])
    for wrong, message in (
        ({"width": 0}, "width must be at least 1"),
        ({"mse": -1}, "the weight of mse must be 0 or more"),
        ({"cosine": float("nan")}, "the weight of cosine must be 0 or more"),
        ({"mse": 0}, "a teacher must teach something"),
        ({"scale": 0}, "scale must be above 0"),
        ({"temperature": -1}, "temperature must be above 0"),
    ):
        with pytest.raises(InputError, match=message):
            Teaching(**({"width": 4} | wrong))  # type: ignore[arg-type]


def test_first_values_alone() -> None:
    """Matryoshka takes what compares vectors of any width."""
    with pytest.raises(InputError, match="not Distil"):
        objectives.Matryoshka(Distil([Teaching(16)]), (16, 8))
    with pytest.raises(InputError, match="not MaskedWords"):
        objectives.Matryoshka(objectives.MaskedWords(), (16, 8))
    both = objectives.Matryoshka(Distil([Teaching(5, mse=0, relational=1)]), (16, 8))
    train(bi(), [Task(taught(5), both)], TrainingSettings(max_steps=2, batch_size=4))


# --- whole runs ------------------------------------------------------------------------------------------------------


def of_teacher(teacher: BiEncoder, count: int) -> Examples:
    """English taught with what a teacher makes of it, and beside each sentence another one as its translation."""
    texts = sentences(count, 3)
    vectors = teacher.encode(texts)
    return Examples("taught", "taught", {"text": texts, "translation": sentences(count, 4)}, vectors)


def test_a_student_comes_near_its_teacher() -> None:
    """Both columns end where the teacher puts the first."""
    teacher = BiEncoder(tiny_parts(), device="cpu", dtype="float32")
    student = bi()
    with torch.no_grad():
        for weight in student.parts.body.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    student.refresh()
    data = of_teacher(teacher, 24)
    assert data.targets is not None

    def apart(column: str) -> float:
        return float(((student.encode(data.columns[column]) - data.targets) ** 2).mean())

    before = apart("text"), apart("translation")
    settings = TrainingSettings(max_steps=150, batch_size=24, learning_rate=1e-2, dropout=0.0)
    train(student, [Task(data, Distil([Teaching(16, cosine=1.0, contrastive=0.2)]))], settings)
    assert apart("text") < 0.1 * before[0]
    assert apart("translation") < 0.1 * before[1]


def test_relations_are_learned_from_a_wider_teacher() -> None:
    """Also between columns: a text ends near its translation, though the two were never compared with each other."""
    data = taught(40, 16, translations=1)
    student = bi()
    other = ~np.eye(16, dtype=np.bool_)

    def cosines(vectors: Any, others: Any) -> Any:
        a, b = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors, others))
        return a @ b.T

    def correlation() -> tuple[float, float]:
        found = cosines(*(student.encode(texts) for texts in data.columns.values()))
        own = float(found.diagonal().mean() - found[other].mean())
        return float(np.corrcoef(found[other], cosines(data.targets, data.targets)[other])[0, 1]), own

    assert correlation()[0] < 0.3
    settings = TrainingSettings(max_steps=200, batch_size=16, learning_rate=1e-2, dropout=0.0)
    train(student, [Task(data, Distil([Teaching(40, mse=0, relational=1, temperature=0.2)]))], settings)
    learned, own = correlation()
    assert learned > 0.75
    assert own > 0.25


@pytest.mark.parametrize("name", ["distil", "masked"])
def test_resumed_to_the_last_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, an average of weights, and another task between."""
    settings = TrainingSettings(epochs=3, batch_size=4, learning_rate=1e-2, save_every=3, ema=0.8)
    whole, broken = bi(), bi()
    train(whole, [task(name), task("cosine")], settings, folder=tmp_path / "whole")
    write = loop.write_checkpoint

    def stopping(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        if arguments[1] >= 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_checkpoint", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(broken, [task(name), task("cosine")], settings, folder=tmp_path / "run")
    resumed = bi()
    assert train(resumed, [task(name), task("cosine")], settings, folder=tmp_path / "run").resumed_from == 6
    assert same(weights(resumed), weights(whole))
    assert story(tmp_path / "run") == story(tmp_path / "whole")


@pytest.mark.parametrize("name", ["distil", "masked"])
def test_the_token_budget_changes_nothing(name: str) -> None:
    found = []
    for budget in (10_000, 50):
        model = bi()
        settings = TrainingSettings(max_steps=6, batch_size=8, learning_rate=1e-2, dropout=0.0, token_budget=budget)
        train(model, [task(name)], settings)
        found.append(weights(model))
    near(*found, atol=1e-4)


def test_two_processes_are_one(server: ForkServerContext, tmp_path: Path) -> None:
    """13 rows in batches of 4: the last has one row, which leaves nothing for the second process."""
    tasks = ("distil", "masked")
    jobs = [Job(str(tmp_path / name), tasks, TWO, evaluate=True, out=str(tmp_path / name)) for name in ("one", "two")]
    processes = together(server, jobs[1])
    run(jobs[0])
    finish(processes)
    compare(tmp_path / "two", tmp_path / "one")


# --- a teacher's scores ----------------------------------------------------------------------------------------------


def test_margins_of_cosines() -> None:
    generator = torch.Generator().manual_seed(2)
    a, p, n, m = (torch.randn(5, 6, generator=generator) for _ in range(4))
    scores = torch.randn(5, 3, generator=generator)
    found = objectives.MarginMse(similarity="cosine", scale=4.0)((a, p, n, m), Given(scores))
    cos = torch.nn.functional.cosine_similarity
    margins = 4 * torch.stack([cos(a, p) - cos(a, n), cos(a, p) - cos(a, m)])
    wanted = torch.stack([scores[:, 0] - scores[:, 1], scores[:, 0] - scores[:, 2]])
    torch.testing.assert_close(found, ((margins - wanted) ** 2).mean())
    plain = objectives.MarginMse()
    assert plain.settings() == {"similarity": "dot", "scale": 1.0}
    dots = torch.stack([(a * p).sum(1) - (a * n).sum(1), (a * p).sum(1) - (a * m).sum(1)])
    torch.testing.assert_close(plain((a, p, n, m), Given(scores)), ((dots - wanted) ** 2).mean())
    for wrong in ({"similarity": "euclidean"}, {"scale": 0.0}):
        with pytest.raises(InputError, match="must be"):
            objectives.MarginMse(**wrong)  # type: ignore[arg-type]


def test_margins_that_cosines_cannot_reach() -> None:
    """Logits of a reranker: unbounded."""
    logits = pairs(negatives=1, taught=True)
    assert logits.targets is not None
    logits.targets[:] = [[9.0, -8.0]]
    with pytest.warns(TrainingWarning, match=r"differ by 2 at most, the teacher's scores by up to 17; .*about 8\.5"):
        objectives.MarginMse(similarity="cosine").prepare(logits, 16)
    objectives.MarginMse(similarity="cosine", scale=9).prepare(logits, 16)
    objectives.MarginMse().prepare(logits, 16)


def test_a_teachers_probabilities_train_a_smaller_cross_encoder() -> None:
    """Soft labels: binary cross-entropy with what a larger cross-encoder takes for the probability."""
    teacher, student = cross(), cross()
    with torch.no_grad():
        for weight in teacher.parts.head.parameters():
            weight.mul_(2)
    teacher.refresh()
    body = student.parts.body
    assert isinstance(body, Encoder)
    body.layers, body.config = body.layers[:1], replace(body.config, steps=body.config.steps[:1])
    student.refresh()
    a, b = sentences(24, 1), sentences(24, 2)

    def chances(model: CrossEncoder) -> Any:
        return np.asarray(model.predict(list(zip(a, b, strict=True)))).reshape(-1)

    wanted = chances(teacher)
    assert 0 < wanted.min() < wanted.max() < 1
    assert np.ptp(wanted) > 0.2
    before = float(np.abs(chances(student) - wanted).mean())
    data = Examples("soft", "scored", {"a": a, "b": b}, wanted)
    settings = TrainingSettings(max_steps=150, batch_size=24, learning_rate=1e-2, dropout=0.0)
    train(student, [Task(data, objectives.CrossScore())], settings)
    assert float(np.abs(chances(student) - wanted).mean()) < 0.3 * before
