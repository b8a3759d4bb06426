"""`munjang search`: an index and a query -> the best documents, by meaning, by words or both, reranked if asked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang import bundled
from munjang.cli.hits import shown
from munjang.cli.opening import add_own_model, open_index
from munjang.cli.options import named_or_bundled, positive
from munjang.cli.progress import Reporter
from munjang.cli.similarity import written
from munjang.data.rows import open_texts
from munjang.errors import DataError, InputError

if TYPE_CHECKING:
    from munjang.encoders import CrossEncoder
    from munjang.index.index import Index
    from munjang.index.results import Hit, Results

_MODES = ("semantic", "keyword", "hybrid")
_BATCH = 256  # queries that are answered at once
_BUDGET = 0.2  # seconds for the reranker, as in the service
_EXAMPLES = """\
examples:
  munjang search my-index "환불은 어떻게 하나요?"
  munjang search my-index "how do I get my money back" -k 5 --rerank
  munjang search my-index "금리" --mode hybrid --filter "category=news and year>=2020"
  munjang search my-index "camera" --filter "not (brand in 'Acme','Other Co') and price<500"
  munjang search my-index --more-like faq-17 -k 3
  munjang search my-index --batch questions.txt --json > answers.jsonl

A filter compares fields of the metadata: = != < <= > >=, in a,b,c, and, or, not, brackets. Values with spaces stand in
quotes. --rerank reads the best hits together with the query and puts them in order; ▲ and ▼ show how far each moved.
Every hit shows its probability; the order also heeds the first search, so it may differ a little. --rerank-budget says
how long the reranker may read; with --candidates the answer does not depend on the speed of the machine. Put the query
before --rerank, which takes the name of a model.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "search",
        parents=[common],
        help="search an index",
        description="Search an index by meaning and by words; --rerank reads the best candidates again.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="the folder of the index")
    parser.add_argument("query", nargs="?", metavar="QUERY", help="what to look for; - is stdin, one query a line")
    parser.add_argument("--more-like", metavar="ID", help="documents like this one, instead of a query")
    parser.add_argument("--batch", metavar="FILE", help="a file of queries, one a line; or csv, jsonl... with --column")
    parser.add_argument("--column", metavar="C", help="column of the queries in --batch")
    parser.add_argument("-k", type=positive, default=10, metavar="K", help="how many hits (10)")
    parser.add_argument(
        "--mode",
        choices=_MODES,
        help="by meaning, by words, or by both (default: hybrid; semantic if the index has no keywords)",
    )
    parser.add_argument(
        "--filter", metavar="F", help="only documents with such metadata: 'category=news and year>=2020'"
    )
    parser.add_argument(
        "--rerank",
        nargs="?",
        const="",
        metavar="MODEL",
        help=f"put the candidates in order with a cross-encoder (that of MUNJANG_RERANKER, else {bundled.RERANKER})",
    )
    parser.add_argument(
        "--rerank-budget",
        type=float,
        metavar="S",
        help=f"seconds for the reranker: it reads as many hits as fit, at least K (default: {_BUDGET})",
    )
    parser.add_argument(
        "--candidates",
        type=positive,
        metavar="N",
        help="how many hits the reranker reads, instead of a time (default with --batch: 30)",
    )
    parser.add_argument(
        "--json", action="store_true", help="a JSON line for every query, with every stage of every hit"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the JSON lines there; ends in .jsonl")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no timings")
    add_own_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Open, search, print or write."""
    _check_usage(args)
    from munjang.index.filters import as_filter

    args.filter = as_filter(args.filter)  # an error in it shows before a model is loaded
    with open_index(args, reporter) as index, ExitStack() as stack:
        reranker = _reranker(args, reporter)
        answers = _answers(args, index, reranker, reporter)
        if args.json or args.output:
            file = sys.stdout if args.output is None else stack.enter_context(written(args.output))
            for query, results in answers:
                file.write(json.dumps(as_json(query, results), ensure_ascii=False, allow_nan=False) + "\n")
            return
        for number, (query, results) in enumerate(answers):
            if args.batch is not None or args.query == "-":
                print(f"{chr(10) if number else ''}# {query}")
            for hit_rank, hit in enumerate(results, start=1):
                print(shown(hit, hit_rank, query))
            reporter.say(summary(results))


def _check_usage(args: argparse.Namespace) -> None:
    given = [args.query is not None, args.more_like is not None, args.batch is not None]
    if sum(given) != 1:
        hint = f"; --rerank took {args.rerank!r} as its model: put the query before it" if args.rerank else ""
        args.usage_error("expected one of QUERY, --more-like ID or --batch FILE" + (hint if not any(given) else ""))
    if args.more_like is not None and (args.mode not in (None, "semantic") or args.rerank is not None):
        args.usage_error("--more-like compares vectors: it takes neither --mode nor --rerank")
    if args.column is not None and args.batch is None:
        args.usage_error("--column goes with --batch")
    if args.output is None:
        return
    if Path(args.output).suffix.lower() != ".jsonl":
        args.usage_error(f"--output must end in .jsonl, got {args.output!r}")
    if Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _reranker(args: argparse.Namespace, reporter: Reporter) -> CrossEncoder | None:
    if args.rerank is None:
        return None
    import munjang

    own, variable = bundled.RERANKER, "MUNJANG_RERANKER"
    name = named_or_bundled(args.rerank or None, variable=variable, own=own, reporter=reporter)
    model = munjang.load_reranker(name, device=args.device, dtype=args.dtype, local_files_only=args.local_files_only)
    if args.threads is not None:
        model.threads = args.threads
    return model


def _answers(
    args: argparse.Namespace, index: Index, reranker: CrossEncoder | None, reporter: Reporter
) -> Iterator[tuple[str, Results]]:
    """Query and results, one after another; of a file, a block at a time."""
    if args.more_like is not None:
        yield args.more_like, index.more_like(args.more_like, args.k, filter=args.filter)
        return
    if args.batch is None and args.query != "-":
        options = _options(args, reranker)
        yield args.query, index.search(args.query, args.k, **options)
        return
    source = open_texts(Path(args.batch or "-"), column=args.column)
    total = None if not source.reiterable else sum(map(len, _blocks(source)))
    progress, done = reporter.progress(total), 0
    for block in _blocks(source):
        yield from zip(block, index.search_many(block, args.k, **_options(args, reranker)), strict=True)
        done += len(block)
        progress(done, total)


def _options(args: argparse.Namespace, reranker: CrossEncoder | None) -> dict[str, Any]:
    budget = args.rerank_budget
    if budget is None and args.candidates is None and args.batch is None:
        budget = _BUDGET
    return {
        "filter": args.filter,
        "mode": args.mode,
        "reranker": reranker,
        "candidates": args.candidates,
        "rerank_budget": budget,
    }


def _blocks(queries: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for number, query in enumerate(queries, start=1):
        if not query.strip():
            raise InputError(f"query {number} is empty: every line must be one")
        block.append(query)
        if len(block) == _BATCH:
            yield block
            block = []
    if block:
        yield block


def as_json(query: str, results: Results) -> dict[str, object]:
    """Everything that is known about the answer to a query."""
    return {
        "query": query,
        "mode": results.mode,
        "answered": results.answered,
        "scored": results.scored,
        "seconds": {name: _short(value) for name, value in results.timings.items()},
        "hits": [_hit(hit, rank) for rank, hit in enumerate(results, start=1)],
    }


def _hit(hit: Hit, rank: int) -> dict[str, object]:
    return {
        "rank": rank,
        "id": hit.id,
        "score": _short(hit.score),
        "moved": hit.moved,
        "passage": {"text": hit.passage.text, "start": hit.passage.start, "end": hit.passage.end},
        "metadata": dict(hit.metadata),
        "stages": [
            {
                "name": one.name,
                "score": _short(one.score),
                "rank": one.rank,
                "normalized": None if one.normalized is None else _short(one.normalized),
            }
            for one in hit.stages
        ],
        "text": hit.text,
    }


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def summary(results: Results) -> str:
    """One line about a search: how many hits, how long, and whether there is a good answer."""
    times = _times(results.timings)
    line = f"{len(results)} hits" if len(results) != 1 else "1 hit"
    line += f" in {times}" if times else ""
    if results.scored:
        line += f"; the reranker read {results.scored} passages"
    if results.answered is False:
        line += "; no good answer: no hit reaches the reranker's threshold"
    return line


def _times(timings: Mapping[str, float]) -> str:
    total = timings.get("total")
    if total is None:
        return ""
    parts = ", ".join(f"{name} {value * 1000:.0f}" for name, value in timings.items() if name != "total")
    return f"{total * 1000:.0f} ms" + (f" ({parts})" if parts else "")
