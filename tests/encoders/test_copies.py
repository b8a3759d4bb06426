"""Pickled and deep-copied models: the same results and settings, nothing shared with the original."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import munjang
from munjang.errors import ModelWarning
from recipes.material import tiny_model

TEXTS = ["a man plays the guitar at home.", "국수를 먹는다", "여러 낱말로 된 조금 더 긴 문장입니다."]
PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))
WAYS: list[Callable[[Any], Any]] = [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("way", WAYS, ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_copied_bi_encoder(way: Callable[[Any], Any], dtype: Any, tiny: Path) -> None:
    model = munjang.load(tiny, device="cpu", dtype=dtype, max_length=48)
    model.truncate_dim, model.threads = 16, 2
    model.prompts["query"] = "query: "
    vectors = model.encode_query(TEXTS)
    other = way(model)
    assert np.array_equal(other.encode_query(TEXTS), vectors)
    assert other.fingerprint == model.fingerprint
    for name in ("device", "dtype", "max_length", "prompts", "truncate_dim", "threads", "similarity_name"):
        assert getattr(other, name) == getattr(model, name), name
    other.prompts["query"] = "?"
    other.max_length, other.truncate_dim = 8, None
    with torch.no_grad():
        for weight in other.parts.body.parameters():
            weight.zero_()
    other.refresh()
    assert np.array_equal(model.encode_query(TEXTS), vectors)
    assert (model.max_length, model.truncate_dim, model.prompts["query"]) == (48, 16, "query: ")
    assert other.fingerprint != model.fingerprint


@pytest.mark.parametrize("way", WAYS, ids=["deepcopy", "pickle"])
def test_a_copied_cross_encoder(way: Callable[[Any], Any], tiny: Path) -> None:
    with pytest.warns(ModelWarning):
        model = munjang.load_cross_encoder(tiny, labels=["no", "yes"], device="cpu", dtype="float32", max_length=60)
    other = way(model)
    assert np.array_equal(other.predict(PAIRS), model.predict(PAIRS))
    assert (other.labels, other.max_length, other.fingerprint) == (model.labels, 60, model.fingerprint)
    assert other.predict_labels(PAIRS) == model.predict_labels(PAIRS)


def test_a_model_of_a_device_that_is_not_here(tiny: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    model = munjang.load(tiny, device="cpu", dtype="float32")
    vectors = model.encode(TEXTS)
    model._device, model._asked = torch.device("cuda:1"), "float16"  # as a machine with GPUs would have pickled it
    with pytest.warns(ModelWarning, match="cuda:1.*CPU"):
        other = pickle.loads(pickle.dumps(model))
    assert other.device.type == "cpu"
    assert np.allclose(other.encode(TEXTS), vectors, atol=2e-2)


def _encode(model: Any, answers: Any) -> None:
    answers.put((model.encode(TEXTS), model.fingerprint))


def test_a_model_as_an_argument_of_a_spawned_process(tiny: Path) -> None:
    model = munjang.load(tiny, device="cpu", dtype="float32")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_encode, args=(model, answers))
    process.start()
    vectors, fingerprint = answers.get(timeout=120)
    process.join(60)
    assert np.allclose(vectors, model.encode(TEXTS), atol=1e-6)
    assert fingerprint == model.fingerprint
