"""The other bodies a bi-encoder can stand on, behind the packed encoder's interface: `body(batch) -> [total, hidden]`.

- `StaticEmbedding`: averaged word vectors (GloVe, fastText, model2vec), the baseline that raw BERT must beat;
- `TransformersBody`: any other Hugging Face encoder, through `transformers` (extra `hf`), padded as it wants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from munjang.errors import MissingExtraError, ModelError
from munjang.nn.config import EncoderConfig
from munjang.nn.packed import Packed


class Body(Protocol):
    """What pooling needs of a body."""

    config: EncoderConfig

    @property
    def hidden(self) -> int: ...

    @property
    def max_positions(self) -> int: ...

    def __call__(self, batch: Packed) -> Tensor: ...


_ENDLESS = 1 << 30


def _bare_config(family: str, vocab_size: int, hidden: int, max_positions: int, segments: int = 0) -> EncoderConfig:
    return EncoderConfig(
        family=family,
        vocab_size=vocab_size,
        hidden=hidden,
        heads=1,
        intermediate=0,
        max_positions=max_positions,
        steps=(),
        embedding_size=hidden,
        segments=segments,
    )


class StaticEmbedding(nn.Module):
    """A table of word vectors and nothing else."""

    def __init__(self, vocab_size: int, hidden: int) -> None:
        super().__init__()
        self.config = _bare_config("static", vocab_size, hidden, _ENDLESS)
        self.embedding = nn.Embedding(vocab_size, hidden)

    @property
    def hidden(self) -> int:
        return self.config.hidden

    @property
    def max_positions(self) -> int:
        return self.config.max_positions

    def forward(self, batch: Packed) -> Tensor:
        vectors: Tensor = self.embedding(batch.ids)
        return vectors


class TransformersBody(nn.Module):
    """A Hugging Face encoder that the packed encoder does not know, padded batch by batch."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        config = model.config
        limit = getattr(config, "max_position_embeddings", None) or _ENDLESS
        self.config = _bare_config(
            str(config.model_type),
            int(config.vocab_size),
            int(config.hidden_size),
            int(limit),
            int(getattr(config, "type_vocab_size", 0) or 0),
        )

    @classmethod
    def load(cls, folder: Path) -> TransformersBody:
        """Read config and safetensors with `transformers`; never remote code."""
        try:
            from transformers import AutoConfig, AutoModel
        except ImportError as error:
            raise MissingExtraError("transformers", "hf", f"the model in {folder}") from error
        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            model, info = AutoModel.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise ModelError(f"transformers cannot load the model in {folder}: {error}") from error
        # What vectors do not come from may be missing; anything else would be random numbers, silently.
        missing = [key for key in info["missing_keys"] if not key.startswith(("pooler.", "decoder."))]
        if missing:
            raise ModelError(f"{folder} lacks {len(missing)} weights, the first of them {sorted(missing)[0]!r}")
        if getattr(config, "is_encoder_decoder", False):
            model = model.get_encoder()
        return cls(model)

    @property
    def hidden(self) -> int:
        return self.config.hidden

    @property
    def max_positions(self) -> int:
        return self.config.max_positions

    def forward(self, batch: Packed) -> Tensor:
        sizes = batch.lengths.tolist()
        padding = getattr(self.model.config, "pad_token_id", None) or 0
        ids = pad_sequence(list(batch.ids.long().split(sizes)), batch_first=True, padding_value=float(padding))
        place = torch.arange(ids.shape[1], device=ids.device)
        mask = place[None, :] < batch.lengths[:, None]
        extra = {}
        if batch.segments is not None and self.config.segments > 1:
            extra["token_type_ids"] = pad_sequence(list(batch.segments.long().split(sizes)), batch_first=True)
        hidden: Tensor = self.model(input_ids=ids, attention_mask=mask.long(), **extra).last_hidden_state
        return hidden[mask]
