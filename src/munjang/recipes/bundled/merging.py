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
from dataclasses import replace

import torch

from munjang.bi_encoder import BiEncoder
from munjang.errors import ModelError
from munjang.text.morphemes import has_hangul

_WORDS = "embeddings.word.weight"


def merge(begun: BiEncoder, trained: BiEncoder, share: float, *, korean: bool = True) -> BiEncoder:
    """A model with (1 - share) of the trained weights and `share` of those before; both stay as they are.

    korean: False leaves the embeddings of Korean pieces as they were trained.
    """
    body, heads = copy.deepcopy(trained.parts.body), copy.deepcopy(trained.parts.heads)
    both: list[tuple[torch.nn.Module, torch.nn.Module]] = [(body, begun.parts.body), (heads, begun.parts.heads)]
    for module, before in both:
        module.load_state_dict(_between(before.state_dict(), module.state_dict(), share))
    if not korean:
        pieces = trained.tokenizer.backend.get_vocab()
        rows = torch.tensor([row for piece, row in pieces.items() if has_hangul(piece)], dtype=torch.long)
        with torch.no_grad():
            body.get_parameter(_WORDS)[rows] = trained.parts.body.get_parameter(_WORDS)[rows]
    return BiEncoder(replace(trained.parts, body=body, heads=heads), device=trained.device)


def furthest(shares: Sequence[float], score: Callable[[float], float], cost: float) -> tuple[float, dict[float, float]]:
    """The largest share whose score is at most `cost` under the best; and the scores of all."""
    scores = {share: score(share) for share in shares}
    least = max(scores.values()) - cost
    return max(share for share, value in scores.items() if value >= least), scores


def _between(old: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    if old.keys() != new.keys() or any(old[name].shape != new[name].shape for name in new):
        raise ModelError("expected two models of one shape, the one trained out of the other; got different weights")
    return {
        name: torch.lerp(value, old[name].to(value), share) if value.is_floating_point() else value
        for name, value in new.items()
    }
