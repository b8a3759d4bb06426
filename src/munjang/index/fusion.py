"""Score fusion: nearest passages and BM25 hits -> one ranking.

    score(row) = WEIGHT * semantic(row) + (1 - WEIGHT) * keyword(row)

Both scores are normalised for each query alone, whatever else was found:

    semantic   (similarity - unrelated) / (same - unrelated)      see `SimilarityScale`
    keyword    BM25 / the most that a passage could reach with the terms of this query

Weighted sums keep how much better a hit is, which ranks lose: they beat reciprocal ranks on every development set
(models/ko_en/README.md), and lean less on the constant (Bruch, Gai and Ingber 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from munjang.vectors import similarity

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

WEIGHT = 0.8  # of the semantic score; chosen by models/ko_en/09_fusion.py
DEPTH = 100  # documents of each ranking that are fused, whatever the number of hits

# Sentences about different subjects: what a model thinks of two of them is its similarity of unrelated texts.
_UNRELATED = (
    "어제 저녁에는 김치찌개를 끓여 먹었다.",
    "금리가 오르면 대출 이자가 늘어납니다.",
    "강아지가 공원에서 공을 물고 뛰어다닌다.",
    "비밀번호를 잊었을 때는 이메일로 재설정할 수 있습니다.",
    "이 소설은 조선 시대 궁궐을 배경으로 한다.",
    "감기에 걸리면 물을 많이 마시고 쉬세요.",
    "The train to the coast leaves at seven in the morning.",
    "Plant the seeds two centimetres deep after the last frost.",
    "The committee approved the budget for next year.",
    "Restart the computer to finish installing the update.",
    "She won the final by two goals in extra time.",
    "Volcanic ash can make the soil very fertile.",
)


@dataclass(frozen=True)
class SimilarityScale:
    """What a model's similarities mean: of unrelated texts, and of a text with itself.

    Models differ: unrelated texts have a cosine near 0 in one and 0.75 in another.
    """

    unrelated: float
    same: float

    @classmethod
    def of(cls, model: BiEncoder) -> SimilarityScale:
        """Measure a model on a dozen fixed sentences, by its own similarity; once per model and process."""
        key = (model.fingerprint, model.dimension, str(model.dtype))
        if key in _MEASURED:
            return _MEASURED[key]
        texts = list(_UNRELATED)
        names = model.prompt_for("query"), model.prompt_for("document", "passage", "corpus")
        queries, documents = (model.encode_report(texts, prompt_name=name).vectors for name in names)
        values = similarity(queries, documents, model.similarity_name)  # [n, n]
        same = float(np.trace(values)) / len(texts)
        unrelated = float(values.sum() - np.trace(values)) / (len(texts) * (len(texts) - 1))
        # A model that cannot tell texts apart still gets a scale that keeps the order.
        _MEASURED[key] = cls(unrelated, same if same > unrelated + 1e-6 else unrelated + 1.0)
        return _MEASURED[key]

    def normalise(self, scores: Floats) -> Floats:
        """Scores of unrelated texts become 0, those of equal texts 1; the order stays."""
        return ((scores - self.unrelated) / (self.same - self.unrelated)).astype(np.float32)


_MEASURED: dict[tuple[str, int, str], SimilarityScale] = {}  # by fingerprint, dimension and precision


def fuse(
    semantic: tuple[Rows, Floats], keyword: tuple[Rows, Floats], k: int, *, weight: float = WEIGHT
) -> tuple[Rows, Floats]:
    """The k best rows of two rankings and their fused scores, best first; equal scores go to the lower row.

    Args:
        semantic: Rows and normalised scores, best first, each row once.
        keyword: The same. A row that is in one ranking only gets 0 here, and the lowest semantic score there.
        k: How many rows.
        weight: Of the semantic scores, 0 to 1.
    """
    rows = np.union1d(semantic[0], keyword[0])
    lowest = semantic[1].min() if len(semantic[1]) else 0.0
    total = weight * _filled(rows, semantic, lowest) + (1 - weight) * _filled(rows, keyword, 0.0)
    scores = total.astype(np.float32)
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _filled(rows: Rows, ranking: tuple[Rows, Floats], missing: float) -> NDArray[np.float64]:
    values = np.full(len(rows), missing)
    values[np.searchsorted(rows, ranking[0])] = ranking[1]
    return values
