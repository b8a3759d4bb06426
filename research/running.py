"""A study -> its trials, one after another, each kept as soon as it is measured.

Enters: the study, a model whose body starts the trials, a folder of data, the setup, the results so far. Leaves: the
results. What evaluation sets share with the training data is counted first and kept with every record.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from munjang.bi_encoder import BiEncoder
from munjang.data import leakage
from munjang.training.run import data_hash
from research.material import Material, read_material
from research.results import Record, Results
from research.studies import Study
from research.trial import Setup, Trial, describe, key_of, run_trial

Say = Callable[[str], None]


def run_study(
    study: Study,
    model: BiEncoder,
    data: str | Path,
    *,
    setup: Setup | None = None,
    results: Results | None = None,
    rows: int | None = None,
    say: Say = print,
) -> Results:
    """Run what is not in the results yet. `rows` trains on so many rows of each set only: for trying out."""
    setup, results = setup or Setup(), Results() if results is None else results
    stages = {stage for row in study.rows for stage in row.stages}
    columns = tuple(dict.fromkeys(("dev", "test", *study.columns)))  # dev and test always: tables share trials
    material = read_material(data, language=setup.language, stages=stages, columns=columns, rows=rows)
    model.max_length = setup.max_length
    shared = shared_with_training(material)
    for column, line in shared.items():
        say(f"{column}: {line}")
    hashes = {column: data_hash(examples) for column, examples in material.measured.items()}
    trials: dict[str, tuple[Trial, dict[str, object]]] = {}
    for seed in setup.seeds:
        for row in study.rows:
            description = describe(Trial(row, seed), model, material, setup)
            trials.setdefault(key_of(description), (Trial(row, seed), description))
    with results.locked():
        todo = [key for key in trials if not results.has(key, hashes)]
        say(f"{study.title}: {len(trials)} trials, {len(trials) - len(todo)} of them are there already")
        for key in trials:
            if key not in todo:
                results.join(key, study.name)
        for number, key in enumerate(todo, start=1):
            trial, description = trials[key]
            result = run_trial(trial, model, material, setup)
            record: Record = {
                "studies": [study.name],
                "trial": {**description, "model name": name_of(model)},
                "result": {**result, "shared": shared},
                "machine": machine(model.device),
            }
            results.add(key, record)
            say(f"{number} of {len(todo)}: {_line(trial, record['result'])}")
    return results


def shared_with_training(material: Material) -> dict[str, str]:
    """Column -> how many of its rows share a sentence with what trains, in words."""
    if not material.train:
        return {}
    found = leakage(list(material.train.values()), list(material.measured.values()))
    return {
        column: f"{len(one.normalised.some):,} of {one.rows:,} rows share a sentence with the training data"
        for column, one in zip(material.measured, found.sets, strict=True)
    }


def name_of(model: BiEncoder) -> str:
    """The model for readers: the last part of its name, without the folders before it, and its size."""
    config = model.parts.body.config
    return f"{Path(model.parts.source).name}: {config.family} {len(config.steps)} x {model.parts.body.hidden}"


def machine(device: torch.device) -> dict[str, str]:
    """What it ran on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    try:
        ours = version("munjang")
    except PackageNotFoundError:  # run from its sources
        ours = "from its sources"
    return {"device": name, "torch": torch.__version__, "munjang": ours, "date": datetime.date.today().isoformat()}


def _line(trial: Trial, result: Record) -> str:
    row, scores = trial.row, result["scores"]
    shown = ", ".join(f"{column} {100 * score['spearman']:.2f}" for column, score in scores.items())
    name = " ".join(part for part in (row.block, row.name) if part)
    return f"{name}, seed {trial.seed}: {shown}; training {result['training seconds']} s, all {result['seconds']} s"
