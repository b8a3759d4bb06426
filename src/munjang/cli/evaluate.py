"""`munjang evaluate`: models and public sets, or a file of one's own -> one table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from munjang import bundled
from munjang.cli.options import add_loading, load_named, model_name, named_or_bundled, positive
from munjang.cli.progress import Reporter
from munjang.cli.sets import add_any_labels, add_drop_outside
from munjang.errors import DataError, InputError, ModelNotFoundError

if TYPE_CHECKING:
    from munjang.data import Kind
    from munjang.encoders import BiEncoder, CrossEncoder
    from munjang.evaluation import Evaluator, Suite, Trial
    from munjang.evaluation.suites import TrialKind

_SUITES = ("korean", "english", "all")
_KINDS = ("sts", "pairs", "labels", "retrieval", "reranking", "mining", "bitext", "clustering", "probe")
_OWN = {  # option -> kind of its rows, kind of the trial, what a row is
    "sts": ("scored", "sts", "two texts and a score per row"),
    "same": ("labelled", "pairs", "two texts and one of two labels, such as 0 and 1"),
    "nli": ("labelled", "labels", "two texts and a label, for cross-encoders that label"),
    "triplets": ("pairs", "pairs", "anchor, positive, negative"),
    "ranked": ("ranked", "reranking", "query, document and relevance, a row for every document"),
}
_EXAMPLES = """\
examples:
  munjang evaluate MODEL --suite korean --data DIR
  munjang evaluate MODEL OTHER --suite all --data DIR --output results.json --markdown table.md
  munjang evaluate MODEL --suite korean --data DIR --only sts retrieval
  munjang evaluate MODEL --suite all --data DIR --quick 500 --no-intervals    a first look, in minutes
  munjang evaluate MODEL --sts pairs.tsv --columns a=문장1,b=문장2,score=점수 --score-range 0,5
  munjang evaluate MODEL OTHER --same questions.csv --labels different,same --ranked queries.jsonl

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
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=f"bundled name, folder or hub id (default: MUNJANG_MODEL, else {bundled.BI_ENCODER})",
    )
    what = parser.add_argument_group("what to measure on")
    what.add_argument("--suite", choices=_SUITES, help="the public sets of a language")
    what.add_argument("--data", metavar="DIR", help="the folder that holds the public sets")
    what.add_argument("--only", nargs="+", choices=_KINDS, default=[], metavar="KIND", help=", ".join(_KINDS))
    what.add_argument("--quick", type=positive, metavar="N", help="at most N rows of every set; the table says so")
    for option, (_, _, row) in _OWN.items():
        what.add_argument(f"--{option}", metavar="FILE", help=f"a file of your own: {row}")
    what.add_argument("--columns", nargs="+", default=[], metavar="ROLE=NAME,...",
                      help="columns of your files: a=문장1,b=문장2,score=점수 (usual names are found)")  # fmt: skip
    what.add_argument("--labels", nargs="+", default=[], metavar="A,B,...",
                      help="names of the labels of --same and --nli, by number: different,same")  # fmt: skip
    what.add_argument("--score-range", nargs="+", default=[], metavar="LOW,HIGH", help="of --sts (0,1)")
    add_any_labels(what)
    add_drop_outside(what, labels=True)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="FILE", help="everything as JSON; a rerun goes on from it")
    out.add_argument("--markdown", metavar="FILE", help="the table as a file too")
    out.add_argument("--intervals", action=argparse.BooleanOptionalAction, default=True, help="bootstrap intervals")
    out.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_loading(parser.add_argument_group("loading"))
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read the sets, then model after model; print the table."""
    _check_usage(args)
    from munjang.evaluation import Results, markdown, score_model
    from munjang.files import atomic_write, disk_errors

    for path in filter(None, (args.output, args.markdown)):
        _check_writable(Path(path))  # before hours of work
    results = Results(args.output)
    suite = _suite(args)
    for title, reason in suite.absent.items():
        reporter.warn(f"{title} skipped: {reason}")
    names = args.models or [named_or_bundled(None, variable="MUNJANG_MODEL", own=bundled.BI_ENCODER, reporter=reporter)]
    columns = []
    for title, name in zip(_titles(names), names, strict=True):
        model = _load(args, name)
        columns.append(score_model(title, model, suite.trials, results=results, tell=reporter.say))
    if not any(column.scores for column in columns):
        reasons = [f"{name}: {reason}" for column in columns for name, reason in column.skipped.items()]
        raise InputError("nothing could be measured: " + "; ".join([*reasons, *suite.absent.values()] or ["no sets"]))
    results.leave_out(suite.absent)
    table = markdown(columns, absent=suite.absent)
    print(table, end="")
    if args.markdown:
        with disk_errors(Path(args.markdown), safe="the table stands above"):
            atomic_write(Path(args.markdown), table.encode())


def _check_usage(args: argparse.Namespace) -> None:
    if len(set(args.models)) < len(args.models):
        args.usage_error("every MODEL once")
    own = [option for option in _OWN if getattr(args, option) is not None]
    if (args.suite is None) == (not own):
        options = ", ".join(f"--{option}" for option in _OWN)
        args.usage_error(f"expected --suite NAME with --data DIR, or a FILE of your own ({options})")
    if args.suite is not None and args.data is None:
        args.usage_error("--suite needs --data DIR, the folder that holds the public sets")
    if args.suite is not None and (args.columns or args.score_range):
        args.usage_error("--columns and --score-range go with a FILE of your own")
    if args.score_range and args.sts is None:
        args.usage_error("--score-range goes with --sts FILE")
    if args.labels and args.same is None and args.nli is None:
        args.usage_error("--labels goes with --same FILE and --nli FILE")
    if own and (args.only or args.quick):
        args.usage_error("--only and --quick go with --suite")
    roles = {role for option in own for role in _roles(_OWN[option][0])}
    for pair in _split(args.columns):
        role, equals, name = pair.partition("=")
        if role not in roles or not equals or not name:
            args.usage_error(f"--columns takes ROLE=NAME,... with the roles {', '.join(sorted(roles))}, got {pair!r}")


def _check_writable(path: Path) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise DataError(f"{path} cannot be written: {'it is a folder' if path.is_dir() else f'{folder} is read-only'}")


def _split(values: list[str]) -> list[str]:
    """Values with commas, with spaces or with both, one by one."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _roles(kind: str) -> tuple[str, ...]:
    from munjang.data.columns import ROLES, roles_of

    return (*ROLES[kind].texts, "negative") if kind == "pairs" else roles_of(kind)


def _span(args: argparse.Namespace) -> tuple[float, float] | None:
    if not args.score_range:
        return None
    try:
        low, high = (float(part) for part in _split(args.score_range))
    except ValueError:
        args.usage_error(f"--score-range must be LOW,HIGH, such as 0,5, got {' '.join(args.score_range)!r}")
        raise
    return low, high


def _suite(args: argparse.Namespace) -> Suite:
    from munjang.evaluation import Suite, build_suite

    if args.suite is not None:
        return build_suite(args.suite, args.data, only=args.only, intervals=args.intervals, quick=args.quick)
    span = _span(args)
    return Suite(tuple(_own_trial(args, option, span) for option in _OWN if getattr(args, option) is not None))


def _own_trial(args: argparse.Namespace, option: str, span: tuple[float, float] | None) -> Trial:
    """What measures on a file of the caller's own."""
    from munjang import evaluation
    from munjang.data import read_examples

    kind, trial, _ = _OWN[option]
    given = {role: name for role, _, name in (pair.partition("=") for pair in _split(args.columns))}
    columns = {role: int(name) if name.isdigit() else name for role, name in given.items() if role in _roles(kind)}
    examples = read_examples(
        getattr(args, option),
        kind=cast("Kind", kind),
        columns=columns or None,
        score_range=span if kind == "scored" else None,
        label_map=(_split(args.labels) or None) if kind == "labelled" else None,
        any_labels=args.any_labels,
        drop_outside=args.drop_outside,
    )
    notes = (f"{examples.reading}",) if examples.reading.used < examples.reading.rows else ()
    makers: dict[str, Callable[..., Evaluator]] = {
        "sts": evaluation.StsEvaluator,
        "same": evaluation.PairClassificationEvaluator,
        "nli": evaluation.LabelEvaluator,
        "triplets": evaluation.TripletEvaluator,
        "ranked": evaluation.RerankingEvaluator,
    }
    evaluator = makers[option](examples, bootstrap=1000 if args.intervals else 0)
    return evaluation.Trial(evaluator, cast("TrialKind", trial), notes)


def _titles(names: list[str]) -> list[str]:
    """Short names for the table's head, where they stay different; of RUN/model the run is the name."""
    paths = [Path(name) for name in names]
    short = [path.parent.name if path.name == "model" else path.name for path in paths]
    short = [one or name for one, name in zip(short, names, strict=True)]
    return short if len(set(short)) == len(short) else names


def _load(args: argparse.Namespace, name: str) -> BiEncoder | CrossEncoder:
    """The model as what it was saved as."""
    import munjang
    from munjang.checkpoint import is_cross, resolve

    try:
        folder = resolve(model_name(name), revision=args.revision, local_files_only=args.local_files_only)
    except ModelNotFoundError:
        return load_named(args, name)  # a name of the loader's own, or an error that says more
    if not is_cross(folder):
        return load_named(args, name)
    model = munjang.load_cross_encoder(folder, device=args.device, dtype=args.dtype, max_length=args.max_length)
    if args.threads is not None:
        model.threads = args.threads
    return model
