"""`munjang map`: texts -> a picture of them, near what is alike."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_model, add_reading, load_model, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError

if TYPE_CHECKING:
    from munjang.tasks.map import Labels

_SUFFIXES = (".html", ".png")
_EXAMPLES = """\
examples:
  munjang map reviews.txt -o map.html                        hover over a point to read its text
  munjang map reviews.txt -o map.html --clusters             colours and names for clusters; how many is found out
  munjang map news.csv --column 본문 --labels 분류 -o map.png   colours by a column of the file
  munjang map news.csv --column 본문 --clusters 8 --method tsne --seed 3 -o map.html

The page works offline and sends nothing anywhere. Texts that are alike lie near each other; how far clusters are
apart means little.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "map",
        parents=[common],
        help="draw texts as a map",
        description="Put texts into the plane, near what is alike, as one HTML page or a PNG picture.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="texts, one a line or row; - is stdin")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="ends in .html or .png")
    colour = parser.add_mutually_exclusive_group()
    colour.add_argument("--labels", metavar="COLUMN", help="colours by this column")
    colour.add_argument(
        "--clusters", nargs="?", const=0, type=positive, metavar="K", help="colours by clusters (default: found out)"
    )
    parser.add_argument("--method", choices=["auto", "umap", "tsne", "pca"], default="auto", help="of the layout")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--title", metavar="TEXT", help="default: the name of the file")
    parser.add_argument(
        "--theme", choices=["auto", "light", "dark"], default="auto", help="auto: as the reader's system"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, encode, lay out, draw."""
    output = Path(args.output)
    if output.suffix.lower() not in _SUFFIXES:
        args.usage_error(f"--output must end in {' or '.join(_SUFFIXES)}, got {args.output!r}")
    if output.exists() and not args.overwrite:
        raise DataError(f"{output} is there already; pass --overwrite to replace it")
    if not output.absolute().parent.is_dir():
        raise DataError(f"{output} cannot be written: there is no folder {output.parent}")
    from munjang.tasks.map import text_map
    from munjang.tasks.projection import choose_method

    rows = list(texts_of(args, [args.file], keep=[args.labels] if args.labels else [])[0].rows())
    texts = [row.text for row in rows]
    if not texts:
        raise InputError("there is nothing to map: no texts")
    method = choose_method(args.method, len(texts))
    vectors = load_model(args, reporter).encode_document(texts, progress=reporter.progress(len(texts)))
    labels: Labels = None
    if args.labels:
        labels = ["" if row.columns[args.labels] is None else str(row.columns[args.labels]) for row in rows]
    elif args.clusters == 0:
        labels = "clusters"
    elif args.clusters is not None:
        from munjang.tasks.cluster import ClusterOptions, cluster

        labels = cluster(vectors, k=args.clusters, options=ClusterOptions(seed=args.seed))
    reporter.say(f"laying out {len(texts):,} texts ({method})")
    found = text_map(texts, vectors=vectors, labels=labels, method=args.method, seed=args.seed)
    title = args.title if args.title is not None else ("texts" if args.file == "-" else Path(args.file).stem)
    if output.suffix.lower() == ".html":
        found.html(output, title=title, theme=args.theme)
    else:
        found.png(output, title=title, dark=args.theme == "dark")
