"""The tiny model of the recipes' tests: its folder, and fresh copies of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from munjang.encoders import BiEncoder
from recipes.material import tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bi-encoder with a tiny random BERT body and mean pooling."""
    return tiny_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def load(tiny: Path) -> Callable[[], BiEncoder]:
    """A fresh copy of the tiny model, exact."""
    return lambda: BiEncoder.load(tiny, device="cpu", dtype="float32")
