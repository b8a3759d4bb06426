"""The real model, in ours and in sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

import munjang
from munjang.encoders import BiEncoder, CrossEncoder


@pytest.fixture(scope="session")
def model(minilm_path: Path) -> BiEncoder:
    return munjang.load(minilm_path, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def peer(minilm_path: Path) -> SentenceTransformer:
    return SentenceTransformer(str(minilm_path), device="cpu", model_kwargs={"dtype": torch.float32})


@pytest.fixture(scope="session")
def cross(model: BiEncoder) -> CrossEncoder:
    """One score per pair, from a new head: its numbers mean nothing, but they are numbers."""
    return CrossEncoder.from_body(model, 1, device="cpu", dtype="float32")
