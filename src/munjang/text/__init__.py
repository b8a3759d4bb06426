"""Texts to token ids, packed batches, chunks and morphemes. Nothing here imports torch."""
