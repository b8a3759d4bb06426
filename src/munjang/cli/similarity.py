"""`munjang similarity`: two sets of texts -> every similarity, or the nearest neighbours of each."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, get_args

from munjang.cli.options import add_model, add_prompts, add_reading, load_model, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from munjang.files import atomic_path
from munjang.report.tables import shorten, table
from munjang.types import Similarity

if TYPE_CHECKING:
    import numpy as np

    from munjang.bi_encoder import BiEncoder
    from munjang.vectors import TopK

_SUFFIXES = (".npy", ".csv", ".jsonl")
_SHOWN = 20  # rows and columns that a table on a terminal may have
_BLOCK = 4_000_000  # similarities held at once
_EXAMPLES = """\
examples:
  munjang similarity --text "비가 온다" --text "It is raining" --text "주가가 올랐다"
  munjang similarity a.txt b.txt --output matrix.npy         row i, column j: line i of a with line j of b
  munjang similarity queries.txt corpus.txt --top 5          the five nearest of the corpus for every query
  munjang similarity --text "환불은 어떻게 하나요?" faq.csv --column question --top 3
  munjang similarity corpus.txt --top 3 --output pairs.csv   neighbours within one file
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "similarity",
        parents=[common],
        help="compare texts with texts",
        description="Compare every text of A with every text of B, or of A itself. With --text, those texts are A,"
        " and a file is B.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="A and B: files of texts; - is stdin")
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text of A; may be repeated")
    parser.add_argument("--top", type=positive, metavar="K", help="only the K nearest of B for each text of A")
    parser.add_argument("--kind", choices=get_args(Similarity), help="default: the model's own; greater is nearer")
    parser.add_argument("-o", "--output", metavar="FILE", help="ends in .npy, .csv or .jsonl (default: a table)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--asymmetric", action="store_true", help="A are queries and B documents: use the model's prompts for them"
    )
    add_prompts(parser)
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, encode, compare, print or write."""
    _check_usage(args)
    inputs = [list(texts) for texts in texts_of(args, args.files)]
    groups = [args.text, *inputs] if args.text else inputs
    a_texts, b_texts = groups[0], groups[-1]
    _check_sizes(args, len(a_texts), len(b_texts))
    model = load_model(args, reporter)
    a = _encode(model, a_texts, "query", args, reporter)
    b = a if len(groups) == 1 else _encode(model, b_texts, "document", args, reporter)
    kind = args.kind or model.similarity_name
    if args.top is None:
        _matrix(args.output, (a_texts, b_texts), (a, b), kind)
        return
    from munjang.vectors import top_k

    most = len(b_texts) - (len(groups) == 1)
    if most < 1:
        raise InputError(f"there is nothing to compare with: {len(b_texts)} texts")
    if not a_texts:
        raise InputError("there is no text to find neighbours for")
    found = top_k(a, b, min(args.top, most), kind=kind, exclude_self=len(groups) == 1)
    _neighbours(args.output, (a_texts, b_texts), found)


def _check_usage(args: argparse.Namespace) -> None:
    given = len(args.files) + bool(args.text)
    if not 1 <= given <= 2:
        args.usage_error("expected one or two sets of texts: A, A and B, --text ..., or --text ... and B")
    if args.asymmetric and (given != 2 or args.prompt is not None or args.prompt_name is not None):
        args.usage_error("--asymmetric needs A and B, and takes the prompts from the model")
    if args.output is None:
        return
    suffix = Path(args.output).suffix.lower()
    allowed = _SUFFIXES if args.top is None else _SUFFIXES[1:]
    if suffix not in allowed:
        args.usage_error(f"--output must end in {', '.join(allowed)}, got {args.output!r}")
    if Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _check_sizes(args: argparse.Namespace, a: int, b: int) -> None:
    if args.output is None and args.top is None and max(a, b) > _SHOWN:
        raise InputError(
            f"a table of {a:,} x {b:,} similarities is too large to show (at most {_SHOWN} x {_SHOWN}):"
            " pass --output FILE for all of them, or --top K for the nearest"
        )


def _encode(
    model: BiEncoder, texts: Sequence[str], role: str, args: argparse.Namespace, reporter: Reporter
) -> np.ndarray:
    progress = reporter.progress(len(texts))
    if args.asymmetric:
        encode = model.encode_query if role == "query" else model.encode_document
        return encode(texts, progress=progress)
    return model.encode(texts, prompt=args.prompt, prompt_name=args.prompt_name, progress=progress)


def _blocks(vectors: tuple[np.ndarray, np.ndarray], kind: Similarity) -> Iterator[tuple[int, np.ndarray]]:
    """The matrix in bands of rows, so that only one is in memory."""
    from munjang.vectors import similarity

    a, b = vectors
    step = max(1, _BLOCK // max(1, len(b)))
    for start in range(0, len(a), step):
        yield start, similarity(a[start : start + step], b, kind)


def _matrix(
    output: str | None,
    texts: tuple[Sequence[str], Sequence[str]],
    vectors: tuple[np.ndarray, np.ndarray],
    kind: Similarity,
) -> None:
    a_texts, b_texts = texts
    bands = _blocks(vectors, kind)
    if output is None:
        header = ["", *(shorten(text, 12) for text in b_texts)]
        body = [
            [shorten(a_texts[start + row], 40), *(f"{score:.3f}" for score in scores)]
            for start, band in bands
            for row, scores in enumerate(band)
        ]
        print(table([header, *body], right=range(1, len(header))))
    elif output.lower().endswith(".npy"):
        from munjang.vectors.files import create_npy

        with create_npy(output, (len(a_texts), len(b_texts)), "<f4") as matrix:
            for start, band in bands:
                matrix[start : start + len(band)] = band
    else:
        rows = (
            (a_texts[start + row], [float(f"{score:.7g}") for score in scores])
            for start, band in bands
            for row, scores in enumerate(band)
        )
        with written(output) as file:
            if output.lower().endswith(".csv"):
                writer = csv.writer(file)
                writer.writerow(["text", *b_texts])
                writer.writerows([text, *scores] for text, scores in rows)
            else:
                for text, scores in rows:
                    file.write(json.dumps({"text": text, "scores": scores}, ensure_ascii=False) + "\n")


def _neighbours(output: str | None, texts: tuple[Sequence[str], Sequence[str]], found: TopK[np.ndarray]) -> None:
    a_texts, b_texts = texts
    ranked = zip(a_texts, found.indices.tolist(), found.scores.tolist(), strict=True)
    if output is None:
        for number, (text, indices, scores) in enumerate(ranked):
            rows = [
                [f"  {score:.4f}", str(row), shorten(b_texts[row], 90)]
                for row, score in zip(indices, scores, strict=True)
            ]
            print(f"{number}  {shorten(text, 100)}\n{table(rows, right=(1,))}")
        return
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["row", "text", "rank", "neighbour_row", "neighbour", "score"])
            for number, (text, indices, scores) in enumerate(ranked):
                writer.writerows(
                    [number, text, rank, row, b_texts[row], f"{score:.7g}"]
                    for rank, (row, score) in enumerate(zip(indices, scores, strict=True), start=1)
                )
        else:
            for text, indices, scores in ranked:
                near = [
                    {"row": row, "text": b_texts[row], "score": float(f"{score:.7g}")}
                    for row, score in zip(indices, scores, strict=True)
                ]
                file.write(json.dumps({"text": text, "neighbours": near}, ensure_ascii=False) + "\n")


@contextmanager
def written(output: str) -> Iterator[TextIO]:
    """A text file that appears under its name only when it is whole."""
    is_csv = output.lower().endswith(".csv")
    # Excel takes csv without a byte order mark for cp949; newline="" leaves line ends to the csv module.
    encoding, newline = ("utf-8-sig", "") if is_csv else ("utf-8", "\n")
    with atomic_path(Path(output)) as temporary, open(temporary, "w", encoding=encoding, newline=newline) as file:
        yield file
