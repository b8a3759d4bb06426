"""`python -m research`: the experiments of the Sentence-BERT paper, run again, beside the paper's numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli import run_command
from munjang.cli.options import blend, positive
from munjang.cli.progress import Reporter
from munjang.errors import InputError

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from research import Setup

_STUDIES = {
    "sbert-ablation": "poolings and concatenations, trained on NLI (table 6)",
    "sbert-transfer": "NLI, STS, NLI then STS; bi- and cross-encoder (table 2)",
    "sbert-table1": "without STS data, on STS12 to STS16 and STSb (table 1)",
}
_AUGMENTATION = {
    "augmented-few": "Augmented SBERT, 1,000 labelled pairs of KorSTS: which silver pairs help",
    "augmented-none": "Augmented SBERT, no labelled pairs of KLUE-STS, KorSTS as the public set",
}
_EXAMPLES = """\
examples:
  python -m research sbert-ablation --model MODEL --data DIR --seeds 0,1,2 --output results.json
  python -m research sbert-ablation --model MODEL --data DIR --random --output results.json
  python -m research sbert-transfer --model MODEL --data DIR --batch-size 16 --output results.json
  python -m research sbert-transfer --model MODEL --data DIR --language korean --random --output results.json
  python -m research page results.json --write docs/reproduction.md
  python -m research augmented-few --model MODEL --data DIR --seeds 0,1,2 --output runs/few

The results are kept trial by trial: the same command again runs only what is missing.
"""


def build_parser() -> argparse.ArgumentParser:
    """Declare the commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = argparse.ArgumentParser(
        prog="python -m research",
        description="Run the paper's experiments again and compare the results with its numbers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    studies = parser.add_subparsers(title="experiments", metavar="EXPERIMENT", required=True)
    for name, what in _STUDIES.items():
        _add_study(studies.add_parser(name, parents=[common], help=what, description=what), name)
    for name, what in _AUGMENTATION.items():
        _add_augmentation(studies.add_parser(name, parents=[common], help=what, description=what), name)
    page = studies.add_parser("page", parents=[common], help="results as tables, into a page")
    page.add_argument("results", metavar="RESULTS", help="file that an experiment wrote")
    page.add_argument("--write", type=Path, metavar="PAGE", help="replace the generated part of this Markdown page")
    page.set_defaults(run=run_page)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run an experiment; exit status as of `munjang`."""
    return run_command(build_parser(), argv)


def _add_study(parser: argparse.ArgumentParser, name: str) -> None:
    parser.set_defaults(run=run, study=name)
    parser.add_argument("--model", required=True, metavar="M", help="folder or hub id: tokenizer, body and its weights")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the public data sets")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="results, as JSON")
    parser.add_argument("--random", action="store_true", help="random weights instead of the model's, from each seed")
    parser.add_argument("--seeds", type=_numbers, default=(0,), metavar="A,B", help="default 0")
    parser.add_argument("--language", choices=["english", "korean"], default="english")
    training = parser.add_argument_group("training")
    training.add_argument("--batch-size", type=positive, default=64, metavar="N", help="default 64; the paper: 16")
    training.add_argument("--nli-epochs", type=float, default=1.0, metavar="X", help="default 1, as in the paper")
    training.add_argument("--sts-epochs", type=float, default=4.0, metavar="X", help="default 4")
    training.add_argument(
        "--learning-rate",
        type=float,
        metavar="X",
        help="of every stage; default 1e-4 for bodies below 50M parameters, 2e-5 (the paper's) from there on",
    )
    training.add_argument("--max-length", type=positive, default=128, metavar="N", help="default 128 tokens")
    training.add_argument("--precision", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    training.add_argument("--rows", type=positive, metavar="N", help="train on so many rows only: for trying out")
    parser.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")


def _add_augmentation(parser: argparse.ArgumentParser, name: str) -> None:
    parser.set_defaults(run=run_augmentation, study=name)
    parser.add_argument("--model", required=True, metavar="M", help="folder of the bi-encoder that is trained")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the public data sets")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder of all runs and results.json")
    parser.add_argument("--seeds", type=_numbers, default=(0, 1, 2), metavar="A,B", help="default 0,1,2")
    parser.add_argument("--strategies", metavar="A,B", help="some of the rows: semantic,BM25,random,KDE (all)")
    parser.add_argument("--top-k", type=positive, default=5, metavar="N", help="neighbours of every sentence (5)")
    parser.add_argument("--cross-model", metavar="M", help="what the cross-encoder is trained from (the body of M)")
    parser.add_argument("--cross-count", type=positive, default=1, metavar="N", help="as in munjang augment (1)")
    parser.add_argument("--pretrain", action="store_true", help="as in munjang augment")
    parser.add_argument("--objective", choices=["cosine", "cosent"], default="cosine", help="of the bi-encoder")
    parser.add_argument("--blend", type=blend, default="auto", metavar="W", help="as in munjang augment (auto)")
    parser.add_argument("--pretrain-rate", type=float, metavar="X", help="learning rate of the pretraining")
    parser.add_argument("--mix", choices=["together", "then"], default="together", help="as in munjang augment")
    for part, what in (("", "bi-encoder"), ("cross-", "cross-encoder")):
        parser.add_argument(f"--{part}epochs", type=float, metavar="X", help=f"of the {what} (the recipe's)")
        parser.add_argument(f"--{part}batch-size", type=positive, metavar="N", help=f"of the {what} (the recipe's)")
        parser.add_argument(f"--{part}learning-rate", type=float, metavar="X", help=f"of the {what} (the recipe's)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")


def run_augmentation(args: argparse.Namespace, reporter: Reporter) -> None:
    """Compare the strategies of Augmented SBERT and print the table."""
    from munjang.recipes.augmenting.candidates import Candidates
    from research.augmentation import ROWS, AugmentSetup, augmentation_table
    from research.augmentation import run_augmentation as run_all

    rows = tuple(ROWS) if args.strategies is None else tuple(part.strip() for part in args.strategies.split(","))
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        raise InputError(f"--strategies must be of {', '.join(ROWS)}, got {', '.join(unknown)}")
    changes = {part: _changes(args, part) for part in ("", "cross_")}
    options = {
        "cross_model": args.cross_model,
        "cross_count": args.cross_count,
        "pretrain": args.pretrain,
        "blend": args.blend,
        "pretrain_changes": {} if args.pretrain_rate is None else {"learning_rate": args.pretrain_rate},
        "objective": args.objective,
        "mix": args.mix,
        "bi_changes": changes[""],
        "cross_changes": changes["cross_"],
        "device": args.device,
        "progress": True,
    }
    setup = AugmentSetup(args.seeds, rows, candidates=Candidates(top_k=args.top_k), options=options)
    results = run_all(args.study, args.model, args.data, args.output, setup=setup, say=reporter.say)
    print(augmentation_table(results))


def _changes(args: argparse.Namespace, part: str) -> dict[str, object]:
    found = {name: getattr(args, part + name) for name in ("epochs", "batch_size", "learning_rate")}
    return {name: value for name, value in found.items() if value is not None}


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Run an experiment and print its tables."""
    from research import STUDIES, Results, run_study, tables

    results = Results.read(args.output, missing_ok=True)
    study = STUDIES[args.study]
    run_study(study, _model(args), args.data, setup=_setup(args), results=results, rows=args.rows, say=reporter.say)
    print(tables(results))


def run_page(args: argparse.Namespace, reporter: Reporter) -> None:
    """Print the tables of a file of results, or put them into a page."""
    from research import Results, tables, write_page

    content = tables(Results.read(args.results))
    if args.write is None:
        print(content)
        return
    write_page(args.write, content)
    reporter.say(f"written: {args.write}")


def _model(args: argparse.Namespace) -> BiEncoder:
    import munjang

    return munjang.load(args.model, device=args.device, dtype="float32", max_length=args.max_length)


def _setup(args: argparse.Namespace) -> Setup:
    from research import Setup

    return Setup(
        language=args.language,
        random=args.random,
        seeds=args.seeds,
        batch_size=args.batch_size,
        nli_epochs=args.nli_epochs,
        sts_epochs=args.sts_epochs,
        learning_rate=args.learning_rate,
        max_length=args.max_length,
        precision=args.precision,
    )


def _numbers(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in value.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas between, got {value!r}") from error


if __name__ == "__main__":
    sys.exit(main())
