"""Tables that read well, results that a rerun goes on from, models that are asked only what they can answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.sample import PAIRS, CrossStub, Stub, labelled, scored, topics
from munjang.data import Examples
from munjang.errors import DataError, InputError
from munjang.evaluation import (
    ClusteringEvaluator,
    Column,
    LabelEvaluator,
    PairClassificationEvaluator,
    Results,
    Scores,
    StsEvaluator,
    Trial,
    markdown,
    score_model,
)
from munjang.evaluation.results import content_of, identity_of


def stub(**options: object) -> Stub:
    return Stub({text: (len(text) % 7, 1.0) for a, b, _ in PAIRS for text in (a, b)}, **options)  # type: ignore[arg-type]


def test_a_table_of_two_models() -> None:
    one = Scores(
        "KorSTS test", {"spearman": 0.80123, "x": 1.0}, "spearman", 9, {"spearman": (0.78, 0.82)}, ("cut", "capped")
    )
    two = Scores("a|b", {"accuracy": 0.5}, "accuracy", 9)
    first = Column("ours", {"KorSTS test": one, "a|b": two})
    second = Column(
        "theirs", {"KorSTS test": replace(one, values={"spearman": 0.7}, intervals={})}, {"a|b": "no vectors"}
    )
    table = markdown([first, second], absent={"STS12 test": "there is no folder"})
    assert table.splitlines() == [
        "| Set | Metric | ours | theirs |",
        "| --- | --- | ---: | ---: |",
        "| KorSTS test | spearman | 80.12 ± 2.00 [1] | 70.00 [1] |",
        "| a\\|b | accuracy | 50.00 | - [2] |",
        "",
        "1. KorSTS test: cut; capped",
        "2. a|b: no vectors",
        "",
        "Skipped:",
        "",
        "- STS12 test: there is no folder",
    ]


def test_the_mean_is_over_the_sets_that_all_have() -> None:
    def scores(name: str, value: float) -> Scores:
        return Scores(name, {"m": value}, "m", 1)

    first = Column("a", {name: scores(name, value) for name, value in (("x", 0.2), ("y", 0.4), ("z", 0.9))})
    second = Column("b", {name: scores(name, value) for name, value in (("x", 0.6), ("y", 0.8))})
    assert markdown([first, second]).splitlines()[-1] == "| **Mean of 2** |  | **30.00** | **70.00** |"
    with pytest.raises(InputError, match="at least one model"):
        markdown([])


def test_scores_survive_json_and_bad_ones_are_said() -> None:
    scores = StsEvaluator(scored(), bootstrap=20)(stub(cut=1))  # type: ignore[arg-type]
    assert Scores.from_dict(json.loads(json.dumps(scores.to_dict()))) == scores
    assert str(scores).startswith("our STS: spearman ")
    with pytest.raises(InputError, match=r"Scores\.to_dict"):
        Scores.from_dict({"name": "x"})
    with pytest.raises(InputError, match="x: main must be one of a, got 'b'"):
        Scores("x", {"a": 1.0}, "b", 1)


def trials() -> list[Trial]:
    return [
        Trial(StsEvaluator(scored("first")), "sts", ("capped: 12 of 99 rows",)),
        Trial(StsEvaluator(scored("second"), bootstrap=20), "sts"),
    ]


def test_a_rerun_computes_only_what_is_missing(tmp_path: Path) -> None:
    path, said = tmp_path / "results.json", []
    model = stub()
    first = score_model("m", model, trials()[:1], results=Results(path))  # type: ignore[arg-type]
    assert first.scores["first"].notes == ("capped: 12 of 99 rows",)
    model.calls.clear()
    again = score_model("m", model, trials(), results=Results(path), tell=said.append)  # type: ignore[arg-type]
    assert "known from an earlier run" in said[0]
    assert again.scores["first"] == first.scores["first"]
    assert len(said) == 2
    calls = len(model.calls)
    score_model("m", model, trials(), results=Results(path))  # type: ignore[arg-type]
    assert len(model.calls) == calls
    other = stub(fingerprint="another")
    score_model("m2", other, trials(), results=Results(path))  # type: ignore[arg-type]
    assert other.calls
    assert {model["model"] for model in json.loads(path.read_text(encoding="utf-8"))["models"].values()} == {"m", "m2"}
    changed = [Trial(StsEvaluator(scored("first").take(range(11))), "sts")]
    model.calls.clear()
    score_model("m", model, changed, results=Results(path))  # type: ignore[arg-type]
    assert model.calls


def test_a_kill_loses_one_set_at_most(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    class Killed(Stub):
        def encode_report(self, texts: object, *, prompt_name: str | None = None) -> object:  # type: ignore[override]
            if self.calls:
                raise KeyboardInterrupt
            return super().encode_report(texts, prompt_name=prompt_name)  # type: ignore[arg-type]

    examples = replace(topics("later"), columns={"text": [f"new {i}" for i in range(24)]})
    both = [
        Trial(ClusteringEvaluator(topics(), runs=1), "clustering"),
        Trial(ClusteringEvaluator(examples, runs=1), "clustering"),
    ]
    with pytest.raises(KeyboardInterrupt):
        score_model("m", Killed(), both, results=Results(path))  # type: ignore[arg-type]
    found = Results(path).known(identity_of("m", Killed()), "our topics", content_of(both[0]))  # type: ignore[arg-type]
    assert found is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9, "models": {}}', '{"format": 1, "models": {"a": {}}}'])
def test_a_file_that_is_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(DataError, match="does not hold results"):
        Results(path)
    assert path.read_text() == text


def test_models_are_asked_only_what_they_can_answer() -> None:
    several = [
        Trial(StsEvaluator(scored()), "sts"),
        Trial(LabelEvaluator(labelled("labels")), "labels"),
        Trial(PairClassificationEvaluator(labelled()), "pairs"),
        Trial(ClusteringEvaluator(topics()), "clustering"),
    ]
    bi = score_model("bi", stub(), several)  # type: ignore[arg-type]
    assert set(bi.scores) == {"our STS", "our pairs", "our topics"}
    assert bi.skipped == {"labels": "a bi-encoder gives no labels"}
    one = score_model("one", CrossStub(), several)  # type: ignore[arg-type]
    assert set(one.scores) == {"our STS", "our pairs"}
    assert one.skipped["our topics"] == "needs vectors, and a cross-encoder makes none"
    assert "are not the model's" in one.skipped["labels"]
    answers = {pair[:2]: [0.4, 0.6] for pair in PAIRS}
    two = score_model("two", CrossStub(answers, labels=("different", "same")), several)  # type: ignore[arg-type]
    assert set(two.scores) == {"labels"}
    assert two.skipped["our STS"] == "needs one score per pair, the model has 2"


def test_the_order_of_the_trials_is_that_of_the_table() -> None:
    several = [
        Trial(LabelEvaluator(labelled("labels")), "labels"),
        Trial(StsEvaluator(scored()), "sts"),
    ]
    lines = markdown([score_model("bi", stub(), several)]).splitlines()  # type: ignore[arg-type]
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| labels", "| our STS"]


def test_a_set_that_fails_is_named_and_the_others_go_on() -> None:
    flat = Stub({text: (1.0, 1.0) for a, b, _ in PAIRS for text in (a, b)})
    both = [Trial(StsEvaluator(scored()), "sts"), Trial(PairClassificationEvaluator(labelled()), "pairs")]
    column = score_model("flat", flat, both)  # type: ignore[arg-type]
    assert set(column.scores) == {"our pairs"}
    assert column.skipped["our STS"].startswith("failed: constant scores")


@given(st.lists(st.text(max_size=4), min_size=2, max_size=4), st.lists(st.text(max_size=4), min_size=2, max_size=4))
def test_other_texts_other_content(one: list[str], other: list[str]) -> None:
    def content(texts: list[str]) -> str:
        columns = {"a": texts, "b": texts}
        return content_of(Examples("n", "scored", columns, np.linspace(0, 1, len(texts)).astype(np.float32)))

    def usable(texts: list[str]) -> bool:
        return all(text.strip() for text in texts)

    if usable(one) and usable(other):
        assert (content(one) == content(other)) == (one == other)


def test_settings_are_content_too_and_origin_is_not() -> None:
    assert content_of(StsEvaluator(scored())) != content_of(StsEvaluator(scored(), similarity="dot"))
    renamed = replace(scored(), reading=replace(scored().reading, source="elsewhere"))
    assert content_of(StsEvaluator(scored())) == content_of(StsEvaluator(renamed))
    with pytest.raises(InputError, match="holds a function"):
        content_of(LabelEvaluator(labelled(), classifier=lambda u, v: u))
