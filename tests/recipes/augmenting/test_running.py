"""Augmented SBERT from its arguments to its result: both ways, every stage, the file in between, the report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

import munjang
from munjang import recipes
from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.recipes import AugmentResult, Candidates, RecipeOptions, Sampling
from munjang.recipes.augmenting import trainings
from munjang.recipes.augmenting.trainings import cosines
from recipes.augmenting.small import BI, PlainLabels, check_rules, data, lively, options, pairs_of, silver_rows
from recipes.material import scored, sentences

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
Load = Callable[[], BiEncoder]


@dataclass(frozen=True)
class Finished:
    folder: Path
    result: AugmentResult
    given: BiEncoder  # after the run
    weights: dict[str, torch.Tensor]  # of the given model, before the run


@pytest.fixture(scope="module")
def tiny(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively(tiny, tmp_path_factory.mktemp("lively"))


@pytest.fixture
def load(tiny: Path) -> Load:
    return lambda: BiEncoder.load(tiny, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Finished:
    """Few gold pairs and more sentences, a model in memory."""
    folder = tmp_path_factory.mktemp("augmented") / "실험 run"
    model = BiEncoder.load(tiny, device="cpu", dtype="float32")
    weights = {name: weight.clone() for name, weight in model.parts.body.named_parameters()}
    result = recipes.augmented(model, **data(), options=options(folder))
    return Finished(folder, result, model, weights)


def spearman(model: BiEncoder, examples: Examples) -> float:
    a, b = (model.encode(examples.columns[side], normalize=True) for side in "ab")
    return float(scipy.stats.spearmanr((a * b).sum(1), examples.targets).statistic)


# --- few gold pairs --------------------------------------------------------------------------------------------------


def test_the_stages_and_what_they_leave(finished: Finished) -> None:
    names = [stage.folder.name for stage in finished.result.stages]
    assert names == [
        *("1-baseline", "2-vectors", "3-candidates", "4-cross", "5-scores", "6-labels", "7-silver", "8-bi", "9-compare")
    ]
    for name in ("1-baseline", "4-cross", "8-bi"):
        assert (finished.folder / name / "report.html").is_file()
        assert not (finished.folder / name / "checkpoints").exists()
    config = json.loads((finished.folder / "8-bi" / "config.json").read_text(encoding="utf-8"))
    rows = finished.result.silver.rows
    assert [(task["name"], task["rows"]) for task in config["tasks"]] == [("gold: gold", 24), ("silver", rows)]
    baseline = json.loads((finished.folder / "1-baseline" / "config.json").read_text(encoding="utf-8"))
    mixed = {"sampling": "temperature", "temperature": 3.0}  # gold is not drowned by silver; nothing else differs
    assert {**baseline["settings"], **mixed} == config["settings"]
    assert baseline["settings"]["sampling"] != "temperature"
    assert baseline["model"]["fingerprint"] == config["model"]["fingerprint"]  # both from the same start
    delivered = finished.result.choice.delivered
    made_by = {"augmented": "8-bi", "labelled": "1-baseline"}[delivered]
    one, other = (finished.folder / name / "model.safetensors" for name in ("model", f"{made_by}/model"))
    assert one.read_bytes() == other.read_bytes()
    card = (finished.folder / "model" / "README.md").read_text(encoding="utf-8")
    assert ("silver pairs, labelled by" in card) == (delivered == "augmented")
    assert 'munjang.load("실험 run/model")' in card


def test_the_given_model_stays_as_it_was(finished: Finished) -> None:
    for name, weight in finished.given.parts.body.named_parameters():
        assert torch.equal(weight, finished.weights[name]), name


def test_the_baseline_is_the_plain_recipe(finished: Finished, load: Load) -> None:
    given = data()
    plain = RecipeOptions(changes=BI, objective="cosine", seed=0)
    alone = recipes.sts(load(), given["gold"], given["dev"], given["test"], options=plain)
    baseline = finished.result.baseline
    assert baseline is not None
    assert [one.value for one in baseline.test] == pytest.approx([one.value for one in alone.scores])
    assert munjang.load(baseline.model, device="cpu", dtype="float32").fingerprint == alone.model.fingerprint


def test_no_forbidden_pair_becomes_silver(finished: Finished) -> None:
    given = data()
    path = finished.folder / "7-silver" / "silver.tsv"
    allowed = {*given["gold"].texts(), *given["domain"]}
    check_rules(path, labelled=[given["gold"]], evaluation=[given["dev"], given["test"]], allowed=allowed)
    assert {origin for *_, origin in silver_rows(path)} == {"semantic"}


def test_gains_are_those_of_the_two_models(finished: Finished, load: Load) -> None:
    test = data()["test"]
    (gain,) = finished.result.gains
    before, after = (munjang.load(finished.folder / name / "model", device="cpu") for name in ("1-baseline", "8-bi"))
    assert (gain.name, gain.part, gain.rows) == ("test", "test", 20)
    assert gain.baseline == pytest.approx(spearman(before, test), abs=1e-6)
    assert gain.augmented == pytest.approx(spearman(after, test), abs=1e-6)
    assert gain.untrained == pytest.approx(spearman(load(), test), abs=1e-6)
    assert gain.difference.value == pytest.approx(gain.augmented - gain.baseline)
    assert gain.difference.low <= gain.difference.value <= gain.difference.high
    assert spearman(finished.result.model, test) == pytest.approx(gain.augmented, abs=1e-6)


def test_agreement_of_the_cross_encoder_and_of_the_labels(finished: Finished) -> None:
    gold, silver = data()["gold"], finished.result.silver
    cross, bi = finished.folder / "4-cross" / "model", finished.folder / "1-baseline" / "model"
    plain = PlainLabels(CrossEncoder.load(cross, device="cpu"), BiEncoder.load(bi, device="cpu"), gold)
    for name, examples in (("dev (dev)", data()["dev"]), ("test (test)", data()["test"])):
        pairs = pairs_of(examples)
        said = {
            "cross_agreement": plain.readings(pairs).mean(axis=0),
            "agreement": plain.labels(pairs, silver.blend)[0],
        }
        for which, ours in said.items():
            found = getattr(silver, which)[name]
            assert found["pairs"] == len(examples)
            assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(ours, examples.targets).statistic)
            assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(ours, examples.targets).statistic, abs=1e-4)
            assert found["mean_difference"] == pytest.approx(np.abs(ours - examples.targets).mean(), abs=1e-5)
    dev = data()["dev"]
    tried = {
        weight: scipy.stats.spearmanr(plain.labels(pairs_of(dev), float(weight))[0], dev.targets).statistic
        for weight in ("0", "0.25", "0.5", "0.75")
    }
    assert silver.blend_tried == pytest.approx(tried)
    assert silver.blend == float(max(tried, key=lambda weight: tried[weight]))
    rows = silver_rows(finished.folder / "7-silver" / "silver.tsv")
    labels, spread = plain.labels([(a, b) for a, b, *_ in rows], silver.blend)
    assert [row[2] for row in rows] == pytest.approx(labels, abs=2e-4)
    assert [row[3] for row in rows] == pytest.approx(spread, abs=2e-4)


def test_the_report(finished: Finished) -> None:
    page = (finished.folder / "index.html").read_text(encoding="utf-8")
    (gain,) = finished.result.gains
    assert f"{100 * gain.baseline:.2f} → {100 * gain.augmented:.2f}" in page
    assert f"[{100 * gain.difference.low:+.2f}, {100 * gain.difference.high:+.2f}]" in page
    assert page.count("<rect") == sum(count > 0 for counts in (
        finished.result.silver.histogram, finished.result.silver.labelled_histogram) for count in counts)  # fmt: skip
    for name in ("1-baseline", "4-cross", "8-bi"):
        assert f'href="{name}/report.html"' in page
    first = silver_rows(finished.folder / "7-silver" / "silver.tsv")
    assert max(first, key=lambda row: row[2])[0] in page
    for note in finished.result.notes:
        assert note.split(":")[0] in page
    assert "Cross-encoder alone: Spearman" in page
    assert f"count {finished.result.silver.blend:g} in the labels" in page
    for value in finished.result.silver.blend_tried.values():
        assert f"{100 * value:.2f}" in page
    assert "<script" not in page
    (finished.folder / "index.html").unlink()
    assert recipes.write_augmented_report(finished.folder).read_text(encoding="utf-8") == page


def test_a_rerun_does_nothing_and_answers_the_same(finished: Finished, load: Load) -> None:
    before = (finished.folder / "result.json").read_text(encoding="utf-8")
    again = recipes.augmented(load(), **data(), options=options(finished.folder))
    assert all(stage.skipped for stage in again.stages)
    for name in ("gains", "silver", "bi", "baseline", "cross", "others", "notes"):
        assert getattr(again, name) == getattr(finished.result, name), name
    after = (finished.folder / "result.json").read_text(encoding="utf-8")
    assert after == before.replace('"skipped": false', '"skipped": true')


def test_edited_silver_trains_the_bi_encoder_again_and_nothing_else(finished: Finished, load: Load) -> None:
    path = finished.folder / "7-silver" / "silver.tsv"
    before = path.read_text(encoding="utf-8")
    try:
        lines = before.splitlines()
        path.write_text("\n".join([*lines[:-3], "직접 쓴 문장이다.\tan own sentence.\t0.9\t0\tby hand", ""]))
        os.utime(path, ns=(1, 1))
        edited = recipes.augmented(load(), **data(), options=options(finished.folder))
        done = [stage.name for stage in edited.stages if not stage.skipped]
        assert done == ["bi", "compare"]
        assert edited.silver.rows == finished.result.silver.rows - 2
        assert edited.silver.origins["by hand"] == 1
        config = json.loads((finished.folder / "8-bi" / "config.json").read_text(encoding="utf-8"))
        assert config["tasks"][1]["rows"] == edited.silver.rows
    finally:
        path.write_text(before, encoding="utf-8")
    weights = (finished.folder / "model" / "model.safetensors").read_bytes()
    restored = recipes.augmented(load(), **data(), options=options(finished.folder))
    assert [stage.name for stage in restored.stages if not stage.skipped] == ["bi", "compare"]
    assert restored.gains == finished.result.gains  # the same file gives the same model
    assert (finished.folder / "model" / "model.safetensors").read_bytes() != weights


def test_other_sampling_leaves_candidates_and_cross_encoder(finished: Finished, tiny: Path) -> None:
    fewer = options(finished.folder, sampling=Sampling(largest=20))
    result = recipes.augmented(tiny, **data(), options=fewer)
    assert [stage.name for stage in result.stages if not stage.skipped] == ["silver", "bi", "compare"]
    assert result.silver.rows == 20
    assert result.silver.steps["above the largest number"] == result.silver.candidates - 20


# --- the other ways --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, AugmentResult]:
    """No gold: a domain with labels that nobody may see, a public set, all strategies, two cross-encoders, then."""
    folder = tmp_path_factory.mktemp("public") / "run"
    return folder, recipes.augmented(tiny, **public_data(), options=public_options(folder))


def public_data(labels: float = 0.0) -> dict[str, Examples]:
    domain = scored("domain", 20, 7)
    shifted = Examples("domain", "scored", domain.columns, np.clip(np.asarray(domain.targets) + labels, 0, 1))
    return {"public": scored("public", 24, 0), "domain": shifted, "test": scored("test", 20, 7)}


def public_options(folder: Path) -> recipes.AugmentOptions:
    return options(
        folder,
        candidates=Candidates(("semantic", "bm25", "random", "kde"), top_k=3, pairs=30, pool_factor=2),
        sampling=Sampling("gold", certain=0.8),
        cross_count=2,
        mix="then",
        objective="cosent",
    )


def test_no_gold_pairs(public: tuple[Path, AugmentResult]) -> None:
    folder, result = public
    given = public_data()
    names = [stage.name for stage in result.stages]
    assert names == ["baseline", "vectors", "candidates", "cross-1", "cross-2", "scores", "silver", "bi-silver", "bi",
                     "compare"]  # fmt: skip
    path = folder / "7-silver" / "silver.tsv"
    allowed = set(given["domain"].texts())  # of the public set no sentence
    check_rules(path, labelled=[given["public"]], evaluation=[given["test"]], allowed=allowed)
    found = {name for origin in result.silver.found for name in origin.split("+")}
    assert found == {"semantic", "bm25", "random", "kde"}
    assert max(spread for *_, spread, _ in silver_rows(path)) > 0  # two cross-encoders differ
    seeds = [json.loads((folder / name / "config.json").read_text())["settings"]["seed"]
             for name in ("4-cross-1", "5-cross-2")]  # fmt: skip
    assert seeds == [0, 1]
    tasks = [
        [(task["name"], task["objective"]) for task in json.loads((folder / name / "config.json").read_text())["tasks"]]
        for name in ("8-bi-silver", "9-bi")
    ]
    assert tasks == [[("silver", "CoSent")], [("public: public", "CoSent")]]
    trained = [json.loads((folder / name / "config.json").read_text())["settings"]
               for name in ("1-baseline", "8-bi-silver", "9-bi")]  # fmt: skip
    assert trained[0] == trained[1] == trained[2]  # one after another: nothing is mixed
    assert [one.name for one in result.others] == ["bi-silver"]
    assert any("sentences of the evaluation sets are paired" in note for note in result.notes)
    assert any("no development set" in note for note in result.notes)
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "no labelled pairs in the domain" in page


def test_labels_of_the_domain_are_not_looked_at(public: tuple[Path, AugmentResult], tiny: Path) -> None:
    folder, _ = public
    again = recipes.augmented(tiny, **public_data(labels=0.3), options=public_options(folder))
    assert all(stage.skipped for stage in again.stages)


def test_a_ready_cross_encoder_and_no_baseline(
    public: tuple[Path, AugmentResult], tiny: Path, load: Load, tmp_path: Path
) -> None:
    ready = CrossEncoder.load(public[0] / "4-cross-1" / "model", device="cpu")
    weights = {name: weight.clone() for name, weight in ready.parts.body.named_parameters()}
    given = {**data(), "test": None, "dev": None}
    chosen = options(tmp_path / "run", cross_encoder=ready, baseline=False, retriever=load())
    result = recipes.augmented(tiny, **given, options=chosen)
    assert [stage.name for stage in result.stages] == ["vectors", "candidates", "scores", "silver", "bi"]
    assert result.baseline is None
    assert result.gains == ()
    assert set(result.silver.agreement) == {"gold: gold"}  # it did not learn from them
    assert result.notes[0] == "There is no baseline: nobody can say whether the silver pairs helped."
    assert all(torch.equal(weight, weights[name]) for name, weight in ready.parts.body.named_parameters())
    page = (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    assert "nobody can say whether the silver pairs helped" in page
    other = replace(chosen, retriever=None, retrieve_with="given", cross_encoder=public[0] / "4-cross-1" / "model")
    again = recipes.augmented(tiny, **given, options=other)
    assert all(stage.skipped for stage in again.stages)  # the same models, given otherwise


def test_a_prepared_cross_encoder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[Examples] = []
    prepare = trainings.prepare

    def watched(recipe: Any, train: list[Examples], *rest: Any, **told: Any) -> Any:
        learned.extend(train)
        return prepare(recipe, train, *rest, **told)

    monkeypatch.setattr(trainings, "prepare", watched)
    chosen = options(
        tmp_path / "run",
        pretrain=True,
        pretrain_pairs=30,
        pretrain_changes={"learning_rate": 3e-4},
        candidates=Candidates(("bm25",)),
    )
    result = recipes.augmented(tiny, **data(), options=chosen)
    assert [stage.name for stage in result.stages][1:5] == ["vectors", "candidates", "pretrain", "cross"]
    (prepared,) = result.others
    config = json.loads((prepared.folder / "config.json").read_text(encoding="utf-8"))
    assert config["tasks"][0]["rows"] == 30
    settings = config["settings"]
    assert (settings["epochs"], settings["batch_size"], settings["learning_rate"]) == (2, 128, 3e-4)
    assert config["tasks"][0]["objective"] == "CrossScore"
    crossed = json.loads((tmp_path / "run" / "5-cross" / "config.json").read_text(encoding="utf-8"))
    assert crossed["tasks"][0]["objective"] == "CrossOrder"
    start = CrossEncoder.load(prepared.model, device="cpu")
    assert crossed["model"]["fingerprint"] == start.fingerprint
    assert {*result.silver.found} == {"bm25"}
    (seen,) = (one for one in learned if "cosine" in one.name)
    check_prepared(seen, result)


def check_prepared(seen: Examples, result: AugmentResult) -> None:
    """Half are candidates, half random pairs that may be made; their scores are the baseline's cosines, 0..1."""
    given = data()
    places = {stage.name: stage.folder for stage in result.stages}
    texts = list(dict.fromkeys(chain(chain.from_iterable(pairs_of(given["gold"])), given["domain"])))
    sides = [np.load(places["candidates"] / name) for name in ("left.npy", "right.npy")]
    candidates = {frozenset((texts[i], texts[j])) for i, j in zip(*sides, strict=True)}
    pairs = [frozenset(pair) for pair in pairs_of(seen)]
    assert set(pairs[:15]) <= candidates
    assert len(set(pairs[15:])) == 15
    assert not set(pairs[15:]) <= candidates
    barred = {frozenset(pair) for name in ("gold", "dev", "test") for pair in pairs_of(given[name])}
    assert not set(pairs) & barred
    assert all(len(pair) == 2 for pair in pairs)
    vectors = np.load(places["vectors"] / "vectors.npy")
    wanted = [float(vectors[texts.index(a)] @ vectors[texts.index(b)]) for a, b in pairs_of(seen)]
    assert np.asarray(seen.targets) == pytest.approx(np.clip(wanted, 0, 1), abs=1e-5)


@pytest.mark.parametrize(("name", "objective"), [("bce", "CrossScore"), ("mse", "CrossScore"), ("order", "CrossOrder")])
def test_what_the_cross_encoder_minimises(tiny: Path, tmp_path: Path, name: str, objective: str) -> None:
    chosen = options(
        tmp_path / "run", cross_objective=name, blend=0, baseline=False, candidates=Candidates(("random",), pairs=20)
    )
    result = recipes.augmented(tiny, gold=data()["gold"], options=chosen)
    task = json.loads((result.cross[0].folder / "config.json").read_text(encoding="utf-8"))["tasks"][0]
    assert task["objective"] == objective
    assert task["objective_settings"].get("loss", name) == name


def test_several_ready_cross_encoders(public: tuple[Path, AugmentResult], tiny: Path, tmp_path: Path) -> None:
    folders = [public[0] / name / "model" for name in ("4-cross-1", "5-cross-2")]
    few = Candidates(("random",), pairs=20)
    chosen = options(tmp_path / "run", cross_encoder=folders, blend=0, baseline=False, candidates=few)
    result = recipes.augmented(tiny, gold=data()["gold"], options=chosen)
    assert [stage.name for stage in result.stages] == ["candidates", "scores", "silver", "bi"]
    rows = silver_rows(result.silver.path)
    pairs = [(a, b) for a, b, *_ in rows]
    both = [CrossEncoder.load(folder, device="cpu") for folder in folders]
    readings = [model.predict(asked) for model in both for asked in (pairs, [(b, a) for a, b in pairs])]
    assert [row[2] for row in rows] == pytest.approx(np.mean(readings, axis=0), abs=1e-4)
    assert [row[3] for row in rows] == pytest.approx(np.std(readings, axis=0), abs=1e-4)
    saved = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert saved["options"]["cross_encoder"] == [str(folder) for folder in folders]
    one = replace(chosen, cross_encoder=folders[:1])
    again = recipes.augmented(tiny, gold=data()["gold"], options=one)
    assert [stage.name for stage in again.stages if not stage.skipped] == ["scores", "silver", "bi"]


def test_cosines_of_pairs() -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    left, right = np.array([0, 3, 6, 6]), np.array([1, 2, 6, 0])
    wanted = [float(vectors[i] @ vectors[j]) for i, j in zip(left, right, strict=True)]
    assert min(wanted) < 0  # below 0 too: the scale of the labels is fitted to them
    assert cosines(vectors, left, right) == pytest.approx(wanted, abs=1e-6)
    blocks = np.random.default_rng(1).integers(7, size=(2, 2 * trainings._BLOCK + 3))
    wanted = (vectors[blocks[0]] * vectors[blocks[1]]).sum(axis=1)
    assert cosines(vectors, *blocks) == pytest.approx(wanted, abs=1e-6)


def test_gold_rows_are_a_seeded_sample(tiny: Path, tmp_path: Path) -> None:
    given = {**data(), "domain": None, "dev": None, "test": None}
    chosen = options(tmp_path / "a", gold_rows=8, baseline=False, candidates=Candidates(("random",), pairs=20))
    result = recipes.augmented(tiny, **given, options=chosen)
    assert sum(result.silver.labelled_histogram) == 8
    texts = set(given["gold"].texts())
    assert result.silver.sentences == len(texts)  # the others are there, without their labels
    check_rules(result.silver.path, labelled=[], evaluation=[], allowed=texts)
    config = json.loads((tmp_path / "a" / "2-cross" / "config.json").read_text(encoding="utf-8"))
    assert config["tasks"][0]["rows"] == 8


# --- evaluation sentences --------------------------------------------------------------------------------------------


def test_evaluation_sentences_can_be_kept_out(tiny: Path, tmp_path: Path) -> None:
    test = scored("test", 12, 7)
    shared = [f"{text.rstrip('.').upper()} !" for text in test.columns["a"][:6]]  # the same but for case and marks
    given = {"gold": scored("gold", 16, 0), "domain": [*sentences(20, 300), *shared], "test": test}
    bm25 = Candidates(("bm25", "random"), top_k=4)
    removed = options(tmp_path / "run", leakage="remove", baseline=False, candidates=bm25)
    result = recipes.augmented(tiny, **given, options=removed)
    seen = {text.casefold().replace(" ", "").strip(".!") for text in test.texts()}
    rows = silver_rows(result.silver.path)
    assert not {text.casefold().replace(" ", "").strip(".!") for a, b, *_ in rows for text in (a, b)} & seen
    assert any("were left out" in note for note in result.notes)
    with pytest.raises(InputError, match="leakage='refuse'"):
        recipes.augmented(tiny, **given, options=options(tmp_path / "other", leakage="refuse"))
    assert not (tmp_path / "other").exists()
