"""The finished student and what it began as -> weights between the two: English that was lost comes back.

Training on two languages moves the body away from the English teacher's, and with it goes what no training text spoke
of. A straight line between the weights before and after leads through models that know most of both (Wortsman et al.,
2022, "Robust fine-tuning of zero-shot models"). How far to go back is chosen on the selection sets: as far as it costs
them next to nothing. The embeddings of Korean pieces may stay: before training they were guesses, with no English in
them that could come back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import ModelError
from munjang.students.normaliser import JAMO
from munjang.text.morphemes import has_hangul

_WORDS = "embeddings.word.weight"
M = TypeVar("M", BiEncoder, CrossEncoder)
_State = Mapping[str, torch.Tensor]


def merge(begun: M, trained: M, share: float, *, korean: bool = True) -> M:
    """A model with (1 - share) of the trained weights and `share` of those before; both stay as they are.

    korean: False leaves the embeddings of Korean pieces as they were trained.
    """
    merged = _joined([begun, trained], lambda states: _between(states[0], states[1], share))
    if not korean:
        pieces = trained.tokenizer.backend.get_vocab()
        rows = torch.tensor([row for piece, row in pieces.items() if _korean(piece)], dtype=torch.long)
        with torch.no_grad():
            merged.parts.body.get_parameter(_WORDS)[rows] = trained.parts.body.get_parameter(_WORDS)[rows]
    return merged


def mean_of(models: Sequence[M]) -> M:
    """The mean of the weights of models that were trained out of one: better than each of them, at the cost of one.

    Wortsman et al., 2022, "Model soups".
    """
    if not models:
        raise ModelError("expected models to take the mean of, got none")
    return _joined(models, _mean)


def furthest(shares: Sequence[float], score: Callable[[float], float], cost: float) -> tuple[float, dict[float, float]]:
    """The largest share whose score is at most `cost` under the best; and the scores of all."""
    scores = {share: score(share) for share in shares}
    least = max(scores.values()) - cost
    return max(share for share, value in scores.items() if value >= least), scores


def _joined(models: Sequence[M], weights: Callable[[list[_State]], _State]) -> M:
    """The last model with the weights that a function makes of those of all."""
    last = models[-1]
    parts = copy.copy(last.parts)
    for name in ("body", "heads", "head"):
        if not hasattr(parts, name):
            continue
        module = copy.deepcopy(getattr(parts, name))
        module.load_state_dict(weights([getattr(one.parts, name).state_dict() for one in models]))
        setattr(parts, name, module)
    return type(last)(parts, device=last.device)


def _mean(states: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    _check(states)
    first, *_ = states
    return {
        name: torch.stack([one[name].to(value).double() for one in states]).mean(dim=0).to(value)
        if value.is_floating_point()
        else value
        for name, value in first.items()
    }


def _between(old: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    _check([old, new])
    return {
        name: torch.lerp(value, old[name].to(value), share) if value.is_floating_point() else value
        for name, value in new.items()
    }


def _check(states: Sequence[Mapping[str, torch.Tensor]]) -> None:
    shapes = [{name: value.shape for name, value in one.items()} for one in states]
    if any(one != shapes[0] for one in shapes):
        raise ModelError("expected models of one shape, trained out of one another; got different weights")


def _korean(piece: str) -> bool:
    """Whether a piece has a syllable, or letters that syllables are spelt with."""
    return has_hangul(piece) or not JAMO.isdisjoint(piece)
