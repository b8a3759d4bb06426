"""`python -m models.ko_en_0_1`: make, measure and describe the models that release 0.1.0 bundles."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from models.ko_en_0_1 import make_command, measure_command
from munjang.cli import run_command


def build_parser() -> argparse.ArgumentParser:
    """Declare the commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = argparse.ArgumentParser(prog="python -m models.ko_en_0_1", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    make_command.add(commands, common)
    measure_command.add(commands, common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands; exit status as of `munjang`."""
    return run_command(build_parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
