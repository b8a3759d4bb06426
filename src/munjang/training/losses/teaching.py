"""A student's vectors or scores and its teacher's -> loss: distillation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.geometry import cosine_matrix, cosines
from munjang.training.losses.shapes import column, exact, matrices, matrix, positive


def mse(vectors: Tensor, targets: Tensor) -> Tensor:
    """Mean over rows and dimensions of (student - teacher)^2, both `[n, d]`, or `[n]` for scores.

    Reimers and Gurevych 2020, 'Making monolingual sentence embeddings multilingual', section 2.
    """
    if vectors.shape != targets.shape:
        raise InputError(
            f"student and teacher must have one shape, got {tuple(vectors.shape)} and {tuple(targets.shape)}:"
            " where only the dimension differs, a Dense head can bring the student to the teacher's"
        )
    if vectors.ndim not in (1, 2) or not vectors.numel():
        raise InputError(f"vectors must be rows [n, d] or numbers [n], got shape {tuple(vectors.shape)}")
    vectors, targets = exact("vectors", vectors), exact("targets", targets)
    return functional.mse_loss(vectors, targets.detach().to(vectors.dtype))


def cosine_distance(vectors: Tensor, targets: Tensor) -> Tensor:
    """Mean over rows of 1 - cos(student, teacher), both `[n, d]`: the direction is learned, the length is not.

    Sanh et al. 2019 (DistilBERT), section 3, of hidden states there.
    """
    vectors, targets = matrices(vectors=vectors, targets=targets)
    return (1 - cosines(vectors, targets.detach().to(vectors.dtype))).mean()


def teacher_contrastive(vectors: Tensor, targets: Tensor, *, scale: float = 20.0) -> Tensor:
    """InfoNCE: each student vector should be nearer to its own teacher vector than to those of all other rows.

    Tian, Krishnan and Isola 2020 (contrastive representation distillation), with the batch in place of a memory: mean
    over rows of -log(exp(scale cos(s_i, t_i)) / sum over j of exp(scale cos(s_i, t_j))). Both `[n, d]`. A text that
    stands in the batch twice is a negative of itself.
    """
    positive("scale", scale)
    vectors, targets = matrices(vectors=vectors, targets=targets)
    scores = cosine_matrix(vectors, targets.detach().to(vectors.dtype)) * scale  # [n, n]
    return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def relational(vectors: Tensor, targets: Tensor, *, temperature: float = 0.05, others: Tensor | None = None) -> Tensor:
    """Mean over rows i of KL(softmax(cos(t_i, t_j) / T) || softmax(cos(s_i, s_j) / T)) over the other rows j.

    Passalis and Tefas 2018 (probabilistic knowledge transfer), with cosines and a temperature: which rows are near to
    which is learned, not where they lie, so that student `[n, d]` and teacher `[n, e]` may have different widths. A row
    is not compared with itself; a batch of one row teaches nothing (0).

    others: `[n, d]`, the same rows seen once more (translations): the student's cosines are then cos(s_i, o_j).
    """
    positive("temperature", temperature)
    student, teacher = _relations(vectors, targets, others)
    if student.shape[1] == 0:
        return vectors.sum() * 0.0
    found, wanted = ((each / temperature).log_softmax(dim=1) for each in (student, teacher))
    return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


def _relations(vectors: Tensor, targets: Tensor, others: Tensor | None) -> tuple[Tensor, Tensor]:
    """Cosines of every row with all rows but itself, of student and teacher: `[n, n - 1]` both."""
    if others is None:
        vectors = others = matrix("vectors", vectors)
    else:
        vectors, others = matrices(vectors=vectors, others=others)
    targets = matrix("targets", targets).detach().to(vectors.dtype)
    if len(targets) != len(vectors):
        raise InputError(
            f"student and teacher must have a vector for every row each, got {len(vectors)} and {len(targets)} rows"
        )
    return _without_diagonal(cosine_matrix(vectors, others)), _without_diagonal(cosine_matrix(targets, targets))


def _without_diagonal(square: Tensor) -> Tensor:  # [n, n] -> [n, n - 1]
    """What stands beside the diagonal, by shapes alone: after the first element, every (n + 1)th is left out."""
    n = len(square)
    return square.flatten()[1:].view(n - 1, n + 1)[:, :n].reshape(n, n - 1)


def margin_mse(
    positive_scores: Tensor, negative_scores: Tensor, teacher_positive: Tensor, teacher_negative: Tensor
) -> Tensor:
    """Mean of ((s(q, p) - s(q, n)) - (t(q, p) - t(q, n)))^2: the student learns the teacher's margins.

    Hofstaetter et al. 2020 (Margin-MSE). Positives `[n]`; negatives `[n]`, or `[n, k]` for k negatives each.
    """
    rows = len(positive_scores) if positive_scores.ndim else 0
    student = column("positive_scores", positive_scores, rows)
    teacher = column("teacher_positive", teacher_positive, rows).to(student.dtype)
    shape = tuple(negative_scores.shape)
    if shape != tuple(teacher_negative.shape) or len(shape) not in (1, 2) or shape[0] != rows or 0 in shape:
        raise InputError(
            f"negative_scores and teacher_negative must both be [{rows}] or [{rows}, k], got shapes {shape} and"
            f" {tuple(teacher_negative.shape)}"
        )
    margins = student[:, None] - exact("negative_scores", negative_scores).reshape(rows, -1)
    wanted = teacher[:, None] - exact("teacher_negative", teacher_negative).reshape(rows, -1)
    return functional.mse_loss(margins, wanted.detach().to(margins.dtype))


def kl_divergence(scores: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Mean over rows of T^2 KL(softmax(teacher / T) || softmax(scores / T)), both `[n, k]` with k of 2 or more.

    Hinton, Vinyals and Dean 2015, section 2: T^2 keeps the gradient's size when T changes. k are the candidates of a
    query, or classes.
    """
    positive("temperature", temperature)
    scores = matrix("scores", scores)
    teacher = matrix("teacher", teacher).to(scores.dtype).detach()
    if scores.shape != teacher.shape or scores.shape[1] < 2:
        raise InputError(
            f"scores and teacher must have one shape [n, k] with k of 2 or more, got {tuple(scores.shape)} and"
            f" {tuple(teacher.shape)}"
        )
    student, target = ((each / temperature).log_softmax(dim=1) for each in (scores, teacher))
    return functional.kl_div(student, target, reduction="batchmean", log_target=True) * temperature**2
