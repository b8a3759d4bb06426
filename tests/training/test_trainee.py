"""What the loop sees of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.text.tokenizer import Tokenizer
from munjang.training import trainee
from munjang.training.trainee import Trainee
from training.material import EVERY


@pytest.mark.parametrize("cross", [False, True])
def test_texts_that_stand_there_again_and_again_are_tokenised_once(
    minilm_path: Path, monkeypatch: pytest.MonkeyPatch, cross: bool
) -> None:
    bi = BiEncoder.load(minilm_path, device="cpu", max_length=12)
    model = CrossEncoder.from_body(bi, 1, device="cpu") if cross else bi
    rng = np.random.default_rng(0)
    a, b = ([EVERY[place] for place in rng.integers(0, 10, 60)] for _ in range(2))
    examples = Examples("pairs", "scored", {"a": a, "b": b}, rng.random(60).astype(np.float32))
    given = Trainee(model, "float32", None)
    plain = given.streams(examples)
    asked: list[int] = []
    whole = Tokenizer.with_cache
    monkeypatch.setattr(Tokenizer, "with_cache", lambda self, texts: asked.append(len(texts)) or whole(self, texts))
    monkeypatch.setattr(trainee, "_MANY", 100)
    known = given.streams(examples)
    given.finish()
    assert asked == [len({*a, *b})]
    for one, other in zip(plain, known, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.lengths.tolist() == other.lengths.tolist()
        assert (one.truncated, one.longest) == (other.truncated, other.longest)
        assert (one.segments is None) == (other.segments is None)
        if one.segments is not None:
            assert one.segments.tolist() == other.segments.tolist()
    different = Examples("different", "plain", {"text": EVERY[:120]})
    trainee._remembering(model.parts.tokenizer, list(different.columns.values()))
    assert len(asked) == 1, "texts that stand there once are tokenised as always"
