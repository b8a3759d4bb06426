"""Augmented SBERT: few labelled pairs, or none, become many, labelled by a cross-encoder (Thakur et al. 2021).

    sentences.py   labelled sets, plain texts -> the different sentences that pairs are made of
    pairs.py       which pairs may be made at all; the pairs themselves, on disk
    candidates.py  sentences -> candidate pairs: by neighbours.py (vectors), bm25.py (words), at random
    scoring.py     candidate pairs -> scores of cross-encoders, and how far these differ
    sampling.py    scores -> which pairs are kept; density.py has the distributions
    silver.py      what is kept -> silver.tsv, which people can read and edit
    parts.py       finished pieces of long work, so that a killed run goes on
    running.py     all of it, stage by stage: `augmented`. material.py reads what is given, labelling.py and
                   trainings.py are the stages, report.py shows what came of them

    munjang.recipes.augmented(model, gold=..., options=AugmentOptions(folder="runs/augmented"))

Read on first use, as `munjang.recipes` is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from munjang.recipes.augmenting.candidates import Candidates, Strategy, find_candidates
    from munjang.recipes.augmenting.pairs import CandidatePairs, PairFilter, origin_counts, origin_name
    from munjang.recipes.augmenting.sampling import Balance, Sampled, Sampling, sample
    from munjang.recipes.augmenting.scoring import PairScores, score_candidates
    from munjang.recipes.augmenting.sentences import Sentences, collect
    from munjang.recipes.augmenting.silver import Agreement, agreement, histogram, read_silver, write_silver

__all__ = [
    "Agreement",
    "Balance",
    "CandidatePairs",
    "Candidates",
    "PairFilter",
    "PairScores",
    "Sampled",
    "Sampling",
    "Sentences",
    "Strategy",
    "agreement",
    "collect",
    "find_candidates",
    "histogram",
    "origin_counts",
    "origin_name",
    "read_silver",
    "sample",
    "score_candidates",
    "write_silver",
]

# Name -> the module of this package that has it.
_LAZY = {
    **dict.fromkeys(("Candidates", "Strategy", "find_candidates"), "candidates"),
    **dict.fromkeys(("CandidatePairs", "PairFilter", "origin_counts", "origin_name"), "pairs"),
    **dict.fromkeys(("Balance", "Sampled", "Sampling", "sample"), "sampling"),
    **dict.fromkeys(("PairScores", "score_candidates"), "scoring"),
    **dict.fromkeys(("Sentences", "collect"), "sentences"),
    **dict.fromkeys(("Agreement", "agreement", "histogram", "read_silver", "write_silver"), "silver"),
    "AugmentOptions": "options",
    "AugmentResult": "result",
    "augmented": "running",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
