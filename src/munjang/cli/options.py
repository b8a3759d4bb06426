"""Arguments that several commands share: the model, the files of texts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from munjang import bundled
from munjang.cli.progress import Reporter
from munjang.data.files import RowFile
from munjang.data.rows import FORMATS, ReadOptions, Texts, open_texts
from munjang.errors import InputError

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder


MODEL_HELP = f"bundled name, folder or hub id (default: that of MUNJANG_MODEL, else {bundled.BI_ENCODER})"


def add_model(parser: argparse.ArgumentParser, *, variable: str = "MUNJANG_MODEL") -> None:
    """--model and how to load it; without it what the variable names, else the bundled model."""
    group = parser.add_argument_group("model")
    own = bundled.BI_ENCODER if variable == "MUNJANG_MODEL" else bundled.RERANKER
    group.add_argument(
        "--model", metavar="M", help=f"bundled name, folder or hub id (default: that of {variable}, else {own})"
    )
    add_loading(group)


def add_loading(group: argparse._ArgumentGroup) -> None:
    """How to load a model."""
    group.add_argument("--revision", help="branch, tag or commit of a hub model")
    group.add_argument("--local-files-only", action="store_true", help="never ask the hub; use what is cached")
    group.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
    group.add_argument(
        "--dtype",
        choices=["auto", "float32", "float16", "bfloat16"],
        default="auto",
        help="precision of the computation; auto is float16 on GPUs and bfloat16 on CPUs that have it",
    )
    group.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: the cores there are)")
    group.add_argument("--max-length", type=positive, metavar="N", help="cut texts to so many tokens")
    group.add_argument("--truncate-dim", type=positive, metavar="N", help="keep the first N dimensions (Matryoshka)")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How to read files of texts."""
    group = parser.add_argument_group("reading")
    group.add_argument("--column", metavar="C", help="column that holds the texts: its name, or its number from 0")
    group.add_argument("--format", choices=FORMATS, help="format of the input (default: from its name; txt for stdin)")
    group.add_argument("--encoding", help="encoding of the input (default: UTF-8, UTF-16 or cp949, recognised)")
    group.add_argument(
        "--quoting",
        choices=["on", "off"],
        help='whether "..." encloses fields (default: on for csv, off for tsv)',
    )
    group.add_argument("--no-header", action="store_true", help="the first record of a csv or tsv is data, not names")


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """What the model puts before every text."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--prompt", metavar="TEXT", help="put this before every text")
    group.add_argument("--prompt-name", metavar="NAME", help="put the model's prompt of that name before every text")


def positive(value: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {value}")
    return number


def blend(value: str) -> str | float:
    """'auto' or a number, for argparse; which numbers will do is for AugmentOptions to say."""
    if value == "auto":
        return value
    try:
        return float(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected auto or a number below 1, got {value!r}") from error


def read_options(args: argparse.Namespace) -> ReadOptions:
    """How to read the inputs."""
    quoting = None if args.quoting is None else args.quoting == "on"
    return ReadOptions(args.format, args.encoding, quoting, not args.no_header)


def sources(args: argparse.Namespace, paths: Sequence[str]) -> list[RowFile]:
    """The inputs as rows."""
    if sum(path == "-" for path in paths) > 1:
        raise InputError("stdin (-) can be read only once")
    return [RowFile(Path(path), read_options(args)) for path in paths]


def texts_of(args: argparse.Namespace, paths: Sequence[str], keep: Sequence[str] = ()) -> list[Texts]:
    """The inputs as texts, with the columns to keep."""
    return [open_texts(source, column=args.column, keep=keep, check=True) for source in sources(args, paths)]


def model_name(name: str) -> str:
    """The name of a model as it was given; of the folder of a training run, an error that says where its model is."""
    if name in bundled.NAMES:
        return name
    folder = Path(name)
    runs = any((folder / file).is_file() for file in ("recipe.json", "result.json"))  # the last: augment and distill
    if not runs or (folder / "modules.json").is_file():
        return name
    models = [folder / "model", *sorted(folder.glob("[0-9]*-*/model"))]
    found = [str(path) for path in models if path.is_dir()]
    told = f"its model is {found[-1]}" if found else "it has no model yet: run its command to the end"
    raise InputError(f"{name} is the folder of a training run; {told}")


def named_or_bundled(given: str | None, *, variable: str, own: str, reporter: Reporter) -> str:
    """The model that was given, else the one that the environment names, else the bundled one; told on stderr."""
    named = os.environ.get(variable)
    name = given or named or own
    why = "" if given else f" (from {variable})" if named else " (bundled)"
    reporter.say(f"model: {name}{why}")
    return model_name(name)


def trained_model(args: argparse.Namespace, reporter: Reporter) -> str:
    """The model to train: that of --model, of MUNJANG_MODEL, or the bundled bi-encoder."""
    return named_or_bundled(args.model, variable="MUNJANG_MODEL", own=bundled.BI_ENCODER, reporter=reporter)


def load_model(args: argparse.Namespace, reporter: Reporter) -> BiEncoder:
    """The bi-encoder of --model, of MUNJANG_MODEL, or the bundled one."""
    own, variable = bundled.BI_ENCODER, "MUNJANG_MODEL"
    return load_named(args, named_or_bundled(args.model, variable=variable, own=own, reporter=reporter))


def load_named(args: argparse.Namespace, name: str) -> BiEncoder:
    """A bi-encoder as the arguments say how to load it."""
    import munjang

    model = munjang.load(
        model_name(name),
        device=args.device,
        dtype=args.dtype,
        max_length=args.max_length,
        revision=args.revision,
        local_files_only=args.local_files_only,
    )
    if args.threads is not None:
        model.threads = args.threads
    if args.truncate_dim is not None:
        model.truncate_dim = args.truncate_dim
    return model
