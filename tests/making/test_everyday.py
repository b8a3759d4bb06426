"""Everyday questions over the sample corpus: well-formed, and lists that hold every answer."""

from __future__ import annotations

import re

import numpy as np

from models.ko_en.everyday import Question, everyday_lists, read_passages, read_questions
from munjang.bi_encoder import BiEncoder
from munjang.demo import corpus
from training.material import tiny_parts


def test_the_questions_name_passages_of_the_sample_corpus() -> None:
    questions, passages = read_questions(), read_passages()
    assert passages == {one["id"]: one["text"] for one in corpus.documents()}
    assert all(one.answers <= passages.keys() for one in questions)
    assert len({one.query.casefold().strip() for one in questions}) == len(questions)
    korean = [one for one in questions if re.search("[가-힣]", one.query)]
    for some in (korean, [one for one in questions if one not in korean]):
        assert sum(bool(one.answers) for one in some) >= 100
        assert sum(not one.answers for one in some) >= 50


def test_passages_that_say_the_same_answer_the_same() -> None:
    for one in read_questions():
        for ids in corpus.groups().values():
            assert not one.answers & set(ids) or set(ids) <= one.answers, (one.query, ids)


def test_lists_hold_the_nearest_and_every_answer() -> None:
    model = BiEncoder(tiny_parts(), device="cpu", dtype="float32")
    texts = ["비가 온다", "고양이가 잔다", "a dog runs", "the cat sleeps"]
    passages = {f"p{row}": text for row, text in enumerate(texts)}
    questions = [Question("고양이", frozenset({"p1", "p3"})), Question("주가", frozenset())]
    found = everyday_lists(model, 2, questions=questions, passages=passages)
    assert found.targets is not None
    assert found.groups is not None
    rows = list(zip(found.groups.tolist(), found.columns["query"], found.columns["document"], strict=True))
    assert len(set(rows)) == len(rows)
    first = {text: target for (group, _, text), target in zip(rows, found.targets.tolist(), strict=True) if group == 0}
    assert {text for text, target in first.items() if target} == {passages["p1"], passages["p3"]}
    cosines = model.encode(["고양이"], normalize=True) @ model.encode(texts, normalize=True).T
    assert {texts[place] for place in np.argsort(-cosines[0])[:2]} <= first.keys()
    assert found.targets[found.groups == 1].tolist() == [0.0, 0.0]
