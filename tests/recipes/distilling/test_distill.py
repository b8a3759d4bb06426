"""Distillation from vectors: several languages, fewer layers, other widths, several teachers; what is checked first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from munjang import recipes
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError, LeakageWarning, ModelError
from munjang.evaluation import Scores
from munjang.nn.bodies import StaticEmbedding
from munjang.recipes import DistillOptions, Source, Teacher, distill
from munjang.recipes.distilling.options import Compared
from munjang.students import StudentPlan, VocabularyPlan, projection
from munjang.training import NegativeMining
from recipes.distilling.material import parallel, parallel_file, texts_file, translations, whole_run
from recipes.material import scored

Load = Callable[[], BiEncoder]


class Table:
    """A teacher that is no model of ours: a vector for every text, by its hash."""

    def __init__(self, dimension: int, *, fails: bool = False) -> None:
        self.dimension, self.fails = dimension, fails
        self.fingerprint = f"table of {dimension}"
        self.texts: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        assert not self.fails, "nothing may be encoded"
        self.texts += texts
        return np.stack(
            [
                np.random.default_rng(list(text.encode())).normal(size=self.dimension).astype(np.float32)
                for text in texts
            ]
        )


def quick(folder: Path, **more: object) -> DistillOptions:
    given: dict[str, object] = {"device": "cpu", "changes": {"max_steps": 2, "batch_size": 8}}
    return DistillOptions(folder, **given | more)  # type: ignore[arg-type]


def distance(model: BiEncoder, texts: list[str], wanted: np.ndarray) -> float:
    return float(((model.encode(texts) - wanted) ** 2).mean())


def test_a_bilingual_student_with_a_new_vocabulary(tiny: Path, load: Load, tmp_path: Path) -> None:
    file = parallel_file(tmp_path / "p.tsv")
    run = tmp_path / "run"
    plan = StudentPlan(layers=1, vocabulary=VocabularyPlan(size=200, min_count=1, embeddings="translations"))
    options = DistillOptions(
        run, plan=plan, changes={"epochs": 12, "batch_size": 8, "learning_rate": 2e-3}, weights={"news": 0.5},
        device="cpu", mlm_epochs=0.5, mlm_translations=True,
    )  # fmt: skip
    test = [parallel("held out", 50, 60), scored("sts", 16)]
    with pytest.warns(LeakageWarning):
        result = distill(None, tiny, file, test=test, options=options)
    pairs = translations()[:40]
    english, korean = [en for en, _ in pairs], [ko for _, ko in pairs]
    wanted = load().encode(english)
    before = BiEncoder.load(run / "2-student" / "model", device="cpu", dtype="float32")
    after = BiEncoder.load(run / "model", device="cpu", dtype="float32")
    assert distance(after, korean, wanted) < 0.5 * distance(before, korean, wanted)
    assert distance(after, english, wanted) < 0.5 * distance(before, korean, wanted)
    assert after.fingerprint == result.model.fingerprint
    assert [stage.name for stage in sorted(run.glob("[0-9]-*"))] == [
        "1-teacher", "2-student", "3-warm-up", "4-distill", "5-measure",
    ]  # fmt: skip
    facts = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert {one["name"]: one["rows an epoch"] for one in facts["sources"]} == {"talks": 20, "news": 10}
    assert set(result.training.losses) == {"talks", "news"}
    assert [one.part for one in result.compared] == ["test", "test"]
    for one in result.compared:
        assert one.before is not None
        assert one.teacher is not None
        assert {"accuracy_forward", "accuracy_backward"} <= set(one.after.values) or one.after.main == "spearman"
    assert any("distillation sees no label" in note for note in result.notes)


def test_the_page_and_the_card(tiny: Path, tmp_path: Path) -> None:
    result = whole_run(tmp_path / "run", tiny, parallel_file(tmp_path / "p.tsv"))
    page = (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    for words in ("Accuracy both ways", "words that the vocabulary knows", "hangul", "talks", "news", "5-measure",
                  "Rows in an epoch", "chosen", "from translations", "Learning rate"):  # fmt: skip
        assert words in page, words
    assert "src=" not in page
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "Distilled with Munjang" in card
    assert "| talks | pairs | 20 | 1 |" in card
    assert "munjang.load(" in card
    assert "teacher" in str(result)


def test_a_finished_run_does_nothing_and_a_changed_one_no_more_than_it_must(tiny: Path, tmp_path: Path) -> None:
    texts = texts_file(tmp_path / "s.txt", rows=20)
    run = tmp_path / "run"
    plan = StudentPlan(layers=1)
    first = distill(tiny, tiny, texts, dev=parallel("dev", 40, 50), options=quick(run, plan=plan))
    assert first.skipped == ()
    assert len(first.model.parts.body.config.steps) == 1
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    again = distill(tiny, tiny, texts, dev=parallel("dev", 40, 50), options=quick(run, plan=plan))
    assert again.skipped == ("teacher", "student", "distill", "measure")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == times
    assert again.model.fingerprint == first.model.fingerprint
    assert again.training == first.training
    assert again.facts == first.facts
    idle = quick(run, plan=plan, changes={"max_steps": 2, "batch_size": 8, "log_every": 1})
    assert distill(tiny, tiny, texts, dev=parallel("dev", 40, 50), options=idle).skipped == again.skipped
    other = distill(tiny, tiny, texts, dev=parallel("dev", 40, 51), options=quick(run, plan=plan))
    assert other.skipped == ("teacher", "student")
    whole = distill(tiny, tiny, texts, dev=parallel("dev", 40, 51), options=quick(run))
    assert whole.skipped == ("teacher",)
    weighted = quick(run, weights={"s.txt": 2.0})
    more = distill(tiny, tiny, texts, dev=parallel("dev", 40, 51), options=weighted)
    assert more.skipped == ("student",)
    assert more.facts["teacher"]["teachers"][0]["encoded"] == 0, "the vectors were there"


def test_widths_are_compared_before_anything_is_read_or_encoded(tiny: Path, load: Load, tmp_path: Path) -> None:
    for width, plan in ((48, None), (32, StudentPlan(dimension=16)), (48, StudentPlan(dimension=32))):
        teacher = Table(width, fails=True)
        student = 32 if plan is None else plan.dimension
        with pytest.raises(InputError, match=f"{width} values, the student of {student}: mse compares") as caught:
            distill(tiny, teacher, "no-such-file.tsv", options=quick(tmp_path / "run", plan=plan))
        assert f"--dimension {width}" in str(caught.value)
        assert "--objective relational" in str(caught.value)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="cosine and contrastive compare them"):
        distill(load(), Teacher(Table(5, fails=True), cosine=1, contrastive=0.2), "x", options=quick(tmp_path / "run"))


def test_other_widths_by_relations_and_by_a_projection(tiny: Path, tmp_path: Path) -> None:
    source = parallel("p", 0, 20)
    related = distill(tiny, Teacher(Table(5), relational=1), source, options=quick(tmp_path / "a"))
    assert related.model.dimension == 32  # type: ignore[union-attr]
    teacher = Table(12)
    plan = StudentPlan(dimension=12)
    result = distill(tiny, teacher, source, test=parallel("t", 50, 60), options=quick(tmp_path / "b", plan=plan))
    assert isinstance(result.model, BiEncoder)
    assert result.model.dimension == 12
    assert sorted(set(teacher.texts[:20])) == sorted(source.columns["anchor"]), "every text once"
    wanted = Table(12).encode(source.columns["anchor"])
    begun = BiEncoder.load(tmp_path / "b" / "2-student" / "model", device="cpu", dtype="float32")
    spread = float(wanted.var(axis=0).mean())
    assert distance(begun, source.columns["anchor"], wanted) < spread, "the projection was fitted to the teacher"
    (one,) = result.compared
    assert one.teacher is not None, "a teacher that is no model of ours is measured too"


@pytest.mark.usefixtures("exact")
def test_two_teachers_of_different_widths_and_half_precision(tiny: Path, load: Load, tmp_path: Path) -> None:
    second = Table(7)
    teachers = [Teacher(tiny, mse=1.0, contrastive=0.2), Teacher(second, relational=0.3)]
    result = distill(load(), teachers, parallel("p", 0, 20), options=quick(tmp_path / "run", storage="float16"))
    targets = np.load(tmp_path / "run" / "1-teacher" / "targets-1.npy")
    assert targets.shape == (20, 39)
    assert targets.dtype == np.float16
    anchors = translations()[:20]
    assert np.abs(targets[:, :32] - load().encode([en for en, _ in anchors])).max() < 2e-3
    assert np.abs(targets[:, 32:] - second.encode([en for en, _ in anchors])).max() < 5e-3
    (objective,) = result.facts["objectives"]
    assert [one["width"] for one in objective["with"]["teachers"]] == [32, 7]


def test_a_cache_serves_several_runs(tiny: Path, tmp_path: Path) -> None:
    teacher = Table(32)
    cache = tmp_path / "cache"
    distill(tiny, teacher, parallel("p", 0, 10), options=quick(tmp_path / "a", cache=cache))
    assert len(teacher.texts) == 10
    second = distill(tiny, teacher, parallel("p", 5, 15), options=quick(tmp_path / "b", cache=cache))
    assert len(teacher.texts) == 15
    assert second.facts["teacher"]["teachers"][0] | {"encoded": 5, "known": 5} == second.facts["teacher"]["teachers"][0]


def test_rows_of_evaluation_sets_go_where_that_is_asked_for(tiny: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.warns(LeakageWarning):
        result = distill(
            tiny, tiny, parallel("p", 0, 20), test=parallel("t", 15, 25), options=quick(run, leakage="remove")
        )
    assert result.facts["sources"][0]["rows"] == 15
    with pytest.raises(InputError, match="leakage='refuse'"):
        distill(tiny, tiny, parallel("p", 0, 20), test=parallel("t", 15, 25), options=quick(run, leakage="refuse"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"plan": StudentPlan(layers=3)}, r"layers must be 1\.\.2"),
        ({"plan": StudentPlan(vocabulary=VocabularyPlan(200, kind="unigram"))}, "old pieces can stay only where"),
        ({"plan": StudentPlan(vocabulary=VocabularyPlan(200, embeddings="translations"))}, "no source has any"),
        ({"objective": "kl"}, "is for a cross-encoder that teaches"),
        ({"changes": {"warm_up": 50, "max_steps": 2}}, "warm_up must be shorter"),
        ({"changes": {"learning_rate": 3}}, "learning_rate must be between 0 and 1"),
        ({"mlm_epochs": 1, "mlm_changes": {"batch_size": 0}}, "batch_size must be at least 1"),
        ({"mlm_epochs": 1, "mlm_changes": {"warm_up": 50, "max_steps": 2}}, "warm_up must be shorter"),
        ({"max_length": 65}, r"max_length must be at most 64 \(the student's positions\)"),
        ({"max_length": 2}, "max_length must be a whole number of at least 3"),
        ({"changes": {"metric": "nowhere/spearman"}}, "metric"),
        ({"changes": {"precision": "float16"}}, "precision float16 trains on GPUs only"),
        ({"negatives": NegativeMining()}, "negatives are for a cross-encoder that teaches"),
    ],
)
def test_what_cannot_be_done_is_said_before_a_text_is_encoded(
    given: dict, words: str, tiny: Path, tmp_path: Path
) -> None:
    plain = Examples("texts", "plain", {"text": ["one", "둘"]})
    with pytest.raises(InputError, match=words):
        distill(tiny, Table(32, fails=True), plain, options=quick(tmp_path / "run", **given))


def test_a_body_that_cannot_be_made_over_shows_before_a_text_is_encoded(load: Load, tmp_path: Path) -> None:
    model = load()
    table = StaticEmbedding(torch.randn(model.parts.body.config.vocab_size, 32))
    static = BiEncoder(replace(model.parts, body=table), device="cpu")
    for plan in (StudentPlan(layers=1), StudentPlan(vocabulary=VocabularyPlan(200))):
        with pytest.raises(ModelError, match="needs a body of one of the families"):
            distill(static, Table(32, fails=True), parallel("p"), options=quick(tmp_path / "run", plan=plan))


def test_a_seed_and_a_weight(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed must be at least 0, got -1"):
        distill(tiny, Table(32, fails=True), Source(parallel("p"), 0.5), options=quick(tmp_path / "run", seed=-1))
    with pytest.raises(InputError, match="mlm_translations is part of the warm-up"):
        quick(tmp_path / "run", mlm_translations=True)


def test_a_projection_is_fitted_on_the_students_device(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where other steps of the plan come first."""
    seen: list[object] = []
    real = projection.project

    def project(*given: object, **more: object) -> object:
        seen.append(more["device"])
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(projection, "project", project)
    plan = StudentPlan(layers=1, dimension=12)
    distill(tiny, Table(12), parallel("p", 0, 20), options=quick(tmp_path / "run", plan=plan))
    assert seen == [torch.device("cpu")]


def test_teachers_and_sources_that_do_not_go_together(tiny: Path, tmp_path: Path) -> None:
    options = quick(tmp_path / "run")
    with pytest.raises(InputError, match="teaches over texts and translations, but sts is scored"):
        distill(tiny, tiny, scored("sts", 8), options=options)
    with pytest.raises(InputError, match="has no body that a student could begin as"):
        distill(None, Table(32), parallel("p"), options=options)
    with pytest.raises(InputError, match="a teacher must be a model"):
        distill(tiny, 7, parallel("p"), options=options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one teacher"):
        distill(tiny, [], parallel("p"), options=options)
    for name in ("mse", "weight", "temperature"):
        with pytest.raises(InputError, match="teacher must be"):
            Teacher(tiny, **{name: -1.0})
    for given in ({"leakage": "no"}, {"storage": "int8"}, {"changes": {"rate": 1}}, {"mlm_epochs": -1}):
        with pytest.raises(InputError, match="must be"):
            DistillOptions("x", **given)  # type: ignore[arg-type]


def test_what_is_kept_of_the_teacher() -> None:
    def scores(value: float) -> Scores:
        return Scores("s", {"spearman": value}, "spearman", 10)

    assert Compared("test", scores(0.8), None, (scores(0.5), None, scores(1.0))).kept == pytest.approx(0.8)
    assert Compared("test", scores(0.8), None, (scores(0.1),)).kept is None, "the teacher does not know it"
    assert Compared("test", scores(0.8)).kept is None
    assert Compared("test", scores(0.8), None, (scores(-0.2),)).kept is None


def test_the_names_are_there() -> None:
    for name in ("distill", "DistillOptions", "DistillResult", "Source", "Teacher", "VectorTeacher"):
        assert name in recipes.__all__
        assert getattr(recipes, name) is not None
    assert callable(recipes.distill)
    assert isinstance(Table(3), recipes.VectorTeacher)
    assert Source("x").weight == 1.0
