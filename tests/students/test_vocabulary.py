"""Vocabulary surgery: pieces, ids, files and vectors, over every kind of tokenizer and family."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import AddedToken

from munjang import checkpoint
from munjang.encoders import BiEncoder
from munjang.errors import InputError, ModelError
from munjang.students import Student, StudentPlan, VocabularyPlan, make_student, tears_hangul
from munjang.text.tokenizer import Tokenizer
from students.material import CASES, ENGLISH, KOREAN, TEXTS, parts_of, theirs, tokenizer_of, vectors

MANY = TEXTS * 3


def student_of(case: str, size: int, **options: Any) -> Student:
    return make_student(parts_of(case), StudentPlan(vocabulary=VocabularyPlan(size, **options)), texts=MANY)


def ids_of(tokenizer: Tokenizer) -> dict[str, int]:
    return dict(tokenizer.backend.get_vocab(with_added_tokens=True))


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return list(tokenizer.backend.encode(text, add_special_tokens=False).tokens)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("case", list(CASES))
def test_a_wholly_new_vocabulary_for_every_family(case: str, kind: Any, tmp_path: Path) -> None:
    parts = parts_of(case)
    before = vectors(parts)
    student = student_of(case, 260, kind=kind, keep="none")
    new = student.parts.tokenizer
    rows = student.parts.body.embeddings.word.weight
    assert new.vocab_size == len(rows) == student.parts.body.config.vocab_size == student.parts.hf_config["vocab_size"]
    assert new.vocab_size <= 260
    assert type(new.backend.model).__name__.lower() == kind
    for text in KOREAN:
        ids = new.backend.encode(text).ids
        assert new.backend.token_to_id(student.parts.tokenizer.special_tokens()["unk_token"]) not in ids
        assert (new.prefix, new.suffix) == (tuple(ids[:1]), tuple(ids[-1:]))
    checkpoint.write_bi(student.parts, tmp_path / "student")
    again = checkpoint.read_bi(tmp_path / "student")
    assert again.tokenizer.encode(TEXTS).ids.tolist() == new.encode(TEXTS).ids.tolist()
    np.testing.assert_allclose(vectors(again), vectors(student.parts), atol=1e-6)
    np.testing.assert_array_equal(vectors(parts), before)


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("bert", {"keep": "used"}),
        ("bert", {"keep": "none", "kind": "unigram"}),
        ("mpnet", {"keep": "used"}),
        ("distilbert", {"keep": "all"}),
        ("roberta", {"keep": "none"}),
        ("xlm-roberta", {"keep": "used", "kind": "unigram"}),
        ("modernbert", {"keep": "none"}),
    ],
)
def test_sentence_transformers_reads_the_same_ids_and_vectors(case: str, options: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    student = student_of(case, 400, **options)
    folder = tmp_path / "student"
    checkpoint.write_bi(student.parts, folder)
    names = {path.name for path in folder.iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} <= names
    assert not names & {"vocab.txt", "vocab.json", "merges.txt"}
    read = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ours = student.parts.tokenizer
    texts = [*TEXTS, "Café ÉTÉ 한국어 Ångström 3,000원!", "오늘 ai가 쓴 [MASK] 문장"]
    for text in texts:
        assert read(text)["input_ids"] == ours.encode([text]).ids.tolist(), text
    assert read.pad_token_id == ours.pad_id == student.parts.hf_config["pad_token_id"]
    np.testing.assert_allclose(theirs(folder, texts), vectors(student.parts, texts), atol=2e-6)


@pytest.mark.usefixtures("exact")
def test_old_files_and_settings_do_not_come_along(tmp_path: Path) -> None:
    """A folder as BERT's are: vocab.txt beside tokenizer.json, and a class that would lower-case on its own."""
    folder = tmp_path / "old"
    checkpoint.write_bi(parts_of("bert"), folder)
    ids = ids_of(tokenizer_of("wordpiece"))
    (folder / "vocab.txt").write_text("\n".join(sorted(ids, key=ids.__getitem__)) + "\n", encoding="utf-8")
    settings = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True, "unk_token": "[UNK]",
                "tokenizer_class": "BertTokenizer", "model_max_length": 48,
                "added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}}}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = BiEncoder.load(folder, device="cpu")
    assert tears_hangul(model.tokenizer.backend)
    student = make_student(model, StudentPlan(vocabulary=VocabularyPlan(300)), texts=MANY)
    BiEncoder(student.parts, device="cpu").save(tmp_path / "new")
    assert not (tmp_path / "new" / "vocab.txt").exists()
    written = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert written["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert not {"do_lower_case", "strip_accents", "tokenize_chinese_chars", "added_tokens_decoder"} & written.keys()
    again = BiEncoder.load(tmp_path / "new", device="cpu")
    assert not tears_hangul(again.tokenizer.backend)
    np.testing.assert_allclose(theirs(tmp_path / "new"), again.encode(TEXTS), atol=2e-6)


@pytest.mark.parametrize(("case", "kind"), [("bert", "wordpiece"), ("mpnet", "wordpiece"), ("xlm-roberta", "unigram")])
def test_keeping_all_leaves_old_text_as_it_was(case: str, kind: Any) -> None:
    parts = parts_of(case)
    student = student_of(case, 400, kind=kind, keep="all")
    old, new = ids_of(parts.tokenizer), ids_of(student.parts.tokenizer)
    assert {token: new[token] for token in old} == old
    texts = [*ENGLISH, "the noodles, the guitar: warm letters!"]
    assert student.parts.tokenizer.encode(texts).ids.tolist() == parts.tokenizer.encode(texts).ids.tolist()
    np.testing.assert_allclose(vectors(student.parts, texts), vectors(parts, texts), atol=1e-6)
    added = [token for token in new if token not in old]
    assert added
    letters = {letter for token in old for letter in token}
    assert all(set(token.removeprefix("##")) - letters for token in added)
    unknown = student.parts.tokenizer.special_tokens()["unk_token"]
    assert all(unknown not in pieces_of(student.parts.tokenizer, text) for text in KOREAN)


def test_used_pieces_stay_with_their_rows_in_their_order() -> None:
    parts = parts_of("bert")
    student = student_of("bert", 220, keep="used")
    old, new = ids_of(parts.tokenizer), ids_of(student.parts.tokenizer)
    before, after = parts.body.embeddings.word.weight, student.parts.body.embeddings.word.weight
    kept = [token for token in old if token in new]
    for token in kept:
        torch.testing.assert_close(after[new[token]], before[old[token]], rtol=0, atol=0)
    assert [new[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]
    ordinary = sorted((t for t in kept if not t.startswith("[")), key=old.__getitem__)
    assert sorted(ordinary, key=new.__getitem__) == ordinary
    assert max(new[t] for t in ordinary) < min(new[t] for t in new if t not in old)
    figures: Any = student.report["vocabulary"]
    assert figures["kept"] == len(ordinary)
    assert figures["after"] == len(new) == figures["special"] + figures["kept"] + figures["new"]
    assert figures["embeddings"]["kept"] == len(kept)


def test_the_share_of_old_pieces_is_held() -> None:
    few, many = (student_of("bert", 205, old_share=share).report["vocabulary"] for share in (0.1, 0.4))
    assert few["kept"] == 20  # type: ignore[index]
    assert many["kept"] == 80  # type: ignore[index]
    assert few["new"] == 180  # type: ignore[index]


def test_pruning_alone_keeps_the_text_that_is_used() -> None:
    parts = parts_of("bert")
    plan = StudentPlan(vocabulary=VocabularyPlan(150, min_count=1))
    student = make_student(parts, plan, texts=ENGLISH[:2])
    assert student.parts.tokenizer.vocab_size < parts.tokenizer.vocab_size
    np.testing.assert_allclose(vectors(student.parts, ENGLISH[:2]), vectors(parts, ENGLISH[:2]), atol=1e-6)
    assert any("pruned only" in note for note in student.notes)
    assert "[UNK]" not in pieces_of(student.parts.tokenizer, " ".join(ENGLISH[2:]))


def test_any_lets_frequent_words_of_known_letters_in() -> None:
    texts = ["the neighbour writes"] * 5
    plans = [VocabularyPlan(220, keep="all", add=add, min_count=2) for add in ("unseen", "any")]
    made = [make_student(parts_of("bert"), StudentPlan(vocabulary=plan), texts=texts).parts for plan in plans]
    before, after = (pieces_of(parts.tokenizer, "neighbour") for parts in made)
    assert len(before) > 1
    assert after == ["neighbour"]


def test_special_tokens_behind_the_new_size_move_and_config_json_follows() -> None:
    student = student_of("modernbert", 200, keep="none")
    new, config = ids_of(student.parts.tokenizer), student.parts.hf_config
    assert new["[PAD]"] < 200
    assert config["pad_token_id"] == new["[PAD]"] == student.parts.tokenizer.pad_id
    assert config["cls_token_id"] == config["bos_token_id"] == new["[CLS]"]
    assert config["sep_token_id"] == config["eos_token_id"] == new["[SEP]"]
    assert "  " not in new  # a run of spaces, which only bytes need


def test_the_padding_id_from_which_positions_count_stays() -> None:
    for case in ("roberta", "xlm-roberta", "mpnet"):
        student = student_of(case, 200, keep="none")
        assert student.parts.hf_config["pad_token_id"] == student.parts.tokenizer.pad_id == 1
        assert student.parts.body.config.position_offset == 2
        new = ids_of(student.parts.tokenizer)
        assert [new[name] for name in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]


def test_an_added_token_of_the_users_stays() -> None:
    parts = parts_of("bert")
    backend = tokenizers.Tokenizer.from_str(parts.tokenizer.backend.to_str())
    backend.add_tokens([AddedToken("<제품>", normalized=False)])
    own = replace(parts, tokenizer=Tokenizer(backend, max_length=48))
    plan = StudentPlan(vocabulary=VocabularyPlan(220))
    student = make_student(own, plan, texts=MANY)
    assert "<제품>" in pieces_of(student.parts.tokenizer, "이 <제품> 좋다")


def test_the_report_shows_what_became_better() -> None:
    figures: Any = student_of("bert", 400).report["vocabulary"]
    before, after = figures["coverage before"], figures["coverage after"]
    assert before["hangul"]["unknown"] == 1.0
    assert after["hangul"]["unknown"] == 0.0
    assert after["hangul"]["tokens per word"] < 4
    assert before["latin"] == after["latin"]
    assert before["hangul"]["words"] == sum(len(text.split()) for text in MANY if text in KOREAN)
    assert figures["hangul corrected"] is True
    json.dumps(figures)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("case", list(CASES))
def test_pieces_of_letters_for_every_family(case: str, kind: Any, tmp_path: Path) -> None:
    student = student_of(case, 260, kind=kind, keep="none", hangul="letters")
    new = student.parts.tokenizer
    unknown = new.backend.token_to_id(new.special_tokens()["unk_token"])
    for text in (*KOREAN, "닭"):  # syllables that no text had are spelt
        assert unknown not in new.backend.encode(text).ids, text
    assert any(len(piece) > 2 and "\u1100" <= piece[-1] <= "\u11ff" for piece in ids_of(new)), "longer pieces"
    before = parts_of(case).tokenizer.backend
    if tears_hangul(before):
        assert str(new.backend.normalizer) == str(before.normalizer), "torn already: nothing is added"
    checkpoint.write_bi(student.parts, tmp_path / "student")
    again = checkpoint.read_bi(tmp_path / "student")
    assert again.tokenizer.encode(TEXTS).ids.tolist() == new.encode(TEXTS).ids.tolist()


def test_letters_are_new_even_where_the_old_vocabulary_has_them() -> None:
    syllables, letters = (student_of("bert", 400, hangul=hangul) for hangul in ("syllables", "letters"))
    for text in ENGLISH:
        assert pieces_of(syllables.parts.tokenizer, text) == pieces_of(letters.parts.tokenizer, text)
    figures: Any = letters.report["vocabulary"]
    assert (figures["hangul"], figures["hangul corrected"]) == ("letters", False)
    assert figures["coverage after"]["hangul"]["unknown"] == 0.0
    assert not [note for note in letters.notes if "jamo" in note]
    assert [note for note in syllables.notes if "jamo" in note]
    jamo = set(map(chr, range(0x1100, 0x1200)))
    old = ids_of(parts_of("bert").tokenizer)
    added = [piece for piece in ids_of(letters.parts.tokenizer) if piece not in old]
    assert sum(len(piece.removeprefix("##")) > 3 and set(piece[2:]) <= jamo for piece in added) > 20


def test_a_long_word_that_is_spelt_is_not_unknown() -> None:
    student = student_of("bert", 400, hangul="letters")
    assert "[UNK]" not in pieces_of(student.parts.tokenizer, "고양이" * 20)  # 140 letters


def test_the_same_texts_give_the_same_student() -> None:
    for kind in ("wordpiece", "unigram"):
        one, two = (student_of("bert", 220, kind=kind, keep="none") for _ in range(2))
        assert one.parts.tokenizer.backend.to_str() == two.parts.tokenizer.backend.to_str()
        assert torch.equal(one.parts.body.embeddings.word.weight, two.parts.body.embeddings.word.weight)


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        ("roberta", {"keep": "used"}, r"the model's is BPE, the plan's wordpiece\. Choose keep='none'"),
        ("bert", {"kind": "unigram", "keep": "all"}, "Choose kind='wordpiece' or keep='none'"),
        ("bert", {"keep": "all", "size": 100}, r"size must be more than \d+ .* got 100; keep='used'"),
        ("xlm-roberta", {"keep": "used"}, "Choose kind='unigram' or keep='none'"),
    ],
)
def test_what_cannot_be_joined_is_an_error(case: str, options: Any, message: str) -> None:
    options = {"size": 300, **options}
    with pytest.raises(InputError, match=message):
        make_student(parts_of(case), StudentPlan(vocabulary=VocabularyPlan(**options)), texts=MANY)


def test_texts_are_needed_and_must_hold_words() -> None:
    plan = StudentPlan(vocabulary=VocabularyPlan(300))
    with pytest.raises(InputError, match="give texts=, or translations="):
        make_student(parts_of("bert"), plan)
    with pytest.raises(InputError, match="hold no words"):
        make_student(parts_of("bert"), plan, texts=["", "  "])
    with pytest.raises(InputError, match="text 1 must be a string, got int"):
        make_student(parts_of("bert"), plan, texts=["a", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="needs translations="):
        make_student(
            parts_of("bert"), StudentPlan(vocabulary=VocabularyPlan(300, embeddings="translations")), texts=TEXTS
        )


@pytest.mark.parametrize(
    "options",
    [
        {"size": 3},
        {"size": 300, "kind": "bpe"},
        {"size": 300, "old_share": 2.0},
        {"size": 300, "min_count": 0},
        {"size": 300, "keep": "all", "old_share": 0.5},
    ],
)
def test_a_vocabulary_plan_is_checked_when_it_is_made(options: Any) -> None:
    with pytest.raises(InputError):
        VocabularyPlan(**options)


def test_a_static_model_has_no_vocabulary_surgery() -> None:
    from munjang.nn.bodies import StaticEmbedding

    with pytest.raises(ModelError, match="another vocabulary needs a body"):
        make_student(
            replace(parts_of("bert"), body=StaticEmbedding(torch.zeros(200, 4))),
            StudentPlan(vocabulary=VocabularyPlan(300)),
            texts=TEXTS,
        )


def test_minilm_extended_by_korean_keeps_its_english(minilm_path: Path) -> None:
    model = BiEncoder.load(minilm_path, device="cpu", dtype="float32")
    plan = StudentPlan(vocabulary=VocabularyPlan(31_200, keep="all"))
    student = make_student(model, plan, texts=KOREAN * 3)
    made = BiEncoder(student.parts, device="cpu", dtype="float32")
    english = [*ENGLISH, "An unforeseeable tokenisation: Zürich's naïve façade, 1984."]
    np.testing.assert_allclose(made.encode(english), model.encode(english), atol=1e-6)
    assert pieces_of(made.tokenizer, "고양이가 강가에서 책을 읽는다") == ["고양이가", "강가에서", "책을", "읽는다"]
    assert len(pieces_of(model.tokenizer, "고양이가 강가에서 책을 읽는다")) > 12
