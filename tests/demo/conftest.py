"""Shared by the tests of the demo: tiny models, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from munjang.encoders import BiEncoder
from support import small_models


@pytest.fixture(scope="session")
def model() -> BiEncoder:
    """Random weights, 32 dimensions, 64 tokens."""
    return small_models.bi_encoder()


@pytest.fixture(scope="session")
def model_folder(model: BiEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on disk."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model.save(folder)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indexes are cached in this test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MUNJANG_CACHE", str(folder))
    return folder / "demo"
