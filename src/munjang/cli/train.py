"""`munjang train`: a recipe, or a chain of them, from named sets or files to a trained model with a report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang.cli.options import MODEL_HELP, positive, trained_model
from munjang.cli.progress import Reporter
from munjang.cli.sets import add_any_labels, add_drop_outside, listed, set_options
from munjang.cli.settings import SETTINGS, Setting
from munjang.cli.train_words import CHAIN, COLUMNS, EXAMPLES, HELP, ROWS
from munjang.recipes.defaults import DEFAULTS, OBJECTIVES, RECIPE_NAMES, SIZES, RecipeName, shown
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.evaluation import Scores
    from munjang.recipes import RecipeOptions, RecipeResult

_ROLES = ("train", "dev", "test")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "train",
        parents=[common],
        help="train a model by a recipe",
        description="Train a model: recipes for NLI, STS, triplets, contrastive pairs and cross-encoders, and chains.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="repeat the run of this recipe.json (or run folder)")
    parser.add_argument("-o", "--output", metavar="RUN", help="with --config: another run folder")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run_config, usage_error=parser.error)
    recipes = parser.add_subparsers(title="recipes", metavar="RECIPE")
    for name in RECIPE_NAMES:
        one = _add_recipe(recipes, common, name.replace("_", "-"), HELP[name], _told(name))
        _add_data(one, chained=False, columns=COLUMNS[name])
        _add_choices(one, name)
        _add_settings(one, name)
        one.set_defaults(run=run, recipe=name, usage_error=one.error)
    chain = _add_recipe(recipes, common, "chain", "several recipes one after another", CHAIN)
    chain.add_argument("stages", metavar="STAGES", help="recipes in order, with commas: nli,sts or cross-nli,cross-sts")
    _add_data(chain, chained=True, columns=COLUMNS["sts"])
    _add_choices(chain, None)
    _add_settings(chain, None)
    chain.set_defaults(run=run_chain, usage_error=chain.error)


def _told(name: RecipeName) -> str:
    return (
        f"A row is {ROWS[name]}.\nDefaults: {shown(name)}.\nWhy: {DEFAULTS[name].why}.\n"
        f"Objectives: {', '.join(OBJECTIVES[name])}."
    )


def _add_recipe(
    recipes: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
    name: str,
    help: str,
    told: str,
) -> argparse.ArgumentParser:
    return recipes.add_parser(
        name,
        parents=[common],
        help=help,
        description=f"Train {help}.\n\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_data(parser: argparse.ArgumentParser, *, chained: bool, columns: str) -> None:
    group = parser.add_argument_group("data")
    form = "STAGE=SET" if chained else "SET"
    group.add_argument("--train", action="append", required=True, metavar=form, help="training set; may be repeated")
    group.add_argument("--dev", action="append", default=[], metavar=form, help="chooses the best model")
    group.add_argument("--test", action="append", default=[], metavar=form, help="reports; another set than --dev")
    group.add_argument("--data", metavar="DIR", help="folder of the public sets that are given by name")
    group.add_argument("--columns", metavar="ROLE=NAME,...",
                       help=f"columns of all files, where they have unusual names: {columns}")  # fmt: skip
    group.add_argument("--score-range", metavar="LOW,HIGH", help="range of the scores in files, such as 0,5")
    group.add_argument("--labels", metavar="A,B,...", help="names of the labels in files, by number")
    add_any_labels(group)
    add_drop_outside(group, labels=True)
    group.add_argument("--kind", choices=["scored", "labelled", "pairs", "ranked"], help="of files (by their columns)")
    group.add_argument("--format", choices=["csv", "tsv", "jsonl", "json", "parquet"], help="of files (by their names)")
    group.add_argument("--encoding", help="of files (UTF-8, UTF-16 or cp949, recognised)")
    group.add_argument("--leakage", choices=["report", "remove", "refuse"], default="report",
                       help="what to do when evaluation sentences stand in the training data (report)")  # fmt: skip
    run = parser.add_argument_group("run")
    run.add_argument("-o", "--output", required=True, metavar="RUN", help="run folder: log, checkpoints, model, report")
    run.add_argument("--seed", type=int, help="of everything random (0)")
    run.add_argument("--no-before", action="store_true", help="do not measure the untrained model (it is compared)")
    run.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _add_choices(parser: argparse.ArgumentParser, name: RecipeName | None) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="M", help=MODEL_HELP)
    group.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
    group.add_argument("--max-length", type=positive, metavar="N", help="cut texts to so many tokens (the model's own)")
    if name is None:
        group.add_argument("--objective", action="append", default=[], metavar="STAGE=NAME", help="what is minimised")
    else:
        first = OBJECTIVES[name][0]
        group.add_argument("--objective", choices=OBJECTIVES[name], help=f"what is minimised ({first}, or by the data)")
    group.add_argument("--lora", type=positive, metavar="RANK", help="train adapters of this rank, then merge them")
    group.add_argument("--lora-alpha", type=float, metavar="A", help="weight of the adapters (twice the rank)")
    if name is None or not name.startswith("cross_"):
        group.add_argument("--pooling", metavar="P", help="cls, mean, max..., several with commas (the model's own)")
        group.add_argument("--matryoshka", metavar="N,...", help="also train the first N values: 256,128,64")
    if name in (None, "nli"):
        group.add_argument("--concatenation", metavar="PARTS", help="of the softmax of NLI (u,v,|u-v|); u*v too")


def _add_settings(parser: argparse.ArgumentParser, name: RecipeName | None) -> None:
    group = parser.add_argument_group("settings")
    known: dict[str, str] = {}
    if name is not None:
        default = DEFAULTS[name]
        rates = ", ".join(f"{default.learning_rates[size]:g} {size}" for size in SIZES)
        known = {"epochs": f"{default.epochs:g}", "batch_size": str(default.batch_size), "warm_up": "0.1"}
        known["learning_rate"] = rates
    for setting in SETTINGS:
        told = f"{setting.help} ({known[setting.field]})" if setting.field in known else setting.help
        if name is None:
            group.add_argument(setting.flag, dest=setting.field, action="append", metavar="[STAGE=]V", help=told)
        else:
            metavar = None if setting.choices else "V"
            group.add_argument(
                setting.flag, dest=setting.field, type=setting.type, choices=setting.choices, metavar=metavar, help=told
            )


# --- running ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """One recipe."""
    from munjang import recipes

    changes = {one.field: getattr(args, one.field) for one in SETTINGS if getattr(args, one.field) is not None}
    options = _options(args, changes, args.objective)
    call = getattr(recipes, args.recipe)
    result = call(trained_model(args, reporter), args.train, args.dev, args.test, options=options)
    _tell([result], Path(args.output), reporter)


def run_chain(args: argparse.Namespace, reporter: Reporter) -> None:
    """Several recipes."""
    from munjang.recipes import Stage, chain

    stages = []
    names = [name.strip().replace("-", "_") for name in args.stages.split(",")]
    unknown = [name for name in names if name not in RECIPE_NAMES]
    if unknown:
        args.usage_error(f"STAGES must be of {', '.join(RECIPE_NAMES)}, got {', '.join(unknown)}".replace("_", "-"))
    keys = [(name.replace("_", "-"), name, str(number)) for number, name in enumerate(names, start=1)]
    _check_keys(args, keys)
    for name, own in zip(names, keys, strict=True):
        sets = {role: _sets_for(getattr(args, role), own) for role in _ROLES}
        if not sets["train"]:
            args.usage_error(f"stage {own[0]} has no training set: --train {own[0]}=SET")
        changes = {}
        for setting in SETTINGS:
            value = _value_for(getattr(args, setting.field) or [], own)
            if value is not None:
                changes[setting.field] = _parsed(setting, value, args)
        options = _options(
            args, changes, _value_for(args.objective, own), folder=False, bi=not name.startswith("cross_")
        )
        stages.append(Stage(name, sets["train"], sets["dev"], sets["test"], options))
    result = chain(trained_model(args, reporter), stages, folder=args.output)
    _tell(result.stages, Path(args.output), reporter)


def run_config(args: argparse.Namespace, reporter: Reporter) -> None:
    """A recipe.json again."""
    if args.config is None:
        args.usage_error(f"give a recipe ({', '.join(RECIPE_NAMES)}, chain) or --config FILE".replace("_", "-"))
    from munjang.recipes import repeat

    config = Path(args.config)
    folder = Path(args.output) if args.output else config if config.is_dir() else config.parent
    _tell(repeat(config, folder=folder, progress=not args.quiet and _speaks()), folder, reporter)


def _options(
    args: argparse.Namespace,
    changes: Mapping[str, object],
    objective: str | None,
    *,
    folder: bool = True,
    bi: bool = True,
) -> RecipeOptions:
    from munjang.nn.pooling import Pooling
    from munjang.recipes import LoraSettings, RecipeOptions

    found: dict[str, Any] = {}
    if bi and getattr(args, "pooling", None):
        found["pooling"] = Pooling.parse(listed(args.pooling)).modes
    if bi and getattr(args, "matryoshka", None):
        found["matryoshka"] = tuple(_whole_numbers(args, args.matryoshka))
    if getattr(args, "concatenation", None):
        found["concatenation"] = tuple(listed(args.concatenation))
    if args.lora is not None:
        found["lora"] = LoraSettings(args.lora, args.lora_alpha or 2 * args.lora, seed=args.seed or 0)
    return RecipeOptions(
        folder=args.output if folder else None,
        changes=changes,
        objective=objective,
        leakage=args.leakage,
        max_length=args.max_length,
        device=args.device,
        seed=args.seed,
        sets=set_options(args),
        progress=not args.quiet and _speaks(),
        before=not args.no_before,
        **found,
    )


def _whole_numbers(args: argparse.Namespace, text: str) -> list[int]:
    try:
        return [positive(part) for part in listed(text)]
    except (ValueError, argparse.ArgumentTypeError):
        args.usage_error(f"--matryoshka must be whole numbers with commas, such as 256,128,64, got {text!r}")
        raise


# --- values of one stage ---------------------------------------------------------------------------------------------


def _split(value: str, own: Sequence[str]) -> tuple[bool, str]:
    """Whether a value is for this stage alone, and the value."""
    key, sign, rest = value.partition("=")
    return (True, rest) if sign and key in own else (False, value)


def _sets_for(values: Sequence[str], own: Sequence[str]) -> list[str]:
    return [rest for mine, rest in (_split(value, own) for value in values) if mine]


def _value_for(values: Sequence[str], own: Sequence[str]) -> str | None:
    """The last value for this stage, or else the last one for all."""
    mine = _sets_for(values, own)
    for_all = [value for value in values if "=" not in value]
    return mine[-1] if mine else for_all[-1] if for_all else None


def _check_keys(args: argparse.Namespace, keys: Sequence[Sequence[str]]) -> None:
    """Every set must name a stage of the chain, and so must every value with a '='."""
    known = {key for own in keys for key in own}
    named = [value for role in _ROLES for value in getattr(args, role)]
    others = [value for one in SETTINGS for value in getattr(args, one.field) or [] if "=" in value]
    for value in [*named, *others, *(value for value in args.objective if "=" in value)]:
        if value.partition("=")[0] not in known or "=" not in value:
            stages = ", ".join(own[0] for own in keys)
            args.usage_error(f"expected STAGE=VALUE with a stage of the chain ({stages}), got {value!r}")


def _parsed(setting: Setting, value: str, args: argparse.Namespace) -> object:
    try:
        found = setting.type(value)
    except (ValueError, argparse.ArgumentTypeError) as error:
        args.usage_error(f"{setting.flag}: {error}")
        raise
    if setting.choices and found not in setting.choices:
        args.usage_error(f"{setting.flag} must be one of {', '.join(setting.choices)}, got {value!r}")
    return found


# --- telling ---------------------------------------------------------------------------------------------------------


def _speaks() -> bool:
    """Of several processes, the first says everything once."""
    return os.environ.get("RANK", "0") == "0"


def _tell(results: Sequence[RecipeResult], folder: Path, reporter: Reporter) -> None:
    """The scores as a table on stdout; words to stderr."""
    if not _speaks():
        return
    header = ("recipe", "set", "part", "metric", "before", "after x 100", "95 % interval", "rows")
    rows: list[tuple[str, ...]] = [header]
    for result in results:
        (reporter.warn if result.failed else reporter.say)(result.headline)
        reporter.say(f"{result.recipe.replace('_', '-')}: {result.training}")
        for note in result.notes:
            if note != result.headline:
                reporter.say(f"note: {note}")
        rows += [
            (result.recipe.replace("_", "-"), *_score_cells(part, one, old))
            for part, compared in (
                ("test", result.compared("test")),
                ("dev, chose the model", result.compared("dev")),
            )
            for one, old in compared
        ]
        part = "test" if result.scores else "dev, chose the model"
        rows += [(result.recipe.replace("_", "-"), *_score_cells(part, one, None)) for one in result.truncated]
    if len(rows) > 1:
        print(table(rows, right=(4, 5, 7)))
    last = results[-1].folder or folder
    page = folder / "index.html" if (folder / "index.html").is_file() else folder / "report.html"
    reporter.say(f"report: {page}")
    reporter.say(f"model: {last / 'model'}")


def _score_cells(part: str, one: Scores, before: Scores | None) -> tuple[str, ...]:
    bounds = one.intervals.get(one.main)
    interval = f"{100 * bounds[0]:.2f} to {100 * bounds[1]:.2f}" if bounds else ""
    was = "" if before is None else f"{100 * before.value:.2f}"
    return shorten(one.name, 40), part, one.main, was, f"{100 * one.value:.2f}", interval, f"{one.rows:,}"
