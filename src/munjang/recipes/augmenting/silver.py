"""The silver set: pairs that cross-encoders labelled, as a file that people can read, edit and give to anything.

    sentence1 <tab> sentence2 <tab> score <tab> spread <tab> origin

Tab-separated without quoting: quotation marks are part of the texts, tabs and line ends in them become spaces. score is
0..1 with four decimals, spread how far the readings of the cross-encoders differ, origin which strategies found the
pair (bm25+semantic). Also here: what the report tells of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.examples import Examples
from munjang.data.reading import read_examples
from munjang.data.rows import ReadOptions, open_rows
from munjang.errors import InputError
from munjang.evaluation.metrics import pearson, spearman
from munjang.files import atomic_path, disk_errors
from munjang.recipes.augmenting.pairs import CandidatePairs, origin_name
from munjang.recipes.augmenting.sampling import bin_of
from munjang.recipes.augmenting.scoring import PairScores
from munjang.recipes.augmenting.sentences import Sentences

Array: TypeAlias = npt.NDArray[Any]

HEADER = ("sentence1", "sentence2", "score", "spread", "origin")
NAME = "silver"
_WINDOW = 65_536  # pairs written at once
_BREAKS = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True)
class Agreement:
    """How well scores agree with gold; a correlation is None where one side is constant."""

    pairs: int
    spearman: float | None
    pearson: float | None
    mean_difference: float  # mean of |score - gold|


def write_silver(
    path: str | Path, pairs: CandidatePairs, sentences: Sentences, *, scores: PairScores, mask: Array
) -> int:
    """Write the pairs that the mask keeps; return how many. The file has its name only when it is whole."""
    if not len(pairs) == len(scores) == len(mask):
        raise InputError(
            f"pairs, scores and mask must be of one length, got {len(pairs):,}, {len(scores):,} and {len(mask):,}"
        )
    if not mask.any():
        raise InputError(f"not one of {len(pairs):,} pairs is kept, so there is no silver set: sample less strictly")
    target = Path(path)
    with (
        disk_errors(target, safe="the file as it was stays; make room and call it again"),
        atomic_path(target) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        file.write("\t".join(HEADER) + "\n")
        for window in pairs.windows(_WINDOW):
            file.writelines(_lines(pairs, sentences, scores, np.flatnonzero(mask[window]) + window.start))
    return int(np.count_nonzero(mask))


def read_silver(path: str | Path) -> Examples:
    """The silver set as scored examples; rows that cannot be used are refused and counted in `reading`.

    A sentence that stands in many pairs is held once.
    """
    source = open_rows(path, options=ReadOptions("tsv", quoting=False))
    known: dict[str, str] = {}

    def shared(row: Mapping[str, object]) -> dict[str, object]:
        return {name: known.setdefault(str(cell), str(cell)) for name, cell in row.items()}

    columns = {"a": HEADER[0], "b": HEADER[1], "score": HEADER[2]}
    rows = source.map(shared)
    return read_examples(rows, kind="scored", columns=columns, score_range=(0.0, 1.0), name=NAME, drop_outside=True)


def histogram(scores: npt.ArrayLike, bins: int = 20) -> list[int]:
    """How many scores fall into each of equal parts of 0..1."""
    values = np.asarray(scores)
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise InputError(f"scores must be in 0..1, got {values.min():g}..{values.max():g}")
    found: list[int] = np.bincount(bin_of(values, bins), minlength=bins).tolist()
    return found


def agreement(scores: npt.ArrayLike, gold: npt.ArrayLike) -> Agreement:
    """Scores of a cross-encoder beside the gold scores of the same pairs, both 0..1 [n]."""
    left, right = np.asarray(scores, np.float64), np.asarray(gold, np.float64)
    if left.shape != right.shape or left.ndim != 1 or not len(left):
        raise InputError(f"scores and gold must be [n], of one length; got {list(left.shape)} and {list(right.shape)}")
    constant = left.min() == left.max() or right.min() == right.max()
    return Agreement(
        len(left),
        None if constant else spearman(left, right),
        None if constant else pearson(left, right),
        float(np.abs(left - right).mean()),
    )


def _lines(pairs: CandidatePairs, sentences: Sentences, scores: PairScores, rows: Array) -> Iterator[str]:
    columns: Sequence[Array] = (pairs.left, pairs.right, scores.scores, scores.spread, pairs.origin)
    for left, right, score, spread, bits in zip(*(column[rows].tolist() for column in columns), strict=True):
        one, other = sentences[left].translate(_BREAKS), sentences[right].translate(_BREAKS)
        yield f"{one}\t{other}\t{score:.4f}\t{spread:.4f}\t{origin_name(bits)}\n"
