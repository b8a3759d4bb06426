"""What training meets sooner or later: equal and zero vectors, a batch of one, half precision, wrong shapes, a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.training import losses

Loss = Callable[..., Tensor]

# Loss by name, over vectors [n, d] made for it: every loss that takes vectors, with all distances.
PAIRS: dict[str, Loss] = {
    "concatenate": lambda u, v, y: losses.concatenate(u, v, ["u", "v", "|u-v|", "u*v"]).mean(),
    "cosine_mse": lambda u, v, y: losses.cosine_mse(u, v, y.float()),
    "angle": lambda u, v, y: losses.angle(u, v, y),
    "mse": lambda u, v, y: losses.mse(u, v),
    "triplet": lambda u, v, y: losses.triplet(u, v, v.flip(0)),
    "triplet cosine": lambda u, v, y: losses.triplet(u, v, v.flip(0), distance="cosine"),
    "triplet manhattan": lambda u, v, y: losses.triplet(u, v, v.flip(0), distance="manhattan"),
    "mnrl": lambda u, v, y: losses.mnrl(u, v, v.flip(0), symmetric=True),
    "mnrl dot": lambda u, v, y: losses.mnrl(u, v, similarity="dot"),
    "mnrl alone": lambda u, v, y: losses.mnrl(
        u, v, allowed=torch.zeros(len(u), len(u), dtype=torch.bool, device=u.device), symmetric=True
    ),
    "gist": lambda u, v, y: losses.gist(losses.Vectors3(u, v, v), losses.Vectors3(u, v, u)),
    "matryoshka": lambda u, v, y: losses.matryoshka(losses.mnrl, [u, v], [4, 2]),
}
for _distance in ("cosine", "euclidean", "manhattan"):
    for _loss in (losses.contrastive, losses.online_contrastive):
        PAIRS[f"{_loss.__name__} {_distance}"] = lambda u, v, y, f=_loss, d=_distance: f(u, v, y, distance=d)
    for _loss in (losses.batch_all_triplet, losses.batch_hard_triplet, losses.batch_semi_hard_triplet):
        PAIRS[f"{_loss.__name__} {_distance}"] = lambda u, v, y, f=_loss, d=_distance: f(u + v, y, distance=d)
    PAIRS[f"batch_hard_soft_margin {_distance}"] = lambda u, v, y, d=_distance: losses.batch_hard_soft_margin(
        u + v, y, distance=d
    )

# Over scores [n], where 4 rows are a list.
SCORED: dict[str, Loss] = {
    "cosent": lambda s, y: losses.cosent(s, y),
    "bce": lambda s, y: losses.bce(s, y),
    "mse_scores": lambda s, y: losses.mse_scores(s, y, activation="sigmoid"),
    "cross_entropy": lambda s, y: losses.cross_entropy(torch.stack([s, -s], dim=1), y, smoothing=0.1),
    "kl_divergence": lambda s, y: losses.kl_divergence(torch.stack([s, -s], dim=1), torch.stack([s, s], dim=1)),
    "margin_mse": lambda s, y: losses.margin_mse(s, s[:, None].flip(0), s.detach(), s[:, None].detach()),
    "list_net": lambda s, y: losses.list_net(s, y, torch.arange(len(s)) // 4),
    "list_mle": lambda s, y: losses.list_mle(s, y, torch.arange(len(s)) // 4),
    "rank_net": lambda s, y: losses.rank_net(s, y, torch.arange(len(s)) // 4),
    "lambda_loss": lambda s, y: losses.lambda_loss(s, y, torch.arange(len(s)) // 4),
    "lambda_loss 1": lambda s, y: losses.lambda_loss(s, y, torch.arange(len(s)) // 4, scheme="ndcg_loss1", k=2),
}

VECTORS = {
    "equal": torch.ones(6, 4),
    "zero": torch.zeros(6, 4),
    "some zero": torch.tensor([[0.0] * 4, [1, 2, 3, 4]] * 3),
    "opposite": torch.tensor([[1.0, 2, 3, 4], [-1, -2, -3, -4]] * 3),
    "one": torch.tensor([[1.0, 2, 3, 4]]),
    "large": torch.full((6, 4), 1e15) * torch.tensor([1.0, -1, 1, 1]),
    "tiny": torch.full((6, 4), 1e-15),
}


def finite(loss: Tensor, *inputs: Tensor) -> None:
    loss.backward()
    assert loss.ndim == 0
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)
    for each in inputs:
        assert each.grad is None or torch.isfinite(each.grad).all()


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("name", PAIRS)
def test_vectors_at_the_edge(name: str, kind: str) -> None:
    u, v = (VECTORS[kind].clone().requires_grad_() for _ in range(2))
    for labels in (torch.arange(len(u)) % 2, torch.zeros(len(u), dtype=torch.int64), torch.arange(len(u))):
        finite(PAIRS[name](u, v, labels), u, v)


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("value", [0.0, 1.0, 1e4, -1e4])
@pytest.mark.parametrize("n", [1, 7])
def test_scores_at_the_edge(name: str, value: float, n: int) -> None:
    for scores in (torch.full((n,), value), torch.full((n,), value) * (torch.arange(n) % 2)):
        for labels in (torch.arange(n) % 2, torch.zeros(n, dtype=torch.int64)):
            ready = scores.clone().requires_grad_()
            finite(SCORED[name](ready, labels), ready)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_also_under_autocast(name: str, dtype: torch.dtype) -> None:
    u, v = (torch.randn(6, 4, generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(2))
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    wanted = PAIRS[name](u.float(), v.float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = PAIRS[name](u.float(), v.float(), labels)
        torch.testing.assert_close(wide, wanted, rtol=1e-6, atol=1e-6)
        if "batch" not in name:  # these are given u + v, which is rounded before
            narrow = PAIRS[name](u, v, labels)
            torch.testing.assert_close(narrow.float(), wanted, rtol=1e-2, atol=1e-2)


U, V = torch.randn(6, 4), torch.randn(6, 4)
IDS = torch.tensor([0, 1, 0, 1, 0, 1])
BAD: dict[str, tuple[Callable[[], object], str]] = {
    "one dimension": (lambda: losses.batch_hard_triplet(U[0], IDS), r"rows \[n, d\]"),
    "three dimensions": (lambda: losses.mse(U[None], U[None]), r"rows \[n, d\]"),
    "no rows": (lambda: losses.cosine_mse(U[:0], V[:0], U[:0, 0]), "at least 1"),
    "whole numbers": (lambda: losses.mnrl(U.long(), V.long()), "floating-point"),
    "rows": (lambda: losses.mnrl(U, V[:5]), r"anchors \(6, 4\) and positives \(5, 4\)"),
    "width": (lambda: losses.mnrl(U, V, torch.ones(3, 5)), "4 columns"),
    "scores": (lambda: losses.cosine_mse(U, V, torch.ones(5)), r"\(6,\), got shape \(5,\)"),
    "scores 2d": (lambda: losses.cosent(U, torch.ones(6)), "one number per pair"),
    "labels": (lambda: losses.cross_entropy(U, torch.zeros(6)), "whole numbers"),
    "label count": (lambda: losses.cross_entropy(U, IDS[:5]), "one class per row"),
    "smoothing": (lambda: losses.cross_entropy(U, IDS, smoothing=1.0), "below 1"),
    "logits": (lambda: losses.bce(U, torch.ones(6)), "cross_entropy"),
    "weight": (lambda: losses.bce(U[:, 0], torch.ones(6), positive_weight=0.0), "above 0"),
    "activation": (lambda: losses.mse_scores(U[:, 0], torch.ones(6), activation="tanh"), "'identity', 'sigmoid'"),
    "parts": (lambda: losses.concatenate(U, V, ["u+v"]), r"'\|u-v\|'"),
    "no parts": (lambda: losses.concatenate(U, V, []), "at least one"),
    "margin": (lambda: losses.triplet(U, V, V, margin=-1.0), "0 or more, got -1"),
    "batch margin": (lambda: losses.batch_hard_triplet(U, IDS, margin=-0.1), "0 or more"),
    "contrastive margin": (lambda: losses.contrastive(U, V, IDS, margin=float("nan")), "0 or more"),
    "distance": (lambda: losses.triplet(U, V, V, distance="dot"), "'cosine', 'euclidean'"),
    "soft distance": (lambda: losses.batch_hard_soft_margin(U, IDS, distance="dot"), "'cosine', 'euclidean'"),
    "scale": (lambda: losses.mnrl(U, V, scale=0.0), "above 0"),
    "similarity": (lambda: losses.mnrl(U, V, similarity="euclidean"), "'cosine', 'dot'"),
    "allowed": (lambda: losses.mnrl(U, V, V, allowed=torch.ones(6, 6, dtype=torch.bool)), r"bool \(6, 12\)"),
    "allowed kind": (lambda: losses.mnrl(U, V, allowed=torch.ones(6, 6)), "bool"),
    "guide": (lambda: losses.gist(losses.Vectors3(U, V, V), losses.Vectors3(U, V)), "6 negatives"),
    "strategy": (lambda: losses.gist_mask(U, V, margin_strategy="both"), "'absolute', 'relative'"),
    "teacher": (lambda: losses.mse(U, torch.ones(6, 3)), r"\(6, 4\) and \(6, 3\).*Dense"),
    "margins": (lambda: losses.margin_mse(U[:, 0], U, U[:, 0], U[:, :2]), r"\[6, k\]"),
    "one candidate": (lambda: losses.kl_divergence(U[:, :1], U[:, :1]), "2 or more"),
    "temperature": (lambda: losses.kl_divergence(U, U, temperature=-1), "above 0"),
    "groups": (lambda: losses.list_net(U[:, 0], U[:, 0], IDS), "ascend"),
    "group count": (lambda: losses.list_net(U[:, 0], U[:, 0], IDS[:4]), "one class per row"),
    "k": (lambda: losses.rank_net(U[:, 0], U[:, 0], IDS.sort().values, k=0), "1 or more"),
    "scheme": (lambda: losses.lambda_loss(U[:, 0], U[:, 0], IDS, scheme="ndcg"), "lambda_rank"),
    "dimensions": (lambda: losses.matryoshka(losses.mnrl, [U, V], [4, 5]), r"1\.\.4"),
    "no dimensions": (lambda: losses.matryoshka(losses.mnrl, [U, V], []), "needs"),
    "weights": (lambda: losses.matryoshka(losses.mnrl, [U, V], [4, 2], weights=[1.0]), "2 dimensions"),
    "one class": (lambda: losses.check_classes(torch.zeros(6, dtype=torch.int64)), "1 classes"),
    "no class of two": (lambda: losses.check_classes(torch.arange(6)), "largest of 1"),
    "no class": (lambda: losses.check_classes(torch.arange(0)), "0 classes"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(InputError, match=message):
        call()


def test_classes_that_make_triplets_are_fine() -> None:
    losses.check_classes(IDS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*PAIRS, *SCORED])
def test_on_the_gpu_the_same_and_the_host_never_waits(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(12) % 3
    labels = labels if name in PAIRS else labels % 2
    inputs = [torch.randn(12, 4, generator=generator) for _ in range(2)]
    if name in SCORED:
        inputs = [inputs[0][:, 0]]
    loss, there = (PAIRS | SCORED)[name], labels.cuda()
    answers = []
    for device in ("cpu", "cuda", "cuda"):  # the second time on the GPU, kernels are loaded
        ready = [each.to(device, copy=True).requires_grad_() for each in inputs]
        torch.cuda.synchronize()
        try:
            torch.cuda.set_sync_debug_mode("error" if len(answers) == 2 else "default")
            value = loss(*ready, labels if device == "cpu" else there)
            value.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        answers.append([value.detach().cpu(), *(each.grad.cpu() for each in ready if each.grad is not None)])
    for here, other in zip(answers[0], answers[2], strict=True):
        torch.testing.assert_close(here, other, rtol=1e-4, atol=1e-5)
