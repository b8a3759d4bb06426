"""Two teachers as one: the vectors of both side by side, each of its own length.

    cosine of two texts = (1 - share) * the first teacher's cosine + share * the second's

Models that learned by contrast, such as multilingual-e5, put all texts into a narrow cone: their cosines lie between
0.7 and 1, and beside another's they would say little. So the second teacher's vectors are taken from their mean over
some texts, which spreads them, and changes the order of its cosines hardly at all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.errors import InputError
from munjang.recipes.distilling.options import VectorTeacher
from munjang.training.run import hash_texts
from munjang.vectors import normalize

Array = np.ndarray[Any, Any]
_VERSION = 1  # of what is computed; part of the fingerprint


class JoinedTeacher:
    """A `VectorTeacher` of two."""

    def __init__(
        self, first: VectorTeacher, second: BiEncoder, texts: Sequence[str], *, share: float, prompt: str = ""
    ) -> None:
        """texts: whose mean is the middle of the second's vectors. prompt: stands before every text for the second."""
        if not texts:
            raise InputError("expected texts whose mean is the middle of the second teacher's vectors, got none")
        if not 0 < share < 1:
            raise InputError(f"share must be between 0 and 1, got {share}")
        self.first, self.second, self.share, self.prompt = first, second, share, prompt
        self._texts = list(texts)
        told = [str(_VERSION), first.fingerprint, second.fingerprint, hash_texts(texts), str(share), prompt]
        self._fingerprint = hashlib.sha256("\0".join(told).encode()).hexdigest()

    @property
    def dimension(self) -> int:
        return self.first.dimension + self.second.dimension

    @property
    def fingerprint(self) -> str:
        """Of both, and of how they are joined."""
        return self._fingerprint

    @property
    def device(self) -> object:
        return self.second.device

    @cached_property
    def middle(self) -> Array:
        """float32 [width]; nothing is computed before something is asked."""
        found: Array = self._plain(self._texts).mean(axis=0)
        return found

    def encode(self, texts: Sequence[str], /) -> Array:
        """float32 [n, dimension], of length 1."""
        first = normalize(np.asarray(self.first.encode(list(texts)), np.float32))
        second = normalize(self._plain(texts) - self.middle)
        return np.concatenate([math.sqrt(1 - self.share) * first, math.sqrt(self.share) * second], axis=1)

    def _plain(self, texts: Sequence[str]) -> Array:
        return self.second.encode([self.prompt + text for text in texts], normalize=True)
