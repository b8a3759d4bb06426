"""Labels blended of scores and cosines: the fit beside numpy's, means and deviations, the choice by dev, whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from munjang import recipes
from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.recipes import AugmentOptions, AugmentResult, Candidates
from munjang.recipes.augmenting import blending
from munjang.recipes.augmenting.blending import WEIGHTS, Scale, best_weight, blended, blended_spread, write_blended
from munjang.recipes.augmenting.scoring import PairScores
from recipes.augmenting.small import BI, PlainLabels, data, lively, options, pairs_of, silver_rows
from recipes.material import scored

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
RANDOM = Candidates(("random",), pairs=40)
AS_THEY_ARE = Scale(0.0, 1.0)

unit = st.floats(0, 1, width=32)
cosine = st.floats(-1, 1, width=32)


# --- the scale -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(cosine, unit), min_size=3, max_size=40), st.sampled_from([np.float32, np.float64]))
def test_the_fit_is_that_of_least_squares(rows: list[tuple[float, float]], dtype: type) -> None:
    near, labels = np.array(rows, dtype).T
    if np.ptp(near) < 0.05:
        return
    factor, shift = np.polyfit(near.astype(np.float64), labels.astype(np.float64), 1)
    found = Scale.fit(near, labels)
    if factor > 1e-6:
        assert (found.shift, found.factor) == pytest.approx((shift, factor), rel=1e-4, abs=1e-6)
        assert found(near) == pytest.approx(np.clip(shift + factor * near, 0, 1), abs=1e-5)
    elif factor < -1e-6:
        assert found == AS_THEY_ARE


@given(cosine, st.lists(unit, min_size=1, max_size=150), st.sampled_from([np.float32, np.float64]))
def test_constant_cosines_are_taken_as_they_are(value: float, labels: list[float], dtype: type) -> None:
    # Of equal numbers the mean is another number, by rounding: a fit to that noise could be anything.
    assert Scale.fit(np.full(len(labels), value, dtype), np.array(labels, dtype)) == AS_THEY_ARE


@given(unit, st.lists(cosine, min_size=1, max_size=150), st.sampled_from([np.float32, np.float64]))
def test_constant_labels_do_not_flatten_the_cosines(value: float, near: list[float], dtype: type) -> None:
    assert Scale.fit(np.array(near, dtype), np.full(len(near), value, dtype)) == AS_THEY_ARE


def test_falling_cosines_are_taken_as_they_are() -> None:
    near = np.linspace(-0.5, 0.9, 8, dtype=np.float32)
    found = Scale.fit(near, near[::-1].copy())
    assert found == AS_THEY_ARE
    assert found(near) == pytest.approx(np.clip(near, 0, 1))  # not turned over
    assert found(near).dtype == np.float32


# --- means and deviations --------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(unit, unit, unit, unit, unit), min_size=1, max_size=20),
    st.one_of(st.sampled_from(WEIGHTS), st.floats(0, 0.99)),
)
def test_the_weighted_mean_and_deviation_of_all_readings(rows: list[tuple[float, ...]], weight: float) -> None:
    *readings, near = np.array(rows, np.float32).T
    scores, spread = np.mean(readings, axis=0, dtype=np.float32), np.std(readings, axis=0, dtype=np.float32)
    every = np.stack([*readings, near]).astype(np.float64)
    weights = [(1 - weight) / 4] * 4 + [weight]
    mean = np.average(every, axis=0, weights=weights)
    deviation = np.sqrt(np.average((every - mean) ** 2, axis=0, weights=weights))
    found = blended(scores, near, weight)
    assert found == pytest.approx(mean, abs=1e-6)
    assert found.min() >= 0
    assert found.max() <= 1  # what the histogram and the sampling take
    # A variance near 0 is a difference of nearly equal numbers, and its root is larger than the rounding.
    assert blended_spread(scores, spread, near, weight) == pytest.approx(deviation, abs=1e-3)
    assert found.dtype == blended_spread(scores, spread, near, weight).dtype == np.float32


def test_without_weight_all_stays() -> None:
    scores, spread, near = np.random.default_rng(0).random((3, 50), dtype=np.float32)
    assert (blended(scores, near, 0.0) == scores).all()
    assert blended_spread(scores, spread, near, 0.0) == pytest.approx(spread, abs=1e-7)


# --- the choice ------------------------------------------------------------------------------------------------------


def constructed(weight: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, scores, cosines whose errors cancel out at this weight, and at no other."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.linspace(0.2, 0.8, 60))
    error = generator.normal(0, 0.2, 60)
    return labels, labels + weight * error, labels - (1 - weight) * error


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_best_weight_is_found(weight: float) -> None:
    labels, scores, near = constructed(weight)
    best, tried = best_weight([(labels, scores, near)])
    assert best == weight
    assert tried[f"{weight:g}"] == pytest.approx(1)
    wanted = {f"{w:g}": scipy.stats.spearmanr((1 - w) * scores + w * near, labels).statistic for w in WEIGHTS}
    assert tried == pytest.approx(wanted)
    assert [name for name, value in tried.items() if value > 0.999] == [f"{weight:g}"]


def test_several_sets_decide_by_their_mean() -> None:
    one, two, three = constructed(0.75, 1), constructed(0.25, 2), constructed(0.25, 3)
    assert best_weight([one])[0] == 0.75
    best, tried = best_weight([one, two, three])
    assert best == 0.25
    each = [best_weight([values])[1] for values in (one, two, three)]
    assert tried == pytest.approx({name: np.mean([values[name] for values in each]) for name in tried})


def test_a_side_that_is_constant_agrees_with_nothing() -> None:
    labels = np.linspace(0, 1, 9)
    constant = np.full(9, 0.5)
    assert best_weight([(labels, constant, labels)])[0] > 0
    assert best_weight([(labels, constant, labels)])[1]["0"] == 0
    best, tried = best_weight([(labels, constant, constant)])
    assert (best, set(tried.values())) == (0.0, {0.0})  # of equals, the cross-encoder alone
    assert best_weight([(labels, labels, labels[::-1].copy())])[0] == 0


# --- on disk ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 7, 8, 23, 24, 1 << 20])
def test_written_in_windows(window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blending, "_WINDOW", window)
    scores, spread, near = np.random.default_rng(0).random((3, 23), dtype=np.float32)
    write_blended(tmp_path, PairScores(scores, spread), near, 0.3)
    labels, deviation = (np.load(tmp_path / name) for name in ("scores.npy", "spread.npy"))
    assert labels.dtype == deviation.dtype == np.float32
    assert labels == pytest.approx(0.7 * scores + 0.3 * near, abs=1e-6)
    variance = 0.7 * (spread**2 + (scores - labels) ** 2) + 0.3 * (near - labels) ** 2
    assert deviation == pytest.approx(np.sqrt(variance), abs=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.npy", "spread.npy"]


def test_what_stops_in_the_middle_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blending, "_WINDOW", 5)
    scores, spread, near = np.random.default_rng(0).random((3, 23), dtype=np.float32)
    with pytest.raises(ValueError, match="broadcast"):
        write_blended(tmp_path, PairScores(scores, spread), near[:18], 0.3)  # the last windows have no cosines
    assert not list(tmp_path.iterdir())


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively(tiny, tmp_path_factory.mktemp("lively"))


def names(result: AugmentResult) -> list[str]:
    return [stage.name for stage in result.stages]


def worked(result: AugmentResult) -> list[str]:
    return [stage.name for stage in result.stages if not stage.skipped]


def check_labels(result: AugmentResult, plain: PlainLabels) -> None:
    """Labels and spread of all silver pairs, and both agreements, against the independent computation."""
    silver = result.silver
    rows = silver_rows(silver.path)
    labels, spread = plain.labels([(a, b) for a, b, *_ in rows], silver.blend)
    assert [row[2] for row in rows] == pytest.approx(labels, abs=2e-4)
    assert [row[3] for row in rows] == pytest.approx(spread, abs=2e-4)
    assert silver.agreement.keys() == silver.cross_agreement.keys()
    given = data()
    for name in silver.agreement:
        examples = given[name.partition(" ")[0]]
        pairs = pairs_of(examples)
        ours = (plain.labels(pairs, silver.blend)[0], plain.readings(pairs).mean(axis=0))
        for found, values in zip((silver.agreement[name], silver.cross_agreement[name]), ours, strict=True):
            assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(values, examples.targets).statistic)
            assert found["mean_difference"] == pytest.approx(np.abs(values - examples.targets).mean(), abs=1e-5)


def test_a_given_weight_needs_the_retriever_and_no_dev(model: Path, tmp_path: Path) -> None:
    given = {**data(), "dev": None}
    half = options(tmp_path / "run", blend=0.5, baseline=False, candidates=RANDOM)
    result = recipes.augmented(model, **given, options=half)
    assert names(result) == ["baseline", "vectors", "candidates", "cross", "scores", "labels", "silver", "bi",
                             "compare"]  # fmt: skip
    assert (result.silver.blend, result.silver.blend_tried) == (0.5, {})
    assert set(result.silver.agreement) == {"test (test)"}
    assert result.silver.agreement != result.silver.cross_agreement
    bi, cross = (stage.folder / "model" for stage in result.stages if stage.name in ("baseline", "cross"))
    plain = PlainLabels(CrossEncoder.load(cross, device="cpu"), BiEncoder.load(bi, device="cpu"), given["gold"])
    check_labels(result, plain)

    # Another weight: the labels and what follows, and nothing before them.
    other = recipes.augmented(model, **given, options=replace(half, blend=0.2))
    assert worked(other) == ["labels", "silver", "bi", "compare"]
    assert other.silver.blend == 0.2
    assert other.silver.cross_agreement == result.silver.cross_agreement
    check_labels(other, plain)
    assert worked(recipes.augmented(model, **given, options=replace(half, blend=0.2))) == []
    back = recipes.augmented(model, **given, options=half)
    assert worked(back) == ["labels", "silver", "bi", "compare"]
    assert back.silver == result.silver
    assert back.gains == result.gains


def test_no_blending_and_nothing_to_choose_by(model: Path, tmp_path: Path) -> None:
    given = {**data(), "dev": None}
    none = options(tmp_path / "run", blend=0, candidates=RANDOM)
    result = recipes.augmented(model, **given, options=none)
    assert names(result) == ["baseline", "candidates", "cross", "scores", "silver", "bi", "compare"]
    silver = result.silver
    assert (silver.blend, silver.blend_tried) == (0, {})
    assert silver.agreement == silver.cross_agreement
    cross = CrossEncoder.load(result.cross[0].model, device="cpu")
    start = BiEncoder.load(model, device="cpu")
    check_labels(result, PlainLabels(cross, start, given["gold"]))  # the cross-encoder's own scores
    auto = recipes.augmented(model, **given, options=replace(none, blend="auto"))
    assert names(auto) == names(result)
    assert worked(auto) == []
    with_dev = options(tmp_path / "other", blend=0, candidates=RANDOM)
    assert names(recipes.augmented(model, **data(), options=with_dev)) == names(result)  # 0 is 0, dev or not


def by_cosine(model: Path, given: dict[str, Examples]) -> dict[str, Examples]:
    """The same pairs; people would give them 0.5 + 0.5 times the cosine of the model as it is."""
    plain = PlainLabels(None, BiEncoder.load(model, device="cpu"), given["gold"])  # type: ignore[arg-type]
    return {
        name: replace(one, targets=(0.5 + 0.5 * plain._raw(pairs_of(one))).astype(np.float32))
        for name, one in given.items()
        if isinstance(one, Examples)
    }


@pytest.fixture(scope="module")
def chosen(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[AugmentOptions, AugmentResult]:
    """The cosines of the model as it is given are what people say; the cross-encoder has learned next to nothing."""
    chosen = options(tmp_path_factory.mktemp("chosen") / "run", retrieve_with="given")
    return chosen, recipes.augmented(model, **by_cosine(model, data()), options=chosen)


def test_dev_chooses_the_cosines_where_they_are_right(
    chosen: tuple[AugmentOptions, AugmentResult], model: Path
) -> None:
    _, result = chosen
    given, silver = by_cosine(model, data()), result.silver
    (labels,) = (stage for stage in result.stages if stage.name == "labels")
    scale = labels.facts["scale"]
    assert (scale["shift"], scale["factor"]) == pytest.approx((0.5, 0.5), abs=1e-3)
    assert silver.blend == 0.75
    cross = CrossEncoder.load(result.cross[0].model, device="cpu")
    plain = PlainLabels(cross, BiEncoder.load(model, device="cpu"), given["gold"])
    dev = given["dev"]
    assert silver.blend_tried == pytest.approx(
        {f"{w:g}": scipy.stats.spearmanr(plain.labels(pairs_of(dev), w)[0], dev.targets).statistic for w in WEIGHTS}
    )
    assert silver.agreement["dev (dev)"]["spearman"] == pytest.approx(silver.blend_tried["0.75"])
    assert silver.cross_agreement["dev (dev)"]["spearman"] == pytest.approx(silver.blend_tried["0"])
    rows = silver_rows(silver.path)
    wanted, spread = plain.labels([(a, b) for a, b, *_ in rows], 0.75)
    assert [row[2] for row in rows] == pytest.approx(wanted, abs=2e-4)
    assert [row[3] for row in rows] == pytest.approx(spread, abs=2e-4)
    page = (result.folder / "index.html").read_text(encoding="utf-8")
    assert "count 0.75 in the labels" in page
    assert page.count(">chosen<") == 1


def test_the_same_weight_given_makes_the_same_labels(chosen: tuple[AugmentOptions, AugmentResult], model: Path) -> None:
    told, result = chosen
    again = recipes.augmented(model, **by_cosine(model, data()), options=replace(told, blend=0.75))
    assert worked(again) == ["labels"]  # other words, and the same arrays: nothing after them has to be done
    assert again.silver == result.silver


def test_dev_chooses_and_test_does_not(
    chosen: tuple[AugmentOptions, AugmentResult], model: Path, tmp_path: Path
) -> None:
    told, result = chosen
    given = by_cosine(model, data())
    turned = replace(given["test"], targets=1 - np.asarray(given["test"].targets))
    other = recipes.augmented(model, **{**given, "test": turned}, options=replace(told, folder=tmp_path / "run"))
    assert (other.silver.blend, other.silver.blend_tried) == (result.silver.blend, result.silver.blend_tried)
    assert other.silver.agreement["test (test)"]["spearman"] == pytest.approx(
        -result.silver.agreement["test (test)"]["spearman"]  # type: ignore[operator]
    )


def constant_cross(model: Path) -> CrossEncoder:
    cross = CrossEncoder.from_body(BiEncoder.load(model, device="cpu", dtype="float32"), 1)
    torch.nn.init.zeros_(list(cross.parts.head.parameters())[-2])
    cross.refresh()
    return cross


def test_a_cross_encoder_that_says_the_same_of_all_is_outvoted(model: Path, tmp_path: Path) -> None:
    given = by_cosine(model, data())
    told = options(tmp_path / "run", cross_encoder=constant_cross(model), baseline=False, retrieve_with="given")
    result = recipes.augmented(model, **given, options=told)
    assert result.silver.blend > 0
    assert result.silver.blend_tried["0"] == 0
    assert result.silver.cross_agreement["dev (dev)"]["spearman"] is None
    assert result.silver.agreement["dev (dev)"]["spearman"] == pytest.approx(1, abs=0.01)
    page = (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    assert ">constant<" in page
    json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))


def test_a_ready_ones_gold_is_no_dev(model: Path, tmp_path: Path) -> None:
    """Whatever a labelled set is called: the weight is chosen by the development sets alone."""
    given = {**by_cosine(model, data()), "dev": scored("dev", 16, 50)}
    found = []
    for name in ("gold", "pairs (dev)"):
        told = options(
            tmp_path / name, cross_encoder=constant_cross(model), baseline=False, retrieve_with="given", blend=0.5
        )
        sets = {**given, "gold": replace(given["gold"], name=name)}
        found.append(recipes.augmented(model, **sets, options=told).silver)
    assert found[0].blend_tried == found[1].blend_tried != {}
    assert set(found[1].agreement) == {"test (test)", "dev (dev)", "gold: pairs (dev)"}


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 1.0, -0.1, float("nan"), float("inf"), "half", "0.5", None, True, [0.5]])
def test_weights_that_are_none(value: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="blend must be 'auto' or a number from 0 up to, but not, 1, got"):
        AugmentOptions(folder=tmp_path, blend=value)  # type: ignore[arg-type]


def test_a_retriever_that_would_do_nothing(model: Path, tmp_path: Path) -> None:
    told: Callable[..., AugmentOptions] = lambda **more: options(  # noqa: E731
        tmp_path / "run", retriever=model, candidates=RANDOM, **more
    )
    with pytest.raises(InputError, match=r"retriever .* nothing of these is asked for: the strategies are random"):
        told(blend=0)
    with pytest.raises(InputError, match=r"retriever .* there is no development set"):
        recipes.augmented(model, **{**data(), "dev": None}, options=told())
    assert not (tmp_path / "run").exists()


def test_other_settings_of_the_last_training_go_before_ours(model: Path, tmp_path: Path) -> None:
    told = options(tmp_path / "run", blend=0, baseline=False, candidates=RANDOM, bi_changes={**BI, "temperature": 7.0})
    result = recipes.augmented(model, **{**data(), "dev": None}, options=told)
    settings = json.loads((result.bi.folder / "config.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["sampling"], settings["temperature"]) == ("temperature", 7.0)
