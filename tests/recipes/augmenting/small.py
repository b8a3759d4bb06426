"""Small runs of Augmented SBERT: a tiny model, few steps, sentences of our own in Korean and English."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.data.normalise import same_key
from munjang.recipes import AugmentOptions
from recipes.material import scored, sentences

BI: dict[str, object] = {"max_steps": 4, "batch_size": 8, "learning_rate": 1e-3, "save_every": 2}
CROSS: dict[str, object] = {**BI, "head_rate": 0.05}


def lively(tiny: Path, folder: Path) -> Path:
    """The tiny model with larger weights: a fresh body says nearly the same of every pair, this one does not."""
    model = BiEncoder.load(tiny, device="cpu", dtype="float32")
    with torch.no_grad():
        for weight in model.parts.body.parameters():
            if weight.ndim == 2:
                weight.mul_(15)
    model.refresh()
    model.save(folder / "lively")
    return folder / "lively"


def options(folder: Path, **told: Any) -> AugmentOptions:
    """Options for a run of a few seconds."""
    quick = AugmentOptions(folder=folder, bi_changes=BI, cross_changes=CROSS, device="cpu")
    if told.get("cross_encoder") is not None:
        quick = replace(quick, cross_changes={})
    return replace(quick, **told)


def data() -> dict[str, Any]:
    """Gold, sentences of the domain, development and test pairs."""
    return {
        "gold": scored("gold", 24, 0),
        "domain": sentences(40, 7),
        "dev": scored("dev", 16, 50),
        "test": scored("test", 20, 90),
    }


def silver_rows(path: Path) -> list[tuple[str, str, float, float, str]]:
    """silver.tsv by plain means."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head == "sentence1\tsentence2\tscore\tspread\torigin"
    found = []
    for line in lines:
        a, b, score, spread, origin = line.split("\t")
        found.append((a, b, float(score), float(spread), origin))
    return found


def check_rules(path: Path, *, labelled: list[Examples], evaluation: list[Examples], allowed: set[str]) -> None:
    """No pair of a sentence with itself, repeated, mirrored, labelled or of the evaluation; no other sentences."""
    rows = silver_rows(path)
    pairs = [frozenset((same_key(a), same_key(b))) for a, b, *_ in rows]
    assert rows
    assert all(len(pair) == 2 for pair in pairs)
    assert len(set(pairs)) == len(pairs)
    assert {key for pair in pairs for key in pair} <= {same_key(text) for text in allowed}
    for examples in (*labelled, *evaluation):
        sides = zip(examples.columns["a"], examples.columns["b"], strict=True)
        assert not set(pairs) & {frozenset((same_key(a), same_key(b))) for a, b in sides}
    assert all(0 <= score <= 1 and spread >= 0 for _, _, score, spread, _ in rows)
