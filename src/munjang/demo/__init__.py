"""A small corpus of our own, and a search page over it.

    corpus      the passages as documents, and which of them say the same
    building    documents -> an index, made whole or not at all; kept in the user's cache
    starting    `munjang demo`: model, index, service, browser

    documents = munjang.demo.documents()
    index = munjang.demo.build_index("my-sample", munjang.load())

Importing this loads no torch.
"""

from munjang.demo.building import build_index
from munjang.demo.corpus import documents, groups
from munjang.demo.starting import DemoOptions, run

__all__ = ["DemoOptions", "build_index", "documents", "groups", "run"]
