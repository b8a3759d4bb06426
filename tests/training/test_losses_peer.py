"""Every loss that sentence-transformers has too: the same value and the same gradient, from the same vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers.cross_encoder import losses as cross
from sentence_transformers.sentence_transformer import losses as dense
from sentence_transformers.sentence_transformer.losses import gist_embed
from sentence_transformers.sentence_transformer.losses.batch_hard_triplet import (
    BatchHardTripletLossDistanceFunction as BatchDistance,
)
from sentence_transformers.util import pairwise_dot_score
from torch import Tensor, nn

from munjang.training import losses

Loss = Callable[..., Tensor]


def rows(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def same(ours: Loss, theirs: Loss, *inputs: Tensor) -> None:
    """Value and gradient to 1e-5."""
    answers = []
    for loss in (ours, theirs):
        ready = [each.clone().requires_grad_() for each in inputs]
        value = loss(*ready)
        value.backward()
        answers.append((value.detach(), [each.grad for each in ready]))
    (value, gradients), (their_value, their_gradients) = answers
    torch.testing.assert_close(value, their_value, rtol=1e-5, atol=1e-5)
    assert any(gradient.abs().max() > 1e-4 for gradient in their_gradients if gradient is not None)
    for gradient, their_gradient in zip(gradients, their_gradients, strict=True):
        torch.testing.assert_close(gradient, their_gradient, rtol=1e-4, atol=1e-5)


def theirs(loss: Any, labels: Tensor | None = None) -> Loss:
    return lambda *vectors: loss.compute_loss_from_embeddings(list(vectors), labels)


U, V, W = rows(9, 8, 1), rows(9, 8, 2), rows(9, 8, 3)
SCORES = torch.tensor([0.0, 0.2, 0.2, 1.0, 0.6, 0.6, 0.4, 0.8, 0.0])
BINARY = torch.tensor([1, 0, 0, 1, 1, 0, 1, 0, 0])
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])


def test_scores() -> None:
    same(lambda u, v: losses.cosine_mse(u, v, SCORES), theirs(dense.CosineSimilarityLoss(None), SCORES), U, V)
    same(
        lambda u, v: losses.cosent(torch.cosine_similarity(u, v), SCORES), theirs(dense.CoSENTLoss(None), SCORES), U, V
    )
    same(lambda u, v: losses.angle(u, v, SCORES), theirs(dense.AnglELoss(None), SCORES), U, V)
    odd = (U[:, :7], V[:, :7])
    same(lambda u, v: losses.angle(u, v, SCORES), theirs(dense.AnglELoss(None), SCORES), *odd)


@pytest.mark.parametrize("name", ["cosine", "euclidean", "manhattan"])
def test_contrastive(name: losses.Distance) -> None:
    metric = getattr(dense.SiameseDistanceMetric, {"cosine": "COSINE_DISTANCE"}.get(name, name.upper()))
    u, v = U / 4, V / 4
    for ours, peer in (
        (losses.contrastive, dense.ContrastiveLoss),
        (losses.online_contrastive, dense.OnlineContrastiveLoss),
    ):
        same(
            lambda a, b, ours=ours: ours(a, b, BINARY, margin=1.1, distance=name),
            theirs(peer(None, distance_metric=metric, margin=1.1), BINARY),
            u,
            v,
        )


@pytest.mark.parametrize("name", ["cosine", "euclidean", "manhattan"])
def test_triplet(name: losses.Distance) -> None:
    metric = getattr(dense.TripletDistanceMetric, name.upper())
    same(
        lambda a, p, n: losses.triplet(a, p, n, margin=0.8, distance=name),
        theirs(dense.TripletLoss(None, distance_metric=metric, triplet_margin=0.8)),
        U,
        V,
        W,
    )


@pytest.mark.parametrize("name", ["cosine", "euclidean"])
@pytest.mark.parametrize("margin", [0.1, 1.0, 5.0])
def test_batches_of_triplets(name: losses.Distance, margin: float) -> None:
    metric = getattr(BatchDistance, f"{name}_distance")
    for ours, peer in (
        (losses.batch_all_triplet, dense.BatchAllTripletLoss),
        (losses.batch_hard_triplet, dense.BatchHardTripletLoss),
        (losses.batch_semi_hard_triplet, dense.BatchSemiHardTripletLoss),
    ):
        same(
            lambda x, ours=ours: ours(x, CLASSES, margin=margin, distance=name),
            theirs(peer(None, distance_metric=metric, margin=margin), CLASSES),
            U,
        )
    same(
        lambda x: losses.batch_hard_soft_margin(x, CLASSES, distance=name),
        theirs(dense.BatchHardSoftMarginTripletLoss(None, distance_metric=metric), CLASSES),
        U,
    )


def test_in_batch_negatives() -> None:
    same(losses.mnrl, theirs(dense.MultipleNegativesRankingLoss(None)), U, V)
    same(losses.mnrl, theirs(dense.MultipleNegativesRankingLoss(None)), U, V, W)
    same(
        lambda a, p, n: losses.mnrl(a, p, n, symmetric=True),
        theirs(dense.MultipleNegativesSymmetricRankingLoss(None)),
        U,
        V,
        W,
    )


@pytest.mark.parametrize("strategy", ["absolute", "relative"])
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("contrast", [(True, True), (False, True), (False, False)])
def test_gist(
    strategy: losses.MarginStrategy, columns: int, contrast: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = [rows(9, 5, 10), rows(9, 5, 11) * 1.5 + rows(9, 5, 10), rows(9, 5, 12)][:columns]
    peer = gist_embed.GISTEmbedLoss.__new__(gist_embed.GISTEmbedLoss)
    nn.Module.__init__(peer)
    settings = {"temperature": 0.05, "margin": 0.1, "margin_strategy": strategy}
    for name, value in {
        **settings,
        "contrast_anchors": contrast[0],
        "contrast_positives": contrast[1],
        "must_retokenize": False,
        "gather_across_devices": False,
    }.items():
        setattr(peer, name, value)
    peer.model, peer.guide = nn.Identity(), nn.Linear(1, 1)
    peer.similarity_fct, peer.cross_entropy_loss = nn.CosineSimilarity(dim=-1), nn.CrossEntropyLoss()
    student: list[Tensor] = []
    monkeypatch.setattr(gist_embed, "embed_columns", lambda model, _: guide if model is peer.guide else student)

    def their_loss(*vectors: Tensor) -> Tensor:
        student[:] = vectors
        return peer([{}] * columns, None)

    def our_loss(*vectors: Tensor) -> Tensor:
        chosen = {"contrast_anchors": contrast[0], "contrast_positives": contrast[1]}
        return losses.gist(losses.Vectors3(*vectors), losses.Vectors3(*guide), **settings, **chosen)

    same(our_loss, their_loss, *[U, V, W][:columns])
    if contrast == (False, False):  # what remains is MNRL with the guide's mask
        mask = losses.gist_mask(*guide, margin=0.1, margin_strategy=strategy)
        assert not mask.all()
        same(lambda *x: losses.mnrl(*x, scale=20.0, allowed=mask), their_loss, *[U, V, W][:columns])


def test_teachers() -> None:
    teacher = torch.stack([SCORES, SCORES.flip(0) * 0.7], dim=1)

    def scores(u: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return pairwise_dot_score(u, v), pairwise_dot_score(u, w)

    same(
        lambda *x: losses.margin_mse(*scores(*x), *teacher.unbind(1)),
        theirs(dense.MarginMSELoss(None), teacher),
        U,
        V,
        W,
    )
    same(
        lambda *x: losses.kl_divergence(torch.stack(scores(*x), dim=1), teacher, temperature=2.0),
        theirs(dense.DistillKLDivLoss(None, temperature=2.0), teacher),
        U,
        V,
        W,
    )
    same(lambda x: losses.mse(x, W), lambda x: dense.MSELoss(None).compute_loss_from_embeddings([x], [W]), U)


class Stub(nn.Module):
    """A cross-encoder whose logits are given: document 'i' gets logit i."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def preprocess(self, pairs: list[tuple[str, str]], **_: object) -> dict[str, Tensor]:
        return {"rows": torch.tensor([int(document) for _, document in pairs])}

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": self.logits[features["rows"]]}


SIZES = [4, 1, 6, 3]
LOGITS = rows(14, 1, 4).flatten()
RELEVANCE = torch.tensor([0.0, 2, 1, 0, 1, 3, 0, 0, 1, 2, 0, 0, 0, 0])
GROUPS = torch.repeat_interleave(torch.arange(4), torch.tensor(SIZES))


def listwise(make: Callable[[Stub], Any]) -> Loss:
    documents = [[str(i) for i in part.tolist()] for part in torch.arange(14).split(SIZES)]

    def loss(logits: Tensor) -> Tensor:
        return make(Stub(logits))([[f"질문 {i}" for i in range(4)], documents], list(RELEVANCE.split(SIZES)))

    return loss


def test_lists() -> None:
    same(lambda s: losses.list_net(s, RELEVANCE, GROUPS), listwise(cross.ListNetLoss), LOGITS)
    by_relevance = listwise(lambda model: cross.ListMLELoss(model, respect_input_order=False))
    same(lambda s: losses.list_mle(s, RELEVANCE, GROUPS), by_relevance, LOGITS)


@pytest.mark.parametrize("k", [None, 2])
def test_lambda_losses(k: int | None) -> None:
    same(
        lambda s: losses.rank_net(s, RELEVANCE, GROUPS, k=k, sigma=1.3),
        listwise(lambda model: cross.RankNetLoss(model, k=k, sigma=1.3)),
        LOGITS,
    )
    for scheme, name in (
        ("ndcg_loss1", "NDCGLoss1Scheme"),
        ("ndcg_loss2", "NDCGLoss2Scheme"),
        ("lambda_rank", "LambdaRankScheme"),
        ("ndcg_loss2++", "NDCGLoss2PPScheme"),
    ):
        peer = getattr(cross, name, None) or getattr(cross.lambda_loss, name)
        same(
            lambda s, scheme=scheme: losses.lambda_loss(s, RELEVANCE, GROUPS, scheme=scheme, k=k),
            listwise(lambda model, peer=peer: cross.LambdaLoss(model, weighting_scheme=peer(), k=k)),
            LOGITS,
        )


def test_outputs() -> None:
    weight = torch.tensor(2.5)
    same(
        lambda x: losses.bce(x, SCORES, positive_weight=2.5),
        lambda x: nn.BCEWithLogitsLoss(pos_weight=weight)(x, SCORES),
        U[:, 0],
    )
    same(lambda x: losses.cross_entropy(x, CLASSES), lambda x: nn.CrossEntropyLoss()(x, CLASSES), U[:, :3])


class Vectors(nn.Module):
    """A bi-encoder whose vectors are given: what a column holds is what it becomes."""

    def get_embedding_dimension(self) -> int:
        return 8

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}


def test_matryoshka() -> None:
    model = Vectors()
    peer = dense.MatryoshkaLoss(model, dense.CosineSimilarityLoss(model), [8, 4, 2], [1, 0.5, 0.25])
    same(
        lambda u, v: losses.matryoshka(
            lambda a, b: losses.cosine_mse(a, b, SCORES), [u, v], [8, 4, 2], weights=[1, 0.5, 0.25]
        ),
        lambda u, v: peer([{"vectors": u}, {"vectors": v}], SCORES),
        U,
        V,
    )
