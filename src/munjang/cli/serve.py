"""`munjang serve`: indexes and models -> a service over HTTP, with a page, until it is told to leave."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang import bundled
from munjang.cli.progress import Reporter
from munjang.errors import InputError, ModelNotFoundError
from munjang.index.remote.address import is_address, parse

if TYPE_CHECKING:
    from munjang.serve.settings import Limits, ServeSettings

_EXAMPLES = """\
examples:
  munjang serve my-index                                 # http://127.0.0.1:8000: the page, and /docs for programs
  munjang serve faq=indexes/faq news=indexes/news --port 9000
  munjang serve --model ko-en=./my-model --reranker ./my-reranker
  munjang serve my-index --host 0.0.0.0 --keys keys.txt --log json
  munjang serve "postgresql://user@db.example.org/search?index=faq"    # several services may share it
  munjang serve my-index --limit k=200 --limit body_bytes=1000000

Each --model and --reranker is a name, a folder or a hub id, or NAME=that. An index brings its own model. Without an
index the bundled bi-encoder is served, and the bundled cross-encoder always unless --no-reranker; MUNJANG_MODEL and
MUNJANG_RERANKER name others.

A line of --keys is KEY ROLE [NAME]; the role is read or write. MUNJANG_KEYS holds the same, or KEY:ROLE,KEY:ROLE. On
127.0.0.1 none is needed; other addresses are refused without keys, unless --allow-open.

The first SIGTERM or Ctrl-C finishes what was accepted, the second ends at once.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "serve",
        parents=[common],
        help="serve indexes and models over HTTP, with a page",
        description="Serve indexes and models over HTTP: a page, our requests, and those of OpenAI, Cohere and TEI.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("indexes", nargs="*", metavar="INDEX", help="the folder or address of an index, or NAME=FOLDER")
    group = parser.add_argument_group("models")
    group.add_argument("--model", action="append", default=[], metavar="M", help="a bi-encoder, or NAME=M; several")
    group.add_argument(
        "--reranker", action="append", default=[], metavar="M", help="a cross-encoder, or NAME=M; several"
    )
    group.add_argument("--no-reranker", action="store_true", help="without the bundled cross-encoder")
    group.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1 (default: a GPU where there is one)")
    group = parser.add_argument_group("address and access")
    group.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="address to listen at (127.0.0.1: this machine)"
    )
    group.add_argument("--port", type=int, default=8000, metavar="N", help="port (8000); 0 takes a free one")
    group.add_argument("--keys", metavar="FILE", help="API keys with their roles")
    group.add_argument("--allow-open", action="store_true", help="serve other machines without keys")
    group.add_argument(
        "--cors", action="append", default=[], metavar="ORIGIN", help="pages of this origin may call; several, or *"
    )
    group = parser.add_argument_group("other")
    group.add_argument("--limit", action="append", default=[], metavar="NAME=N", help="another limit; docs/service.md")
    group.add_argument("--log", choices=("text", "json"), default="text", help="lines for people (default) or machines")
    group.add_argument("--no-page", action="store_true", help="requests only, no page at /")
    group.add_argument("--title", default="Munjang", metavar="T", help="what the page is called")
    parser.set_defaults(run=run_serve, usage_error=parser.error)


def run_serve(args: argparse.Namespace, reporter: Reporter) -> None:
    """Check everything that can be checked, then serve."""
    settings = settings_of(args, reporter)
    from munjang.serve.running import machine_urls, run

    def ready(address: str) -> None:
        what = "the page" if settings.page else "requests"
        reporter.say(f"{address}  ({what}; {address}/docs lists every request; Ctrl-C ends)")
        for url in machine_urls(settings.host, address):
            reporter.say(f"{url}  (from other machines)")

    run(settings, on_ready=ready)


def settings_of(args: argparse.Namespace, reporter: Reporter) -> ServeSettings:
    """The settings that the arguments and the environment tell."""
    from munjang.serve.auth import read_keys
    from munjang.serve.settings import ServeSettings

    keys = read_keys(args.keys)
    indexes = named(args.indexes, "INDEX")
    for name, path in indexes.items():
        _check_index(name, path)
    return ServeSettings(
        models=named(args.model or _default_model(bool(indexes)), "--model"),
        rerankers=named(args.reranker or _default_reranker(args.no_reranker, reporter), "--reranker"),
        indexes=indexes,
        host=args.host,
        port=args.port,
        keys=keys.roles,
        key_names=keys.names,
        cors=tuple(args.cors),
        allow_open=args.allow_open,
        limits=_limits(args.limit),
        log_format=args.log,
        device=args.device,
        page=not args.no_page,
        title=args.title,
    )


def named(given: Sequence[str], what: str) -> dict[str, str]:
    """NAME=PATH, or a path whose last part is the name."""
    found: dict[str, str] = {}
    for one in given:
        name, sign, path = one.partition("=")
        if is_address(one):
            name, path = parse(one).name, one
        elif not sign or Path(one).exists():
            name, path = _last_part(one), one
        if not name or not path:
            raise InputError(f"{what} must be a path or NAME=PATH, got {one!r}")
        if name in found:
            raise InputError(f"two of {what} are named {name!r}: name them, NAME=PATH")
        found[name] = path
    return found


def _last_part(path: str) -> str:
    """The name of a folder, also of '.'; of a hub id what follows the owner."""
    return Path(path).expanduser().resolve().name if Path(path).expanduser().exists() else Path(path).name


def _check_index(name: str, path: str) -> None:
    from munjang.index.index import Index
    from munjang.index.schema import check_folder

    if is_address(path):
        Index.open(path).close()
    else:
        check_folder(Path(path).expanduser())


def _default_model(with_indexes: bool) -> list[str]:
    if with_indexes:
        return []
    return [os.environ.get("MUNJANG_MODEL") or bundled.BI_ENCODER]


def _default_reranker(without: bool, reporter: Reporter) -> list[str]:
    if without:
        return []
    if os.environ.get("MUNJANG_RERANKER"):
        return [os.environ["MUNJANG_RERANKER"]]
    try:
        bundled.path(bundled.RERANKER)
    except ModelNotFoundError:
        reporter.warn(f"this installation lacks {bundled.RERANKER}: nothing is reranked; --reranker names another")
        return []
    return [bundled.RERANKER]


def _limits(given: Sequence[str]) -> Limits:
    from munjang.serve.settings import Limits

    usual = {one.name: one.default for one in fields(Limits)}
    found: dict[str, Any] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in usual:
            raise InputError(f"--limit {one!r}: a limit is one of {', '.join(usual)}")
        try:
            found[name] = int(value) if isinstance(usual[name], int) else float(value)
        except ValueError:
            raise InputError(f"--limit {name} must be a number, got {value!r}") from None
    return Limits(**found)
