"""One kind of examples -> another: NLI to triplets and pairs, scores to pairs or labels, labels to scores.

The losses that learn from pairs take every positive as true. So only entailments become positives here; neutral and
contradicting sentences never do (feeding all of NLI to such a loss is a well-known mistake), and a sentence is never
its own positive. What is left out is counted in the result's `reading`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from munjang.data.examples import Examples
from munjang.data.kinds import Kind
from munjang.data.normalise import normalise, same_key
from munjang.data.reading import some_of
from munjang.errors import InputError

WithoutNegative = Literal["leave out", "borrow"]
ITSELF = "a sentence paired with itself"
CONFLICT = "entailment and contradiction at once"
SAME_LABELS = ("different", "same")


@dataclass
class _Premise:
    """What is said to follow from a premise, and what to contradict it; keys are normalised texts."""

    text: str
    entailed: dict[str, str] = field(default_factory=dict)
    contradicting: dict[str, str] = field(default_factory=dict)


def nli_triplets(
    examples: Examples, *, both_directions: bool = False, without_negative: WithoutNegative = "leave out", seed: int = 0
) -> Examples:
    """NLI -> (premise, its entailment, its contradiction); neutral pairs are not used.

    Each entailment and each contradiction of a premise occurs at least once. A premise with entailments but without a
    contradiction is left out, or borrows one that contradicts another premise. `both_directions` adds (entailment,
    premise, contradiction), as is usual for Korean models.
    """
    if without_negative not in ("leave out", "borrow"):
        raise InputError(f"without_negative must be 'leave out' or 'borrow', got {without_negative!r}")
    left_out = Counter[str]()
    premises = _premises(examples, left_out)
    every = [text for premise in premises for text in premise.contradicting.values()]
    if not every:
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
        negatives = negatives or [_borrowed(every, premise, generator) for _ in positives]
        for place in range(max(len(positives), len(negatives))):
            positive, negative = positives[place % len(positives)], negatives[place % len(negatives)]
            rows.append((premise.text, positive, negative))
            if both_directions:
                rows.append((positive, premise.text, negative))
    return _made(examples, "pairs", ("anchor", "positive", "negative"), rows, left_out)


def nli_pairs(examples: Examples, *, both_directions: bool = False) -> Examples:
    """NLI -> (premise, its entailment); neutral and contradicting pairs are not used."""
    left_out = Counter[str]()
    rows: list[tuple[str, ...]] = []
    for premise in _premises(examples, left_out):
        left_out["contradiction"] += len(premise.contradicting)
        for positive in premise.entailed.values():
            rows.append((premise.text, positive))
            if both_directions:
                rows.append((positive, premise.text))
    return _made(examples, "pairs", ("anchor", "positive"), rows, left_out)


def labelled_to_pairs(examples: Examples, positive: str | Collection[str]) -> Examples:
    """Labelled pairs -> those that have a positive label, as anchor and positive. For NLI see `nli_pairs`."""
    _check_kind(examples, "labelled")
    wanted = [positive] if isinstance(positive, str) else list(positive)
    unknown = [name for name in wanted if name not in examples.labels]
    if unknown or not wanted:
        raise InputError(
            f"{examples.name}: positive must be of {some_of(examples.labels)}, got {', '.join(unknown) or 'none'}"
        )
    names = [examples.labels[label] for label in np.asarray(examples.targets).tolist()]
    left_out = Counter[str]()
    rows: list[tuple[str, ...]] = []
    for a, b, name in zip(examples.columns["a"], examples.columns["b"], names, strict=True):
        if name not in wanted:
            left_out[f"label {name}"] += 1
        elif normalise(a) == normalise(b):
            left_out[ITSELF] += 1
        else:
            rows.append((a, b))
    if not rows:
        raise InputError(f"{examples.name}: there is not one pair with the label {' or '.join(wanted)}")
    return _made(examples, "pairs", ("anchor", "positive"), rows, left_out)


def scored_to_pairs(examples: Examples, threshold: float) -> Examples:
    """Scored pairs -> those whose score (0..1) is at least the threshold, as anchor and positive."""
    scores = _scores(examples)
    left_out = Counter[str]()
    rows: list[tuple[str, ...]] = []
    for a, b, score in zip(examples.columns["a"], examples.columns["b"], scores.tolist(), strict=True):
        if score < np.float32(threshold):
            left_out[f"score below {threshold:g}"] += 1
        elif normalise(a) == normalise(b):
            left_out[ITSELF] += 1
        else:
            rows.append((a, b))
    if not rows:
        highest = f"the highest is {scores.max():g}" if len(scores) else "there are none"
        raise InputError(f"{examples.name}: no score reaches the threshold {threshold:g}; {highest}")
    return _made(examples, "pairs", ("anchor", "positive"), rows, left_out)


def scored_to_labelled(examples: Examples, threshold: float) -> Examples:
    """Scored pairs -> 'same' (1) where the score (0..1) is at least the threshold, 'different' (0) elsewhere."""
    ids = (_scores(examples) >= np.float32(threshold)).astype(np.int64)
    return replace(examples, kind="labelled", targets=ids, labels=SAME_LABELS)


def labelled_to_scored(examples: Examples, *, positive: str | None = None) -> Examples:
    """Pairs with one of two labels -> the score 1 for the positive label (by default the second), 0 for the other."""
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
    """Premises in the order in which they come, each with what it entails and what contradicts it."""
    names = _nli_names(examples)
    premises: dict[str, _Premise] = {}
    for a, b, label in zip(
        examples.columns["a"], examples.columns["b"], np.asarray(examples.targets).tolist(), strict=True
    ):
        name = names[label]
        if name == "neutral":
            left_out["neutral"] += 1
            continue
        key, found = normalise(b), premises.setdefault(same_key(a), _Premise(a))
        if key == normalise(a):
            left_out[ITSELF if name == "entailment" else "a sentence that contradicts itself"] += 1
            continue
        where = found.entailed if name == "entailment" else found.contradicting
        if key in where:
            left_out["the same row again"] += 1
        where.setdefault(key, b)
    for premise in premises.values():
        for key in premise.entailed.keys() & premise.contradicting.keys():
            del premise.entailed[key], premise.contradicting[key]
            left_out[CONFLICT] += 2
    if not any(premise.entailed for premise in premises.values()):
        raise InputError(f"{examples.name}: there is not one entailment, and only entailments are positives")
    return list(premises.values())


def _nli_names(examples: Examples) -> Mapping[int, str]:
    _check_kind(examples, "labelled")
    names = {place: label.strip().casefold() for place, label in enumerate(examples.labels)}
    if not {"entailment", "contradiction"} <= set(names.values()):
        raise InputError(
            f"{examples.name}: expected the labels entailment, neutral, contradiction; got {some_of(examples.labels)}"
        )
    return names


def _borrowed(every: Sequence[str], premise: _Premise, generator: np.random.Generator) -> str:
    """A contradiction of another premise, which is neither this premise nor something that follows from it."""
    own = {normalise(premise.text), *premise.entailed}
    for _ in range(100):
        found = every[int(generator.integers(len(every)))]
        if normalise(found) not in own:
            return found
    raise InputError(f"no negative can be borrowed for {premise.text[:60]!r}: all contradictions are entailed by it")


def _made(
    examples: Examples, kind: Kind, roles: Sequence[str], rows: Sequence[Sequence[str]], left_out: Counter[str]
) -> Examples:
    columns = {role: [row[place] for row in rows] for place, role in enumerate(roles)}
    counts = {reason: count for reason, count in left_out.items() if count}
    reading = examples.reading.refusing(counts, f"{len(rows):,} of {' / '.join(roles)} made of them")
    return Examples(examples.name, kind, columns, reading=reading)


def _scores(examples: Examples) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    _check_kind(examples, "scored")
    return np.asarray(examples.targets, dtype=np.float32)


def _check_kind(examples: Examples, kind: Kind) -> None:
    if examples.kind != kind:
        raise InputError(f"{examples.name}: expected examples of kind {kind!r}, got {examples.kind!r}")
