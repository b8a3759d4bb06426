"""`MaskedWords`: a body learns a language by finding words that were hidden from it (Devlin et al. 2019).

Enters: plain examples; a text with its translation is one sequence of two segments, where a hidden word can be found
with the help of the other language (Conneau and Lample 2019, translation language modelling). It trains the body alone,
not what pools or projects its output: a warm-up for bodies whose vocabulary is new, before they learn from a teacher.

The head is BERT's: Linear, GELU, LayerNorm, and the table of word embeddings itself, with a bias. It is made for the
run, and not kept. Unlike other objectives this one looks at single tokens, so that the step calls its parts one by one
(`Stepper`) and not `forward`: only hidden tokens go through the head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from munjang.errors import InputError, ModelError
from munjang.nn.encoder import Encoder
from munjang.training.masking import Array, Masked, Words, mask_rows
from munjang.training.objectives.base import Objective, seeded
from munjang.training.sequences import Sequences

if TYPE_CHECKING:
    from munjang.training.trainee import Model


class MaskedWords(Objective):
    """A share of the words is hidden; the loss is the cross-entropy of their pieces, averaged over all of the step."""

    kinds = ("plain",)
    recordable = False  # how many words are hidden changes from step to step
    trains_heads = False
    any_width = False

    def __init__(self, share: float = 0.15, *, seed: int = 0) -> None:
        super().__init__()
        if not 0 < share < 1:
            raise InputError(f"share must be between 0 and 1 (of the words, hidden), got {share}")
        self.share, self.seed = share, seed
        self.words: Words | None = None
        self.dense: nn.Linear | None = None
        self.norm: nn.LayerNorm | None = None
        self.bias: nn.Parameter | None = None

    def settings(self) -> dict[str, object]:
        return {"share": self.share, "seed": self.seed}

    def forget(self) -> None:
        self.words = self.dense = self.norm = self.bias = None

    def meet(self, model: Model) -> None:
        body = model.parts.body
        if not isinstance(body, Encoder):
            raise ModelError(
                f"MaskedWords trains the families that munjang computes itself (BERT, RoBERTa, ...), not a body of "
                f"type {type(body).__name__}: it has no table of words that the head could share"
            )
        if self.words is None:
            config = body.config
            self.words = Words.of(model.parts.tokenizer, config.vocab_size)
            self.dense = seeded(nn.Linear(config.hidden, config.embedding_size), self.seed)
            self.norm = nn.LayerNorm(config.embedding_size, eps=config.norm_eps)
            self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def mask(self, sequences: Sequences, rows: Array, *, numbers: tuple[int, int], sort: bool = False) -> Masked:
        """Some rows with hidden words; numbers: the seed of the run and the step."""
        assert self.words is not None
        return mask_rows(sequences, rows, self.words, share=self.share, numbers=numbers, sort=sort)

    def states(self, hidden: Tensor) -> Tensor:  # [m, hidden] -> float32 [m, embedding width]
        """Hidden states brought to where the words' embeddings lie."""
        assert self.dense is not None
        assert self.norm is not None
        found: Tensor = self.norm(functional.gelu(self.dense(hidden.float())))
        return found

    def cross_entropy(self, states: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        """The sum over tokens; states [m, width], table [vocabulary, width] in its own precision, labels int64 [m]."""
        assert self.bias is not None
        logits = functional.linear(states.to(table.dtype), table).float() + self.bias  # [m, vocabulary]
        return functional.cross_entropy(logits, labels, reduction="sum")
