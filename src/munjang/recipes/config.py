"""recipe.json: everything that a recipe or a chain was told, so that `munjang train --config` repeats it.

Settings are written as they were resolved, so that a later release with other defaults repeats the same run. Models and
sets given by path or name are written with a hash of their content: repeating on changed data is an error, not another
result. What was handed over in memory cannot be repeated, and reading it says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from munjang import bundled
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import DataError, InputError
from munjang.files import atomic_write, disk_errors
from munjang.recipes.defaults import RECIPE_NAMES, RecipeName
from munjang.recipes.options import GivenModel, GivenSet, GivenSets, Model, RecipeOptions, SetOptions, Stage
from munjang.recipes.sets import Sets, as_list
from munjang.training import TrainingSettings
from munjang.training.run import data_hash

NAME = "recipe.json"
_FORMAT = 1
_LEFT_OUT = ("folder", "progress", "settings", "changes", "sets", "lora")


@dataclass(frozen=True)
class Given:
    """The sets as the caller gave them."""

    train: GivenSets
    dev: GivenSets
    test: GivenSets


@dataclass(frozen=True)
class Expected:
    """What a repeated run must find: hashes of its model and of its sets."""

    fingerprint: str | None
    hashes: tuple[str, ...]

    def check_model(self, model: Model) -> None:
        if self.fingerprint is not None and model.fingerprint != self.fingerprint:
            raise InputError(
                f"{model.parts.source} is not the model that this run began with (its weights or settings differ): "
                "the run cannot be repeated with it"
            )

    def check_sets(self, sets: Sets) -> None:
        found = [examples for _, examples in sets.roles()]
        for examples, known in zip(found, self.hashes, strict=True):
            if data_hash(examples) != known:
                raise InputError(
                    f"{examples.name} holds other rows than when this run was made: the run cannot be repeated with it"
                )


@dataclass(frozen=True)
class Config:
    """A recipe.json, read."""

    model: str
    stages: tuple[Stage, ...]
    expected: tuple[Expected, ...]
    chained: bool


# --- writing ---------------------------------------------------------------------------------------------------------


def model_given(model: GivenModel, ready: Model) -> dict[str, object]:
    """How to find the model again."""
    if isinstance(model, BiEncoder | CrossEncoder):
        return {"path": _whole(model.parts.source), "fingerprint": ready.fingerprint, "given": "in memory"}
    return {"path": _whole(str(model)), "fingerprint": ready.fingerprint}


def stage_dict(
    recipe: RecipeName, given: Given, sets: Sets, options: RecipeOptions, settings: TrainingSettings | None
) -> dict[str, object]:
    """One stage for JSON."""
    found = {"train": sets.train, "dev": sets.dev, "test": sets.test}
    asked = {"train": given.train, "dev": given.dev, "test": given.test}
    return {
        "recipe": recipe,
        **{
            role: [_set_dict(one, read) for one, read in zip(as_list(asked[role]), found[role], strict=True)]
            for role in found
        },
        "options": _options_dict(options, settings),
    }


def write_recipe(folder: Path, model: Mapping[str, object], stage: Mapping[str, object]) -> None:
    """Write recipe.json of one recipe, before it trains; that of a run that has begun stays."""
    _write(folder, {"format": _FORMAT, "model": dict(model), **stage}, begun=folder / "config.json")


def write_chain(folder: Path, model: GivenModel, stages: Sequence[Mapping[str, object]]) -> None:
    """Write recipe.json of a chain, before its first stage trains."""
    given = model.parts.source if isinstance(model, BiEncoder | CrossEncoder) else str(model)
    found: dict[str, object] = {"path": _whole(given)}
    if isinstance(model, BiEncoder | CrossEncoder):
        found["given"] = "in memory"
    first = folder / f"1-{stages[0]['recipe']}" / "config.json"
    _write(folder, {"format": _FORMAT, "model": found, "chain": list(stages)}, begun=first)


def _write(folder: Path, content: Mapping[str, object], *, begun: Path) -> None:
    path = folder / NAME
    if path.is_file() and begun.is_file():
        return
    with disk_errors(path, safe="nothing was trained yet"):
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())


def _set_dict(given: GivenSet, read: Examples) -> dict[str, object]:
    found: dict[str, object] = {"name": read.name, "rows": len(read), "hash": data_hash(read)}
    if not isinstance(given, Examples):
        found["path"] = _whole(str(given))
    return found


def _options_dict(options: RecipeOptions, settings: TrainingSettings | None) -> dict[str, object]:
    found: dict[str, object] = {
        name: getattr(options, name) for name in RecipeOptions.__dataclass_fields__ if name not in _LEFT_OUT
    }
    settings = settings or options.settings
    found["settings"] = None if settings is None else settings.as_dict()
    found["changes"] = dict(options.changes) if settings is None else {}
    found["lora"] = None if options.lora is None else asdict(options.lora)
    sets = asdict(options.sets)
    found["sets"] = sets | {"folder": None if sets["folder"] is None else _whole(str(sets["folder"]))}
    return found


def _whole(path: str) -> str:
    """A path that means the same from everywhere; names of sets and models and hub ids stay."""
    if path in bundled.NAMES:
        return path
    return str(Path(path).resolve()) if path and Path(path).exists() else path


# --- reading ---------------------------------------------------------------------------------------------------------


def read_config(path: str | Path) -> Config:
    """A recipe.json (or the run folder that holds it) as stages that can be run again."""
    path = Path(path) / NAME if Path(path).is_dir() else Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        stages = content.get("chain", [content])
        model = content["model"]
        found = [_stage(stage) for stage in stages]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} holds no recipe of `munjang train`: {error!r}") from error
    missing = [f"the {role} set {one['name']}" for stage in stages for role in ("train", "dev", "test")
               for one in stage[role] if "path" not in one]  # fmt: skip
    if not model.get("path"):
        missing.append("the model")
    if missing:
        raise InputError(
            f"{path} cannot be repeated: {', '.join(missing)} came from memory and not from a file; call the recipe "
            "from Python"
        )
    hashes = [tuple(one["hash"] for role in ("train", "dev", "test") for one in stage[role]) for stage in stages]
    prints = [model.get("fingerprint"), *[None] * (len(stages) - 1)]
    expected = [Expected(print_, hash_) for print_, hash_ in zip(prints, hashes, strict=True)]
    return Config(model["path"], tuple(found), tuple(expected), chained="chain" in content)


def _stage(saved: Mapping[str, Any]) -> Stage:
    if saved["recipe"] not in RECIPE_NAMES:
        raise ValueError(f"unknown recipe {saved['recipe']!r}")
    sets = {role: [one.get("path", "") for one in saved[role]] for role in ("train", "dev", "test")}
    return Stage(saved["recipe"], sets["train"], sets["dev"], sets["test"], _options(saved["options"]))


def _options(saved: Mapping[str, Any]) -> RecipeOptions:
    from munjang.training.lora import LoraSettings

    known = (name for name in RecipeOptions.__dataclass_fields__ if name not in _LEFT_OUT and name in saved)
    plain = {name: saved[name] for name in known}
    pooling = plain["pooling"]
    sets = dict(saved["sets"])
    for name in ("score_range", "labels"):
        sets[name] = None if sets[name] is None else tuple(sets[name])
    lora = saved["lora"]
    settings = saved["settings"]
    return replace(
        RecipeOptions(),
        **plain
        | {
            "concatenation": tuple(plain["concatenation"]),
            "matryoshka": tuple(plain["matryoshka"]),
            "pooling": tuple(pooling) if isinstance(pooling, list) else pooling,
            "changes": dict(saved["changes"]),
            "settings": settings and TrainingSettings(**settings | {"betas": tuple(settings["betas"])}),
            "lora": lora and LoraSettings(**lora | {"targets": tuple(lora["targets"])}),
            "sets": SetOptions(**sets),
        },
    )
