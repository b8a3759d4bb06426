"""Models on disk: `resolve` finds one, `read` takes it apart, `write` saves it. Nothing else knows these formats."""

from munjang.checkpoint.hub import resolve
from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.reading import read
from munjang.checkpoint.words import static_from_words
from munjang.checkpoint.writing import write

__all__ = ["ModelParts", "read", "resolve", "static_from_words", "write"]
