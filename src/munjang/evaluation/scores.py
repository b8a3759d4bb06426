"""What an evaluation answers with, and what an evaluator is.

Values are in natural units (0..1); tables multiply them by 100. Greater is better for every metric called `main`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from munjang.errors import InputError

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder, CrossEncoder

Model: TypeAlias = "BiEncoder | CrossEncoder"


@dataclass(frozen=True)
class Scores:
    """The metrics of one model on one set."""

    name: str  # "KorSTS test"
    values: dict[str, float]  # metric -> value
    main: str  # the metric that decides
    rows: int  # how many rows, queries or texts the values rest on
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # metric -> bootstrap 95 %
    notes: tuple[str, ...] = ()  # what a reader must know: texts cut, rows left out, a capped set

    def __post_init__(self) -> None:
        if self.main not in self.values:
            raise InputError(f"{self.name}: main must be one of {', '.join(self.values)}, got {self.main!r}")

    @property
    def value(self) -> float:
        """The metric that decides."""
        return self.values[self.main]

    def to_dict(self) -> dict[str, object]:
        """As JSON takes it."""
        return {
            "name": self.name,
            "main": self.main,
            "rows": self.rows,
            "values": dict(self.values),
            "intervals": {metric: list(bounds) for metric, bounds in self.intervals.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, object]) -> Scores:
        """Back from JSON."""
        try:
            intervals = cast("dict[str, list[float]]", saved.get("intervals", {}))
            return cls(
                name=str(saved["name"]),
                values={metric: float(v) for metric, v in cast("dict[str, float]", saved["values"]).items()},
                main=str(saved["main"]),
                rows=int(cast("int", saved["rows"])),
                intervals={metric: (float(low), float(high)) for metric, (low, high) in intervals.items()},
                notes=tuple(cast("list[str]", saved.get("notes", []))),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"expected scores as Scores.to_dict() gives them, got {saved!r}: {error!r}") from error

    def __str__(self) -> str:
        shown = f"{self.name}: {self.main} {100 * self.value:.2f}"
        if self.main in self.intervals:
            low, high = self.intervals[self.main]
            shown += f" [{100 * low:.2f}, {100 * high:.2f}]"
        return f"{shown} ({self.rows:,} rows)"


class Evaluator(Protocol):
    """Something that takes a model and answers with scores."""

    @property
    def name(self) -> str: ...

    @property
    def main(self) -> str:
        """The metric that decides; greater is better."""

    def __call__(self, model: Model) -> Scores: ...


def cross_encoder(model: Model) -> CrossEncoder | None:
    """The model, where it scores pairs; asked by what it can do, so that a stand-in of the same shape works too."""
    return cast("CrossEncoder", model) if hasattr(model, "predict") else None


def bi_encoder(model: Model, *, name: str) -> BiEncoder:
    """The model, where it makes vectors; else an error that names the set."""
    if not hasattr(model, "encode"):
        raise InputError(f"{name} needs vectors: expected a bi-encoder, got {type(model).__name__}")
    return cast("BiEncoder", model)
