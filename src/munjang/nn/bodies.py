"""Bodies other than the packed encoder: they too compute `body(batch) -> [total, hidden]`.

- `StaticEmbedding`: word vectors (GloVe, fastText, model2vec), to be averaged;
- `TransformersBody`: any other Hugging Face encoder, through `transformers` (extra `hf`), padded batch by batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from munjang.errors import MissingExtraError, ModelError
from munjang.nn.encoder import Body, EncoderConfig
from munjang.nn.packed import Packed, to_packed

_UNLIMITED = 1 << 30  # positions

# Encoder-decoder families by the part whose token vectors sentence-transformers uses: the encoder, or the decoder.
_ENCODERS = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
}
_DECODERS = ("bart", "led", "mbart", "plbart")
# What transformers raises for inconsistent configs, when it builds a model and when it runs it.
_LIBRARY_ERRORS = (
    OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError,
    NameError,
)  # fmt: skip


def _bare_config(family: str, vocab_size: int, hidden: int, max_positions: int, segments: int = 0) -> EncoderConfig:
    """The config of a body without layers of ours."""
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


class StaticEmbedding(Body):
    """A table of word vectors, float32 [vocabulary, hidden]."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(_bare_config("static", table.shape[0], table.shape[1], _UNLIMITED))
        self.embedding = nn.Embedding.from_pretrained(table, freeze=False)

    def forward(self, batch: Packed) -> Tensor:
        vectors: Tensor = self.embedding(batch.ids)
        return vectors


def _strict_error() -> type[Exception]:
    """What transformers 5 raises for a config value of a wrong type; older releases have no such error."""
    import huggingface_hub.errors

    error: type[Exception] = getattr(huggingface_hub.errors, "StrictDataclassError", ValueError)
    return error


def _check_family(folder: Path, config: Any) -> None:
    """Raise `ModelError` for models whose vectors would differ from those of sentence-transformers."""
    kind = config.model_type
    reason = None
    if getattr(config, "is_encoder_decoder", False) and kind not in (*_ENCODERS, *_DECODERS):
        reason = f"of encoder-decoder models, those of {', '.join((*_ENCODERS, *_DECODERS))} are supported"
    if getattr(config, "attention_type", None) == "block_sparse":
        reason = (
            "its block-sparse attention depends on the other texts of a batch; "
            '"attention_type": "original_full" in config.json switches it off'
        )
    if reason is None and not all(isinstance(getattr(config, key, None), int) for key in ("vocab_size", "hidden_size")):
        reason = "its config has no vocab_size or no hidden_size, so it is no text encoder"
    if reason is not None:
        raise ModelError(f"{folder} holds a {kind!r} model, which is not supported: {reason}")


class TransformersBody(Body):
    """A Hugging Face encoder of a family that the packed encoder does not run."""

    def __init__(self, model: Any) -> None:
        config = model.config
        limit = int(getattr(config, "max_position_embeddings", None) or 0)
        super().__init__(
            _bare_config(
                str(config.model_type),
                int(config.vocab_size),
                int(config.hidden_size),
                limit if limit > 0 else _UNLIMITED,  # XLNet writes -1 for no limit
                int(getattr(config, "type_vocab_size", 0) or 0),
            )
        )
        self.model = model
        self.pads = True  # False: texts of one length at a time, because padding changes the vectors
        self._pad_id = int(getattr(config, "pad_token_id", None) or 0)

    @classmethod
    def load(cls, folder: Path) -> TransformersBody:
        """Read config.json and safetensors with `transformers`, never remote code.

        Args:
            folder: A folder with config.json and weights.

        Raises:
            MissingExtraError: transformers is not installed.
            ModelError: transformers cannot load the model or run it, a weight is missing, or its vectors would differ
                from those of sentence-transformers.
        """
        try:
            import transformers
        except ImportError as error:
            raise MissingExtraError("transformers", "hf", f"the model in {folder}") from error
        offline = {"local_files_only": True, "trust_remote_code": False}
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **offline)
            _check_family(folder, config)
            kind = getattr(transformers, _ENCODERS.get(config.model_type, "AutoModel"))
            model, info = kind.from_pretrained(
                folder, config=config, dtype=torch.float32, output_loading_info=True, **offline
            )
        except (*_LIBRARY_ERRORS, _strict_error()) as error:
            raise ModelError(f"transformers cannot load the model in {folder}: {error}") from error
        # Only the unused pooler may be missing: transformers fills other gaps with random numbers, silently.
        missing = [key for key in info["missing_keys"] if not key.startswith("pooler.")]
        if missing:
            raise ModelError(f"{folder} lacks {len(missing)} weights, the first of them {sorted(missing)[0]!r}")
        body = cls(model.eval())
        body._probe(folder)
        return body

    def _probe(self, folder: Path) -> None:
        """Set `pads` by a trial run; raise `ModelError` unless every token gets a vector."""
        device = next(self.model.parameters()).device
        token = 3 if self._pad_id != 3 else 2
        both, alone = (to_packed(np.full(sum(n), token), np.array(n), device) for n in ((3, 9), (3,)))
        try:
            with torch.inference_mode():
                padded, single = self(both).float(), self(alone).float()
        except _LIBRARY_ERRORS as error:
            raise ModelError(
                f"{folder} holds a {self.config.family!r} model, which cannot encode texts: {error}. "
                "Choose a model of another architecture"
            ) from error
        if padded.shape != (12, self.hidden) or not torch.isfinite(padded).all():
            raise ModelError(
                f"{folder} holds a {self.config.family!r} model, which cannot encode texts: expected {self.hidden} "
                f"finite values for each token, but the result for 12 tokens has shape {list(padded.shape)}"
            )
        self.pads = torch.allclose(padded[:3], single, rtol=1e-3, atol=1e-3 * float(single.abs().max()))

    def forward(self, batch: Packed) -> Tensor:
        sizes = batch.lengths.tolist()
        ids = batch.ids.long().split(sizes)
        segments = None
        if batch.segments is not None and self.config.segments > 1:
            segments = batch.segments.long().split(sizes)
        counts = [len(sizes)] if self.pads else [group.sequences for group in batch.groups]
        ends = np.cumsum(counts)
        parts = [
            self._padded(ids[end - count : end], None if segments is None else segments[end - count : end])
            for end, count in zip(ends, counts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _padded(self, ids: Sequence[Tensor], segments: Sequence[Tensor] | None) -> Tensor:
        lengths = torch.tensor([len(row) for row in ids], device=ids[0].device)
        table = pad_sequence(list(ids), batch_first=True, padding_value=float(self._pad_id))
        mask = torch.arange(table.shape[1], device=table.device)[None, :] < lengths[:, None]
        extra = {} if segments is None else {"token_type_ids": pad_sequence(list(segments), batch_first=True)}
        hidden: Tensor = self.model(input_ids=table, attention_mask=mask.long(), **extra).last_hidden_state
        return hidden[mask]
