"""What others published, for the tables: figures that we did not measure, each with where it comes from.

Spearman x 100. Only what the source gives is here; a set that it does not give stays empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["bi", "cross"]


@dataclass(frozen=True)
class Published:
    """A published row: a model, its scores by the name of the set, and who says so."""

    name: str
    scores: Mapping[str, float]
    source: str
    kind: Kind = "bi"


_SETS = ("KorSTS test", "KLUE-STS dev", "STSb test")
_YEARS = tuple(f"STS{year} test" for year in range(12, 17))
_CARDS = "model cards"
_KORNLU = "Ham et al. 2020 (KorNLI and KorSTS)"
_SBERT = "Reimers and Gurevych 2019, table 1"


def _korean(name: str, *values: float) -> Published:
    return Published(name, dict(zip(_SETS, values, strict=False)), _CARDS)


def _paper(name: str, *values: float) -> Published:
    return Published(name, dict(zip((*_YEARS, "STSb test"), values, strict=True)), _SBERT)


SIMILARITY: tuple[Published, ...] = (
    _korean("distiluse-base-multilingual-cased-v2", 74.75, 78.55, 81.93),
    _korean("paraphrase-multilingual-mpnet-base-v2", 82.01, 79.93, 89.07),
    _korean("albert-small-kor-sbert-v1", 83.05, 85.88, 84.19),
    _korean("albert-small-kor-sbert-v1.1", 85.26, 88.33, 84.84),
    _korean("kpf-sbert-v1.1", 87.50, 89.00, 88.63),
    _korean("ko-sroberta-multitask", 85.60),
    _korean("KoSimCSE-RoBERTa-multitask", 86.12),
    Published("Korean RoBERTa base, cross-encoder", {"KorSTS test": 83.00}, _KORNLU, "cross"),
    Published("XLM-R base, cross-encoder", {"KorSTS test": 77.78}, _KORNLU, "cross"),
)
ENGLISH: tuple[Published, ...] = (
    _paper("GloVe, mean", 55.14, 70.66, 59.73, 68.25, 63.66, 58.02),
    _paper("Universal Sentence Encoder", 64.49, 67.80, 64.61, 76.83, 73.18, 74.92),
    _paper("SBERT-NLI-base", 70.97, 76.53, 73.19, 79.09, 74.30, 77.03),
    _paper("SBERT-NLI-large", 72.27, 78.46, 74.90, 80.99, 76.25, 79.23),
)
