"""Which pairs of ParaKQC are found: `mine_paraphrases` beside sentence-transformers' function and TF-IDF.

Enters: the set and models. Leaves: one table. The groups are cut in two, as they are for a model's own thresholds: the
first 300 say from which score on a pair counts, the other 700 are measured on. So no figure rests on a threshold that
was chosen by looking at the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.application_vectors import Array, Asked
from benchmarks.twins import Said, TwinTable
from munjang.data import Examples, load_dataset
from munjang.evaluation.metrics import average_precision, best_f1
from munjang.tasks.paraphrases import mine_paraphrases

TOP, PER_TEXT = 500_000, 100  # sentence-transformers' defaults
TITLE = Said("Paraphrases of Korean questions and commands", "한국어 질문과 명령의 같은 뜻 찾기")
COLUMNS = (
    Said("pairs by", "쌍을 찾은 것"),
    Said("average precision", "평균 정밀도"),
    "F1",
    Said("precision", "정밀도"),
    Said("recall", "재현율"),
)
NOTE = Said(
    "ParaKQC: {rows} texts in {groups} groups that say the same, {positives} pairs to find; x 100. A pair counts "
    "from the score with the best F1 on {chosen} other groups. Munjang: `mine_paraphrases(top=500_000, "
    "per_text=100)`; sentence-transformers: `paraphrase_mining_embeddings`, on the same vectors. TF-IDF: "
    "scikit-learn, 1 to 3 characters within words, the 100 nearest by cosine.",
    "ParaKQC: 뜻이 같은 것끼리 {groups}묶음을 이루는 글 {rows}개, 찾을 쌍 {positives}개. 값은 x 100입니다. 다른 "
    "{chosen}묶음에서 F1이 가장 좋은 점수부터 쌍으로 셉니다. Munjang: `mine_paraphrases(top=500_000, "
    "per_text=100)`. sentence-transformers: 같은 벡터에 `paraphrase_mining_embeddings`. TF-IDF: scikit-learn, "
    "낱말 안의 글자 1~3개, 코사인으로 가장 가까운 100개.",
)


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows, best first."""

    scores: Array  # [m]
    rows: Array  # int64 [m, 2]


Miner = Callable[[Examples], Pairs]


def parakqc_parts(examples: Examples) -> tuple[Examples, Examples]:
    """ParaKQC split by whole groups: the first 300, which models/ko_en calibrates thresholds on, and the others."""
    first = set(sorted(examples.labels)[: min(300, round(0.3 * len(examples.labels)))])
    inside = np.array([examples.labels[int(target)] in first for target in np.asarray(examples.targets)])
    return examples.take(np.flatnonzero(inside)), examples.take(np.flatnonzero(~inside))


def measure(data: Path, asked: Sequence[Asked], *, limit: int | None = None) -> list[TwinTable]:
    """One row for each way of finding pairs. limit: at most so many texts of each part, in whole groups."""
    first, other = (_first(part, limit) for part in parakqc_parts(load_dataset("parakqc", "test", data)))
    ways: list[tuple[str, Miner]] = [(f"Munjang, {one.name}", _ours(one)) for one in asked]
    ways += [(f"sentence-transformers, {one.name}", _theirs(one)) for one in asked[:1]]
    ways.append(("TF-IDF, scikit-learn", tf_idf))
    note = NOTE.format(
        rows=f"{len(other):,}", groups=_groups(other), positives=f"{_positives(other):,}", chosen=_groups(first)
    )
    table = TwinTable(TITLE, COLUMNS, note=note)
    for name, miner in ways:
        figures = score(miner(first), first, miner(other), other)
        table.rows.append((name, *(f"{100 * value:.1f}" for value in figures)))
        print(table.rows[-1], flush=True)
    return [table]


def score(chosen: Pairs, first: Examples, found: Pairs, other: Examples) -> tuple[float, float, float, float]:
    """Average precision; F1, precision and recall at the threshold that is best on the first part."""
    threshold = best_f1(_same(chosen, first), chosen.scores, positives=_positives(first)).threshold
    same, total = _same(found, other), _positives(other)
    counted = found.scores >= threshold
    right = int((same & counted).sum())
    precision, recall = right / max(1, int(counted.sum())), right / total
    f1 = 2 * precision * recall / max(1e-12, precision + recall)
    return average_precision(same, found.scores, positives=total), f1, precision, recall


def _ours(asked: Asked) -> Miner:
    def mined(examples: Examples) -> Pairs:
        vectors = asked.vectors(examples.columns["text"], examples.name)
        found = mine_paraphrases(vectors, top=TOP, per_text=PER_TEXT)
        return Pairs(found.scores, found.pairs)

    return mined


def _theirs(asked: Asked) -> Miner:
    def mined(examples: Examples) -> Pairs:
        import torch
        from sentence_transformers.util import paraphrase_mining_embeddings

        vectors = torch.from_numpy(asked.vectors(examples.columns["text"], examples.name))
        found = paraphrase_mining_embeddings(vectors, max_pairs=TOP, top_k=PER_TEXT)
        scores, left, right = (np.array(column) for column in zip(*found, strict=True))
        return Pairs(scores, np.stack([left, right], axis=1))

    return mined


def tf_idf(examples: Examples) -> Pairs:
    """Every text's nearest others by the cosine of TF-IDF, each pair once."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    counted = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(1, 3))
    rows = counted.fit_transform(examples.columns["text"])
    count = min(PER_TEXT, len(examples) - 1)
    nearest = NearestNeighbors(n_neighbors=count, metric="cosine", algorithm="brute").fit(rows)
    distances, others = nearest.kneighbors()  # without arguments: of the rows themselves, which are left out
    own = np.repeat(np.arange(len(examples)), count)
    pairs = np.sort(np.stack([own, others.reshape(-1)], axis=1), axis=1)
    pairs, places = np.unique(pairs, axis=0, return_index=True)
    scores = 1 - distances.reshape(-1)[places]
    order = np.argsort(-scores, kind="stable")[:TOP]
    return Pairs(scores[order], pairs[order])


def _first(examples: Examples, limit: int | None) -> Examples:
    """The first whole groups with at most so many texts."""
    if limit is None:
        return examples
    targets = _targets(examples)
    groups = np.unique(targets)
    sizes = np.array([(targets == group).sum() for group in groups])
    kept = groups[np.cumsum(sizes) <= limit]
    if not len(kept):
        raise SystemExit(f"--limit must be at least {sizes[0]}, a group of {examples.name}, got {limit}")
    return examples.take(np.flatnonzero(np.isin(targets, kept)))


def _same(pairs: Pairs, examples: Examples) -> Array:  # bool [m]
    targets = _targets(examples)
    same: Array = targets[pairs.rows[:, 0]] == targets[pairs.rows[:, 1]]
    return same


def _positives(examples: Examples) -> int:
    sizes = np.bincount(_targets(examples))
    return int((sizes * (sizes - 1) // 2).sum())


def _groups(examples: Examples) -> int:
    return len(np.unique(_targets(examples)))


def _targets(examples: Examples) -> Array:
    assert examples.targets is not None
    return examples.targets
