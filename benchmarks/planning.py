"""What `munjang plan` predicts, beside what then happens: encoding, building, disk, search at growing sizes.

    python -m benchmarks.planning --model FOLDER             10,000 and 100,000 rows
    python -m benchmarks.planning --model FOLDER --full      1,000,000 too

    measure rates -> for every size: predict, encode to a file, build an index from it, search -> a table of ratios

Nothing here passes or fails: it measures. A ratio is what happened over what was predicted. Run it on a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import munjang
from benchmarks import machine, models
from benchmarks.page import Table
from benchmarks.timing import progress
from munjang import Index, IndexOptions
from munjang.planning import MeasureOptions, Rates, Workload, estimate, measure
from munjang.planning.memory import peak_memory
from munjang.planning.sizes import show_bytes, show_seconds
from munjang.planning.texts import texts
from munjang.types import EncodeReport

SIZES = (10_000, 100_000)
FULL = 1_000_000
BLOCK = 10_000  # texts made at a time
QUERIES = 50
Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, predict, do it, compare."""
    options = _parser().parse_args(arguments)
    facts = machine.describe(options.device)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    model = munjang.load(options.model or models.minilm(), device=options.device)
    if options.averaged:
        model = models.averaged(model, Path(tempfile.mkdtemp()) / "averaged")
    asked = MeasureOptions(seconds=options.seconds, rows=options.measure_rows)
    started = time.perf_counter()
    rates = measure(model, options=asked, progress=lambda done, total: progress(f"measuring: {done} of {total}"))
    print(f"measured in {time.perf_counter() - started:.0f} s", flush=True)
    sizes = [*options.sizes, *([FULL] if options.full else [])]
    records = []
    for size in sizes:
        for graph in (False, True) if options.graph else (None,):
            records.append(compare(model, rates, size, options, graph=graph))
            print(_line(records[-1]), flush=True)
    print(table_of(records).text())
    if options.json:
        content = {"machine": facts, "records": records}
        options.json.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def compare(
    model: munjang.BiEncoder, rates: Rates, rows: int, options: argparse.Namespace, *, graph: bool | None
) -> Record:
    """One size: predicted and done. graph: forced or forbidden; None leaves it to the size."""
    if graph is not None:
        rates = replace(rates, exact_up_to=0 if graph else 1 << 40)
    layout = IndexOptions(vectors=options.vectors, keyword=options.keyword, exact_up_to=rates.exact_up_to)
    with tempfile.TemporaryDirectory(prefix="munjang-plan-") as scratch:
        progress(f"{rows:,} rows: encoding")
        report = _encode(model, Path(scratch) / "vectors.npy", rows, options.words)
        tokens = report.tokens / report.texts
        progress(f"{rows:,} rows: building")
        done = _build(model, Path(scratch), layout, rows, options.words)
    progress("")
    work = Workload(rows, tokens, vectors=options.vectors, keyword=options.keyword)
    plan = estimate(work, rates)
    pairs = {
        "encode s": (plan.encoding.seconds, report.seconds),
        "build s": (plan.building.seconds, done["seconds"]),
        "build memory": (plan.building.memory, done["peak"]),
        "disk": (plan.disk.total, done["bytes"]),
        "look s": (plan.searching.look, done["search"]),
    }
    return {"rows": rows, "tokens": tokens, "graph": not plan.searching.exact, **pairs}


def _many(rows: int, words: int) -> Iterator[str]:
    for start in range(0, rows, BLOCK):
        yield from texts(min(BLOCK, rows - start), words, seed=1000 + start // BLOCK)


def _encode(model: munjang.BiEncoder, path: Path, rows: int, words: int) -> EncodeReport:
    return model.encode_to(_many(rows, words), path)


def _build(model: munjang.BiEncoder, folder: Path, layout: IndexOptions, rows: int, words: int) -> Record:
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    at = 0

    def ready(texts: list[str], *, progress: object) -> Any:
        nonlocal at
        at += len(texts)
        return np.asarray(vectors[at - len(texts) : at])

    with peak_memory() as memory:
        started = time.perf_counter()
        with Index.create(folder / "index", model, options=layout) as index:
            index.add(
                ({"id": str(number), "text": text} for number, text in enumerate(_many(rows, words))), encode=ready
            )
        seconds = time.perf_counter() - started
    with Index.open(folder / "index", model) as index:
        index.search(np.asarray(vectors[0]))
        times = []
        for number in np.linspace(0, rows - 1, QUERIES).astype(int):
            began = time.perf_counter()
            index.search(np.asarray(vectors[number]))
            times.append(time.perf_counter() - began)
        size: Any = index.describe()["bytes"]
    total = size["documents"] + size["derived"]
    return {"seconds": seconds, "peak": memory.peak or 0.0, "bytes": total, "search": statistics.median(times)}


def table_of(records: Sequence[Record]) -> Table:
    """What happened over what was predicted."""
    names = [name for name, value in records[0].items() if isinstance(value, tuple)]
    table = Table("Happened / predicted", ("rows", "graph", *names))
    for record in records:
        ratios = (f"{record[name][1] / record[name][0]:.2f}" for name in names)
        table.rows.append((f"{record['rows']:,}", "yes" if record["graph"] else "no", *ratios))
    return table


def _line(record: Record) -> str:
    cells = []
    for name, pair in record.items():
        if isinstance(pair, tuple):
            show = show_seconds if name.endswith(" s") else show_bytes
            cells.append(f"{name.removesuffix(' s')} {show(pair[1])} (predicted {show(pair[0])})")
    return f"{record['rows']:,} rows of {record['tokens']:.1f} tokens: {', '.join(cells)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", type=Path, help="model folder; by default all-MiniLM-L6-v2")
    add("--averaged", action="store_true", help="its word embeddings alone, for sizes that would take hours to encode")
    add("--device", default="cpu", help="where texts are encoded (cpu)")
    add(
        "--sizes",
        type=lambda text: [int(one) for one in text.split(",")],
        default=list(SIZES),
        help="rows, with commas",
    )
    add("--full", action="store_true", help="1,000,000 rows too")
    add("--words", type=int, default=12, help="of a text")
    add("--vectors", choices=["float32", "int8", "binary"], default="float32")
    add("--keyword", action=argparse.BooleanOptionalAction, default=True)
    add("--graph", action="store_true", help="every size without and with a graph")
    add("--seconds", type=float, default=3.0, help="of measuring each length of texts")
    add("--measure-rows", type=int, default=10_000, help="of the largest index that is measured")
    add("--json", type=Path, metavar="FILE", help="every measurement")
    return parser


if __name__ == "__main__":
    sys.exit(main())
