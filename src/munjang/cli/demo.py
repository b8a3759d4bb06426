"""`munjang demo`: a corpus of ours, or files of yours, searched on a page in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from munjang import bundled
from munjang.cli.progress import Reporter

_EXAMPLES = f"""\
examples:
  munjang demo
  munjang demo --docs notes/
  munjang demo --docs faq.csv manual.md --column question --port 9000
  munjang demo --docs reviews.jsonl --index reviews-index --no-browser
  munjang demo --index reviews-index

Without --docs it is a sample of about 700 short passages, Korean and English. --docs takes folders (every .txt and .md
in them is a document), .md files (one document each), and files of rows or lines (csv, tsv, jsonl, json, parquet, txt).
The index is kept in the cache folder of the user ($MUNJANG_CACHE names another) and used again until the documents or
the model change; --index keeps it in a place of your own, or shows one that is there.
It serves this machine only and needs no network: {bundled.BI_ENCODER} and {bundled.RERANKER} are in the package.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        parents=[common],
        help="search a sample, or your own files, on a page in the browser",
        description="Make an index of a sample corpus or of your own files, and search it on a page in the browser.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--docs", nargs="+", default=[], metavar="PATH", help="your own files and folders")
    parser.add_argument("--column", metavar="C", help="column that holds the texts of --docs")
    parser.add_argument("--index", type=Path, metavar="PATH", help="show this index, or make it here")
    parser.add_argument("--rebuild", action="store_true", help="make the cached index anew")
    parser.add_argument("--port", type=port, default=8000, metavar="N", help="8000 or the next free one; 0 is any")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--model", metavar="M", help=f"bi-encoder (that of MUNJANG_MODEL, else {bundled.BI_ENCODER})")
    parser.add_argument(
        "--reranker", metavar="R", help=f"cross-encoder (that of MUNJANG_RERANKER, else {bundled.RERANKER})"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, only the address")
    parser.set_defaults(run=run, usage_error=parser.error)


def port(value: str) -> int:
    """A port, for argparse."""
    number = int(value)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"must be 0..65535, got {value}")
    return number


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Serve the demo until Ctrl-C."""
    from munjang import demo
    from munjang.cli.options import model_name

    options = demo.DemoOptions(
        docs=tuple(args.docs),
        column=args.column,
        index=args.index,
        model=args.model and model_name(args.model),
        reranker=args.reranker and model_name(args.reranker),
        device=args.device,
        port=args.port,
        browser=not args.no_browser,
        rebuild=args.rebuild,
    )
    demo.run(options, say=reporter.say, tell=lambda line: print(line, flush=True), progress=reporter.progress(None))
