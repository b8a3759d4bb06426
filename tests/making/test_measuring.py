"""Measuring: which sets, resumable row by row, the second stage, and what stands in the training text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from making.sets import public_sets
from models.ko_en_0_1.measuring import (
    CHOSEN_BY,
    STS_MEAN,
    Measuring,
    Reranker,
    Subject,
    build_trials,
    few_shots,
    measure,
    smaller_corpus,
    two_stage_trials,
)
from models.ko_en_0_1.overlap import UNSEEN, find_overlaps, read_training, unseen_trials
from models.ko_en_0_1.results import read_results
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, load_dataset, load_retrieval
from munjang.errors import DataError, InputError
from munjang.evaluation import ProbeEvaluator, RetrievalEvaluator, StsMeanEvaluator
from munjang.types import Threshold
from recipes.material import sentences


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_sets(tmp_path_factory.mktemp("sets"))


def test_selection_sets_are_not_measured_and_the_rest_is_named(data: Path) -> None:
    found = build_trials(Measuring(data, intervals=False))
    names = [trial.name for trial in found.trials]
    assert not set(names) & set(CHOSEN_BY)
    assert not any(trial.kind == "labels" for trial in found.trials)
    assert {"KorSTS test", "KLUE-STS dev", "STSb test", STS_MEAN, "ParaKQC mining", "Question pair test"} <= set(names)
    assert {"KorQuAD dev", "NFCorpus test", "YNAT probe", "YNAT clustering", "Banking77 10-shot probe"} <= set(names)
    assert len(set(names)) == len(names)
    assert "NSMC probe" in found.absent
    assert not set(found.absent) & {*CHOSEN_BY, "KLUE-NLI dev"}
    korquad = next(trial for trial in found.trials if trial.name == "KorQuAD dev")
    assert korquad.main == "recall@1"


def test_parakqc_is_measured_on_groups_that_did_not_calibrate(data: Path) -> None:
    trial = next(trial for trial in build_trials(Measuring(data)).trials if trial.name == "ParaKQC mining")
    texts = trial.evaluator.examples.columns["text"]  # type: ignore[attr-defined]
    assert texts == load_dataset("parakqc", "test", data).columns["text"][60:]
    assert trial.notes[0] == "14 groups that thresholds were not calibrated on"
    quick = next(t for t in build_trials(Measuring(data, quick=30)).trials if t.name == "ParaKQC mining")
    assert len(quick.evaluator.examples) == 30  # type: ignore[attr-defined]
    assert quick.notes == ("3 groups that thresholds were not calibrated on", "capped: 30 of 140 texts")


def test_few_shots_are_as_many_of_every_class_and_always_the_same() -> None:
    examples = Examples("t", "classified", {"text": sentences(30, 0)}, np.arange(30) % 3, ("a", "b", "c"))
    found = few_shots(examples, 4)
    assert found.targets is not None
    assert np.bincount(found.targets).tolist() == [4, 4, 4]
    assert found.columns["text"] == few_shots(examples, 4).columns["text"]
    assert found.columns["text"] != few_shots(examples, 4, seed=1).columns["text"]
    with pytest.raises(InputError, match="shots must be 1 or more"):
        few_shots(examples, 0)


def test_a_quick_corpus_keeps_what_is_relevant(data: Path) -> None:
    whole = load_retrieval("nfcorpus", "test", data)
    assert smaller_corpus(whole, None) == (whole, ())
    small, notes = smaller_corpus(whole, 2)
    assert len(small.corpus) < len(whole.corpus)
    assert notes == (f"capped: {len(small.corpus)} of 16 documents",)
    assert all(any(grade == 2 for grade in grades.values()) for grades in small.relevant.values())


def test_the_second_stage_may_have_fewer_queries(data: Path, load: Callable[[], BiEncoder]) -> None:
    cross = CrossEncoder.from_body(load(), 1, device="cpu", dtype="float32")
    for queries, quick, wanted in ((2, None, 2), (2, 1, 1), (1, 2, 1), (None, None, None)):
        measuring = Measuring(data, quick, reranker=Reranker("tiny", cross, ("tiny",), 10, queries))
        for trial in two_stage_trials(measuring):
            retrieval = trial.evaluator.retrieval  # type: ignore[attr-defined]
            assert wanted is None or len(retrieval.queries) == wanted
            assert any("queries" in note for note in trial.notes) == (wanted is not None), trial.notes
            assert quick is not None or not any("documents" in note for note in trial.notes)


def _measure(data: Path, output: Path, load: Callable[[], BiEncoder], said: list[str], **changes: object) -> None:
    model = load().with_thresholds({"cluster": Threshold(0.7, "cluster", "of one community", {"sets": []})})
    cross = CrossEncoder.from_body(model, 1, device="cpu", dtype="float32")
    reranker = Reranker("tiny-reranker", cross, ("tiny",), 10)
    subjects = [
        Subject("tiny", lambda: model, ("korsts:train", "stsb:train")),
        Subject("tiny-reranker", lambda: cross),
    ]
    measure(subjects, Measuring(data, reranker=reranker, **changes), output, say=said.append)  # type: ignore[arg-type]


def test_everything_is_measured_kept_and_not_measured_again(
    data: Path, tmp_path: Path, load: Callable[[], BiEncoder]
) -> None:
    output, said = tmp_path / "deep" / "results.json", []
    _measure(data, output, load, said)
    text = output.read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert str(data) not in text
    found = read_results(output)
    tiny, cross = found["tiny"], found["tiny-reranker"]
    assert {"KorQuAD dev two-stage", "NFCorpus test two-stage", STS_MEAN} <= set(tiny.scores)
    assert tiny.scores["NFCorpus test two-stage"].main == "ndcg@10"
    assert {"recall@1", "recall@10", "mrr@10"} <= set(tiny.scores["KorQuAD dev"].intervals)
    assert tiny.scores[STS_MEAN].intervals
    assert "KorQuAD dev two-stage" not in cross.scores
    assert "needs vectors" in cross.skipped["KorQuAD dev"]
    assert cross.is_cross
    assert tiny.about["thresholds"]["cluster"]["value"] == 0.7
    assert {"python", "torch", "munjang"} <= set(tiny.about["versions"])
    assert tiny.about["machine"]["device"] == "CPU"

    said.clear()
    _measure(data, output, load, said)
    assert sum("known from an earlier run" in line for line in said) == len(tiny.scores) + len(cross.scores)
    assert read_results(output)["tiny"].scores == tiny.scores

    # A run that was killed after some rows goes on where it stopped.
    saved = json.loads(text)
    for model in saved["models"].values():
        model["sets"] = dict(list(model["sets"].items())[:3])
    output.write_text(json.dumps(saved), encoding="utf-8")
    said.clear()
    _measure(data, output, load, said)
    assert sum("known from an earlier run" in line for line in said) == 6
    again = read_results(output)["tiny"].scores
    assert list(again) == list(tiny.scores)
    for name, wanted in tiny.scores.items():
        assert (again[name].rows, again[name].notes) == (wanted.rows, wanted.notes), name
        # Which texts are computed together differs from time to time, and with it the last bits of their vectors.
        assert again[name].values == pytest.approx(wanted.values, abs=0.02), name


def test_rows_that_were_trained_on_are_counted_and_left_out(
    data: Path, tmp_path: Path, load: Callable[[], BiEncoder]
) -> None:
    output = tmp_path / "results.json"
    _measure(data, output, load, [], only=("KorSTS test", "STS13 test", STS_MEAN, "STSb test"))
    tiny = read_results(output)["tiny"]
    overlap = tiny.about["overlap"]
    test = load_dataset("korsts", "test", data)
    seen = {name: set(load_dataset(name, "train", data).texts()) for name in ("korsts", "stsb")}
    rows = list(zip(test.columns["a"], test.columns["b"], strict=True))
    shared = {name: [i for i, row in enumerate(rows) if set(row) & texts] for name, texts in seen.items()}
    every = sorted({*shared["korsts"], *shared["stsb"]})
    assert overlap["KorSTS test"]["exact"] == overlap["KorSTS test"]["normalised"] == len(every)
    assert overlap["KorSTS test"]["by"] == {"KorSTS train": len(shared["korsts"]), "STSb train": len(shared["stsb"])}
    assert overlap["KorSTS test"]["whole rows"] >= 3
    kept = [i for i in range(len(rows)) if i not in every]
    model = load()
    a, b = (model.encode([test.columns[side][i] for i in kept], normalize=True) for side in "ab")
    wanted = spearmanr((a * b).sum(axis=1), np.asarray(test.targets)[kept]).statistic
    assert tiny.scores["KorSTS test" + UNSEEN].value == pytest.approx(wanted, abs=1e-5)
    assert tiny.scores["KorSTS test" + UNSEEN].rows == len(kept)
    assert overlap[STS_MEAN]["rows"] == 62
    assert tiny.scores[STS_MEAN + UNSEEN].rows == 62 - overlap[STS_MEAN]["normalised"]


# --- overlap, set by set ---------------------------------------------------------------------------------------------


def _seen(*texts: str, name: str = "seen") -> Examples:
    return Examples(name, "plain", {"text": list(texts)})


def test_a_query_counts_where_it_or_its_passage_was_seen(data: Path, load: Callable[[], BiEncoder]) -> None:
    trials = [
        t for t in build_trials(Measuring(data, intervals=False)).trials if t.name in ("KorQuAD dev", "YNAT probe")
    ]
    korquad = load_retrieval("korquad", "dev", data)
    queries, passages = list(korquad.queries.values()), list(korquad.corpus.values())
    title = load_dataset("ynat", "test", data).columns["text"][4]
    training = [
        _seen(queries[1].upper() + " !!"),
        _seen(passages[3], queries[1], title, "아무 상관 없는 글", name="two"),
    ]
    found = find_overlaps(trials, iter(training))
    assert found["KorQuAD dev"].normalised.tolist() == [1, 3]
    assert found["KorQuAD dev"].exact.tolist() == [1, 3]
    assert found["KorQuAD dev"].by == {"seen": 1, "two": 2}
    assert found["YNAT probe"].normalised.tolist() == [4]
    fewer = {trial.name: trial for trial in unseen_trials(trials, found)}
    search, probe = fewer["KorQuAD dev" + UNSEEN].evaluator, fewer["YNAT probe" + UNSEEN].evaluator
    assert isinstance(search, RetrievalEvaluator)
    assert len(search.retrieval.queries) == len(queries) - 2
    assert queries[1] not in search.retrieval.queries.values()
    assert len(search.retrieval.corpus) == len(passages)
    assert isinstance(probe, ProbeEvaluator)
    assert probe.test is not None
    assert title not in probe.test.columns["text"]
    assert len(probe.train) == 24  # what the probe learns from stays
    assert fewer["YNAT probe" + UNSEEN](load()).rows == 23


def test_the_mean_leaves_rows_out_of_each_set(data: Path) -> None:
    trials = [trial for trial in build_trials(Measuring(data, intervals=False)).trials if trial.name == STS_MEAN]
    texts = [load_dataset(f"sts{year}", "test", data).columns["a"][0] for year in (12, 15)]
    found = find_overlaps(trials, iter([_seen(*texts)]))
    (trial,) = unseen_trials(trials, found)
    assert isinstance(trial.evaluator, StsMeanEvaluator)
    assert sum(map(len, trial.evaluator.sets)) == 62 - len(found[STS_MEAN].normalised)
    assert not set(texts) & {text for one in trial.evaluator.sets for text in one.texts()}


def test_nothing_shared_is_nothing_left_out(data: Path) -> None:
    trials = list(build_trials(Measuring(data, intervals=False)).trials)
    found = find_overlaps(trials, iter([_seen("전혀 다른 글입니다", "something else entirely")]))
    assert unseen_trials(trials, found) == []
    everything = [_seen(*load_dataset("klue-sts", "dev", data).texts())]
    klue = [trial for trial in trials if trial.name == "KLUE-STS dev"]
    assert unseen_trials(klue, find_overlaps(klue, iter(everything))) == []  # no row remains


def test_training_sets_by_name_file_and_making(data: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("비가 온다\n\nIt rains\n", encoding="utf-8")
    making = tmp_path / "making.json"
    making.write_text(json.dumps({"data": [{"set": "korsts:train"}, {"set": str(tmp_path / "texts.txt")}]}))
    found = list(read_training([str(making), "korsts:train"], data))
    assert [(one.name, len(one)) for one in found] == [("KorSTS train", 30), ("texts.txt", 2)]
    for name, words in (("korsts:dev2", "korsts:SPLIT"), ("nothing.txt", "expected SET:SPLIT")):
        with pytest.raises(InputError, match=words):
            read_training([name], data)
    making.write_text("{}")
    with pytest.raises(DataError, match=r"making\.json whose data names its sets"):
        read_training([str(making)], data)


@pytest.mark.data
def test_the_overlaps_that_are_known(data_path: Path) -> None:
    """Counted before, by other means: 170 pairs of KorSTS test and 250 of STSb test stand in their training splits."""
    names = ("KorSTS test", "STSb test")
    trials = build_trials(Measuring(data_path, intervals=False, only=names)).trials
    found = find_overlaps(trials, read_training(["korsts:train", "stsb:train"], data_path))
    assert {name: len(one.normalised) for name, one in found.items()} == {"KorSTS test": 170, "STSb test": 250}


def test_bad_wishes_are_said_before_anything_is_loaded(data: Path, tmp_path: Path) -> None:
    def never() -> BiEncoder:
        raise AssertionError

    with pytest.raises(InputError, match="a name of its own"):
        measure([Subject("a", never), Subject("a", never)], Measuring(data), tmp_path / "r.json")
    with pytest.raises(InputError, match="expected SET:SPLIT"):
        measure([Subject("a", never, ("korst:train",))], Measuring(data), tmp_path / "r.json")
    (tmp_path / "r.json").write_text("[]")
    with pytest.raises(DataError, match="does not hold results"):
        measure([Subject("a", never)], Measuring(data), tmp_path / "r.json")
    for content in ("[]", '{"format": 2, "models": {}}', '{"format": 1, "models": {}}'):
        (tmp_path / "r.json").write_text(content)
        with pytest.raises(DataError, match="ko_en_0_1 models"):
            read_results(tmp_path / "r.json")
    with pytest.raises(DataError, match="there are no results here"):
        read_results(tmp_path / "none.json")
