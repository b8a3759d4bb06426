"""`munjang report`: the report of a finished run, made again from its folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from munjang.cli.progress import Reporter

_EXAMPLES = """\
examples:
  munjang report runs/sts             writes runs/sts/report.html
  munjang report runs/chain           writes the report of every stage, and index.html over them
  munjang report runs/augmented       the same, of `munjang augment`
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        parents=[common],
        help="make the report of a training run again",
        description="Make report.html of a run of `munjang train` again: one file, which opens without a network.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="RUN", help="run folder of a recipe or of a chain")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Write, and say where."""
    from munjang.recipes import write_augmented_report, write_overview, write_report
    from munjang.recipes.augmenting.report import training_folders
    from munjang.recipes.distilling.report import is_distillation, write_page
    from munjang.recipes.report.facts import stage_folders

    del reporter  # the paths are the result
    if is_distillation(Path(args.folder)):
        print(write_page(args.folder))
        return
    trainings = training_folders(Path(args.folder))
    for training in trainings:
        write_report(training)
    if trainings:
        print(write_augmented_report(args.folder))
        return
    stages = stage_folders(Path(args.folder))
    for stage in stages:
        write_report(stage)
    print(write_overview(args.folder) if stages else write_report(args.folder))
