"""`munjang plan`: measure this machine once, then compute what any number of rows takes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_model, load_model, model_name, positive
from munjang.cli.progress import Reporter
from munjang.errors import InputError
from munjang.planning.estimating import Plan, Prices, Workload, estimate
from munjang.planning.rates import Rates, add_rates, find_rates, rates_path, read_rates
from munjang.planning.sizes import parse_count, show_bytes, show_count, show_seconds
from munjang.report.tables import table

if TYPE_CHECKING:
    from munjang.planning.measuring import MeasureOptions

_SILENCE = 3.0  # seconds
_EXAMPLES = """\
examples:
  munjang plan --measure                              a few minutes on an idle machine; once
  munjang plan --rows 100M --tokens 30
  munjang plan --rows 1B --tokens 30 --vectors int8 --json
  munjang plan --measure --device cuda --rate h100.json
  munjang plan --rows 100M --tokens 30 --gpus 8 --rate h100.json --price-gpu-hour 2.5 --price-disk-gb-month 0.08
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "plan",
        parents=[common],
        help="time, memory, disk and money of a large job, from rates measured here",
        description="Compute what encoding, building an index and searching take, from rates measured on this machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    work = parser.add_argument_group("the work")
    work.add_argument("--rows", metavar="N", help="texts: 5000, 250k, 100M, 1B")
    work.add_argument("--tokens", type=float, metavar="T", help="of a text on average, special ones included")
    work.add_argument("--gpus", type=positive, metavar="G", help="that encode at the same time (as measured)")
    work.add_argument("--dimension", type=positive, metavar="D", help="of the vectors, if they are cut (the model's)")
    work.add_argument("--vectors", choices=["float32", "int8", "binary"], default="float32", help="how they are kept")
    work.add_argument("--no-keyword", action="store_true", help="an index without keyword search")
    work.add_argument(
        "--price-gpu-hour", type=float, metavar="X", help="of one GPU (of the machine, measured on a CPU)"
    )
    work.add_argument("--price-disk-gb-month", type=float, metavar="Y", help="of 10^9 bytes")
    rates = parser.add_argument_group("rates")
    rates.add_argument("--measure", action="store_true", help="measure the model here and keep its rates")
    rates.add_argument(
        "--rate", metavar="FILE", help="file of rates (rates.json in munjang's part of the user's cache)"
    )
    rates.add_argument("--seconds", type=float, metavar="S", help="of encoding for each length of texts (3)")
    rates.add_argument("--measure-rows", metavar="N", help="rows of graphs built (10k), twice at most; more is nearer")
    parser.add_argument("--json", action="store_true", help="as JSON, in seconds and bytes")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Measure, plan, or both."""
    if (args.rows is None) != (args.tokens is None):
        args.usage_error("--rows and --tokens belong together")
    if args.rows is None and not args.measure:
        args.usage_error("give --rows N --tokens T, or --measure")
    if not args.measure and (args.seconds is not None or args.measure_rows is not None):
        args.usage_error("--seconds and --measure-rows say how to --measure")
    workload = None if args.rows is None else _workload(args)  # nonsense shows before minutes are spent
    path = Path(args.rate) if args.rate else rates_path()
    if args.measure:
        rates = _measured(args, path, reporter)
    else:
        rates = find_rates(read_rates(path), args.model and model_name(args.model), gpu=_gpu(args))
    if workload is None:
        return
    plan = estimate(workload, rates)
    print(json.dumps(plan.as_dict(), ensure_ascii=False, indent=2) if args.json else _told(plan, rates))


def _gpu(args: argparse.Namespace) -> bool | None:
    """Which rates are wanted: --device says it, or --gpus."""
    if args.device is not None:
        return not str(args.device).startswith("cpu")
    return True if args.gpus is not None else None


def _workload(args: argparse.Namespace) -> Workload:
    return Workload(
        rows=parse_count(args.rows, "--rows"),
        tokens=args.tokens,
        gpus=args.gpus,
        dimension=args.dimension,
        vectors=args.vectors,
        keyword=not args.no_keyword,
        prices=Prices(args.price_gpu_hour, args.price_disk_gb_month),
    )


def _measure_options(args: argparse.Namespace) -> MeasureOptions:
    from munjang.planning.measuring import LEAST_ROWS, MeasureOptions

    rows = LEAST_ROWS if args.measure_rows is None else parse_count(args.measure_rows, "--measure-rows")
    return MeasureOptions(rows=rows, seconds=3.0 if args.seconds is None else args.seconds)


def _measured(args: argparse.Namespace, path: Path, reporter: Reporter) -> Rates:
    from munjang.planning.measuring import measure

    options = _measure_options(args)
    if path.is_file():
        read_rates(path)  # a file of something else is not written over, and found out before minutes are spent
    elif not path.parent.is_dir() and args.rate:
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    model = load_model(args, reporter)
    name = args.model or str(model.parts.source)
    rates = measure(model, name, options=options, progress=_steps(reporter))
    add_rates(path, rates)
    row = rates.encode_row + 30 * rates.encode_token + 900 * rates.encode_square
    if rates.busy:
        reporter.warn(
            f"the machine was busy (load {rates.load:.1f} on {rates.cores} cores): measure again when it is idle"
        )
    reporter.say(f"measured on {rates.device_name}: {1 / row:,.0f} texts of 30 tokens a second; kept in {path}")
    return rates


def _steps(reporter: Reporter) -> Callable[[int, int | None], None]:
    """A line now and then: the steps of a measurement are few and long."""
    last = time.monotonic()

    def tell(done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _SILENCE:
            last = time.monotonic()
            reporter.say(f"measuring: {done} of {total} steps")

    return tell


def _told(plan: Plan, rates: Rates) -> str:
    work, encoding, building, disk, searching = (
        plan.workload,
        plan.encoding,
        plan.building,
        plan.disk,
        plan.searching,
    )
    devices = f"{encoding.devices} x " if encoding.devices > 1 else ""
    seen = "looks at every vector" if searching.exact else "through a graph"
    rows = [
        ("", "time", "memory", "disk", ""),
        ("encode", show_seconds(encoding.seconds), show_bytes(encoding.memory), show_bytes(disk.vectors),
         f"{devices}{rates.device_name}; {show_count(encoding.rows_per_second)} rows/s"),
        ("build the index", show_seconds(building.seconds), show_bytes(building.memory), show_bytes(disk.total),
         f"writing {show_seconds(building.write)}, keywords {show_seconds(building.keyword)}, "
         f"graph {show_seconds(building.graph)}"),
        ("search", show_seconds(searching.seconds), show_bytes(searching.memory), "",
         f"one query; {show_count(searching.per_second)} a second, one after another; {seen}"),
    ]  # fmt: skip
    many = f", {show_count(plan.passages)} passages" if plan.passages != work.rows else ""
    dimension = work.dimension or rates.dimension
    head = f"{show_count(work.rows)} rows of {work.tokens:g} tokens{many}; {work.vectors}, {dimension} dimensions"
    lines = [head, "", table(rows, right=(1, 2, 3)), *_money(plan)]
    lines += ["", "assumed:", *(f"- {one}" for one in plan.assumptions)]
    lines += ["", "note:", *(f"- {one}" for one in plan.notes)] if plan.notes else []
    return "\n".join(lines)


def _money(plan: Plan) -> list[str]:
    money = plan.money
    if money.first_month is None:
        return []
    parts = []
    if money.encoding is not None:
        parts.append(f"{money.encoding:,.2f} to encode ({plan.encoding.device_hours:,.1f} hours)")
    if money.disk_month is not None:
        parts.append(f"{money.disk_month:,.2f} a month for the disk")
    return ["", f"money: {', '.join(parts)}; {money.first_month:,.2f} in the first month"]
