"""The untrained model's scores: right, kept, shown, and without influence on the training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from munjang import recipes
from munjang.data import Examples, Reading, Refused
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, ResumeError
from munjang.evaluation import StsEvaluator
from munjang.recipes import LoraSettings, RecipeOptions, before
from munjang.recipes.report import write_report
from recipes.material import nli, ranked, scored

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
Load = Callable[[], BiEncoder]


def sets() -> tuple[Examples, Examples, Examples]:
    return scored("our train"), scored("our dev", 8, 50), scored("our test", 8, 90)


def options(folder: Path | None = None, **more: object) -> RecipeOptions:
    chosen = {"changes": {"max_steps": 3}, **more}
    return RecipeOptions(folder=folder, device="cpu", **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("lora", [None, LoraSettings(2, 4)])
def test_before_is_what_the_untrained_model_scores(load: Load, lora: LoraSettings | None) -> None:
    train, dev, test = sets()
    wanted = [StsEvaluator(one)(load()).values for one in (dev, test)]
    result = recipes.sts(load(), train, dev, test, options=options(lora=lora))
    (old_dev,), (old_test,) = result.before.dev, result.before.test
    assert old_dev is not None
    assert old_test is not None
    assert [old_dev.values, old_test.values] == wanted
    assert result.compared("test") == [(result.scores[0], old_test)]
    assert f"before training {100 * old_test.value:.2f}" in str(result)


def test_measuring_before_changes_nothing(tiny: Path, tmp_path: Path) -> None:
    train, dev, test = sets()
    for name, measured in (("with", True), ("without", False)):
        result = recipes.sts(tiny, train, dev, test, options=options(tmp_path / name, before=measured))
        assert bool(result.before.dev) == measured
    one, two = (tmp_path / name / "log.jsonl" for name in ("with", "without"))
    assert one.read_bytes() == two.read_bytes()  # every loss and every evaluation
    assert not (tmp_path / "without" / "before.json").exists()


def test_the_same_call_again_measures_nothing_before(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, dev, test = sets()
    first = recipes.sts(tiny, train, dev, test, options=options(tmp_path))
    seen: list[str] = []
    usual = before.evaluate

    def watched(model: object, chosen: list[StsEvaluator]) -> object:
        seen.extend(one.name for one in chosen)
        return usual(model, chosen)  # type: ignore[arg-type]

    monkeypatch.setattr(before, "evaluate", watched)
    again = recipes.sts(tiny, train, dev, test, options=options(tmp_path))
    assert again.before == first.before
    assert seen == []
    other = recipes.sts(tiny, train, dev, scored("other test", 8, 130), options=options(tmp_path))
    assert other.before.test != first.before.test, "another test set is measured"
    assert "other test" in seen
    (tmp_path / "before.json").write_text("{", encoding="utf-8")  # cut short by a kill
    assert recipes.sts(tiny, train, dev, test, options=options(tmp_path)).before == first.before


def test_the_folder_of_another_run_is_refused_before_anything_is_measured(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, dev, test = sets()
    recipes.sts(tiny, train, options=options(tmp_path))
    monkeypatch.setattr(before, "evaluate", lambda *_: pytest.fail("measured for nothing"))
    with pytest.raises(ResumeError, match="another run"):
        recipes.sts(tiny, train, dev, test, options=options(tmp_path))
    assert not (tmp_path / "before.json").exists()


def test_what_has_no_score_before(load: Load, tmp_path: Path) -> None:
    """The softmax of NLI is made for the training; a cross-encoder's new head answers, by chance."""
    train, dev = nli("n", 6), nli("d", 6, 50)
    result = recipes.nli(load(), train, [dev, scored("s", 8, 90)], options=options(tmp_path / "bi"))
    assert result.before.dev[0] is None
    assert result.before.dev[1] is not None
    assert json.loads((tmp_path / "bi" / "before.json").read_text(encoding="utf-8"))["dev"][0] is None
    assert "a classifier that the training made" in (tmp_path / "bi" / "report.html").read_text(encoding="utf-8")
    crossed = recipes.cross_nli(load(), train, dev, options=options(tmp_path / "cross"))
    assert isinstance(crossed.model, CrossEncoder)
    assert crossed.before.dev[0] is not None
    assert any("the recipe trained it" in note for note in crossed.notes)
    assert not any("train it before use" in note for note in crossed.notes)


def test_the_report_says_whether_it_helped(load: Load, tmp_path: Path) -> None:
    train, dev, _ = sets()
    chosen = {"epochs": 60, "learning_rate": 3e-3, "dropout": 0.0, "evaluate_every": 20}
    dev = replace(train.take(np.arange(12)), name=dev.name)  # a development set that training helps on, too
    result = recipes.sts(load(), train, dev, [replace(train, name="seen")], options=options(tmp_path, changes=chosen))
    _forget_leakage(tmp_path)
    ((after, old),) = result.compared("test")
    assert old is not None
    assert after.value > old.value + 0.2
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    told = f"spearman rose from {100 * old.value:.2f} to {100 * after.value:.2f}."
    assert f"Training helped on seen: {told}" in page
    assert f'<p class="up">{100 * (after.value - old.value):+.2f}, was {100 * old.value:.2f}</p>' in page
    assert "step 0 is before training" in page
    assert "at first" in page
    assert "may be chance" not in page
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| {100 * old.value:.2f} | {100 * after.value:.2f} |" in card
    record = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    del record["before"]  # of a run that measured nothing before
    (tmp_path / "scores.json").write_text(json.dumps(record), encoding="utf-8")
    write_report(tmp_path)
    assert "rose from" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_rise_inside_the_interval_is_no_proof(run_folder: Path) -> None:
    record = json.loads((run_folder / "scores.json").read_text(encoding="utf-8"))
    (after,), (old,) = record["test"], record["before"]["test"]
    value = after["values"]["spearman"]
    old["values"]["spearman"] = value - 0.02
    for low, chance in ((value - 0.05, True), (value - 0.01, False)):
        after["intervals"]["spearman"] = [low, value + 0.05]
        record["leakage"] = None
        (run_folder / "scores.json").write_text(json.dumps(record), encoding="utf-8")
        page = write_report(run_folder).read_text(encoding="utf-8")
        assert ("may be chance" in page) == chance
        assert ("Training helped" in page) != chance
        assert ('class="up"' in page) != chance


def _forget_leakage(folder: Path) -> None:
    """As if the test set were clean."""
    path = folder / "scores.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(record | {"leakage": None}), encoding="utf-8")
    write_report(folder)


def test_scores_of_leaked_and_of_choosing_sets_are_no_proof(load: Load, tmp_path: Path) -> None:
    train = scored("our train")
    chosen = {"epochs": 60, "learning_rate": 3e-3, "dropout": 0.0, "evaluate_every": 20}
    seen = replace(train, name="seen")
    for folder, given, why in (
        (tmp_path / "test", {"test": seen}, "24 (100.0 %) of its rows share a sentence with the training data"),
        (tmp_path / "dev", {"dev": seen}, "this set chose the model, so its score is optimistic"),
    ):
        recipes.sts(load(), train, options=options(folder, changes=chosen), **given)  # type: ignore[arg-type]
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert "rose from" in page
        assert why in page
        assert "Training helped" not in page
        assert 'class="up"' not in page


@pytest.fixture
def run_folder(load: Load, tmp_path: Path) -> Path:
    train, _, test = sets()
    recipes.sts(load(), train, test=test, options=options(tmp_path))
    return tmp_path


def test_harm_is_said(load: Load, tmp_path: Path) -> None:
    """Scores turned around: the model unlearns what it could do."""
    train = scored("our train", 24)
    good = recipes.sts(load(), train, options=options(changes={"epochs": 40, "learning_rate": 3e-3})).model
    assert train.targets is not None
    wrong = replace(train, name="turned", targets=(1 - train.targets).astype(np.float32))
    chosen = {"epochs": 20, "learning_rate": 3e-3}
    result = recipes.sts(good, wrong, test=train, options=options(tmp_path, changes=chosen))
    assert "worse than before training" in result.notes[0]
    assert "Training did not help here" in result.notes[1]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Training did not help here" in page
    assert 'class="down"' in page


def test_what_is_read_is_told(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    train, dev, _ = sets()
    reading = Reading(
        "train.tsv", 26, 24, (Refused("train.tsv line 9", "score is empty", "가 | 나"),), {"score is empty": 2}
    )
    result = recipes.sts(load(), replace(train, reading=reading), dev, options=options(progress=True))
    said = capsys.readouterr().err
    assert "train our train: 26 rows, 24 used, 2 refused: score is empty (2)" in said
    assert "dev our dev: 8 rows" in said
    assert "before training: our dev: spearman" in said
    wanted = "our train (train): 2 of 26 rows were not used: score is empty (2); the first is train.tsv line 9: 가 | 나"
    assert wanted in result.notes
    recipes.sts(load(), train, dev, options=options(progress=lambda *_: None))
    assert capsys.readouterr().err == ""


def test_constant_targets_are_refused_at_once(load: Load) -> None:
    train = scored("same")
    flat = replace(train, targets=np.full(len(train), 0.6, np.float32))
    with pytest.raises(InputError, match=r"same: all 24 rows have the same score \(0\.6\)"):
        recipes.sts(load(), flat, options=options())
    grades = ranked("grades")
    with pytest.raises(InputError, match="the same relevance"):
        recipes.cross_rank(load(), replace(grades, targets=np.zeros(len(grades), np.float32)), options=options())


def test_a_misspelt_name_of_a_set_is_put_right(tiny: Path) -> None:
    with pytest.raises(DataError, match=r"did you mean korsts\?"):
        recipes.sts(tiny, "korst", options=options())


def test_rows_that_are_no_examples(load: Load) -> None:
    with pytest.raises(InputError, match=r"got dict; Examples\.from_dicts\(rows, kind='scored'\)"):
        recipes.sts(load(), [{"a": "x", "b": "y", "score": 1.0}], options=options())  # type: ignore[list-item]


def test_the_folder_of_a_cross_encoder_given_to_a_bi_encoder_recipe(load: Load, tmp_path: Path) -> None:
    CrossEncoder.from_body(load(), 1).save(tmp_path / "cross")
    with pytest.raises(InputError, match="is a cross-encoder, and this recipe trains a bi-encoder: take cross-nli"):
        recipes.sts(tmp_path / "cross", scored("s"), options=options())
