"""Anchors and positives `[n, d]`, where every other row's positive is a negative -> loss: MNRL and GISTEmbed."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.geometry import cosine_matrix, product
from munjang.training.losses.shapes import matrices, matrix, not_negative, one_of, positive

MarginStrategy = Literal["absolute", "relative"]


class Vectors3(NamedTuple):
    """What one model makes of a batch."""

    anchors: Tensor  # [n, d]
    positives: Tensor  # [n, d]
    negatives: Tensor | None = None  # [m, d]: hard negatives, all of them negatives of every anchor


def mnrl(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    scale: float = 20.0,
    similarity: Literal["cosine", "dot"] = "cosine",
    symmetric: bool = False,
    allowed: Tensor | None = None,
) -> Tensor:
    """Mean over anchors of -log(exp(scale s(a_i, p_i)) / sum over candidates c of exp(scale s(a_i, c))).

    Multiple negatives ranking: Henderson et al. 2017, section 4.4; InfoNCE: van den Oord et al. 2018, equation (4).
    Candidates are all positives and all negatives `[m, d]`. `symmetric` is the mean of this and of the same from each
    positive to all anchors (Radford et al. 2021, figure 3; hard negatives stand only in the first).

    allowed: bool `[n, n + m]`; False leaves a candidate out of an anchor's sum (a duplicate, a probable false
    negative). The positive itself always stands in it.
    """
    given = Vectors3(anchors, positives, negatives)
    anchors, positives, negatives = _checked(given)
    positive("scale", scale)
    one_of("similarity", similarity, ("cosine", "dot"))
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    compare = cosine_matrix if similarity == "cosine" else product
    scores = compare(anchors, candidates) * scale  # [n, n + m]
    if allowed is not None:
        scores = scores.masked_fill(~_allowed(allowed, scores), -torch.inf)
    own = torch.arange(len(anchors), device=anchors.device)
    loss = functional.cross_entropy(scores, own)
    if symmetric:
        loss = (loss + functional.cross_entropy(scores[:, : len(anchors)].T, own)) / 2
    return loss


def gist_mask(
    guide_anchors: Tensor,
    guide_positives: Tensor,
    guide_negatives: Tensor | None = None,
    *,
    margin: float = 0.0,
    margin_strategy: MarginStrategy = "absolute",
) -> Tensor:  # bool [n, n + m]
    """Which candidates a guide model takes for true negatives: the `allowed` of `mnrl`.

    Solatorio 2024 (GISTEmbed): a candidate that the guide finds nearer to the anchor than the anchor's
    positive is left out. With a margin, already one nearer than `positive - margin` ('relative': than
    `positive - margin |positive|`). These are the anchor-candidate terms; `gist` has the other two as well.
    """
    guide = _checked(Vectors3(guide_anchors, guide_positives, guide_negatives), name="guide_")
    bound = _bound(guide, margin, margin_strategy)
    candidates = guide.positives if guide.negatives is None else torch.cat([guide.positives, guide.negatives])
    allowed = cosine_matrix(guide.anchors, candidates) <= bound
    return _own_allowed(allowed).detach()


def gist(
    vectors: Vectors3,
    guide: Vectors3,
    *,
    temperature: float = 0.01,
    margin: float = 0.0,
    margin_strategy: MarginStrategy = "absolute",
    contrast_anchors: bool = True,
    contrast_positives: bool = True,
) -> Tensor:
    """InfoNCE whose negatives a guide model has filtered: Solatorio 2024 (GISTEmbed).

    For anchor i the sum runs over all positives and negatives, over the other anchors (`contrast_anchors`) and over
    the other positives compared with positive i (`contrast_positives`); everything that the guide finds nearer than
    its positive pair i is left out. The guide's vectors may have another dimension.
    """
    vectors, guide = _checked(vectors), _checked(guide, name="guide_")
    _check_alike(vectors, guide)
    positive("temperature", temperature)
    bound = _bound(guide, margin, margin_strategy)
    n, itself = len(vectors.anchors), torch.eye(len(vectors.anchors), dtype=torch.bool, device=vectors.anchors.device)

    def term(left: Tensor, right: Tensor, guides: tuple[Tensor, Tensor], never: Tensor | None) -> Tensor:
        out = cosine_matrix(*guides) > bound
        if never is not None:
            out = out | never
        return cosine_matrix(left, right).masked_fill(out.detach(), -torch.inf)

    own = cosine_matrix(vectors.anchors, vectors.positives)
    out = (cosine_matrix(guide.anchors, guide.positives) > bound) & ~itself
    scores = [own.masked_fill(out.detach(), -torch.inf)]
    if contrast_anchors:  # a text is no negative of itself
        scores.append(term(vectors.anchors, vectors.anchors, (guide.anchors, guide.anchors), itself))
    if contrast_positives:
        scores.append(term(vectors.positives, vectors.positives, (guide.positives, guide.positives), itself))
    if vectors.negatives is not None and guide.negatives is not None:
        scores.append(term(vectors.anchors, vectors.negatives, (guide.anchors, guide.negatives), None))
    return functional.cross_entropy(torch.cat(scores, dim=1) / temperature, torch.arange(n, device=own.device))


def _bound(guide: Vectors3, margin: float, margin_strategy: MarginStrategy) -> Tensor:  # [n, 1]
    """The guide's similarity beyond which a candidate is no negative."""
    not_negative("margin", margin)
    one_of("margin_strategy", margin_strategy, get_args(MarginStrategy))
    # Out of the same product as the candidates', so that an equal text has an equal similarity.
    own = cosine_matrix(guide.anchors, guide.positives).diagonal()[:, None]
    return own - margin * (own.abs() if margin_strategy == "relative" else 1)


def _checked(given: Vectors3, *, name: str = "") -> Vectors3:
    anchors, positives = matrices(**{f"{name}anchors": given.anchors, f"{name}positives": given.positives})
    negatives = given.negatives
    if negatives is not None:
        negatives = matrix(f"{name}negatives", negatives, width=anchors.shape[1])
    return Vectors3(anchors, positives, negatives)


def _check_alike(vectors: Vectors3, guide: Vectors3) -> None:
    counts, guided = (
        (len(each.anchors), 0 if each.negatives is None else len(each.negatives)) for each in (vectors, guide)
    )
    if counts != guided:
        raise InputError(
            f"vectors and guide must be of the same texts, got {counts[0]} pairs with {counts[1]} negatives"
            f" and {guided[0]} pairs with {guided[1]}"
        )


def _allowed(allowed: Tensor, scores: Tensor) -> Tensor:
    if allowed.dtype != torch.bool or allowed.shape != scores.shape:
        raise InputError(
            f"allowed must be bool {tuple(scores.shape)}, a row for each anchor and a column for each positive and"
            f" negative, got {allowed.dtype} {tuple(allowed.shape)}"
        )
    return _own_allowed(allowed)


def _own_allowed(allowed: Tensor) -> Tensor:  # [n, n + m]
    """The same with every anchor's own positive."""
    return allowed | torch.eye(*allowed.shape, dtype=torch.bool, device=allowed.device)
