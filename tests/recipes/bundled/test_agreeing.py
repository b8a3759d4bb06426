"""The reranker learns what it and cosines say together: labels that are the blend they claim, and what it keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.recipes.bundled import reranker
from munjang.recipes.bundled.agreeing import Together
from munjang.recipes.bundled.material import Material, read_material
from munjang.recipes.bundled.reranker import RerankMade
from munjang.recipes.bundled.settings import RerankPlan, Schedule
from munjang.recipes.bundled.silver import cosines_of, either_way, pairs_of
from munjang.recipes.bundled.teaching import MakeOptions, read_passages
from munjang.recipes.stages import Done
from recipes.bundled.conftest import Whole, alone
from recipes.bundled.whole_run import GRADED_STAGES, bi_plan, easy_negatives, options, other_model, rerank, skipped

STAGES = (*GRADED_STAGES[:-1], "voices", "agreed", "agreed-2", "agreed-mean", "finish")
PAIRS = [("비가 온다", "눈이 온다"), ("It rains", "It snows"), ("A cat sleeps", "고양이가 잔다"), ("A dog", "A wolf")]

pytestmark = pytest.mark.usefixtures("quiet")


@dataclass(frozen=True)
class Run:
    folder: Path
    made: RerankMade
    given: MakeOptions  # of the bi-encoder
    bi: Whole

    def stage(self, name: str) -> Done:
        return next(one for one in self.made.stages if one.name == name)

    def array(self, name: str) -> np.ndarray:
        found: np.ndarray = np.load(self.stage("voices").folder / f"{name}.npy")
        return found

    def cross(self, stage: str) -> CrossEncoder:
        """As the stages load it: on some machines it computes in bfloat16."""
        return CrossEncoder.load(self.stage(stage).folder / "model", device="cpu", max_length=64)

    def tasks(self, stage: str) -> dict[str, dict[str, Any]]:
        told = json.loads((self.stage(stage).folder / "config.json").read_text("utf-8"))["tasks"]
        return {task["name"]: task for task in told}

    @property
    def material(self) -> Material:
        return read_material(self.bi.data, bi_plan())

    @property
    def pairs(self) -> np.ndarray:
        """The silver pairs with a sentence that people scored."""
        scored, pool = set(self.material.scored().texts()), self.material.pool()
        every = np.load(self.bi.made.stages["pairs"].folder / "pairs.npy").tolist()
        return np.array([(a, b) for a, b in every if pool[a] in scored or pool[b] in scored])


@pytest.fixture(scope="module")
def run(with_larger: Whole, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("agreed") / "run"
    bi = options(with_larger.folder, with_larger.tiny, with_larger.data, larger=with_larger.tiny)
    with alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reranker, "find_negatives", easy_negatives)
        return Run(folder, rerank(folder, bi, agreements=2), bi, with_larger)


@pytest.fixture(autouse=True)
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker, "find_negatives", easy_negatives)


# --- labels ----------------------------------------------------------------------------------------------------------


def on_scale(model: BiEncoder, material: Material, *sets: str) -> np.ndarray:
    """Cosines of PAIRS, brought to the scale of the scores of these sets by numpy's own least squares."""
    people = material.scored(*sets)
    a, b = people.columns.values()
    factor, shift = np.polyfit(cosines_of(model, a, b), np.asarray(people.targets), 1)
    assert factor > 0, "the test must be able to fail"
    return np.clip(shift + factor * cosines_of(model, *map(list, zip(*PAIRS, strict=True))), 0, 1)


def scored_by(model: BiEncoder, material: Material) -> Material:
    """The same sentences, whose scores rise with the cosines of a model that never learned."""
    sts = {name: replace(one, targets=_rising(model, *one.columns.values())) for name, one in material.sts.items()}
    return replace(material, sts=sts)


def _rising(model: BiEncoder, a: list[str], b: list[str]) -> np.ndarray:
    cosines = cosines_of(model, a, b)
    return (cosines - cosines.min()) / np.ptp(cosines)


def test_a_label_is_the_blend_and_only_english_pairs_ask_the_larger_model(
    load: Callable[[], BiEncoder], whole: Whole, tmp_path: Path
) -> None:
    near, larger = load(), BiEncoder.load(other_model(whole.tiny, tmp_path / "larger"), device="cpu")
    material = scored_by(near, read_material(whole.data, bi_plan()))
    scores = np.array([0.1, 0.9, 0.4, 0.6], np.float32)
    plan = RerankPlan(agreed_cosine=0.3, agreed_larger=0.4)
    columns = [list(side) for side in zip(*PAIRS, strict=True)]
    alone_ = Together(near, None, material=material, plan=plan)(columns[0], columns[1], scores=scores)
    wanted = 0.7 * scores + 0.3 * on_scale(near, material)
    assert np.allclose(alone_, wanted, atol=1e-4)
    both = Together(near, larger, material=material, plan=plan)(columns[0], columns[1], scores=scores)
    assert np.allclose(both[[0, 2]], wanted[[0, 2]], atol=1e-4), "one text in Korean is enough"
    english = 0.6 * wanted + 0.4 * on_scale(larger, material, "stsb")
    assert np.allclose(both[[1, 3]], english[[1, 3]], atol=1e-4)
    assert np.abs(english - wanted)[[1, 3]].max() > 1e-3, "the test must be able to fail"


def test_korean_pairs_alone_need_no_larger_model(load: Callable[[], BiEncoder], whole: Whole) -> None:
    material = read_material(whole.data, bi_plan())
    plan, scores = RerankPlan(), np.array([0.3, 0.8], np.float32)
    korean = ["비가 온다", "해가 뜬다"], ["눈이 온다", "달이 뜬다"]
    with_it = Together(load(), load(), material=material, plan=plan)(*korean, scores=scores)
    assert np.array_equal(with_it, Together(load(), None, material=material, plan=plan)(*korean, scores=scores))


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_the_stages_come_before_the_last(run: Run) -> None:
    assert tuple(one.name for one in run.made.stages) == STAGES
    inputs = json.loads((run.stage("finish").folder / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["model"] == run.stage("agreed-mean").digest
    assert set(run.made.facts["selection"]) == {"float32", "int8"}


def test_pairs_of_the_kind_that_is_judged_are_labelled(run: Run) -> None:
    labels = run.array("labels")
    every = run.bi.made.stages["pairs"].facts["pairs"]
    assert 20 < len(run.pairs) == len(labels) < every
    assert run.stage("voices").facts["pairs"] == len(labels)
    pool = run.material.pool()
    read = either_way(pairs_of(pool, run.pairs, labels, name="silver"), seed=0)
    scores = run.cross("mean").predict(list(zip(*read.columns.values(), strict=True)))
    near = BiEncoder.load(run.bi.made.folder, device="cpu")
    larger = BiEncoder.load(run.bi.tiny, device="cpu")
    together = Together(near, larger, material=run.material, plan=RerankPlan())
    a, b = read.columns.values()
    assert np.allclose(labels, together(a, b, scores=scores), atol=2e-3)
    assert np.ptp(labels) > 0.01


def test_how_far_they_agree_with_people_is_told(run: Run) -> None:
    found = run.stage("voices").facts["agreement"]
    assert set(found) == {"alone", "together"}
    for one in run.material.selection:
        told = run.cross("mean").predict(list(zip(*one.columns.values(), strict=True)))
        assert found["alone"][one.name] == pytest.approx(spearmanr(told, one.targets)[0], abs=1e-3)
        assert found["together"][one.name] != found["alone"][one.name]


def test_what_it_says_of_passages_is_kept(run: Run) -> None:
    stage = run.bi.made.stages["passages"]
    rest, held = read_passages(stage), read_passages(stage, "held")
    rows, kept = run.array("rows"), run.array("kept")
    assert len(rows) == len(set(rows.tolist())) == len(kept) == 40
    negatives = easy_negatives(None, rest, 3, 0)  # type: ignore[arg-type]
    every = [
        (query, rest.passages[place])
        for number, query in enumerate(rest.queries)
        for place in (rest.answers[number], *negatives[number, :2].tolist())
    ]
    assert max(rows) < len(every)
    said = run.cross("mean").predict([every[row] for row in rows.tolist()])
    assert np.allclose(kept, said, atol=2e-3)
    assert not {every[row][1] for row in rows.tolist()} & set(held.passages)


def test_both_are_learned_by_every_training_in_its_own_order(run: Run) -> None:
    one, two = run.tasks("agreed"), run.tasks("agreed-2")
    assert one["kept"]["data"] == two["kept"]["data"]
    assert one["silver"]["data"] != two["silver"]["data"]
    assert {name: (task["objective"], task["rows"], task["share"]) for name, task in one.items()} == {
        "silver": ("CrossScore", len(run.pairs), 0.5),
        "kept": ("CrossScore", 40, 0.5),
    }
    before, after = (run.cross(name).predict(PAIRS) for name in ("mean", "agreed"))
    assert not np.allclose(before, after, atol=1e-4)


def test_the_mean_of_their_weights_goes_on(run: Run) -> None:
    one, two, mean = (
        run.cross(name).parts.head.out.weight.detach().numpy() for name in ("agreed", "agreed-2", "agreed-mean")
    )
    assert not np.allclose(one, two)
    assert np.allclose(mean, (one + two) / 2, atol=1e-6)
    assert len(run.stage("agreed-mean").facts["alone"]) == 2


def test_the_card_names_the_command_that_makes_it(run: Run) -> None:
    command = json.loads((run.folder / "making.json").read_text("utf-8"))["command"]
    assert command.endswith("--larger MPNET --agree --output runs/rerank-ko-en")


def test_the_same_call_again_does_nothing(run: Run) -> None:
    again = rerank(run.folder, run.given, agreements=2)
    assert tuple(skipped(again)) == STAGES
    assert again.facts == run.made.facts


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        ({"agreed_cosine": 0.5}, STAGES[-5:]),
        ({"agreed_larger": 0.5}, STAGES[-5:]),
        ({"agreed_kept": 30}, STAGES[-5:]),
        ({"agreed": Schedule(5, 1e-3)}, STAGES[-4:]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_change_repeats_what_depends_on_it(
    run: Run, tmp_path: Path, change: dict[str, Any], repeated: tuple[str, ...]
) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    made = rerank(tmp_path / "run", run.given, agreements=2, **change)
    assert tuple(name for name in STAGES if name not in skipped(made)) == repeated


def test_one_training_has_no_mean(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    made = rerank(tmp_path / "run", run.given, agreements=1)
    assert tuple(one.name for one in made.stages) == (*STAGES[:-3], "finish")
    assert skipped(made) == list(STAGES[:-3])


def test_not_asked_for_it_is_left_out(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    made = rerank(tmp_path / "run", run.given)
    assert tuple(one.name for one in made.stages) == GRADED_STAGES
