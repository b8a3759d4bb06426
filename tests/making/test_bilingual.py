"""A bilingual model beside the second teacher: what it teaches, what its labels count for, what hangs on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from making.conftest import Whole, alone
from making.results import results_file
from making.whole_run import (
    BILINGUAL,
    BILINGUAL_BEST,
    BILINGUAL_LABELLED,
    Second,
    bi_plan,
    easy_negatives,
    make,
    options,
    other_model,
    rerank,
    skipped,
    with_more,
)
from models.ko_en_0_1 import reranker
from models.ko_en_0_1.cards import card
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.making import BiMade
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.results import read_results
from models.ko_en_0_1.silver import Labeller
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError, ModelNotFoundError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]
STAGES = with_more(BILINGUAL, BILINGUAL_LABELLED, BILINGUAL_BEST)


@pytest.fixture(scope="module")
def run(whole: Whole, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The making with a bilingual model: here the English teacher itself."""
    folder = tmp_path_factory.mktemp("bilingual") / "run"
    with alone():
        return Whole(folder, whole.data, whole.tiny, make(folder, whole.tiny, whole.data, bilingual=whole.tiny))


def array_of(made: BiMade, stage: str, name: str) -> np.ndarray:
    found: np.ndarray = np.load(made.stages[stage].folder / f"{name}.npy")
    return found


def units(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_its_stages_stand_where_labels_are_made(run: Whole) -> None:
    assert tuple(run.made.stages) == STAGES


def test_who_is_near_whom_is_said_by_both_teachers(run: Whole) -> None:
    material = read_material(run.data, bi_plan())
    model = BiEncoder.load(run.tiny, device="cpu", max_length=48)
    plain = units(model.encode([f"query: {text}" for text in material.plain]))
    others = units(plain - plain.mean(axis=0))  # so few sentences that all of them give the middle
    first = units(Second().encode(material.plain))
    wanted = first @ first.T / 3 + others @ others.T * 2 / 3
    found = array_of(run.made, "second", "plain").astype(np.float32)
    assert np.allclose(found @ found.T, wanted, atol=5e-3)
    pairs, scores = (array_of(run.made, "second", name) for name in ("pairs", "scores"))
    assert np.allclose(scores, np.clip(wanted[pairs[:, 0], pairs[:, 1]], 0, 1), atol=5e-3)


def test_it_guides_the_first_embeddings_too(whole: Whole, run: Whole) -> None:
    tables = [
        BiEncoder.load(one.made.stages["student"].folder / "model", device="cpu").parts.body.embeddings.word.weight
        for one in (whole, run)
    ]
    assert tables[0].shape == tables[1].shape
    assert not torch.equal(*tables)


@pytest.mark.parametrize(
    ("stage", "by"), [("bilingual-labels", "bilingual-sts"), ("bilingual-best-labels", "bilingual-best")]
)
def test_it_labels_every_pair(run: Whole, stage: str, by: str) -> None:
    made, pool = run.made, read_material(run.data, bi_plan()).pool()
    pairs = array_of(made, "pairs", "pairs")
    model = CrossEncoder.load(made.stages[by].folder / "model", device="cpu", max_length=48)
    told = model.predict([(pool[a], pool[b]) for a, b in pairs.tolist()])
    assert np.allclose(array_of(made, stage, "scores"), told, atol=1e-4)


def test_its_labels_count_for_two(run: Whole) -> None:
    made, material = run.made, read_material(run.data, bi_plan())
    before, first = array_of(made, "pairs", "labels"), array_of(made, "first", "labels")
    assert np.allclose(first, 0.99 * array_of(made, "bilingual-labels", "scores") + 0.01 * before, atol=1e-6)
    pool, pairs = material.pool(), array_of(made, "pairs", "pairs")
    read = [[(pool[a], pool[b]) for a, b in pairs.tolist()], [(pool[b], pool[a]) for a, b in pairs.tolist()]]
    said = [
        CrossEncoder.load(made.stages[f"labeller-{number}-sts"].folder / "model", device="cpu", max_length=48).predict(
            asked
        )
        for number, asked in enumerate(read, start=1)
    ]
    multi = BiEncoder.load(made.stages["multi"].folder / "model", device="cpu", max_length=48)
    near = Labeller(multi, [], material.scored()).scale(array_of(made, "pairs", "cosines"))
    mean = (said[0] + said[1] + 2 * array_of(made, "bilingual-best-labels", "scores")) / 4
    assert np.allclose(array_of(made, "labels", "labels"), 0.99 * mean + 0.01 * near, atol=1e-4)


def test_labellers_begin_as_it_made_small(run: Whole) -> None:
    stages = run.made.stages
    whole = BiEncoder.load(run.tiny, device="cpu")
    begun, taught = (
        BiEncoder.load(stages[name].folder / "model", device="cpu") for name in ("compact-student", "compact")
    )
    assert stages["compact-student"].facts["layers"] == [1]
    for model in (begun, taught):
        assert len(model.parts.body.layers) == 1
        assert model.tokenizer.backend.get_vocab_size() <= 120 < whole.tokenizer.backend.get_vocab_size()
    for name, tensor in whole.parts.body.layers[1].state_dict().items():
        assert torch.equal(begun.parts.body.layers[0].state_dict()[name], tensor)
    rows, old = (model.parts.body.embeddings.word.weight for model in (begun, whole))
    places = whole.tokenizer.backend.get_vocab()
    kept = {piece: place for piece, place in begun.tokenizer.backend.get_vocab().items() if piece in places}
    assert len(kept) > 60
    for piece, place in kept.items():
        assert torch.equal(rows[place], old[places[piece]])
    for number in (1, 2):
        inputs = json.loads((stages[f"labeller-{number}-nli"].folder / "stage.json").read_text("utf-8"))["inputs"]
        assert inputs["body"] == stages["compact"].digest


def test_made_small_it_learns_to_be_as_it_was(run: Whole) -> None:
    texts = read_material(run.data, bi_plan()).plain
    whole, *small = (
        BiEncoder.load(folder, device="cpu", max_length=48).encode(texts, normalize=True)
        for folder in (run.tiny, *(run.made.stages[name].folder / "model" for name in ("compact-student", "compact")))
    )
    before, after = (float(np.einsum("nd,nd->n", whole, one).mean()) for one in small)
    assert before < after < 1


def test_without_layers_it_is_not_made_small(run: Whole, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    made = make(tmp_path / "run", run.tiny, run.data, bilingual=run.tiny, plan=bi_plan(compact_layers=()))
    assert tuple(made.stages) == tuple(name for name in STAGES if not name.startswith("compact"))
    inputs = json.loads((made.stages["labeller-1-nli"].folder / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["body"] == made.stages["settled"].digest


def test_layers_that_it_has_not_are_named_before_anything_is_made(whole: Whole, tmp_path: Path) -> None:
    given = {"second": Second(fails=True), "bilingual": whole.tiny, "plan": bi_plan(compact_layers=(0, 40))}
    with pytest.raises(InputError, match="layers must be some of 0"):
        make(tmp_path / "run", whole.tiny, whole.data, **given)
    assert not [path for path in (tmp_path / "run").iterdir() if path.is_dir()]


def test_the_reranker_begins_as_it_and_says_so(run: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker, "find_negatives", easy_negatives)
    made = rerank(tmp_path / "run", options(run.folder, run.tiny, run.data, bilingual=run.tiny), mains=1)
    begun = run.made.stages["compact"]
    small = BiEncoder.load(begun.folder / "model", device="cpu")
    found = CrossEncoder.load(made.folder, device="cpu")
    assert len(found.parts.body.layers) == 1
    assert found.tokenizer.backend.get_vocab() == small.tokenizer.backend.get_vocab()
    uses = {one["name"]: one["use"] for one in read_making(tmp_path / "run/making.json").rows("teachers")}
    assert uses["multilingual-e5-small"]["en"].startswith("body, made small; ")
    assert uses["all-MiniLM-L6-v2"] == {"en": "English teacher", "ko": "영어 교사"}
    uses = {one["name"]: one["use"] for one in read_making(run.folder / "making.json").rows("teachers")}
    assert uses["all-MiniLM-L6-v2"]["en"] == "body and English teacher", "of the bi-encoder it still is"


def test_without_steps_it_has_no_second_round(run: Whole, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    plan = bi_plan()
    none = bi_plan(bilingual_silver=type(plan.bilingual_silver)(0, 1e-3))
    made = make(tmp_path / "run", run.tiny, run.data, bilingual=run.tiny, plan=none)
    assert tuple(made.stages) == tuple(name for name in STAGES if name not in BILINGUAL_BEST)
    inputs = json.loads((made.stages["labels"].folder / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["larger"] == [made.stages["bilingual-labels"].digest]


def test_it_is_told_of(run: Whole, tmp_path: Path) -> None:
    making = read_making(run.folder / "making.json")
    assert [one["name"] for one in making.rows("teachers")][-1] == "multilingual-e5-small"
    assert making.content["command"].endswith("--teacher MINILM --bilingual E5 --output runs/ko-en")
    text = card(making, read_results(results_file(tmp_path / "results.json")), "en")
    assert "multilingual-e5-small" in text
    assert "labels pairs" in text


def test_the_same_call_again_does_nothing(run: Whole) -> None:
    again = make(run.folder, run.tiny, run.data, bilingual=run.tiny)
    assert tuple(skipped(again)) == STAGES


def test_another_one_repeats_everything_but_what_does_not_know_it(run: Whole, tmp_path: Path) -> None:
    other = other_model(run.tiny, tmp_path / "other")
    shutil.copytree(run.folder, tmp_path / "run")
    made = make(tmp_path / "run", run.tiny, run.data, bilingual=other)
    assert skipped(made) == []


def test_one_that_is_missing_is_named_before_anything_is_made(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        make(tmp_path / "run", whole.tiny, whole.data, second=Second(fails=True), bilingual=tmp_path / "nowhere")
    assert not [path for path in (tmp_path / "run").iterdir() if path.is_dir()]
