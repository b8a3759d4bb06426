"""The making of both models in a few steps on small data: a second teacher of our own, tiny plans, and the calls."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from making.whole_data import DOES, WHERE, WHO
from models.ko_en_0_1.making import BiMade, make_bi
from models.ko_en_0_1.passages import Questions
from models.ko_en_0_1.reranker import RerankMade, RerankOptions, make_reranker
from models.ko_en_0_1.settings import BiPlan, Part, RerankPlan, Schedule
from models.ko_en_0_1.teaching import MakeOptions
from munjang.bi_encoder import BiEncoder

BI_STAGES = (
    "student", "second", "passages", "tuned", "targets", "distil", "settled", "multi", "labeller-1-nli",
    "labeller-2-nli", "pairs", "labeller-1-silver", "labeller-1-sts", "labeller-2-silver", "labeller-2-sts", "labels",
    "final", "final-2", "mean", "merged", "finish",
)  # fmt: skip
# With a larger English model: after `multi`, and after `pairs`.
LARGER = ("larger-student", "larger-targets", "larger-distil", "larger-nli", "larger-sts")
LABELLED = ("larger-labels", "first")
BEST = ("larger-silver", "larger-best", "larger-best-labels")  # and before `labels`
# With a bilingual model: the same places.
BILINGUAL = ("bilingual-nli", "bilingual-sts", "compact-student", "compact")
BILINGUAL_LABELLED = ("bilingual-labels", "first")
BILINGUAL_BEST = ("bilingual-silver", "bilingual-best", "bilingual-best-labels")


def with_more(begun: tuple[str, ...], labelled: tuple[str, ...], best: tuple[str, ...]) -> tuple[str, ...]:
    """The stages of a making with another model that labels, which has these of its own."""
    before, pairs, labels = BI_STAGES.index("multi") + 1, BI_STAGES.index("pairs") + 1, BI_STAGES.index("labels")
    whole = *BI_STAGES[:before], *begun, *BI_STAGES[before:pairs], *labelled
    return (*whole, *BI_STAGES[pairs:labels], *best, *BI_STAGES[labels:])


RERANK_STAGES = ("negatives", "main", "main-2", "mean", "finish")
GRADED_STAGES = ("negatives", "relevance", "main", "main-2", "mean", "finish")  # with a larger English model


class Second:
    """No model of ours: a text is the mean of what its words mean, the same in both languages."""

    def __init__(self, seed: int = 0, *, fails: bool = False) -> None:
        self.dimension, self.fails = 6, fails
        self.fingerprint = f"second {seed}"
        random = np.random.default_rng(seed)
        self.meaning: dict[str, np.ndarray] = {}
        for english, korean in (*WHO, *WHERE, *DOES):
            vector = random.normal(size=6)
            for word in (*english.split(), *korean.split()):
                self.meaning.setdefault(word, vector)
        self.other = random.normal(size=6)

    def encode(self, texts: list[str]) -> np.ndarray:
        assert not self.fails, "nothing may be encoded"
        words = [re.findall(r"[\w']+", text) for text in texts]
        rows = [[self.meaning.get(word, 0.1 * self.other) for word in found] or [self.other] for found in words]
        return np.stack([np.mean(row, axis=0) for row in rows])


def bi_plan(**changes: object) -> BiPlan:
    """Every stage in a few steps: those of many parts in enough to meet each."""
    quick, labeller = Schedule(2, 1e-3, 2e-3), Schedule(4, 3e-3, head_rate=3e-2)
    small = BiPlan(
        vocabulary=260,
        max_length=64,
        train_length=48,
        selection_rows=10,
        tuned=Schedule(4, 1e-3),
        tuned_parts={"nli": Part(0.4, 8), "sts": Part(0.3, 8), "kept": Part(0.3, 8)},
        warm_up_parts={"plain": Part(0.5, 8), "translations": Part(0.5, 8)},
        distil=replace(quick, steps=4),
        distil_parts={name: replace(part, batch_size=8) for name, part in BiPlan().distil_parts.items()},
        multi=replace(quick, steps=7),
        multi_parts={name: replace(part, batch_size=8) for name, part in BiPlan().multi_parts.items()},
        finals=2,
        final=replace(quick, steps=9),
        final_parts={name: replace(part, batch_size=8) for name, part in BiPlan().final_parts.items()},
        larger_pieces=60,
        larger_distil=replace(quick, steps=4),
        larger_distil_parts={name: replace(part, batch_size=8) for name, part in BiPlan().larger_distil_parts.items()},
        larger_nli=labeller,
        larger_sts=labeller,
        larger_silver=labeller,
        bilingual_nli=labeller,
        bilingual_sts=labeller,
        bilingual_silver=labeller,
        compact_layers=(1,),
        compact_pieces=120,
        compact=replace(quick, steps=4),
        compact_batch=8,
        labellers=2,
        labeller_nli=labeller,
        labeller_silver=labeller,
        labeller_sts=labeller,
        labeller_batch=8,
        cosine_weights=(0.01,),
        cosine_weight=0.01,  # cross-encoders that learned so little hardly differ from pair to pair
        passages=120,
        foreign=40,
        definitions=5,  # of the seven entries that may be learned from
        held_questions=30,
        pool_neighbours=2,
        scored_neighbours=3,
    )
    return replace(small, **changes)  # type: ignore[arg-type]


def rerank_plan(**changes: object) -> RerankPlan:
    """As many steps as it takes to tell `easy_negatives`."""
    small = RerankPlan(
        max_length=64,
        train_length=64,
        negatives=3,
        everyday=0,
        mains=2,
        main=Schedule(20, 3e-3, head_rate=3e-3),
        relevance=50,
        main_parts={
            "silver": Part(0.2, 8),
            "sts": Part(0.1, 8),
            "passages": Part(0.7, 16),
            "relevance": Part(0.2, 4),
        },
    )
    return replace(small, **changes)  # type: ignore[arg-type]


def options(folder: Path, tiny: Path, data: Path, **changes: object) -> MakeOptions:
    given = {"second": Second(), "plan": bi_plan(), "device": "cpu"} | changes
    return MakeOptions(data=data, folder=folder, teacher=tiny, **given)  # type: ignore[arg-type]


def make(folder: Path, tiny: Path, data: Path, **changes: object) -> BiMade:
    return make_bi(options(folder, tiny, data, **changes))


def rerank(folder: Path, bi: MakeOptions, **changes: object) -> RerankMade:
    return make_reranker(RerankOptions(bi, folder, rerank_plan(**changes)))


def easy_negatives(
    model: BiEncoder, questions: Questions, count: int, seed: int, *, progress: object = False
) -> np.ndarray:
    """The same few passages for every question: what a tiny model learns to tell in seconds."""
    last = len(questions.passages) - 1
    return np.tile(last - np.arange(count), (len(questions.queries), 1))


def skipped(made: BiMade | RerankMade) -> list[str]:
    stages = made.stages.values() if isinstance(made, BiMade) else made.stages
    return [one.name for one in stages if one.skipped]


def other_model(tiny: Path, folder: Path) -> Path:
    """A model that differs from the tiny one."""
    model = BiEncoder.load(tiny, device="cpu")
    with torch.no_grad():
        model.parts.body.embeddings.word.weight.mul_(1.5)
    model.refresh()
    model.save(folder)
    return folder
