"""`munjang keywords`: texts -> the phrases that say what each is about."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_model, add_reading, load_model, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.similarity import written
from munjang.errors import DataError, InputError
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.tasks.keywords import Diversity, Keyword

_SUFFIXES = (".csv", ".jsonl")
_EXAMPLES = """\
examples:
  munjang keywords --text "태양광 패널은 햇빛을 전기로 바꾼다. 가정용 배터리는 남은 전력을 저장한다."
  munjang keywords articles.csv --column 본문 --top 8 --output keywords.csv
  munjang keywords notes.txt --diversity max-sum             the set of phrases that are least alike
  munjang keywords notes.txt --diversity-weight 0.7          more variety, less closeness (mmr)
  munjang keywords reviews.txt --candidates tags.txt         rate given phrases, one a line, instead of the text's own

Korean phrases are nouns and noun phrases without particles (pip install 'munjang[korean]'), English ones are
runs of up to three words. A score is the cosine of the phrase with the whole text.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "keywords",
        parents=[common],
        help="find the keywords of texts",
        description="Find the phrases of each text that lie nearest to the whole of it and are unlike each other.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="texts, one a line or row; - is stdin")
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text; may be repeated")
    parser.add_argument("--top", type=positive, default=5, metavar="K", help="keywords of each text (default: 5)")
    parser.add_argument(
        "--diversity",
        choices=["mmr", "max-sum", "none"],
        default="mmr",
        help="how to keep them unlike each other (default: mmr)",
    )
    parser.add_argument(
        "--diversity-weight",
        type=float,
        metavar="W",
        help="of mmr: 0 looks at closeness alone, 1 at variety alone (default: 0.5)",
    )
    parser.add_argument(
        "--ngrams", type=_ngrams, default=(1, 3), metavar="A-B", help="words of a phrase (default: 1-3)"
    )
    parser.add_argument("--language", choices=["auto", "ko", "en"], default="auto", help="how to find phrases")
    parser.add_argument("--candidates", metavar="FILE", help="rate these phrases, one a line")
    parser.add_argument("-o", "--output", metavar="FILE", help="ends in .csv or .jsonl (default: a list on stdout)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, find, print or write."""
    _check_usage(args)
    from munjang.tasks.keywords import keywords_of_many

    candidates = _candidates(args.candidates)
    texts = args.text or list(texts_of(args, [args.file])[0])
    if not texts:
        raise InputError("there is no text to find keywords of")
    found = keywords_of_many(
        texts,
        load_model(args, reporter),
        top=args.top,
        diversity=_diversity(args),
        candidates=candidates,
        ngrams=args.ngrams,
        language=args.language,
        progress=reporter.progress(len(texts)),
    )
    if args.output is None:
        for line in _lines(zip(texts, found, strict=True), many=len(texts) > 1):
            print(line)
    else:
        _write(args.output, zip(texts, found, strict=True))


def _check_usage(args: argparse.Namespace) -> None:
    if (args.file is None) == (not args.text):
        args.usage_error("expected FILE or --text TEXT")
    if args.diversity_weight is not None and args.diversity != "mmr":
        args.usage_error("--diversity-weight belongs to --diversity mmr")
    if args.output is None:
        return
    if Path(args.output).suffix.lower() not in _SUFFIXES:
        args.usage_error(f"--output must end in {' or '.join(_SUFFIXES)}, got {args.output!r}")
    if Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _ngrams(value: str) -> tuple[int, int]:
    """'1-3' or '2', for argparse."""
    try:
        first, _, last = value.partition("-")
        fewest, most = int(first), int(last or first)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected words like 1-3, got {value!r}") from error
    if not 1 <= fewest <= most <= 10:
        raise argparse.ArgumentTypeError(f"expected words like 1-3, within 1..10, got {value!r}")
    return fewest, most


def _diversity(args: argparse.Namespace) -> Diversity:
    from munjang.tasks.keywords import MMR, MaxSum

    if args.diversity == "mmr":
        return MMR() if args.diversity_weight is None else MMR(args.diversity_weight)
    return MaxSum(max(20, args.top)) if args.diversity == "max-sum" else None


def _candidates(path: str | None) -> list[str] | None:
    if path is None:
        return None
    from munjang.data.files import read_lines

    phrases = [line.strip() for line in read_lines(path) if line.strip()]
    if not phrases:
        raise DataError(f"{path} holds no candidates: expected one phrase a line")
    return phrases


def _lines(rows: Iterable[tuple[str, tuple[Keyword, ...]]], *, many: bool) -> Iterator[str]:
    for number, (text, found) in enumerate(rows):
        cells = [[f"{'  ' * many}{one.score:.3f}", one.text, f"{len(one.places)}x"] for one in found]
        if many:
            yield f"{number}  {shorten(text, 100)}"
        yield table(cells, right=(2,)) if cells else f"{'  ' * many}(no keywords)"


def _write(output: str, rows: Iterable[tuple[str, tuple[Keyword, ...]]]) -> None:
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["row", "rank", "keyword", "score", "places"])
            for number, (_, found) in enumerate(rows):
                writer.writerows(
                    [number, rank, one.text, f"{one.score:.6g}", " ".join(f"{a}-{b}" for a, b in one.places)]
                    for rank, one in enumerate(found, start=1)
                )
        else:
            for text, found in rows:
                words = [
                    {
                        "text": one.text,
                        "score": float(f"{one.score:.6g}"),
                        "places": [list(place) for place in one.places],
                    }
                    for one in found
                ]
                file.write(json.dumps({"text": text, "keywords": words}, ensure_ascii=False) + "\n")
