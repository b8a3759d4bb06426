"""Munjang: fast sentence embeddings and reranking for Korean and English.

`import munjang` is fast: torch is imported when a model is loaded.

model = munjang.load()  # the bundled model; or munjang.load("path/or/hub-id")
vectors = model.encode(["문장", "sentence"])  # float32 [2, dimension]
index = munjang.Index.create("my-index", model)  # documents on disk, searched in two stages
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from munjang import errors
from munjang.types import EncodeReport, Threshold

if TYPE_CHECKING:
    from munjang import bundled, data, demo, evaluation, exporting, planning, recipes, tasks, training
    from munjang.encoders import BiEncoder, Calibration, CrossEncoder, Encoded, Predicted, Ranked
    from munjang.index.index import Index
    from munjang.index.options import IndexOptions
    from munjang.index.results import Document, Hit, Results
    from munjang.loading import from_word_vectors, load, load_cross_encoder, load_reranker
    from munjang.search import TextCollection, search_texts
    from munjang.sharding import ShardOptions, ShardResult, encode_shards
    from munjang.tasks.classifier import Classifier
    from munjang.tasks.cluster import Clustering, ClusterOptions, cluster
    from munjang.tasks.few_shot import FineTune
    from munjang.tasks.keywords import MMR, Keyword, MaxSum, keywords, keywords_of_many
    from munjang.tasks.map import Map, text_map
    from munjang.tasks.paraphrases import MiningOptions, mine_paraphrases, near_duplicates, stream_paraphrases
    from munjang.tasks.recommend import Recommender
    from munjang.tasks.topics import TopicOptions, Topics, topics
    from munjang.text.chunks import Chunk, chunks
    from munjang.vectors import pairwise_similarity, similarity, top_k

__version__ = "0.1.0"

__all__ = [
    "MMR",
    "BiEncoder",
    "Calibration",
    "Chunk",
    "Classifier",
    "ClusterOptions",
    "Clustering",
    "CrossEncoder",
    "Document",
    "EncodeReport",
    "Encoded",
    "FineTune",
    "Hit",
    "Index",
    "IndexOptions",
    "Keyword",
    "Map",
    "MaxSum",
    "MiningOptions",
    "Predicted",
    "Ranked",
    "Recommender",
    "Results",
    "ShardOptions",
    "ShardResult",
    "TextCollection",
    "Threshold",
    "TopicOptions",
    "Topics",
    "bundled",
    "chunks",
    "cluster",
    "data",
    "demo",
    "encode_shards",
    "errors",
    "evaluation",
    "exporting",
    "from_word_vectors",
    "keywords",
    "keywords_of_many",
    "load",
    "load_cross_encoder",
    "load_reranker",
    "mine_paraphrases",
    "near_duplicates",
    "pairwise_similarity",
    "planning",
    "recipes",
    "search_texts",
    "similarity",
    "stream_paraphrases",
    "tasks",
    "text_map",
    "top_k",
    "topics",
    "training",
]

# Name -> the module that has it; read on first use.
_LAZY = {
    "BiEncoder": "munjang.encoders",
    "Encoded": "munjang.encoders",
    "Calibration": "munjang.encoders",
    "CrossEncoder": "munjang.encoders",
    "Predicted": "munjang.encoders",
    "Ranked": "munjang.encoders",
    "load": "munjang.loading",
    "load_cross_encoder": "munjang.loading",
    "load_reranker": "munjang.loading",
    "from_word_vectors": "munjang.loading",
    "Chunk": "munjang.text.chunks",
    "chunks": "munjang.text.chunks",
    "Index": "munjang.index.index",
    "IndexOptions": "munjang.index.options",
    "Document": "munjang.index.results",
    "Hit": "munjang.index.results",
    "Results": "munjang.index.results",
    "TextCollection": "munjang.search",
    "search_texts": "munjang.search",
    "ShardOptions": "munjang.sharding",
    "ShardResult": "munjang.sharding",
    "encode_shards": "munjang.sharding",
    "Classifier": "munjang.tasks.classifier",
    "FineTune": "munjang.tasks.few_shot",
    "Clustering": "munjang.tasks.cluster",
    "ClusterOptions": "munjang.tasks.cluster",
    "cluster": "munjang.tasks.cluster",
    "Keyword": "munjang.tasks.keywords",
    "MMR": "munjang.tasks.keywords",
    "MaxSum": "munjang.tasks.keywords",
    "keywords": "munjang.tasks.keywords",
    "keywords_of_many": "munjang.tasks.keywords",
    "Map": "munjang.tasks.map",
    "text_map": "munjang.tasks.map",
    "MiningOptions": "munjang.tasks.paraphrases",
    "mine_paraphrases": "munjang.tasks.paraphrases",
    "near_duplicates": "munjang.tasks.paraphrases",
    "stream_paraphrases": "munjang.tasks.paraphrases",
    "Recommender": "munjang.tasks.recommend",
    "Topics": "munjang.tasks.topics",
    "TopicOptions": "munjang.tasks.topics",
    "topics": "munjang.tasks.topics",
    "similarity": "munjang.vectors",
    "pairwise_similarity": "munjang.vectors",
    "top_k": "munjang.vectors",
}


_ROOMS = ("bundled", "data", "demo", "evaluation", "exporting", "planning", "recipes", "tasks", "training")


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
