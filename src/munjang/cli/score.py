"""`munjang score`: pairs of texts -> a score or a label each; or one query and documents -> the documents in order."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from munjang import bundled
from munjang.cli.options import add_model, add_reading, named_or_bundled, positive, sources, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.sets import columns_of
from munjang.cli.similarity import written
from munjang.data.files import RowFile
from munjang.data.rows import open_pairs
from munjang.errors import DataError
from munjang.report.tables import plain, shorten, table

if TYPE_CHECKING:
    from munjang.encoders import CrossEncoder, Predicted, Ranked

_SUFFIXES = (".csv", ".jsonl")
_EXAMPLES = """\
examples:
  munjang score pairs.tsv                                    a line per pair: score, text, text
  munjang score nli.jsonl --columns a=premise,b=hypothesis --output labelled.csv
  cut -f 6,7 sts.tsv | munjang score - --format tsv --no-header
  munjang score --query "환불은 어떻게 하나요?" --documents faq.txt --top 5

The model is a cross-encoder: a bundled name, a folder or a hub id; without one munjang-rerank-ko-en, which is bundled.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "score",
        parents=[common],
        help="score pairs of texts, or rank documents, with a cross-encoder",
        description="Read two texts together and score them, or say their label. With --query and --documents,"
        " put the documents in the order of their scores with the query.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pairs", nargs="?", metavar="PAIRS", help="csv, tsv, jsonl, json or parquet; - is stdin")
    parser.add_argument(
        "--columns",
        metavar="ROLE=NAME,...",
        help="columns of the two texts, where they have unusual names: a=문장1,b=문장2 (--no-header: the first two)",
    )
    parser.add_argument("--query", metavar="TEXT", help="rank documents for this text")
    parser.add_argument("--documents", metavar="FILE", help="the documents: a file of texts; - is stdin")
    parser.add_argument("--top", type=positive, metavar="K", help="only the K best documents")
    parser.add_argument("--raw", action="store_true", help="the bare outputs of the model, before its activation")
    parser.add_argument("-o", "--output", metavar="FILE", help="ends in .csv or .jsonl (default: lines to stdout)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_reading(parser)
    add_model(parser, variable="MUNJANG_RERANKER")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, score, print or write."""
    _check_usage(args)
    if args.query is not None:
        documents = list(texts_of(args, [args.documents])[0])
        model = _load(args, reporter)
        ranked = model.rank(args.query, documents, args.top, progress=reporter.progress(len(documents)))
        _write_ranking(args.output, ranked)
        return
    source, given = _pair_source(args)
    opened = open_pairs(source, columns=given)
    pairs = iter(opened)
    total = None
    if source.reiterable:  # an error shows before any work is done
        total = sum(1 for _ in pairs)
        pairs = iter(opened)
    else:
        pairs = chain(list(islice(pairs, 1)), pairs)
    for note in opened.notes:
        reporter.say(f"{source.name}: {note}")
    model = _load(args, reporter)
    waiting: deque[tuple[str, str]] = deque()
    windows = model.predict_stream(_noted(pairs, waiting), raw=args.raw, progress=reporter.progress(total))
    _write_scores(args.output, model.labels, _scored(windows, waiting, reporter))


def _check_usage(args: argparse.Namespace) -> None:
    ranking = args.query is not None or args.documents is not None
    if ranking == (args.pairs is not None) or (args.query is None) != (args.documents is None):
        args.usage_error("expected PAIRS, or --query TEXT and --documents FILE")
    if ranking and (args.columns or args.raw):
        args.usage_error("--columns and --raw go with PAIRS; documents take --column")
    if not ranking and (args.top is not None or args.column is not None):
        args.usage_error("--top and --column go with --query; pairs take --columns a=NAME,b=NAME")
    if args.truncate_dim is not None:
        args.usage_error("--truncate-dim is for vectors: a cross-encoder makes none")
    if args.output is None:
        return
    if Path(args.output).suffix.lower() not in _SUFFIXES:
        args.usage_error(f"--output must end in {' or '.join(_SUFFIXES)}, got {args.output!r}")
    if Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _load(args: argparse.Namespace, reporter: Reporter) -> CrossEncoder:
    import munjang

    own, variable = bundled.RERANKER, "MUNJANG_RERANKER"
    model = munjang.load_cross_encoder(
        named_or_bundled(args.model, variable=variable, own=own, reporter=reporter),
        device=args.device,
        dtype=args.dtype,
        max_length=args.max_length,
        revision=args.revision,
        local_files_only=args.local_files_only,
    )
    if args.threads is not None:
        model.threads = args.threads
    return model


def _pair_source(args: argparse.Namespace) -> tuple[RowFile, Mapping[str, str] | None]:
    """The file, and which of its columns were named; columns that are all numbers mean that there is no header."""
    given = columns_of(args, args.columns, "--columns")
    if given is None and args.no_header:
        given = {"a": "0", "b": "1"}
    args.no_header |= given is not None and all(name.isdecimal() for name in given.values())
    (source,) = sources(args, [args.pairs])
    return source, given


def _noted(pairs: Iterator[tuple[str, str]], waiting: deque[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The pairs, each also put into `waiting` until its score is there."""
    for pair in pairs:
        waiting.append(pair)
        yield pair


def _scored(
    windows: Iterator[Predicted], waiting: deque[tuple[str, str]], reporter: Reporter
) -> Iterator[tuple[str, str, list[float]]]:
    """Every pair with its scores, in order; at the end, how many were cut."""
    report = None
    for window in windows:
        report = window.report if report is None else report.plus(window.report)
        for values in window.scores.reshape(len(window.scores), -1).tolist():
            yield *waiting.popleft(), values
    if report is not None and report.truncated:
        reporter.warn(
            f"warning: truncated: {report.truncated:,} of {report.texts:,} pairs were longer than"
            f" {report.max_length} tokens (the longest has {report.longest:,})"
        )


def _write_scores(output: str | None, labels: tuple[str, ...], rows: Iterator[tuple[str, str, list[float]]]) -> None:
    kind = "" if output is None else Path(output).suffix.lower()
    with ExitStack() as stack:
        file = sys.stdout if output is None else stack.enter_context(written(output))
        write = {"": _line_writer, ".csv": _csv_writer, ".jsonl": _json_writer}[kind](file, labels)
        for a, b, values in rows:
            write(a, b, [float(f"{value:.7g}") for value in values])


Writer = Callable[[str, str, list[float]], None]


def _line_writer(file: TextIO, labels: tuple[str, ...]) -> Writer:
    """A line per pair: its score (of several labels the likeliest with its score) and both texts, between tabs."""

    def write(a: str, b: str, values: list[float]) -> None:
        best = values.index(max(values))
        said = f"{values[0]:.6g}" if len(labels) == 1 else f"{labels[best]}\t{values[best]:.6g}"
        file.write(f"{said}\t{plain(a)}\t{plain(b)}\n")

    return write


def _csv_writer(file: TextIO, labels: tuple[str, ...]) -> Writer:
    writer = csv.writer(file)
    writer.writerow(["a", "b", "score"] if len(labels) == 1 else ["a", "b", "label", *labels])

    def write(a: str, b: str, values: list[float]) -> None:
        label = [] if len(labels) == 1 else [labels[values.index(max(values))]]
        writer.writerow([a, b, *label, *values])

    return write


def _json_writer(file: TextIO, labels: tuple[str, ...]) -> Writer:
    def write(a: str, b: str, values: list[float]) -> None:
        found: dict[str, object] = {"a": a, "b": b}
        if len(labels) == 1:
            found["score"] = values[0]
        else:
            found |= {"label": labels[values.index(max(values))], "scores": dict(zip(labels, values, strict=True))}
        file.write(json.dumps(found, ensure_ascii=False) + "\n")

    return write


def _write_ranking(output: str | None, ranked: list[Ranked]) -> None:
    if output is None:
        rows = [[f"{found.score:.4f}", str(found.index), shorten(found.text, 90)] for found in ranked]
        if rows:
            print(table(rows, right=(0, 1)))
        return
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["rank", "row", "score", "text"])
            writer.writerows(
                [rank, found.index, f"{found.score:.7g}", found.text] for rank, found in enumerate(ranked, start=1)
            )
        else:
            for found in ranked:
                row = {"row": found.index, "score": float(f"{found.score:.7g}"), "text": found.text}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
