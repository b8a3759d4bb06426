"""A run folder -> what the report needs to know; nothing is computed again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from munjang.errors import DataError


@dataclass(frozen=True)
class Facts:
    """Everything that a finished run wrote."""

    folder: Path
    config: dict[str, Any]  # what decided the run
    result: dict[str, Any]  # how the training went
    record: dict[str, Any]  # scores, sets, leakage, mistakes
    log: list[dict[str, Any]]  # every step and every evaluation

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if "loss" in entry]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if "evaluation" in entry]

    def before(self, part: str) -> list[dict[str, Any] | None]:
        """The scores of the untrained model on the sets of a part (dev, test), in their order; None where unknown."""
        after = self.record[part]
        found: list[dict[str, Any] | None] = (self.record.get("before") or {}).get(part, [])
        return found if len(found) == len(after) else [None] * len(after)

    @property
    def best(self) -> dict[str, Any] | None:
        """The evaluation that chose the model."""
        found: dict[str, Any] | None = self.result["best"]
        return found


def read_facts(folder: Path) -> Facts:
    """Read a run folder; an error that says what is missing where the run is not finished."""
    from munjang.training.log import read_log

    return Facts(
        folder,
        config=_object(folder / "config.json"),
        result=_object(folder / "result.json"),
        record=_object(folder / "scores.json"),
        log=read_log(folder / "log.jsonl"),
    )


def stage_folders(folder: Path) -> list[Path]:
    """The stages of a chain that are finished, in order."""
    found = [path for path in folder.glob("*-*") if path.name.split("-")[0].isdecimal()]
    return sorted(
        (path for path in found if (path / "scores.json").is_file()), key=lambda path: int(path.name.split("-")[0])
    )


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise DataError(f"there is no folder {path.parent}: expected the folder of a training run") from None
        raise DataError(
            f"{path.parent} has no {path.name}: it holds no finished run of `munjang train`; run its command to the end"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no object, but {type(found).__name__}")
    return found
