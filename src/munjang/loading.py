"""`munjang.load` and its siblings.

A model is named by a bundled name, the path of a folder, or a hub id. A bundled name ('munjang-ko-en',
'munjang-rerank-ko-en') is the model in this package, even if the working directory has a folder of that name;
'./munjang-ko-en' or a `Path` is a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from munjang import bundled
from munjang.checkpoint import HeadName, read_word_vectors
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError, ModelError
from munjang.nn.pooling import PoolingMode
from munjang.types import DTypeName


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
    """Load a bi-encoder: without an argument the bundled one, 'munjang-ko-en', which needs no network.

    path_or_id: a bundled name, a folder ('./munjang-ko-en' is one) or a hub id.
    device: 'cpu', 'cuda', 'cuda:1'...; by default the GPU where there is one. dtype: 'auto' is float16 on CUDA,
    bfloat16 on CPUs that compute with it, float32 elsewhere; 'float32' is exact. revision: a hub commit, branch or tag.
    local_files_only: never ask the network, only the hub's cache on this machine.
    """
    if path_or_id == bundled.RERANKER:
        raise InputError(f"{path_or_id} is a cross-encoder, which makes no vectors: munjang.load_reranker loads it")
    return BiEncoder.load(
        bundled.BI_ENCODER if path_or_id is None else path_or_id,
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

    path_or_id: a bundled name ('munjang-rerank-ko-en'), a folder or a hub id.
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
    """Load a cross-encoder that gives one score, for ranking: without an argument 'munjang-rerank-ko-en', bundled.

    path_or_id: a bundled name, a folder ('./munjang-rerank-ko-en' is one) or a hub id.
    """
    if path_or_id == bundled.BI_ENCODER:
        raise InputError(f"{path_or_id} is a bi-encoder, which scores no pairs: munjang.load loads it")
    model = CrossEncoder.load(
        bundled.RERANKER if path_or_id is None else path_or_id,
        device=device,
        dtype=dtype,
        max_length=max_length,
        revision=revision,
        local_files_only=local_files_only,
    )
    if len(model.labels) != 1:
        labels = ", ".join(model.labels)
        raise InputError(f"a reranker gives one score, but {model.parts.source} has the labels {labels}")
    new = next((note for note in model.parts.notes if note.startswith("the head is new")), None)
    if new is not None:
        raise ModelError(
            f"{model.parts.source} was never trained to rerank ({new}): give a cross-encoder; "
            "munjang.load_cross_encoder puts a new head on a body, to be trained"
        )
    return model


def from_word_vectors(path: str | Path, *, lower_case: bool = True) -> BiEncoder:
    """A bi-encoder that averages word vectors (GloVe, word2vec or fastText text files): the baseline to beat."""
    return BiEncoder(read_word_vectors(Path(path), lower_case=lower_case))
