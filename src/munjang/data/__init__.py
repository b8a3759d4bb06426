"""Data in and out of files and tables: checked texts and rows, examples to train on, public data sets.

`open_rows`, `open_texts` and `open_pairs` are the one gate for input; `read_examples` reads labelled data,
`load_dataset` and `load_retrieval` public sets by name; `leakage` finds evaluation sentences in training data. Modules
load on first use, so that `munjang --help` does without numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from munjang.data.columns import Kind
    from munjang.data.datasets import DATASETS, RETRIEVAL_DATASETS, Known, load_dataset, load_retrieval
    from munjang.data.examples import (
        Examples,
        Retrieval,
        join,
        labelled_to_pairs,
        labelled_to_scored,
        nli_pairs,
        nli_triplets,
        scored_to_labelled,
        scored_to_pairs,
    )
    from munjang.data.overlaps import Leakage, leakage, without
    from munjang.data.reading import NLI_LABELS, Reading, Refused, read_examples
    from munjang.data.rows import ReadOptions, Row, RowSource, open_pairs, open_rows, open_texts, read_texts

__all__ = [
    "DATASETS",
    "NLI_LABELS",
    "RETRIEVAL_DATASETS",
    "Examples",
    "Kind",
    "Known",
    "Leakage",
    "ReadOptions",
    "Reading",
    "Refused",
    "Retrieval",
    "Row",
    "RowSource",
    "join",
    "labelled_to_pairs",
    "labelled_to_scored",
    "leakage",
    "load_dataset",
    "load_retrieval",
    "nli_pairs",
    "nli_triplets",
    "open_pairs",
    "open_rows",
    "open_texts",
    "read_examples",
    "read_texts",
    "scored_to_labelled",
    "scored_to_pairs",
    "without",
]

_NAMES = {
    "columns": "Kind",
    "datasets": "DATASETS RETRIEVAL_DATASETS Known load_dataset load_retrieval",
    "examples": "Examples Retrieval join labelled_to_pairs labelled_to_scored nli_pairs nli_triplets "
    "scored_to_labelled scored_to_pairs",
    "overlaps": "Leakage leakage without",
    "reading": "NLI_LABELS Reading Refused read_examples",
    "rows": "ReadOptions Row RowSource open_pairs open_rows open_texts read_texts",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'munjang.data' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"munjang.data.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
