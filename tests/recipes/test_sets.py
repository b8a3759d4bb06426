"""Which kind of data a file is taken for: a label or a score beside two texts is never overlooked."""

from __future__ import annotations

from pathlib import Path

import pytest

from munjang.errors import InputError
from munjang.recipes import SetOptions
from munjang.recipes.sets import read_sets
from munjang.recipes.tasks import KINDS

ROWS = {
    "label": ["가나\t다라\tentailment", "마바\t사아\tcontradiction", "자차\t카타\tneutral"],
    "score": ["가나\t다라\t0.5", "마바\t사아\t1", "자차\t카타\t0"],
    "": ["가나\t다라", "마바\t사아", "자차\t카타"],
    "negative": ["가나\t다라\t하하", "마바\t사아\t호호", "자차\t카타\t히히"],
}


def kind_of(path: Path, recipe: str, header: str, rows: list[str], **more: object) -> str:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    sets = read_sets(path, None, None, kinds=KINDS[recipe], options=SetOptions(**more))  # type: ignore[index, arg-type]
    return sets.train[0].kind


@pytest.mark.parametrize(
    ("recipe", "third", "wanted"),
    [
        ("contrastive", "label", "labelled"),
        ("contrastive", "score", "scored"),
        ("contrastive", "", "pairs"),
        ("contrastive", "negative", "pairs"),
        ("triplet", "label", "labelled"),
        ("triplet", "negative", "pairs"),
        ("cross_rank", "score", "scored"),
        ("cross_rank", "negative", "pairs"),
        ("nli", "label", "labelled"),
        ("nli", "negative", "pairs"),
    ],
)
def test_the_third_column_decides(recipe: str, third: str, wanted: str, tmp_path: Path) -> None:
    header = "\t".join(filter(None, ("sentence1", "sentence2", third)))
    assert kind_of(tmp_path / "x.tsv", recipe, header, ROWS[third]) == wanted


def test_pairs_with_0_and_1_are_no_positives(tmp_path: Path) -> None:
    header, rows = "question1\tquestion2\tis_duplicate", ["가\t나\t1", "다\t라\t0", "마\t바\t1"]
    with pytest.raises(InputError, match="--labels different,same"):
        kind_of(tmp_path / "x.tsv", "contrastive", header, rows)
    assert kind_of(tmp_path / "x.tsv", "contrastive", header, rows, labels=("different", "same")) == "labelled"


def test_named_roles_are_obeyed(tmp_path: Path) -> None:
    columns = {"anchor": "sentence1", "positive": "sentence2"}
    header = "sentence1\tsentence2\tlabel"
    assert kind_of(tmp_path / "x.tsv", "contrastive", header, ROWS["label"], columns=columns) == "pairs"
