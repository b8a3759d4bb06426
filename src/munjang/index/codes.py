"""Vectors as bytes in the database, and back.

float32: the d floats. int8 (also what "binary" keeps, whose bits are derived): one float32 scale, then d int8 codes;
the vector is scale * codes. All little-endian, so that a folder may be carried to another machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError
from munjang.index.options import VectorKind

_LARGEST = 127.0


class Codec:
    """One index's way from vectors to bytes."""

    def __init__(self, kind: VectorKind, dimension: int) -> None:
        self.kind = kind
        self.dimension = dimension
        self.size = 4 * dimension if kind == "float32" else 4 + dimension  # bytes of one vector

    def encode(self, vectors: NDArray[np.float32]) -> list[bytes]:
        """The vectors [n, d], each as bytes."""
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        if self.kind == "float32":
            return [row.tobytes() for row in rows]
        scales = (np.abs(rows).max(axis=1, initial=0.0) / _LARGEST).astype("<f4")  # [n]
        codes = np.rint(rows / np.where(scales > 0, scales, 1)[:, None]).clip(-_LARGEST, _LARGEST).astype(np.int8)
        return [scale.tobytes() + row.tobytes() for scale, row in zip(scales, codes, strict=True)]

    def decode(self, blobs: Sequence[bytes]) -> NDArray[np.float32]:
        """Float32 [n, d]; bytes of another size are damage."""
        wrong = next((blob for blob in blobs if len(blob) != self.size), None)
        if wrong is not None:
            raise DataError(
                f"a vector of the index must be {self.size} bytes ({self.kind}, {self.dimension} dimensions), got "
                f"{len(wrong)}: the database is damaged; restore it from a copy or an export"
            )
        table = np.frombuffer(b"".join(blobs), dtype=np.uint8).reshape(len(blobs), self.size)
        if self.kind == "float32":
            return table.view("<f4").astype(np.float32)
        scales = np.ascontiguousarray(table[:, :4]).view("<f4")  # [n, 1]
        codes = np.ascontiguousarray(table[:, 4:]).view(np.int8).astype(np.float32)
        return codes * scales.astype(np.float32)
