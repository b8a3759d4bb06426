"""Files of texts and of examples, as users have them: found encodings, honest errors, bounded memory.

Texts to encode come from `read_texts`; examples to train and evaluate with from `read_examples` (any file with
columns), `load_dataset` and `load_retrieval` (public sets by name). `convert` makes one kind of examples from another,
`leakage` finds evaluation sentences in training data.

Read on first use, so that `munjang --help` need not load numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from munjang.data.cells import NLI_LABELS
    from munjang.data.convert import (
        labelled_to_pairs,
        labelled_to_scored,
        nli_pairs,
        nli_triplets,
        scored_to_labelled,
        scored_to_pairs,
    )
    from munjang.data.datasets import (
        DATASETS,
        RETRIEVAL_DATASETS,
        Known,
        KnownRetrieval,
        load_dataset,
        load_retrieval,
    )
    from munjang.data.examples import Examples, join
    from munjang.data.files import Row, Survey, TextSource, read_texts
    from munjang.data.kinds import Kind
    from munjang.data.overlaps import Leakage, leakage, without
    from munjang.data.reading import Reading, Refused
    from munjang.data.retrieval import Retrieval
    from munjang.data.tabular import read_examples

__all__ = [
    "DATASETS",
    "NLI_LABELS",
    "RETRIEVAL_DATASETS",
    "Examples",
    "Kind",
    "Known",
    "KnownRetrieval",
    "Leakage",
    "Reading",
    "Refused",
    "Retrieval",
    "Row",
    "Survey",
    "TextSource",
    "join",
    "labelled_to_pairs",
    "labelled_to_scored",
    "leakage",
    "load_dataset",
    "load_retrieval",
    "nli_pairs",
    "nli_triplets",
    "read_examples",
    "read_texts",
    "scored_to_labelled",
    "scored_to_pairs",
    "without",
]


# Name -> the module that has it.
_LAZY = {
    "NLI_LABELS": "munjang.data.cells",
    "labelled_to_pairs": "munjang.data.convert",
    "labelled_to_scored": "munjang.data.convert",
    "nli_pairs": "munjang.data.convert",
    "nli_triplets": "munjang.data.convert",
    "scored_to_labelled": "munjang.data.convert",
    "scored_to_pairs": "munjang.data.convert",
    "DATASETS": "munjang.data.datasets",
    "RETRIEVAL_DATASETS": "munjang.data.datasets",
    "Known": "munjang.data.datasets",
    "KnownRetrieval": "munjang.data.datasets",
    "load_dataset": "munjang.data.datasets",
    "load_retrieval": "munjang.data.datasets",
    "Examples": "munjang.data.examples",
    "join": "munjang.data.examples",
    "Row": "munjang.data.files",
    "Survey": "munjang.data.files",
    "TextSource": "munjang.data.files",
    "read_texts": "munjang.data.files",
    "Kind": "munjang.data.kinds",
    "Leakage": "munjang.data.overlaps",
    "leakage": "munjang.data.overlaps",
    "without": "munjang.data.overlaps",
    "Reading": "munjang.data.reading",
    "Refused": "munjang.data.reading",
    "Retrieval": "munjang.data.retrieval",
    "read_examples": "munjang.data.tabular",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'munjang.data' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
