"""A student's vectors or scores and its teacher's -> loss: distillation."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.shapes import column, exact, matrix, positive


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
