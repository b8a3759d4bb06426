"""`Asked`: a model under the name that tables show, and its vectors, each list of texts encoded once.

Enters: NAME=PATH and lists of texts. Leaves: float32 [n, d], from a file where the same model has encoded the same
texts before. Encoding that was killed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import munjang

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Asked:
    """A model that is measured."""

    name: str
    model: munjang.BiEncoder
    cache: Path  # a folder of .npy files

    @classmethod
    def load(cls, given: str, cache: Path, *, device: str | None = None) -> Asked:
        """`NAME=PATH`, or a bundled name, a folder or a hub id, whose last part is then the name."""
        name, found, source = given.partition("=")
        source = source if found else given
        if not source or not name:
            raise SystemExit(f"--model must be NAME=PATH, a folder, a bundled name or a hub id, got {given!r}")
        model = munjang.load(source, device=device, dtype="float32")  # figures that any machine gives again
        return cls(name if found else Path(source).name, model, cache)

    def vectors(self, texts: Sequence[str], what: str) -> Array:
        """Of these texts, in their order."""
        key = hashlib.sha256(self.model.fingerprint.encode())
        for text in texts:
            key.update(text.encode() + b"\0")
        path = self.cache / f"{key.hexdigest()[:32]}.npy"
        if not path.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            report = self.model.encode_to(texts, path, progress=sys.stderr.isatty())
            print(f"{self.name}, {what}: {report}", flush=True)
        found: Array = np.load(path)
        return found
