"""A Munjang model as the package mteb (2.x) wants one, so that its hundreds of tasks run on it.

    import mteb
    from munjang.evaluation.mteb_adapter import MtebModel

    mteb.evaluate(MtebModel(munjang.load("path")), mteb.get_tasks(["KLUE-STS"]))

mteb hands over batches of dicts with `text`; all of them are encoded in one call, because Munjang sorts and packs by
itself (mteb's batch size is of no use here). Queries and documents get the model's prompts for them. mteb itself is
imported only when it asks for the model's description.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from munjang.errors import InputError, MissingExtraError
from munjang.evaluation.metrics.arrays import Array
from munjang.vectors import pairwise_similarity, similarity

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.cross_encoder import CrossEncoder

Batches = Iterable[Mapping[str, Sequence[str]]]  # mteb's DataLoader of text


class MtebModel:
    """A bi-encoder with mteb's EncoderProtocol."""

    def __init__(self, model: BiEncoder, *, name: str | None = None, revision: str | None = None) -> None:
        self.model = model
        self._name, self._revision = name, revision

    def encode(self, inputs: Batches, *, prompt_type: object = None, **mteb_options: object) -> Array:
        """Vectors of all texts; `mteb_options` (task, split, batch size) change nothing about them."""
        texts = _texts(inputs)
        role = getattr(prompt_type, "value", prompt_type)
        if role == "query":
            return self.model.encode_query(texts)
        if role == "document":
            return self.model.encode_document(texts)
        return self.model.encode(texts)

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Every row with every row, by the model's own measure: [n, m]."""
        return similarity(embeddings1, embeddings2, self.model.similarity_name)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Row by row: [n]."""
        return pairwise_similarity(embeddings1, embeddings2, self.model.similarity_name)

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb writes into its results."""
        known = {
            "embed_dim": self.model.dimension,
            "max_tokens": self.model.max_length,
            "similarity_fn_name": self.model.similarity_name,  # mteb uses the same four words
        }
        return _meta(self.model, self._name, self._revision, known)


class MtebReranker:
    """A cross-encoder with mteb's CrossEncoderProtocol, for its reranking tasks."""

    def __init__(self, model: CrossEncoder, *, name: str | None = None, revision: str | None = None) -> None:
        if len(model.labels) != 1:
            raise InputError(f"mteb wants one score per pair, got a cross-encoder with {len(model.labels)} outputs")
        self.model = model
        self._name, self._revision = name, revision

    def predict(self, inputs1: Batches, inputs2: Batches, **mteb_options: object) -> Array:
        """The score of every pair."""
        queries, documents = _texts(inputs1), _texts(inputs2)
        return self.model.predict(list(zip(queries, documents, strict=True)))

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb writes into its results."""
        known = {"max_tokens": self.model.max_length, "model_type": ["cross-encoder"]}
        return _meta(self.model, self._name, self._revision, known)


def _texts(inputs: Batches) -> list[str]:
    texts: list[str] = []
    for batch in inputs:
        if "text" not in batch:
            raise InputError(f"mteb handed over {', '.join(batch)}, but Munjang's models read only text")
        texts.extend(batch["text"])
    return texts


def _meta(model: BiEncoder | CrossEncoder, name: str | None, revision: str | None, known: Mapping[str, object]) -> Any:
    try:
        mteb = importlib.import_module("mteb.models.model_meta")
    except ImportError:
        raise MissingExtraError("mteb", "mteb", "running mteb's tasks") from None
    if "similarity_fn_name" in known:
        known = {**known, "similarity_fn_name": mteb.ScoringFunction(known["similarity_fn_name"])}
    named = {
        "name": name or f"munjang/{model.fingerprint[:12]}",  # mteb wants owner/name
        "revision": revision or model.fingerprint[:12],
        "n_parameters": sum(weight.numel() for weight in model.parts.body.parameters()),
        "framework": ["PyTorch"],
    }
    return mteb.ModelMeta.create_empty(overwrites={**named, **known})
