"""Adapters that let the package mteb (2.x) evaluate a Munjang model on its tasks.

    import mteb
    from munjang.evaluation.mteb_adapter import MtebModel

    mteb.evaluate(MtebModel(munjang.load("path")), mteb.get_tasks(["KLUE-STS"]))

mteb passes a DataLoader of dicts with `text`. All of its texts are encoded in one call, since Munjang sorts and packs
them itself; mteb's batch size has no effect. Prompts are resolved as in mteb's own wrapper for sentence-transformers.
mteb is imported only when it is needed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from munjang.errors import InputError, MissingExtraError
from munjang.evaluation.metrics.arrays import Array
from munjang.vectors import pairwise_similarity, similarity

if TYPE_CHECKING:
    from torch import Tensor

    from munjang.encoders import BiEncoder, CrossEncoder

Batches = Iterable[Mapping[str, Sequence[str]]]  # mteb's DataLoader
_OTHER_MODALITIES = frozenset(("image", "audio", "video"))


class MtebModel:
    """A bi-encoder that implements mteb's EncoderProtocol.

    Args:
        model: The bi-encoder. Its `prompts` may be keyed by task name, task type or "query" and "document".
        name: Name in mteb's results, as "owner/name" (default: from the model's fingerprint).
        revision: Revision in mteb's results; mteb reuses cached results of the same name and revision
            (default: a hash of the weights, the prompts and the dimension).
    """

    def __init__(self, model: BiEncoder, *, name: str | None = None, revision: str | None = None) -> None:
        self.model = model
        self._name, self._revision = name, revision
        # As in sentence-transformers, the prompts for queries and documents are empty by default.
        self._prompts = {"query": "", "document": "", **model.prompts}

    def encode(
        self,
        inputs: Batches,
        *,
        task_metadata: Any = None,
        prompt_type: object = None,
        precision: str | None = None,
        **mteb_options: object,
    ) -> Array:
        """Return the vectors of all texts, float32 [n, dimension]; `mteb_options` (split, batch size) have no effect.

        The first of these prompts that the model has is used: "name-role", "name", "type-role", "type", "role", where
        name and type are the task's and role is "query" or "document". Without any, the default prompt is used.
        """
        if precision not in (None, "float32"):
            raise InputError(f"precision must be 'float32', got {precision!r}: vectors are not quantized here")
        role = getattr(prompt_type, "value", prompt_type)
        return self.model.encode(_texts(inputs), prompt=self._prompt(task_metadata, role))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the similarity of every row with every row, [n, m]; a single vector counts as one row."""
        return similarity(_matrix(embeddings1), _matrix(embeddings2), self.model.similarity_name)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the similarity of row i with row i, [n]; a single vector counts as one row."""
        return pairwise_similarity(_matrix(embeddings1), _matrix(embeddings2), self.model.similarity_name)

    @property
    def mteb_model_meta(self) -> Any:
        """The description that mteb writes into its results."""
        model = self.model
        decides_scores = [model.fingerprint, self._prompts, model.parts.default_prompt_name, model.dimension]
        known = {
            "revision": hashlib.blake2b(json.dumps(decides_scores).encode(), digest_size=6).hexdigest(),
            "embed_dim": model.dimension,
            "max_tokens": model.max_length,
            "similarity_fn_name": model.similarity_name,  # mteb uses the same four words
        }
        return _meta(model, self._name, self._revision, known)

    @cached_property
    def _task_prompts(self) -> dict[str, str]:
        """The prompts whose keys mteb accepts; it warns about the others."""
        validate = _mteb("mteb.models.abs_encoder").AbsEncoder.validate_task_to_prompt_name
        valid, _ = validate(self._prompts, raise_for_invalid_keys=False)
        return dict(valid)

    def _prompt(self, task: Any, role: object) -> str | None:
        if task is None:
            return self._prompts.get(str(role))
        keys = [task.name, task.type]
        if role is not None:
            keys = [f"{task.name}-{role}", task.name, f"{task.type}-{role}", task.type, str(role)]
        return next((self._task_prompts[key] for key in keys if key in self._task_prompts), None)


class MtebReranker:
    """A cross-encoder that implements mteb's CrossEncoderProtocol, for reranking tasks."""

    def __init__(self, model: CrossEncoder, *, name: str | None = None, revision: str | None = None) -> None:
        if len(model.labels) != 1:
            raise InputError(f"mteb needs one score per pair, got a cross-encoder with {len(model.labels)} outputs")
        self.model = model
        self._name, self._revision = name, revision

    def predict(self, inputs1: Batches, inputs2: Batches, **mteb_options: object) -> Array:
        """Return the score of every pair."""
        queries, documents = _texts(inputs1), _texts(inputs2)
        return self.model.predict(list(zip(queries, documents, strict=True)))

    @property
    def mteb_model_meta(self) -> Any:
        """The description that mteb writes into its results."""
        known = {"max_tokens": self.model.max_length, "model_type": ["cross-encoder"]}
        return _meta(self.model, self._name, self._revision, known)


def _texts(inputs: Batches) -> list[str]:
    texts: list[str] = []
    for batch in inputs:
        if "text" not in batch or not _OTHER_MODALITIES.isdisjoint(batch):
            raise InputError(f"expected inputs with text only, got {', '.join(batch)}: Munjang's models read only text")
        texts.extend(batch["text"])
    return texts


def _matrix(vectors: Any) -> Tensor:  # [d] or [n, d] -> [n, d]
    import torch

    matrix: Tensor = torch.atleast_2d(torch.as_tensor(vectors).float())
    return matrix


def _mteb(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError("mteb", "mteb", "running mteb's tasks") from None


def _meta(model: BiEncoder | CrossEncoder, name: str | None, revision: str | None, known: Mapping[str, object]) -> Any:
    mteb = _mteb("mteb.models.model_meta")
    if "similarity_fn_name" in known:
        known = {**known, "similarity_fn_name": mteb.ScoringFunction(known["similarity_fn_name"])}
    described = {
        "revision": model.fingerprint[:12],
        "n_parameters": model.describe()["parameters"],
        "framework": ["PyTorch"],
        **known,
        "name": name or f"munjang/{model.fingerprint[:12]}",  # mteb requires owner/name
    }
    if revision:
        described["revision"] = revision
    return mteb.ModelMeta.create_empty(overwrites=described)
