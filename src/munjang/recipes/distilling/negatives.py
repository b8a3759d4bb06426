"""The stage `negatives`: pairs without negatives get the texts that the student, not yet trained, takes for near."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.errors import DataError, InputError
from munjang.files import atomic_path, disk_errors
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.sources import Taken
from munjang.recipes.stages import Done, Made
from munjang.recipes.telling import say
from munjang.training import NegativeMining, mine_negatives
from munjang.training.run import hash_texts

DEFAULT = NegativeMining(negatives_per_row=4)


def needs_negatives(one: Taken) -> bool:
    """Whether a source has pairs without negatives."""
    return one.examples.kind == "pairs" and len(one.examples.columns) == 2


def make(folder: Path, job: Job, student: BiEncoder) -> Made:
    """Find negatives for every source that has none: a file of pairs each."""
    settings = job.options.negatives or DEFAULT
    outputs, facts = [], {}
    for number, one in enumerate(job.taken, start=1):
        if not needs_negatives(one):
            continue
        say(job.options.progress, f"looking for negatives of {one.name}")
        found, report = mine_negatives(one.examples, student, settings=settings, progress=job.options.progress)
        say(job.options.progress, str(report))
        if not len(found):
            raise InputError(
                f"{one.name}: no row got {settings.negatives_per_row} negatives: ask for fewer "
                "(negatives=NegativeMining(negatives_per_row=...)), or give pairs that have negatives"
            )
        outputs.append(f"pairs-{number}.jsonl")
        with disk_errors(folder, safe="the stages before it are whole; make room and run the same command again"):
            _write(folder / outputs[-1], found)
        facts[one.name] = {"rows": report.rows, "used": report.used, "seconds": report.seconds}
    return Made(outputs, {"sources": facts, "settings": described(settings)})


def _write(path: Path, pairs: Examples) -> None:
    """A line for every row; there may be millions, so that they are never held as text."""
    with (
        atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as file,
    ):
        for row in zip(*pairs.columns.values(), strict=True):
            file.write(json.dumps(dict(zip(pairs.columns, row, strict=True)), ensure_ascii=False) + "\n")


def _read(path: Path, *, names: Sequence[str]) -> dict[str, list[str]]:
    """The columns of such a file, which somebody may have edited; names: columns that every row has."""
    columns: dict[str, list[str]] = {}
    known: dict[str, str] = {}  # a text that stands in many rows is held once
    with open(path, encoding="utf-8", errors="surrogatepass") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise DataError(f"{path.name}, line {number}: expected a JSON object, got {line[:60]!r}")
            columns = columns or {name: [] for name in row}
            if row.keys() != columns.keys() or not set(names) < row.keys():
                raise DataError(
                    f"{path.name}, line {number}: expected the columns {', '.join(columns)}, got {', '.join(row)}"
                )
            for name, text in row.items():
                columns[name].append(known.setdefault(text, text))
    if not columns:
        raise DataError(f"{path} has no rows: remove it, and negatives are looked for again")
    return columns


def described(settings: NegativeMining) -> dict[str, object]:
    """For people and for the key of the stage."""
    judge = settings.cross_encoder
    plain = asdict(replace(settings, cross_encoder=None, corpus=None, keep_scores=False))
    del plain["known_negatives"]
    if settings.known_negatives:  # otherwise stages made before the field existed keep their key
        plain["known_negatives"] = hash_texts([text for pair in settings.known_negatives for text in pair])
    corpus = None if settings.corpus is None else f"{len(settings.corpus)} texts {hash_texts(settings.corpus)}"
    return {**plain, "corpus": corpus, "cross_encoder": None if judge is None else judge.fingerprint}


def stage_inputs(job: Job) -> dict[str, object]:
    """How negatives are looked for."""
    return described(job.options.negatives or DEFAULT)


def read(stage: Done, taken: Sequence[Taken]) -> list[Taken]:
    """The sources, with the negatives that the stage found."""
    found = []
    for number, one in enumerate(taken, start=1):
        if not needs_negatives(one):
            found.append(one)
            continue
        columns = _read(stage.folder / f"pairs-{number}.jsonl", names=list(one.examples.columns))
        found.append(Taken(Examples(one.name, "pairs", columns, reading=one.examples.reading), one.weight))
    return found
