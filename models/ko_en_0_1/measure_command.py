"""`python -m models.ko_en_0_1 models`, `models-page`, `models-card`: the bundled models measured, shown, described."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import model_name, positive
from munjang.cli.progress import Reporter

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.cross_encoder import CrossEncoder

_MODELS = """\
examples:
  python -m models.ko_en_0_1 models --model ko-en --name munjang-ko-en --model minilm --name all-MiniLM-L6-v2 \\
      --reranker rerank-ko-en --data DIR --output results.json
  python -m models.ko_en_0_1 models --model ko-en --name munjang-ko-en --trained-on munjang-ko-en ko-en/making.json \\
      --data DIR --output results.json
  python -m models.ko_en_0_1 models --model ko-en --data DIR --output quick.json --quick 50    a first look, in minutes

Every score is kept as soon as it is there; the same command again measures only what is missing. The first --model
that is a bi-encoder is the one whose first hits --reranker reorders, unless --bi names another.
"""
_PAGE = """\
example:
  python -m models.ko_en_0_1 models-page results.json --write docs/models.md

Fills the parts between the markers of docs/models.md and of docs/models.ko.md, and draws docs/images/models.svg.
"""
_CARD = """\
example:
  python -m models.ko_en_0_1 models-card results.json --making runs/ko-en/making.json --write runs/ko-en/model
"""


def add(studies: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the commands."""
    what = "the bundled models and others on every public set"
    models = _parser(studies, common, "models", what, _MODELS)
    models.add_argument("--model", action="append", required=True, metavar="M",
                        help="bundled name, folder or hub id; repeatable")  # fmt: skip
    models.add_argument("--name", action="append", default=[], metavar="NAME",
                        help="what the model before it is called (default: its folder's name)")  # fmt: skip
    models.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the public data sets")
    models.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="results, as JSON")
    second = models.add_argument_group("second stage")
    second.add_argument("--reranker", metavar="R", help="cross-encoder that reorders a bi-encoder's first hits")
    second.add_argument("--reranker-name", metavar="NAME", help="what it is called (default: its folder's name)")
    second.add_argument("--bi", metavar="NAME",
                        help="the bi-encoder that searches first (default: the first --model that is one)")  # fmt: skip
    second.add_argument("--candidates", type=positive, default=100, metavar="N", help="first hits (100)")
    second.add_argument("--rerank-queries", type=positive, metavar="N",
                        help="at most N queries of a set (default: all), for a machine without a GPU")  # fmt: skip
    models.add_argument("--trained-on", action="append", nargs="+", default=[], metavar=("NAME", "SET"),
                        help="what a model was trained on, to count the overlap: SET:SPLIT of a public set, a file of "
                        "texts, or its making.json")  # fmt: skip
    models.add_argument("--only", nargs="+", default=[], metavar="SET", help="these sets only, by their names")
    models.add_argument("--quick", type=positive, metavar="N", help="at most N rows of every set; the results say so")
    models.add_argument("--intervals", action=argparse.BooleanOptionalAction, default=True, help="bootstrap intervals")
    models.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
    models.add_argument("--dtype", choices=["auto", "float32", "float16", "bfloat16"], default="auto")
    models.add_argument("-q", "--quiet", action="store_true", help="no progress")
    models.set_defaults(run=run, usage_error=models.error)

    page = _parser(studies, common, "models-page", "results as tables and a picture, into the pages", _PAGE)
    page.add_argument(
        "results", type=Path, metavar="RESULTS", help="file that `python -m models.ko_en_0_1 models` wrote"
    )
    page.add_argument("--write", type=Path, metavar="PAGE", help="the English page; its Korean twin is PAGE.ko.md")
    page.set_defaults(run=run_page)

    card = _parser(studies, common, "models-card", "the cards of a model, English and Korean", _CARD)
    card.add_argument(
        "results", type=Path, metavar="RESULTS", help="file that `python -m models.ko_en_0_1 models` wrote"
    )
    card.add_argument("--making", required=True, type=Path, metavar="FILE", help="making.json that the making left")
    card.add_argument("--write", type=Path, metavar="FOLDER", help="write README.md and README.ko.md there")
    card.set_defaults(run=run_card)


def _parser(
    studies: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
    name: str,
    what: str,
    examples: str,
) -> argparse.ArgumentParser:
    return studies.add_parser(
        name,
        parents=[common],
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Measure every model, then print the table."""
    names = _names(args)
    from models.ko_en_0_1.measuring import Measuring, Reranker, Subject, measure
    from models.ko_en_0_1.page import overview
    from models.ko_en_0_1.results import read_results

    reranker = None
    if args.reranker is not None:
        model = _load_reranker(args)
        over = args.bi or _first_bi(args, names)
        name = args.reranker_name or Path(args.reranker).name
        reranker = Reranker(name, model, (over,), args.candidates, args.rerank_queries)
    trained = {name: tuple(sets) for name, *sets in args.trained_on}
    subjects = [
        Subject(name, lambda path=path: _load(args, path), trained.get(name, ()))  # type: ignore[misc]
        for name, path in names.items()
    ]
    if reranker is not None and reranker.name not in names:
        subjects.append(Subject(reranker.name, lambda: reranker.model, trained.get(reranker.name, ())))
    measuring = Measuring(args.data, args.quick, args.intervals, reranker, tuple(args.only), not args.quiet)
    measure(subjects, measuring, args.output, say=reporter.say)
    print(overview(read_results(args.output)), end="")


def run_page(args: argparse.Namespace, reporter: Reporter) -> None:
    """Print the tables, or put them into the pages."""
    from models.ko_en_0_1.page import overview, write_pages
    from models.ko_en_0_1.results import read_results

    results = read_results(args.results)
    if args.write is None:
        print(overview(results), end="")
        return
    for path in write_pages(args.write, results):
        reporter.say(f"written: {path}")


def run_card(args: argparse.Namespace, reporter: Reporter) -> None:
    """Print the English card, or write both."""
    from models.ko_en_0_1.cards import card, read_making, write_cards
    from models.ko_en_0_1.results import read_results

    results, making = read_results(args.results), read_making(args.making)
    if args.write is None:
        print(card(making, results, "en"), end="")
        return
    for path in write_cards(args.write, making, results):
        reporter.say(f"written: {path}")


def _names(args: argparse.Namespace) -> dict[str, str]:
    """Name -> model; checked before anything is loaded."""
    if args.name and len(args.name) != len(args.model):
        args.usage_error(f"give every --model a --name, or none: got {len(args.model)} models, {len(args.name)} names")
    names = args.name or [Path(model).name for model in args.model]
    if len(set(names)) < len(names):
        args.usage_error(f"every model needs a name of its own: got {', '.join(names)}; use --name")
    if args.reranker is None and args.bi is not None:
        args.usage_error("--bi goes with --reranker")
    if args.bi is not None and args.bi not in names:
        args.usage_error(f"--bi must be the name of a --model ({', '.join(names)}), got {args.bi!r}")
    known = {*names, args.reranker_name or (Path(args.reranker).name if args.reranker else "")}
    for name, *sets in args.trained_on:
        if name not in known or not sets:
            args.usage_error(f"--trained-on takes the name of a model and its sets: {name!r} with {len(sets)} sets")
    return dict(zip(names, args.model, strict=True))


def _first_bi(args: argparse.Namespace, names: dict[str, str]) -> str:
    from munjang import bundled
    from munjang.checkpoint import is_cross

    def cross(model: str) -> bool:
        return model == bundled.RERANKER or (model not in bundled.NAMES and is_cross(Path(model)))

    found = next((name for name, model in names.items() if not cross(model)), None)
    if found is None:
        args.usage_error("--reranker needs a bi-encoder among the models, whose first hits it reorders")
    assert found is not None
    return found


def _load_reranker(args: argparse.Namespace) -> CrossEncoder:
    import munjang

    return munjang.load_reranker(model_name(args.reranker), device=args.device, dtype=args.dtype)


def _load(args: argparse.Namespace, name: str) -> BiEncoder | CrossEncoder:
    """The model as what it was saved as."""
    import munjang
    from munjang.checkpoint import is_cross, resolve

    folder = resolve(model_name(name))
    load = munjang.load_cross_encoder if is_cross(folder) else munjang.load
    return load(folder, device=args.device, dtype=args.dtype)
