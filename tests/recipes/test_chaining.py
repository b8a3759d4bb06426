"""Chains in both orders, resuming, and repeating a run from its recipe.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from munjang import recipes
from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, LeakageWarning, ModelWarning, ResumeError
from munjang.recipes import RecipeOptions, SetOptions, Stage, chain, repeat
from recipes.material import nli as nli_data
from recipes.material import scored

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
Load = Callable[[], BiEncoder]
TEXTS = ["a man plays the guitar at home.", "국수를 먹는다", ""]
QUICK = RecipeOptions(device="cpu", changes={"max_steps": 2})


def stages(*names: str) -> list[Stage]:
    found = []
    for name in names:
        make = nli_data if name.endswith("nli") else scored
        found.append(Stage(name, make(f"{name} train", 8, 0), make(f"{name} dev", 6, 50), options=QUICK))  # type: ignore[arg-type]
    return found


def write_scored(path: Path, examples: Examples) -> Path:
    rows = zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True)
    path.write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{5 * s}\n" for a, b, s in rows), encoding="utf-8"
    )
    return path


def write_nli(path: Path, examples: Examples) -> Path:
    rows = [{"premise": examples.row(i)["a"], "hypothesis": examples.row(i)["b"], "label": examples.row(i)["label"]}
            for i in range(len(examples))]  # fmt: skip
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("names", [("nli", "sts"), ("sts", "nli")])
def test_a_bi_encoder_in_both_orders(names: tuple[str, str], load: Load, tmp_path: Path) -> None:
    model = load()
    result = chain(model, stages(*names), folder=tmp_path)
    assert [stage.recipe for stage in result.stages] == list(names)
    assert isinstance(result.model, BiEncoder)
    saved = BiEncoder.load(tmp_path / f"2-{names[1]}" / "model", device="cpu", dtype="float32")
    assert np.abs(saved.encode(TEXTS) - result.model.encode(TEXTS)).max() < 1e-6
    second = json.loads((tmp_path / f"2-{names[1]}" / "config.json").read_text(encoding="utf-8"))
    first = BiEncoder.load(tmp_path / f"1-{names[0]}" / "model", device="cpu", dtype="float32")
    assert second["model"]["fingerprint"] == first.fingerprint, "the second stage begins where the first ended"
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert f'href="1-{names[0]}/report.html"' in page
    assert f'href="2-{names[1]}/report.html"' in page


@pytest.mark.parametrize("names", [("cross_nli", "cross_sts"), ("cross_sts", "cross_nli")])
def test_a_cross_encoder_in_both_orders_makes_a_new_head_and_says_so(
    names: tuple[str, str], tiny: Path, tmp_path: Path
) -> None:
    with pytest.warns(ModelWarning, match="the head is new: it had .* the body is kept"):
        result = chain(tiny, stages(*names), folder=tmp_path)
    assert [len(stage.model.labels) for stage in result.stages] == [3 if name == "cross_nli" else 1 for name in names]
    report = (tmp_path / f"2-{names[1]}" / "report.html").read_text(encoding="utf-8")
    assert "the head is new" in report
    assert len(CrossEncoder.load(tmp_path / f"2-{names[1]}" / "model", device="cpu").labels) in (1, 3)


def test_a_bi_encoder_may_go_on_as_a_cross_encoder_but_not_back(load: Load) -> None:
    result = chain(load(), stages("nli", "cross_sts"))
    assert isinstance(result.model, CrossEncoder)
    with pytest.raises(InputError, match="a bi-encoder cannot follow a cross-encoder"):
        chain(load(), stages("cross_sts", "nli"))
    with pytest.raises(InputError, match="at least one stage"):
        chain(load(), [])
    with pytest.raises(InputError, match="recipe must be one of"):
        chain(load(), [Stage("stss", scored("x"))])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no folder of its own"):
        chain(load(), [Stage("sts", scored("x"), options=RecipeOptions(folder="here"))])


@pytest.mark.filterwarnings("error::munjang.errors.LeakageWarning")
def test_leakage_and_roles_are_checked_over_all_stages(load: Load) -> None:
    """A test sentence that an earlier stage learned from leaks as much as one of the last stage."""
    learned = nli_data("our NLI", 8)
    clean = Examples("clean", "scored", {"a": ["one", "two"], "b": ["three", "four"]}, np.array([0.1, 0.9], np.float32))
    test = Examples(
        "our test",
        "scored",
        {"a": [learned.columns["a"][0], "five"], "b": ["six", "seven"]},
        np.array([0.2, 0.7], np.float32),
    )
    both = [Stage("nli", learned, options=QUICK), Stage("sts", clean, test=test, options=QUICK)]
    with pytest.warns(LeakageWarning, match="our test: 1 of 2 rows"):
        chain(load(), both)
    with pytest.raises(InputError, match="it cannot report too"):
        chain(load(), [Stage("nli", learned, dev=test, options=QUICK), Stage("sts", clean, test=test, options=QUICK)])


def test_a_finished_stage_is_not_trained_again(tiny: Path, tmp_path: Path) -> None:
    first = chain(tiny, stages("nli", "sts"), folder=tmp_path)
    again = chain(tiny, stages("nli", "sts"), folder=tmp_path)
    assert [stage.training.resumed_from for stage in again.stages] == [2, 2]
    assert np.array_equal(again.model.encode(TEXTS), first.model.encode(TEXTS))


def test_resume_through_the_recipe_ends_with_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    train, dev = scored("our train"), scored("our dev", 8, 50)

    def run(folder: Path, stop_at: int | None = None) -> recipes.RecipeResult:
        def progress(step: int, total: int | None) -> None:
            if stop_at is not None and step >= stop_at:
                raise KeyboardInterrupt("stopped by the test")

        changes = {"epochs": 6, "batch_size": 8, "save_every": 3, "log_every": 1}
        chosen = RecipeOptions(folder=folder, device="cpu", changes=changes, progress=progress)
        return recipes.sts(tiny, train, dev, options=chosen)

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", stop_at=8)
    assert not (tmp_path / "broken" / "scores.json").exists()
    with pytest.raises(DataError, match=r"has no result\.json: it holds no finished run"):
        recipes.write_report(tmp_path / "broken")
    resumed = run(tmp_path / "broken")
    assert resumed.training.resumed_from == 6
    weights = [dict(one.model.parts.body.named_parameters()) for one in (whole, resumed)]
    assert all(np.array_equal(weights[0][name].detach(), weights[1][name].detach()) for name in weights[0])
    with pytest.raises(ResumeError, match="holds another run"):
        recipes.sts(
            tiny, train, dev, options=RecipeOptions(folder=tmp_path / "whole", device="cpu", changes={"epochs": 1})
        )
    kept = json.loads((tmp_path / "whole" / "recipe.json").read_text(encoding="utf-8"))
    assert kept["options"]["settings"]["epochs"] == 6, "the recipe of the run that is there stays"


def test_recipe_json_repeats_a_run_to_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    train = write_scored(tmp_path / "train.tsv", scored("t"))
    dev = write_scored(tmp_path / "dev.tsv", scored("d", 8, 50))
    chosen = RecipeOptions(
        folder=tmp_path / "run",
        device="cpu",
        objective="cosent",
        pooling=("mean",),
        matryoshka=(16,),
        changes={"epochs": 2, "betas": (0.9, 0.98)},
        sets=SetOptions(score_range=(0, 5), columns={"a": "sentence1", "b": "sentence2"}),
    )
    first = recipes.sts(tiny, train, dev, options=chosen)
    (again,) = repeat(tmp_path / "run" / "recipe.json", folder=tmp_path / "again")
    assert again.training.resumed_from is None
    assert again.model.fingerprint == first.model.fingerprint
    (found,) = repeat(tmp_path / "run")
    assert found.training.resumed_from == first.training.steps, "in its own folder the run is found finished"
    one, two = (json.loads((tmp_path / name / "recipe.json").read_text(encoding="utf-8")) for name in ("run", "again"))
    assert one == two


def test_a_chain_repeats_from_its_recipe_json(tiny: Path, tmp_path: Path) -> None:
    learn = Stage("nli", write_nli(tmp_path / "nli.jsonl", nli_data("n", 6)), options=QUICK)
    sets = RecipeOptions(device="cpu", changes={"max_steps": 2}, sets=SetOptions(score_range=(0, 5)))
    finish = Stage("sts", write_scored(tmp_path / "sts.tsv", scored("s")), options=sets)
    first = chain(tiny, [learn, finish], folder=tmp_path / "chain")
    again = repeat(tmp_path / "chain", folder=tmp_path / "again")
    assert [one.recipe for one in again] == ["nli", "sts"]
    assert again[-1].model.fingerprint == first.model.fingerprint


def test_repeating_on_changed_data_or_from_memory_is_an_error(tiny: Path, load: Load, tmp_path: Path) -> None:
    path = write_scored(tmp_path / "train.tsv", scored("t"))
    sets = SetOptions(score_range=(0, 5))
    chosen = RecipeOptions(folder=tmp_path / "run", device="cpu", changes={"max_steps": 1}, sets=sets)
    recipes.sts(tiny, path, options=chosen)
    write_scored(path, scored("t", 20, 3))
    with pytest.raises(InputError, match=r"train\.tsv holds other rows than when this run was made"):
        repeat(tmp_path / "run", folder=tmp_path / "again")
    recipes.sts(
        load(), scored("in memory"), options=RecipeOptions(folder=tmp_path / "memory", changes={"max_steps": 1})
    )
    with pytest.raises(InputError, match="the train set in memory came from memory"):
        repeat(tmp_path / "memory", folder=tmp_path / "again")
    (tmp_path / "odd.json").write_text('{"format": 9}')
    for name in ("odd.json", "nothing.json"):
        with pytest.raises(DataError, match=name):
            repeat(tmp_path / name)
