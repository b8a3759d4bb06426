"""`munjang recommend`: items and one of them, or a text -> the items most like it, with the passages that show why."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from munjang import bundled
from munjang.cli.options import add_model, add_reading, load_model, named_or_bundled, positive, sources, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.similarity import written
from munjang.data.rows import Texts
from munjang.errors import DataError
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.cross_encoder import CrossEncoder
    from munjang.tasks.recommend import Recommendation, Recommender

_SUFFIXES = (".csv", ".jsonl")
_EXAMPLES = """\
examples:
  munjang recommend books.jsonl --like b17                          rank, score, id, the nearest passages
  munjang recommend books.jsonl --like b17 --like b18 --rerank      a cross-encoder reads passages of the nearest 50
  munjang recommend books.csv --id-column isbn --keep title --text "바다에서 길을 잃은 사람들의 이야기"
  munjang recommend books.jsonl --save shelf                        encode once ...
  munjang recommend shelf --like b17 -k 20 -o like-b17.jsonl        ... and ask as often as you like
  munjang recommend articles.txt --like 0                           the line number is the id, from 0

Texts of any length: they are cut into chunks of --chunk-tokens tokens, and a text is the mean of its chunks.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "recommend",
        parents=[common],
        help="find the items most like one of them, or like a text",
        description="Find the items of FILE (or of a FOLDER that --save wrote) that are most like one of them or like"
        " a text, and show the two passages that are nearest.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("items", metavar="FILE", help="items with their texts; - is stdin; or a saved FOLDER")
    parser.add_argument("--like", action="append", default=[], metavar="ID", help="an item; may be repeated")
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text; may be repeated")
    parser.add_argument("-k", type=positive, default=5, help="recommendations for each (default: 5)")
    parser.add_argument(
        "--id-column", metavar="C", help="column of the ids (default: id where there is one, else the row)"
    )
    parser.add_argument("--keep", action="append", default=[], metavar="C", help="a column to hand on, such as title")
    parser.add_argument("--chunk-tokens", type=positive, default=128, metavar="N", help="(default: 128)")
    parser.add_argument("--stride", type=positive, default=64, metavar="N", help="tokens between chunks (default: 64)")
    parser.add_argument("--save", metavar="FOLDER", help="keep the encoded items here")
    parser.add_argument("-o", "--output", metavar="FILE", help="ends in .csv or .jsonl (default: a table)")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    group = parser.add_argument_group("reranking")
    group.add_argument("--rerank", action="store_true", help="let a cross-encoder order the nearest")
    group.add_argument(
        "--reranker", metavar="M", help="which (default: that of MUNJANG_RERANKER, else the bundled one)"
    )
    group.add_argument("--shortlist", type=positive, default=50, metavar="N", help="items that it reads (default: 50)")
    group.add_argument("--sampled-chunks", type=positive, default=3, metavar="N", help="of each text (default: 3)")
    group.add_argument("--combine", choices=["mean", "max"], default="mean", help="of the scores of two texts' chunks")
    group.add_argument("--seed", type=int, default=0, help="of the sampling")
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read or load, save, recommend."""
    _check_usage(args)
    shop = _recommender(args, reporter)
    if args.save is not None:
        shop.save(args.save)
        reporter.say(f"{len(shop):,} items: {args.save}")
    reranker = _reranker(args, reporter)
    found = list(_found(shop, args, reranker))
    if args.output is None:
        _print(found)
    else:
        _write(args.output, found)


def _check_usage(args: argparse.Namespace) -> None:
    if not (args.like or args.text or args.save):
        args.usage_error("expected --like ID, --text TEXT, or --save FOLDER")
    args.rerank = args.rerank or args.reranker is not None
    if args.output is not None:
        if Path(args.output).suffix.lower() not in _SUFFIXES:
            args.usage_error(f"--output must end in {' or '.join(_SUFFIXES)}, got {args.output!r}")
        if Path(args.output).exists() and not args.overwrite:
            raise DataError(f"{args.output} is there already; pass --overwrite to replace it")
    if args.save is not None:
        from munjang.tasks.folders import check_target

        check_target(Path(args.save), "recommender")
        if (Path(args.save) / "recommender.json").exists() and not args.overwrite:
            raise DataError(f"{args.save} is there already; pass --overwrite to replace it")


def _recommender(args: argparse.Namespace, reporter: Reporter) -> Recommender:
    from munjang.tasks.recommend import Recommender

    if args.items != "-" and Path(args.items).is_dir():
        model = None if args.model is None else load_model(args, reporter)
        return Recommender.load(args.items, model, device=args.device)
    (source,) = texts_of(args, [args.items], keep=_kept(args))
    total = None if not source.reiterable else source.survey().rows  # an error shows before any work is done
    return Recommender.build(
        _items(source, args.id_column),
        load_model(args, reporter),
        chunk_tokens=args.chunk_tokens,
        stride=args.stride,
        progress=reporter.progress(total),
    )


def _kept(args: argparse.Namespace) -> list[str]:
    """The columns beside the text; `id` is one where the file has it."""
    if args.id_column is None:
        (plain,) = sources(args, [args.items])
        if plain.kind == "txt" or not plain.reiterable:
            return list(args.keep)
        (probe,) = texts_of(args, [args.items], keep=["id"])
        try:
            next(probe.rows(), None)
        except DataError:
            return list(args.keep)
        args.id_column = "id"
    return list(dict.fromkeys([args.id_column, *args.keep]))


def _items(source: Texts, id_column: str | None) -> Iterator[dict[str, object]]:
    for row in source.rows():
        beside = dict(row.columns)
        named = {} if id_column is None else {"id": beside.pop(id_column)}
        yield {"text": row.text, **named, **{name: value for name, value in beside.items() if name != "text"}}


def _reranker(args: argparse.Namespace, reporter: Reporter) -> CrossEncoder | None:
    if not args.rerank or not (args.like or args.text):
        return None
    import munjang

    name = named_or_bundled(args.reranker, variable="MUNJANG_RERANKER", own=bundled.RERANKER, reporter=reporter)
    return munjang.load_reranker(name, device=args.device, local_files_only=args.local_files_only)


Asked = tuple[str, Sequence["Recommendation"]]


def _found(shop: Recommender, args: argparse.Namespace, reranker: CrossEncoder | None) -> Iterator[Asked]:
    how = {name: getattr(args, name) for name in ("shortlist", "sampled_chunks", "combine", "seed")}
    for id in args.like:
        yield id, shop.like(id, args.k, reranker=reranker, **how)
    for text in args.text:
        yield text, shop.like_text(text, args.k, reranker=reranker, **how)


def _print(found: list[Asked]) -> None:
    for asked, hits in found:
        rows = [
            [
                str(rank),
                f"{hit.score:.4f}",
                hit.id,
                shorten(" ".join(map(str, hit.metadata.values())), 30),
                f"{shorten(hit.because.asked.text, 36)} ~ {shorten(hit.because.found.text, 36)}",
            ]
            for rank, hit in enumerate(hits, start=1)
        ]
        print(shorten(asked, 100))
        if rows:
            print(table([[f"  {row[0]}", *row[1:]] for row in rows], right=(0, 1)))


def _write(output: str, found: list[Asked]) -> None:
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow(["asked", "rank", "id", "score", "asked_passage", "found_passage"])
            for asked, hits in found:
                writer.writerows(
                    [asked, rank, hit.id, f"{hit.score:.7g}", hit.because.asked.text, hit.because.found.text]
                    for rank, hit in enumerate(hits, start=1)
                )
            return
        for asked, hits in found:
            near = [
                {
                    "id": hit.id,
                    "score": float(f"{hit.score:.7g}"),
                    "moved": hit.moved,
                    "stages": {stage.name: float(f"{stage.score:.7g}") for stage in hit.stages},
                    "because": {"asked": hit.because.asked.text, "found": hit.because.found.text},
                    "metadata": dict(hit.metadata),
                }
                for hit in hits
            ]
            file.write(json.dumps({"asked": asked, "like": near}, ensure_ascii=False) + "\n")
