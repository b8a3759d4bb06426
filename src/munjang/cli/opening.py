"""The index that a command works on, opened with its own model or the one that was asked for."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from munjang.cli.options import add_loading, load_named
from munjang.cli.progress import Reporter

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder
    from munjang.index.identity import Identity
    from munjang.index.index import Index


def add_own_model(parser: argparse.ArgumentParser) -> None:
    """--model and how to load it, where the index knows its model."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="M", help="where the index's model lies now (default: where it was)")
    add_loading(group)


def open_index(args: argparse.Namespace, reporter: Reporter) -> Index:
    """The index at PATH. Its model is loaded when it is first needed; options about loading have it loaded here."""
    from munjang.index.index import Index

    index = Index.open(args.path)
    model = own_model(args, index.identity, reporter)
    if model is None:
        return index
    index.close()
    return Index.open(args.path, model)


def own_model(args: argparse.Namespace, identity: Identity, reporter: Reporter) -> BiEncoder | None:
    """The model as the arguments say how to load it; None where they say nothing about it."""
    if not hasattr(args, "model"):
        return None
    told = (args.model, args.device, args.threads, args.max_length, args.truncate_dim, args.revision)
    if all(value is None for value in told) and args.dtype == "auto" and not args.local_files_only:
        return None
    name = args.model or identity.source
    if not name:
        return None  # a model that was never on disk: the index says so when it needs it
    if not args.model and not os.path.isdir(name) and "@" in name:
        name, _, revision = name.partition("@")
        args.revision = args.revision or revision
    reporter.say(f"model: {name}")
    model = load_named(args, name)
    if args.max_length is None and identity.max_length <= model.parts.body.max_positions:
        model.max_length = identity.max_length
    if args.truncate_dim is None and model.full_dimension == identity.full_dimension:
        model.truncate_dim = identity.dimension if identity.dimension < identity.full_dimension else None
    return model
