"""What Augmented SBERT may be told, and what it does where nothing is said. Nothing here imports torch or numpy: the
command line shows it.
"""

from __future__ import annotations

from typing import Literal

Mix = Literal["together", "then"]
RetrieveWith = Literal["trained", "given"]
BiObjective = Literal["cosine", "cosent"]
CrossObjective = Literal["order", "bce", "mse"]

STRATEGIES: tuple[str, ...] = ("semantic", "bm25", "random", "kde")
BALANCES: tuple[str, ...] = ("none", "gold", "uniform")
MIXES: tuple[Mix, ...] = ("together", "then")
RETRIEVERS: tuple[RetrieveWith, ...] = ("trained", "given")
BI_OBJECTIVES: tuple[BiObjective, ...] = ("cosine", "cosent")  # the first is the paper's

# Order (with bce) first: what silver pairs must be right in is which of two is more alike.
CROSS_OBJECTIVES: tuple[CrossObjective, ...] = ("order", "bce", "mse")

TOP_K = 5  # neighbours of every sentence
PRETRAIN_PAIRS = 200_000  # pairs that a cross-encoder is prepared on, at most
PRETRAIN: dict[str, object] = {"epochs": 2.0, "batch_size": 128}  # exact targets, and many: large batches, two passes
# Labelled pairs are few beside the silver ones; by their number alone they would be drowned. With this temperature
# 1,000 pairs beside 36,000 take a fifth of the steps.
MIXING: dict[str, object] = {"sampling": "temperature", "temperature": 3.0}

TWO_WAYS = (
    "either gold (few labelled pairs; domain may add plain sentences), or domain (plain sentences) together with "
    "public (labelled sets of another domain)"
)
