"""The vectors u, v of a pair `[n, d]` and its score or label `[n]` -> loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.geometry import Distance, check_distance, cosines, distances
from munjang.training.losses.shapes import column, matrices, not_negative, one_of, positive
from munjang.vectors.similarity import unit_rows

Part = Literal["u", "v", "|u-v|", "u*v"]


def concatenate(u: Tensor, v: Tensor, parts: Sequence[Part]) -> Tensor:  # [n, d], [n, d] -> [n, len(parts) * d]
    """What a training head sees of a pair, side by side in the order of `parts`.

    Reimers and Gurevych 2019, section 3, equation of the classification objective: (u, v, |u-v|); table 6 compares
    the others.
    """
    u, v = matrices(u=u, v=v)
    if not parts:
        raise InputError(f"parts must name at least one of {', '.join(get_args(Part))}, got none")
    for part in parts:
        one_of("parts", part, get_args(Part))
    made = {"u": lambda: u, "v": lambda: v, "|u-v|": lambda: (u - v).abs(), "u*v": lambda: u * v}
    return torch.cat([made[part]() for part in parts], dim=1)


def cosine_mse(u: Tensor, v: Tensor, scores: Tensor) -> Tensor:
    """Mean of (cos(u, v) - score)^2, scores in 0..1 (or -1..1). Reimers and Gurevych 2019, section 3, regression."""
    u, v = matrices(u=u, v=v)
    return functional.mse_loss(cosines(u, v), column("scores", scores, len(u)).to(u.dtype))


def cosent(similarities: Tensor, scores: Tensor, *, scale: float = 20.0) -> Tensor:
    """log(1 + sum over score_i > score_j of exp(scale (s_j - s_i))): pairs that score higher must be nearer.

    Su 2022, 'CoSENT (1)'. Only the order of the scores counts. It is one number for the batch, not a
    mean over rows. Where all scores are equal there is nothing to order: the loss is 0 and so is its gradient.
    """
    positive("scale", scale)
    if similarities.ndim != 1:
        raise InputError(f"similarities must be one number per pair, [n], got shape {tuple(similarities.shape)}")
    similarities = column("similarities", similarities, len(similarities)) * scale
    scores = column("scores", scores, len(similarities))
    higher = scores[:, None] > scores[None, :]  # [n, n]: i should be nearer than j
    gaps = (similarities[None, :] - similarities[:, None]).masked_fill(~higher, -torch.inf)
    return torch.logsumexp(torch.cat([gaps.new_zeros(1), gaps.flatten()]), dim=0)


def angle(u: Tensor, v: Tensor, scores: Tensor, *, scale: float = 20.0) -> Tensor:
    """CoSENT over differences of angle in complex space instead of cosines, which are flat near 1 and -1.

    Li and Li 2023 (AnglE), angle objective: the first half of a vector is the real part, the second half the
    imaginary part. With u = a + bi and v = c + di of length 1, the similarity is |sum(ac + bd) + sum(bc - ad)|, as
    the authors' program and sentence-transformers have it. An odd dimension gets a zero beside it.
    """
    u, v = matrices(u=u, v=v)
    odd = u.shape[1] % 2
    u, v = (functional.pad(unit_rows(vectors), (0, odd)) for vectors in (u, v))
    (a, b), (c, d) = u.chunk(2, dim=1), v.chunk(2, dim=1)
    turned = (a * c + b * d).sum(dim=1) + (b * c - a * d).sum(dim=1)
    return cosent(turned.abs(), scores, scale=scale)


def contrastive(u: Tensor, v: Tensor, labels: Tensor, *, margin: float = 0.5, distance: Distance = "cosine") -> Tensor:
    """Mean of y D^2 / 2 + (1 - y) max(margin - D, 0)^2 / 2; label y is 1 for pairs that belong together.

    Hadsell, Chopra and LeCun 2006, equation (4), where y has the opposite sense.
    """
    apart, labels = _apart(u, v, labels, margin=margin, distance=distance)
    together = labels * apart.square()
    return (together + (1 - labels) * functional.relu(margin - apart).square()).mean() / 2


def online_contrastive(
    u: Tensor, v: Tensor, labels: Tensor, *, margin: float = 0.5, distance: Distance = "cosine"
) -> Tensor:
    """Contrastive loss of the hard pairs only: sum of D^2 and of max(margin - D, 0)^2 over them.

    Sentence-transformers' OnlineContrastiveLoss; there is no paper. Hard are positives farther apart than the nearest
    negative, and negatives nearer than the farthest positive; where a batch has only one kind, those beyond its mean.
    A sum, not a mean, as there. Labels other than 0 and 1 do not count.
    """
    apart, labels = _apart(u, v, labels, margin=margin, distance=distance)
    alike, unlike = labels == 1, labels == 0
    seen = apart.detach()
    farthest = seen.masked_fill(~alike, -torch.inf).max()
    nearest = seen.masked_fill(~unlike, torch.inf).min()
    near = torch.where(alike.any(), farthest, _mean(seen, unlike))
    far = torch.where(unlike.any(), nearest, _mean(seen, alike))
    pulled = torch.where(alike & (seen > far), apart.square(), 0)
    pushed = torch.where(unlike & (seen < near), functional.relu(margin - apart).square(), 0)
    return pulled.sum() + pushed.sum()


def _apart(u: Tensor, v: Tensor, labels: Tensor, *, margin: float, distance: Distance) -> tuple[Tensor, Tensor]:
    """Distances [n] and labels [n], checked."""
    u, v = matrices(u=u, v=v)
    not_negative("margin", margin)
    check_distance(distance)
    return distances(u, v, distance), column("labels", labels, len(u)).to(u.dtype)


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(chosen, values, 0).sum() / chosen.sum().clamp(min=1)
