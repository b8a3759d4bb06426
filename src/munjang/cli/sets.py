"""What the commands that train say about their sets: columns, ranges of scores, labels, as the recipes take them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from munjang.recipes import SetOptions


def set_options(args: argparse.Namespace) -> SetOptions:
    """How sets that are given by path or by name are read; a command need not have all of the options."""
    from munjang.recipes import SetOptions

    score_range = None
    if args.score_range is not None:
        try:
            low, high = (float(part) for part in args.score_range.split(","))
        except ValueError:
            args.usage_error(f"--score-range must be LOW,HIGH, such as 0,5, got {args.score_range!r}")
        score_range = (low, high)
    labels = getattr(args, "labels", None)
    return SetOptions(
        folder=args.data,
        kind=getattr(args, "kind", None),
        columns=columns_of(args, args.columns, "--columns"),
        score_range=score_range,
        labels=None if labels is None else tuple(listed(labels)),
        any_labels=getattr(args, "any_labels", False),
        drop_outside=args.drop_outside,
        format=getattr(args, "format", None),
        encoding=args.encoding,
    )


def add_drop_outside(group: argparse._ArgumentGroup, *, labels: bool = False) -> None:
    """--drop-outside, beside --score-range and, where the command has it, --labels."""
    beside = "--score-range or --labels" if labels else "--score-range"
    group.add_argument(
        "--drop-outside", action="store_true", help=f"leave out rows outside of {beside} (default: an error)"
    )


def add_any_labels(group: argparse._ArgumentGroup) -> None:
    """--any-labels, for commands that read a column of labels."""
    group.add_argument(
        "--any-labels",
        action="store_true",
        help="take every distinct value of the label column as a label, even if they look like scores or ids",
    )


def columns_of(args: argparse.Namespace, text: str | None, option: str) -> Mapping[str, str] | None:
    """ROLE=NAME,ROLE=NAME as a mapping."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in listed(text)]
    if not all(role and sign and name for role, sign, name in pairs):
        args.usage_error(f"{option} must be ROLE=NAME,ROLE=NAME..., got {text!r}")
    return {role.strip(): name.strip() for role, _, name in pairs}


def listed(text: str) -> list[str]:
    """The parts between commas, without spaces around them and without empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]
