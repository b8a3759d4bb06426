"""Students made on the spot: a smaller model, or one with another vocabulary, out of one that is there.

    plan = StudentPlan(layers=3, vocabulary=VocabularyPlan(size=32_000, embeddings="translations"))
    student = make_student(model, plan, texts=texts, translations=(english, korean))
    student.parts  ->  BiEncoder(student.parts), to be taught by munjang.recipes.distill

    plans        what is asked for
    layers       fewer layers, chosen evenly
    width        a narrower body
    projection   vectors of another width, by a Dense layer
    normaliser   normalisers that tear Hangul into jamo, found and corrected
    vocabulary   which old pieces stay and which new ones come
    trainers     new pieces out of the user's texts
    assembling   pieces -> a tokenizer, its files and config.json's ids right
    embeddings   the first rows of new pieces, out of the old ones
    alignment    IBM Model 1: which old pieces translate a new one
    guided       a model that knows both languages says what a new piece is like
    coverage     unknown words and tokens per word, before and after
    surgery      all of the vocabulary's steps in a row
    rebuilding   a body anew from a config and weights
    making       make_student

Read on first use: `import munjang.students` does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from munjang.students.layers import fewer_layers
    from munjang.students.making import Student, make_student
    from munjang.students.normaliser import tears_hangul
    from munjang.students.plans import StudentPlan, VocabularyPlan
    from munjang.students.projection import projected
    from munjang.students.width import narrower

__all__ = [
    "Student",
    "StudentPlan",
    "VocabularyPlan",
    "fewer_layers",
    "make_student",
    "narrower",
    "projected",
    "tears_hangul",
]

_LAZY = {
    "Student": "munjang.students.making",
    "StudentPlan": "munjang.students.plans",
    "VocabularyPlan": "munjang.students.plans",
    "fewer_layers": "munjang.students.layers",
    "make_student": "munjang.students.making",
    "narrower": "munjang.students.width",
    "projected": "munjang.students.projection",
    "tears_hangul": "munjang.students.normaliser",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'munjang.students' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
