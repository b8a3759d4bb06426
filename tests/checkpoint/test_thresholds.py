"""munjang.json: written and read back in every form, dropped where the weights or the vectors change, damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import munjang
from munjang import BiEncoder, CrossEncoder, Threshold
from munjang.checkpoint import read_bi, read_cross, read_thresholds, write_bi
from munjang.data import Examples
from munjang.errors import InputError, ModelError, ModelWarning
from munjang.exporting import export
from munjang.students import StudentPlan, make_student
from munjang.training import Task, TrainingSettings, objectives, train

MEASURED = {"sets": {"제 질문": {"rows": 300, "F1": 0.91}}, "best": [0.7, 0.8]}
PARAPHRASE = Threshold(0.78, "paraphrase", "뜻이 같은 문장; sentences that mean the same", MEASURED)
CLUSTER = Threshold(0.6, "cluster", "one subject")


@pytest.fixture
def bi(bodies: Any) -> BiEncoder:
    return BiEncoder(read_bi(bodies("bert"), pooling="mean"), device="cpu", dtype="float32")


@pytest.fixture
def cross(bodies: Any) -> CrossEncoder:
    return CrossEncoder(read_cross(bodies("bert"), labels=1), device="cpu", dtype="float32")


def test_a_copy_with_thresholds_shares_the_weights(bi: BiEncoder, texts: list[str]) -> None:
    made = bi.with_thresholds({"paraphrase": PARAPHRASE})
    assert made.thresholds == {"paraphrase": PARAPHRASE}
    assert not bi.thresholds
    assert made.parts.body is bi.parts.body
    assert made.fingerprint == bi.fingerprint
    made.max_length = 7
    assert bi.max_length != 7
    np.testing.assert_array_equal(bi.with_thresholds({}).encode(texts[:1]), bi.encode(texts[:1]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_both_kinds_keep_them_in_every_dtype(dtype: Any, bi: BiEncoder, cross: CrossEncoder, tmp_path: Path) -> None:
    both = {"paraphrase": PARAPHRASE, "cluster": CLUSTER}
    bi.with_thresholds(both).save(tmp_path / "bi", dtype=dtype)
    found = munjang.load(tmp_path / "bi", device="cpu")
    assert found.thresholds == both
    assert found.describe()["thresholds"] == {
        "paraphrase": "0.78: 뜻이 같은 문장; sentences that mean the same",
        "cluster": "0.6: one subject",
    }
    answer = {"answer": Threshold(0.4, "answer", "the first hit answers the question", {"precision": 0.9})}
    cross.with_thresholds(answer).save(tmp_path / "cross", dtype=dtype)
    scorer = munjang.load_reranker(tmp_path / "cross", device="cpu")
    assert scorer.thresholds == answer
    assert "answer" in (tmp_path / "cross" / "README.md").read_text(encoding="utf-8")
    # A model without them leaves no file behind, not even in the place of one that had it.
    bi.save(tmp_path / "bi", dtype=dtype)
    assert not (tmp_path / "bi" / "munjang.json").exists()


def test_what_is_no_threshold(bi: BiEncoder, tmp_path: Path) -> None:
    for wrong, says in [
        ({"cluster": PARAPHRASE}, "under its task, but that of 'paraphrase' is under 'cluster'"),
        ({"cluster": Threshold(float("nan"), "cluster", "")}, "must be a finite number, got nan"),
        ({"cluster": Threshold(True, "cluster", "")}, "must be a finite number, got True"),
        ({"cluster": Threshold("0.5", "cluster", "")}, "must be a finite number, got '0.5'"),  # type: ignore[arg-type]
        ({"cluster": Threshold(0.5, "cluster", None)}, "must be a text, got None"),  # type: ignore[arg-type]
        ({"cluster": 0.5}, "got float for 'cluster'"),
        ({"cluster": Threshold(0.5, "cluster", "", {"f1": np.float32(0.5)})}, "fit for JSON"),
        ({"cluster": Threshold(0.5, "cluster", "", {"f1": float("inf")})}, "fit for JSON"),
    ]:
        with pytest.raises(InputError, match=says):
            bi.with_thresholds(wrong)  # type: ignore[arg-type]
    bi.parts.thresholds = {"cluster": PARAPHRASE}
    with pytest.raises(InputError, match="under its task"):
        write_bi(bi.parts, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "munjang.json is not valid JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "'format', got None"),
        ('{"format": "1"}', "whole number as its 'format', got '1'"),
        ('{"format": 2, "thresholds": {}}', "has format 2, which a newer munjang wrote.*pip install --upgrade"),
        ('{"format": 1, "thresholds": [1]}', "must map tasks to thresholds"),
        ('{"format": 1, "thresholds": {"cluster": 0.5}}', "'cluster' needs a number 'value'.*delete munjang.json"),
        ('{"format": 1, "thresholds": {"cluster": {"value": true}}}', "needs a number 'value'"),
        ('{"format": 1, "thresholds": {"cluster": {"value": NaN}}}', "must be a finite number, got nan"),
        ('{"format": 1, "thresholds": {"cluster": {"value": 1, "measured": []}}}', "an object 'measured'"),
        (
            f'{{"format": 1, "thresholds": {{"cluster": {{"value": 1{"0" * 400}}}}}}}',
            "int too large.*delete munjang.json",
        ),
    ],
)
def test_damaged_files_are_named(content: str, says: str, bi: BiEncoder, tmp_path: Path) -> None:
    bi.save(tmp_path / "m")
    (tmp_path / "m" / "munjang.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=says) as raised:
        munjang.load(tmp_path / "m")
    assert str(tmp_path / "m" / "munjang.json") in str(raised.value)


def test_the_file(bi: BiEncoder, tmp_path: Path) -> None:
    bi.with_thresholds({"paraphrase": PARAPHRASE}).save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "munjang.json").read_text(encoding="utf-8")) == {
        "format": 1,
        "thresholds": {"paraphrase": {"value": 0.78, "meaning": PARAPHRASE.meaning, "measured": MEASURED}},
    }
    assert read_thresholds(tmp_path / "m") == {"paraphrase": PARAPHRASE}
    assert read_thresholds(tmp_path) == {}


def test_the_weight_of_the_first_stage(cross: CrossEncoder, tmp_path: Path, texts: list[str]) -> None:
    assert cross.first_stage_weight == 0.0
    cross.save(tmp_path / "without")
    assert not (tmp_path / "without" / "munjang.json").exists()
    cross.parts.first_stage_weight = 40.0
    cross.save(tmp_path / "m", dtype="int8")
    assert json.loads((tmp_path / "m" / "munjang.json").read_text()) == {
        "format": 1,
        "thresholds": {},
        "first_stage_weight": 40.0,
    }
    found = munjang.load_reranker(tmp_path / "m", device="cpu")
    assert found.first_stage_weight == found.with_thresholds({}).first_stage_weight == 40.0
    with pytest.warns(ModelWarning, match="the head is new"):
        assert munjang.load_cross_encoder(tmp_path / "m", labels=3, device="cpu").first_stage_weight == 0.0
    pairs = [(a[:40], b[:40]) for a in texts for b in texts]
    logits = found.predict(pairs, raw=True)
    found.calibrate(pairs, (logits > np.median(logits)).astype(int))  # other logits
    assert found.first_stage_weight == 0.0


@pytest.mark.parametrize("weight", ["true", "-1", "NaN", '"40"', "1e400"])
def test_a_wrong_weight_is_named(weight: str, cross: CrossEncoder, tmp_path: Path) -> None:
    cross.save(tmp_path / "m")
    content = f'{{"format": 1, "thresholds": {{}}, "first_stage_weight": {weight}}}'
    (tmp_path / "m" / "munjang.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"munjang\.json: first_stage_weight must be a finite number of at least 0"):
        munjang.load_reranker(tmp_path / "m", device="cpu")


def test_another_pooling_drops_them(bi: BiEncoder, tmp_path: Path) -> None:
    bi.with_thresholds({"cluster": CLUSTER}).save(tmp_path / "m")
    assert read_bi(tmp_path / "m", pooling="mean").thresholds
    assert not read_bi(tmp_path / "m", pooling="cls").thresholds


def test_another_width_has_none(bi: BiEncoder, tmp_path: Path) -> None:
    made = bi.with_thresholds({"cluster": CLUSTER})
    made.truncate_dim = made.full_dimension  # the same vectors
    assert made.thresholds
    made.truncate_dim = 8
    assert not made.thresholds
    assert not made.describe()["thresholds"]
    made.save(tmp_path / "short")
    assert not (tmp_path / "short" / "munjang.json").exists()
    export(made, tmp_path / "exported")
    assert not (tmp_path / "exported" / "munjang.json").exists()
    made.truncate_dim = None
    assert made.thresholds
    bi.truncate_dim = 8
    short = bi.with_thresholds({"cluster": CLUSTER})  # measured at that width
    assert short.thresholds
    short.save(tmp_path / "measured")
    assert munjang.load(tmp_path / "measured", device="cpu").thresholds == {"cluster": CLUSTER}
    short.truncate_dim = None
    assert not short.thresholds


def test_another_head_and_calibration_drop_them(
    bi: BiEncoder, cross: CrossEncoder, tmp_path: Path, texts: list[str]
) -> None:
    limit = {"answer": Threshold(0.4, "answer", "")}
    made = cross.with_thresholds(limit)
    made.save(tmp_path / "m")
    assert not read_cross(tmp_path / "m", labels=3).thresholds
    assert not CrossEncoder.from_body(bi.with_thresholds({"cluster": CLUSTER}), 1, device="cpu").thresholds
    pairs = [(a, b) for a in texts for b in texts]
    logits = made.predict_report(pairs, raw=True).scores
    made.calibrate([(a[:40], b[:40]) for a, b in pairs], (logits > np.median(logits)).astype(int))
    assert not made.thresholds


def test_training_drops_them(bi: BiEncoder, cross: CrossEncoder, tmp_path: Path, texts: list[str]) -> None:
    scores = np.linspace(0, 1, 8, dtype=np.float32)
    columns = {"a": [text[:30] for text in (texts * 2)[:8]], "b": [text[:30] for text in (texts * 2)[1:9]]}
    examples = Examples("few", "scored", columns, scores)
    settings = TrainingSettings(max_steps=1, batch_size=4)
    trained = bi.with_thresholds({"cluster": CLUSTER})
    train(trained, [Task(examples, objectives.CosineMse())], settings, folder=tmp_path / "run")
    assert not trained.thresholds
    assert not (tmp_path / "run" / "model" / "munjang.json").exists()
    scorer = cross.with_thresholds({"answer": Threshold(0.4, "answer", "")})
    scorer.parts.first_stage_weight = 40.0
    train(scorer, [Task(examples, objectives.CrossScore())], settings)
    assert not scorer.thresholds
    assert scorer.first_stage_weight == 0.0


def test_a_student_has_none(bi: BiEncoder) -> None:
    student = make_student(bi.with_thresholds({"cluster": CLUSTER}), StudentPlan(layers=1))
    assert not student.parts.thresholds
    assert bi.with_thresholds({"cluster": CLUSTER}).thresholds
