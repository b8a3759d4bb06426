"""One kind of examples -> another: NLI to triplets and pairs, scores to pairs or labels, labels to scores.

Losses that learn from pairs take every positive as true, so only entailments become positives here: feeding all of NLI
to such a loss is a well-known mistake. A sentence is never its own positive. What is left out is counted in `reading`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from munjang.data.columns import Kind
from munjang.data.examples import Examples
from munjang.data.normalise import normalise, same_key
from munjang.data.reading import some_of
from munjang.errors import InputError

WithoutNegative = Literal["leave out", "borrow"]
_ITSELF = "a sentence paired with itself"


@dataclass
class _Premise:
    """The hypotheses that a premise entails and contradicts, by normalised text."""

    text: str
    entailed: dict[str, str] = field(default_factory=dict)
    contradicting: dict[str, str] = field(default_factory=dict)


def nli_triplets(
    examples: Examples, *, both_directions: bool = False, without_negative: WithoutNegative = "leave out", seed: int = 0
) -> Examples:
    """Make (premise, its entailment, its contradiction) of NLI; neutral pairs are not used.

    Each entailment and each contradiction of a premise occurs at least once.

    Args:
        both_directions: add (entailment, premise, contradiction), as is usual for Korean models.
        without_negative: a premise without a contradiction is left out, or borrows one of another premise.
    """
    if without_negative not in ("leave out", "borrow"):
        raise InputError(f"without_negative must be 'leave out' or 'borrow', got {without_negative!r}")
    left_out = Counter[str]()
    premises = _premises(examples, left_out)
    contradictions = [text for premise in premises for text in premise.contradicting.values()]
    if not contradictions:
        raise InputError(
            f"{examples.name}: there is not one contradiction to be a negative; munjang.data.nli_pairs "
            "takes the entailments alone, for the recipe contrastive"
        )
    generator = np.random.default_rng(seed)
    rows: list[tuple[str, str, str]] = []
    for premise in premises:
        positives, negatives = list(premise.entailed.values()), list(premise.contradicting.values())
        if not positives:
            left_out["contradiction without an entailment"] += len(negatives)
            continue
        if not negatives and without_negative == "leave out":
            left_out["entailment without a contradiction"] += len(positives)
            continue
        negatives = negatives or [_borrowed(contradictions, premise, generator) for _ in positives]
        for place in range(max(len(positives), len(negatives))):
            positive, negative = positives[place % len(positives)], negatives[place % len(negatives)]
            rows.append((premise.text, positive, negative))
            if both_directions:
                rows.append((positive, premise.text, negative))
    return _with_rows(examples, ("anchor", "positive", "negative"), rows, left_out)


def nli_pairs(examples: Examples, *, both_directions: bool = False) -> Examples:
    """Make (premise, its entailment) of NLI; neutral and contradicting pairs are not used."""
    left_out = Counter[str]()
    rows: list[tuple[str, str]] = []
    for premise in _premises(examples, left_out):
        left_out["contradiction"] += len(premise.contradicting)
        for positive in premise.entailed.values():
            rows.append((premise.text, positive))
            if both_directions:
                rows.append((positive, premise.text))
    return _with_rows(examples, ("anchor", "positive"), rows, left_out)


def labelled_to_pairs(examples: Examples, positive: str | Collection[str]) -> Examples:
    """Select the pairs with a positive label, as anchor and positive. For NLI see `nli_pairs`."""
    _check_kind(examples, "labelled")
    wanted = [positive] if isinstance(positive, str) else list(positive)
    unknown = [name for name in wanted if name not in examples.labels]
    if unknown or not wanted:
        raise InputError(
            f"{examples.name}: positive must be of {some_of(examples.labels)}, got {', '.join(unknown) or 'none'}"
        )
    reasons = ["" if name in wanted else f"label {name}" for name in examples.labels]
    pairs = _positives(examples, lambda label: reasons[int(label)])
    if not len(pairs):
        raise InputError(f"{examples.name}: there is not one pair with the label {' or '.join(wanted)}")
    return pairs


def scored_to_pairs(examples: Examples, threshold: float) -> Examples:
    """Select the pairs whose score (0..1) is at least the threshold, as anchor and positive."""
    _check_kind(examples, "scored")
    reason = f"score below {threshold:g}"
    pairs = _positives(examples, lambda score: reason if score < np.float32(threshold) else "")
    if not len(pairs):
        scores = np.asarray(examples.targets)
        highest = f"the highest is {scores.max():g}" if len(scores) else "there are none"
        raise InputError(f"{examples.name}: no score reaches the threshold {threshold:g}; {highest}")
    return pairs


def scored_to_labelled(examples: Examples, threshold: float) -> Examples:
    """Label scored pairs: 'same' (1) where the score (0..1) is at least the threshold, else 'different' (0)."""
    _check_kind(examples, "scored")
    ids = (np.asarray(examples.targets) >= np.float32(threshold)).astype(np.int64)
    return replace(examples, kind="labelled", targets=ids, labels=("different", "same"))


def labelled_to_scored(examples: Examples, *, positive: str | None = None) -> Examples:
    """Score pairs with one of two labels: 1 for the positive label (default: the second), 0 for the other."""
    _check_kind(examples, "labelled")
    if len(examples.labels) != 2:
        raise InputError(
            f"{examples.name}: expected two labels, got {len(examples.labels):,} ({some_of(examples.labels)}). "
            "Is this the column of the labels? Else take the rows of two labels first"
        )
    positive = examples.labels[1] if positive is None else positive
    if positive not in examples.labels:
        raise InputError(f"{examples.name}: positive must be one of {', '.join(examples.labels)}, got {positive!r}")
    scores = (np.asarray(examples.targets) == examples.labels.index(positive)).astype(np.float32)
    return replace(examples, kind="scored", targets=scores, labels=())


def _premises(examples: Examples, left_out: Counter[str]) -> list[_Premise]:
    """Premises in the order of their first rows, with their entailments and contradictions."""
    _check_kind(examples, "labelled")
    names = [label.strip().casefold() for label in examples.labels]
    if not {"entailment", "contradiction"} <= set(names):
        raise InputError(
            f"{examples.name}: expected the labels entailment, neutral, contradiction; got {some_of(examples.labels)}"
        )
    premises: dict[str, _Premise] = {}
    columns = examples.columns
    for a, b, label in zip(columns["a"], columns["b"], np.asarray(examples.targets).tolist(), strict=True):
        name = names[label]
        if name == "neutral":
            left_out["neutral"] += 1
            continue
        key, premise = normalise(b), premises.setdefault(same_key(a), _Premise(a))
        if key == normalise(a):
            left_out[_ITSELF if name == "entailment" else "a sentence that contradicts itself"] += 1
            continue
        hypotheses = premise.entailed if name == "entailment" else premise.contradicting
        if key in hypotheses:
            left_out["the same row again"] += 1
        hypotheses.setdefault(key, b)
    for premise in premises.values():
        for key in premise.entailed.keys() & premise.contradicting.keys():
            del premise.entailed[key], premise.contradicting[key]
            left_out["entailment and contradiction at once"] += 2
    if not any(premise.entailed for premise in premises.values()):
        raise InputError(f"{examples.name}: there is not one entailment, and only entailments are positives")
    return list(premises.values())


def _borrowed(contradictions: Sequence[str], premise: _Premise, generator: np.random.Generator) -> str:
    """A contradiction of another premise that is neither this premise nor entailed by it."""
    own = {normalise(premise.text), *premise.entailed}
    for _ in range(100):
        text = contradictions[int(generator.integers(len(contradictions)))]
        if normalise(text) not in own:
            return text
    raise InputError(f"no negative can be borrowed for {premise.text[:60]!r}: all contradictions are entailed by it")


def _positives(examples: Examples, why_not: Callable[[float], str]) -> Examples:
    """The pairs whose target has no reason against it, less those of a sentence with itself."""
    left_out = Counter[str]()
    rows: list[tuple[str, str]] = []
    columns = examples.columns
    for a, b, target in zip(columns["a"], columns["b"], np.asarray(examples.targets).tolist(), strict=True):
        reason = why_not(target) or (_ITSELF if normalise(a) == normalise(b) else "")
        if reason:
            left_out[reason] += 1
        else:
            rows.append((a, b))
    return _with_rows(examples, ("anchor", "positive"), rows, left_out)


def _with_rows(
    examples: Examples, roles: Sequence[str], rows: Sequence[Sequence[str]], left_out: Counter[str]
) -> Examples:
    columns = {role: [row[place] for row in rows] for place, role in enumerate(roles)}
    counts = {reason: count for reason, count in left_out.items() if count}
    reading = examples.reading.refusing(counts, f"{len(rows):,} of {' / '.join(roles)} made of them")
    return Examples(examples.name, "pairs", columns, reading=reading)


def _check_kind(examples: Examples, kind: Kind) -> None:
    if examples.kind != kind:
        raise InputError(f"{examples.name}: expected examples of kind {kind!r}, got {examples.kind!r}")
