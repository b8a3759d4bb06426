"""The texts that are encoded: written here, by grammars, the same on every machine.

Enters: a name and a count. Leaves: that many different texts. `short` is English, about 19 MiniLM tokens each; `mixed`
is 1 to 16 such sentences joined, a few of them beyond 256 tokens; `korean` is short Korean; `koen` is Korean and
English in one list, with sentences that switch between the two. Texts of one's own come from files, one a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from benchmarks import english, korean

SEED = 20


def _mixed(random: Random) -> str:
    return " ".join(english.sentence(random) for _ in range(1 + int(16 * random.random() ** 3)))


def _koen(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        return korean.sentence(random)
    return english.sentence(random) if kind < 0.8 else korean.switched(random)


MAKERS: dict[str, Callable[[Random], str]] = {
    "short": english.sentence,
    "mixed": _mixed,
    "korean": korean.sentence,
    "koen": _koen,
}
MEANINGS = {
    "short": "English sentences",
    "mixed": "1 to 16 English sentences joined",
    "korean": "Korean sentences",
    "koen": "Korean and English in one list, some switching inside a sentence",
}
COUNTS = {
    "cpu": {"short": 2_000, "mixed": 400, "korean": 1_000, "koen": 1_000},
    "cuda": {"short": 10_000, "mixed": 3_000, "korean": 10_000, "koen": 10_000},
}


def stream(name: str, *, seed: int = SEED) -> Iterator[str]:
    """Texts without end, some of which may come twice."""
    if name not in MAKERS:
        raise ValueError(f"corpus must be one of {', '.join(MAKERS)}, got {name!r}")
    random = Random(f"{name} {seed}")
    make = MAKERS[name]
    while True:
        yield make(random)


def texts(name: str, count: int, *, seed: int = SEED) -> list[str]:
    """`count` different texts."""
    found: dict[str, None] = {}
    for text in stream(name, seed=seed):
        if len(found) >= count:
            break
        found[text] = None
    return list(found)


def read(path: Path) -> list[str]:
    """One text a line; empty lines are left out."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if line]
    if not found:
        raise ValueError(f"{path} has no texts: expected UTF-8, one text a line")
    return found
