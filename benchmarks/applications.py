"""`python -m benchmarks.applications --data DIR`: how good the applications are, on public sets, beside the peers.

    models -> vectors, once -> mining, clustering, classification -> tables -> stdout, the pages in both languages

`--model NAME=PATH` may be given several times; sentence-transformers' and scikit-learn's functions get the vectors of
the first. `--write` puts the tables into docs/paraphrases, docs/clustering and docs/classification, English and Korean.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import classification, clustering_quality, mining_quality
from benchmarks.application_vectors import Asked
from benchmarks.models import minilm
from benchmarks.twins import TwinTable, check_pages, write_pages

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"mining": "paraphrases", "clustering": "clustering", "classification": "classification"}  # job -> its page


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the pages where that is asked."""
    args = _parser().parse_args(argv)
    if args.write:
        for job in args.jobs:
            check_pages(args.docs, PAGES[job], job)
    given = args.model or [f"all-MiniLM-L6-v2={minilm()}"]
    asked = [Asked.load(one, args.cache, device=args.device) for one in given]
    names = [one.name for one in asked]
    if len(set(names)) < len(names):
        raise SystemExit(f"every --model needs a name of its own, got {', '.join(names)}")
    for job in args.jobs:
        began = time.perf_counter()
        tables = _work(job, args, asked)()
        for table in tables:
            print(table.table("en").text(), flush=True)
        print(f"\n{job}: {time.perf_counter() - began:.0f} s", flush=True)
        if args.write:
            write_pages(args.docs, PAGES[job], job, tables)
    return 0


def _work(job: str, args: argparse.Namespace, asked: Sequence[Asked]) -> Callable[[], list[TwinTable]]:
    if job == "mining":
        return lambda: mining_quality.measure(args.data, asked, limit=args.limit)
    if job == "clustering":
        return lambda: clustering_quality.measure(args.data, asked, sets=args.sets, seeds=args.seeds, limit=args.limit)
    return lambda: classification.measure(
        args.data, asked, sets=args.sets, seeds=args.seeds, limit=args.limit, fine_tune=args.fine_tune
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.applications", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--data", type=Path, required=True, help="the folder of public data sets")
    add(
        "--model",
        action="append",
        metavar="NAME=PATH",
        help="a folder, bundled name or hub id, and the name that tables show (default: all-MiniLM-L6-v2)",
    )
    add("--jobs", nargs="+", choices=list(PAGES), default=list(PAGES))
    add("--sets", nargs="+", choices=classification.SETS, default=list(classification.SETS), help="not of mining")
    add("--seeds", type=int, default=5)
    add("--limit", type=int, help="use so many rows of every split (for a quick look)")
    add("--fine-tune", action="store_true", help="classification: also train the body on pairs (SetFit), slow")
    add("--device")
    own = Path(tempfile.gettempdir()) / f"munjang-applications-{os.getuid()}"
    add("--cache", type=Path, default=own, help=f"where vectors are kept ({own})")
    add("--write", action="store_true", help="put the tables into the pages")
    add("--docs", type=Path, default=DOCS, help="the folder of the pages")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
