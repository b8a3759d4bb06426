"""Objectives of bi-encoders: the outputs are vectors, one tensor [n, d] for every column of texts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from munjang.data import Examples
from munjang.errors import InputError, TrainingWarning
from munjang.training import losses
from munjang.training.objectives.base import (
    Array,
    Given,
    Objective,
    not_constant,
    not_itself,
    seeded,
    several_labels,
    taught_scores,
    two_values,
)

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder

Distance = Literal["cosine", "euclidean", "manhattan"]


class Softmax(Objective):
    """NLI: (u, v, |u-v|) -> Linear -> cross-entropy (Reimers and Gurevych 2019, section 3)."""

    kinds = ("labelled",)
    any_width = False

    def __init__(
        self, parts: Sequence[losses.Part] = ("u", "v", "|u-v|"), *, smoothing: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        self.parts, self.smoothing, self.seed = tuple(parts), smoothing, seed
        self.layer: nn.Linear | None = None

    def settings(self) -> dict[str, object]:
        return {"parts": list(self.parts), "smoothing": self.smoothing, "seed": self.seed}

    def forget(self) -> None:
        self.layer = None

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        several_labels(examples)
        if self.layer is None:
            self.layer = seeded(nn.Linear(len(self.parts) * dimension, len(examples.labels)), self.seed)
        elif self.layer.out_features != len(examples.labels):
            raise InputError(
                f"this softmax has {self.layer.out_features} labels, but {examples.name} has {len(examples.labels)}"
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert self.layer is not None
        assert given.targets is not None
        logits = self.layer(losses.concatenate(outputs[0], outputs[1], self.parts))
        return losses.cross_entropy(logits, given.targets, smoothing=self.smoothing)


class CosineMse(Objective):
    """STS: cos(u, v) against the score, squared error."""

    kinds = ("scored",)

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        not_constant(examples)

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        return losses.cosine_mse(outputs[0], outputs[1], given.targets)


class CoSent(Objective):
    """STS by order: a pair with a higher score should be closer than one with a lower (Su 2022)."""

    kinds = ("scored",)
    rowwise = False

    def __init__(self, *, scale: float = 20.0) -> None:
        super().__init__()
        self.scale = scale

    def settings(self) -> dict[str, object]:
        return {"scale": self.scale}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        not_constant(examples)

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        cosines = functional.cosine_similarity(outputs[0], outputs[1])
        return losses.cosent(cosines, given.targets, scale=self.scale)


class Angle(CoSent):
    """CoSENT with the angle between halves of the vectors as complex numbers (Li and Li 2023)."""

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        return losses.angle(outputs[0], outputs[1], given.targets, scale=self.scale)


class Contrastive(Objective):
    """Pairs that are the same (1) or different (0): near, or at least a margin apart (Hadsell et al. 2006)."""

    kinds = ("scored",)

    def __init__(self, *, margin: float = 0.5, distance: Distance = "cosine", online: bool = False) -> None:
        super().__init__()
        self.margin, self.distance, self.online = margin, distance, online
        self.rowwise = not online  # online: only the hard pairs of the batch count

    def settings(self) -> dict[str, object]:
        return {"margin": self.margin, "distance": self.distance, "online": self.online}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        two_values(examples)

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        loss = losses.online_contrastive if self.online else losses.contrastive
        return loss(outputs[0], outputs[1], given.targets, margin=self.margin, distance=self.distance)


class Triplet(Objective):
    """max(|a - p| - |a - n| + margin, 0): Euclidean with margin 1 as in the paper; cosine has a margin of 0.2."""

    kinds = ("pairs",)

    def __init__(self, *, margin: float | None = None, distance: Distance = "euclidean") -> None:
        super().__init__()
        self.margin, self.distance = margin, distance

    def settings(self) -> dict[str, object]:
        return {"margin": self.margin, "distance": self.distance}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        if len(examples.columns) != 3:
            raise InputError(
                f"Triplet needs three columns (anchor, positive, negative), but {examples.name} has "
                f"{len(examples.columns)} ({', '.join(examples.columns)}); `munjang negatives` finds negatives"
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        anchors, positives, negatives = outputs
        return losses.triplet(anchors, positives, negatives, margin=self.margin, distance=self.distance)


class BatchTriplets(Objective):
    """Triplets made of the batch's own labels (Hermans et al. 2017): the hardest, semi-hard ones, or all."""

    kinds = ("classified",)
    rowwise = False

    def __init__(
        self,
        mining: Literal["hard", "semi_hard", "all", "hard_soft"] = "hard",
        *,
        margin: float | None = None,
        distance: Literal["cosine", "euclidean"] = "euclidean",
    ) -> None:
        super().__init__()
        self.mining, self.margin, self.distance = mining, margin, distance

    def settings(self) -> dict[str, object]:
        return {"mining": self.mining, "margin": self.margin, "distance": self.distance}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        several_labels(examples)
        assert examples.targets is not None
        if len(np.unique(examples.targets)) == len(examples):
            raise InputError(f"{examples.name} has no class with two rows: triplets need an anchor and a positive")

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        vectors, labels = outputs[0], given.targets
        if self.mining == "hard_soft":
            return losses.batch_hard_soft_margin(vectors, labels, distance=self.distance)
        loss = {
            "hard": losses.batch_hard_triplet,
            "semi_hard": losses.batch_semi_hard_triplet,
            "all": losses.batch_all_triplet,
        }[self.mining]
        return loss(vectors, labels, margin=self.margin, distance=self.distance)


class Ranking(Objective):
    """MNRL: the positive among all positives and negatives of the batch (Henderson et al. 2017).

    guide: a model that tells which in-batch negatives are probably positives; they are left out (GISTEmbed).
    """

    kinds = ("pairs",)
    rowwise = False
    unique_texts = True

    def __init__(
        self,
        *,
        scale: float = 20.0,
        similarity: Literal["cosine", "dot"] = "cosine",
        symmetric: bool = False,
        guide: BiEncoder | None = None,
        guide_margin: float = 0.0,
    ) -> None:
        super().__init__()
        self.scale, self.similarity, self.symmetric = scale, similarity, symmetric
        self.guide_model, self.guide_margin = guide, guide_margin

    def settings(self) -> dict[str, object]:
        guide = None if self.guide_model is None else self.guide_model.fingerprint
        return {
            "scale": self.scale,
            "similarity": self.similarity,
            "symmetric": self.symmetric,
            "guide": guide,
            "guide_margin": self.guide_margin,
        }

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        not_itself(examples)

    def guide(self, examples: Examples) -> tuple[Array, ...]:
        if self.guide_model is None:
            return ()
        texts = sorted({text for column in examples.columns.values() for text in column})
        place = {text: i for i, text in enumerate(texts)}
        vectors = self.guide_model.encode_report(texts, normalize=True).vectors
        return tuple(
            vectors[np.fromiter((place[text] for text in column), np.int64)] for column in examples.columns.values()
        )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        anchors, positives = outputs[0], outputs[1]
        negatives = _joined(outputs[2:])
        allowed = None
        if given.guides:
            allowed = losses.gist_mask(
                given.guides[0], given.guides[1], _joined(given.guides[2:]), margin=self.guide_margin
            )
        return losses.mnrl(
            anchors,
            positives,
            negatives,
            scale=self.scale,
            similarity=self.similarity,
            symmetric=self.symmetric,
            allowed=allowed,
        )


class MarginMse(Objective):
    """Distillation from a cross-encoder: the margin between positive and negative (Hofstätter et al. 2020).

    The student's margin is `scale` times that of its similarities. A teacher's scores are logits, and have no bounds:
    dot products of vectors of free length can follow them (the paper's way). Cosines, and dot products of vectors that
    the model normalises, differ by 2 at most: give them a scale of about half of the teacher's largest margins (10 for
    many rerankers), or hand in scores of 0..1.
    """

    kinds = ("pairs",)

    def __init__(self, *, similarity: Literal["dot", "cosine"] = "dot", scale: float = 1.0) -> None:
        super().__init__()
        if similarity not in ("dot", "cosine"):
            raise InputError(f"similarity must be dot or cosine, got {similarity!r}")
        if not 0 < scale < math.inf:
            raise InputError(f"scale must be above 0, got {scale}")
        self.similarity, self.scale = similarity, scale

    def settings(self) -> dict[str, object]:
        return {"similarity": self.similarity, "scale": self.scale}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        taught_scores(examples)
        if self.similarity == "cosine":
            self._check_reach(examples)

    def _check_reach(self, examples: Examples) -> None:
        """Say so where most of the teacher's margins are larger than any two cosines can be apart."""
        assert examples.targets is not None
        margins = np.abs(examples.targets[:, :1] - examples.targets[:, 1:])
        if float((margins > 2 * self.scale).mean()) > 0.5:
            warnings.warn(
                f"most of the teacher's margins in {examples.name} are out of reach: cosines times a scale of "
                f"{self.scale:g} differ by {2 * self.scale:g} at most, the teacher's scores by up to "
                f"{float(margins.max()):.3g}; give {type(self).__name__} a scale of about "
                f"{float(margins.max()) / 2:.2g}",
                TrainingWarning,
                stacklevel=4,
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        anchors, others = outputs[0], outputs[1:]
        if self.similarity == "cosine":
            scores = [functional.cosine_similarity(anchors, other) for other in others]
        else:
            scores = [(anchors * other).sum(dim=1) for other in others]
        scores = [score * self.scale for score in scores]
        parts = [
            losses.margin_mse(scores[0], scores[i], given.targets[:, 0], given.targets[:, i])
            for i in range(1, len(scores))
        ]
        return sum(parts[1:], parts[0]) / len(parts)


class Kl(MarginMse):
    """Distillation from a cross-encoder: its distribution over positive and negatives, of scaled cosines here."""

    def __init__(self, *, temperature: float = 1.0, scale: float = 20.0) -> None:
        super().__init__(similarity="cosine", scale=scale)
        self.temperature = temperature

    def settings(self) -> dict[str, object]:
        return {"temperature": self.temperature, "scale": self.scale}

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        cosines = [functional.cosine_similarity(outputs[0], other) for other in outputs[1:]]
        return losses.kl_divergence(
            torch.stack(cosines, dim=1) * self.scale, given.targets, temperature=self.temperature
        )


class Matryoshka(Objective):
    """Any objective of vectors, also on their first values alone (Kusupati et al. 2022)."""

    def __init__(self, inner: Objective, dimensions: Sequence[int], *, weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if inner.cross or not inner.any_width:
            raise InputError(
                f"Matryoshka needs an objective that compares vectors of any width, not {type(inner).__name__}"
            )
        self.inner, self.dimensions, self.weights = inner, tuple(dimensions), weights
        self.rowwise, self.recordable, self.unique_texts = inner.rowwise, inner.recordable, inner.unique_texts

    def settings(self) -> dict[str, object]:
        return {
            "inner": type(self.inner).__name__,
            **self.inner.settings(),
            "dimensions": list(self.dimensions),
            "weights": None if self.weights is None else list(self.weights),
        }

    def forget(self) -> None:
        self.inner.forget()

    def prepare(self, examples: Examples, dimension: int) -> None:
        self.inner.prepare(examples, dimension)
        wrong = [size for size in self.dimensions if not 1 <= size <= dimension]
        if wrong or not self.dimensions:
            raise InputError(f"dimensions must be 1..{dimension} (the model's), got {list(self.dimensions)}")

    def guide(self, examples: Examples) -> tuple[Array, ...]:
        return self.inner.guide(examples)

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        def loss(*vectors: Tensor) -> Tensor:
            return self.inner.forward(vectors, given)

        return losses.matryoshka(loss, outputs, self.dimensions, weights=self.weights)


def _joined(parts: Sequence[Tensor]) -> Tensor | None:
    return None if not parts else parts[0] if len(parts) == 1 else torch.cat(list(parts))
