"""`munjang mine`: a file of texts -> the pairs of them that mean the same, or groups of near duplicates."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from munjang.cli.cluster import add_vectors, check_output, vectors_or_model
from munjang.cli.options import add_model, add_reading, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.similarity import written
from munjang.errors import InputError
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder
    from munjang.tasks.neighbours_input import TextsOrVectors
    from munjang.tasks.paraphrase_groups import Duplicates
    from munjang.tasks.paraphrases import MiningOptions, Paraphrases

_SUFFIXES = (".csv", ".jsonl")
_SHOWN = 20  # pairs or groups that are printed where no number is given
_EXAMPLES = """\
examples:
  munjang mine questions.txt                                the 20 pairs that are most alike
  munjang mine questions.txt --threshold 0.95 -o pairs.csv  all pairs from a cosine of 0.95 on, written as found
  munjang mine questions.txt --top 1000 -o pairs.jsonl      the best thousand, best first
  munjang mine reviews.csv --column 본문 --groups            groups of texts that say nearly the same
  munjang mine corpus.txt --groups --threshold 0.97 -o groups.csv
  munjang mine corpus.txt --vectors corpus.npy --threshold 0.95 --approximate -o pairs.csv

Rows count from 0. A threshold is a cosine; without --threshold and --top, --output and --groups take the one that was
measured for the model, where there is one (`munjang info` shows it). Every pair comes once. The answer is exact unless
--approximate is given, and memory stays bounded either way.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "mine",
        parents=[common],
        help="find texts that mean the same",
        description="Find all pairs of texts of a file that mean the same, or the groups that they form.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="file of texts; - is stdin")
    parser.add_argument("--threshold", type=float, metavar="T", help="the least cosine of a pair")
    parser.add_argument(
        "--top", type=positive, metavar="N", help="only the N best pairs (of groups: the N largest shown)"
    )
    parser.add_argument(
        "--per-text", type=positive, metavar="N", help="only pairs among the N best of one of their texts"
    )
    parser.add_argument("--groups", action="store_true", help="groups of near duplicates instead of pairs")
    parser.add_argument(
        "--approximate", action="store_true", help="through FAISS: may miss pairs; for millions of texts"
    )
    parser.add_argument(
        "--memory-mb", type=float, metavar="MB", help="for tiles of the comparison (default: 64; GPU: 2048)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="ends in .csv or .jsonl (default: a table)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_vectors(parser)
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, mine, print or write."""
    check_output(args, _SUFFIXES)
    if args.groups and args.per_text is not None:
        args.usage_error("--groups are joined by all pairs: --per-text does not go with it")
    texts = list(texts_of(args, [args.file])[0])
    if len(texts) < 2:
        raise InputError(f"{args.file} has {len(texts)} texts: pairs need two or more")
    all_of_them = args.groups or (args.output is not None and args.top is None)
    needs_model = args.threshold is None and all_of_them
    ready, model = vectors_or_model(args, len(texts), reporter, needs_model=needs_model)
    data = texts if ready is None else ready
    if args.groups:
        _groups(args, (texts, data, model), reporter)
    elif args.output is not None and args.top is None and args.per_text is None:
        _stream(args, (texts, data, model), reporter)
    else:
        _pairs(args, (texts, data, model), reporter)


_Given = tuple[Sequence[str], "TextsOrVectors", "BiEncoder | None"]  # texts, what is mined, the model


def _options(args: argparse.Namespace) -> MiningOptions:
    from munjang.tasks.paraphrases import MiningOptions

    return MiningOptions(device=args.device, memory_mb=args.memory_mb, approximate=args.approximate)


def _pairs(args: argparse.Namespace, given: _Given, reporter: Reporter) -> None:
    """Sorted pairs: the best, or the nearest of every text."""
    from munjang.tasks.paraphrases import mine_paraphrases

    texts, data, model = given
    found = mine_paraphrases(
        data,
        model,
        threshold=args.threshold,
        top=args.top if args.top is not None or args.output is not None else _SHOWN,
        per_text=args.per_text,
        options=_options(args),
        progress=reporter.progress(len(texts)),
    )
    if args.output is None:
        header = ["score", "row", "row", "text", "text"]
        rows = [
            [f"{score:.4f}", str(left), str(right), shorten(texts[left], 60), shorten(texts[right], 60)]
            for score, left, right in found
        ]
        print(table([header, *rows], right=(0, 1, 2)))
    else:
        with _pair_writer(args.output, texts) as write:
            write(found)
    reporter.say(f"{len(found):,} pairs of {len(texts):,} texts in {found.seconds:.1f} s")


def _stream(args: argparse.Namespace, given: _Given, reporter: Reporter) -> None:
    """All pairs above the threshold, written as they are found."""
    from munjang.tasks.paraphrases import stream_paraphrases

    texts, data, model = given
    blocks = stream_paraphrases(
        data, model, threshold=args.threshold, options=_options(args), progress=reporter.progress(len(texts))
    )
    count = 0
    with _pair_writer(args.output, texts) as write:
        for block in blocks:
            write(block)
            count += len(block)
    reporter.say(f"{count:,} pairs of {len(texts):,} texts")


def _groups(args: argparse.Namespace, given: _Given, reporter: Reporter) -> None:
    from munjang.tasks.paraphrases import near_duplicates

    texts, data, model = given
    found = near_duplicates(
        data, model, threshold=args.threshold, options=_options(args), progress=reporter.progress(len(texts))
    )
    if args.output is None:
        for number, group in enumerate(found.groups[: args.top or _SHOWN]):
            print(f"{number}  {len(group):,} texts")
            print(table([["", str(row), shorten(texts[row], 100)] for row in group[:10].tolist()], right=(1,)))
            if len(group) > 10:
                print(f"  ... and {len(group) - 10:,} more")
        if len(found) > (args.top or _SHOWN):
            print(f"... and {len(found) - (args.top or _SHOWN):,} more groups (--output writes all)")
    else:
        _write_groups(args.output, texts, found)
    reporter.say(
        f"{len(found):,} groups; {len(found.kept):,} of {len(texts):,} texts remain when one of each group is kept"
    )


@contextmanager
def _pair_writer(output: str, texts: Sequence[str]) -> Iterator[Callable[[Paraphrases], None]]:
    """A function that writes pairs, to a file that appears when it is whole."""

    def rows(found: Paraphrases) -> Iterable[tuple[float, int, int, str, str]]:
        for score, left, right in found:
            yield float(f"{score:.7g}"), left, right, texts[left], texts[right]

    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["score", "left", "right", "left_text", "right_text"])
            yield lambda found: writer.writerows(rows(found))
        else:
            names = ("score", "left", "right", "left_text", "right_text")
            yield lambda found: file.writelines(
                json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows(found)
            )


def _write_groups(output: str, texts: Sequence[str], found: Duplicates) -> None:
    """Every text of a group: which group, and whether it is the one to keep."""
    rows = (
        (number, row, int(place == 0), texts[row])
        for number, group in enumerate(found.groups)
        for place, row in enumerate(group.tolist())
    )
    names = ("group", "row", "kept", "text")
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
