"""`Trainee`: a bi- or cross-encoder as the training loop sees it: rows of texts in, one output per sequence out.

A bi-encoder turns every column into a stream of sequences and gives vectors; a cross-encoder turns pairs of columns
into streams and gives logits. The rest of the loop does not know which it trains.

The float32 weights in `model.parts` are the ones that are trained and saved. In half precision the body computes in a
copy of them: its gradients are added to theirs, and after every step it takes over their values. So nothing is cast
inside the forward pass, and the sums of many small updates stay in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn

from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.nn.encoder import Encoder
from munjang.nn.heads import apply_heads
from munjang.nn.packed import Packed, check_ids
from munjang.text.packing import Tokens
from munjang.text.tokenizer import Tokenizer
from munjang.training.sequences import joined_segments
from munjang.training.settings import Precision

Model = BiEncoder | CrossEncoder

_WINDOW = 65_536  # texts tokenised at a time
_MANY = 50_000  # texts from which on it is worth to look whether they stand there again and again


def precision_for(device: torch.device, asked: Precision) -> torch.dtype:
    """The precision that computes: bfloat16 where the GPU does it natively, float32 elsewhere, unless asked."""
    if asked != "auto":
        chosen = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[asked]
        if chosen == torch.float16 and device.type == "cpu":
            raise InputError("precision float16 trains on GPUs only; give float32 or bfloat16 on a CPU")
        return chosen
    native = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float32


def is_new_head(note: str) -> bool:
    """Whether a note of a model's parts says that its head was made, and not yet trained."""
    return note.startswith("the head is new")


def has_new_head(model: Model) -> bool:
    """Whether a cross-encoder's outputs mean nothing yet."""
    return isinstance(model, CrossEncoder) and any(map(is_new_head, model.parts.notes))


class Trainee:
    """The modules of a model on their device, and what turns its data into sequences."""

    def __init__(self, model: Model, precision: Precision = "auto", dropout: float | None = None) -> None:
        self.model = model
        self.device = model.device
        self.dtype = precision_for(self.device, precision)
        self.cross = isinstance(model, CrossEncoder)
        self.body: nn.Module = model.parts.body.to(self.device)
        head: nn.Module = model.parts.head if isinstance(model, CrossEncoder) else model.parts.heads
        self.head = head.to(self.device)
        # The model's own dropout comes back when the run is over.
        self._dropouts: list[tuple[nn.Module, str, float]] = []
        if dropout is not None:
            self._dropouts = [*set_dropout(self.body, dropout), *set_dropout(self.head, dropout)]
        self._finished = False
        self.computing = self.body if self.dtype == torch.float32 else copy.deepcopy(self.body).to(self.dtype)

    @property
    def dimension(self) -> int:
        """Width of one output: of the vectors, or the number of logits."""
        return len(self.model.labels) if isinstance(self.model, CrossEncoder) else self.model.full_dimension

    @property
    def packs(self) -> bool:
        """Whether the body is our own encoder with attention that takes any lengths (no relative bias)."""
        return isinstance(self.body, Encoder) and self.body.relative_bias is None

    @property
    def pads(self) -> bool:
        """Whether it is our own encoder with a relative bias: its attention pads what is not too long."""
        return isinstance(self.body, Encoder) and self.body.relative_bias is not None

    def train(self, mode: bool = True) -> None:
        """Dropout on or off."""
        for module in (self.body, self.head, self.computing):
            module.train(mode)

    def __call__(self, batch: Packed) -> Tensor:
        """float32 [n, dimension] of every sequence of the batch."""
        hidden = self.hidden(batch)
        if isinstance(self.model, CrossEncoder):
            logits: Tensor = self.head(hidden, batch)
            return logits.float()
        assert isinstance(self.head, nn.ModuleList)
        return apply_heads(self.head, self.model.parts.pooling(hidden, batch))

    def hidden(self, batch: Packed) -> Tensor:
        """[total, hidden] of every token of the batch, in the precision that computes."""
        states: Tensor = self.computing(batch)
        return states

    @property
    def word_table(self) -> Tensor:
        """The word embeddings that compute, [vocabulary, width]."""
        assert isinstance(self.computing, Encoder)
        return self.computing.embeddings.word.weight

    def streams(self, examples: Examples) -> list[Tokens]:
        """The sequences of every row: a bi-encoder's columns, a cross-encoder's pairs of the first with the others.

        Plain texts with translations are pairs for both: one sequence in which each helps to understand the other.
        """
        columns = list(examples.columns.values())
        tokenizer = _remembering(self.model.parts.tokenizer, columns)
        if examples.kind == "plain" and len(columns) == 2:
            return [self._tokens(tokenizer, columns[0], columns[1])]
        if not self.cross:
            return [self._tokens(tokenizer, column) for column in columns]
        if len(columns) < 2:
            raise InputError(
                f"a cross-encoder reads pairs, but {examples.name} has one column ({', '.join(examples.columns)})"
            )
        return [self._tokens(tokenizer, columns[0], other) for other in columns[1:]]

    def _tokens(self, tokenizer: Tokenizer, first: list[str], second: list[str] | None = None) -> Tokens:
        config = self.model.parts.body.config
        parts = []
        for at in range(0, max(len(first), 1), _WINDOW):
            here = slice(at, at + _WINDOW)
            parts.append(
                tokenizer.encode(first[here])
                if second is None
                else tokenizer.encode_pairs(first[here], second[here], segments=config.segments)
            )
            if config.family != "static":
                # Here, once, and not in every step.
                check_ids(parts[-1].ids, parts[-1].lengths, config, parts[-1].segments)
        return joined(parts)

    # --- weights -----------------------------------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The float32 weights by name: what is trained, saved and restored."""
        for name, weight in self.body.named_parameters():
            yield f"body.{name}", weight
        for name, weight in self.head.named_parameters():
            yield f"head.{name}", weight

    def copies(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """(float32 weight, its computing copy) where there is a copy."""
        if self.computing is self.body:
            return []
        pairs = zip(self.body.parameters(), self.computing.parameters(), strict=True)
        return [(weight, copied) for weight, copied in pairs if weight.requires_grad]

    def finish(self) -> None:
        """Dropout off, weights back to the CPU, and the model computes with what was learned; a second call is idle."""
        if self._finished:
            return
        self._finished = True
        self.train(False)
        for part, name, value in self._dropouts:
            setattr(part, name, value)
        for _, weight in self.named_weights():
            weight.grad = None
        self.body.to("cpu")
        self.head.to("cpu")
        self.model.refresh()


def _remembering(tokenizer: Tokenizer, columns: Sequence[Sequence[str]]) -> Tokenizer:
    """One that tokenises every text once, where pairs of the same texts make up the data: neighbours, lists."""
    total = sum(map(len, columns))
    if total < _MANY:
        return tokenizer
    different = list(dict.fromkeys(chain.from_iterable(columns)))
    return tokenizer.with_cache(different) if len(different) <= total / 2 else tokenizer


def set_dropout(module: nn.Module, value: float) -> list[tuple[nn.Module, str, float]]:
    """The dropout of a body or a head, that of attention too; (module, attribute, value) as it was before.

    That of LoRA adapters is a setting of its own, and stays.
    """
    found: list[tuple[nn.Module, str]] = [
        (part, "p")
        for name, part in module.named_modules()
        if isinstance(part, nn.Dropout) and "lora_dropout" not in name
    ]
    if isinstance(module, Encoder):
        found.append((module, "attention_dropout"))
    before = [(part, name, float(getattr(part, name))) for part, name in found]
    for part, name in found:
        setattr(part, name, value)
    return before


def joined(parts: list[Tokens]) -> Tokens:
    """Several windows of tokens as one."""
    if len(parts) == 1:
        return parts[0]
    return Tokens(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        sum(part.truncated for part in parts),
        max(part.longest for part in parts),
        joined_segments(parts),
    )
