"""The comparison of strategies: two of them, two seeds, a tiny model; every number of the table computed again."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from munjang.bi_encoder import BiEncoder
from munjang.cli.progress import Reporter
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, load_dataset
from munjang.errors import InputError
from munjang.recipes import Candidates
from recipes.augmenting.small import BI, CROSS, lively, silver_rows
from recipes.material import scored
from research import __main__ as command
from research import augmentation
from research.augmentation import LABELLED, AugmentSetup, augmentation_table, run_augmentation

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")]
QUICK: dict[str, Any] = {"bi_changes": BI, "cross_changes": CROSS, "device": "cpu"}
SETUP = AugmentSetup(
    seeds=(0, 5),
    strategies=("semantic", "random"),
    gold_rows=12,
    candidates=Candidates(top_k=2, pairs=25),
    options=QUICK,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as the public sets are, with sentences of our own."""
    folder = tmp_path_factory.mktemp("data")

    def put(name: str, head: str, line: str, examples: Examples) -> None:
        rows = zip(examples.columns["a"], examples.columns["b"], np.asarray(examples.targets).tolist(), strict=True)
        lines = [line.format(number=number, a=a, b=b, score=5 * score) for number, (a, b, score) in enumerate(rows)]
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")

    for name, count, seed in (("train", 24, 0), ("dev", 12, 50), ("test", 20, 90)):
        head = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"
        put(f"korsts/sts-{name}.tsv", head, "g\tf\ty\t{number}\t{score:.3f}\t{a}\t{b}", scored(name, count, seed))
    for name, count, seed in (("train", 16, 200), ("dev", 18, 300)):
        put(f"klue-sts/{name}.csv", "sentence1,sentence2,label", "{a},{b},{score:.3f}", scored(name, count, seed))
    return folder


@pytest.fixture(scope="module")
def model(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively(tiny, tmp_path_factory.mktemp("lively"))


@dataclass(frozen=True)
class Studied:
    folder: Path
    results: dict[str, Any]
    said: list[str]

    def stages(self, seed: int, row: str) -> list[dict[str, Any]]:
        saved = json.loads((self.folder / f"seed-{seed}" / row / "result.json").read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = saved["stages"]
        return found


@pytest.fixture(scope="module")
def few(data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    folder, said = tmp_path_factory.mktemp("few"), []
    results = run_augmentation("augmented-few", model, data, folder, setup=SETUP, say=said.append)
    return Studied(folder, results, said)


def cosines(folder: Path, test: Examples) -> np.ndarray:
    model = BiEncoder.load(folder, device="cpu")
    a, b = (np.asarray(model.encode(test.columns[side]), np.float64) for side in "ab")
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(scipy.stats.spearmanr(a, b).statistic)


def interval(truth: np.ndarray, ours: list[np.ndarray], alone: list[np.ndarray]) -> tuple[float, float]:
    """Rows drawn again, draw by draw: the mean over the seeds of what scipy says of each."""
    gaps = []
    for rows in np.random.default_rng(0).integers(0, len(truth), (1000, len(truth))):
        ranks = scipy.stats.rankdata([truth[rows], *(one[rows] for one in (*ours, *alone))], axis=1)
        found = np.corrcoef(ranks)[0, 1:]
        gaps.append(found[: len(ours)].mean() - found[len(ours) :].mean())
    low, high = np.quantile(gaps, [0.025, 0.975])
    return float(low), float(high)


# --- few labelled pairs ----------------------------------------------------------------------------------------------


def test_the_second_strategy_takes_over_what_the_first_trained(few: Studied) -> None:
    for seed in SETUP.seeds:
        first, second = ([one["name"] for one in few.stages(seed, row)] for row in SETUP.strategies)
        assert first == ["baseline", "vectors", "candidates", "cross", "scores", "labels", "silver", "bi", "compare"]
        assert second == ["vectors", "candidates", "scores", "labels", "silver", "bi"]
        folder = few.folder / f"seed-{seed}"
        cross, baseline = folder / "semantic" / "4-cross" / "model", folder / "semantic" / "1-baseline" / "model"
        inputs = {
            name: json.loads((folder / "random" / name / "stage.json").read_text(encoding="utf-8"))["inputs"]
            for name in ("1-vectors", "3-scores")
        }
        assert inputs["3-scores"]["cross-encoders"] == [CrossEncoder.load(cross, device="cpu").fingerprint]
        assert inputs["1-vectors"]["retriever"] == BiEncoder.load(baseline, device="cpu").fingerprint
        weights = [json.loads((folder / row / "result.json").read_text())["silver"]["blend_tried"]
                   for row in SETUP.strategies]  # fmt: skip
        assert weights[0] == pytest.approx(weights[1])  # the same two models on the same dev
        config = json.loads((folder / "semantic" / "4-cross" / "config.json").read_text(encoding="utf-8"))
        assert (config["tasks"][0]["rows"], config["settings"]["seed"]) == (12, seed)


def test_every_number_is_that_of_the_models(few: Studied, data: Path) -> None:
    test = load_dataset("korsts", "test", data)
    truth = np.asarray(test.targets, np.float64)
    places = {LABELLED: "semantic/1-baseline/model", "semantic": "semantic/model", "random": "random/model"}
    results = few.results
    assert (results["rows"], list(results["seeds"]), list(results["mean"])) == (20, ["0", "5"], list(places))
    assert set(results["seeds"]["0"]) == set(results["seeds"]["5"]) == {*places, "cross-encoder"}
    found: dict[str, list[np.ndarray]] = {row: [] for row in places}
    for number, seed in results["seeds"].items():
        folder = few.folder / f"seed-{number}"
        for row, place in places.items():
            found[row].append(np.array(seed[row]["cosines"]))
            assert found[row][-1] == pytest.approx(cosines(folder / place, test), abs=2e-6)
            assert seed[row]["spearman"] == pytest.approx(correlation(found[row][-1], truth))
            if row != LABELLED:
                gap = correlation(found[row][-1], truth) - correlation(found[LABELLED][-1], truth)
                assert seed[row]["difference"] == pytest.approx(gap)
                wanted = interval(truth, [found[row][-1]], [found[LABELLED][-1]])
                assert (seed[row]["low"], seed[row]["high"]) == pytest.approx(wanted, abs=1e-9)
                silver = json.loads((folder / row / "result.json").read_text(encoding="utf-8"))["silver"]
                assert seed[row]["silver"] == len(silver_rows(folder / row / silver["path"]))
                assert (seed[row]["candidates"], seed[row]["blend"]) == (silver["candidates"], silver["blend"])
        cross = CrossEncoder.load(folder / "semantic/4-cross/model", device="cpu")
        said = cross.predict(list(zip(test.columns["a"], test.columns["b"], strict=True)))
        assert list(seed["cross-encoder"].values()) == pytest.approx([correlation(said, truth)])
    check_means(results, truth, found)
    assert not np.array_equal(found["semantic"], found["random"])


def check_means(results: dict[str, Any], truth: np.ndarray, found: dict[str, list[np.ndarray]]) -> None:
    """found: the cosines of every row, seed by seed."""
    values = {row: [correlation(one, truth) for one in several] for row, several in found.items()}
    assert results["mean"].keys() == found.keys()
    for row, mean in results["mean"].items():
        assert mean["spearman"] == pytest.approx(np.mean(values[row]))
        assert mean["deviation"] == pytest.approx(np.std(values[row]))
        if row != LABELLED:
            alone = found[LABELLED][: len(found[row])]
            assert mean["difference"] == pytest.approx(np.mean(values[row]) - np.mean(values[LABELLED][: len(alone)]))
            assert (mean["low"], mean["high"]) == pytest.approx(interval(truth, found[row], alone), abs=1e-9)


def test_the_table(few: Studied) -> None:
    results = few.results
    shown = augmentation_table(results)
    _, _, head, rule, *rows = shown.splitlines()
    assert head == "| pairs | seed 0 | seed 5 | mean | difference, 95 % interval | silver |"
    assert rule.count("|") == head.count("|")
    cells = {cells[0]: cells[1:] for cells in ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows[:3])}
    assert list(cells) == [LABELLED, "semantic", "random"]
    for row, (one, other, mean, gap, silver) in cells.items():
        each = [results["seeds"][seed][row] for seed in ("0", "5")]
        assert [one, other] == [f"{100 * value['spearman']:.2f}" for value in each]
        assert float(mean) == pytest.approx((float(one) + float(other)) / 2, abs=0.011)
        if row == LABELLED:
            assert (gap, silver) == ("", "")
            continue
        assert float(gap.split()[0]) == pytest.approx(float(mean) - float(cells[LABELLED][2]), abs=0.011)
        assert silver == f"{each[0]['silver']:,}"
    cross = np.mean([value for seed in results["seeds"].values() for value in seed["cross-encoder"].values()])
    assert f"has {100 * cross:.2f} itself (mean of the seeds)" in shown
    assert len(few.said) == 2 * 3
    assert few.said[0].startswith(f"seed 0, {LABELLED}: ")


def times(folder: Path) -> dict[Path, int]:
    """When the files of the stages were written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("seed-*/*/[0-9]*-*/**/*") if path.is_file()}


def test_a_rerun_does_nothing_new(few: Studied, data: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it is run again")

    saved = (few.folder / "results.json").read_text(encoding="utf-8")
    assert json.loads(saved) == json.loads(json.dumps(few.results))
    before = times(few.folder)
    said: list[str] = []
    with monkeypatch.context() as changed:
        changed.setattr(augmentation, "augmented", never)
        again = run_augmentation("augmented-few", model, data, few.folder, setup=SETUP, say=said.append)
    assert said == []
    assert again == json.loads(saved)
    assert augmentation_table(again) == augmentation_table(few.results)
    assert times(few.folder) == before

    # Killed between two rows: the stages of the first are skipped, the row that is missing comes out the same.
    half = json.loads(saved)
    del half["seeds"]["5"]["random"], half["mean"]
    (few.folder / "results.json").write_text(json.dumps(half), encoding="utf-8")
    assert run_augmentation("augmented-few", model, data, few.folder, setup=SETUP, say=said.append) == again
    assert times(few.folder) == before
    assert all(one["skipped"] for row in SETUP.strategies for one in few.stages(5, row))


def test_a_row_more_for_one_of_the_seeds(few: Studied, data: Path, model: Path, tmp_path: Path) -> None:
    few = replace(few, folder=shutil.copytree(few.folder, tmp_path / "few"))
    before = times(few.folder)
    more = replace(SETUP, seeds=(0,), strategies=("semantic", "BM25"))
    wider = run_augmentation("augmented-few", model, data, few.folder, setup=more, say=lambda _: None)
    assert {path: times(few.folder)[path] for path in before} == before  # what is there stays
    names = [one["name"] for one in few.stages(0, "bm25")]
    assert names == ["vectors", "candidates", "scores", "labels", "silver", "bi"]
    for number, seed in few.results["seeds"].items():
        assert {row: wider["seeds"][number][row] for row in seed} == seed
    # The means are those of the columns that the table shows.
    rows = {row: [np.array(seed[row]["cosines"]) for seed in wider["seeds"].values() if row in seed]
            for row in (LABELLED, "semantic", "BM25", "random")}  # fmt: skip
    assert [len(several) for several in rows.values()] == [2, 2, 1, 2]
    truth = np.asarray(load_dataset("korsts", "test", data).targets, np.float64)
    check_means(wider, truth, rows)
    (line,) = (line for line in augmentation_table(wider).splitlines() if line.startswith("| BM25 |"))
    value = f"{100 * wider['seeds']['0']['BM25']['spearman']:.2f}"
    assert [cell.strip() for cell in line.split("|")[2:5]] == [value, "", value]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"gold_rows": 11}, "gold rows"),
        ({"candidates": Candidates(top_k=3, pairs=25)}, "candidates"),
        ({"options": {**QUICK, "blend": 0.5}}, "options"),
        ({"strategies": SETUP.strategies[::-1]}, "first strategy"),
    ],
)
def test_results_of_something_else(few: Studied, data: Path, model: Path, other: dict[str, Any], named: str) -> None:
    saved = (few.folder / "results.json").read_bytes()
    with pytest.raises(InputError, match=f"holds results with other {named}: choose another folder"):
        run_augmentation("augmented-few", model, data, few.folder, setup=replace(SETUP, **other))
    with pytest.raises(InputError, match="holds results with other study, title, test, test data, rows"):
        run_augmentation("augmented-none", model, data, few.folder, setup=SETUP)
    assert (few.folder / "results.json").read_bytes() == saved


# --- no labelled pairs, other options --------------------------------------------------------------------------------


def test_no_labelled_pairs_of_the_domain(data: Path, model: Path, tmp_path: Path) -> None:
    """Options of the cross-encoder's training are for the first strategy, which trains it; the others go on."""
    options = {**QUICK, "blend": 0, "pretrain": True, "pretrain_pairs": 20, "pretrain_changes": {"batch_size": 8},
               "cross_model": model, "cross_count": 2, "cross_objective": "bce"}  # fmt: skip
    setup = replace(SETUP, seeds=(0,), strategies=("random", "BM25", "BM25 + semantic"), options=options)
    results = run_augmentation("augmented-none", model, data, tmp_path, setup=setup, say=lambda _: None)
    studied = Studied(tmp_path, results, [])
    names = [[one["name"] for one in studied.stages(0, row)] for row in ("random", "bm25", "bm25-semantic")]
    assert names[0] == ["baseline", "vectors", "candidates", "pretrain", "cross-1", "cross-2", "scores", "silver", "bi",
                        "compare"]  # fmt: skip
    assert names[1] == ["candidates", "scores", "silver", "bi"]  # blend 0: no vectors, unless for neighbours
    assert names[2] == ["vectors", *names[1]]
    crossed = [tmp_path / "seed-0" / "random" / name for name in ("5-cross-1", "6-cross-2")]
    for folder in crossed:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert config["tasks"][0]["objective"] == "CrossScore"
    inputs = json.loads((tmp_path / "seed-0/bm25/2-scores/stage.json").read_text(encoding="utf-8"))["inputs"]
    keys = [CrossEncoder.load(folder / "model", device="cpu").fingerprint for folder in crossed]
    assert inputs["cross-encoders"] == keys  # both label, for every strategy
    test = load_dataset("klue-sts", "dev", data)
    assert (results["test"], results["rows"]) == (test.name, 18)
    alone = correlation(cosines(tmp_path / "seed-0/random/1-baseline/model", test), np.asarray(test.targets))
    assert results["seeds"]["0"][LABELLED]["spearman"] == pytest.approx(alone, abs=1e-6)


def test_models_are_compared_where_they_are_trained(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    class Loaded(BiEncoder):
        @classmethod
        def load(cls, *given: Any, **told: Any) -> BiEncoder:  # type: ignore[override]
            asked.append(told.get("device"))
            return BiEncoder.load(*given, **told)

    monkeypatch.setattr(augmentation, "BiEncoder", Loaded)
    setup = replace(SETUP, seeds=(0,), strategies=("random",), options={**QUICK, "blend": 0})
    run_augmentation("augmented-few", model, data, tmp_path, setup=setup, say=lambda _: None)
    assert asked
    assert set(asked) == {"cpu"}  # not the GPU that there may be, in its own precision


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    """The command as `python -m research ...` runs it; what it said."""
    stream = io.StringIO()
    args = command.build_parser().parse_args([*map(str, arguments)])
    args.run(args, Reporter(stream))
    return stream.getvalue()


def test_the_command(
    data: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = replace(augmentation.STUDIES["augmented-few"], gold_rows=12)
    monkeypatch.setitem(augmentation.STUDIES, "augmented-few", study)
    common = ("augmented-few", "--model", model, "--data", data, "--output", tmp_path / "run", "--device", "cpu")
    quick = ("--epochs", 1, "--cross-epochs", 1, "--batch-size", 8, "--learning-rate", 1e-3, "--top-k", 2)
    said = run(*common, *quick, "--seeds", 3, "--strategies", "BM25,random", "--blend", 0.3, "--cross-model", model)
    assert "seed 3, random: " in said
    shown = capsys.readouterr().out
    assert "| BM25 |" in shown
    assert "| random |" in shown
    for row in ("bm25", "random"):
        saved = json.loads((tmp_path / "run" / "seed-3" / row / "result.json").read_text(encoding="utf-8"))
        assert saved["silver"]["blend"] == 0.3
    with pytest.raises(InputError, match="--strategies must be of semantic"):
        run(*common, "--strategies", "tfidf")
    with pytest.raises(InputError, match="blend must be"):
        run(*common, "--seeds", 4, "--output", tmp_path / "other", "--blend", 1)
    assert not (tmp_path / "other").exists()
    with pytest.raises(SystemExit):
        run(*common, "--blend", "half")
    assert "expected auto or a number" in capsys.readouterr().err
