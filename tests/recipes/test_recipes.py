"""Every recipe from data to a saved, measured model; the pitfalls that a recipe must not let through."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as PeerCrossEncoder
from sentence_transformers import SentenceTransformer

from munjang import recipes
from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError, LeakageWarning, ModelWarning
from munjang.recipes import LoraSettings, RecipeOptions, RecipeResult
from munjang.recipes.defaults import DEFAULTS, OBJECTIVES, RECIPE_NAMES, evaluate_every, size_of
from munjang.training import TrainingSettings
from recipes.material import nli as nli_data
from recipes.material import ranked, scored, triplets

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
Load = Callable[[], BiEncoder]
TEXTS = ["a man plays the guitar at home.", "국수를 먹는다", ""]


def options(folder: Path | None = None, **more: object) -> RecipeOptions:
    return RecipeOptions(folder=folder, device="cpu", **more)  # type: ignore[arg-type]


def data(recipe: str) -> tuple[Examples, Examples, Examples]:
    make = {"nli": nli_data, "cross_nli": nli_data, "sts": scored, "cross_sts": scored, "cross_rank": ranked}
    one = make.get(recipe, triplets)
    return one("our train", 12, 0), one("our dev", 8, 50), one("our test", 8, 90)


CASES = [(name, objective) for name in RECIPE_NAMES for objective in OBJECTIVES[name]]


@pytest.mark.parametrize(("name", "objective"), CASES)
def test_every_recipe_with_every_objective(name: str, objective: str, tiny: Path, tmp_path: Path) -> None:
    train, dev, test = data(name)
    if (name, objective) == ("cross_rank", "ranking"):
        train = triplets("our train")
    if objective in ("contrastive", "online"):
        train = scored("our train")
        train = replace(train, targets=(train.targets > 0.3).astype(np.float32))
    result: RecipeResult = getattr(recipes, name)(
        tiny, train, dev, test, options=options(tmp_path, objective=objective, changes={"max_steps": 3, "log_every": 1})
    )
    assert result.training.steps == 3
    assert all(np.isfinite(loss) for loss in result.training.losses.values())
    assert [one.name for one in result.dev] == ["our dev"]
    assert [one.name for one in result.scores] == ["our test"]
    assert result.scores[0].main in result.scores[0].intervals
    for file in (
        "config.json",
        "log.jsonl",
        "result.json",
        "recipe.json",
        "scores.json",
        "report.html",
        "model/README.md",
    ):
        assert (tmp_path / file).is_file(), file


def test_the_trained_bi_encoder_is_the_same_in_sentence_transformers(tiny: Path, load: Load, tmp_path: Path) -> None:
    train, dev, _ = data("nli")
    before = load().encode(TEXTS)
    result = recipes.nli(load(), train, dev, options=options(tmp_path, changes={"epochs": 3}))
    assert isinstance(result.model, BiEncoder)
    ours = result.model.encode(TEXTS)
    assert np.abs(ours - before).max() > 1e-4, "nothing was learned"
    peer = SentenceTransformer(str(tmp_path / "model"), device="cpu", model_kwargs={"dtype": torch.float32})
    assert np.abs(peer.encode(TEXTS) - ours).max() < 1e-5
    again = BiEncoder.load(tmp_path / "model", device="cpu", dtype="float32")
    assert np.abs(again.encode(TEXTS) - ours).max() < 1e-6
    names = {name for name, _ in result.model.parts.body.named_parameters()}
    assert not any("layer.weight" in name or "objective" in name for name in names), "the softmax stays behind"


def test_the_trained_cross_encoder_is_the_same_in_sentence_transformers(tiny: Path, tmp_path: Path) -> None:
    train, dev, test = data("cross_sts")
    result = recipes.cross_sts(tiny, train, dev, test, options=options(tmp_path, changes={"max_steps": 4}))
    assert isinstance(result.model, CrossEncoder)
    pairs = list(zip(test.columns["a"], test.columns["b"], strict=True))
    exact = CrossEncoder.load(tmp_path / "model", device="cpu", dtype="float32").predict(pairs)
    peer = PeerCrossEncoder(str(tmp_path / "model"), device="cpu", model_kwargs={"dtype": torch.float32})
    assert np.abs(peer.predict(pairs) - exact).max() < 1e-5
    assert np.abs(result.model.predict(pairs) - exact).max() < 0.02  # this one computes in the CPU's own precision


def test_learning_beats_where_it_began(load: Load) -> None:
    """Loss falls, and the metric on the training pairs themselves rises."""
    train = scored("our train", 24)
    model = load()
    from munjang.evaluation import StsEvaluator

    before = StsEvaluator(train)(model).value
    result = recipes.sts(model, train, options=options(changes={"epochs": 60, "learning_rate": 3e-3, "dropout": 0.0}))
    assert StsEvaluator(train)(result.model).value > max(0.8, before + 0.2)
    assert "the model is that of the last step" in result.notes[0]


def test_pitfall_dev_selects_and_reports(load: Load, tmp_path: Path) -> None:
    train, dev, test = data("sts")
    backwards = dev.take(list(range(len(dev)))[::-1], name="another name")
    for same in (dev, dev.take(range(len(dev)), name="a copy"), backwards):
        with pytest.raises(InputError, match="the development set chooses the model; it cannot report too"):
            recipes.sts(load(), train, dev, same, options=options())
    with pytest.raises(InputError, match="cannot report too"):
        recipes.sts(load(), train, [test, dev], [scored("third", 8, 70), dev], options=options())
    result = recipes.sts(load(), train, dev, options=options(tmp_path, changes={"max_steps": 2}))
    assert "optimistic" in " ".join(result.notes)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "the development score chose the model, so it is optimistic" in page
    assert "optimistic" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_pitfall_warm_up_longer_than_training(load: Load, tmp_path: Path) -> None:
    train, dev, _ = data("sts")
    with pytest.raises(InputError, match=r"warm_up must be shorter than the training, which has 4 steps, got 500"):
        recipes.sts(load(), train, dev, options=options(tmp_path / "run", changes={"warm_up": 500}))
    assert not (tmp_path / "run").exists()


def test_pitfall_mnrl_gets_neutral_pairs(load: Load, tmp_path: Path) -> None:
    train = nli_data("our NLI")
    result = recipes.nli(load(), train, options=options(tmp_path, objective="ranking", changes={"max_steps": 1}))
    rows = list(zip(*train.columns.values(), (train.labels[one] for one in train.targets), strict=True))
    by_label = {label: {(a, b) for a, b, one in rows if one == label} for label in train.labels}
    from munjang.recipes.tasks import work_of

    (task,) = work_of("nli", [train], options(objective="ranking"), dimension=32).tasks
    columns = list(task.examples.columns.values())
    positives = set(zip(columns[0], columns[1], strict=True))
    assert positives == by_label["entailment"] | {(b, a) for a, b in by_label["entailment"]}
    contradicting = {b for _, b in by_label["contradiction"]}
    assert set(columns[2]) == contradicting
    neutral = {b for _, b in by_label["neutral"]}
    assert not neutral & {text for column in columns for text in column}
    record = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert record["tasks"][0]["refused_counts"]["neutral"] == 12, "and the report says so"
    assert result.training.steps == 1


def test_pitfall_head_size_mismatch(tiny: Path, tmp_path: Path) -> None:
    """Three outputs cannot go on as one: the body stays, the head is new, and that is said (R11)."""
    train, dev, _ = data("cross_nli")
    quick = {"max_steps": 2}
    first = recipes.cross_nli(tiny, train, dev, options=options(tmp_path / "nli", changes=quick))
    assert first.model.labels == train.labels
    said = (
        r"the head is new: it had 3 outputs \(entailment, neutral, contradiction\), 1 was asked for; the body is kept"
    )
    pairs, _, _ = data("cross_sts")
    with pytest.warns(ModelWarning, match=said):
        second = recipes.cross_sts(first.model, pairs, options=options(changes=quick))
    assert len(second.model.labels) == 1
    assert any("3 outputs" in note for note in second.notes)
    assert len(first.model.labels) == 3, "the first model is as it was"
    with pytest.warns(ModelWarning, match=said):
        third = recipes.cross_sts(tmp_path / "nli" / "model", pairs, options=options(changes=quick))
    assert len(third.model.labels) == 1
    with pytest.warns(
        ModelWarning, match=r"it had 1 output .* 3 \(entailment, neutral, contradiction\) were asked for"
    ):
        recipes.cross_nli(third.model, train, options=options(changes=quick))


def test_the_body_is_kept_when_the_head_is_new(tiny: Path, tmp_path: Path) -> None:
    from munjang.recipes.models import cross_encoder

    train, _, _ = data("cross_nli")
    first = recipes.cross_nli(tiny, train, options=options(tmp_path, changes={"max_steps": 2})).model
    with pytest.warns(ModelWarning):
        ready = cross_encoder(first, 1, options())
    for (name, old), new in zip(first.parts.body.named_parameters(), ready.model.parts.body.parameters(), strict=True):
        assert torch.equal(old, new), name
        assert old.data_ptr() != new.data_ptr(), name


def test_lora_trains_adapters_and_saves_a_plain_model(load: Load, tmp_path: Path) -> None:
    train, dev, _ = data("sts")
    model = load()
    before = {name: weight.detach().clone() for name, weight in model.parts.body.named_parameters()}
    chosen = options(tmp_path, lora=LoraSettings(rank=2), changes={"epochs": 5, "learning_rate": 1e-2}, before=False)
    result = recipes.sts(model, train, dev, options=chosen)
    after = dict(result.model.parts.body.named_parameters())
    assert list(after) == list(before), "the adapters are gone"
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert changed
    assert all(name.split(".")[-2] in ("qkv", "out", "up", "down") for name in changed), changed
    saved = BiEncoder.load(tmp_path / "model", device="cpu", dtype="float32").encode(TEXTS)
    assert np.abs(saved - result.model.encode(TEXTS)).max() < 1e-5
    again = recipes.sts(load(), train, dev, options=chosen)
    assert np.abs(again.model.encode(TEXTS) - saved).max() < 1e-5, "the finished run is found, not trained again"
    assert again.training.resumed_from == result.training.steps


def test_matryoshka_is_measured_at_every_size(load: Load, tmp_path: Path) -> None:
    train, dev, test = data("sts")
    chosen = options(tmp_path, matryoshka=(16, 8), changes={"max_steps": 2})
    result = recipes.sts(load(), train, dev, test, options=chosen)
    record = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in record["truncated"]] == ["our test, first 16 values", "our test, first 8 values"]
    assert result.model.truncate_dim is None
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["tasks"][0]["objective_settings"]["dimensions"] == [32, 16, 8]
    with pytest.raises(InputError, match="a cross-encoder has none"):
        recipes.cross_sts(load(), train, options=options(matryoshka=(8,)))
    with pytest.raises(InputError, match="vectors of any width"):
        recipes.nli(load(), nli_data("n"), options=options(matryoshka=(8,)))


def test_several_training_sets(load: Load) -> None:
    quick = {"max_steps": 2}
    two = recipes.sts(load(), [scored("one"), scored("two", 10, 7)], options=options(changes=quick))
    assert set(two.training.truncated) == {"one", "two"}
    same_name = recipes.sts(load(), [scored("one"), scored("one", 10, 7)], options=options(changes=quick))
    assert set(same_name.training.truncated) == {"one", "one (2)"}
    joined = recipes.nli(load(), [nli_data("snli"), nli_data("mnli", 6, 3)], options=options(changes=quick))
    assert set(joined.training.truncated) == {"snli + mnli"}, "one softmax for both"
    other = replace(nli_data("odd"), labels=("neutral", "entailment", "contradiction"))
    for recipe in (recipes.nli, recipes.cross_nli):
        with pytest.raises(InputError, match="need the same labels in the same order"):
            recipe(load(), [nli_data("snli"), other], options=options())


def test_labels_of_dev_may_stand_in_another_order(load: Load) -> None:
    train = nli_data("our train")
    dev = nli_data("our dev", 6, 50)
    order = [2, 0, 1]
    turned = replace(
        dev, labels=tuple(dev.labels[i] for i in order), targets=np.array([order.index(t) for t in dev.targets])
    )
    found = [
        recipes.nli(load(), train, one, options=options(changes={"max_steps": 4})).dev[0].value for one in (dev, turned)
    ]
    assert found[0] == found[1]
    with pytest.raises(InputError, match="but the model answers with entailment"):
        recipes.nli(load(), train, replace(dev, labels=("a", "b", "c")), options=options())


def test_pooling_length_and_seed_are_obeyed(tiny: Path, load: Load) -> None:
    train, _, _ = data("sts")
    quick = {"max_steps": 1}
    for given in (tiny, load()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)  # that cls was asked for where mean was saved
            result = recipes.sts(given, train, options=options(pooling="cls", max_length=6, changes=quick))
        assert result.model.parts.pooling.modes == ("cls",)
        assert result.model.max_length == 6
        assert any("longer than 6 tokens and were cut" in note for note in result.notes)
    same, other = (
        recipes.nli(load(), nli_data("n"), options=options(seed=seed, changes={"max_steps": 2})).model.encode(TEXTS)
        for seed in (1, 2)
    )
    assert not np.array_equal(same, other)
    with pytest.raises(InputError, match="pooling belongs to bi-encoders"):
        recipes.cross_sts(tiny, train, options=options(pooling="cls"))


def test_defaults_by_the_size_of_the_body(load: Load) -> None:
    assert [size_of(10_600_000), size_of(86_000_000), size_of(303_000_000)] == ["small", "base", "large"]
    assert set(DEFAULTS) == set(RECIPE_NAMES) == set(OBJECTIVES)
    assert evaluate_every(100, 1) == 25
    assert evaluate_every(100, 4) is None
    assert evaluate_every(1, 1) == 1
    from munjang.recipes.running import settings_for
    from munjang.recipes.tasks import work_of

    train = scored("s", 64)
    work = work_of("sts", [train], options(), dimension=32)
    found = settings_for("sts", load(), work, options(changes={"epochs": 2}, seed=7))
    assert (found.learning_rate, found.batch_size, found.epochs, found.seed) == (1e-4, 32, 2, 7)
    assert found.evaluate_every == 1
    given = TrainingSettings(epochs=3, seed=5)
    assert settings_for("sts", load(), work, options(settings=given)) == given
    with pytest.raises(InputError, match="not both"):
        options(settings=given, changes={"epochs": 2})
    with pytest.raises(InputError, match="changes must be settings"):
        options(changes={"epoch": 2})


def test_wrong_data_and_wrong_models_are_refused_before_training(tiny: Path, load: Load) -> None:
    train, dev, _ = data("sts")
    with pytest.raises(InputError, match="there is nothing to train on"):
        recipes.sts(load(), [], options=options())
    with pytest.raises(InputError, match="train must be scored data here, but our NLI is labelled"):
        recipes.sts(load(), nli_data("our NLI"), options=options())
    with pytest.raises(InputError, match="objective of sts must be one of cosine, cosent, angle, got 'mse'"):
        recipes.sts(load(), train, options=options(objective="mse"))
    cross = CrossEncoder.from_body(load(), 1, device="cpu")
    with pytest.raises(InputError, match="this recipe trains a bi-encoder, got a CrossEncoder"):
        recipes.sts(cross, train, options=options())
    with pytest.raises(InputError, match=r"our NLI has the labels .* trains a model with one score"):
        recipes.cross_sts(load(), train, nli_data("our NLI"), options=options())
    with pytest.raises(InputError, match="dev must be labelled data here"):
        recipes.cross_nli(load(), nli_data("n"), dev, options=options())


def test_a_text_with_itself_and_repeated_rows_are_left_out_and_counted(load: Load, tmp_path: Path) -> None:
    base = triplets("pairs", 8)
    columns = {name: [*texts, texts[0], texts[1]] for name, texts in base.columns.items()}
    columns["positive"][-1] = columns["anchor"][-1]  # a text with itself; the row before it is a repeated one
    result = recipes.contrastive(
        load(), Examples("pairs", "pairs", columns), options=options(tmp_path, changes={"max_steps": 1})
    )
    record = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    counts = record["tasks"][0]["refused_counts"]
    assert counts == {"the same row again": 1, "a text paired with itself": 1}
    assert result.training.rows == 8
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "a text paired with itself" in page


def test_leakage_is_counted_said_removed_or_refused(load: Load, tmp_path: Path) -> None:
    train, dev = scored("our train"), scored("our dev", 8, 50)
    leaking = replace(dev, columns={**dev.columns, "a": [train.columns["a"][0], *dev.columns["a"][1:]]})
    clean = train.take([row for row in range(len(train)) if train.columns["a"][row] not in set(dev.texts())
                        and train.columns["b"][row] not in set(dev.texts())])  # fmt: skip
    leaking = replace(leaking, name="our dev")
    with pytest.warns(LeakageWarning, match=r"evaluation sentences stand in 1 rows of the training data"):
        told = recipes.sts(load(), clean, leaking, options=options(tmp_path / "told", changes={"max_steps": 1}))
    assert told.leakage is not None
    assert told.leakage.any
    assert told.training.rows == len(clean)
    with pytest.warns(LeakageWarning, match="these training rows were taken out"):
        removed = recipes.sts(
            load(), clean, leaking, options=options(tmp_path / "removed", leakage="remove", changes={"max_steps": 1})
        )
    assert removed.training.rows == len(clean) - 1
    with pytest.raises(InputError, match="leakage='refuse' was asked for"):
        recipes.sts(load(), clean, leaking, options=options(leakage="refuse"))
    for name, text in (("told", "The rows stayed in the training data"), ("removed", "were taken out of the training")):
        page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
        assert text in page
        assert train.columns["a"][0] in page
