"""Vectors in, numbers out: similarities, exact nearest neighbours, quantisation. Pure functions, no models.

    rows.py              a matrix (numpy array, memory map, tensor) -> blocks of float rows on a device
    scores.py            two matrices -> similarities: whole matrix or row by row; unit vectors
    search.py            queries, corpus -> the k best rows of the corpus for every query, exactly
    quantization.py      float vectors -> int8 or one bit per dimension, and back
    quantized_search.py  the k best among quantised vectors, scored again with floats

Every function takes numpy arrays or torch tensors, `[n, d]` or one vector `[d]`, and answers in the kind of its
first argument (for a tensor: on the same device). Numbers are float32, or float64 where an input is float64.

The arithmetic runs in torch for both kinds: one implementation, which runs on a GPU as well, and an array shares
its memory with the tensor. Torch is imported by the first call, never by `import munjang.vectors`.
"""

from munjang.vectors.quantization import (
    BinaryVectors,
    Int8Vectors,
    decode_binary,
    decode_int8,
    hamming_distances,
    quantize_binary,
    quantize_int8,
)
from munjang.vectors.quantized_search import top_k_binary, top_k_int8
from munjang.vectors.scores import normalize, pairwise_similarity, similarity
from munjang.vectors.search import TopK, top_k

__all__ = [
    "BinaryVectors",
    "Int8Vectors",
    "TopK",
    "decode_binary",
    "decode_int8",
    "hamming_distances",
    "normalize",
    "pairwise_similarity",
    "quantize_binary",
    "quantize_int8",
    "similarity",
    "top_k",
    "top_k_binary",
    "top_k_int8",
]
