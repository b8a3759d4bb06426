"""Tensors in, one number out: every loss that training uses. No models, no modules, no state.

    outputs.py     logits -> cross-entropy, binary cross-entropy, squared error
    pairs.py       two vectors of a pair and its score or label: cosine MSE, CoSENT, AnglE, contrastive
    triplets.py    anchor, positive, negative; or vectors with class labels (batch-all, -hard, -semi-hard)
    in_batch.py    every other row is a negative: MNRL (InfoNCE) and GISTEmbed
    teaching.py    a teacher's vectors or scores: MSE, cosine, contrastive, relations between rows, MarginMSE, KL
    lists.py       documents of one query: ListNet, ListMLE, LambdaLoss, RankNet
    matryoshka.py  any of them on the first so many dimensions
    geometry.py    cosines and distances whose gradient is finite everywhere
    shapes.py      the checks

All of them take float32 (float64 for checks of gradients; half precision is widened) and return a scalar: the mean
over rows unless the docstring says otherwise. Shapes and kinds are checked on every call and raise `InputError`.
Values are not, because reading one makes the host wait for the GPU: nothing here does that.
"""

from munjang.training.losses.geometry import Distance
from munjang.training.losses.in_batch import MarginStrategy, Vectors3, gist, gist_mask, mnrl
from munjang.training.losses.lists import LambdaScheme, lambda_loss, list_mle, list_net, rank_net
from munjang.training.losses.matryoshka import matryoshka
from munjang.training.losses.outputs import bce, cross_entropy, mse_scores
from munjang.training.losses.pairs import (
    Part,
    angle,
    concatenate,
    contrastive,
    cosent,
    cosine_mse,
    online_contrastive,
)
from munjang.training.losses.teaching import (
    cosine_distance,
    kl_divergence,
    margin_mse,
    mse,
    relational,
    teacher_contrastive,
)
from munjang.training.losses.triplets import (
    batch_all_triplet,
    batch_hard_soft_margin,
    batch_hard_triplet,
    batch_semi_hard_triplet,
    check_classes,
    triplet,
)

__all__ = [
    "Distance",
    "LambdaScheme",
    "MarginStrategy",
    "Part",
    "Vectors3",
    "angle",
    "batch_all_triplet",
    "batch_hard_soft_margin",
    "batch_hard_triplet",
    "batch_semi_hard_triplet",
    "bce",
    "check_classes",
    "concatenate",
    "contrastive",
    "cosent",
    "cosine_distance",
    "cosine_mse",
    "cross_entropy",
    "gist",
    "gist_mask",
    "kl_divergence",
    "lambda_loss",
    "list_mle",
    "list_net",
    "margin_mse",
    "matryoshka",
    "mnrl",
    "mse",
    "mse_scores",
    "online_contrastive",
    "rank_net",
    "relational",
    "teacher_contrastive",
    "triplet",
]
