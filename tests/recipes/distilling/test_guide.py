"""A guide in distillation: it makes the first rows, is part of what decides the student, and is checked first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from munjang.bi_encoder import BiEncoder
from munjang.errors import InputError, ModelNotFoundError
from munjang.recipes import DistillOptions, DistillResult, distill
from munjang.students import StudentPlan, VocabularyPlan
from recipes.distilling.material import parallel, parallel_file, reranker, texts_file

GUIDED = StudentPlan(layers=1, vocabulary=VocabularyPlan(size=200, min_count=1, embeddings="guide"))


class Guide:
    """No model of ours: a vector for every text, by its letters."""

    def __init__(self, seed: int = 0, *, fails: bool = False) -> None:
        self.dimension, self.seed, self.fails = 6, seed, fails
        self.fingerprint = f"guide {seed}"
        self.texts: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        assert not self.fails, "nothing may be encoded"
        self.texts += texts
        return np.stack([np.random.default_rng([self.seed, *text.encode()]).normal(size=6) for text in texts])


def guided(folder: Path, **more: object) -> DistillOptions:
    given: dict[str, object] = {"plan": GUIDED, "device": "cpu", "changes": {"max_steps": 2, "batch_size": 8}}
    return DistillOptions(folder, **given | more)  # type: ignore[arg-type]


def first_table(run: Path) -> np.ndarray:
    model = BiEncoder.load(run / "2-student" / "model", device="cpu", dtype="float32")
    return model.parts.body.embeddings.word.weight.detach().numpy()


def test_a_guide_decides_the_student(tiny: Path, tmp_path: Path) -> None:
    file = parallel_file(tmp_path / "p.tsv")
    run = tmp_path / "run"

    def once(guide: Guide) -> DistillResult:
        return distill(tiny, tiny, file, test=parallel("test", 50, 60), options=guided(run, guide=guide))

    guide = Guide()
    result = once(guide)
    assert "학교에" not in guide.texts
    assert {"기타를", "책을"} & set(guide.texts)
    facts = json.loads((run / "result.json").read_text(encoding="utf-8"))
    told = facts["student"]["report"]
    assert told["guide"]["fingerprint"] == "guide 0"
    assert told["vocabulary"]["embeddings"]["from translations and the guide"] > 10
    assert told["vocabulary"]["guide"]["ridge"] > 0
    page = (run / "index.html").read_text(encoding="utf-8")
    assert "from translations and the guide" in page
    assert "held-out words" in page
    before = first_table(run)
    again = once(Guide(fails=True))  # the same fingerprint: nothing is made anew
    assert "student" in again.skipped
    assert again.model.fingerprint == result.model.fingerprint
    other = once(Guide(1))
    assert "student" not in other.skipped
    assert not np.allclose(before, first_table(run))


def test_without_translations_the_guide_alone(tiny: Path, tmp_path: Path) -> None:
    texts = texts_file(tmp_path / "t.txt")
    plan = StudentPlan(vocabulary=VocabularyPlan(size=150, min_count=1, add="any", embeddings="guide"))
    result = distill(tiny, tiny, texts, options=guided(tmp_path / "run", plan=plan, guide=tiny))
    report = result.facts["student"]["report"]
    rows = report["vocabulary"]["embeddings"]
    assert rows["from the guide"] == report["vocabulary"]["after"] - rows["kept"] > 0
    assert rows["from translations and the guide"] == rows["from pieces"] == rows["random"] == 0
    assert report["guide"]["name"] == tiny.name


def test_one_without_the_other_is_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs guide \(--guide\)"):
        guided(tmp_path)
    for plan in (None, StudentPlan(layers=1), StudentPlan(vocabulary=VocabularyPlan(200))):
        with pytest.raises(InputError, match=r"--vocabulary N --embeddings guide"):
            guided(tmp_path, plan=plan, guide=Guide())
    with pytest.raises(InputError, match=r"guide must be a bi-encoder.*got int"):
        guided(tmp_path, guide=3)


def test_guides_that_cannot_serve(tiny: Path, tmp_path: Path) -> None:
    cross = reranker(tiny, tmp_path)
    source = parallel("p", 0, 20)
    with pytest.raises(InputError, match="reranker is a cross-encoder, which makes no vectors"):
        distill(tiny, Guide(fails=True), source, options=guided(tmp_path / "run", guide=cross))
    with pytest.raises(ModelNotFoundError):
        distill(tiny, tiny, source, options=guided(tmp_path / "run", guide=tmp_path / "nothing"))
    assert not (tmp_path / "run").exists()
