"""Examples -> the same, checked for what an evaluator needs; every error names the set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.metrics import bootstrap
from munjang.evaluation.metrics.arrays import Array

if TYPE_CHECKING:
    from munjang.data.examples import Examples


def check(examples: Examples, *kinds: str, least: int = 1) -> None:
    """Only examples of these kinds, and enough of them."""
    if not hasattr(examples, "kind"):
        raise InputError(
            f"expected Examples, got {type(examples).__name__}: make them with Examples.from_dicts(data, "
            f"kind={kinds[0]!r})"
        )
    if examples.kind not in kinds:
        raise InputError(f"{examples.name}: expected examples of kind {' or '.join(kinds)}, got {examples.kind}")
    if len(examples) < least:
        raise InputError(f"{examples.name}: expected at least {least} rows, got {len(examples)}")


def gold(examples: Examples) -> Array:
    """The targets; that there are some, and not all the same."""
    if examples.targets is None:
        raise InputError(f"{examples.name}: the rows have no scores or labels to compare with")
    if examples.targets.ndim == 1 and len(np.unique(examples.targets)) < 2:
        what = "score" if examples.kind == "scored" else "label"
        shown = examples.targets[0]
        if examples.labels and what == "label":
            shown = repr(examples.labels[int(shown)])
        raise InputError(
            f"{examples.name}: constant gold {what}s: all {len(examples):,} rows have the {what} {shown}, so there is "
            "nothing to tell apart"
        )
    return examples.targets


def pairs_of(examples: Examples, left: str = "a", right: str = "b") -> list[tuple[str, str]]:
    """Two columns, row by row."""
    return list(zip(examples.columns[left], examples.columns[right], strict=True))


def interval(
    name: str, metric: Callable[..., float], columns: Sequence[Array], *, samples: int
) -> dict[str, tuple[float, float]]:
    """The bootstrap interval of a metric under its name, where one is asked for."""
    if not samples:
        return {}
    return {name: bootstrap(metric, *columns, samples=samples)}


def joined(*notes: tuple[str, ...]) -> tuple[str, ...]:
    """All notes, each once."""
    return tuple(dict.fromkeys(note for some in notes for note in some))
