"""`munjang topics`: texts -> what they are about, as topics with names, words and typical texts."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang.cli.options import add_model, add_reading, load_model, load_named, model_name, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.similarity import written
from munjang.errors import DataError, InputError
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.tasks.topics import Topics
    from munjang.tasks.topics_time import Bins, Period

_TABLES = (".csv", ".jsonl")
_EXAMPLES = """\
examples:
  munjang topics reviews.txt                                 how many topics there are is found out
  munjang topics news.csv --column 본문 -k 12 --tree          twelve topics, and how they join
  munjang topics news.csv --column 본문 --dates 날짜 --bins month
  munjang topics news.csv --column 본문 -o news-topics        a folder: the topics, and documents.csv with a topic each
  munjang topics news.csv --column 본문 -o labelled.csv       only the documents with their topics
  munjang topics today.txt --use news-topics                 new texts, assigned to topics that were found before
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "topics",
        parents=[common],
        help="find the topics of texts",
        description="Cluster texts by meaning and name each cluster by the words that set it apart.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="texts, one a line or row; - is stdin")
    parser.add_argument("-k", type=positive, metavar="K", help="how many topics (default: found out)")
    parser.add_argument("--method", choices=["kmeans", "hdbscan"], default="kmeans", help="default: kmeans")
    parser.add_argument("--min-size", type=positive, metavar="N", help="texts of the smallest topic (hdbscan)")
    parser.add_argument("--reduce", choices=["pca", "umap", "none"], default="pca", help="before clustering")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--language", choices=["auto", "ko", "en"], default="auto", help="how to find words")
    parser.add_argument("--tree", action="store_true", help="also show how the topics join")
    parser.add_argument("--dates", metavar="COLUMN", help="also show the topics over time, by the dates in this column")
    parser.add_argument("--bins", type=_bins, default=10, metavar="B", help="periods: a number, day, month or year")
    parser.add_argument("--use", metavar="FOLDER", help="assign the texts to the topics saved there")
    parser.add_argument("-o", "--output", metavar="OUT", help="a folder, or a table that ends in .csv or .jsonl")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, find or assign, print, write."""
    _check_usage(args)
    from munjang.tasks.topics import TopicOptions, topics
    from munjang.tasks.topics_time import read_date

    rows = list(texts_of(args, [args.file], keep=[args.dates] if args.dates else [])[0].rows())
    texts = [row.text for row in rows]
    dates = [read_date(str(row.columns[args.dates]), number) for number, row in enumerate(rows)] if args.dates else None
    if args.use:
        _assign(args, texts, reporter)
        return
    options = TopicOptions(
        reduce=None if args.reduce == "none" else args.reduce,
        min_size=args.min_size,
        language=args.language,
        seed=args.seed,
    )
    if len(texts) < 2:
        raise InputError(f"topics need at least 2 texts, got {len(texts)}")
    model = load_model(args, reporter)
    found = topics(texts, model, k=args.k, method=args.method, options=options, progress=reporter.progress(len(texts)))
    timeline = () if dates is None else found.over_time(texts, dates, bins=args.bins)
    _show(found, timeline, tree=args.tree)
    if args.output is not None:
        _write(args, found, texts, timeline)


def _check_usage(args: argparse.Namespace) -> None:
    if args.use and (args.k or args.dates or args.tree or args.min_size):
        args.usage_error("--use takes topics as they were saved: leave -k, --dates, --tree and --min-size out")
    if args.use and args.output is not None and Path(args.output).suffix.lower() not in _TABLES:
        args.usage_error(f"with --use, --output must end in {' or '.join(_TABLES)}, got {args.output!r}")
    if args.output is not None and Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _bins(value: str) -> Bins:
    """A number of periods or their length, for argparse."""
    if value in ("day", "month", "year"):
        return value  # type: ignore[return-value]
    return positive(value)


def _assign(args: argparse.Namespace, texts: Sequence[str], reporter: Reporter) -> None:
    from munjang.tasks.topics import Topics

    saved = Topics.load(args.use)
    if args.model is not None:
        saved = saved.with_model(load_named(args, model_name(args.model)))
    assigned = saved.assign(texts, progress=reporter.progress(len(texts)))
    names = {topic.number: topic.name for topic in saved.topics}
    if args.output is not None:
        _documents(args.output, texts, (assigned.topics, assigned.similarities), names)
        return
    cells = [
        [str(label), f"{near:.3f}", shorten(names.get(label, "none"), 36), shorten(text, 70)]
        for label, near, text in zip(assigned.topics.tolist(), assigned.similarities.tolist(), texts, strict=True)
    ]
    print(table([["topic", "cosine", "words", "text"], *cells], right=(0, 1)))


def _show(found: Topics, timeline: Sequence[Period], *, tree: bool) -> None:
    cells = [
        [
            str(topic.number),
            f"{topic.size:,}",
            shorten(", ".join(word.text for word in topic.words[:5]), 48),
            shorten(topic.representatives[0].text, 60),
        ]
        for topic in found.topics
    ]
    print(table([["topic", "texts", "words", "typical text"], *cells], right=(0, 1)))
    none = int((found.labels < 0).sum())
    if none:
        print(f"no topic: {none:,} texts")
    if tree:
        print(f"\n{found.tree()}")
    if timeline:
        print(f"\n{_timeline(found, timeline)}")


def _timeline(found: Topics, timeline: Sequence[Period]) -> str:
    """A row for each period, a column of counts for each of the ten largest topics."""
    shown = found.topics[:10]
    header = ["from", *(shorten(f"{topic.number} {topic.words[0].text if topic.words else ''}", 14) for topic in shown)]
    cells = [
        [period.start.date().isoformat(), *(str(period.counts.get(topic.number, 0)) for topic in shown)]
        for period in timeline
    ]
    return table([header, *cells], right=range(1, len(header)))


def _write(args: argparse.Namespace, found: Topics, texts: Sequence[str], timeline: Sequence[Period]) -> None:
    names = {topic.number: topic.name for topic in found.topics}
    labelled = (found.labels, found.similarities)
    if Path(args.output).suffix.lower() in _TABLES:
        _documents(args.output, texts, labelled, names)
        return
    found.save(args.output)
    _documents(str(Path(args.output) / "documents.csv"), texts, labelled, names)
    if timeline:
        with written(str(Path(args.output) / "timeline.csv")) as file:
            writer = csv.writer(file)
            writer.writerow(["from", "to", "topic", "name", "texts", "words"])
            writer.writerows(
                [period.start.isoformat(), period.end.isoformat(), topic, names[topic], count, _words(period, topic)]
                for period in timeline
                for topic, count in period.counts.items()
            )


def _words(period: Period, topic: int) -> str:
    return " ".join(word.text for word in period.words.get(topic, ()))


def _documents(output: str, texts: Sequence[str], labelled: tuple[Any, Any], names: dict[int, str]) -> None:
    """Every text with its topic. labelled: topics int64 [n], cosines float32 [n]."""
    topics, cosines = labelled
    rows = zip(texts, topics.tolist(), cosines.tolist(), strict=True)
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["row", "topic", "name", "cosine", "text"])
            for number, (text, topic, near) in enumerate(rows):
                writer.writerow([number, topic, names.get(topic, ""), f"{near:.6g}", text])
        else:
            for text, topic, near in rows:
                record = {"text": text, "topic": topic, "name": names.get(topic), "cosine": float(f"{near:.6g}")}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
