"""What an export is asked for, and what it did: `ExportOptions` enters, `Exported` leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from munjang.errors import InputError

ExportFormat = Literal["sentence-transformers", "onnx", "munjang"]
ExportDType = Literal["float32", "float16", "int8"]
ModelKind = Literal["bi-encoder", "cross-encoder"]

# The precisions of every format, the usual one first.
DTYPES: dict[ExportFormat, tuple[ExportDType, ...]] = {
    "sentence-transformers": ("float32", "float16"),
    "onnx": ("float32", "float16", "int8"),
    "munjang": ("int8",),
}
_WHY = {
    "sentence-transformers": "it reads no int8 weights; `onnx` and `munjang` have int8",
    "munjang": "it is the compact format; `sentence-transformers` has float32 and float16",
}


@dataclass(frozen=True)
class ExportOptions:
    """Which format, in which precision.

    dtype: None is the usual one of the format. card: the README.md of the new folder instead of the one written
    otherwise. overwrite: replace a model that is there.
    """

    format: ExportFormat = "sentence-transformers"
    dtype: ExportDType | None = None
    card: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.format not in DTYPES:
            raise InputError(f"format must be one of {', '.join(DTYPES)}, got {self.format!r}")
        if self.dtype is not None and self.dtype not in get_args(ExportDType):
            raise InputError(f"dtype must be one of {', '.join(get_args(ExportDType))}, got {self.dtype!r}")
        if self.dtype is not None and self.dtype not in DTYPES[self.format]:
            known = " or ".join(DTYPES[self.format])
            raise InputError(f"the format {self.format} takes dtype {known}, got {self.dtype}: {_WHY[self.format]}")

    @property
    def precision(self) -> ExportDType:
        """The dtype, or else the usual one of the format."""
        return self.dtype or DTYPES[self.format][0]


@dataclass(frozen=True)
class Check:
    """How far what was read back is from the model."""

    file: str  # what was read: 'model.safetensors', 'onnx/model.onnx'
    reader: str  # by what: 'munjang', 'onnxruntime 1.20.0'
    texts: int  # sentences, or pairs, that were compared
    largest_difference: float  # of vectors, as a share of their length; of scores, as it is
    limit: float  # above which the export would have failed
    lowest_cosine: float | None = None  # of vectors

    def __str__(self) -> str:
        what = "pairs" if self.lowest_cosine is None else "sentences"
        found = f"largest difference {self.largest_difference:.2g} (allowed {self.limit:g})"
        if self.lowest_cosine is not None:
            found = f"lowest cosine {self.lowest_cosine:.6f}, {found}"
        return f"{self.file} read by {self.reader}: {found} on {self.texts} {what}"


@dataclass(frozen=True)
class Exported:
    """A finished export."""

    folder: Path
    kind: ModelKind
    format: ExportFormat
    dtype: ExportDType
    files: dict[str, int]  # bytes by path inside the folder
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...] = ()  # files that were written but not read again, and why, in words
    inputs: tuple[str, ...] = ()  # of the ONNX graph
    outputs: tuple[str, ...] = ()

    @property
    def lowest_cosine(self) -> float | None:
        """The lowest cosine of all checks; None where none compared vectors."""
        return min((check.lowest_cosine for check in self.checks if check.lowest_cosine is not None), default=None)

    @property
    def largest_difference(self) -> float | None:
        """The largest difference of all checks; None where there was none."""
        return max((check.largest_difference for check in self.checks), default=None)
