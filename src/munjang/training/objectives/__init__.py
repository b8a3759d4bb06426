"""Objectives: what a data set is trained with. Each checks its data, may have a head, and calls a pure loss."""

from munjang.training.objectives.base import Given, Objective
from munjang.training.objectives.bi import (
    Angle,
    BatchTriplets,
    Contrastive,
    CoSent,
    CosineMse,
    Kl,
    MarginMse,
    Matryoshka,
    Ranking,
    Softmax,
    Triplet,
)
from munjang.training.objectives.cross import (
    CrossEntropy,
    CrossKl,
    CrossLists,
    CrossMarginMse,
    CrossOrder,
    CrossRanking,
    CrossScore,
)
from munjang.training.objectives.masked import MaskedWords
from munjang.training.objectives.teaching import Distil, Mse, Teaching

__all__ = [
    "Angle",
    "BatchTriplets",
    "CoSent",
    "Contrastive",
    "CosineMse",
    "CrossEntropy",
    "CrossKl",
    "CrossLists",
    "CrossMarginMse",
    "CrossOrder",
    "CrossRanking",
    "CrossScore",
    "Distil",
    "Given",
    "Kl",
    "MarginMse",
    "MaskedWords",
    "Matryoshka",
    "Mse",
    "Objective",
    "Ranking",
    "Softmax",
    "Teaching",
    "Triplet",
]
