"""results.json -> what pages and cards are made of: every model's scores by set, and the facts beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from munjang.errors import DataError
from munjang.evaluation import Scores


@dataclass(frozen=True)
class Measured:
    """One model: its scores by the name of the set, why others are missing, and what is known about it."""

    name: str
    scores: Mapping[str, Scores]
    skipped: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = ""

    @property
    def is_cross(self) -> bool:
        return self.about.get("kind") == "cross-encoder"


def read_results(path: str | Path) -> dict[str, Measured]:
    """The models of a file of results, by name; of two with one name the one that was measured last."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there are no results here; `python -m models.ko_en_0_1 models` makes some")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["format"] != 1:
            raise ValueError(f"its format is {saved['format']}, expected 1")
        found: dict[str, Measured] = {}
        for model in sorted(saved["models"].values(), key=lambda one: str(one.get("about", {}).get("measured", ""))):
            scores = {name: Scores.from_dict(one) for name, one in model["sets"].items()}
            found[model["model"]] = Measured(
                model["model"], scores, model["skipped"], model.get("about", {}), model["dtype"]
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: expected results of `python -m models.ko_en_0_1 models`, got something else: {error}"
        ) from error
    if not found:
        raise DataError(
            f"{path}: there is no model in these results; `python -m models.ko_en_0_1 models` measures some"
        )
    return found
