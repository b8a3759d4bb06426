"""The front door: `munjang.load` and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from munjang.bi_encoder import BiEncoder
from munjang.checkpoint import static_from_words
from munjang.checkpoint.cross_parts import HeadName
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError
from munjang.types import DTypeName, PoolingMode


def load(
    path_or_id: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: DTypeName = "auto",
    pooling: PoolingMode | Sequence[PoolingMode] | None = None,
    max_length: int | None = None,
    revision: str | None = None,
    local_files_only: bool = False,
) -> BiEncoder:
    """Load a bi-encoder from a folder or a hub id.

    device: 'cpu', 'cuda', 'cuda:1'...; by default the GPU where there is one. dtype: 'auto' is float16 on CUDA,
    bfloat16 on CPUs that compute with it, float32 elsewhere; 'float32' is exact. revision: a hub commit, branch or tag.
    local_files_only: never ask the network, only the hub's cache on this machine.
    """
    if path_or_id is None:
        raise InputError(
            "munjang.load() needs the path of a model folder or a hub id, for example "
            "munjang.load('sentence-transformers/all-MiniLM-L6-v2'): this release carries no model of its own"
        )
    return BiEncoder.load(
        path_or_id,
        device=device,
        dtype=dtype,
        pooling=pooling,
        max_length=max_length,
        revision=revision,
        local_files_only=local_files_only,
    )


def load_cross_encoder(
    path_or_id: str | Path,
    *,
    labels: Sequence[str] | int | None = None,
    head: HeadName | None = None,
    device: str | torch.device | None = None,
    dtype: DTypeName = "auto",
    max_length: int | None = None,
    revision: str | None = None,
    local_files_only: bool = False,
) -> CrossEncoder:
    """Load a cross-encoder: one saved as such, a sequence classifier, or a body that gets a new head.

    labels: how many outputs, or their names, for a model that is to be trained. head: 'sbert' (the paper's) or
    'standard' (the family's own) for a new head. The rest as in `load`.
    """
    return CrossEncoder.load(
        path_or_id,
        labels=labels,
        head=head,
        device=device,
        dtype=dtype,
        max_length=max_length,
        revision=revision,
        local_files_only=local_files_only,
    )


def load_reranker(
    path_or_id: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: DTypeName = "auto",
    max_length: int | None = None,
    revision: str | None = None,
    local_files_only: bool = False,
) -> CrossEncoder:
    """Load a cross-encoder that gives one score, for ranking."""
    if path_or_id is None:
        raise InputError(
            "munjang.load_reranker() needs the path of a model folder or a hub id, for example "
            "munjang.load_reranker('cross-encoder/ms-marco-MiniLM-L6-v2'): this release carries no model of its own"
        )
    model = CrossEncoder.load(
        path_or_id,
        device=device,
        dtype=dtype,
        max_length=max_length,
        revision=revision,
        local_files_only=local_files_only,
    )
    if len(model.labels) != 1:
        raise InputError(f"a reranker gives one score, but {path_or_id} has the labels {', '.join(model.labels)}")
    return model


def from_word_vectors(path: str | Path, *, lower_case: bool = True) -> BiEncoder:
    """A bi-encoder that averages word vectors (GloVe, word2vec or fastText text files): the baseline to beat."""
    return BiEncoder(static_from_words(Path(path), lower_case=lower_case))
