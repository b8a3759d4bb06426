"""Which model something was made with: a name to load it by, and a fingerprint that tells whether it is still the same.

Vectors of another model mean something else, even where their width is the same. So what rests on a model's vectors
keeps a reference to it, and refuses another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from munjang import bundled
from munjang.encoders import BiEncoder
from munjang.errors import ModelError, ModelNotFoundError
from munjang.loading import load


@dataclass(frozen=True)
class ModelReference:
    """A bi-encoder, as a saved thing names it."""

    name: str  # a bundled name, the path of a folder, or a hub id; empty: it was made in memory
    revision: str | None  # of a hub id
    fingerprint: str
    max_length: int
    dimension: int

    @classmethod
    def of(cls, model: BiEncoder) -> ModelReference:
        name, revision = model.parts.source, None
        if Path(name).exists():
            name = str(Path(name).absolute())
        elif "@" in name:
            name, _, revision = name.rpartition("@")
        return cls(name, revision, model.fingerprint, model.max_length, model.dimension)

    @classmethod
    def from_dict(cls, saved: object) -> ModelReference:
        try:
            assert isinstance(saved, Mapping)
            return cls(
                str(saved["name"]),
                None if saved["revision"] is None else str(saved["revision"]),
                str(saved["fingerprint"]),
                int(saved["max_length"]),
                int(saved["dimension"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"expected the model that was used, with name and fingerprint, got {saved!r:.200}"
            ) from error

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def load(self, what: str, *, device: str | None = None) -> BiEncoder:
        """The model by its name, which must still be the same; `what` rests on it."""
        if not self.name:
            raise ModelError(f"{what} was made with a model that was never saved: pass that model")
        try:
            model = load(self.name, revision=self.revision, device=device)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                f"{what} was made with the model {self.name}, which is not there: pass the model ({error})"
            ) from error
        return self.check(self.fitted(model), what)

    def fitted(self, model: BiEncoder) -> BiEncoder:
        """The same length and width as they were then."""
        if model.max_length != self.max_length:
            model.max_length = min(self.max_length, model.parts.body.max_positions)
        if model.dimension != self.dimension <= model.full_dimension:
            model.truncate_dim = self.dimension
        return model

    def check(self, model: BiEncoder, what: str) -> BiEncoder:
        """The model, if it is the one that was used then."""
        if model.fingerprint == self.fingerprint and model.dimension == self.dimension:
            return model
        differs = (
            f"its vectors have {model.dimension} dimensions, not {self.dimension} (see truncate_dim)"
            if model.dimension != self.dimension
            else f"it reads {model.max_length} tokens, not {self.max_length} (see max_length)"
            if model.max_length != self.max_length
            else "its weights, tokenizer or pooling differ"
            if self.name != model.parts.source or self.name not in bundled.NAMES
            else f"this version of Munjang bundles another version of {self.name}"
        )
        raise ModelError(
            f"{what} was made with another model than {model.parts.source or 'the one given'}: {differs}. Pass the "
            f"model that was used ({self.name or 'made in memory'}), or train {what} again"
        )
