"""`munjang evaluate`: models and public sets, or a file of one's own -> one table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_loading, load_model, positive
from munjang.cli.progress import Reporter
from munjang.errors import InputError, ModelNotFoundError

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.cross_encoder import CrossEncoder
    from munjang.evaluation import Suite

_SUITES = ("korean", "english", "all")
_KINDS = ("sts", "pairs", "labels", "retrieval", "reranking", "mining", "bitext", "clustering", "probe")
_EXAMPLES = """\
examples:
  munjang evaluate MODEL --suite korean --data DIR
  munjang evaluate MODEL OTHER --suite all --data DIR --output results.json --markdown table.md
  munjang evaluate MODEL --suite korean --data DIR --only sts retrieval
  munjang evaluate MODEL --suite all --data DIR --quick 500 --no-intervals    a first look, in minutes
  munjang evaluate MODEL --sts pairs.tsv --columns a=문장1 b=문장2 score=점수 --score-range 0 5

A rerun with the same --output computes only what is not in it yet. Scores are times 100; ± is half the 95 %
bootstrap interval. DIR holds the sets as folders: korsts/, klue-sts/, stsb-en/...
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "evaluate",
        parents=[common],
        help="measure models on public sets or on your own pairs",
        description="Measure bi-encoders and cross-encoders, and print one table: sets down, models across.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="folder or hub id (default: MUNJANG_MODEL)")
    what = parser.add_argument_group("what to measure on")
    what.add_argument("--suite", choices=_SUITES, help="the public sets of a language")
    what.add_argument("--data", metavar="DIR", help="the folder that holds the public sets")
    what.add_argument("--only", nargs="+", choices=_KINDS, default=[], metavar="KIND", help=", ".join(_KINDS))
    what.add_argument("--quick", type=positive, metavar="N", help="at most N rows of every set; the table says so")
    what.add_argument("--sts", metavar="FILE", help="a file of your own: two texts and a score per row")
    what.add_argument("--columns", nargs="+", default=[], metavar="ROLE=NAME", help="which columns are a, b and score")
    what.add_argument("--score-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help="default: 0 1")
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="FILE", help="everything as JSON; a rerun goes on from it")
    out.add_argument("--markdown", metavar="FILE", help="the table as a file too")
    out.add_argument("--intervals", action=argparse.BooleanOptionalAction, default=True, help="bootstrap intervals")
    out.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_loading(parser.add_argument_group("loading"))
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read the sets, then model after model; print the table."""
    names = args.models or list(filter(None, [os.environ.get("MUNJANG_MODEL")]))
    _check_usage(args, names)
    from munjang.durable import write_whole
    from munjang.evaluation import Results, markdown, score_model

    results = Results(args.output)  # before hours of work: is the file usable?
    suite = _suite(args)
    for title, reason in suite.absent.items():
        reporter.warn(f"{title} skipped: {reason}")
    columns = []
    for title, name in zip(_titles(names), names, strict=True):
        model = _load(args, name)
        columns.append(score_model(title, model, suite.trials, results=results, tell=reporter.say))
    if not any(column.scores for column in columns):
        reasons = [f"{name}: {reason}" for column in columns for name, reason in column.skipped.items()]
        raise InputError("nothing could be measured: " + "; ".join([*reasons, *suite.absent.values()] or ["no sets"]))
    table = markdown(columns, absent=suite.absent)
    if args.markdown:
        write_whole(Path(args.markdown), table.encode())
    print(table, end="")


def _check_usage(args: argparse.Namespace, names: list[str]) -> None:
    if not names:
        args.usage_error("expected at least one MODEL (or the environment variable MUNJANG_MODEL)")
    if len(set(names)) < len(names):
        args.usage_error("every MODEL once")
    if (args.suite is None) == (args.sts is None):
        args.usage_error("expected --suite NAME with --data DIR, or --sts FILE")
    if args.suite is not None and args.data is None:
        args.usage_error("--suite needs --data DIR, the folder that holds the public sets")
    if args.suite is not None and (args.columns or args.score_range):
        args.usage_error("--columns and --score-range go with --sts FILE")
    if args.sts is not None and (args.only or args.quick):
        args.usage_error("--only and --quick go with --suite")
    for pair in args.columns:
        role, equals, name = pair.partition("=")
        if role not in ("a", "b", "score") or not equals or not name:
            args.usage_error(f"--columns takes a=NAME b=NAME score=NAME, got {pair!r}")


def _suite(args: argparse.Namespace) -> Suite:
    from munjang.evaluation import StsEvaluator, Suite, Trial, build_suite

    if args.suite is not None:
        return build_suite(args.suite, args.data, only=args.only, intervals=args.intervals, quick=args.quick)
    from munjang.data import read_examples

    columns = {
        role: int(name) if name.isdigit() else name for role, _, name in (c.partition("=") for c in args.columns)
    }
    span = tuple(args.score_range) if args.score_range else None
    examples = read_examples(args.sts, kind="scored", columns=columns or None, score_range=span)
    notes = (f"{examples.reading}",) if examples.reading.used < examples.reading.rows else ()
    return Suite((Trial(StsEvaluator(examples, bootstrap=1000 if args.intervals else 0), "sts", notes),))


def _titles(names: list[str]) -> list[str]:
    """Short names for the table's head, where they stay different."""
    short = [Path(name).name or name for name in names]
    return short if len(set(short)) == len(short) else names


def _load(args: argparse.Namespace, name: str) -> BiEncoder | CrossEncoder:
    """The model as what it was saved as."""
    import munjang
    from munjang.checkpoint import is_cross, resolve

    try:
        folder = resolve(name, revision=args.revision, local_files_only=args.local_files_only)
    except ModelNotFoundError:
        return load_model(args, name)  # a name of the loader's own, or an error that says more
    if not is_cross(folder):
        return load_model(args, name)
    model = munjang.load_cross_encoder(folder, device=args.device, dtype=args.dtype, max_length=args.max_length)
    if args.threads is not None:
        model.threads = args.threads
    return model
