"""The stage `negatives`: pairs without negatives get the texts that the student, not yet trained, takes for near."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.durable import disk_errors, write_whole
from munjang.errors import InputError
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.sources import Taken
from munjang.recipes.stages import Done, Made
from munjang.recipes.telling import say
from munjang.training import NegativeMining, mine_negatives

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
        rows = zip(*found.columns.values(), strict=True)
        names = list(found.columns)
        lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
        with disk_errors(folder, safe="the stages before it are whole; make room and run the same command again"):
            write_whole(folder / outputs[-1], ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))
        facts[one.name] = {"rows": report.rows, "used": report.used, "seconds": report.seconds}
    return Made(outputs, {"sources": facts, "settings": _described(settings)})


def _described(settings: NegativeMining) -> dict[str, object]:
    """For people and for the key of the stage."""
    judge = settings.cross_encoder
    plain = {name: value for name, value in asdict(replace(settings, cross_encoder=None)).items() if name != "corpus"}
    corpus = None if settings.corpus is None else list(settings.corpus)
    return {**plain, "corpus": corpus, "cross_encoder": None if judge is None else judge.fingerprint}


def stage_inputs(job: Job) -> dict[str, object]:
    """How negatives are looked for."""
    return _described(job.options.negatives or DEFAULT)


def read(stage: Done, taken: Sequence[Taken]) -> list[Taken]:
    """The sources, with the negatives that the stage found."""
    found = []
    for number, one in enumerate(taken, start=1):
        if not needs_negatives(one):
            found.append(one)
            continue
        with open(stage.folder / f"pairs-{number}.jsonl", encoding="utf-8", errors="surrogatepass") as file:
            rows = [json.loads(line) for line in file]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        found.append(Taken(Examples(one.name, "pairs", columns, reading=one.examples.reading), one.weight))
    return found
