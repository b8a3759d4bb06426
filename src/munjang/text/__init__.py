"""Text to token ids, once: tokenising, word-by-word caching, packing into batches, cutting long texts into chunks.

    texts -> tokenizer (words) -> Tokens -> batches.pack -> Batch
    long text -> chunks -> texts

Nothing here imports torch.
"""

from __future__ import annotations

from munjang.text.batches import Batch, pack
from munjang.text.chunks import Chunk, chunk_all, chunks
from munjang.text.tokenizer import Tokenizer, Tokens

__all__ = ["Batch", "Chunk", "Tokenizer", "Tokens", "chunk_all", "chunks", "pack"]
