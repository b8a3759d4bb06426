"""`munjang encode`: files of texts -> a file of vectors, or JSON lines on stdout as they come.

With --engine: folders of shards, by several workers (`encode_shards.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, tee
from pathlib import Path

from munjang.cli.encode_shards import EXAMPLES as SHARD_EXAMPLES
from munjang.cli.encode_shards import add_engine, check_alone, run_shards
from munjang.cli.options import add_model, add_prompts, add_reading, load_model, texts_of
from munjang.cli.progress import Reporter
from munjang.data.rows import TextRow, Texts
from munjang.types import EncodeReport

_SUFFIXES = (".npy", ".parquet", ".jsonl")
_EXAMPLES = """\
examples:
  munjang encode corpus.txt --output corpus.npy            one vector a line, in the order of the lines
  munjang encode reviews.csv --column 본문 --keep id --output reviews.parquet
  munjang encode part-1.jsonl.gz part-2.jsonl.gz --output all.npy
  zcat logs.gz | munjang encode - --output logs.parquet
  echo "한국어 문장" | munjang encode - | head -1

An interrupted --output is kept: the same command goes on where it stopped.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "encode",
        parents=[common],
        help="texts to vectors",
        description="Encode texts: txt, csv, tsv, jsonl, json, parquet, text formats also as .gz, .xz, .bz2.",
        epilog=f"{_EXAMPLES}\n{SHARD_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files of texts, one after another; - is stdin")
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="ends in .npy, .parquet or .jsonl; - is jsonl on stdout; with --engine, a folder",
    )
    parser.add_argument("--overwrite", action="store_true", help="begin anew although the output is there")
    parser.add_argument(
        "--keep", action="append", default=[], metavar="COL", help="a column to copy along; may be repeated"
    )
    parser.add_argument(
        "--normalize", action=argparse.BooleanOptionalAction, help="vectors of length 1 (default: as the model says)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no report")
    add_prompts(parser)
    add_reading(parser)
    add_model(parser)
    add_engine(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, encode, write, report."""
    if args.engine is not None:
        run_shards(args, reporter)
        return
    check_alone(args)
    folder = next((path for path in args.inputs if Path(path).is_dir()), None)
    if folder is not None:
        args.usage_error(f"{folder} is a folder: --engine processes encodes folders of parquet and jsonl shards")
    if args.output != "-" and Path(args.output).suffix.lower() not in _SUFFIXES:
        args.usage_error(f"--output must end in {', '.join(_SUFFIXES)}, got {args.output!r}")
    if {"text", "vector"} & set(args.keep):
        args.usage_error("--keep cannot take columns named 'text' or 'vector': the output has these already")
    if args.keep and Path(args.output).suffix.lower() == ".npy":
        args.usage_error("--keep needs an output with columns: .parquet or .jsonl, not .npy")
    inputs = texts_of(args, args.inputs, args.keep)
    total = _survey(inputs, reporter)
    rows = chain.from_iterable(source.rows() for source in inputs)
    report = _to_stdout(args, rows, total, reporter) if args.output == "-" else _to_file(args, rows, total, reporter)
    reporter.say(str(report))


def _survey(inputs: list[Texts], reporter: Reporter) -> int | None:
    """Read the inputs once before the work begins: errors show now, and the progress knows its end."""
    total: int | None = 0
    for source in inputs:
        if not source.reiterable:
            total = None
            continue
        found = source.survey()
        column = f" in column {found.column!r}" if found.column is not None else ""
        reporter.say(f"{source.name}: {found.rows:,} texts{column}")
        total = None if total is None else total + found.rows
    return total


def _to_file(args: argparse.Namespace, rows: Iterable[TextRow], total: int | None, reporter: Reporter) -> EncodeReport:
    model = load_model(args, reporter)
    try:
        return model.encode_to(
            ({"text": row.text, **row.columns} for row in rows) if args.keep else (row.text for row in rows),
            args.output,
            overwrite=args.overwrite,
            prompt=args.prompt,
            prompt_name=args.prompt_name,
            normalize=args.normalize,
            progress=reporter.progress(total),
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(args.output, overwrite=args.overwrite)) from None


def _kept(output: str, *, overwrite: bool) -> str:
    """What an interruption leaves, as the record beside the output says, and how to go on."""
    from munjang.vectors.files import unfinished_rows

    kept = unfinished_rows(output)
    if kept == 0:
        return "interrupted before anything was written that could be kept"
    again = "the same command" + (" without --overwrite" if overwrite else "")
    return f"interrupted; {kept:,} texts are kept beside {output}: {again} goes on from there"


def _to_stdout(
    args: argparse.Namespace, rows: Iterable[TextRow], total: int | None, reporter: Reporter
) -> EncodeReport:
    from munjang.vectors.files import shortest_decimals

    model = load_model(args, reporter)
    update = reporter.progress(total)
    for_texts, beside = tee(rows)
    out = sys.stdout.buffer
    whole: EncodeReport | None = None
    stream = model.encode_stream(
        (row.text for row in for_texts),
        prompt=args.prompt,
        prompt_name=args.prompt_name,
        normalize=args.normalize,
    )
    started = time.perf_counter()
    try:
        for encoded in stream:
            for vector, row in zip(shortest_decimals(encoded.vectors), beside, strict=False):
                record = {"text": row.text, "vector": vector, **row.columns}
                out.write(json.dumps(record, ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n")
            out.flush()
            whole = encoded.report if whole is None else _sum(whole, encoded.report)
            update(whole.texts, None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted after {whole.texts if whole else 0:,} texts") from None
    whole = whole or EncodeReport(0, 0, 0, 0, model.max_length, 0.0)
    return replace(whole, seconds=time.perf_counter() - started)


def _sum(a: EncodeReport, b: EncodeReport) -> EncodeReport:
    return replace(
        b,
        texts=a.texts + b.texts,
        tokens=a.tokens + b.tokens,
        truncated=a.truncated + b.truncated,
        longest=max(a.longest, b.longest),
    )
