"""Shared by the tests of the index: one tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from munjang.encoders import BiEncoder, CrossEncoder
from support import small_models


@pytest.fixture(scope="session")
def model() -> BiEncoder:
    """Random weights, 32 dimensions, 64 tokens."""
    return small_models.bi_encoder()


@pytest.fixture(scope="session")
def model_folder(model: BiEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on disk, for other processes."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def reranker() -> CrossEncoder:
    return small_models.cross_encoder()
