"""`munjang augment`: Augmented SBERT, from few labelled pairs or plain sentences to a bi-encoder and a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.augment_words import DESCRIPTION, EXAMPLES
from munjang.cli.options import MODEL_HELP, blend, model_name, positive, trained_model
from munjang.cli.progress import Reporter
from munjang.cli.sets import add_drop_outside, listed, set_options
from munjang.recipes.augmenting.defaults import (
    BALANCES,
    BI_OBJECTIVES,
    CROSS_OBJECTIVES,
    MIXES,
    RETRIEVERS,
    STRATEGIES,
    TOP_K,
)
from munjang.recipes.defaults import DEFAULTS, RecipeName
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.recipes import AugmentOptions, AugmentResult

_SETTINGS = ("epochs", "batch_size", "learning_rate", "max_steps")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "augment",
        parents=[common],
        help="train on few labelled pairs, or none: a cross-encoder labels more (Augmented SBERT)",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_data(parser)
    _add_candidates(parser)
    _add_cross(parser)
    _add_bi(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def _add_data(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    data.add_argument("--gold", action="append", default=[], metavar="SET", help="few labelled pairs of the domain")
    data.add_argument("--gold-rows", type=positive, metavar="N",
                      help="use the labels of N rows only, drawn by --seed; of the others the sentences")  # fmt: skip
    data.add_argument("--domain", action="append", default=[], metavar="FILE",
                      help="plain sentences of the domain: a line each, a table, or a public set")  # fmt: skip
    data.add_argument("--domain-column", metavar="NAME", help="the column of a domain file that holds the sentences")
    data.add_argument("--public", action="append", default=[], metavar="SET", help="pairs labelled elsewhere")
    data.add_argument("--dev", action="append", default=[], metavar="SET", help="chooses the best models")
    data.add_argument("--test", action="append", default=[], metavar="SET", help="says whether silver pairs helped")
    data.add_argument("--data", metavar="DIR", help="folder of the public sets that are given by name")
    data.add_argument(
        "--columns",
        metavar="ROLE=NAME,...",
        help="columns of files of pairs: a=문장1,b=문장2,score=점수; numbers from 0 where there is no header",
    )
    data.add_argument("--score-range", metavar="LOW,HIGH", help="range of the scores in files, such as 0,5")
    add_drop_outside(data)
    data.add_argument("--encoding", help="of files (UTF-8, UTF-16 or cp949, recognised)")
    data.add_argument("--leakage", choices=["report", "remove", "refuse"], default="report",
                      help="what to do with evaluation sentences in training data and domain (report)")  # fmt: skip
    run = parser.add_argument_group("run")
    run.add_argument("-o", "--output", required=True, metavar="RUN", help="run folder: stages, model, report")
    run.add_argument("--seed", type=int, default=0, help="of everything random (0)")
    run.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
    run.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("candidate pairs and which are kept")
    group.add_argument("--strategy", default="semantic", metavar="NAME,...",
                       help=f"how pairs are found, or several: {', '.join(STRATEGIES)} (semantic)")  # fmt: skip
    group.add_argument("--top-k", type=positive, default=TOP_K, metavar="N",
                       help=f"neighbours of every sentence: semantic, bm25 ({TOP_K})")  # fmt: skip
    group.add_argument("--pairs", type=positive, metavar="N", help="random and kde: how many (top-k times sentences)")
    exact = group.add_mutually_exclusive_group()
    exact.add_argument("--approximate", action="store_true", help="semantic: search a graph (munjang[search])")
    exact.add_argument("--exact", action="store_true", help="semantic: compare all (default up to 200,000 on a CPU)")
    group.add_argument("--retriever", metavar="M", help="bi-encoder that finds neighbours (as --retrieve-with says)")
    group.add_argument("--retrieve-with", choices=RETRIEVERS, default="trained",
                       help="the model trained on the labelled pairs, or as it is given (trained)")  # fmt: skip
    group.add_argument("--blend", type=blend, default="auto", metavar="W",
                       help="how much the cosines of the bi-encoder count in the labels: 0 (the paper), 0.5... "
                            "(auto: as --dev agrees best; 0 without)")  # fmt: skip
    group.add_argument("--certain", type=float, metavar="SHARE",
                       help="keep the most certain of every tenth of the scores, such as 0.8 of them")  # fmt: skip
    group.add_argument("--balance", choices=BALANCES, default="none",
                       help="thin the scores to the distribution of gold, or to an even one (none)")  # fmt: skip
    group.add_argument("--largest", type=positive, metavar="N", help="at most so many silver pairs")


def _add_cross(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cross-encoder")
    group.add_argument("--cross-encoder", action="append", default=[], metavar="M",
                       help="a ready one, which labels without being trained; may be repeated")  # fmt: skip
    group.add_argument("--cross-model", metavar="M", help="what it is trained from (the body of --model)")
    group.add_argument("--cross-count", type=positive, default=1, metavar="N",
                       help="train so many, by seed: their mean labels, their spread is the certainty (1)")  # fmt: skip
    group.add_argument("--pretrain", action="store_true",
                       help="prepare it on candidates and random pairs, with cosines as scores")  # fmt: skip
    group.add_argument("--cross-objective", choices=CROSS_OBJECTIVES, default=CROSS_OBJECTIVES[0],
                       help=f"what it minimises ({CROSS_OBJECTIVES[0]})")  # fmt: skip
    _add_settings(group, "cross_sts", "cross-")


def _add_bi(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("bi-encoder")
    group.add_argument("--model", metavar="M", help=MODEL_HELP)
    group.add_argument("--max-length", type=positive, metavar="N", help="cut texts to so many tokens (the model's own)")
    group.add_argument("--objective", choices=BI_OBJECTIVES, default=BI_OBJECTIVES[0],
                       help=f"what is minimised ({BI_OBJECTIVES[0]})")  # fmt: skip
    group.add_argument("--mix", choices=MIXES, default=MIXES[0],
                       help="labelled and silver pairs together, the labelled ones more often, or silver, then "
                            "labelled (together)")  # fmt: skip
    group.add_argument("--no-baseline", action="store_true",
                       help="do not train on the labelled pairs alone for comparison")  # fmt: skip
    _add_settings(group, "sts", "")


def _add_settings(group: argparse._ArgumentGroup, recipe: RecipeName, prefix: str) -> None:
    default = DEFAULTS[recipe]
    rates = ", ".join(f"{rate:g} {size}" for size, rate in default.learning_rates.items())
    group.add_argument(f"--{prefix}epochs", type=float, metavar="V", help=f"passes over the data ({default.epochs:g})")
    group.add_argument(
        f"--{prefix}batch-size", type=positive, metavar="N", help=f"pairs in a step ({default.batch_size})"
    )
    group.add_argument(f"--{prefix}learning-rate", type=float, metavar="V", help=f"highest learning rate ({rates})")
    group.add_argument(f"--{prefix}max-steps", type=positive, metavar="N", help="stop after so many steps")


# --- running ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """All stages."""
    _check_use(args)
    options = _options(args)
    model = trained_model(args, reporter)
    from munjang.recipes.augmenting.running import augmented

    try:
        result = augmented(
            model,
            gold=args.gold or None,
            public=args.public or None,
            domain=[Path(one) for one in args.domain] or None,
            dev=args.dev,
            test=args.test,
            options=options,
        )
    except KeyboardInterrupt as interruption:  # a training says itself how far it came
        kept = f"interrupted: finished stages are in {args.output}; the same command goes on from there"
        raise KeyboardInterrupt(str(interruption) or kept) from None
    _tell(result, reporter)


def _check_use(args: argparse.Namespace) -> None:
    """Refuse options that would do nothing beside the others: who gives one expects something of it."""
    strategies = listed(args.strategy)
    if not strategies or not set(strategies) <= set(STRATEGIES):
        args.usage_error(f"--strategy must be of {', '.join(STRATEGIES)}, with commas, got {args.strategy!r}")
    if args.pairs is not None and not {"random", "kde"} & set(strategies):
        args.usage_error(
            f"--pairs is for the strategies random and kde, and --strategy is {args.strategy}: --top-k says how many "
            "neighbours every sentence gets, --largest how many silver pairs there are at most"
        )
    if (args.approximate or args.exact) and "semantic" not in strategies:
        args.usage_error(f"--approximate and --exact are for the strategy semantic, and --strategy is {args.strategy}")
    if args.domain_column is not None and not args.domain:
        args.usage_error("--domain-column names a column of --domain files, and there is no --domain")
    if args.cross_encoder:
        told = [f"--cross-{name.replace('_', '-')}" for name in _SETTINGS if getattr(args, f"cross_{name}") is not None]
        told += ["--cross-model"] if args.cross_model is not None else []
        told += ["--cross-count"] if args.cross_count > 1 else []
        told += ["--pretrain"] if args.pretrain else []
        if told:
            args.usage_error(
                f"--cross-encoder is ready and is not trained, so {', '.join(told)} would do nothing; to train one "
                "from it, give it as --cross-model"
            )


def _options(args: argparse.Namespace) -> AugmentOptions:
    from munjang.recipes import AugmentOptions, Candidates, Sampling

    strategies = tuple(listed(args.strategy))
    approximate = True if args.approximate else False if args.exact else None
    return AugmentOptions(
        folder=args.output,
        cross_encoder=[model_name(one) for one in args.cross_encoder] or None,
        cross_model=_model(args.cross_model),
        cross_count=args.cross_count,
        cross_objective=args.cross_objective,
        pretrain=args.pretrain,
        blend=args.blend,
        candidates=Candidates(strategies, args.top_k, args.pairs, approximate, seed=args.seed),  # type: ignore[arg-type]
        sampling=Sampling(args.balance, args.certain, args.largest, seed=args.seed),
        retriever=_model(args.retriever),
        retrieve_with=args.retrieve_with,
        objective=args.objective,
        mix=args.mix,
        baseline=not args.no_baseline,
        gold_rows=args.gold_rows,
        bi_changes=_changes(args, ""),
        cross_changes=_changes(args, "cross_"),
        seed=args.seed,
        device=args.device,
        leakage=args.leakage,
        max_length=args.max_length,
        domain_column=args.domain_column,
        sets=set_options(args),
        progress=not args.quiet,
    )


def _model(name: str | None) -> str | None:
    return None if name is None else model_name(name)


def _changes(args: argparse.Namespace, prefix: str) -> dict[str, object]:
    found = {name: getattr(args, prefix + name) for name in _SETTINGS}
    return {name: value for name, value in found.items() if value is not None}


# --- telling ---------------------------------------------------------------------------------------------------------


def _tell(result: AugmentResult, reporter: Reporter) -> None:
    """Without and with silver pairs as a table on stdout; words to stderr."""
    silver = result.silver
    (reporter.say if result.choice.delivered == "augmented" else reporter.warn)(f"augment: {result.choice}")
    reporter.say(f"silver: {silver.rows:,} of {silver.candidates:,} candidate pairs, {silver.path}")
    for note in result.notes:
        reporter.say(f"note: {note}")
    rows: list[tuple[str, ...]] = [
        ("set", "part", "metric", "untrained", "without silver", "with silver", "difference", "95 % interval", "rows")
    ]
    for gain in result.gains:
        gap = gain.difference
        numbers = ("" if gain.untrained is None else f"{100 * gain.untrained:.2f}", f"{100 * gain.baseline:.2f}",
                   f"{100 * gain.augmented:.2f}", f"{100 * gap.value:+.2f}")  # fmt: skip
        interval = f"{100 * gap.low:+.2f} to {100 * gap.high:+.2f}"
        part = "test" if gain.part == "test" else "dev, chose the models"
        rows.append((shorten(gain.name, 40), part, gain.metric, *numbers, interval, f"{gain.rows:,}"))
    if not result.gains:
        for part, scores in (("test", result.bi.test), ("dev, chose the model", result.bi.dev)):
            rows += [(shorten(one.name, 40), part, one.main, "", "", f"{100 * one.value:.2f}", "", "", f"{one.rows:,}")
                     for one in scores]  # fmt: skip
    if len(rows) > 1:
        print(table(rows, right=(3, 4, 5, 6, 8)))
    reporter.say(f"report: {result.folder / 'index.html'}")
    reporter.say(f"model: {result.folder / 'model'}")
