"""`python -m benchmarks.index`: the dense vectors of an index beside plain faiss, on the same vectors, in one run.

    vectors (a file, texts to encode, or generated) -> index_measure.py -> tables -> stdout, page, JSON

Nothing here passes or fails: it measures. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine, models, page
from benchmarks.index_measure import LAYOUTS, SHARES, K, Plan, Record, measure, opened, rate, ratio
from benchmarks.page import Table
from benchmarks.timing import progress

Floats = NDArray[np.float32]
MARKS = ("<!-- index:begin -->", "<!-- index:end -->")
HOW = """{vectors}; {queries} of them are kept out as queries. Both sides hold the same vectors; graphs have the same
settings. Recall counts an answer as right if it is as near as the {k}-th best by brute force. The sides take turns,
{repeats} times after a warm-up; a speed is that of the median repetition, "of faiss" the median of the ratios within a
round, with the lowest and the highest in brackets. int8 and binary are rescored with the true vectors, which here come
from memory and in an index from its database; faiss's side answers without rescoring. Opening and memory are measured
in a process of its own; memory is what opening adds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    unknown = sorted(set(options.layouts) - set(LAYOUTS))
    if unknown or not options.layouts:
        raise SystemExit(f"--layouts must be of {', '.join(LAYOUTS)}, got {', '.join(unknown) or 'none'}")
    facts = machine.describe("cpu")
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    vectors, meaning = _vectors(options)
    if len(vectors) <= options.queries:
        raise SystemExit(f"--queries must be below the {len(vectors)} rows, got {options.queries}")
    queries, rows = vectors[-options.queries :], vectors[: -options.queries]
    records: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="munjang-bench-") as scratch:
        plan = Plan(options.repeats, min(options.singles, len(queries)), Path(scratch))
        np.save(plan.folder / "rows.npy", rows)
        for layout in options.layouts:
            record = measure(layout, rows, queries, plan)
            records.append(record | opened(layout, plan.folder / "rows.npy", plan.folder))
        progress("")
    tables = [recall_table(records), speed_table(records), cost_table(records)]
    print("\n".join(table.text() for table in tables))
    if options.json:
        options.json.write_text(json.dumps({"machine": facts, "records": records}, indent=1) + "\n", encoding="utf-8")
    if options.write:
        how = HOW.format(vectors=meaning, queries=f"{len(queries):,}", k=K, repeats=options.repeats)
        command = "python -m benchmarks.index " + " ".join(re.sub(r"^/\S*/([^/\s]+)$", r"\1", one) for one in given)
        write(options.write, command.strip(), facts, tables, how)
        print(f"\nwritten: {options.write}")
    return 0


def recall_table(records: Sequence[Record]) -> Table:
    """How much of the brute-force answer is found."""
    names = ["no filter", *(f"{share:.1%} pass".replace(".0%", "%") for share in SHARES[1:])]
    table = Table(f"Recall@{K} of an index", ("layout", "rows", "graph", *names))
    for record in records:
        values = (f"{record['recall'][f'{share:g}']:.4f}" for share in SHARES)
        table.rows.append((record["layout"], f"{record['rows']:,}", "yes" if record["graph"] else "no", *values))
    return table


def speed_table(records: Sequence[Record]) -> Table:
    """Queries a second beside plain faiss."""
    columns = ("layout", "one at a time", "faiss", "of faiss", "batched", "faiss", "of faiss")
    table = Table("Queries a second beside plain faiss", columns)
    for record in records:
        cells: list[str] = [record["layout"]]
        for name in ("single", "batch"):
            cells += [f"{rate(record, name):,.0f}", f"{rate(record, f'{name} faiss'):,.0f}", str(ratio(record, name))]
        table.rows.append(tuple(cells))
    return table


def cost_table(records: Sequence[Record]) -> Table:
    """What it takes to make, to open and to hold."""
    columns = (
        "layout",
        "built and saved, rows/s",
        "added to, rows/s",
        "file MB",
        "open s",
        "first answer s",
        "memory MB",
    )
    table = Table("Building, opening, memory", columns)
    for record in records:
        built, added = record["rows"] / record["build and save s"], record["added"] / record["add s"]
        costs = (f"{record['file MB']:,.0f}", f"{record['open s']:.2f}", f"{record['first answer s']:.2f}")
        table.rows.append((record["layout"], f"{built:,.0f}", f"{added:,.0f}", *costs, f"{record['memory MB']:,.0f}"))
    return table


def write(path: Path, command: str, facts: dict[str, str], tables: Sequence[Table], how: str) -> None:
    """Put the part about the index into the page; a page without it gets it at its end."""
    begin, end = MARKS
    text = path.read_text(encoding="utf-8") if path.exists() else page.TITLE
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    if end not in rest:
        raise ValueError(f"{path} has {begin} without {end} behind it: put it back, or delete the part")
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    body = "\n\n".join(table.markdown() for table in tables)
    content = f"## The index\n\n`{command}`\n\n{listed}\n\n{body}\n\n### How the index was measured\n\n{how}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def generated(count: int, dimension: int = 384) -> Floats:
    """Unit vectors that crowd around centres, themselves in a few directions, as those of real texts do."""
    random = np.random.default_rng(20)
    broad = random.standard_normal((40, dimension))
    centres = broad[random.integers(0, 40, 2000)] + 0.9 * random.standard_normal((2000, dimension))
    out = np.empty((count, dimension), dtype=np.float32)
    for start in range(0, count, 20_000):
        some = slice(start, min(start + 20_000, count))
        size = some.stop - some.start
        out[some] = centres[random.integers(0, 2000, size)] + 0.8 * random.standard_normal((size, dimension))
    unit: Floats = out / np.linalg.norm(out, axis=1, keepdims=True)
    return unit


def _vectors(options: argparse.Namespace) -> tuple[Floats, str]:
    if options.vectors:
        found = np.asarray(np.load(options.vectors, mmap_mode="r")[: options.rows], dtype=np.float32)
        found = np.ascontiguousarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))
        return found, f"{len(found):,} vectors of {found.shape[1]} dimensions from `{options.vectors.name}`"
    if options.texts:
        import munjang

        texts = _texts(options.texts)[: options.rows]
        model = munjang.load(options.model or models.minilm(), device=options.device)
        return model.encode(texts, normalize=True, progress=True), f"{len(texts):,} texts of `{options.texts.name}`"
    return generated(options.rows), f"{options.rows:,} generated vectors of 384 dimensions, in clusters"


def _texts(path: Path) -> list[str]:
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return [line.strip() for line in data.decode("utf-8").splitlines() if line.strip()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--rows", type=int, default=200_000, help="at most so many vectors (200,000)")
    add("--vectors", type=Path, metavar="FILE.npy", help="vectors [n, d]; by default generated ones")
    add("--texts", type=Path, metavar="FILE", help="texts to encode, one a line; .xz is unpacked")
    add("--model", type=Path, help="model folder for --texts; by default all-MiniLM-L6-v2")
    add("--device", default="cpu", help="where --texts are encoded (cpu)")
    add("--layouts", type=lambda value: value.split(","), default=list(LAYOUTS), help=f"of {', '.join(LAYOUTS)}")
    add("--queries", type=int, default=1000, help="vectors that are kept out as queries")
    add("--singles", type=int, default=100, help="queries asked one at a time in each repetition")
    add("--repeats", type=int, default=5, help="rounds")
    add("--write", type=Path, metavar="FILE", help="Markdown page; only the part about the index is replaced")
    add("--json", type=Path, metavar="FILE", help="every measurement")
    return parser


if __name__ == "__main__":
    sys.exit(main())
