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
    """Load a bi-encoder.

    Args:
        path_or_id: A bundled name, a folder ('./munjang-ko-en' is one) or a hub id (default: the bundled
            'munjang-ko-en', which needs no network).
        device: 'cpu', 'cuda', 'cuda:1', ... (default: the GPU where there is one).
        dtype: 'auto' is float16 on CUDA, bfloat16 on CPUs that compute with it, float32 elsewhere; 'float32' is exact.
        pooling: Pool in this way instead of the saved one.
        max_length: Truncate texts to this many tokens, special tokens included (default: as the model was saved).
        revision: A commit, branch or tag of the hub.
        local_files_only: Look in the hub's cache on this machine, never on the network.

    Raises:
        ModelNotFoundError: There is no such model; the message lists where it was looked for.
        ModelError: The model is damaged, unsafe or of an unknown kind.
        InputError: An argument is impossible for this model or machine.

    Example:
        >>> model = munjang.load()
        >>> model.encode(["비가 온다.", "It is raining."]).shape
        (2, 384)
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

    Args:
        path_or_id: A bundled name ('munjang-rerank-ko-en'), a folder or a hub id.
        labels: The number or the names of the outputs, for a model that is to be trained (default: as saved).
        head: 'sbert' (the paper's) or 'standard' (the family's own), for a new head.
        device: As in `load`.
        dtype: As in `load`.
        max_length: As in `load`, for pairs.
        revision: As in `load`.
        local_files_only: As in `load`.

    Raises:
        ModelNotFoundError: There is no such model; the message lists where it was looked for.
        ModelError: The model is damaged, unsafe or of an unknown kind.
        InputError: An argument is impossible for this model or machine.

    Example:
        >>> model = munjang.load_cross_encoder("munjang-rerank-ko-en")
        >>> model.predict([("비가 온다", "It is raining"), ("비가 온다", "주가가 올랐다")]).shape
        (2,)
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
    """Load a cross-encoder that gives one score, for ranking.

    Args:
        path_or_id: A bundled name, a folder ('./munjang-rerank-ko-en' is one) or a hub id (default: the bundled
            'munjang-rerank-ko-en').
        device: As in `load`.
        dtype: As in `load`.
        max_length: As in `load`, for pairs.
        revision: As in `load`.
        local_files_only: As in `load`.

    Raises:
        ModelNotFoundError: There is no such model; the message lists where it was looked for.
        ModelError: The model is damaged, or was never trained to rerank.
        InputError: The model is a bi-encoder or has several labels, or an argument is impossible for it.

    Example:
        >>> reranker = munjang.load_reranker()
        >>> [ranked.index for ranked in reranker.rank("비가 와요", ["주가가 올랐다", "비가 온다"])]
        [1, 0]
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
    """Make a bi-encoder that averages word vectors: the baseline to beat.

    Args:
        path: A GloVe, word2vec or fastText file in text form, also gzipped.
        lower_case: Lower-case words and texts.

    Raises:
        DataError: The file cannot be read, or a line is malformed.
    """
    return BiEncoder(read_word_vectors(Path(path), lower_case=lower_case))
