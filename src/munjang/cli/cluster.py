"""`munjang cluster`: a file of texts -> groups that belong together, with a representative and keywords of each."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_model, add_reading, load_model, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.similarity import written
from munjang.errors import DataError, InputError
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder
    from munjang.tasks.cluster import Clustering
    from munjang.vectors.similarity import Array

_SUFFIXES = (".csv", ".jsonl")
_METHODS = ("kmeans", "communities", "agglomerative", "hdbscan")
_LINKAGES = ("average", "complete", "single")
_EXAMPLES = """\
examples:
  munjang cluster questions.txt                                    as many clusters as the silhouette finds
  munjang cluster reviews.csv --column 본문 --k 12 -o labelled.csv  every text with the number of its cluster
  munjang cluster questions.txt --method communities --threshold 0.92 --min-size 3
  munjang cluster questions.txt --method agglomerative --threshold 0.9
  munjang cluster questions.txt --method hdbscan --min-size 5
  munjang cluster corpus.txt --vectors corpus.npy --k 50           vectors that `munjang encode` wrote before
  cat questions.txt | munjang cluster - --k 5

The table goes to stdout: number, size, cohesion (the mean cosine to the middle of the cluster), keywords, and the text
that stands for the cluster. Texts in no cluster have the number -1 in the output file. A threshold is a cosine; without
--threshold it is the one that was measured for the model, where there is one (`munjang info` shows it).
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "cluster",
        parents=[common],
        help="group texts that belong together",
        description="Group the texts of a file, and tell of each group what it is about.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="file of texts; - is stdin")
    parser.add_argument("--method", choices=_METHODS, default="kmeans", help="default: kmeans")
    parser.add_argument("-k", "--k", type=positive, metavar="N", help="number of clusters (kmeans, agglomerative)")
    parser.add_argument("--threshold", type=float, metavar="T", help="least cosine (communities, agglomerative)")
    parser.add_argument("--min-size", type=positive, metavar="N", help="of communities (default 10) and hdbscan (5)")
    parser.add_argument("--most-k", type=positive, metavar="N", help="the largest k to try where --k is not given")
    parser.add_argument("--linkage", choices=_LINKAGES, default="average", help="of agglomerative (default: average)")
    parser.add_argument("--keywords", type=int, default=5, metavar="N", help="words per cluster (default: 5; 0: none)")
    parser.add_argument("--seed", type=int, default=0, help="of k-means (default: 0)")
    parser.add_argument("-o", "--output", metavar="FILE", help="texts with labels: ends in .csv or .jsonl")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_vectors(parser)
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, cluster, print the table, write the labels."""
    check_output(args, _SUFFIXES)
    texts = list(texts_of(args, [args.file])[0])
    if not texts:
        raise InputError(f"{args.file} has no texts: there is nothing to cluster")
    found = _clustered(args, texts, reporter)
    print(_table(found))
    inside = int((found.labels >= 0).sum())
    reporter.say(f"{found.k:,} clusters of {inside:,} of {len(texts):,} texts in {found.seconds:.1f} s")
    if args.output is not None:
        _write(args.output, texts, found)


def _clustered(args: argparse.Namespace, texts: Sequence[str], reporter: Reporter) -> Clustering:
    from munjang.tasks.cluster import ClusterOptions, cluster

    ready, model = vectors_or_model(args, len(texts), reporter, needs_model=_needs_threshold(args))
    options = ClusterOptions(
        seed=args.seed,
        device=args.device,
        most_k=args.most_k,
        linkage=args.linkage,
        keywords=max(0, args.keywords),
        texts=None if ready is None else texts,
    )
    return cluster(
        texts if ready is None else ready,
        model,
        method=args.method,
        k=args.k,
        threshold=args.threshold,
        min_size=args.min_size,
        options=options,
        progress=reporter.progress(len(texts)),
    )


def _needs_threshold(args: argparse.Namespace) -> bool:
    wants = args.method == "communities" or (args.method == "agglomerative" and args.k is None)
    return wants and args.threshold is None


def _table(found: Clustering) -> str:
    header = ["", "size", "cohesion", "keywords", "representative"]
    rows = [
        [
            str(one.number),
            f"{one.size:,}",
            f"{one.cohesion:.3f}",
            shorten(", ".join(one.keywords), 40),
            shorten(one.representative.text or "", 70),
        ]
        for one in found.clusters
    ]
    return table([header, *rows], right=(0, 1, 2))


def _write(output: str, texts: Sequence[str], found: Clustering) -> None:
    central = {one.representative.index for one in found.clusters}
    rows = ((row, label, row in central, texts[row]) for row, label in enumerate(found.labels.tolist()))
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["row", "cluster", "representative", "text"])
            writer.writerows([row, label, int(stands), text] for row, label, stands, text in rows)
        else:
            for row, label, stands, text in rows:
                record = {"row": row, "cluster": label, "representative": stands, "text": text}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


# --- shared with `munjang mine` --------------------------------------------------------------------------------------


def add_vectors(parser: argparse.ArgumentParser) -> None:
    """--vectors: what was encoded before."""
    parser.add_argument(
        "--vectors",
        metavar="NPY",
        help="ready vectors of the same texts, in their order; a model then only has thresholds",
    )


def check_output(args: argparse.Namespace, suffixes: Sequence[str]) -> None:
    """The output must have a format that is known, and not be there already."""
    if args.output is None:
        return
    if Path(args.output).suffix.lower() not in suffixes:
        args.usage_error(f"--output must end in {' or '.join(suffixes)}, got {args.output!r}")
    if Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def vectors_or_model(
    args: argparse.Namespace, count: int, reporter: Reporter, *, needs_model: bool
) -> tuple[Array | None, BiEncoder | None]:
    """The vectors of --vectors, one for each text, read as they are needed; a model where something needs one."""
    ready = None if args.vectors is None else _read_vectors(args.vectors, count)
    return ready, load_model(args, reporter) if ready is None or needs_model else None


def _read_vectors(path: str, count: int) -> Array:
    from munjang.vectors import read_vectors

    vectors = read_vectors(path)
    if len(vectors) != count:
        raise DataError(f"{path}: expected one vector for each of the {count:,} texts, got shape {vectors.shape}")
    return vectors
