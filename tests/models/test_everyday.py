"""Everyday questions over the sample corpus: enough of each kind, and answers that exist."""

from __future__ import annotations

import re

from models.ko_en.everyday import read_questions
from munjang.demo import corpus


def test_the_questions_name_passages_of_the_sample_corpus() -> None:
    questions = read_questions()
    assert all(one.answers <= {document["id"] for document in corpus.documents()} for one in questions)
    assert len({one.query.casefold().strip() for one in questions}) == len(questions)
    korean = [one for one in questions if re.search("[가-힣]", one.query)]
    for some in (korean, [one for one in questions if one not in korean]):
        assert sum(bool(one.answers) for one in some) >= 100
        assert sum(not one.answers for one in some) >= 50


def test_passages_that_say_the_same_answer_the_same() -> None:
    for one in read_questions():
        for ids in corpus.groups().values():
            assert not one.answers & set(ids) or set(ids) <= one.answers, (one.query, ids)
