"""Augmented SBERT from its arguments to its result: both ways, every stage, the file in between, the report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

import munjang
from munjang import recipes
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import DataError, InputError, MissingExtraError
from munjang.recipes import AugmentResult, Candidates, RecipeOptions, Sampling
from munjang.recipes.augmenting import running, trainings
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
    one, other = (finished.folder / name / "model.safetensors" for name in ("model", "8-bi/model"))
    assert one.read_bytes() == other.read_bytes()
    card = (finished.folder / "model" / "README.md").read_text(encoding="utf-8")
    assert f"Trained with {rows:,} silver pairs" in card
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
        said = {"cross_agreement": plain.readings(pairs).mean(axis=0), "agreement": plain.labels(pairs, silver.blend)[0]}
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


def test_a_prepared_cross_encoder(tiny: Path, tmp_path: Path) -> None:
    chosen = options(tmp_path / "run", pretrain=True, pretrain_pairs=30, candidates=Candidates(("bm25",)))
    result = recipes.augmented(tiny, **data(), options=chosen)
    assert [stage.name for stage in result.stages][2:5] == ["candidates", "pretrain", "cross"]
    (prepared,) = result.others
    config = json.loads((prepared.folder / "config.json").read_text(encoding="utf-8"))
    assert config["tasks"][0]["rows"] == 30
    assert (config["settings"]["epochs"], config["settings"]["batch_size"]) == (2, 128)
    assert config["tasks"][0]["objective"] == "CrossScore"
    crossed = json.loads((tmp_path / "run" / "5-cross" / "config.json").read_text(encoding="utf-8"))
    start = CrossEncoder.load(prepared.model, device="cpu")
    assert crossed["model"]["fingerprint"] == start.fingerprint
    assert {*result.silver.found} == {"bm25"}


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


# --- what cannot be done ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either gold .* or domain .* together with public.*; got neither"),
        ({"domain": ["한 문장", "another"]}, "got domain"),
        ({"public": "gold"}, "got public"),
        ({"gold": "gold", "public": "gold"}, "got gold and public"),
        ({"gold": "gold", "domain": "no-such.txt"}, "no such file of the domain"),
        ({"gold": "gold", "dev": "test", "test": "test"}, "cannot report too"),
    ],
)
def test_neither_way(tiny: Path, tmp_path: Path, given: dict[str, object], message: str) -> None:
    sets = {"gold": scored("gold", 8, 0), "test": scored("test", 8, 3)}
    ready = {name: sets.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises((InputError, DataError), match=message):
        recipes.augmented(tiny, **ready, options=options(tmp_path / "run"))  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()  # found before anything is computed


def test_wrong_models_and_options(tiny: Path, load: Load, tmp_path: Path) -> None:
    gold = scored("gold", 8, 0)
    cross = CrossEncoder.from_body(load(), ("yes", "no", "perhaps"))
    folder = tmp_path / "run"
    with pytest.raises(InputError, match=r"one score, but .* has 3 outputs"):
        recipes.augmented(tiny, gold=gold, options=options(folder, cross_encoder=cross))
    ranker = CrossEncoder.from_body(load(), 1)
    ranker.parts = replace(ranker.parts, activation="Identity")
    with pytest.raises(InputError, match=r"scores in 0\.\.1, but .* ends in Identity"):
        recipes.augmented(tiny, gold=gold, options=options(folder, cross_encoder=ranker))
    with pytest.raises(InputError, match="got a BiEncoder"):
        recipes.augmented(tiny, gold=gold, options=options(folder, cross_encoder=load()))
    with pytest.raises(InputError, match="trains a bi-encoder, got a CrossEncoder"):
        recipes.augmented(cross, gold=gold, options=options(folder))
    with pytest.raises(InputError, match=r"gold_rows must be 1\.\.8"):
        recipes.augmented(tiny, gold=gold, options=options(folder, gold_rows=9))
    with pytest.raises(InputError, match="there is no gold"):
        recipes.augmented(tiny, public=gold, domain=["a", "b"], options=options(folder, gold_rows=2))
    with pytest.raises(InputError, match="at least two different sentences, got 1"):
        recipes.augmented(tiny, public=gold, domain=["하나", "하나 ", ""], options=options(folder))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"mix": "both"}, "mix must be one of together, then"),
        ({"objective": "angle"}, "objective must be one of cosine, cosent"),
        ({"retrieve_with": "x"}, "retrieve_with must be one of"),
        ({"cross_count": 0}, "cross_count must be a whole number from 1 on, got 0"),
        ({"gold_rows": 1.5}, "gold_rows must be a whole number"),
        ({"bi_changes": {"epoch": 1}}, "changes must be settings"),
        ({"cross_changes": {"seed": 1}}, "the seed of every part follows"),
        ({"leakage": "ignore"}, "leakage must be one of"),
        ({"retriever": "m", "candidates": Candidates(("bm25",)), "blend": 0}, "nothing of these is asked for"),
        ({"cross_encoder": "m", "pretrain": True}, "pretrain would do nothing"),
        ({"cross_encoder": "m", "cross_count": 3}, "cross_count would do nothing"),
    ],
)
def test_options_are_checked(tmp_path: Path, told: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        recipes.AugmentOptions(folder=tmp_path, **told)  # type: ignore[arg-type]


def test_approximate_search_without_its_library(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda name: None)
    chosen = options(tmp_path / "run", candidates=Candidates(approximate=True))
    with pytest.raises(MissingExtraError, match=r"munjang\[search\]"):
        recipes.augmented(tiny, gold=scored("gold", 8), options=chosen)
    assert not (tmp_path / "run").exists()


def test_several_processes_are_refused(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process"):
        recipes.augmented(tiny, gold=scored("gold", 8), options=options(tmp_path / "run"))


def test_a_cross_encoder_that_says_the_same_of_all(tiny: Path, load: Load, tmp_path: Path) -> None:
    cross = CrossEncoder.from_body(load(), 1)
    torch.nn.init.zeros_(list(cross.parts.head.parameters())[-2])
    cross.refresh()
    chosen = options(tmp_path / "run", cross_encoder=cross, baseline=False, retrieve_with="given")
    with pytest.raises(DataError, match=r"gives all .* silver pairs the same score"):
        recipes.augmented(tiny, gold=scored("gold", 12), options=chosen)


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
