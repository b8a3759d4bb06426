"""Bodies that run through `transformers`: the vectors of sentence-transformers both ways, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import munjang
from munjang.errors import ModelError

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.ModelWarning")


def encode(folder: Path, texts: list[str]) -> np.ndarray[Any, Any]:
    return np.asarray(munjang.load(folder, device="cpu", dtype="float32").encode(texts))


@pytest.mark.parametrize(
    "family",
    [
        "t5",
        "mt5",
        "umt5",
        "longt5",
        "bart",
        "mbart",
        "xlnet",
        "gpt2",
        "funnel",
        "longformer",
        "deberta-v2",
        "nomic_bert",
    ],
)
def test_the_vectors_of_sentence_transformers_both_ways(
    family: str, bodies: Callable[[str], Path], texts: list[str], theirs: Any, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bodies(family)), device="cpu", local_files_only=True)
    expected = np.asarray(model.encode(texts))
    np.testing.assert_allclose(encode(bodies(family), texts), expected, atol=1e-5)
    model.save(str(tmp_path / "theirs"))
    np.testing.assert_allclose(encode(tmp_path / "theirs", texts), expected, atol=1e-5)
    munjang.load(tmp_path / "theirs", device="cpu").save(tmp_path / "ours")
    np.testing.assert_allclose(theirs(tmp_path / "ours", texts), expected, atol=1e-5)
    np.testing.assert_allclose(encode(tmp_path / "ours", texts), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("marian", "encoder-decoder"),
        ("big_bird", "block-sparse"),
        ("reformer", "does not fit|shape"),
        ("lilt", "cannot encode"),
        ("perceiver", "does not fit|no text encoder"),
    ],
)
def test_what_cannot_be_right_is_refused(family: str, message: str, bodies: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match=message):
        munjang.load(bodies(family), device="cpu")


def test_a_classifier_of_an_unknown_kind_gets_no_new_head(bodies: Callable[[str], Path], tmp_path: Path) -> None:
    from transformers import BartForSequenceClassification

    BartForSequenceClassification.from_pretrained(bodies("bart")).save_pretrained(tmp_path)
    for file in bodies("bart").glob("*token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ModelError, match=r"bart.*is not known"):
        munjang.load_cross_encoder(tmp_path, device="cpu")


def test_xlnet_with_segments_is_refused(
    bodies: Callable[[str], Path], tmp_path: Path, write_json: Callable[[Path, object], None]
) -> None:
    for file in bodies("xlnet").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    write_json(tmp_path / "tokenizer_config.json", {"model_input_names": ["input_ids", "token_type_ids"]})
    with pytest.raises(ModelError, match="token_type_ids"):
        munjang.load(tmp_path, device="cpu")


def test_padding_does_not_change_vectors(bodies: Callable[[str], Path], texts: list[str], theirs: Any) -> None:
    """FNet mixes padding in: it gets none, and a text has the vector that it has alone."""
    expected = np.concatenate([theirs(bodies("fnet"), [text]) for text in texts])
    assert np.abs(theirs(bodies("fnet"), texts) - expected).max() > 0.01
    np.testing.assert_allclose(encode(bodies("fnet"), texts), expected, atol=1e-5)
