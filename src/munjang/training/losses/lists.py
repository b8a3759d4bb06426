"""Scores of the documents of several queries -> loss, list by list.

Rows lie flat, `scores` and `relevance` `[n]`, and `groups` `[n]`, ascending, says which query a row belongs to. Inside
they stand in a table [lists, longest]. How large that is depends on values of `groups`: keep that tensor on the CPU.
From a GPU it works too, but the host then waits for it, as nothing else in this package does.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.shapes import class_ids, column, not_negative, one_of, positive

LambdaScheme = Literal["none", "ndcg_loss1", "ndcg_loss2", "lambda_rank", "ndcg_loss2++"]
EPSILON = 1e-10  # the least ideal gain: a list without a relevant document weighs nothing


class _Lists(NamedTuple):
    scores: Tensor  # [lists, longest], 0 beyond a list's end
    relevance: Tensor  # the same
    real: Tensor  # bool, the same: a document stands there


def list_net(scores: Tensor, relevance: Tensor, groups: Tensor) -> Tensor:
    """Mean over lists of the cross-entropy between softmax(relevance) and softmax(scores).

    Cao et al. 2007, with top-one probabilities.
    """
    lists = _lists(scores, relevance, groups)
    wanted = lists.relevance.masked_fill(~lists.real, -torch.inf).softmax(dim=1)
    found = lists.scores.masked_fill(~lists.real, -torch.inf).log_softmax(dim=1).masked_fill(~lists.real, 0)
    return -(wanted * found).sum(dim=1).mean()


def list_mle(scores: Tensor, relevance: Tensor, groups: Tensor) -> Tensor:
    """Mean over lists of -log P(the order by relevance | scores), P of Plackett and Luce.

    Xia et al. 2008, likelihood loss: the sum over places i of log(sum over j from i on of exp(s_j)) - s_i. Documents of
    equal relevance keep the order in which they came.
    """
    lists = _lists(scores, relevance, groups)
    order = lists.relevance.masked_fill(~lists.real, -torch.inf).sort(dim=1, descending=True, stable=True).indices
    place = order.argsort(dim=1)  # [lists, longest]: where each document stands; those that are none stand last
    later = (place[:, None, :] >= place[:, :, None]) & lists.real[:, None, :]  # [lists, i, j]
    later = later | torch.eye(later.shape[1], dtype=torch.bool, device=later.device)
    rest = lists.scores[:, None, :].expand_as(later).masked_fill(~later, -torch.inf).logsumexp(dim=2)
    return ((rest - lists.scores) * lists.real).sum(dim=1).mean()


def rank_net(scores: Tensor, relevance: Tensor, groups: Tensor, *, k: int | None = None, sigma: float = 1.0) -> Tensor:
    """Mean over pairs with y_i > y_j of one list of log2(1 + exp(-sigma (s_i - s_j))).

    Burges et al. 2005, section 3.
    """
    return lambda_loss(scores, relevance, groups, scheme="none", k=k, sigma=sigma)


def lambda_loss(
    scores: Tensor,
    relevance: Tensor,
    groups: Tensor,
    *,
    scheme: LambdaScheme = "ndcg_loss2++",
    k: int | None = None,
    sigma: float = 1.0,
    mu: float = 10.0,
) -> Tensor:
    """Mean over pairs with y_i > y_j of w_ij log2(1 + exp(-sigma (s_i - s_j))).

    Wang et al. 2018 (LambdaLoss), from whom the schemes have their names. With gains G = (2^y - 1) / ideal DCG, ranks r
    by the present scores and D(r) = log2(1 + r), w_ij is |G_i - G_j| times

        ndcg_loss2      |1/D(|r_i - r_j|) - 1/D(|r_i - r_j| + 1)|
        lambda_rank     |1/D(r_i) - 1/D(r_j)|
        ndcg_loss2++    mu times the first, plus the second

    For none it is 1 (RankNet); ndcg_loss1 takes all pairs, with w_ij = G_i / D(r_i). With k only pairs count of which
    one stands among the first k. Negative relevance gains nothing.
    """
    one_of("scheme", scheme, get_args(LambdaScheme))
    positive("sigma", sigma)
    not_negative("mu", mu)
    if k is not None and k < 1:
        raise InputError(f"k must be 1 or more, got {k}")
    lists = _lists(scores, relevance, groups)
    real, longest = lists.real, lists.real.shape[1]
    with torch.no_grad():
        filled = lists.scores.masked_fill(~real, -torch.inf)
        ranks = filled.argsort(dim=1, descending=True, stable=True).argsort(dim=1) + 1  # 1 is the best
        pairs = real[:, :, None] & real[:, None, :]
        if scheme != "ndcg_loss1":
            pairs = pairs & (lists.relevance[:, :, None] > lists.relevance[:, None, :])
        if k is not None:
            pairs = pairs & ((ranks[:, :, None] <= k) | (ranks[:, None, :] <= k))
        weights = _weights(_gains(lists.relevance, min(k or longest, longest)), ranks, scheme=scheme, mu=mu) * pairs
    apart = lists.scores[:, :, None] - lists.scores[:, None, :]
    losses = weights * functional.logsigmoid(sigma * apart)
    return -losses.sum() / (pairs.sum().clamp(min=1) * math.log(2))


def _gains(relevance: Tensor, k: int) -> Tensor:  # [lists, longest]
    """(2^y - 1) / ideal DCG at k."""
    gains = torch.exp2(relevance.clamp(min=0)) - 1
    best = gains.topk(k, dim=1).values  # the best order's first k
    discounts = _discount(torch.arange(1, k + 1, device=gains.device))
    return gains / (best * discounts).sum(dim=1, keepdim=True).clamp(min=EPSILON)


def _weights(gains: Tensor, ranks: Tensor, *, scheme: LambdaScheme, mu: float) -> Tensor:  # [lists, i, j]
    """w_ij before pairs are chosen."""
    if scheme == "none":
        return gains.new_ones(1)
    if scheme == "ndcg_loss1":
        return (gains * _discount(ranks))[:, :, None]
    steps = (ranks[:, :, None] - ranks[:, None, :]).abs()
    by_distance = _discount(steps.clamp(min=1)) - _discount(steps + 1)
    by_rank = (_discount(ranks)[:, :, None] - _discount(ranks)[:, None, :]).abs()
    chosen = {"ndcg_loss2": by_distance, "lambda_rank": by_rank, "ndcg_loss2++": mu * by_distance + by_rank}[scheme]
    return chosen * (gains[:, :, None] - gains[:, None, :]).abs()


def _discount(ranks: Tensor) -> Tensor:
    """1 / log2(1 + rank), in float32 (MPS has no float64)."""
    return 1 / torch.log2(1 + ranks.float())


def _lists(scores: Tensor, relevance: Tensor, groups: Tensor) -> _Lists:
    """Rows in a table, a list in each line."""
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores.flatten()
    n = scores.numel()
    scores = column("scores", scores, n)
    relevance = column("relevance", relevance, n).to(scores.dtype).detach()
    here = class_ids("groups", groups, n).cpu()
    if bool((here.diff() < 0).any()):
        raise InputError("groups must ascend, so that the rows of a query stand together; sort the rows by group")
    _, sizes = torch.unique_consecutive(here, return_counts=True)
    longest = int(sizes.max())
    lines = torch.arange(len(sizes)).repeat_interleave(sizes)
    place = torch.arange(n) - (sizes.cumsum(0) - sizes)[lines] + lines * longest
    if scores.is_cuda:
        place = place.pin_memory()
    place = place.to(scores.device, non_blocking=True)
    size = len(sizes) * longest

    def table(values: Tensor) -> Tensor:
        return values.new_zeros(size).index_copy(0, place, values).view(len(sizes), longest)

    real = torch.zeros(size, dtype=torch.bool, device=scores.device).index_fill(0, place, True)
    return _Lists(table(scores), table(relevance), real.view(len(sizes), longest))
