"""A folder of public data sets -> what trains (NLI, STS) and what measures, in English or in Korean.

The 1M pairs of SNLI and MultiNLI that the paper trained on are not to be had here: English NLI is SNLI's dev and test
with 20,000 pairs of MultiNLI, about 40,000 together, and Korean NLI is KLUE-NLI's 25,000. None of them is ever measured
on. `rows` takes the first so many of a shuffled set: for trying out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from munjang.data import Examples, join, load_dataset
from research.studies import Stage

Language = Literal["english", "korean"]

_TRAIN: dict[Language, dict[Stage, tuple[tuple[str, str], ...]]] = {
    "english": {
        "nli": (("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev")),
        "sts": (("stsb", "train"),),
    },
    "korean": {"nli": (("klue-nli", "train"),), "sts": (("korsts", "train"),)},
}
# Role or set -> where it is; a role has the same place in a table whatever the language.
_MEASURED: dict[Language, dict[str, tuple[str, str]]] = {
    "english": {"dev": ("stsb", "dev"), "test": ("stsb", "test")}
    | {f"STS{year}": (f"sts{year}", "test") for year in range(12, 17)},
    "korean": {"dev": ("korsts", "dev"), "test": ("korsts", "test"), "KLUE-STS dev": ("klue-sts", "dev")},
}


@dataclass(frozen=True)
class Material:
    """What a study needs."""

    language: Language
    train: dict[Stage, Examples]
    measured: dict[str, Examples]  # column of the table -> set


def columns_of(language: Language, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a table that a language has; Korean has KLUE-STS where English has STS12 to STS16."""
    known = _MEASURED[language]
    found = tuple(column for column in columns if column in known)
    missing = len(found) < len(columns)
    return (*found, *(name for name in known if missing and name not in (*found, "dev", "test")))


def read_material(
    folder: str | Path,
    *,
    language: Language = "english",
    stages: Collection[Stage] = ("nli", "sts"),
    columns: tuple[str, ...] = ("dev", "test"),
    rows: int | None = None,
) -> Material:
    """Read what these stages train on and what these columns measure."""
    train: dict[Stage, Examples] = {}
    for stage, places in _TRAIN[language].items():
        if stage in stages:
            parts = [load_dataset(name, split, folder) for name, split in places]
            whole = parts[0] if len(parts) == 1 else join(parts, name=" + ".join(part.name for part in parts))
            train[stage] = _some(whole, rows)
    measured = {column: load_dataset(*_MEASURED[language][column], folder) for column in columns_of(language, columns)}
    return Material(language, train, measured)


def _some(examples: Examples, rows: int | None) -> Examples:
    if rows is None or rows >= len(examples):
        return examples
    return examples.take(np.sort(np.random.default_rng(0).permutation(len(examples))[:rows]))
