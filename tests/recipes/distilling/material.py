"""Small translations that we wrote, a parallel file with two sources, and a cross-encoder: the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.recipes import DistillOptions, DistillResult, Source, distill
from munjang.recipes.distilling import targets, teacher_vectors
from munjang.students import StudentPlan, VocabularyPlan
from munjang.training import NegativeMining

_WHO = [
    ("a man", "한 남자가"),
    ("a woman", "한 여자가"),
    ("the child", "아이가"),
    ("my friend", "친구가"),
    ("a dog", "개가"),
]
_DOES = [("plays the guitar", "기타를 친다"), ("eats noodles", "국수를 먹는다"), ("reads a book", "책을 읽는다"),
         ("sleeps", "잠을 잔다")]  # fmt: skip
_WHERE = [("at home", "집에서"), ("in Seoul", "서울에서"), ("by the river", "강가에서")]


def translations() -> list[tuple[str, str]]:
    """Sixty sentences in English and in Korean, in an order of no meaning."""
    every = [
        (f"{who[0]} {does[0]} {where[0]}.", f"{who[1]} {where[1]} {does[1]}.")
        for who in _WHO
        for does in _DOES
        for where in _WHERE
    ]
    return [every[place] for place in np.random.default_rng(5).permutation(len(every))]


def parallel(name: str, first: int = 0, last: int = 40) -> Examples:
    rows = translations()[first:last]
    return Examples(name, "pairs", {"anchor": [en for en, _ in rows], "positive": [ko for _, ko in rows]})


def parallel_file(path: Path, *, rows: int = 40) -> Path:
    """A tsv with en, ko and source: the first half from talks, the second from news."""
    found = translations()[:rows]
    lines = [f"{en}\t{ko}\t{'talks' if place < rows // 2 else 'news'}" for place, (en, ko) in enumerate(found)]
    path.write_text("en\tko\tsource\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def texts_file(path: Path, *, rows: int = 40) -> Path:
    path.write_text("\n".join(en for en, _ in translations()[:rows]) + "\n\n", encoding="utf-8")
    return path


def reranker(tiny: Path, folder: Path) -> Path:
    """A cross-encoder with a random head on the tiny body, with larger weights, so that its scores differ."""
    model = CrossEncoder.from_body(BiEncoder.load(tiny, device="cpu", dtype="float32"), 1, seed=7, device="cpu")
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, weight in [*model.parts.body.named_parameters(), *model.parts.head.named_parameters()]:
            if weight.dim() == 2 and not name.startswith("embeddings."):
                weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5 * 1.5)
    model.refresh()
    model.save(folder / "reranker")
    return folder / "reranker"


def cross_run(folder: Path, tiny: Path, teacher: Path) -> DistillResult:
    """Every stage that a cross-encoder has which teaches a bi-encoder; blocks of pairs are small here too."""
    targets.PAIRS = 16
    options = DistillOptions(
        folder,
        plan=StudentPlan(layers=1),
        changes={"batch_size": 8, "save_every": 1, "max_steps": 4},
        negatives=NegativeMining(negatives_per_row=2, relative_margin=None),
        device="cpu",
    )
    return distill(tiny, teacher, parallel("p", 0, 20), test=parallel("test", 50, 60), options=options)


def whole_run(folder: Path, tiny: Path, file: Path) -> DistillResult:
    """Every stage that a vector teacher has, in a few steps; blocks of texts are small, so that there are several."""
    teacher_vectors.BLOCK = 16
    quick = {"batch_size": 8, "save_every": 1}
    plan = StudentPlan(layers=1, vocabulary=VocabularyPlan(size=200, min_count=1, embeddings="translations"))
    options = DistillOptions(
        folder,
        plan=plan,
        changes={**quick, "max_steps": 4},
        weights={"news": 1.5},
        mlm_epochs=1,
        mlm_changes={**quick, "max_steps": 3},
        device="cpu",
    )
    dev, test = parallel("dev", 40, 50), parallel("test", 50, 60)
    return distill(tiny, tiny, Source(file), dev=dev, test=test, options=options)
