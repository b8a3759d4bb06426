"""Fewer positions: the same vectors for texts that are short enough, saved and read the same, the given untouched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.ko_en_0_1.positions import fewer_positions
from munjang import checkpoint
from munjang.bi_encoder import BiEncoder
from munjang.errors import InputError, ModelError
from students.material import CASES, KOREAN, parts_of, theirs, vectors

TABLED = [case for case in CASES if case != "modernbert"]
POSITIONS = 40  # of 64


@pytest.mark.parametrize("case", TABLED)
def test_what_it_reads_is_the_same(case: str, tmp_path: Path) -> None:
    parts = parts_of(case)
    parts.tokenizer.max_length = POSITIONS
    before, old = vectors(parts), parts.body.config
    body, config = fewer_positions(parts.body, parts.hf_config, POSITIONS)
    assert body.max_positions == POSITIONS
    assert old.position_rows - body.config.position_rows == old.max_positions - POSITIONS
    assert parts.body.config == old, "the given one stays"
    short = replace(parts, body=body, hf_config=config)
    np.testing.assert_array_equal(vectors(short), before)
    checkpoint.write(short, tmp_path / "short")
    np.testing.assert_allclose(vectors(checkpoint.read(tmp_path / "short")), before, atol=1e-6)


@pytest.mark.parametrize("case", ["bert", "distilbert", "mpnet"])
def test_sentence_transformers_reads_it_to_the_same_vectors(case: str, tmp_path: Path) -> None:
    parts = parts_of(case)
    body, config = fewer_positions(parts.body, parts.hf_config, POSITIONS)
    parts.tokenizer.max_length = POSITIONS
    short = replace(parts, body=body, hf_config=config)
    checkpoint.write(short, tmp_path / "short")
    np.testing.assert_allclose(theirs(tmp_path / "short"), vectors(short), atol=2e-6)


def test_a_longer_text_is_cut_and_more_is_refused() -> None:
    parts = parts_of("bert")
    body, config = fewer_positions(parts.body, parts.hf_config, 8)
    parts.tokenizer.max_length = 8
    model = BiEncoder(replace(parts, body=body, hf_config=config), device="cpu")
    with pytest.warns(UserWarning, match="longer than 8 tokens"):
        assert model.encode(KOREAN).shape == (len(KOREAN), 32)
    with pytest.raises(InputError, match="at most 8"):
        model.max_length = 9


@pytest.mark.parametrize("positions", [0, -1, 65])
def test_positions_that_it_does_not_have_are_refused(positions: int) -> None:
    parts = parts_of("bert")
    with pytest.raises(InputError, match=f"positions must be 1..64 .*got {positions}"):
        fewer_positions(parts.body, parts.hf_config, positions)


def test_a_body_without_a_table_is_refused() -> None:
    parts = parts_of("modernbert")
    with pytest.raises(ModelError, match="no table of positions to shorten: its family is 'modernbert'"):
        fewer_positions(parts.body, parts.hf_config, 10)
