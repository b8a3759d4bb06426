"""The paper's experiments: their rows, what decides a trial, the file of results, the tables, one run of each."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

import munjang
from munjang.bi_encoder import BiEncoder
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from research import STUDIES, Results, Setup, kendall, read_material, run_study, tables, write_page
from research import __main__ as command
from research.material import columns_of
from research.results import Record
from research.studies import Row
from research.tables import Cell
from research.trial import Trial, describe, fresh_parts, key_of, measure, run_trial

ROOT = Path(__file__).resolve().parents[2]
THINGS = ["cat", "dog", "train", "river", "teacher", "garden", "song", "letter"]
DEEDS = ["sleeps", "waits", "shines", "falls", "turns", "grows"]
명사 = ["고양이", "기차", "선생님", "노래", "편지", "강물"]
동사 = ["잔다", "온다", "웃는다", "멈춘다", "자란다"]
QUESTION = 'For the statement, "{}", does the hypothesis "{}" represent entailment, contradiction, or neutrality?'


def _sentence(random: np.random.Generator, *, korean: bool = False) -> str:
    if korean:
        return f"{random.choice(명사)}가 {random.choice(명사)} 옆에서 {random.choice(동사)}"
    return f"the {random.choice(THINGS)} {random.choice(DEEDS)} by the {random.choice(THINGS)}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as the public sets are, with sentences of our own."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    labels = ("entailment", "neutral", "contradiction")

    def put(name: str, lines: list[str]) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def pairs(count: int, *, korean: bool = False) -> list[tuple[str, str, float]]:
        made = [_sentence(random, korean=korean) for _ in range(2 * count)]
        return [(made[2 * i], made[2 * i + 1], round(float(random.uniform(0, 5)), 2)) for i in range(count)]

    for name in ("validation", "test"):
        rows = [f"{a}\t{b}\t{i % 3}" for i, (a, b, _) in enumerate(pairs(12))]
        put(f"snli-en/{name}.tsv", ["premise\thypothesis\tlabel", *rows])
    for name in ("train", "validation"):
        quoted = [(QUESTION.format(a, b).replace('"', '""'), labels[i % 3]) for i, (a, b, _) in enumerate(pairs(12))]
        put(f"mnli-en/mnli_{name}.csv", ["Question,Answer,Origin", *(f'"{q}",{label},mnli' for q, label in quoted)])
    for name in ("train", "dev", "test"):
        put(f"stsb-en/stsb-en-{name}.csv", [f"{a},{b},{score}" for a, b, score in pairs(16)])
        rows = [f"g\tf\ty\t{i}\t{s}\t{a}\t{b}" for i, (a, b, s) in enumerate(pairs(12, korean=True))]
        put(f"korsts/sts-{name}.tsv", ["genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2", *rows])
    for year in range(2012, 2017):
        put(f"sts12-16/{year}/a.test.tsv", [f"{score}\t{a}\t{b}" for a, b, score in pairs(6)])
    korean = [{"premise": a, "hypothesis": b, "gold_label": labels[i % 3]}
              for i, (a, b, _) in enumerate(pairs(12, korean=True))]  # fmt: skip
    put("klue-nli/train.json", [json.dumps(korean, ensure_ascii=False)])
    put("klue-sts/dev.csv", ["sentence1,sentence2,label", *(f"{a},{b},{s}" for a, b, s in pairs(8, korean=True))])
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, minilm_path: Path) -> BiEncoder:
    sys.path.insert(0, str(ROOT))
    from benchmarks import models

    folder = models.random_bert(tmp_path_factory.mktemp("tiny"), minilm_path, models.Shape(1, 32, 2))
    return munjang.load(folder, device="cpu", dtype="float32", max_length=32)


QUICK = Setup(batch_size=16, sts_epochs=1, max_length=32)


# --- the rows --------------------------------------------------------------------------------------------------------


def test_the_papers_tables_are_whole() -> None:
    rows = STUDIES["sbert-ablation"].rows
    assert [row.name for row in rows if row.block == "pooling"] == ["mean", "max", "cls"]
    assert len({row.parts for row in rows if row.block == "concatenation"}) == 7
    best = max(rows, key=lambda row: row.paper["dev"])
    assert (best.pooling, best.parts) == ("mean", ("u", "v", "|u-v|"))
    stages = [(row.kind, row.stages) for row in STUDIES["sbert-transfer"].rows if row.stages]
    wanted = [("nli",), ("sts",), ("nli", "sts")]
    assert stages == [(kind, one) for kind in ("bi", "cross") for one in wanted]
    for study in STUDIES.values():
        assert all(set(row.paper) <= set(study.columns) for row in study.rows)


def test_columns_of_a_language() -> None:
    table1 = STUDIES["sbert-table1"].columns
    assert columns_of("english", table1) == table1
    assert columns_of("korean", table1) == ("test", "KLUE-STS dev")
    assert columns_of("korean", ("dev",)) == ("dev",)


def test_material(data: Path) -> None:
    english = read_material(data)
    assert len(english.train["nli"]) == 48
    assert english.train["nli"].labels == ("entailment", "neutral", "contradiction")
    assert {column: len(one) for column, one in english.measured.items()} == {"dev": 16, "test": 16}
    korean = read_material(data, language="korean", columns=("test", "STS12"), rows=5)
    assert len(korean.train["nli"]) == len(korean.train["sts"]) == 5
    assert set(korean.measured) == {"test", "KLUE-STS dev"}
    assert read_material(data, rows=5).train["nli"].row(0) == read_material(data, rows=5).train["nli"].row(0)
    with pytest.raises(DataError, match="SNLI"):
        read_material(data / "korsts")


# --- what decides a trial --------------------------------------------------------------------------------------------


def test_the_key_follows_what_decides_and_nothing_else(data: Path, model: BiEncoder) -> None:
    material = read_material(data)

    def key(row: Row | None = None, setup: Setup = QUICK, seed: int = 0) -> str:
        return key_of(describe(Trial(row or Row("", "x"), seed), model, material, setup))

    usual = key()
    assert key(Row("other block", "other name")) == usual
    assert key(setup=Setup(batch_size=16, sts_epochs=3, max_length=32, seeds=(4,))) == usual  # not trained on STS
    others = [
        key(Row("", "x", pooling="max")),
        key(Row("", "x", parts=("u", "v"))),
        key(Row("", "x", kind="cross")),
        key(Row("", "x", stages=("nli", "sts"))),
        key(seed=1),
        key(setup=Setup(batch_size=8, max_length=32)),
        key(setup=Setup(batch_size=16, max_length=32, nli_epochs=2)),
        key(setup=Setup(batch_size=16, max_length=32, random=True)),
        key(setup=Setup(batch_size=16, max_length=32, learning_rate=3e-5)),
    ]
    assert len({usual, *others}) == 1 + len(others)
    fewer = read_material(data, rows=8)
    assert key_of(describe(Trial(Row("", "x"), 0), model, fewer, QUICK)) != usual


@pytest.mark.parametrize("seeds", [(), (0, 0), (-1,)])
def test_seeds_that_cannot_be(seeds: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="seeds"):
        Setup(seeds=seeds)


def test_the_learning_rate_follows_the_size(model: BiEncoder) -> None:
    assert QUICK.training("nli", model, 0).learning_rate == 1e-4
    assert Setup(learning_rate=3e-5).training("sts", model, 0).learning_rate == 3e-5


def test_every_trial_begins_anew(model: BiEncoder) -> None:
    before = model.parts.body.embeddings.word.weight.clone()
    row = Row("", "x", pooling="max")
    copied = fresh_parts(Trial(row, 0), model, random=False)
    assert torch.equal(copied.body.embeddings.word.weight, before)
    assert copied.pooling.modes == ("max",)
    assert len(copied.heads) == 0
    first, again, other = (fresh_parts(Trial(row, seed), model, random=True).body for seed in (0, 0, 1))
    assert torch.equal(first.embeddings.word.weight, again.embeddings.word.weight)
    assert not torch.equal(first.embeddings.word.weight, other.embeddings.word.weight)
    assert not torch.equal(first.embeddings.word.weight, before)
    with torch.no_grad():
        copied.body.embeddings.word.weight.zero_()
    assert torch.equal(model.parts.body.embeddings.word.weight, before)


@pytest.mark.parametrize("row", [row for row in STUDIES["sbert-transfer"].rows if row.stages], ids=str)
def test_every_way_of_training_changes_the_body(row: Row, data: Path, model: BiEncoder) -> None:
    material = read_material(data)
    before = model.fingerprint
    result = run_trial(Trial(row, 0), model, material, QUICK)
    steps = {"nli": 3, "sts": 1}
    assert result["steps"] == sum(steps[stage] for stage in row.stages)
    assert set(result["scores"]) == {"dev", "test"}
    assert all(-1 <= score["spearman"] <= 1 for score in result["scores"].values())
    assert model.fingerprint == before
    assert len(result["losses"]) == len(row.stages)


def test_the_same_trial_gives_the_same_scores_and_another_seed_others(data: Path, model: BiEncoder) -> None:
    material, row = read_material(data), STUDIES["sbert-ablation"].rows[0]
    first, again, other = (run_trial(Trial(row, seed), model, material, QUICK)["scores"] for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_labels_are_measured_by_entailment(data: Path, model: BiEncoder) -> None:
    """Against scipy, with the probabilities that the model itself gives."""
    material = read_material(data)
    cross = munjang.CrossEncoder.from_body(model, ["neutral", "entailment", "contradiction"], device="cpu", seed=3)
    dev = material.measured["dev"]
    chances = cross.predict(list(zip(dev.columns["a"], dev.columns["b"], strict=True)))[:, 1]
    found = measure(cross, dev)
    assert found.spearman == pytest.approx(scipy.stats.spearmanr(dev.targets, chances)[0], abs=1e-6)


# --- a study ---------------------------------------------------------------------------------------------------------


def test_a_study_runs_once_and_goes_on(data: Path, model: BiEncoder, tmp_path: Path) -> None:
    said: list[str] = []
    setup = Setup(batch_size=16, sts_epochs=1, max_length=32, seeds=(0, 1))
    path = tmp_path / "deep" / "results.json"
    study = STUDIES["sbert-table1"]
    results = run_study(study, model, data, setup=setup, results=Results.read(path, missing_ok=True), say=said.append)
    assert len(results.records) == 6  # three rows, two seeds
    assert sum("training" in line and " of 6: " in line for line in said) == 6
    assert any("share a sentence with the training data" in line for line in said)
    text = path.read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert str(data) not in text

    said.clear()
    again = run_study(study, model, data, setup=setup, results=Results.read(path), say=said.append)
    assert again.records == results.records
    assert "6 trials, 6 of them are there already" in said[-1]
    # Another study shares two rows; they were measured on its set too, and are not run again.
    run_study(STUDIES["sbert-transfer"], model, data, setup=setup, results=again, say=said.append)
    assert any("14 trials, 4 of them are there already" in line for line in said)
    shown = tables(Results.read(path))
    assert shown.count("### Table") == 2
    assert "seeds 0, 1" in shown
    # One lost record is made again, to the same scores.
    key = next(iter(again.records))
    lost = again.records.pop(key)
    path.write_text(json.dumps({"format": 1, "records": again.records}))
    whole = run_study(study, model, data, setup=setup, results=Results.read(path), say=said.append)
    assert whole.records[key]["result"]["scores"] == lost["result"]["scores"]


def test_a_study_in_korean_from_random_weights(data: Path, model: BiEncoder) -> None:
    setup = Setup(language="korean", random=True, batch_size=8, max_length=32)
    results = run_study(STUDIES["sbert-ablation"], model, data, setup=setup, rows=8, say=lambda line: None)
    assert len(results.records) == 9  # mean with (u, v, |u-v|) stands in both parts of the table
    shown = tables(results)
    assert "Korean" in shown
    assert "random weights" in shown
    assert "| KorSTS dev | paper |" in shown
    assert "KLUE-NLI train, 8 rows" in shown


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with Results(path).locked(), pytest.raises(DataError), Results(path).locked():
        pass
    first, second = Results(path), Results(path)
    with first.locked():
        first.add("a", _record(1, 50.0))
    with second.locked():  # begins with what the first left
        second.add("b", _record(2, 50.0))
    assert set(Results.read(path).records) == {"a", "b"}


@pytest.mark.parametrize("content", ["", "[]", '{"format": 99, "records": {}}', '{"records": {}}'])
def test_a_file_of_something_else(content: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(DataError, match="expected results"):
        Results.read(path)
    with pytest.raises(DataError, match="no results"):
        Results.read(tmp_path / "none.json")


# --- tables ----------------------------------------------------------------------------------------------------------


def _record(seed: int, value: float, row: Row | None = None, **changes: object) -> Record:
    row = row or STUDIES["sbert-ablation"].rows[0]
    stage = {"stage": "nli", "data": "NLI", "rows": 9, "hash": "h", "epochs": 1.0, "learning rate": 1e-4}
    stages = [{**stage, "objective": "softmax"}]
    trial = {
        "kind": row.kind, "pooling": row.pooling, "parts": list(row.parts), "stages": stages,
        "seed": seed, "random": False, "model": "f", "model name": "m", "language": "english", "batch size": 64,
        "max length": 128, "precision": "bfloat16", **changes,
    }  # fmt: skip
    scores = {"dev": {"name": "STSb dev", "rows": 9, "data": "d", "spearman": value / 100, "pearson": 0.5}}
    result = {"scores": scores, "training seconds": 2.0, "steps": 3, "seconds": 3.0}
    machine = {"device": "CPU", "torch": "2"}
    return {"studies": ["sbert-ablation"], "trial": trial, "result": result, "machine": machine}


def test_means_deviations_and_order() -> None:
    results = Results()
    for row in STUDIES["sbert-ablation"].rows:
        for seed, apart in ((0, -1.0), (1, 0.0), (2, 1.0)):
            value = row.paper["dev"] - 10 + apart
            results.records[f"{row.pooling} {row.parts} {seed}"] = _record(seed, value, row)
    shown = tables(results)
    assert "| pooling: mean | 70.78 ± 1.00 | 80.78 |" in shown
    assert "| concatenation: (u, v, \\|u-v\\|, u*v) | 70.44 ± 1.00 | 80.44 |" in shown
    assert "pooling: Kendall's tau with the paper 1.00 (single seeds: 1.00 to 1.00)" in shown
    assert "concatenation: Kendall's tau with the paper 1.00" in shown
    for row in list(results.records)[:3]:
        results.records[row]["result"]["scores"]["dev"]["spearman"] = 0.1  # mean pooling becomes the worst
    assert "pooling: Kendall's tau with the paper -0.33" in tables(results)


def test_other_settings_make_another_table() -> None:
    results = Results()
    results.records = {"a": _record(0, 50.0), "b": _record(0, 60.0, **{"batch size": 16}), "c": _record(1, 52.0)}
    shown = tables(results)
    assert shown.count("### Table 6") == 2
    assert "51.00 ± 1.41" in shown
    assert "| 60.00 |" in shown
    stage = {"stage": "nli", "data": "NLI", "rows": 9, "hash": "h", "epochs": 2.0, "learning rate": 1e-4}
    results.records["d"] = _record(0, 70.0, stages=[stage])
    assert tables(results).count("### Table 6") == 3
    assert "51.00 ± 1.41" in tables(results)
    assert tables(Results()) == "There are no results yet."


def test_a_cell() -> None:
    assert str(Cell({})) == "-"
    assert str(Cell({0: 50.0})) == "50.00"
    assert str(Cell({0: 50.0, 3: 52.0})) == "51.00 ± 1.41"


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12))
def test_kendall_beside_scipy(pairs: list[tuple[int, int]]) -> None:
    a, b = zip(*pairs, strict=True)
    expected = scipy.stats.kendalltau(a, b).statistic
    assert kendall(a, b) == pytest.approx(expected, nan_ok=True)


def test_a_page_keeps_what_people_wrote(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "page.md"
    write_page(path, "first")
    path.write_text("Above.\n" + path.read_text() + "Below.\n")
    write_page(path, "second")
    text = path.read_text()
    assert "first" not in text
    assert text.startswith("Above.")
    assert text.endswith("Below.\n")
    assert "\nsecond\n" in text
    path.write_text("no markers")
    with pytest.raises(DataError, match="reproduction:begin"):
        write_page(path, "third")
    assert path.read_text() == "no markers"


def test_the_projects_page_has_the_markers(tmp_path: Path) -> None:
    copy = tmp_path / "reproduction.md"
    copy.write_text((ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8"), encoding="utf-8")
    write_page(copy, "new tables")
    assert "new tables" in copy.read_text(encoding="utf-8")


# --- the command -----------------------------------------------------------------------------------------------------


def _run(*arguments: str) -> str:
    """The command as `python -m research ...` runs it; what it said."""
    stream = io.StringIO()
    args = command.build_parser().parse_args([*arguments])
    args.run(args, Reporter(stream))
    return stream.getvalue()


def test_the_command(
    data: Path, model: BiEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    model.save(folder)
    monkeypatch.chdir(tmp_path)
    options = ["--model", str(folder), "--data", str(data), "--device", "cpu", "--output", "r.json", "--seeds", "0,1"]
    said = _run("sbert-table1", *options, "--batch-size", "16", "--max-length", "32", "--rows", "16")
    assert "6 of 6" in said
    assert "| mean, NLI |" in capsys.readouterr().out
    assert "written" in _run("page", "r.json", "--write", "page.md")
    assert "| mean, NLI |" in (tmp_path / "page.md").read_text(encoding="utf-8")
    _run("page", "r.json")
    assert "### Table 1" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        _run("sbert-table1", *options, "--seeds", "zero")


@pytest.mark.data
def test_the_public_data_is_what_the_page_says(data_path: Path) -> None:
    english = read_material(data_path, columns=STUDIES["sbert-table1"].columns)
    assert len(english.train["nli"]) == 9_842 + 9_824 + 20_000
    assert len(english.train["sts"]) == 5_749
    korean = read_material(data_path, language="korean")
    assert (len(korean.train["nli"]), len(korean.train["sts"])) == (24_998, 5_749)
