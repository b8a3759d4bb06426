"""Static models on disk: a tokenizer and a table of word vectors, as sentence-transformers and model2vec save them."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from torch import Tensor

from munjang.checkpoint.files import contents
from munjang.checkpoint.unfilled import unfilled
from munjang.checkpoint.weights import load_weights
from munjang.errors import ModelError
from munjang.nn.bodies import StaticEmbedding
from munjang.text.tokenizer import Tokenizer, read_backend

ENDLESS = 1 << 30  # such a model reads a text of any length


def read_static(folder: Path, *, max_length: int | None) -> tuple[StaticEmbedding, Tokenizer]:
    """The table and its tokenizer, which adds no special tokens, as in sentence-transformers."""
    tokenizer = _tokenizer(folder, max_length)
    table = _table(folder, tokenizer.vocab_size)
    if tokenizer.vocab_size > len(table):
        raise ModelError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the embedding only {len(table)} rows: "
            "they do not belong together"
        )
    return static_body(table), tokenizer


def static_body(table: Tensor) -> StaticEmbedding:  # [vocabulary, dimension]
    """The body that holds a table."""
    with unfilled():
        body = StaticEmbedding(table.shape[0], table.shape[1])
    body.load_state_dict({"embedding.weight": table}, assign=True)
    return body


def without_special_tokens(backend: tokenizers.Tokenizer, max_length: int | None = None) -> Tokenizer:
    """A tokenizer that adds nothing to a text and, unless the backend or `max_length` says so, cuts nothing."""
    cut = backend.truncation
    backend.no_truncation()
    backend.no_padding()
    backend.post_processor = None
    limit = int(cut["max_length"]) if cut is not None else ENDLESS
    return Tokenizer(backend, max_length=max_length or limit)


def _tokenizer(folder: Path, max_length: int | None) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{folder} has no tokenizer.json, which a static model needs; {contents(folder)}")
    return without_special_tokens(read_backend(path), max_length)


def _table(folder: Path, tokens: int) -> Tensor:
    """One row per token id; model2vec's mapping and weights per token are folded in."""
    weights = load_weights(folder)
    if "embedding.weight" in weights:
        table = weights["embedding.weight"]
    elif "embeddings" in weights:
        table = weights["embeddings"]
        if "mapping" in weights:
            mapping = weights["mapping"].long()
            # A short mapping could repeat a long row as often as it likes: there is one entry for each token.
            if mapping.shape != (tokens,) or (tokens and not 0 <= mapping.min() <= mapping.max() < len(table)):
                raise ModelError(
                    f"{folder}: 'mapping' must have one of the {len(table)} rows for each of the {tokens} tokens, got "
                    f"shape {list(mapping.shape)}: the files do not belong together"
                )
            table = table[mapping]
        if "weights" in weights:
            table = table * weights["weights"].to(table.dtype)[:, None]
    else:
        raise ModelError(
            f"{folder} should hold a table 'embedding.weight' or 'embeddings', got {', '.join(sorted(weights)[:5])}"
        )
    if table.dim() != 2:
        raise ModelError(f"{folder}: the table of word vectors must have two dimensions, got shape {list(table.shape)}")
    return table.float().contiguous()
