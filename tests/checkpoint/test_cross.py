"""Cross-encoders go to the parts and back, from transformers and sentence-transformers, without a change in scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from munjang.checkpoint import CrossParts, cross_from_bi, is_cross, read_bi, read_cross, write_cross
from munjang.checkpoint.cross import form_of
from munjang.encoders import CrossEncoder

OURS = ["bert", "roberta", "electra", "albert", "distilbert", "mpnet", "modernbert"]
ALL = [*OURS, "xlm-roberta", "camembert", "deberta-v2"]


def ours(parts: CrossParts, pairs: list[tuple[str, str]], **options: Any) -> np.ndarray:
    return CrossEncoder(parts, device="cpu", dtype="float32").predict_report(pairs, **options).scores


@pytest.mark.parametrize("family", ALL)
def test_a_classifier_of_transformers_both_ways(
    family: str, classifiers: Any, their_scores: Any, pairs: Any, tmp_path: Path
) -> None:
    folder = classifiers(family, 3)
    parts = read_cross(folder, max_length=24)
    parts.notes.clear()
    expected = their_scores_at(folder, pairs, 24)
    np.testing.assert_allclose(ours(parts, pairs, raw=True), expected, atol=1e-5)
    assert expected.std() > 0.01
    assert form_of(parts) == "classifier"
    write_cross(parts, tmp_path / "saved")
    again = read_cross(tmp_path / "saved")
    assert (again.notes, again.labels, again.tokenizer.max_length) == ([], parts.labels, 24)
    np.testing.assert_array_equal(ours(again, pairs), ours(parts, pairs))
    np.testing.assert_allclose(their_scores(tmp_path / "saved", pairs), expected, atol=1e-5)


def their_scores_at(folder: Path, pairs: Any, max_length: int) -> np.ndarray:
    from sentence_transformers import CrossEncoder as Theirs

    model = Theirs(str(folder), device="cpu", local_files_only=True, max_length=max_length)
    return np.asarray(model.predict([list(pair) for pair in pairs], show_progress_bar=False))


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("family", ALL)
def test_the_papers_head_on_any_body(
    family: str, labels: int, bodies: Any, their_scores: Any, pairs: Any, tmp_path: Path
) -> None:
    parts = read_cross(bodies(family), labels=labels, max_length=24)
    assert len(parts.notes) == 1
    assert "the head is new" in parts.notes[0]
    torch.manual_seed(3)
    torch.nn.init.normal_(parts.head.dense.weight, std=0.3)
    torch.nn.init.normal_(parts.head.out.weight, std=0.2)
    write_cross(parts, tmp_path / "saved")
    form = {"bert": "electra", "electra": "classifier", "deberta-v2": form_of(parts)}.get(family, "modules")
    assert form_of(parts) == form
    expected = their_scores(tmp_path / "saved", pairs)
    assert expected.shape == ((7,) if labels == 1 else (7, 3))
    assert expected.std() > 0.002
    np.testing.assert_allclose(ours(parts, pairs, raw=labels > 1), expected, atol=1e-5)
    again = read_cross(tmp_path / "saved")
    assert again.notes == []
    assert (again.head.shape, again.head.dropout.p) == (parts.head.shape, parts.head.dropout.p)
    np.testing.assert_allclose(ours(again, pairs), ours(parts, pairs), atol=1e-7)


@pytest.mark.parametrize("family", ALL)
def test_the_familys_own_head_on_a_body(
    family: str, bodies: Any, their_scores: Any, pairs: Any, tmp_path: Path
) -> None:
    parts = read_cross(bodies(family), labels=("아니다", "yes"), head="standard", max_length=24)
    torch.nn.init.normal_(parts.head.out.weight)
    assert form_of(parts) == "classifier"
    write_cross(parts, tmp_path / "saved")
    np.testing.assert_allclose(ours(parts, pairs, raw=True), their_scores(tmp_path / "saved", pairs), atol=1e-5)
    config = json.loads((tmp_path / "saved" / "config.json").read_text(encoding="utf-8"))
    assert config["id2label"] == {"0": "아니다", "1": "yes"}
    assert config["label2id"] == {"아니다": 0, "yes": 1}
    assert read_cross(tmp_path / "saved").labels == ("아니다", "yes")


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity", "Tanh"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_what_sentence_transformers_saves(
    family: str, activation: str, classifiers: Any, their_scores: Any, pairs: Any, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    model = Theirs(
        str(classifiers(family, 1)), device="cpu", activation_fn=getattr(torch.nn, activation)(), max_length=20
    )
    expected = np.asarray(model.predict([list(pair) for pair in pairs], show_progress_bar=False))
    model.save_pretrained(str(tmp_path / "theirs"))
    assert is_cross(tmp_path / "theirs")
    parts = read_cross(tmp_path / "theirs")
    assert (parts.notes, parts.activation, parts.tokenizer.max_length) == ([], activation, 20)
    np.testing.assert_allclose(ours(parts, pairs), expected, atol=1e-5)
    write_cross(parts, tmp_path / "ours")
    assert is_cross(tmp_path / "ours")
    np.testing.assert_allclose(their_scores(tmp_path / "ours", pairs), expected, atol=1e-5)
    assert read_cross(tmp_path / "ours").activation == activation


def test_modules_as_sentence_transformers_saves_them(bodies: Any, pairs: Any, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(0)
    for name, layers in {
        "two": [
            Dense(32, 32, activation_function=torch.nn.ReLU()),
            Dense(32, 2, activation_function=None, module_output_name="scores"),
        ],
        "one": [Dense(32, 1, bias=False, activation_function=None, module_output_name="scores")],
    }.items():
        model = Theirs(modules=[Transformer(str(bodies("bert"))), Pooling(32, "mean"), *layers], device="cpu")
        model.save_pretrained(str(tmp_path / name))
        parts = read_cross(tmp_path / name)
        assert parts.head.shape.pooling == "mean"
        expected = np.asarray(model.predict([list(pair) for pair in pairs], show_progress_bar=False))
        np.testing.assert_allclose(ours(parts, pairs, raw=name == "two"), expected, atol=1e-5)
        write_cross(parts, tmp_path / f"{name}-again")
        np.testing.assert_array_equal(ours(read_cross(tmp_path / f"{name}-again"), pairs), ours(parts, pairs))


def test_where_releases_kept_the_activation(classifiers: Any, write_json: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(classifiers("bert", 1), tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())

    def activation(newest: str | None = None, **keys: object) -> tuple[str, list[str]]:
        write_json(tmp_path / "m" / "config.json", config | keys)
        extra = {} if newest is None else {"activation_fn": newest}
        write_json(tmp_path / "m" / "config_sentence_transformers.json", extra | {"model_type": "CrossEncoder"})
        parts = read_cross(tmp_path / "m")
        return parts.activation, parts.notes

    identity, tanh = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
    assert activation() == ("Sigmoid", [])
    assert activation(sbert_ce_default_activation_function=identity) == ("Identity", [])
    newer = {"sentence_transformers": {"activation_fn": tanh, "version": "4.1.0"}}
    assert activation(sbert_ce_default_activation_function=identity, **newer) == ("Tanh", [])
    assert activation("torch.nn.modules.activation.Sigmoid", **newer) == ("Sigmoid", [])
    chosen, notes = activation("mine.Strange")
    assert chosen == "Sigmoid"
    assert "'mine.Strange' is not known here" in notes[0]


def test_transformers_alone_loads_it(bodies: Any, pairs: Any, tmp_path: Path) -> None:
    """The paper's head on BERT is a sequence classifier of ELECTRA, to the last digit."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    parts = read_cross(bodies("bert"), labels=("no", "maybe", "yes"), max_length=24)
    write_cross(parts, tmp_path / "m")
    model, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert type(model).__name__ == "ElectraForSequenceClassification"
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    batch = tokenizer([a for a, _ in pairs], [b for _, b in pairs], truncation=True, padding=True, return_tensors="pt")
    assert "token_type_ids" in batch
    with torch.inference_mode():
        expected = model.eval()(**batch).logits.numpy()
    np.testing.assert_allclose(ours(parts, pairs, raw=True), expected, atol=1e-5)


def test_one_segment_is_never_exceeded(bodies: Any, their_scores: Any, pairs: Any, tmp_path: Path) -> None:
    """klue/roberta-base: a BERT tokenizer that counts two segments over a RoBERTa body that has one."""
    import shutil

    from transformers import AutoConfig, AutoModel

    folder = tmp_path / "klue"
    shutil.copytree(bodies("bert"), folder)
    config = AutoConfig.for_model(
        "roberta", vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=42, type_vocab_size=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(1)
    AutoModel.from_config(config).save_pretrained(folder)
    parts = read_cross(folder, labels=2)
    assert not parts.uses_segments
    scores = ours(parts, pairs, raw=True)
    write_cross(parts, tmp_path / "saved")
    np.testing.assert_allclose(their_scores(tmp_path / "saved", pairs), scores, atol=1e-5)


# --- labels and new heads --------------------------------------------------------------------------------------------


def test_another_number_of_labels_keeps_the_body_and_says_so(classifiers: Any, pairs: Any) -> None:
    names = {"id2label": {0: "entailment", 1: "neutral", 2: "contradiction"}}
    folder = classifiers("bert", 3, **names, label2id={"entailment": 0, "neutral": 1, "contradiction": 2})
    three = read_cross(folder)
    assert three.labels == ("entailment", "neutral", "contradiction")
    assert three.notes == []
    one = read_cross(folder, labels=1)
    assert one.notes == [
        "the head is new: it had 3 outputs (entailment, neutral, contradiction), 1 was asked for; train it before use"
        " (first token, linear, tanh, linear to 1; its first layer is the body's pooler)"
    ]
    assert (one.labels, one.activation, one.head.labels) == (("score",), "Sigmoid", 1)
    assert torch.equal(one.head.dense.weight, three.head.dense.weight)
    for name, tensor in one.body.state_dict().items():
        assert torch.equal(tensor, three.body.state_dict()[name])
    again = read_cross(folder, labels=1)
    assert torch.equal(one.head.out.weight, again.head.out.weight)
    other = read_cross(folder, labels=1, seed=1)
    assert not torch.equal(one.head.out.weight, other.head.out.weight)
    assert read_cross(folder, labels=3).labels == three.labels


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2"])
def test_a_new_standard_head_starts_from_the_pooler(family: str, classifiers: Any) -> None:
    three, one = (read_cross(classifiers(family, 3), labels=labels) for labels in (3, 1))
    assert "its first layer is the body's pooler" in one.notes[0]
    assert torch.equal(one.head.dense.weight, three.head.dense.weight)


def test_the_same_labels_in_another_order_are_put_in_order(classifiers: Any, pairs: Any) -> None:
    names = {"id2label": {0: "entailment", 1: "neutral", 2: "contradiction"}}
    folder = classifiers("bert", 3, **names, label2id={"entailment": 0, "neutral": 1, "contradiction": 2})
    turned = read_cross(folder, labels=["Contradiction", "entailment", "neutral"])
    assert turned.notes == []
    np.testing.assert_allclose(
        ours(turned, pairs, raw=True), ours(read_cross(folder), pairs, raw=True)[:, [2, 0, 1]], atol=1e-7
    )
    new = read_cross(folder, labels=["x", "y", "z"])
    assert "the head is new" in new.notes[0]


def test_names_for_labels_that_had_none(classifiers: Any, pairs: Any) -> None:
    named = read_cross(classifiers("roberta", 3), labels=("가", "나", "다"))
    assert (named.labels, named.notes) == (("가", "나", "다"), [])
    np.testing.assert_array_equal(ours(named, pairs), ours(read_cross(classifiers("roberta", 3)), pairs))


def test_another_kind_of_head_is_new(classifiers: Any) -> None:
    parts = read_cross(classifiers("roberta", 2), head="sbert")
    assert "another kind was asked for" in parts.notes[0]
    assert parts.head.shape.activation == "gelu"
    assert read_cross(classifiers("roberta", 2), head="standard").notes == []


@pytest.mark.parametrize("labels", [0, -1, True, "yes", [], ["a", "a"], ["a", ""], [1, 2]])
def test_labels_that_are_refused(labels: Any, bodies: Any) -> None:
    with pytest.raises(ValueError, match="label"):
        read_cross(bodies("bert"), labels=labels)


def test_a_label_table_that_does_not_fit_is_noted(classifiers: Any, write_json: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(classifiers("bert", 3), tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    write_json(tmp_path / "m" / "config.json", config | {"id2label": {"0": "a", "1": "b"}})
    parts = read_cross(tmp_path / "m")
    assert parts.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert "names 2 labels, the head has 3" in parts.notes[0]


def test_from_a_bi_encoder_the_body_is_copied(old_layout: Any, tmp_path: Path) -> None:
    model = read_bi(old_layout())
    parts = cross_from_bi(model, labels=2)
    with torch.no_grad():
        parts.body.embeddings.word.weight.add_(1)
    assert not torch.equal(parts.body.embeddings.word.weight, model.body.embeddings.word.weight)
    parts.tokenizer.max_length = 10
    assert model.tokenizer.max_length == 24
    loaded = read_cross(Path(model.source), labels=2)
    assert loaded.head.shape == parts.head.shape
    assert torch.equal(loaded.head.out.weight, parts.head.out.weight)


def test_a_bi_encoder_from_a_cross_encoders_folder(classifiers: Any, tmp_path: Path) -> None:
    """As before: the body of a plain classifier, and an error that says why for what was saved as a classifier."""
    body = read_bi(classifiers("bert", 1))
    assert torch.equal(body.body.embeddings.word.weight, read_cross(classifiers("bert", 1)).body.embeddings.word.weight)
    write_cross(read_cross(classifiers("bert", 1)), tmp_path / "m")
    with pytest.raises(Exception, match="feature-extraction"):
        read_bi(tmp_path / "m")


def test_what_is_refused(old_layout: Any, bodies: Any, write_json: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(bodies("bert"), tmp_path / "m")
    kinds = [("", "Transformer"), ("1_LogitScore", "LogitScore")]
    write_json(
        tmp_path / "m" / "modules.json",
        [{"idx": i, "name": str(i), "path": p, "type": f"x.{k}"} for i, (p, k) in enumerate(kinds)],
    )
    with pytest.raises(Exception, match="LogitScore"):
        read_cross(tmp_path / "m")
    with pytest.raises(ValueError, match="'sbert' or 'standard'"):
        read_cross(bodies("bert"), head="mine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no standard head"):
        read_cross(bodies("t5"), head="standard")


def test_a_body_that_only_transformers_runs(bodies: Any, pairs: Any, their_scores: Any, tmp_path: Path) -> None:
    parts = read_cross(bodies("t5"), labels=2, max_length=24)
    write_cross(parts, tmp_path / "m")
    np.testing.assert_allclose(ours(read_cross(tmp_path / "m"), pairs), ours(parts, pairs), atol=1e-6)
    np.testing.assert_allclose(their_scores(tmp_path / "m", pairs), ours(parts, pairs, raw=True), atol=1e-5)


def test_the_card(bodies: Any, tmp_path: Path) -> None:
    for family, said in (("bert", "model_type electra"), ("roberta", "sentence-transformers 6 loads it")):
        parts = read_cross(bodies(family), labels=("같다", "다르다"))
        write_cross(parts, tmp_path / family)
        card = (tmp_path / family / "README.md").read_text(encoding="utf-8")
        assert "2 labels: 같다, 다르다" in card
        assert said in card
    write_cross(parts, tmp_path / "roberta", card="# mine\n")
    assert (tmp_path / "roberta" / "README.md").read_text() == "# mine\n"
