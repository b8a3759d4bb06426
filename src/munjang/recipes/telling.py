"""What a recipe says on stderr while it works, beside the lines of the training loop: what it reads and measures."""

from __future__ import annotations

import sys

from munjang.progress import Progress
from munjang.recipes.sets import Sets


def say(progress: Progress, line: str) -> None:
    """A line, where lines are wanted; a progress function gets none."""
    if progress is True:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def tell_sets(progress: Progress, sets: Sets) -> None:
    """Every set, and how many of its rows can be used."""
    for role, examples in sets.roles():
        reading = examples.reading
        rows = str(reading) if reading.rows else f"{len(examples):,} rows"
        say(progress, f"{role} {examples.name}: {rows}")


def refused_notes(sets: Sets) -> list[str]:
    """What a reader must know about rows that were left out while reading."""
    notes = []
    for role, examples in sets.roles():
        counts = examples.reading.refused_counts
        total = sum(counts.values())
        if not total:
            continue
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(counts.items(), key=lambda it: -it[1]))
        note = f"{examples.name} ({role}): {total:,} of {examples.reading.rows:,} rows were not used: {reasons}"
        first = examples.reading.refused[:1]
        notes.append(f"{note}; the first is {first[0].place}: {first[0].shown}" if first else note)
    return notes
