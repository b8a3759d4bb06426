"""`munjang encode --engine ...`: folders of shards -> a folder of vectors, or an index, by several workers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from munjang.cli.options import model_name, named_or_bundled, positive
from munjang.cli.progress import Reporter
from munjang.errors import DataError
from munjang.index.remote.address import masked

if TYPE_CHECKING:
    from munjang.sharding import JobProgress, ModelSource, ShardOptions, ShardResult

ENGINES = ("processes", "ray")
FORMATS = ("parquet", "jsonl", "npy")
_ONLY_SHARDS = ("workers", "address", "into", "state", "output_format", "id_column", "metadata", "attempts")
EXAMPLES = """\
many shards:
  munjang encode shards/ --engine processes --output vectors/        a file of vectors for each parquet or jsonl shard
  munjang encode "logs/*/part-*.jsonl.gz" --engine processes --workers 4 --keep id --output vectors/
  munjang encode shards/ --engine ray --address auto --output /shared/vectors/
  munjang encode shards/ --engine processes --into my-index          rows become documents of an index

Run again, the same command skips the shards that are done and have not changed. Rows that cannot be used are listed
in _rejects.jsonl. The exit status is 1 where a shard could not be done; the others are done.
"""


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The options of a job of many shards."""
    group = parser.add_argument_group("many shards")
    group.add_argument("--engine", choices=ENGINES, help="encode folders of shards: here, or in a Ray cluster")
    group.add_argument("--workers", type=positive, metavar="N", help="each holds the model (default: what fits)")
    group.add_argument("--address", metavar="A", help="of a Ray cluster: auto, or HOST:PORT")
    group.add_argument("--into", metavar="INDEX", help="add the rows to this index, a folder or an address")
    group.add_argument("--state", metavar="FOLDER", help="with --into: the record of what is done (INDEX.shards)")
    group.add_argument("--output-format", choices=FORMATS, help="of the files in the --output folder (parquet)")
    group.add_argument("--id-column", metavar="C", help="with --into: column of the ids (id; else shard and line)")
    group.add_argument("--metadata", metavar="C,C", help="with --into: columns to keep; all (default), or none")
    group.add_argument("--attempts", type=positive, metavar="N", help="how often to try a shard whose worker dies (3)")


def check_alone(args: argparse.Namespace) -> None:
    """Without --engine, the options that need it are wrong usage."""
    given = next((name for name in _ONLY_SHARDS if getattr(args, name) is not None), None)
    if given is not None:
        args.usage_error(f"--{given.replace('_', '-')} needs --engine {' or '.join(ENGINES)}")


def run_shards(args: argparse.Namespace, reporter: Reporter) -> None:
    """Run the job and say what came of it."""
    if args.format is not None or args.quoting is not None or args.no_header:
        args.usage_error("--format, --quoting and --no-header do not go with --engine: shards are parquet or jsonl")
    if (args.output == "-") == (args.into is None):
        args.usage_error("--engine needs either --output FOLDER or --into INDEX")
    if args.into is None and (args.id_column or args.metadata or args.state):
        args.usage_error("--id-column, --metadata and --state are for --into")
    from munjang.sharding import encode_shards

    options, model = _options(args), _model(args, reporter)
    last: JobProgress | None = None

    def progress(now: JobProgress) -> None:
        nonlocal last
        last = now
        reporter.show(now.line())

    output = None if args.output == "-" else args.output
    try:
        result = encode_shards(args.inputs, output, model=model, into=args.into, options=options, progress=progress)
    except KeyboardInterrupt:
        done = f"{last.done + last.skipped:,} of {last.shards:,}" if last is not None else "none"
        raise KeyboardInterrupt(f"interrupted; shards that are done: {done}; the same command goes on") from None
    _report(args, result, reporter)


def _options(args: argparse.Namespace) -> ShardOptions:
    from munjang.sharding import Reading, ShardOptions

    metadata = None if args.metadata in (None, "all") else () if args.metadata == "none" else _names(args.metadata)
    reading = Reading(
        column=args.column,
        keep=tuple(args.keep),
        encoding=args.encoding or "utf-8",
        id_column=args.id_column,
        metadata=metadata,
    )
    return ShardOptions(
        engine=args.engine,
        workers=args.workers,
        threads=args.threads,
        address=args.address,
        format=args.output_format or "parquet",
        reading=reading,
        prompt=args.prompt,
        prompt_name=args.prompt_name,
        normalize=args.normalize,
        attempts=args.attempts or 3,
        overwrite=args.overwrite,
        state=args.state,
    )


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def _model(args: argparse.Namespace, reporter: Reporter) -> ModelSource:
    from munjang import bundled
    from munjang.sharding import ModelSource

    if args.into is not None:  # an index knows its model
        name = model_name(args.model) if args.model else None
    else:
        name = named_or_bundled(args.model, variable="MUNJANG_MODEL", own=bundled.BI_ENCODER, reporter=reporter)
    return ModelSource(
        name,
        device=args.device,
        dtype=args.dtype,
        revision=args.revision,
        local_files_only=args.local_files_only,
        max_length=args.max_length,
        truncate_dim=args.truncate_dim,
    )


def _report(args: argparse.Namespace, result: ShardResult, reporter: Reporter) -> None:
    reporter.say(f"{args.output if args.into is None else masked(args.into)}: {result}")
    if result.rejects is not None:
        reporter.say(f"rows that were set aside: {result.rejects}")
    if result.gone:
        shown = ", ".join(result.gone[:5]) + (" and more" if len(result.gone) > 5 else "")
        reporter.warn(f"warning: no longer among the inputs, but what came of them is still there: {shown}")
    for shard in result.failed[:20]:
        reporter.warn(f"failed: {shard.name}: {shard.reason}")
    if result.failed:
        raise DataError(
            f"{len(result.failed):,} of {result.shards:,} shards failed, the others are done; the same command tries "
            "them again"
        )
