"""The model of a recipe: what is given stays as it is, and adapters compute as the model does."""

from __future__ import annotations

import pytest

from munjang.errors import ModelWarning
from munjang.recipes.adapters import adapted
from munjang.recipes.models import cross_encoder
from munjang.recipes.options import RecipeOptions
from munjang.training.lora import LoraSettings, has_lora
from training.material import NLI, bi, cross, same, weights


def test_a_new_head_leaves_the_given_model_alone() -> None:
    given = cross(NLI)
    before = weights(given)
    with pytest.warns(ModelWarning, match="the head is new"):
        made = cross_encoder(given, 1, RecipeOptions(max_length=9)).model
    assert (made.max_length, given.max_length) == (9, 64)
    assert len(made.labels) == 1
    assert given.labels == NLI
    assert same(before, weights(given))


def test_adapters_compute_as_the_model_does() -> None:
    pytest.importorskip("peft")
    model = bi()
    model.truncate_dim, model.threads = 8, 1
    with adapted(model, LoraSettings(rank=2)) as learner:
        assert has_lora(learner.parts.body)
        assert learner.encode(["a man reads"]).shape == (1, 8)
        assert learner.threads == 1
    assert not has_lora(model.parts.body)
