"""Operations on vectors: similarity, exact search, quantisation, and resumable files. No models.

    similarity.py  similarity of matrices or row by row, unit vectors; matrices that are read in blocks
    search.py      the k nearest rows of a corpus, exactly, in bounded memory
    quantize.py    int8 and binary vectors, and search on them
    files.py       .npy, .parquet and .jsonl: one resumable writer, one reader

Functions take numpy arrays or torch tensors, [n, d] or one vector [d], and return the kind of their first argument (for
a tensor: on the same device). Numbers are float32, or float64 where an input is float64. The arithmetic runs in torch,
which is imported by the first call, never by `import munjang.vectors`.
"""

from munjang.vectors.files import VectorWriter, open_writer, read_vectors
from munjang.vectors.quantize import (
    BinaryVectors,
    Int8Vectors,
    decode_binary,
    decode_int8,
    hamming_distances,
    quantize_binary,
    quantize_int8,
    top_k_binary,
    top_k_int8,
)
from munjang.vectors.search import TopK, top_k
from munjang.vectors.similarity import normalize, pairwise_similarity, similarity

__all__ = [
    "BinaryVectors",
    "Int8Vectors",
    "TopK",
    "VectorWriter",
    "decode_binary",
    "decode_int8",
    "hamming_distances",
    "normalize",
    "open_writer",
    "pairwise_similarity",
    "quantize_binary",
    "quantize_int8",
    "read_vectors",
    "similarity",
    "top_k",
    "top_k_binary",
    "top_k_int8",
]
