"""Every loss beside its formula written with plain loops, its gradient beside finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product as combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from munjang.training import losses

shapes = st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(0, 10_000))
quick = settings(max_examples=25, deadline=None)


def rows(n: int, d: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def numbers(n: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random(n))


def cos(a: Tensor, b: Tensor) -> float:
    a, b = a.tolist(), b.tolist()
    top = sum(x * y for x, y in zip(a, b, strict=True))
    return top / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def far(a: Tensor, b: Tensor, distance: str) -> float:
    if distance == "cosine":
        return 1 - cos(a, b)
    gaps = [abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return math.sqrt(sum(g * g for g in gaps)) if distance == "euclidean" else sum(gaps)


def close(loss: Tensor, wanted: float) -> None:
    assert loss.ndim == 0
    assert float(loss) == pytest.approx(wanted, rel=1e-6, abs=1e-7)


def check_gradient(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    ready = [each.clone().double().requires_grad_(each.numel() > 0) for each in inputs]
    assert torch.autograd.gradcheck(function, ready)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


# --- outputs ----------------------------------------------------------------------------------------------------------


@quick
@given(shapes, st.floats(0, 0.5))
def test_cross_entropy(shape: tuple[int, int, int], smoothing: float) -> None:
    n, k, seed = shape
    logits, labels = rows(n, k, seed), torch.from_numpy(np.random.default_rng(seed).integers(0, k, n))
    wanted = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total = math.log(sum(map(math.exp, row)))
        target = [smoothing / k + (1 - smoothing) * (i == label) for i in range(k)]
        wanted.append(-sum(t * (x - total) for t, x in zip(target, row, strict=True)))
    close(losses.cross_entropy(logits, labels, smoothing=smoothing), mean(wanted))
    check_gradient(lambda x: losses.cross_entropy(x, labels, smoothing=smoothing), logits)


@pytest.mark.parametrize("weight", [None, 3.0])
def test_bce(weight: float | None) -> None:
    logits, targets = rows(6, 1, 1), numbers(6, 2)
    wanted = []
    for x, t in zip(logits.flatten().tolist(), targets.tolist(), strict=True):
        s = 1 / (1 + math.exp(-x))
        wanted.append(-(weight or 1) * t * math.log(s) - (1 - t) * math.log(1 - s))
    close(losses.bce(logits, targets, positive_weight=weight), mean(wanted))
    check_gradient(lambda x: losses.bce(x, targets, positive_weight=weight), logits.flatten())


def test_mse_scores() -> None:
    logits, targets = rows(6, 1, 1).flatten(), numbers(6, 2)
    pairs = list(zip(logits.tolist(), targets.tolist(), strict=True))
    close(losses.mse_scores(logits, targets), mean([(x - t) ** 2 for x, t in pairs]))
    squashed = mean([(1 / (1 + math.exp(-x)) - t) ** 2 for x, t in pairs])
    close(losses.mse_scores(logits, targets, activation="sigmoid"), squashed)
    check_gradient(lambda x: losses.mse_scores(x, targets, activation="sigmoid"), logits)


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_concatenate_in_the_order_asked() -> None:
    u, v = rows(3, 2, 1), rows(3, 2, 2)
    made = losses.concatenate(u, v, ["u*v", "v", "|u-v|", "u"])
    assert made.shape == (3, 8)
    assert torch.equal(made, torch.cat([u * v, v, (u - v).abs(), u], dim=1))
    check_gradient(lambda a, b: losses.concatenate(a, b, ["u", "v", "|u-v|", "u*v"]).square().sum(), u, v)


@quick
@given(shapes)
def test_cosine_mse(shape: tuple[int, int, int]) -> None:
    n, d, seed = shape
    u, v, scores = rows(n, d, seed), rows(n, d, seed + 1), numbers(n, seed)
    close(losses.cosine_mse(u, v, scores), mean([(cos(u[i], v[i]) - float(scores[i])) ** 2 for i in range(n)]))
    if d > 1:
        check_gradient(lambda a, b: losses.cosine_mse(a, b, scores), u, v)


def brute_cosent(similarities: list[float], scores: list[float], scale: float) -> float:
    n = len(scores)
    pairs = [(i, j) for i in range(n) for j in range(n) if scores[i] > scores[j]]
    return math.log(1 + sum(math.exp(scale * (similarities[j] - similarities[i])) for i, j in pairs))


@quick
@given(st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0.0, 0.2, 0.5, 1.0])), min_size=1, max_size=8))
def test_cosent(pairs: list[tuple[float, float]]) -> None:
    near, scores = map(list, zip(*pairs, strict=True))
    loss = losses.cosent(torch.tensor(near, dtype=torch.float64), torch.tensor(scores), scale=5.0)
    close(loss, brute_cosent(near, scores, 5.0))


def test_cosent_of_equal_scores_is_nothing_to_learn() -> None:
    near = torch.tensor([0.1, 0.9, -0.3], requires_grad=True)
    loss = losses.cosent(near, torch.full((3,), 0.4))
    loss.backward()
    assert loss.detach() == 0
    assert near.grad is not None
    assert not near.grad.any()
    check_gradient(lambda s: losses.cosent(s, torch.tensor([0.1, 0.9, 0.1, 0.5])), numbers(4, 3))


@pytest.mark.parametrize("d", [1, 4, 7])
def test_angle(d: int) -> None:
    u, v, scores = rows(5, d, 1), rows(5, d, 2), numbers(5, 3)
    near = []
    for x, y in zip(u.tolist(), v.tolist(), strict=True):
        x, y = ([*z, 0.0] if d % 2 else z for z in (x, y))
        half = len(x) // 2
        length = math.sqrt(sum(a * a for a in x) * sum(a * a for a in y))
        left = [complex(a, b) for a, b in zip(x[:half], x[half:], strict=True)]
        right = [complex(a, b) for a, b in zip(y[:half], y[half:], strict=True)]
        turned = sum((a * b.conjugate() for a, b in zip(left, right, strict=True)), start=0j) / length
        near.append(abs(turned.real + turned.imag))
    close(losses.angle(u, v, scores, scale=7.0), brute_cosent(near, scores.tolist(), 7.0))
    if d > 1:
        check_gradient(lambda a, b: losses.angle(a, b, scores, scale=3.0), u, v)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "manhattan"])
def test_contrastive(distance: losses.Distance) -> None:
    u, v, labels = rows(6, 4, 1), rows(6, 4, 2), torch.tensor([1, 0, 0, 1, 0, 1])
    wanted = []
    for i, y in enumerate(labels.tolist()):
        d = far(u[i], v[i], distance)
        wanted.append((y * d * d + (1 - y) * max(0.0, 2.5 - d) ** 2) / 2)
    close(losses.contrastive(u, v, labels, margin=2.5, distance=distance), mean(wanted))
    check_gradient(lambda a, b: losses.contrastive(a, b, labels, margin=2.5, distance=distance), u, v)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "manhattan"])
@pytest.mark.parametrize("labels", [[1, 0, 0, 1, 0, 1, 7, 0], [1] * 8, [0] * 8])
def test_online_contrastive(distance: losses.Distance, labels: list[int]) -> None:
    u, v = rows(8, 4, 5), rows(8, 4, 6)
    apart = [far(u[i], v[i], distance) for i in range(8)]
    alike = [d for d, y in zip(apart, labels, strict=True) if y == 1]
    unlike = [d for d, y in zip(apart, labels, strict=True) if y == 0]
    near = max(alike) if alike else mean(unlike)
    beyond = min(unlike) if unlike else mean(alike)
    wanted = sum(d * d for d in alike if d > beyond) + sum(max(0.0, 2.5 - d) ** 2 for d in unlike if d < near)
    close(losses.online_contrastive(u, v, torch.tensor(labels), margin=2.5, distance=distance), wanted)
    check_gradient(
        lambda a, b: losses.online_contrastive(a, b, torch.tensor(labels), margin=2.5, distance=distance), u, v
    )


# --- triplets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "manhattan"])
def test_triplet_with_its_default_margins(distance: losses.Distance) -> None:
    a, p, n = rows(5, 4, 1), rows(5, 4, 2), rows(5, 4, 3)
    margin = 0.2 if distance == "cosine" else 1.0
    gaps = [far(a[i], p[i], distance) - far(a[i], n[i], distance) + margin for i in range(5)]
    close(losses.triplet(a, p, n, distance=distance), mean([max(0.0, gap) for gap in gaps]))
    check_gradient(lambda x, y, z: losses.triplet(x, y, z, distance=distance), a, p, n)


def batch(labels: list[int], seed: int, distance: str) -> tuple[Tensor, list[list[float]]]:
    vectors = rows(len(labels), 3, seed)
    return vectors, [[far(x, y, distance) for y in vectors] for x in vectors]


label_lists = st.lists(st.integers(0, 3), min_size=1, max_size=8)
kinds = st.sampled_from(["cosine", "euclidean", "manhattan"])
margins = st.sampled_from([0.0, 0.3, 1.0, 4.0])


@quick
@given(label_lists, st.integers(0, 1000), kinds, margins)
def test_batch_all(labels: list[int], seed: int, distance: losses.Distance, margin: float) -> None:
    vectors, apart = batch(labels, seed, distance)
    gaps = [
        apart[a][p] - apart[a][n] + margin
        for a, p, n in combinations(range(len(labels)), repeat=3)
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]
    ]
    active = [gap for gap in gaps if gap > 0]
    loss = losses.batch_all_triplet(vectors, torch.tensor(labels), margin=margin, distance=distance)
    close(loss, mean(active) if active else 0.0)


def hardest(labels: list[int], apart: list[list[float]]) -> list[float]:
    gaps = []
    for a, label in enumerate(labels):
        alike = [apart[a][i] for i, other in enumerate(labels) if other == label and i != a]
        unlike = [apart[a][i] for i, other in enumerate(labels) if other != label]
        if alike and unlike:
            gaps.append(max(alike) - min(unlike))
    return gaps


@quick
@given(label_lists, st.integers(0, 1000), kinds, margins)
def test_batch_hard(labels: list[int], seed: int, distance: losses.Distance, margin: float) -> None:
    vectors, apart = batch(labels, seed, distance)
    gaps, ids = hardest(labels, apart), torch.tensor(labels)
    loss = losses.batch_hard_triplet(vectors, ids, margin=margin, distance=distance)
    close(loss, mean([max(0.0, gap + margin) for gap in gaps]) if gaps else 0.0)
    soft = losses.batch_hard_soft_margin(vectors, ids, distance=distance)
    close(soft, mean([math.log(1 + math.exp(gap)) for gap in gaps]) if gaps else 0.0)


@quick
@given(label_lists, st.integers(0, 1000), kinds, margins)
def test_batch_semi_hard(labels: list[int], seed: int, distance: losses.Distance, margin: float) -> None:
    vectors, apart = batch(labels, seed, distance)
    wanted = []
    for a, p in combinations(range(len(labels)), repeat=2):
        unlike = sorted(apart[a][i] for i, other in enumerate(labels) if other != labels[a])
        if a == p or labels[a] != labels[p] or not unlike:
            continue
        chosen = next((d for d in unlike if d > apart[a][p]), unlike[-1])
        wanted.append(max(0.0, apart[a][p] - chosen + margin))
    loss = losses.batch_semi_hard_triplet(vectors, torch.tensor(labels), margin=margin, distance=distance)
    close(loss, mean(wanted) if wanted else 0.0)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "manhattan"])
def test_gradients_of_batch_triplets(distance: losses.Distance) -> None:
    labels, vectors = torch.tensor([0, 1, 0, 2, 1, 2, 0]), rows(7, 4, 8)
    for loss in (losses.batch_all_triplet, losses.batch_hard_triplet, losses.batch_semi_hard_triplet):
        check_gradient(lambda x, loss=loss: loss(x, labels, margin=0.7, distance=distance), vectors)
    check_gradient(lambda x: losses.batch_hard_soft_margin(x, labels, distance=distance), vectors)


# --- in the batch -----------------------------------------------------------------------------------------------------


def choose(scores: list[float], own: int, allowed: list[bool]) -> float:
    kept = [s for i, s in enumerate(scores) if allowed[i] or i == own]
    return math.log(sum(map(math.exp, kept))) - scores[own]


@quick
@given(shapes, st.integers(0, 4), st.booleans(), st.booleans(), st.sampled_from(["cosine", "dot"]))
def test_mnrl(shape: tuple[int, int, int], m: int, symmetric: bool, masked: bool, similarity: str) -> None:
    n, d, seed = shape
    a, p, extra = rows(n, d, seed), rows(n, d, seed + 1), rows(m, d, seed + 2)
    allowed = torch.from_numpy(np.random.default_rng(seed).random((n, n + m)) < (0.6 if masked else 2))
    compare = cos if similarity == "cosine" else lambda x, y: float(x @ y)
    scores = [[3.0 * compare(x, y) for y in (*p, *extra)] for x in a]
    ways = [mean([choose(scores[i], i, allowed[i].tolist()) for i in range(n)])]
    if symmetric:
        back = [[scores[i][j] for i in range(n)] for j in range(n)]
        ways.append(mean([choose(back[j], j, allowed[:, j].tolist()) for j in range(n)]))
    arguments = {
        "scale": 3.0,
        "similarity": similarity,
        "symmetric": symmetric,
        "allowed": allowed if masked else None,
    }
    close(losses.mnrl(a, p, extra if m else None, **arguments), mean(ways))
    if d > 1:
        check_gradient(lambda x, y, z: losses.mnrl(x, y, z if m else None, **arguments), a, p, extra)


@pytest.mark.parametrize("strategy", ["absolute", "relative"])
@pytest.mark.parametrize("margin", [0.0, 0.2])
@pytest.mark.parametrize("m", [0, 3])
def test_gist_mask(strategy: losses.MarginStrategy, margin: float, m: int) -> None:
    a, p, extra = rows(6, 3, 1), rows(6, 3, 2), rows(m, 3, 3)
    mask = losses.gist_mask(a, p, extra if m else None, margin=margin, margin_strategy=strategy)
    for i in range(6):
        own = cos(a[i], p[i])
        bound = own - margin * (abs(own) if strategy == "relative" else 1)
        wanted = [j == i or cos(a[i], c) <= bound for j, c in enumerate((*p, *extra))]
        assert mask[i].tolist() == wanted
    assert not mask.all()


@pytest.mark.parametrize("anchors", [True, False])
@pytest.mark.parametrize("positives", [True, False])
@pytest.mark.parametrize("m", [0, 3])
def test_gist(anchors: bool, positives: bool, m: int) -> None:
    a, p, extra = rows(5, 3, 1), rows(5, 3, 2), rows(m, 3, 3)
    ga, gp, gextra = rows(5, 6, 4), rows(5, 6, 5), rows(m, 6, 6)
    wanted = []
    for i in range(5):
        own = cos(ga[i], gp[i]) - 0.1
        kept = [cos(a[i], p[j]) for j in range(5) if j == i or cos(ga[i], gp[j]) <= own]
        kept += [cos(a[i], a[j]) for j in range(5) if anchors and j != i and cos(ga[i], ga[j]) <= own]
        kept += [cos(p[i], p[j]) for j in range(5) if positives and j != i and cos(gp[i], gp[j]) <= own]
        kept += [cos(a[i], extra[j]) for j in range(m) if cos(ga[i], gextra[j]) <= own]
        wanted.append(math.log(sum(math.exp(s / 0.5) for s in kept)) - cos(a[i], p[i]) / 0.5)

    def loss(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return losses.gist(
            losses.Vectors3(x, y, z if m else None),
            losses.Vectors3(ga, gp, gextra if m else None),
            temperature=0.5,
            margin=0.1,
            contrast_anchors=anchors,
            contrast_positives=positives,
        )

    close(loss(a, p, extra), mean(wanted))
    check_gradient(loss, a, p, extra)


# --- teachers ---------------------------------------------------------------------------------------------------------


def test_mse() -> None:
    student, teacher = rows(4, 3, 1), rows(4, 3, 2)
    gaps = zip(student.flatten().tolist(), teacher.flatten().tolist(), strict=True)
    close(losses.mse(student, teacher), mean([(x - y) ** 2 for x, y in gaps]))
    check_gradient(lambda x: losses.mse(x, teacher), student)


@pytest.mark.parametrize("k", [None, 1, 3])
def test_margin_mse(k: int | None) -> None:
    shape = (4,) if k is None else (4, k)
    p, tp = numbers(4, 1), numbers(4, 2)
    n, tn = (numbers(4 * (k or 1), seed).view(shape) for seed in (3, 4))
    wanted = [
        ((float(p[i]) - s) - (float(tp[i]) - t)) ** 2
        for i in range(4)
        for s, t in zip(n.view(4, -1)[i].tolist(), tn.view(4, -1)[i].tolist(), strict=True)
    ]
    close(losses.margin_mse(p, n, tp, tn), mean(wanted))
    check_gradient(lambda x, y: losses.margin_mse(x, y, tp, tn), p, n)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_kl_divergence(temperature: float) -> None:
    scores, teacher = rows(4, 3, 1), rows(4, 3, 2)

    def softmax(row: list[float]) -> list[float]:
        raised = [math.exp(x / temperature) for x in row]
        return [x / sum(raised) for x in raised]

    wanted = [
        sum(t * math.log(t / s) for s, t in zip(softmax(x), softmax(y), strict=True)) * temperature**2
        for x, y in zip(scores.tolist(), teacher.tolist(), strict=True)
    ]
    close(losses.kl_divergence(scores, teacher, temperature=temperature), mean(wanted))
    check_gradient(lambda x: losses.kl_divergence(x, teacher, temperature=temperature), scores)


# --- lists ------------------------------------------------------------------------------------------------------------


def lists_of(sizes: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = np.random.default_rng(seed)
    n = sum(sizes)
    groups = torch.from_numpy(np.repeat(np.arange(len(sizes)) * 3 + 1, sizes))
    return torch.from_numpy(generator.normal(size=n)), torch.from_numpy(generator.integers(0, 4, n)), groups


def by_list(sizes: list[int], *columns: Tensor) -> list[tuple[list[float], ...]]:
    parts = [[part.tolist() for part in column.split(sizes)] for column in columns]
    return list(zip(*parts, strict=True))


list_sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@quick
@given(list_sizes, st.integers(0, 1000))
def test_list_net(sizes: list[int], seed: int) -> None:
    scores, relevance, groups = lists_of(sizes, seed)
    wanted = []
    for s, y in by_list(sizes, scores, relevance):
        target = [math.exp(v) / sum(map(math.exp, y)) for v in y]
        total = math.log(sum(map(math.exp, s)))
        wanted.append(-sum(t * (v - total) for t, v in zip(target, s, strict=True)))
    close(losses.list_net(scores, relevance, groups), mean(wanted))


@quick
@given(list_sizes, st.integers(0, 1000))
def test_list_mle(sizes: list[int], seed: int) -> None:
    scores, relevance, groups = lists_of(sizes, seed)
    wanted = []
    for s, y in by_list(sizes, scores, relevance):
        ordered = [s[i] for i in sorted(range(len(s)), key=lambda i: -y[i])]
        wanted.append(sum(math.log(sum(map(math.exp, ordered[i:]))) - ordered[i] for i in range(len(ordered))))
    close(losses.list_mle(scores, relevance, groups), mean(wanted))


def brute_lambda(lists: list[tuple[list[float], ...]], scheme: str, k: int | None, sigma: float, mu: float) -> float:
    def inverse(rank: float) -> float:
        return 1 / math.log2(1 + rank)

    total, count = 0.0, 0
    for s, y in lists:
        n = len(s)
        ranks = [1 + sum(other > mine for other in s) for mine in s]
        ideal = sum((2**v - 1) * inverse(r) for r, v in enumerate(sorted(y, reverse=True)[: k or n], start=1))
        gains = [(2**v - 1) / max(ideal, 1e-10) for v in y]
        for i, j in combinations(range(n), repeat=2):
            if k is not None and min(ranks[i], ranks[j]) > k:
                continue
            if scheme != "ndcg_loss1" and not y[i] > y[j]:
                continue
            count += 1
            step = abs(ranks[i] - ranks[j])
            second = abs(inverse(step) - inverse(step + 1)) * abs(gains[i] - gains[j]) if step else 0.0
            rank = abs(inverse(ranks[i]) - inverse(ranks[j])) * abs(gains[i] - gains[j])
            weight = {
                "none": 1.0,
                "ndcg_loss1": gains[i] * inverse(ranks[i]),
                "ndcg_loss2": second,
                "lambda_rank": rank,
                "ndcg_loss2++": mu * second + rank,
            }[scheme]
            total += weight * math.log2(1 + math.exp(-sigma * (s[i] - s[j])))
    return total / max(count, 1)


schemes = st.sampled_from(["none", "ndcg_loss1", "ndcg_loss2", "lambda_rank", "ndcg_loss2++"])


@settings(max_examples=80, deadline=None)
@given(list_sizes, st.integers(0, 1000), schemes, st.sampled_from([None, 1, 2, 9]))
def test_lambda_loss(sizes: list[int], seed: int, scheme: losses.LambdaScheme, k: int | None) -> None:
    scores, relevance, groups = lists_of(sizes, seed)
    wanted = brute_lambda(by_list(sizes, scores, relevance), scheme, k, 1.5, 4.0)
    close(losses.lambda_loss(scores, relevance, groups, scheme=scheme, k=k, sigma=1.5, mu=4.0), wanted)
    if scheme == "none":
        close(losses.rank_net(scores, relevance, groups, k=k, sigma=1.5), wanted)


def test_gradients_of_lists() -> None:
    scores, relevance, groups = lists_of([3, 1, 4], 5)
    for loss in (losses.list_net, losses.list_mle, losses.rank_net):
        check_gradient(lambda s, loss=loss: loss(s, relevance, groups), scores)
    for scheme in ("none", "ndcg_loss1", "ndcg_loss2", "lambda_rank", "ndcg_loss2++"):
        check_gradient(lambda s, x=scheme: losses.lambda_loss(s, relevance, groups, scheme=x, k=2), scores)


# --- Matryoshka -------------------------------------------------------------------------------------------------------


def test_matryoshka_is_the_weighted_sum_over_dimensions() -> None:
    u, v, scores = rows(5, 8, 1), rows(5, 8, 2), numbers(5, 3)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return losses.cosine_mse(a, b, scores)

    wanted = 1.0 * float(loss(u, v)) + 0.5 * float(loss(u[:, :3], v[:, :3]))
    close(losses.matryoshka(loss, [u, v], [8, 3], weights=[1.0, 0.5]), wanted)
    close(losses.matryoshka(loss, [u, v], [8]), float(loss(u, v)))
    check_gradient(lambda a, b: losses.matryoshka(loss, [a, b], [8, 3]), u, v)
