"""Model folders: the only package that knows how models are stored.

Encoders need six calls and two classes: `resolve` turns a name into a folder, `read_bi` and `read_cross` turn a folder
into `BiParts` or `CrossParts`, `write_bi` and `write_cross` save them, `is_cross` says which of the two a folder holds.
`cross_from_bi` and `replace_head` put a head on a body, `read_word_vectors` reads a file of word vectors.
"""

from munjang.checkpoint.card import model_card
from munjang.checkpoint.cross import cross_from_bi, replace_head
from munjang.checkpoint.hub import resolve
from munjang.checkpoint.parts import BiParts, Body, CrossParts, HeadName, read_thresholds
from munjang.checkpoint.read import is_cross, read_bi, read_cross
from munjang.checkpoint.static import read_word_vectors
from munjang.checkpoint.write import write_bi, write_cross

__all__ = [
    "BiParts",
    "Body",
    "CrossParts",
    "HeadName",
    "cross_from_bi",
    "is_cross",
    "model_card",
    "read_bi",
    "read_cross",
    "read_thresholds",
    "read_word_vectors",
    "replace_head",
    "resolve",
    "write_bi",
    "write_cross",
]
