"""The plans of the bundled models: valid, whole, and smaller where a trial is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.ko_en_0_1.settings import BiPlan, Part, RerankPlan, Schedule, scaled
from munjang.errors import InputError
from munjang.training import TrainingSettings

PLANS = [BiPlan(), RerankPlan()]


def schedules(plan: object) -> dict[str, Schedule]:
    return {name: value for name, value in vars(plan).items() if isinstance(value, Schedule)}


def parts(plan: object) -> dict[str, dict[str, Part]]:
    return {name: value for name, value in vars(plan).items() if name.endswith("_parts")}


@pytest.mark.parametrize("plan", PLANS, ids=["bi", "rerank"])
def test_shares_of_a_stage_are_one_in_all(plan: object) -> None:
    assert parts(plan)
    for name, found in parts(plan).items():
        assert sum(part.share for part in found.values()) == pytest.approx(1.0), name
        assert all(part.share > 0 and part.weight > 0 and part.batch_size >= 2 for part in found.values())
        assert isinstance(getattr(plan, name.removesuffix("_parts")), Schedule), "every stage has its schedule"


def test_ways_back_may_be_none_and_are_shorter_in_the_end() -> None:
    plan = BiPlan()
    for shares in (plan.settled_shares, plan.merged_shares):
        assert shares[0] == 0
        assert list(shares) == sorted(set(shares))
    assert 0 < plan.merged_shares[-1] < plan.settled_shares[-1] < 1


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01, 0.0001])
@pytest.mark.parametrize("plan", PLANS, ids=["bi", "rerank"])
def test_every_schedule_gives_settings(plan: object, share: float) -> None:
    for name, schedule in schedules(scaled(plan, share)).items():
        if not schedule.steps:
            assert name == "warm_up"
            continue
        found = schedule.settings(3)
        assert isinstance(found, TrainingSettings)
        assert (found.max_steps, found.seed, found.learning_rate) == (schedule.steps, 3, schedule.rate)
        assert (found.embedding_rate, found.head_rate) == (schedule.embedding_rate, schedule.head_rate)
        assert found.warm_up_steps(schedule.steps) < schedule.steps
        assert found.evaluate_every == (schedule.steps // 4 if schedule.steps >= 100 else schedule.steps)
        assert found.save_every == schedule.steps


def test_a_whole_share_is_the_same_plan() -> None:
    for plan in PLANS:
        assert scaled(plan, 1) is plan
        assert scaled(plan, 1.0) == plan


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_bad_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError, match="scale must be above 0 and at most 1, got"):
        scaled(BiPlan(), share)


def test_a_hundredth() -> None:
    plan, small = BiPlan(), scaled(BiPlan(), 0.01)
    assert small.distil == Schedule(40, 2e-4, 6e-4)
    assert small.tuned.steps == 10
    assert small.warm_up.steps == 0, "a stage that is left out stays so"
    assert small.rows == 0.01
    assert (small.vocabulary, small.passages, small.foreign, small.definitions) == (2_000, 900, 400, 1_200)
    assert (small.compact_pieces, small.compact.steps, small.compact_layers) == (2_000, 25, plan.compact_layers)
    assert (small.larger_pieces, small.larger_nli.steps, small.larger_sts.steps) == (140, 15, 15)
    assert (scaled(RerankPlan(), 0.01).main.steps, scaled(RerankPlan(), 0.01).relevance) == (320, 400)
    assert small.held_questions == 100, "fewer calibrate nothing"
    assert (RerankPlan().everyday, scaled(RerankPlan(), 0.01).everyday) == (20, 0)
    assert small.multi_parts["translations"] == Part(0.16, 26)
    assert small.multi_parts["questions"].batch_size == 6
    assert small.selection_rows == plan.selection_rows
    assert scaled(RerankPlan(), 0.01).main_parts["passages"].batch_size == 4
    assert scaled(BiPlan(), 0.5).held_questions == 1_000


@given(st.floats(1e-4, 1, exclude_max=True))
def test_a_share_makes_nothing_larger_and_keeps_what_it_is(share: float) -> None:
    tiny = BiPlan(
        vocabulary=300,
        rows=0.5,
        passages=40,
        held_questions=7,
        foreign=9,
        definitions=11,
        distil=Schedule(2, 1e-3),
        final=Schedule(1, 1e-3),
        tuned_parts={"nli": Part(0.5, 2), "sts": Part(0.5, 3)},
    )
    for plan in (BiPlan(), RerankPlan(), tiny):
        small = scaled(plan, share)
        assert type(small) is type(plan)
        for name, value in vars(plan).items():
            found = getattr(small, name)
            if isinstance(value, Schedule):
                assert found.steps <= value.steps
                assert (found.steps == 0) == (value.steps == 0)
                assert (found.rate, found.embedding_rate) == (value.rate, value.embedding_rate)
            elif name.endswith("_parts"):
                assert {key: part.share for key, part in found.items()} == {k: part.share for k, part in value.items()}
                assert all(1 <= part.batch_size <= value[key].batch_size for key, part in found.items())
            elif isinstance(value, int | float):
                assert 0 <= found <= value
                assert found or not value or name == "everyday"
            else:
                assert found == value
    assert scaled(tiny, share).rows == pytest.approx(max(0.002, 0.5 * share))
