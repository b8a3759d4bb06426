"""Models on disk: `resolve` finds one, `read` takes it apart, `write` saves it. Nothing else knows these formats.

`read_cross` and `write_cross` do the same for cross-encoders.
"""

from munjang.checkpoint.cross_parts import CrossParts
from munjang.checkpoint.cross_reading import HeadWish, is_cross, read_cross
from munjang.checkpoint.cross_writing import write_cross
from munjang.checkpoint.hub import resolve
from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.reading import read
from munjang.checkpoint.thresholds import read_thresholds, with_thresholds
from munjang.checkpoint.words import static_from_words
from munjang.checkpoint.writing import write

__all__ = [
    "CrossParts",
    "HeadWish",
    "ModelParts",
    "is_cross",
    "read",
    "read_cross",
    "read_thresholds",
    "resolve",
    "static_from_words",
    "with_thresholds",
    "write",
    "write_cross",
]
