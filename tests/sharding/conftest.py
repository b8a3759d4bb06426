"""Shared by the tests of jobs of many shards: a tiny model on disk, and jobs that run in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from munjang.encoders import BiEncoder
from munjang.sharding import Reading, ShardOptions, ShardResult, encode_shards, running
from munjang.sharding.messages import Message, Plan
from support import small_models
from support.sharded import Inline


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, 32 dimensions, 64 tokens."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    small_models.bi_encoder().save(folder)
    return folder


@pytest.fixture(scope="session")
def model(model_folder: Path) -> BiEncoder:
    return BiEncoder.load(model_folder, device="cpu", dtype="float32")


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Jobs:
    """Runs jobs without processes, and keeps the teams that worked."""

    def __init__(self, model_folder: Path) -> None:
        self.model = model_folder
        self.dies: Callable[[int, Message], bool] = lambda *_: False
        self.size = 2
        self.teams: list[Inline] = []

    def team(self, plan: Plan, options: ShardOptions, shards: int) -> Inline:
        self.teams.append(Inline(plan, min(shards, options.workers or self.size), self.dies))
        return self.teams[-1]

    def run(self, inputs: Any, output: Path | None = None, **given: Any) -> ShardResult:
        reading = Reading(**{name: given.pop(name) for name in list(given) if name in Reading.__dataclass_fields__})
        into, progress = given.pop("into", None), given.pop("progress", False)
        model = given.pop("model", self.model if into is None else None)
        options = ShardOptions(reading=reading, **given)
        return encode_shards(inputs, output, model=model, into=into, options=options, progress=progress)


@pytest.fixture
def jobs(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    made = Jobs(model_folder)
    monkeypatch.setattr(running, "_team", made.team)
    yield made
    torch.set_num_threads(threads)
