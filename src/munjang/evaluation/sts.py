"""Scored pairs -> how well a model's similarities follow the scores that people gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from munjang.errors import InputError
from munjang.evaluation.encoding import encode, predict_one
from munjang.evaluation.metrics import bootstrap_mean, mean, pearson, spearman
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model, Scores, bi_encoder, cross_encoder
from munjang.evaluation.sets import check, gold, interval, joined, pairs_of
from munjang.types import Similarity
from munjang.vectors import pairwise_similarity

if TYPE_CHECKING:
    from munjang.data.examples import Examples


@dataclass(frozen=True)
class Similarities:
    """What a model says about every pair."""

    by_kind: dict[str, Array]  # of a bi-encoder: similarity -> [n]; of a cross-encoder: "score" -> [n]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class StsEvaluator:
    """Spearman and Pearson of cosine, dot, Euclidean and Manhattan; for a cross-encoder, of its score."""

    examples: Examples  # scored
    similarity: Similarity = "cosine"  # the one that `spearman` and `pearson` without a suffix are of
    bootstrap: int = 0  # draws for the interval of the main metric; 0: none
    main: str = "spearman"

    def __post_init__(self) -> None:
        check(self.examples, "scored", least=2)
        gold(self.examples)

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        truth = gold(self.examples)
        found = similarities(model, self.examples)
        main = found.by_kind.get("score", found.by_kind.get(self.similarity))
        assert main is not None
        values = {"spearman": spearman(truth, main), "pearson": pearson(truth, main)}
        if "score" not in found.by_kind:
            for kind, scores in found.by_kind.items():
                values[f"spearman_{kind}"] = spearman(truth, scores)
                values[f"pearson_{kind}"] = pearson(truth, scores)
        return Scores(
            self.name,
            values,
            self.main,
            len(self.examples),
            intervals=interval("spearman", spearman, (truth, main), samples=self.bootstrap),
            notes=found.notes,
        )


@dataclass(frozen=True)
class StsMeanEvaluator:
    """The plain mean of Spearman over several sets, as papers give it for STS12 to STS16; every set counts alike."""

    sets: tuple[Examples, ...]  # scored
    name: str
    similarity: Similarity = "cosine"
    bootstrap: int = 0
    main: str = "spearman"

    def __post_init__(self) -> None:
        if not self.sets:
            raise InputError(f"{self.name}: expected at least one set to take the mean of, got none")
        for examples in self.sets:
            check(examples, "scored", least=2)
            gold(examples)

    def __call__(self, model: Model) -> Scores:
        rows: list[tuple[Array, Array]] = []
        notes: list[tuple[str, ...]] = []
        for examples in self.sets:
            found = similarities(model, examples)
            main = found.by_kind.get("score", found.by_kind.get(self.similarity))
            assert main is not None
            rows.append((gold(examples), main))
            notes.append(found.notes)
        intervals = {"spearman": bootstrap_mean(spearman, rows, samples=self.bootstrap)} if self.bootstrap else {}
        return Scores(
            self.name,
            {
                "spearman": mean([spearman(truth, scores) for truth, scores in rows]),
                "pearson": mean([pearson(truth, scores) for truth, scores in rows]),
            },
            self.main,
            sum(map(len, self.sets)),
            intervals=intervals,
            notes=joined(*notes),
        )


def similarities(model: Model, examples: Examples) -> Similarities:
    """What the model says about the pairs (a, b) of the examples."""
    cross = cross_encoder(model)
    if cross is not None:
        predicted = predict_one(cross, pairs_of(examples), name=examples.name)
        return Similarities({"score": predicted.rows}, predicted.notes)
    bi = bi_encoder(model, name=examples.name)
    a, b = encode(bi, examples.columns["a"]), encode(bi, examples.columns["b"])
    kinds: tuple[Similarity, ...] = get_args(Similarity)
    return Similarities({kind: pairwise_similarity(a.rows, b.rows, kind) for kind in kinds}, joined(a.notes, b.notes))
