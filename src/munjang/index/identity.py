"""Which model made an index: what is stored of it, how it is found again, and how another one is refused.

Vectors of two models cannot be compared, so an index belongs to one: its weights, tokenizer, pooling and length (the
fingerprint), its prompt for documents, its dimension and its measure of similarity.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from munjang import bundled
from munjang.encoders import BiEncoder
from munjang.errors import InputError, ModelError, MunjangError
from munjang.loading import load
from munjang.types import Similarity


@dataclass(frozen=True)
class Identity:
    """A model as an index remembers it."""

    source: str  # a bundled name, the path of a folder, hub id@revision; empty for a model that was never on disk
    fingerprint: str
    dimension: int
    full_dimension: int
    similarity: Similarity
    prompt: str  # before every document
    max_length: int

    @classmethod
    def of(cls, model: BiEncoder) -> Identity:
        if not isinstance(model, BiEncoder):
            raise InputError(f"the model of an index is a bi-encoder (munjang.load), got {type(model).__name__}")
        return cls(
            source=_source(model.parts.source),
            fingerprint=model.fingerprint,
            dimension=model.dimension,
            full_dimension=model.full_dimension,
            similarity=model.similarity_name,
            prompt=document_prompt(model),
            max_length=model.max_length,
        )

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def check(self, model: BiEncoder, folder: Path | str) -> None:
        """Raise unless the model makes the vectors that the index holds."""
        came = Identity.of(model)
        for name in ("fingerprint", "dimension", "similarity", "prompt"):
            mine, theirs = getattr(self, name), getattr(came, name)
            if mine == theirs:
                continue
            what = f"its {name} is {theirs!r}, not {mine!r}"
            if name == "fingerprint":
                what = "weights, tokenizer, pooling or max_length differ"
                if (self.source, self.max_length) == (came.source, came.max_length) and came.source in bundled.NAMES:
                    what = f"this version of Munjang bundles another version of {came.source}"
            raise ModelError(
                f"{folder} was made by another model: it is of {self._named()}, got {came._named()}: {what}. Open it "
                f"with its own model, or move it to this one: `munjang index reencode {folder} --model "
                f"{came.source or 'MODEL'}`, or Index.reencode"
            )

    def _named(self) -> str:
        source = self.source or "a model that was not on disk"
        return f"{source} ({self.fingerprint[:12]}, dimension {self.dimension})"

    def load(self, folder: Path | str) -> BiEncoder:
        """The model, from where it was when the index was made."""
        if not self.source:
            raise ModelError(
                f"{folder} was made by a model that was not on disk, so it cannot be loaded: Index.open(path, model)"
            )
        name, _, revision = self.source.partition("@")
        on_disk = self.source in bundled.NAMES or not revision or os.path.isdir(self.source)
        try:
            model = load(self.source) if on_disk else load(name, revision=revision)
        except MunjangError as error:
            raise ModelError(
                f"{folder} was made by {self.source}, which cannot be loaded ({error}); give the model: "
                "Index.open(path, model), or --model on the command line; or move the index to another model: "
                f"`munjang index reencode {folder}`"
            ) from error
        if model.max_length != self.max_length and self.max_length <= model.parts.body.max_positions:
            model.max_length = self.max_length
        if model.full_dimension == self.full_dimension and model.dimension != self.dimension:
            model.truncate_dim = self.dimension
        self.check(model, folder)
        return model


def document_prompt(model: BiEncoder) -> str:
    """What `encode_document` puts before every text."""
    names = ("document", "passage", "corpus", model.parts.default_prompt_name)
    return next((model.prompts[name] for name in names if name is not None and name in model.prompts), "")


def _source(source: str) -> str:
    """The source as it can be found from another working directory."""
    if not source or source in bundled.NAMES or not os.path.isdir(source):
        return source
    return str(Path(source).absolute())
