"""What Augmented SBERT may be told, and what it does where nothing is said. Nothing here imports torch or numpy: the
command line shows it.
"""

from __future__ import annotations

from typing import Literal

Mix = Literal["together", "then"]
RetrieveWith = Literal["trained", "given"]
BiObjective = Literal["cosine", "cosent"]

STRATEGIES: tuple[str, ...] = ("semantic", "bm25", "random", "kde")
BALANCES: tuple[str, ...] = ("none", "gold", "uniform")
MIXES: tuple[Mix, ...] = ("together", "then")
RETRIEVERS: tuple[RetrieveWith, ...] = ("trained", "given")
BI_OBJECTIVES: tuple[BiObjective, ...] = ("cosine", "cosent")  # the first is the paper's

TOP_K = 5  # neighbours of every sentence
PRETRAIN_PAIRS = 100_000  # candidates that a cross-encoder is prepared on, at most

TWO_WAYS = (
    "either gold (few labelled pairs; domain may add plain sentences), or domain (plain sentences) together with "
    "public (labelled sets of another domain)"
)
