"""The recipes as library calls: a model and data in, a trained and measured model out.

    sts(model, train, dev, test, options=RecipeOptions(folder="runs/sts"))

model: a model that is loaded, a folder or a hub id. A loaded model is trained in place (a cross-encoder that needs
another head, and a bi-encoder that becomes a cross-encoder, are copied). Sets: Examples, paths, names of public sets,
or lists of these; several training sets are trained together. The development set chooses the model, the test set
reports.
"""

from __future__ import annotations

from munjang.recipes.options import GivenModel, GivenSets, RecipeOptions, RecipeResult
from munjang.recipes.running import prepare, run


def nli(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A bi-encoder from NLI: (u, v, |u-v|) and a softmax, or ranking with contradictions as hard negatives.

    objective: 'softmax' (the paper) or 'ranking' (MNRL over premise, entailment, contradiction, both directions).
    """
    return run(model, prepare("nli", train, dev, test, options=options))


def sts(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A bi-encoder from scored pairs. objective: 'cosine' (the paper's squared error), 'cosent' or 'angle'."""
    return run(model, prepare("sts", train, dev, test, options=options))


def triplet(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A bi-encoder from (anchor, positive, negative). objective: 'euclidean' (the paper), 'cosine' or 'ranking'."""
    return run(model, prepare("triplet", train, dev, test, options=options))


def contrastive(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A bi-encoder from pairs that belong together, or that are marked same and different.

    objective: 'ranking' (pairs, with the rest of the batch as negatives), 'contrastive' or 'online' (marked pairs).
    """
    return run(model, prepare("contrastive", train, dev, test, options=options))


def cross_nli(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A cross-encoder that labels pairs: cross-entropy over the labels of the data, however many there are."""
    return run(model, prepare("cross_nli", train, dev, test, options=options))


def cross_sts(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A cross-encoder that scores pairs 0..1. objective: 'bce', 'mse' or 'order' (as people ranked the pairs)."""
    return run(model, prepare("cross_sts", train, dev, test, options=options))


def cross_rank(
    model: GivenModel,
    train: GivenSets,
    dev: GivenSets = None,
    test: GivenSets = None,
    *,
    options: RecipeOptions | None = None,
) -> RecipeResult:
    """A reranker: queries with documents. objective: 'bce', 'ranking' (pairs with negatives), 'lambda', 'list_net' or
    'rank_net' (whole lists)."""
    return run(model, prepare("cross_rank", train, dev, test, options=options))
