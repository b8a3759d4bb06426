"""The whole classifier, with a tiny random model: labels, sets, saving, fine-tuning, bad input."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from munjang.encoders import BiEncoder
from munjang.errors import InputError, ModelError, ModelNotFoundError, MunjangWarning, TruncationWarning
from munjang.tasks.classifier import Classifier
from munjang.tasks.classifier_fitting import Logistic
from munjang.tasks.classifier_heads import LinearHead, PrototypeHead
from munjang.tasks.classifier_labels import Targets
from munjang.tasks.few_shot import FineTune, contrastive_pairs
from training.material import WHERE, WHO, bi, same, weights

DOES = {
    "음악": ["plays the guitar", "기타를 친다"],
    "food": ["eats noodles", "국수를 먹는다"],
    "rest": ["sleeps outside all day", "잔다"],
}
ROWS = [
    (f"{who} {do} {where}".strip(), label)
    for label, does in DOES.items()
    for do in does
    for who in WHO
    for where in WHERE
]
ORDER = np.random.default_rng(5).permutation(len(ROWS))
TEXTS = [ROWS[i][0] for i in ORDER]
LABELS = [ROWS[i][1] for i in ORDER]
FEW, REST = slice(0, 60), slice(60, 160)


@pytest.fixture(scope="module")
def model() -> BiEncoder:
    return bi()


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny"
    bi().save(path)
    return path


@pytest.fixture(scope="module")
def fitted(model: BiEncoder) -> Classifier:
    return Classifier.fit(TEXTS[FEW], LABELS[FEW], model)


def sets_of(texts: list[str]) -> list[set[str]]:
    """Two questions at once: who, and what."""
    return [
        {
            name
            for name, word in (("guitar", "guitar"), ("기타", "기타"), ("child", "child"), ("개", "개가"))
            if word in text
        }
        for text in texts
    ]


# --- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["logistic", "prototype", Logistic(c=3.0, balanced=True)])
def test_labels_are_learned(model: BiEncoder, head: object) -> None:
    classifier = Classifier.fit(TEXTS[FEW], LABELS[FEW], model, head=head)  # type: ignore[arg-type]
    assert classifier.labels == ("food", "rest", "음악")
    said = classifier.predict(TEXTS[REST])
    assert accuracy_score(LABELS[REST], said) > (0.5 if head == "prototype" else 0.7)  # by chance: 0.33
    p = classifier.probabilities(TEXTS[REST])
    assert p.dtype == np.float32
    assert p.shape == (100, 3)
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    assert [classifier.labels[place] for place in p.argmax(axis=1)] == said
    assert [classifier.chosen(row)[0] for row in p] == said


def test_the_same_call_gives_the_same_classifier(model: BiEncoder, fitted: Classifier) -> None:
    again = Classifier.fit(TEXTS[FEW], LABELS[FEW], model)
    assert isinstance(again.head, LinearHead)
    assert isinstance(fitted.head, LinearHead)
    assert np.array_equal(again.head.weight, fitted.head.weight)
    assert again.scaling == fitted.scaling


def test_a_stream_gives_what_a_list_gives(fitted: Classifier) -> None:
    told: list[tuple[int, int | None]] = []
    assert fitted.predict(iter(TEXTS[REST])) == fitted.predict(TEXTS[REST])
    fitted.predict(TEXTS[REST], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100)
    assert fitted.predict([]) == []
    assert fitted.probabilities([]).shape == (0, 3)


def test_the_report_is_scikit_learns(fitted: Classifier) -> None:
    report = fitted.evaluate(TEXTS[REST], LABELS[REST])
    said = fitted.predict(TEXTS[REST])
    assert report.scores.values["accuracy"] == pytest.approx(accuracy_score(LABELS[REST], said))
    assert report.scores.values["f1_macro"] == pytest.approx(f1_score(LABELS[REST], said, average="macro"))
    peer = np.stack(precision_recall_fscore_support(LABELS[REST], said, labels=fitted.labels, zero_division=0), axis=1)
    assert np.allclose([(row.precision, row.recall, row.f1, row.rows) for row in report.labels], peer)
    wrong = sum(gold != guess for gold, guess in zip(LABELS[REST], said, strict=True))
    assert sum(pair.rows for pair in report.mixed_up) == wrong
    assert f"{100:,} rows" in str(report)


def test_cut_texts_are_reported(fitted: Classifier) -> None:
    long = "a man plays the guitar at home " * 60
    with pytest.warns(TruncationWarning, match="truncated: 1 of 2"):
        fitted.predict(["기타를 친다", long])


# --- several labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["logistic", "prototype"])
@pytest.mark.usefixtures("exact")
def test_sets_of_labels(model: BiEncoder, head: str, tmp_path: Path, saved_model: Path) -> None:
    model = BiEncoder.load(saved_model, device="cpu", dtype="float32")
    truth = sets_of(TEXTS)
    classifier = Classifier.fit(TEXTS[:120], truth[:120], model, head=head, multilabel=True)  # type: ignore[arg-type]
    assert classifier.labels == ("child", "guitar", "개", "기타")
    report = classifier.evaluate(TEXTS[120:], truth[120:])
    said = classifier.predict_sets(TEXTS[120:])
    matrix = [[[name in row for name in classifier.labels] for row in rows] for rows in (truth[120:], said)]
    assert report.scores.values["f1_micro"] == pytest.approx(f1_score(*matrix, average="micro"))
    assert report.scores.values["f1_macro"] == pytest.approx(f1_score(*matrix, average="macro", zero_division=0))
    # The body is random: mean directions of its vectors tell little.
    assert report.scores.values["f1_micro"] > (0.7 if head == "logistic" else 0.2)
    p = classifier.probabilities(TEXTS[120:])
    assert all(
        row == tuple(sorted(row, key=lambda name: -q[classifier.labels.index(name)]))
        for row, q in zip(said, p, strict=True)
    )
    many, few = (sum(map(len, classifier.predict_sets(TEXTS[120:], threshold=t))) for t in (0.1, 0.9))
    assert many > few
    classifier.save(tmp_path / "c")
    assert Classifier.load(tmp_path / "c").predict_sets(TEXTS[120:]) == said
    with pytest.raises(InputError, match="predict_sets"):
        classifier.predict(TEXTS[:1])


# --- without rows ----------------------------------------------------------------------------------------------------


def test_labels_alone_make_a_classifier(model: BiEncoder) -> None:
    described = {"음악": ["plays the guitar", "기타를 친다"], "food": "eats noodles", "rest": "sleeps outside all day"}
    classifier = Classifier.zero_shot(described, model)
    assert isinstance(classifier.head, PrototypeHead)
    assert classifier.predict(["plays the guitar", "eats noodles", "sleeps outside all day"]) == [
        "음악",
        "food",
        "rest",
    ]
    assert classifier.calibration is None
    better = classifier.calibrated(TEXTS[FEW], LABELS[FEW])
    assert better.calibration is not None
    assert better.calibration.log_loss_after <= better.calibration.log_loss_before
    assert better.predict(TEXTS[REST]) == classifier.predict(TEXTS[REST])
    framed = Classifier.zero_shot(["guitar", "noodles"], model, template="a man likes {} at home")
    direct = model.encode(["a man likes guitar at home"])[0]
    assert np.allclose(framed.head.scores(direct[None])[0, 0], 1, atol=1e-5)


def test_zero_shot_is_as_sure_when_all_cosines_are_narrow() -> None:
    """A direction that all vectors share raises every cosine: the probabilities must not become nearly equal."""
    rng = np.random.default_rng(0)
    lines = {"a": 0, "b": 1, "c": 2, "x": 0, "y": 1, "z": 2}
    own = np.eye(3, 16)[list(lines.values())] + 0.02 * rng.normal(size=(6, 16))

    class Narrow:
        def __init__(self, shared: float) -> None:
            self.vectors = dict(zip(lines, np.column_stack([own, np.full(6, shared)]).astype(np.float32), strict=True))

        def encode(self, texts: list[str], **_: object) -> object:
            return np.stack([self.vectors[text] for text in texts])

    surest = []
    for shared in (0.8, 2.0):  # cosines of unrelated texts: 0.4, 0.8
        classifier = Classifier.zero_shot(["a", "b", "c"], Narrow(shared))  # type: ignore[arg-type]
        scores = classifier.head.scores(classifier.model.encode(["x", "y", "z"]))
        surest.append(classifier.scaling.probabilities(scores, multilabel=False).max(axis=1).mean())
    assert surest == pytest.approx([1, 1], abs=0.01)


@pytest.mark.parametrize(
    ("labels", "template", "told"),
    [
        (["one"], "{}", "at least two"),
        (["a", "a"], "{}", "differ"),
        (["a", ""], "{}", "differ"),
        ({"a": [], "b": "x"}, "{}", "description"),
        ({"a": "  ", "b": "x"}, "{}", "description"),
        (["a", "b"], "news", "template"),
        ("스포츠", "{}", "list of labels"),
    ],
)
def test_labels_that_make_none(model: BiEncoder, labels: object, template: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Classifier.zero_shot(labels, model, template=template)  # type: ignore[arg-type]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "labels", "several", "told"),
    [
        (["a", "b"], ["x"], False, "as many labels as texts, got 1 labels for 2"),
        (["a", "b"], ["x", "x"], False, "all 2 rows have the label 'x'"),
        ([], [], False, "no texts"),
        (["a", "b"], ["x", ""], False, "label of row 1 is empty"),
        (["a", "b"], ["x", None], False, "row 1 must be a text, got NoneType"),
        (["a", "b"], ["x", 3], False, "str()"),
        (["a", "b"], ["x", float("nan")], False, "must be a text, got float"),
        (["a", "b"], [["x"], ["y"]], False, "multilabel=True"),
        (["a", "b"], ["x", "y"], True, "row 0 needs a list or set"),
        (["a", "b"], [[], []], True, "none of the 2 rows has a label"),
        (["a", "b"], [["x"], ["x", "y"]], True, "every row has the label 'x'"),
        (["a", 3], ["x", "y"], False, "text 1 must be a string"),
        ("ab", ["x", "y"], False, "list of texts"),
        (["a", "b"], "xy", False, "a label for every text"),
    ],
)
def test_rows_that_teach_nothing(texts: object, labels: object, several: bool, told: str) -> None:
    class Untouched:
        """Nothing is encoded before the rows were looked at."""

    with pytest.raises(InputError, match=told.replace("(", r"\(").replace(")", r"\)")):
        Classifier.fit(texts, labels, Untouched(), multilabel=several)  # type: ignore[arg-type]


def test_calls_that_do_not_fit(fitted: Classifier, model: BiEncoder) -> None:
    with pytest.raises(InputError, match=r"unknown to this classifier: 'sport'; it knows 'food'"):
        fitted.evaluate(["a", "b"], ["food", "sport"])
    with pytest.raises(InputError, match="use predict"):
        fitted.predict_sets(["a"])
    with pytest.raises(InputError, match="head must be"):
        Classifier.fit(TEXTS[FEW], LABELS[FEW], model, head="svm")  # type: ignore[arg-type]
    for wrong in ({"pairs": 1}, {"epochs": 0}, {"learning_rate": 2}, {"batch_size": 0}):
        with pytest.raises(InputError):
            FineTune(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no label has two texts"):
        Classifier.fit(["a", "b"], ["x", "y"], model, fine_tune=FineTune())


# --- fine-tuning -----------------------------------------------------------------------------------------------------


def test_pairs_of_labels() -> None:
    targets = Targets(("a", "b", "c"), np.array([0, 0, 0, 1, 1, 2]))
    texts = list("uvwxyz")
    examples = contrastive_pairs(texts, targets, FineTune(pairs=400))
    assert examples.targets is not None
    assert len(examples) == 400
    assert examples.targets.mean() == 0.5
    counts = dict.fromkeys(texts, 0)
    for a, b, score in zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True):
        assert (targets.values[texts.index(a)] == targets.values[texts.index(b)]) == bool(score)
        assert a != b
        counts[a] += 1
    assert min(counts.values()) > 20  # every text has its turn, the only one of its label among the unlike pairs
    again = contrastive_pairs(texts, targets, FineTune(pairs=400))
    assert again.columns == examples.columns
    assert contrastive_pairs(texts, targets, FineTune(pairs=400, seed=1)).columns != examples.columns


def test_pairs_of_sets_score_what_both_have() -> None:
    values = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]], bool)
    examples = contrastive_pairs(list("abcde"), Targets(("x", "y", "z"), values), FineTune(pairs=60))
    assert examples.targets is not None
    for a, b, score in zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True):
        one, other = values["abcde".index(a)], values["abcde".index(b)]
        union = (one | other).sum()
        assert score == pytest.approx((one & other).sum() / union if union else 0)


@pytest.mark.usefixtures("exact")
def test_fine_tuning_moves_a_copy_and_helps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = bi()
    before, fingerprint = weights(model), model.fingerprint
    how = FineTune(pairs=240, epochs=2, learning_rate=2e-3)
    tuned = Classifier.fit(TEXTS[:36], LABELS[:36], model, fine_tune=how)
    assert same(before, weights(model))
    assert model.fingerprint == fingerprint != tuned.model.fingerprint
    assert tuned.calibration is not None
    vectors = {m: m.encode(TEXTS[REST], normalize=True) for m in (model, tuned.model)}
    gold = np.array(LABELS[REST])
    alike = gold[:, None] == gold

    def gap(rows: np.ndarray) -> float:
        cosines = rows @ rows.T
        return float(cosines[alike].mean() - cosines[~alike].mean())

    assert gap(vectors[tuned.model]) > gap(vectors[model]) + 0.1
    again = Classifier.fit(TEXTS[:36], LABELS[:36], model, fine_tune=how)
    assert np.array_equal(again.probabilities(TEXTS[REST]), tuned.probabilities(TEXTS[REST]))
    tuned.save(tmp_path / "c")
    loaded = Classifier.load(tmp_path / "c", device="cpu")
    assert loaded.own_body
    assert np.allclose(loaded.probabilities(TEXTS[REST]), tuned.probabilities(TEXTS[REST]), atol=1e-5)
    assert json.loads((tmp_path / "c" / "classifier.json").read_text())["facts"]["fine-tuned"] is True
    # A classifier without a body of its own in the same place: the body goes.
    Classifier.zero_shot(["a", "b"], model).save(tmp_path / "c")
    assert not list((tmp_path / "c").glob("model-*"))


def test_fine_tuning_without_calibration_or_with_too_few_rows(model: BiEncoder) -> None:
    how = FineTune(pairs=8, epochs=1, calibrate=False)
    assert Classifier.fit(TEXTS[FEW], LABELS[FEW], model, fine_tune=how).calibration is None
    with pytest.warns(MunjangWarning, match="too few rows"):
        few = Classifier.fit(["a man", "one child", "집에서"], ["x", "y", "y"], model, fine_tune=FineTune(pairs=4))
    assert few.calibration is None


# --- saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["logistic", "prototype"])
@pytest.mark.usefixtures("exact")
def test_saved_and_loaded_it_says_the_same(saved_model: Path, tmp_path: Path, head: str) -> None:
    model = BiEncoder.load(saved_model, device="cpu", dtype="float32")
    classifier = Classifier.fit(TEXTS[FEW], LABELS[FEW], model, head=head)  # type: ignore[arg-type]
    classifier.save(tmp_path / "c")
    by_name, given = Classifier.load(tmp_path / "c"), Classifier.load(tmp_path / "c", model)
    assert np.array_equal(given.probabilities(TEXTS[REST]), classifier.probabilities(TEXTS[REST]))
    assert np.allclose(by_name.probabilities(TEXTS[REST]), classifier.probabilities(TEXTS[REST]), atol=2e-2)  # bfloat16
    assert by_name.scaling == classifier.scaling
    assert by_name.facts == classifier.facts
    names = sorted(entry.name for entry in (tmp_path / "c").iterdir())
    assert len(names) == 2
    assert all((tmp_path / "c" / name).stat().st_mode & 0o777 == 0o644 & ~_umask() for name in names)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_another_model_is_refused(saved_model: Path, tmp_path: Path) -> None:
    model = BiEncoder.load(saved_model, device="cpu", dtype="float32")
    Classifier.fit(TEXTS[FEW], LABELS[FEW], model).save(tmp_path / "c")
    other = bi()
    with torch.no_grad():
        next(iter(other.parts.body.parameters())).add_(1)
    other.refresh()
    with pytest.raises(ModelError, match="weights, tokenizer or pooling differ"):
        Classifier.load(tmp_path / "c", other)
    narrow = BiEncoder.load(saved_model, device="cpu")
    narrow.truncate_dim = 8
    with pytest.raises(ModelError, match="8 dimensions, not 16"):
        Classifier.load(tmp_path / "c", narrow)
    stated = json.loads((tmp_path / "c" / "classifier.json").read_text())
    stated["model"]["name"] = str(tmp_path / "gone")
    (tmp_path / "c" / "classifier.json").write_text(json.dumps(stated))
    with pytest.raises(ModelNotFoundError, match="gone, which is not there: pass the model"):
        Classifier.load(tmp_path / "c")
    assert Classifier.load(tmp_path / "c", model).labels == ("food", "rest", "음악")


def test_a_narrow_model_is_narrow_again(saved_model: Path, tmp_path: Path) -> None:
    model = BiEncoder.load(saved_model, device="cpu", dtype="float32")
    model.truncate_dim, model.max_length = 8, 20
    Classifier.fit(TEXTS[FEW], LABELS[FEW], model).save(tmp_path / "c")
    loaded = Classifier.load(tmp_path / "c")
    assert (loaded.model.dimension, loaded.model.max_length) == (8, 20)


def test_damage_is_found(saved_model: Path, tmp_path: Path) -> None:
    model = BiEncoder.load(saved_model, device="cpu", dtype="float32")
    with pytest.raises(ModelNotFoundError, match="no classifier"):
        Classifier.load(tmp_path / "none")
    folder = tmp_path / "c"
    Classifier.zero_shot(["a man", "집에서"], model).save(folder)
    (head,) = folder.glob("head-*")
    whole = head.read_bytes()
    head.write_bytes(whole[:-4] + b"\1\2\3\4")
    with pytest.raises(ModelError, match="damaged"):
        Classifier.load(folder)
    head.unlink()
    with pytest.raises(ModelError, match="lacks head-"):
        Classifier.load(folder)
    head.write_bytes(whole)
    text = (folder / "classifier.json").read_text()
    for wrong, told in (
        (text[:40], "no JSON"),
        (text.replace('"format": 1', '"format": 9'), "newer munjang"),
        ("[]", "describe"),
    ):
        (folder / "classifier.json").write_text(wrong)
        with pytest.raises(ModelError, match=told):
            Classifier.load(folder)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is no classifier"):
        Classifier.zero_shot(["a", "b"], model).save(notes)
    with pytest.raises(InputError, match="is a file"):
        Classifier.zero_shot(["a", "b"], model).save(notes / "mine.txt")


def _save_and_die(classifier: Classifier, folder: Path, step: int) -> None:
    """Save, and be killed at the step-th moment at which the disk is told to keep something."""
    left = step

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in ("replace", "fsync"):
        setattr(os, name, dying(getattr(os, name)))
    classifier.save(folder)


def test_a_killed_save_leaves_the_old_one_or_the_new_one(saved_model: Path, tmp_path: Path) -> None:
    model = BiEncoder.load(saved_model, device="cpu", dtype="float32")
    folder = tmp_path / "c"
    old = Classifier.zero_shot(["a man", "집에서"], model)
    new = Classifier.zero_shot(["one child", "국수를 먹는다"], model)
    assert model.fingerprint  # known before the fork: torch does not compute in a forked process
    context = multiprocessing.get_context("fork")
    seen = set()
    for step in range(12):
        old.save(folder)
        process = context.Process(target=_save_and_die, args=(new, folder, step))
        process.start()
        process.join(60)
        seen.add(Classifier.load(folder, model).labels)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    else:
        pytest.fail("the save never came to its end")
    assert seen == {("a man", "집에서"), ("one child", "국수를 먹는다")}
    assert len(list(folder.iterdir())) == 2
