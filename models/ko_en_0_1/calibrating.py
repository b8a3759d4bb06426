"""A trained model and data held out of its training -> the thresholds that are saved with it.

paraphrase  the cosine from which two texts mean the same: the best mean F1 of several sets, Korean and English
cluster     the cosine from which a text belongs to a community's centre: the best F1 over pairs of ParaKQC's groups
answer      the reranker's probability of the first hit from which there is an answer

ParaKQC serves twice, so it is cut once and for all: its first 300 groups calibrate, the other 700 are measured on.
Thresholds are looked for in steps of 0.001: finer differences are noise. `measured` holds sets, rows and scores, each
set's own best threshold beside the common one, and no date: the same model and data give the same file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch

from models.ko_en_0_1.communities import communities, pair_scores, similarity_matrix
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, load_dataset
from munjang.errors import InputError
from munjang.evaluation.encoding import encode, gpu_of, predict_one, remembering
from munjang.evaluation.metrics import best_f1, v_measures
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.mining import mine
from munjang.evaluation.sets import check, pairs_of
from munjang.nn.calibration import expected_calibration_error, log_loss, sigmoid
from munjang.types import DTypeName, Threshold
from munjang.vectors import normalize, pairwise_similarity

CALIBRATION_GROUPS = 300  # of ParaKQC's 1,000
QUESTIONS_HELD = 0.2  # of question-pair train
_STEP = 0.001
_CLUSTER_STEP = 0.01  # every step groups 3,000 texts anew
_SAME_SCORE = 0.8  # 4 of 5: 'mostly equivalent' on the scale of STS
_NEIGHBOURS, _MOST_PAIRS = 100, 500_000  # as mining is evaluated
_PARAPHRASE = "two texts mean the same where the cosine of their vectors is at least this"
_CLUSTER = "a text belongs to a community where the cosine with its centre is at least this"
_ANSWER = "there is an answer where the reranker gives the first hit at least this probability"


@dataclass(frozen=True)
class JudgedPairs:
    """Pairs of one set with their cosines, and whether they mean the same."""

    name: str
    language: str
    same: Array  # bool [n]
    scores: Array  # float [n]
    positives: int  # in all; more than `same` has where a search did not find every pair
    rows: int  # texts or pairs that they come from


@dataclass(frozen=True)
class Chosen:
    """One threshold for several sets, and what it gives on each."""

    value: float
    f1: Mapping[str, float]  # at the common threshold
    precision: Mapping[str, float]
    recall: Mapping[str, float]
    own_f1: Mapping[str, float]  # at each set's own best
    own_threshold: Mapping[str, float]


def parakqc_parts(examples: Examples) -> tuple[Examples, Examples]:
    """ParaKQC cut by whole groups: (the first 300, which calibrate; the others, which are measured on)."""
    check(examples, "classified", least=2)
    assert examples.targets is not None
    order = {label: number for number, label in enumerate(sorted(examples.labels))}
    numbers = np.array([order[examples.labels[int(target)]] for target in examples.targets])
    count = min(CALIBRATION_GROUPS, round(0.3 * len(order)))  # a small file of the same layout is cut alike
    if not 0 < count < len(order):
        raise InputError(f"{examples.name}: expected at least 4 groups to cut into two parts, got {len(order)}")
    inside = numbers < count
    return (
        examples.take(np.flatnonzero(inside), name=f"{examples.name}, first {count} groups"),
        examples.take(np.flatnonzero(~inside), name=f"{examples.name}, other {len(order) - count} groups"),
    )


def common_threshold(sets: Sequence[JudgedPairs]) -> Chosen:
    """The threshold with the best mean F1 over the sets, every set counting alike; of equals the highest."""
    if not sets:
        raise InputError("expected at least one set of judged pairs, got none")
    for one in sets:
        if not one.positives or not len(one.scores):
            raise InputError(f"{one.name}: expected pairs, some of them the same, got {len(one.scores)} pairs")
    low = min(float(one.scores.min()) for one in sets)
    high = max(float(one.scores.max()) for one in sets)
    steps = np.round(np.arange(np.floor(high / _STEP), np.floor(low / _STEP) - 1, -1) * _STEP, 3)  # falling
    curves = np.stack([_f1_curve(one, steps) for one in sets])  # [sets, steps]
    value = float(steps[int(np.argmax(curves.mean(axis=0)))])
    at = {one.name: _at(one, value) for one in sets}
    own = {one.name: best_f1(one.same, one.scores, positives=one.positives) for one in sets}
    return Chosen(
        value,
        {name: found[2] for name, found in at.items()},
        {name: found[0] for name, found in at.items()},
        {name: found[1] for name, found in at.items()},
        {name: found.value for name, found in own.items()},
        {name: found.threshold for name, found in own.items()},
    )


def _f1_curve(one: JudgedPairs, steps: Array) -> Array:  # [steps] -> [steps]
    order = np.argsort(-one.scores, kind="stable")
    found = np.concatenate(([0.0], np.cumsum(one.same[order])))
    taken = np.searchsorted(-one.scores[order], -steps, side="right")  # pairs at or above every step
    curve: Array = 2 * found[taken] / (taken + one.positives)
    return curve


def _at(one: JudgedPairs, threshold: float) -> tuple[float, float, float]:  # precision, recall, F1
    taken = one.scores >= threshold
    right = int(one.same[taken].sum())
    return (
        right / int(taken.sum()) if taken.any() else 0.0,
        right / one.positives,
        2 * right / (int(taken.sum()) + one.positives),
    )


def paraphrase_threshold(sets: Sequence[JudgedPairs]) -> Threshold:
    """One threshold for all sets, with what it gives on each of them."""
    chosen = common_threshold(sets)
    measured = [
        {
            "set": one.name,
            "language": one.language,
            "rows": one.rows,
            "pairs to find": one.positives,
            "f1": _short(chosen.f1[one.name]),
            "precision": _short(chosen.precision[one.name]),
            "recall": _short(chosen.recall[one.name]),
            "best f1": _short(chosen.own_f1[one.name]),
            "best threshold": _short(chosen.own_threshold[one.name]),
        }
        for one in sets
    ]
    mean = _short(float(np.mean(list(chosen.f1.values()))))
    return Threshold(chosen.value, "paraphrase", _PARAPHRASE, {"chosen by": "mean f1", "f1": mean, "sets": measured})


def cluster_threshold(vectors: Array, groups: Array, *, name: str = "") -> Threshold:
    """The threshold of communities with the best F1 over pairs of rows; of equals the highest. vectors: [n, d]."""
    cosines = similarity_matrix(normalize(vectors))
    steps = np.round(np.arange(1.0, 0.1, -_CLUSTER_STEP), 2)
    found = [communities(cosines, float(step)) for step in steps]
    scores = [pair_scores(groups, one) for one in found]
    best = int(np.argmax([one.f1 for one in scores]))
    whole = v_measures(groups, found[best])
    sizes = np.bincount(found[best])
    measured = {
        "chosen by": "f1 over pairs of texts",
        "sets": [
            {
                "set": name,
                "language": "ko",
                "rows": len(groups),
                "groups": len(np.unique(groups)),
                "f1": _short(scores[best].f1),
                "precision": _short(scores[best].precision),
                "recall": _short(scores[best].recall),
                "v-measure": _short(whole.v_measure),
                "communities": int((sizes > 1).sum()),
            }
        ],
    }
    return Threshold(float(steps[best]), "cluster", _CLUSTER, measured)


def question_parts(examples: Examples) -> tuple[Examples, Examples]:
    """Question-pair train cut by rows, always alike: (what models learn from, what calibrates)."""
    rest, held = examples.split(QUESTIONS_HELD, seed=1)
    return rest, replace(held, name=f"{examples.name}, held out")


def calibrate_bi(
    model: BiEncoder, data: str | Path, *, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Threshold]:
    """The bi-encoder's thresholds, from a held-out part of question-pair, KorSTS dev, STSb dev, 300 groups of ParaKQC.

    data: the folder of the public sets. tell: hears a line about each threshold.
    """
    _, questions = question_parts(load_dataset("question-pair", "train", data))
    scored = [(load_dataset(name, "dev", data), language) for name, language in (("korsts", "ko"), ("stsb", "en"))]
    groups, _ = parakqc_parts(load_dataset("parakqc", "test", data))
    assert questions.targets is not None
    assert groups.targets is not None
    with remembering(model):
        sets = [
            _judged(model, questions, questions.targets == questions.labels.index("same"), "ko"),
            _mined(model, groups, "ko"),
            *(_judged(model, one, np.asarray(one.targets) >= _SAME_SCORE, language) for one, language in scored),
        ]
        vectors = encode(model, groups.columns["text"]).rows
    found = (paraphrase_threshold(sets), cluster_threshold(vectors, groups.targets, name=groups.name))
    for one in found:
        tell(f"{one.task}: {one.value:.3f}, {one.measured}")
    return {one.task: one for one in found}


def _judged(model: BiEncoder, examples: Examples, same: Array, language: str) -> JudgedPairs:
    a, b = encode(model, examples.columns["a"]), encode(model, examples.columns["b"])
    scores = pairwise_similarity(a.rows, b.rows)
    return JudgedPairs(examples.name, language, same, scores, int(same.sum()), len(examples))


def _mined(model: BiEncoder, examples: Examples, language: str) -> JudgedPairs:
    """Pairs as mining finds them among all texts; what it does not find counts as missed."""
    assert examples.targets is not None
    vectors = encode(model, examples.columns["text"]).rows
    scores, left, right = mine(vectors, _NEIGHBOURS, _MOST_PAIRS, device=gpu_of(model))
    sizes = np.bincount(examples.targets)
    total = int((sizes * (sizes - 1) // 2).sum())
    same = examples.targets[left] == examples.targets[right]
    return JudgedPairs(examples.name, language, same, scores, total, len(examples))


def calibrate_reranker(model: CrossEncoder, examples: Examples, *, seed: int = 0) -> CrossEncoder:
    """A copy whose scores are probabilities of relevance, with the threshold 'answer'; the body is shared.

    examples: ranked (query, document, relevance), held out of training. One half of the queries fits, the other half
    measures. A score is the probability of relevance where as many documents are relevant as not. For 'answer' every
    query is asked twice: with its relevant documents, and without them, when the right reply is that there is none.
    """
    check(examples, "ranked", least=4)
    fitting, judging = examples.split(0.5, seed=seed)
    even = _even(fitting, seed)
    pairs, relevant = pairs_of(even, "query", "document"), _relevant(even)
    calibrated = CrossEncoder(
        replace(model.parts, head=copy.deepcopy(model.parts.head)), device=model.device, dtype=_dtype_name(model)
    )
    platt = calibrated.calibrate(pairs, relevant.astype(int))
    answer = _answer(calibrated, fitting)
    judged = _even(judging, seed)
    truth = _relevant(judged)
    probabilities = predict_one(calibrated, pairs_of(judged, "query", "document"), name=judging.name).rows
    before = predict_one(model, pairs_of(judged, "query", "document"), name=judging.name).rows
    measured = {
        "chosen by": "questions with an answer that get one and questions without that are refused, both alike",
        "sets": [
            {
                "set": examples.name,
                "rows": len(judging),
                "queries": len(np.unique(_groups(judging))),
                "relevant share": _short(float(_relevant(judging).mean())),
                "calibration error": _short(expected_calibration_error(probabilities, truth)),
                "calibration error before": _short(expected_calibration_error(np.clip(before, 0, 1), truth)),
                "log loss": _short(log_loss(_logit(probabilities), truth)),
                **{key: _short(value) for key, value in _judge_answers(calibrated, judging, answer).items()},
            }
        ],
        "platt": {"scale": _short(platt.scale), "shift": _short(platt.shift), "rows": len(even)},
    }
    threshold = Threshold(answer, "answer", _ANSWER, measured)
    return calibrated.with_thresholds({"answer": threshold})


def uncalibrated(model: CrossEncoder) -> CrossEncoder:
    """A copy with the scores of before `calibrate_reranker`, to train it further; without thresholds.

    Of a model whose thresholds do not tell how it was calibrated: the scores that it has.
    """
    measured = model.thresholds["answer"].measured if "answer" in model.thresholds else {}
    platt = measured.get("platt")
    head = copy.deepcopy(model.parts.head)
    if isinstance(platt, Mapping):
        with torch.no_grad():
            head.out.bias.sub_(float(platt["shift"])).div_(float(platt["scale"]))
            head.out.weight.div_(float(platt["scale"]))
    return CrossEncoder(replace(model.parts, head=head, thresholds={}), device=model.device, dtype=_dtype_name(model))


def _even(examples: Examples, seed: int) -> Examples:
    """As many pairs that are relevant as such that are not, of every query: else how many wrong documents a list has
    would decide what a probability means."""
    generator = np.random.default_rng(seed)
    relevant, kept = _relevant(examples), []
    for rows in np.split(np.arange(len(examples)), np.unique(_groups(examples), return_index=True)[1][1:]):
        good, wrong = rows[relevant[rows]], rows[~relevant[rows]]
        count = min(len(good), len(wrong))
        kept += [generator.permutation(good)[:count], generator.permutation(wrong)[:count]]
    chosen = np.sort(np.concatenate(kept))
    return examples.take(chosen)


def answer_threshold(top: Array, answerable: Array) -> float:
    """The probability with the best balance: of questions with an answer found, of those without one refused.

    top: [n], the first hits' probabilities; answerable: bool [n]. How many questions of either kind there are does not
    matter. Between two first hits the threshold lies half-way, by their logits.
    """
    if not len(top) or answerable.min() == answerable.max():
        raise InputError(f"expected questions with an answer and some without, got {len(top)} of one kind")
    logits = _logit(top)
    edges = np.unique(logits)
    steps = (edges[1:] + edges[:-1]) / 2
    found = np.mean(logits[answerable][:, None] >= steps, axis=0) if len(steps) else np.zeros(0)
    refused = np.mean(logits[~answerable][:, None] < steps, axis=0) if len(steps) else np.zeros(0)
    balance = (found + refused) / 2
    if not len(steps) or balance.max() <= 0.5:
        raise InputError(
            "first hits of questions without an answer score as high as of those with one: the reranker does not tell "
            "them apart, so there is no threshold to find; train it further, or look at the data"
        )
    best = np.flatnonzero(balance == balance.max())
    return round(float(sigmoid(steps[best[len(best) // 2], None])[0]), 4)


def first_hits(scores: Array, relevant: Array, groups: Array) -> tuple[Array, Array, Array]:
    """Of every query the first hit, and the first hit without the relevant documents: scores, right (0/1), answerable.

    All inputs are [n], the rows of a query together. A query without relevant documents is asked once.
    """
    top, right, answerable = [], [], []
    starts = np.unique(groups, return_index=True)[1]
    for rows in np.split(np.arange(len(groups)), starts[1:]):
        good, values = relevant[rows], scores[rows]
        best = values[~good].max() if not good.all() else -np.inf
        if good.any():
            top.append(values.max())
            right.append(bool(values[good].max() > best))  # of equals the wrong one: lists may have the right one first
            answerable.append(True)
        if not good.all():
            top.append(best)
            right.append(False)
            answerable.append(False)
    return np.array(top, np.float64), np.array(right), np.array(answerable)


def _answer(model: CrossEncoder, examples: Examples) -> float:
    top, _, answerable = _hits(model, examples)
    return answer_threshold(top, answerable)


def _judge_answers(model: CrossEncoder, examples: Examples, threshold: float) -> dict[str, float]:
    top, right, answerable = _hits(model, examples)
    given = top >= threshold
    return {
        "precision": float(right[given].mean()) if given.any() else 0.0,  # of the answers given
        "recall": float((right & given)[answerable].mean()) if answerable.any() else 0.0,  # of the questions with one
        "refused without an answer": float((~given)[~answerable].mean()) if (~answerable).any() else 0.0,
    }


def _hits(model: CrossEncoder, examples: Examples) -> tuple[Array, Array, Array]:
    scores = predict_one(model, pairs_of(examples, "query", "document"), name=examples.name).rows
    return first_hits(scores, _relevant(examples), _groups(examples))


def _relevant(examples: Examples) -> Array:  # bool [n]
    assert examples.targets is not None
    relevant: Array = examples.targets > 0
    return relevant


def _groups(examples: Examples) -> Array:
    if examples.groups is None:
        raise InputError(f"{examples.name}: the rows have no groups, so it is unknown which query each belongs to")
    return examples.groups


def _logit(probabilities: Array) -> Array:
    inside = np.clip(probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
    logits: Array = np.log(inside) - np.log1p(-inside)
    return logits


def _dtype_name(model: CrossEncoder) -> DTypeName:
    return cast("DTypeName", str(model.dtype).removeprefix("torch."))


def _short(value: float) -> float:
    return round(float(value), 4)
