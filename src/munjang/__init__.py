"""Munjang: Sentence-BERT, whole. `import munjang` is quick: torch is loaded when a model is.

model = munjang.load()  # the bundled model; or munjang.load("path/or/hub-id")
vectors = model.encode(["문장", "sentence"])  # float32 [2, dimension]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from munjang import errors
from munjang.types import EncodeReport, Threshold

if TYPE_CHECKING:
    from munjang import bundled, data, evaluation, exporting, recipes, training
    from munjang.bi_encoder import BiEncoder, Encoded
    from munjang.cross_encoder import Calibration, CrossEncoder, Predicted, Ranked
    from munjang.loading import from_word_vectors, load, load_cross_encoder, load_reranker
    from munjang.text.chunks import Chunk, chunks
    from munjang.vectors import pairwise_similarity, similarity, top_k

__version__ = "0.1.0"

__all__ = [
    "BiEncoder",
    "Calibration",
    "Chunk",
    "CrossEncoder",
    "EncodeReport",
    "Encoded",
    "Predicted",
    "Ranked",
    "Threshold",
    "bundled",
    "chunks",
    "data",
    "errors",
    "evaluation",
    "exporting",
    "from_word_vectors",
    "load",
    "load_cross_encoder",
    "load_reranker",
    "pairwise_similarity",
    "recipes",
    "similarity",
    "top_k",
    "training",
]

# Name -> the module that has it; read on first use.
_LAZY = {
    "BiEncoder": "munjang.bi_encoder",
    "Encoded": "munjang.bi_encoder",
    "Calibration": "munjang.cross_encoder",
    "CrossEncoder": "munjang.cross_encoder",
    "Predicted": "munjang.cross_encoder",
    "Ranked": "munjang.cross_encoder",
    "load": "munjang.loading",
    "load_cross_encoder": "munjang.loading",
    "load_reranker": "munjang.loading",
    "from_word_vectors": "munjang.loading",
    "Chunk": "munjang.text.chunks",
    "chunks": "munjang.text.chunks",
    "similarity": "munjang.vectors",
    "pairwise_similarity": "munjang.vectors",
    "top_k": "munjang.vectors",
}


_ROOMS = ("bundled", "data", "evaluation", "exporting", "recipes", "training")


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"munjang.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'munjang' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_ROOMS})
