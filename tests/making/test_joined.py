"""Two teachers as one: its cosines are theirs, weighted; what it is made of decides its fingerprint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.ko_en_0_1.joined import JoinedTeacher
from munjang.bi_encoder import BiEncoder
from munjang.errors import InputError
from munjang.recipes.distilling.options import VectorTeacher

TEXTS = ["비가 온다.", "It rains.", "기타를 친다", "a man plays the guitar", "책", "", "지하철 첫차는 몇 시인가요?"]


class First:
    """A vector for every text, by its letters, of no length in particular."""

    dimension = 5

    def __init__(self, fingerprint: str = "first") -> None:
        self.fingerprint = fingerprint
        self.seen: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.seen += texts
        return np.stack([np.random.default_rng([7, *text.encode()]).normal(size=5) for text in texts])


@pytest.fixture(scope="module")
def second(tiny: Path) -> BiEncoder:
    return BiEncoder.load(tiny, device="cpu", dtype="float32")


def units(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 0.95), st.sampled_from(["", "query: "]))
def test_cosines_are_those_of_both(second: BiEncoder, share: float, prompt: str) -> None:
    joined = JoinedTeacher(First(), second, TEXTS[:4], share=share, prompt=prompt)
    found = joined.encode(TEXTS)
    assert (found.dtype, found.shape) == (np.float32, (len(TEXTS), 5 + second.dimension))
    assert joined.dimension == found.shape[1]
    first = units(First().encode(TEXTS))
    plain = [units(second.encode([prompt + text for text in some])) for some in (TEXTS, TEXTS[:4])]
    others = units(plain[0] - plain[1].mean(axis=0))
    wanted = (1 - share) * first @ first.T + share * others @ others.T
    assert np.allclose(found @ found.T, wanted, atol=1e-4)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_the_prompt_is_for_the_second_alone(second: BiEncoder) -> None:
    first = First()
    JoinedTeacher(first, second, TEXTS, share=0.5, prompt="query: ").encode(TEXTS[:2])
    assert first.seen == TEXTS[:2], "nor is the first asked for the middle"


def test_nothing_is_computed_before_it_is_asked(second: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A making whose stages are all done needs the fingerprint alone."""
    with monkeypatch.context() as patch:
        patch.setattr(BiEncoder, "encode", lambda *given, **more: pytest.fail("too early"))
        joined = JoinedTeacher(First(), second, TEXTS, share=0.5)
        assert len(joined.fingerprint) == 64
    assert np.allclose(joined.encode(TEXTS), JoinedTeacher(First(), second, TEXTS, share=0.5).encode(TEXTS), atol=1e-5)


def test_it_is_a_teacher_like_any_other(second: BiEncoder) -> None:
    joined = JoinedTeacher(First(), second, TEXTS, share=0.5)
    assert isinstance(joined, VectorTeacher)
    assert joined.device == second.device


def test_everything_that_changes_the_vectors_changes_the_fingerprint(second: BiEncoder) -> None:
    prints = {
        JoinedTeacher(first, second, texts, share=share, prompt=prompt).fingerprint
        for first, texts, share, prompt in (
            (First(), TEXTS, 0.5, ""),
            (First("other"), TEXTS, 0.5, ""),
            (First(), TEXTS[:3], 0.5, ""),
            (First(), TEXTS, 0.6, ""),
            (First(), TEXTS, 0.5, "query: "),
        )
    }
    assert len(prints) == 5
    assert JoinedTeacher(First(), second, TEXTS, share=0.5).fingerprint in prints, "and nothing else does"


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_a_share_that_is_none_is_refused(second: BiEncoder, share: float) -> None:
    with pytest.raises(InputError, match="share must be between 0 and 1, got"):
        JoinedTeacher(First(), second, TEXTS, share=share)


def test_without_texts_there_is_no_middle(second: BiEncoder) -> None:
    with pytest.raises(InputError, match=r"whose mean is the middle .* got none"):
        JoinedTeacher(First(), second, [], share=0.5)
