"""Weights between two models, and how far back is chosen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from making.conftest import Whole
from making.whole_run import bi_plan
from models.ko_en_0_1.merging import furthest, mean_of, merge
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import ModelError
from munjang.students import StudentPlan, make_student

TEXTS = ["비가 온다.", "It is raining.", "고양이가 잔다."]


def encoded(model: BiEncoder) -> np.ndarray:
    """In float32: a merged model computes as the machine does best, which may be bfloat16."""
    return BiEncoder(model.parts, device="cpu", dtype="float32").encode(TEXTS)


def both(tiny: Path) -> tuple[BiEncoder, BiEncoder]:
    """A model, and the same with other weights."""
    begun, trained = (BiEncoder.load(tiny, device="cpu", dtype="float32") for _ in range(2))
    with torch.no_grad():
        for weight in trained.parts.body.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    trained.refresh()
    return begun, trained


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0, 1))
def test_every_weight_lies_between(whole: Whole, share: float) -> None:
    begun, trained = both(whole.tiny)
    merged = merge(begun, trained, share).parts.body.state_dict()
    old, new = (one.parts.body.state_dict() for one in (begun, trained))
    for name, weight in merged.items():
        assert torch.allclose(weight, (1 - share) * new[name] + share * old[name], atol=1e-6)


def test_its_ends_are_the_two_models_and_both_stay(whole: Whole) -> None:
    begun, trained = both(whole.tiny)
    before = [one.encode(TEXTS) for one in (begun, trained)]
    for share, wanted in ((1.0, before[0]), (0.0, before[1])):
        assert np.allclose(encoded(merge(begun, trained, share)), wanted, atol=1e-5)
    half = encoded(merge(begun, trained, 0.5))
    assert not any(np.allclose(half, one, atol=1e-3) for one in before)
    assert all(np.array_equal(one.encode(TEXTS), was) for one, was in zip((begun, trained), before, strict=True))


def test_korean_embeddings_may_stay_as_they_were_trained(whole: Whole) -> None:
    begun, trained = both(whole.made.stages["student"].folder / "model")
    merged = merge(begun, trained, 0.5, korean=False).parts.body.state_dict()
    old, new = (one.parts.body.state_dict() for one in (begun, trained))
    vocabulary = trained.tokenizer.backend.get_vocab()
    korean = {row for piece, row in vocabulary.items() if any("\u1100" <= letter <= "\u11ff" for letter in piece)}
    assert 0 < len(korean) < len(vocabulary)
    words = "embeddings.word.weight"
    for row, weight in enumerate(merged[words]):
        wanted = new[words][row] if row in korean else (new[words][row] + old[words][row]) / 2
        assert torch.allclose(weight, wanted, atol=1e-6), row
    for name in merged.keys() - {words}:
        assert torch.allclose(merged[name], (new[name] + old[name]) / 2, atol=1e-6), name


def test_a_cross_encoder_is_merged_with_its_head(whole: Whole) -> None:
    folder = whole.made.stages["labeller-1-sts"].folder / "model"
    begun, trained = (CrossEncoder.load(folder, device="cpu", dtype="float32") for _ in range(2))
    with torch.no_grad():
        for part in (trained.parts.body, trained.parts.head):
            for weight in part.parameters():
                weight.mul_(1.5)
    merged = merge(begun, trained, 0.25)
    for part in ("body", "head"):
        old, found = (dict(getattr(one.parts, part).named_parameters()) for one in (begun, merged))
        assert all(torch.allclose(found[name], 1.375 * weight, atol=1e-6) for name, weight in old.items())
    assert isinstance(merged, CrossEncoder)


def test_models_of_another_shape_are_refused(whole: Whole) -> None:
    begun, trained = both(whole.tiny)
    shorter = BiEncoder(make_student(begun, StudentPlan(layers=1)).parts, device="cpu")
    with pytest.raises(ModelError, match="expected models of one shape"):
        merge(shorter, trained, 0.5)


def test_as_far_back_as_it_costs_little() -> None:
    scores = {0.0: 0.80, 0.1: 0.81, 0.2: 0.809, 0.3: 0.79}
    assert furthest(list(scores), scores.__getitem__, 0.002) == (0.2, scores)
    assert furthest(list(scores), scores.__getitem__, 0.0) == (0.1, scores)
    assert furthest(list(scores), scores.__getitem__, 0.5)[0] == 0.3


def test_the_stage_keeps_the_share_that_the_selection_sets_allow(whole: Whole) -> None:
    stages = whole.made.stages
    plan = bi_plan()
    for name, shares, cost in (("settled", plan.settled_shares, 0.002), ("merged", plan.merged_shares, 0.0)):
        facts = stages[name].facts
        scores = {float(share): value for share, value in facts["scores"].items()}
        assert tuple(scores) == shares, name
        assert facts["share"] == max(share for share, value in scores.items() if value >= max(scores.values()) - cost)
    begun, trained, merged = (
        BiEncoder.load(stages[name].folder / "model", device="cpu", dtype="float32")
        for name in ("student", "mean", "merged")
    )
    assert np.allclose(encoded(merged), encoded(merge(begun, trained, facts["share"], korean=False)), atol=1e-5)
    inputs = json.loads((stages["finish"].folder / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["model"] == stages["merged"].digest


# --- the mean of several ---------------------------------------------------------------------------------------------


def test_the_mean_of_weights_and_the_models_stay(whole: Whole) -> None:
    models = list(both(whole.tiny))
    before = [one.encode(TEXTS) for one in models]
    mean = mean_of(models)
    states = [one.parts.body.state_dict() for one in (mean, *models)]
    for name, weight in states[0].items():
        assert torch.allclose(weight, (states[1][name] + states[2][name]) / 2, atol=1e-6), name
    assert np.allclose(encoded(mean), encoded(merge(*models, 0.5)), atol=1e-5)
    assert all(np.array_equal(one.encode(TEXTS), was) for one, was in zip(models, before, strict=True))
    assert np.allclose(encoded(mean_of(models[:1])), before[0], atol=1e-6)


def test_the_mean_of_cross_encoders_has_the_mean_of_their_heads(whole: Whole) -> None:
    body = BiEncoder.load(whole.tiny, device="cpu")
    one, two = (CrossEncoder.from_body(body, 1, seed=seed, device="cpu") for seed in (1, 2))
    mean = mean_of([one, two])
    states = [model.parts.head.state_dict() for model in (mean, one, two)]
    assert any(not torch.equal(states[1][name], states[2][name]) for name in states[0])
    for name, weight in states[0].items():
        assert torch.allclose(weight, (states[1][name] + states[2][name]) / 2, atol=1e-6), name


def test_no_mean_of_nothing_or_of_different_models(whole: Whole) -> None:
    begun, trained = both(whole.tiny)
    shorter = BiEncoder(make_student(begun, StudentPlan(layers=1)).parts, device="cpu")
    with pytest.raises(ModelError, match="expected models of one shape"):
        mean_of([trained, shorter])
    with pytest.raises(ModelError, match="got none"):
        mean_of([])


def test_the_stage_tells_what_each_was_worth_alone(whole: Whole) -> None:
    stages = whole.made.stages
    finals = [BiEncoder.load(stages[name].folder / "model", device="cpu") for name in ("final", "final-2")]
    mean = BiEncoder.load(stages["mean"].folder / "model", device="cpu")
    assert np.allclose(encoded(mean), encoded(mean_of(finals)), atol=1e-5)
    facts = stages["mean"].facts
    assert facts["alone"] == [stages[name].facts["last"]["evaluation"]["selection"]["mean"] for name in
                              ("final", "final-2")]  # fmt: skip
    assert set(facts["together"]) == {"KorSTS dev", "KLUE-STS slice", "STSb dev", "mean"}
