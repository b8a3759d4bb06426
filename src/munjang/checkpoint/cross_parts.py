"""`CrossParts`: everything that a cross-encoder is made of, as read from a folder and as written to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from munjang.checkpoint.parts import ModelBody
from munjang.checkpoint.thresholds import described
from munjang.nn.heads import ClassifierHead
from munjang.text.packing import Tokens
from munjang.text.pairs import encode_pairs
from munjang.text.tokenizer import Tokenizer
from munjang.types import Threshold

HeadName = Literal["sbert", "standard"]
ScoreActivation = Literal["Sigmoid", "Identity", "Softmax", "Tanh"]


@dataclass
class CrossParts:
    """A cross-encoder taken apart. `body -> head` is the way of a packed batch of pairs."""

    body: ModelBody
    head: ClassifierHead
    tokenizer: Tokenizer  # max_length and lower-casing already set
    labels: tuple[str, ...]  # names of the outputs; one entry where the output is a score
    activation: ScoreActivation = "Sigmoid"  # what sentence-transformers makes of the logits
    hf_config: dict[str, object] = field(default_factory=dict)  # config.json of the body
    leftover: dict[str, Tensor] = field(default_factory=dict)  # the pooler, kept so that a new head can start from it
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)  # by task; measured with these very weights
    notes: list[str] = field(default_factory=list)  # what had to be assumed or made new, in words
    source: str = ""  # the folder, or hub id@revision

    def tokenise(self, a: Sequence[str], b: Sequence[str], *, by_words: bool = True) -> Tokens:
        """Pairs to token ids, with the segments that the body has."""
        return encode_pairs(self.tokenizer, a, b, segments=self.body.config.segments, by_words=by_words)

    @property
    def uses_segments(self) -> bool:
        """Whether the body is told which text of a pair a token is of."""
        frame = self.tokenizer.pair_frame
        framed = frame is None or not frame.one_segment
        return framed and self.body.config.segments > 1 and not self.tokenizer.ignores_segments

    def describe(self) -> dict[str, object]:
        """What the model is, for people."""
        body, tokenizer = self.body, self.tokenizer
        frame = tokenizer.pair_frame
        return {
            "kind": "cross-encoder",
            "source": self.source,
            "family": body.config.family,
            "layers": len(body.config.steps) or None,
            "hidden size": body.hidden,
            "attention heads": body.config.heads if body.config.steps else None,
            "parameters": sum(p.numel() for module in (body, self.head) for p in module.parameters()),
            "head": describe_head(self.head),
            "labels": list(self.labels),
            "activation": self.activation,
            "max length": tokenizer.max_length,
            "tokenizer": {
                "model": type(tokenizer.backend.model).__name__,
                "vocabulary": tokenizer.vocab_size,
                "special tokens around a pair": None if frame is None else frame.size,
                "segments": self.uses_segments,
            },
            "thresholds": described(self.thresholds),
        }


def describe_head(head: ClassifierHead) -> str:
    """A head in words: 'first token, linear, gelu, linear to 3'."""
    shape = head.shape
    steps = [{"cls": "first token", "mean": "mean of tokens"}[shape.pooling]]
    steps += ["linear", shape.activation] if shape.dense else []
    steps += ["norm"] if shape.norm_eps is not None else []
    return ", ".join([*steps, f"linear to {head.labels}"])
