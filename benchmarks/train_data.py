"""What both sides train on and are measured on: NLI as labelled pairs and as triplets, STS to measure.

Enters: a folder of public data sets, or nothing. Leaves: the same rows for both sides, as many as fill whole batches,
so that every step of either side has the same number of rows. Without a folder the rows are written here by grammars:
they show that the benchmark runs, and nothing about quality.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from benchmarks import english
from munjang.data import Examples, nli_triplets
from research import read_material

OBJECTIVES = ("softmax", "mnrl")
_LABELS = ("entailment", "neutral", "contradiction")
_MADE = 96  # premises of the corpus that is written here


@dataclass(frozen=True)
class Corpus:
    """Rows to train on by objective, and sets to measure on."""

    name: str
    train: dict[str, Examples]  # objective -> labelled pairs, or triplets
    measured: dict[str, Examples]  # name -> scored pairs

    def whole_batches(self, batch_size: int) -> Corpus:
        """Without the rows that would make a smaller last batch."""
        train = {}
        for objective, examples in self.train.items():
            rows = len(examples) // batch_size * batch_size
            if not rows:
                raise SystemExit(f"{examples.name} has {len(examples)} rows, fewer than one batch of {batch_size}")
            # Sets that are joined must not lose the end of the last one only.
            chosen = np.sort(np.random.default_rng(0).permutation(len(examples))[:rows])
            train[objective] = examples.take(chosen)
        return replace(self, train=train)


def read(folder: Path) -> Corpus:
    """SNLI and MultiNLI as far as they are there, STSb dev and test."""
    material = read_material(folder, stages=("nli",), columns=("dev", "test"))
    nli = material.train["nli"]
    train = {"softmax": nli, "mnrl": replace(nli_triplets(nli), name="NLI triplets")}
    return Corpus(nli.name, train, {f"STSb {name}": examples for name, examples in material.measured.items()})


def made() -> Corpus:
    """A few hundred rows, always the same."""
    random = Random(3)
    premises = list(dict.fromkeys(english.sentence(random) for _ in range(_MADE)))
    rows = [
        (premise, change(premise, random), label)
        for premise in premises
        for label, change in enumerate((_shorter, _longer, _other))
    ]
    a, b, labels = zip(*rows, strict=True)
    nli = Examples("written here", "labelled", {"a": list(a), "b": list(b)}, np.array(labels, np.int64), _LABELS)
    train = {"softmax": nli, "mnrl": replace(nli_triplets(nli), name="written here, triplets")}
    return Corpus("written here", train, {"written here": _scored(rows)})


def _scored(rows: list[tuple[str, str, int]]) -> Examples:
    """Pairs whose score is the share of words in common."""
    scores = []
    for a, b, _ in rows:
        left, right = set(a.lower().split()), set(b.lower().split())
        scores.append(len(left & right) / len(left | right))
    columns = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    return Examples("written here", "scored", columns, np.array(scores, np.float32))


def _shorter(premise: str, random: Random) -> str:
    words = premise.split()
    return " ".join(words[: max(2, len(words) - random.randint(1, 3))])


def _longer(premise: str, random: Random) -> str:
    return f"{premise} {english.sentence(random)}"


def _other(premise: str, random: Random) -> str:
    del premise
    return f"not so: {english.sentence(random)}"
