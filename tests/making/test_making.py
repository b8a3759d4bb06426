"""`munjang-ko-en` made on small data: every stage, what each leaves, what a second call repeats, what is refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import munjang
from making.conftest import Whole
from making.results import results_file
from making.whole_data import PLANTED, data_folder, planted, put
from making.whole_run import BI_STAGES, Second, bi_plan, make, skipped
from models.ko_en_0_1 import teaching
from models.ko_en_0_1.calibrating import calibrate_bi
from models.ko_en_0_1.cards import card
from models.ko_en_0_1.definitions import definition_texts
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.foreign_words import foreign_texts, whole_words
from models.ko_en_0_1.labelling import Labelling
from models.ko_en_0_1.making import BiMade
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.results import read_results
from models.ko_en_0_1.settings import BiPlan, Part, Schedule
from models.ko_en_0_1.silver import known_pairs, read_silver
from models.ko_en_0_1.teaching import question_pairs, read_passages
from munjang.data import DATASETS, Examples
from munjang.data.overlaps import normalise
from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError, ModelError, ModelNotFoundError
from munjang.training.run import data_hash
from munjang.vectors import normalize

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]
SILVER = ("labeller-1-silver", "labeller-1-sts", "labeller-2-silver", "labeller-2-sts")
LAST = ("final", "final-2", "mean", "merged", "finish")
LATE = ("multi", "pairs", *SILVER, "labels", *LAST)
FROM_DISTIL = BI_STAGES[BI_STAGES.index("distil") :]


def config_of(made: BiMade, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.stages[stage].folder / "config.json").read_text("utf-8"))
    return found


def inputs_of(made: BiMade, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.stages[stage].folder / "stage.json").read_text("utf-8"))["inputs"]
    return found


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_every_stage_ran_in_its_order(whole: Whole) -> None:
    assert tuple(whole.made.stages) == BI_STAGES
    assert not skipped(whole.made)
    folders = sorted(path.name for path in whole.folder.iterdir() if path.is_dir())
    assert folders == sorted(f"{place}-{name}" for place, name in enumerate(BI_STAGES, start=1))


def test_the_model_that_comes_out(whole: Whole) -> None:
    assert whole.made.folder == whole.folder / "21-finish/model"
    assert (whole.made.folder / "model.int8.safetensors").is_file()
    assert not (whole.made.folder / "model.safetensors").exists()
    model = munjang.load(whole.made.folder, device="cpu", dtype="float32")
    assert set(model.thresholds) == {"paraphrase", "cluster"}
    assert (model.dimension, model.max_length) == (32, 64)
    texts = ["비가 온다.", "a man reads a book at home."]
    exact = BiEncoder.load(whole.folder / "21-finish/float32", device="cpu", dtype="float32")
    assert exact.thresholds == model.thresholds
    assert np.allclose(model.encode(texts, normalize=True), exact.encode(texts, normalize=True), atol=0.05)
    final = BiEncoder.load(whole.made.stages["merged"].folder / "model", device="cpu", dtype="float32")
    assert np.allclose(final.encode(texts), exact.encode(texts), atol=1e-6)


def test_what_is_remembered_of_it(whole: Whole) -> None:
    selection = whole.made.facts["selection"]
    assert set(selection) == {"float32", "int8"}
    for scores in selection.values():
        assert list(scores) == ["KorSTS dev", "KLUE-STS slice", "STSb dev"]
        assert all(-1 <= value <= 1 for value in scores.values())
    assert set(whole.made.stages["labels"].facts["agreement"]) == set(selection["int8"])
    student = whole.made.stages["student"].facts["report"]["vocabulary"]
    assert student["after"] <= 260
    assert student["embeddings"]["from translations and the guide"] > 10


def test_stages_train_on_their_parts(whole: Whole) -> None:
    plan = bi_plan()
    for stage, parts in (
        ("tuned", plan.tuned_parts),
        ("distil", plan.distil_parts),
        ("multi", plan.multi_parts),
        ("final", plan.final_parts),
    ):
        tasks = {task["name"]: task for task in config_of(whole.made, stage)["tasks"]}
        shown = {"nli-en": "nli", "STSb train": "sts"} if stage == "tuned" else {}
        tasks = {shown.get(name, name): task for name, task in tasks.items()}
        told = {name: Part(task["share"], task["batch_size"], task["weight"]) for name, task in tasks.items()}
        assert told == parts, stage
    named = {task["name"]: task["objective"] for task in config_of(whole.made, "final")["tasks"]}
    assert named["silver"] == named["sts"] == "CoSent"
    assert named["translations"] == named["long"] == named["words"] == "Distil"
    assert named["passages"] == named["nli-ko"] == "Ranking"
    assert inputs_of(whole.made, "final")["begun"] == whole.made.stages["settled"].digest, "not from `multi`"
    assert [config_of(whole.made, stage)["settings"]["seed"] for stage in ("final", *SILVER[::2])] == [0, 1, 2]
    assert config_of(whole.made, "final-2")["settings"]["seed"] == 100


def test_the_english_teacher_is_chosen_by_english_alone(whole: Whole) -> None:
    def chosen_by(stage: str) -> set[str]:
        return set(whole.made.stages[stage].facts["last"]["evaluation"]["selection"]) - {"mean"}

    assert chosen_by("tuned") == {"STSb dev"}
    assert chosen_by("final") == {"KorSTS dev", "KLUE-STS slice", "STSb dev"}


def test_the_second_teachers_vectors_and_its_neighbours(whole: Whole) -> None:
    material = read_material(whole.data, bi_plan())
    english, korean = material.translations.columns.values()
    folder = whole.made.stages["second"].folder
    second = Second()
    both = normalize(second.encode(english)), normalize(second.encode(korean))
    found = np.load(folder / "translations.npy")
    assert found.dtype == np.float16
    assert np.allclose(found, normalize(both[0] + both[1]), atol=2e-3)
    plain = normalize(second.encode(material.plain))
    assert np.allclose(np.load(folder / "plain.npy"), plain, atol=2e-3)
    pairs, scores = np.load(folder / "pairs.npy"), np.load(folder / "scores.npy")
    assert np.allclose(scores, np.clip((plain[pairs[:, 0]] * plain[pairs[:, 1]]).sum(1), 0, 1), atol=1e-5)
    assert (pairs[:, 0] < pairs[:, 1]).all()


def test_targets_are_the_tuned_teachers_vectors(whole: Whole) -> None:
    material = read_material(whole.data, bi_plan())
    folder = whole.made.stages["targets"].folder
    tuned = BiEncoder.load(whole.made.stages["tuned"].folder / "model", device="cpu", max_length=64)
    long = [english for english, _ in read_passages(whole.made.stages["passages"]).twins()]
    every = (("translations", material.translations.columns["anchor"]), ("long", long), ("rare", rare_texts(whole)))
    for name, texts in every:
        found = np.load(folder / f"{name}.npy")
        assert found.dtype == np.float16
        assert np.allclose(found, tuned.encode(texts, normalize=True), atol=2e-3), name
        assert whole.made.stages["targets"].facts[name] == len(texts)


# --- rare words ------------------------------------------------------------------------------------------------------


def rare_texts(whole: Whole) -> list[str]:
    """What a run puts together: of English sentences and the teacher's own words, and of a dictionary."""
    material = read_material(whole.data, bi_plan())
    frames = [*material.translations.columns["anchor"], *material.nli["en"].texts()]
    words = whole_words(BiEncoder.load(whole.tiny, device="cpu").tokenizer)
    foreign = foreign_texts(frames, words, count=40, seed=0)
    return [*foreign, *definition_texts(material.dictionary, count=5, seed=0)]


def test_rare_words_are_learned_from_the_tuned_teacher(whole: Whole) -> None:
    texts = rare_texts(whole)
    assert len(texts) == 45
    assert "slowly, at a snail's pace" in texts[-1], "the last are the dictionary's"
    vectors = np.load(whole.made.stages["targets"].folder / "rare.npy")
    wanted = data_hash(Examples("words", "taught", {"text": texts}, vectors))
    for stage in ("distil", "multi", "final"):
        words = next(task for task in config_of(whole.made, stage)["tasks"] if task["name"] == "words")
        assert (words["rows"], words["data"], words["objective"]) == (45, wanted, "Distil"), stage


def test_the_teacher_is_to_think_of_rare_words_as_before(whole: Whole) -> None:
    """What is kept while it is tuned: its own vectors, before, of passages and of texts with rare words."""
    before = BiEncoder.load(whole.tiny, device="cpu", max_length=64)
    passages = [english for english, _ in read_passages(whole.made.stages["passages"]).twins()]
    texts = [*passages, *rare_texts(whole)]
    kept = next(task for task in config_of(whole.made, "tuned")["tasks"] if task["name"] == "kept")
    wanted = Examples("kept", "taught", {"text": texts}, before.encode(texts, normalize=True))
    assert (kept["rows"], kept["data"]) == (len(texts), data_hash(wanted))


def test_the_dictionary_has_a_say_in_the_vocabulary(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def noted(model: BiEncoder, plan: object, *, texts: list[str], **_: object) -> None:
        seen.extend(texts)
        raise ModelError("that is enough")

    monkeypatch.setattr(teaching, "make_student", noted)
    with pytest.raises(ModelError, match="that is enough"):
        make(tmp_path / "run", whole.tiny, whole.data, second=Second(fails=True))
    material = read_material(whole.data, bi_plan())
    english, korean = material.translations.columns.values()
    wanted = [english, korean, material.plain, material.nli["en"].texts(), material.dictionary.texts()]
    assert Counter(seen) == Counter(text for some in wanted for text in some)
    assert not {normalise(planted(*one)) for one in PLANTED} & set(map(normalise, seen))


def test_another_dictionary_repeats_all_that_learns_words(whole: Whole, tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data")
    path = data / "wordnet/data.adv"
    put(path, [line.replace("without speed", "not fast") for line in path.read_text("utf-8").splitlines()])
    shutil.copytree(whole.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, data)
    assert set(skipped(made)) >= {"second", "passages"}
    assert set(skipped(made)).isdisjoint(["student", "tuned", "targets", "distil", "multi", "final"])


# --- passages --------------------------------------------------------------------------------------------------------


def sentences_of(passage: str) -> list[str]:
    return [part.strip() for part in passage.replace(". ", ".\n").split("\n")]


def test_passages_hold_every_sentence_once(whole: Whole) -> None:
    """Sentences that stand in the translations and in plain text too: in one passage all the same."""
    material = read_material(whole.data, bi_plan())
    stage = whole.made.stages["passages"]
    rest, held = read_passages(stage), read_passages(stage, "held")
    assert set(material.plain) & set(material.translations.columns["positive"]), "the test must be able to fail"
    texts = {*material.translations.texts(), *material.plain, *material.nli["en"].columns["a"]}
    passages = [*rest.passages, *held.passages]
    counts = Counter(part for passage in passages for part in sentences_of(passage) if part in texts)
    assert len(counts) > 100
    assert max(counts.values()) == 1
    assert 110 <= len(rest.queries) + len(held.queries) <= 130
    for some in (rest, held):
        assert {some.groups[place] for place in some.answers} == set(some.groups), "no passage without a question"
        english = [passage for passage in some.passages if passage.isascii()]
        assert 0 < len(english) < len(some.passages)
    pairs = question_pairs(rest)
    assert pairs.columns["positive"][-1] == rest.passages[rest.answers[-1]]
    assert pairs.columns["anchor"] == rest.queries


def test_twins_say_the_same_in_two_languages(whole: Whole) -> None:
    material = read_material(whole.data, bi_plan())
    korean_of = dict(zip(*material.translations.columns.values(), strict=True))
    twins = read_passages(whole.made.stages["passages"]).twins()
    assert len(twins) > 5
    for english, korean in twins:
        assert [korean_of[part] for part in sentences_of(english)] == sentences_of(korean)


def test_held_questions_stand_apart(whole: Whole) -> None:
    stage = whole.made.stages["passages"]
    rest, held = read_passages(stage), read_passages(stage, "held")
    assert 30 <= len(held.queries) <= 40
    assert (stage.facts["questions"], stage.facts["held"]) == (len(rest.queries), len(held.queries))
    assert not set(held.passages) & set(rest.passages)
    assert not set(held.groups) & set(rest.groups)
    for name in ("multi", "final"):
        passages = next(task for task in config_of(whole.made, name)["tasks"] if task["name"] == "passages")
        assert (passages["rows"], passages["data"]) == (len(rest.queries), data_hash(question_pairs(rest)))
    for name in ("tuned", "distil", "multi", "final"):
        taught = [task for task in config_of(whole.made, name)["tasks"] if task["name"] in ("kept", "long")]
        rare = 45 if name == "tuned" else 0  # texts with rare words, which are kept beside the passages
        assert [task["rows"] for task in taught] == [len(rest.twins()) + rare], name


# --- silver ----------------------------------------------------------------------------------------------------------


def test_silver_pairs_hold_none_that_is_known(whole: Whole) -> None:
    material = read_material(whole.data, bi_plan())
    pool = material.pool()
    folder = whole.made.stages["pairs"].folder
    pairs, cosines = np.load(folder / "pairs.npy"), np.load(folder / "cosines.npy")
    assert {one.name for one in material.evaluation} >= {"KorSTS test", "KLUE-STS dev", "STSb test"}
    known = known_pairs([*material.selection, *material.sts.values(), *material.evaluation])
    keys = [tuple(sorted((normalise(pool[a]), normalise(pool[b])))) for a, b in pairs.tolist()]
    assert not set(keys) & known
    assert all(a != b for a, b in keys)
    assert len(pairs) > len(pool)
    multi = BiEncoder.load(whole.made.stages["multi"].folder / "model", device="cpu", max_length=48)
    vectors = multi.encode(pool, normalize=True)
    assert np.allclose(cosines, (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1), atol=1e-4)
    labels = np.load(whole.made.stages["labels"].folder / "labels.npy")
    assert labels.shape == (len(pairs),)
    assert 0 <= labels.min() < labels.max() <= 1
    assert not np.allclose(labels, np.load(folder / "labels.npy")), "the cross-encoders had a say"
    stages = whole.made.stages
    silver = read_silver(material, stages["pairs"], stages["labels"], seed=0)
    assert silver.targets is not None
    assert np.array_equal(silver.targets, labels)
    learned = next(task for task in config_of(whole.made, "final")["tasks"] if task["name"] == "silver")
    assert learned["data"] == data_hash(silver)
    assert set(silver.texts()) & set(material.other.values()), "in Korean too, where there are both"


# --- what is finished ------------------------------------------------------------------------------------------------


def test_thresholds_are_measured_with_the_weights_that_are_shipped(whole: Whole) -> None:
    shipped = BiEncoder.load(whole.made.folder, device="cpu")
    assert calibrate_bi(shipped, whole.data) == shipped.thresholds


def test_saved_again_the_weights_stay_the_same(whole: Whole, tmp_path: Path) -> None:
    for number in range(2):
        BiEncoder.load(whole.made.folder if not number else tmp_path / "0", device="cpu").save(
            tmp_path / str(number), dtype="int8"
        )
    merged = BiEncoder.load(whole.made.stages["merged"].folder / "model", device="cpu")
    BiEncoder(replace(merged.parts, leftover={}), device="cpu").save(tmp_path / "once", dtype="int8")
    name = "model.int8.safetensors"
    found = {
        (folder / name).read_bytes() for folder in (whole.made.folder, *map(tmp_path.joinpath, ("0", "1", "once")))
    }
    assert len(found) == 1


def test_the_teachers_pooler_is_not_shipped(whole: Whole) -> None:
    """No vector needs it: it would be bytes for nothing."""
    merged = BiEncoder.load(whole.made.stages["merged"].folder / "model", device="cpu")
    assert merged.parts.leftover, "the test must be able to fail"
    for folder in (whole.made.folder, whole.folder / "21-finish/float32"):
        assert not BiEncoder.load(folder, device="cpu").parts.leftover


def test_the_facts_of_the_making(whole: Whole, tmp_path: Path) -> None:
    making = read_making(whole.folder / "making.json")
    assert (making.name, making.is_cross, making.content["seed"]) == ("munjang-ko-en", False, 0)
    assert [one["name"] for one in making.rows("stages")] == list(BI_STAGES)
    steps = {one["name"]: one["settings"].get("steps") for one in making.rows("stages")}
    assert (steps["distil"], steps["final"], steps["second"]) == (4, 9, None)
    model = munjang.load(whole.made.folder, device="cpu")
    told = making.content["model"]
    assert (told["dimension"], told["max length"]) == (model.dimension, model.max_length)
    assert told["vocabulary"] == len(model.parts.body.embeddings.word.weight)
    assert [(one["set"], one["value"]) for one in making.rows("selection")] == list(
        whole.made.facts["selection"]["int8"].items()
    )
    material = read_material(whole.data, bi_plan())
    data = {one["set"]: one for one in making.rows("data")}
    assert {one["name"]: one["rows"] for one in data.values()} == dict(material.rows)
    for name, one in data.items():
        known, split = name.split(":")
        assert DATASETS[known].splits[split].use == "train"
        assert one["licence"] == DATASETS[known].licence
    for size in making.rows("sizes"):
        assert size["bytes"] == (whole.made.folder / size["what"]).stat().st_size
    results = read_results(results_file(tmp_path / "results.json"))
    words = {"en": "words and their meanings", "ko": "낱말과 그 뜻"}
    for language in ("en", "ko"):
        text = card(making, results, language)  # type: ignore[arg-type]
        assert "KorSTS train" in text
        assert f"{data['parallel:train']['rows']:,}" in text
        assert f"| WordNet train | {words[language]} | {data['wordnet:train']['rows']} | WordNet 3.0 licence" in text
        assert "| distil |" in text


# --- a second call ---------------------------------------------------------------------------------------------------


def test_the_same_call_again_does_nothing(whole: Whole) -> None:
    again = make(whole.folder, whole.tiny, whole.data, second=Second(fails=True))
    assert tuple(skipped(again)) == BI_STAGES
    assert again.folder == whole.made.folder
    assert again.facts == whole.made.facts


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        ({"final": Schedule(3, 1e-3)}, LAST),
        ({"labeller_sts": Schedule(3, 1e-3)}, (*SILVER[1::2], "labels", *LAST)),
        ({"multi": Schedule(3, 1e-3)}, LATE),
        pytest.param({"passages": 60}, ("passages", "tuned", "targets", *FROM_DISTIL), marks=pytest.mark.slow),
        pytest.param({"held_questions": 20}, ("passages", "tuned", "targets", *FROM_DISTIL), marks=pytest.mark.slow),
        pytest.param({"foreign": 30}, ("tuned", "targets", *FROM_DISTIL), marks=pytest.mark.slow),
        pytest.param({"definitions": 3}, ("tuned", "targets", *FROM_DISTIL), marks=pytest.mark.slow),
        pytest.param({"settled_shares": (0.33,)}, FROM_DISTIL[1:], marks=pytest.mark.slow),
        ({"merged_shares": (0.33,)}, ("merged", "finish")),
        pytest.param({"distil": Schedule(3, 1e-3)}, FROM_DISTIL, marks=pytest.mark.slow),
        ({"cosine_weights": (0.9,)}, ("labels", *LAST)),
        pytest.param({"tuned": Schedule(3, 1e-3)}, ("tuned", "targets", *FROM_DISTIL), marks=pytest.mark.slow),
        pytest.param({"vocabulary": 240}, ("student", *FROM_DISTIL), marks=pytest.mark.slow),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_change_repeats_what_depends_on_it(
    whole: Whole, tmp_path: Path, change: dict[str, object], repeated: tuple[str, ...]
) -> None:
    shutil.copytree(whole.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, whole.data, plan=bi_plan(**change))
    assert tuple(made.stages) == BI_STAGES
    assert tuple(name for name in BI_STAGES if name not in skipped(made)) == repeated


@pytest.mark.slow
def test_another_length_repeats_what_reads_at_it(whole: Whole, tmp_path: Path) -> None:
    """Whatever comes out: where the texts are short it may be the same, and what builds on it is then skipped."""
    shutil.copytree(whole.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, whole.data, plan=bi_plan(max_length=60))
    assert set(BI_STAGES) - set(skipped(made)) >= {"tuned", "distil", "multi", "final", "merged", "finish"}
    assert set(skipped(made)) >= {"student", "second", "passages"}
    assert munjang.load(made.folder, device="cpu").max_length == 60
    shorter = make(tmp_path / "run", whole.tiny, whole.data, plan=bi_plan(max_length=60, train_length=40))
    assert set(shorter.stages) - set(skipped(shorter)) >= {"pairs", *SILVER, "labels"}
    assert set(skipped(shorter)) >= {"student", "second", "passages", "tuned", "targets", "distil", "multi"}


@pytest.mark.slow
def test_another_second_teacher_repeats_everything(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, whole.data, second=Second(1))
    assert skipped(made) == []
    before, after = (munjang.load(one.folder, device="cpu") for one in (whole.made, made))
    assert before.fingerprint != after.fingerprint


def test_a_warm_up_comes_between(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, whole.data, plan=bi_plan(warm_up=Schedule(2, 1e-3, 2e-3)))
    assert skipped(made) == ["student", "second", "passages", "tuned", "targets"]
    assert list(made.stages)[:7] == [*BI_STAGES[:5], "warm-up", "distil"]
    assert {task["objective"] for task in config_of(made, "warm-up")["tasks"]} == {"MaskedWords"}
    assert inputs_of(made, "distil")["student"] == made.stages["warm-up"].digest


def test_other_groups_to_calibrate_by_repeat_the_end_alone(whole: Whole, tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data")
    path = data / "parakqc/paraKQC_v1.txt"
    put(path, [line.replace("!", "?") for line in path.read_text("utf-8").splitlines()])
    shutil.copytree(whole.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, data)
    assert tuple(skipped(made)) == BI_STAGES[:-1]


def test_the_same_seed_gives_the_same_weights_and_another_others(whole: Whole, tmp_path: Path) -> None:
    again = make(tmp_path / "again", whole.tiny, whole.data)
    assert not skipped(again)
    assert {name: one.digest for name, one in again.stages.items()} == {
        name: one.digest for name, one in whole.made.stages.items()
    }
    other = make(tmp_path / "other", whole.tiny, whole.data, seed=1)
    assert other.stages["final"].digest != again.stages["final"].digest
    assert other.stages["labeller-1-sts"].digest != again.stages["labeller-1-sts"].digest


# --- refused before anything is computed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        "parakqc/paraKQC_v1.txt",
        "mnli-en/mnli_validation.csv",
        "nsmc/reviews.txt",
        "korsts/sts-dev.tsv",
        "wordnet/data.noun",
    ],
)
def test_a_set_that_is_missing_is_named_first(tiny: Path, tmp_path: Path, file: str) -> None:
    data = data_folder(tmp_path / "data")
    (data / file).unlink()
    with pytest.raises(DataError, match=f"there is no {file}"):
        make(tmp_path / "run", tiny, data, second=Second(fails=True))
    assert not (tmp_path / "run").exists()


def test_wishes_that_make_no_sense(whole: Whole, tmp_path: Path) -> None:
    given = (tmp_path / "run", whole.tiny, whole.data)
    nothing = Second(fails=True)
    with pytest.raises(InputError, match="seed must be at least 0, got -1"):
        make(*given, second=nothing, seed=-1)
    with pytest.raises(InputError, match="scale must be above 0 and at most 1, got 0"):
        make(*given, second=nothing, scale=0)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ModelNotFoundError):
        make(tmp_path / "run", tmp_path / "no teacher", whole.data, second=nothing)
    with pytest.raises(ModelNotFoundError):
        make(tmp_path / "run", whole.tiny, whole.data, second=nothing, larger=tmp_path / "no larger one")
    assert not [path for path in (tmp_path / "run").iterdir() if path.is_dir()], "said before the first stage"
    with pytest.raises(InputError, match="holds something else than a run of 'bundled bi-encoder'"):
        make(whole.tiny, whole.tiny, whole.data, second=nothing)


def test_a_scale_makes_the_same_run_smaller(whole: Whole, tmp_path: Path) -> None:
    plan = bi_plan(distil=Schedule(40, 1e-3))
    made = make(tmp_path / "run", whole.tiny, whole.data, plan=plan, scale=0.5)
    assert config_of(made, "distil")["settings"]["max_steps"] == 20
    assert made.stages["targets"].facts["rare"] == 40 + 4, "half of the dictionary's entries"
    before, after = (one.stages["targets"].facts["translations"] for one in (whole.made, made))
    assert after == -(-before // 2)
    assert made.stages["pairs"].facts["sentences"] < 0.6 * whole.made.stages["pairs"].facts["sentences"]


def test_a_pair_of_an_evaluation_set_is_no_silver_pair_though_both_sentences_are_known(tmp_path: Path) -> None:
    texts = [f"{number}번째 문장이다." for number in range(6)]

    def scored(name: str, a: int, b: int) -> Examples:
        return Examples(name, "scored", {"a": [texts[a]], "b": [texts[b]]}, np.array([0.5], np.float32))

    class Model:
        device = "cpu"

        def encode(self, some: list[str], **_: object) -> np.ndarray:
            return np.random.default_rng(0).standard_normal((len(some), 4)).astype(np.float32)

    material = SimpleNamespace(
        pool=lambda: texts,
        sts={"gold": scored("gold", 0, 1)},
        selection=(scored("dev", 2, 3),),
        evaluation=(scored("test", 5, 4),),
        scored=lambda: scored("gold", 0, 1),
        judged=lambda: np.array([text in texts[:2] for text in texts]),
    )
    shop = SimpleNamespace(
        bi=lambda done, length: Model(),
        seed=0,
        stages=SimpleNamespace(run=lambda name, inputs, make: make(tmp_path)),
    )
    plan = replace(BiPlan(), pool_neighbours=5, scored_neighbours=5, random_pairs=0.0)
    teaching = SimpleNamespace(
        plan=plan, material=material, shop=shop, options=SimpleNamespace(larger=None, bilingual=None)
    )
    Labelling(teaching).pairs(SimpleNamespace(digest="multi"))
    found = {tuple(pair) for pair in np.load(tmp_path / "pairs.npy").tolist()}
    every = {(a, b) for a in range(6) for b in range(a + 1, 6)}
    assert every - found == {(0, 1), (2, 3), (4, 5)}
