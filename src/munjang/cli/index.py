"""`munjang index`: files of documents -> an index on disk, and everything that keeps it."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from munjang.cli.documents import add_documents, documents_of, survey
from munjang.cli.index_words import (
    ACTIONS,
    ADDED,
    COPY_EXAMPLES,
    CREATED,
    DELETE_EXAMPLES,
    DESCRIPTION,
    EXAMPLES,
    GET_EXAMPLES,
    READ_EXAMPLES,
    REENCODE_EXAMPLES,
    TRANSFER_EXAMPLES,
)
from munjang.cli.opening import add_own_model, open_index, own_model
from munjang.cli.options import add_model, load_model, positive
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError, MunjangError
from munjang.index.options import IndexOptions, VectorKind
from munjang.index.remote.address import is_address, masked
from munjang.report.tables import table

if TYPE_CHECKING:
    from munjang.index.index import Index
    from munjang.index.results import Document

_Run = Callable[[argparse.Namespace, Reporter], None]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "index",
        parents=[common],
        help="make and keep an index of documents",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, run: _Run, epilog: str = "") -> argparse.ArgumentParser:
        return _action(actions, common, name, run, epilog)

    create = action("create", run_create, READ_EXAMPLES.format(action="create", kept=CREATED))
    add_documents(create)
    _add_layout(create)
    add_model(create)
    more = action("add", run_add, READ_EXAMPLES.format(action="add", kept=ADDED))
    add_documents(more)
    add_own_model(more)
    delete = action("delete", run_delete, DELETE_EXAMPLES)
    delete.add_argument("ids", nargs="+", metavar="ID", help="ids of documents; - reads them from stdin, one a line")
    delete.add_argument("--missing-ok", action="store_true", help="ids that are not there are no error")
    get = action("get", run_get, GET_EXAMPLES)
    get.add_argument("ids", nargs="+", metavar="ID", help="ids of documents")
    get.add_argument("--json", action="store_true", help="a JSON line for each")
    action("info", run_info).add_argument("--json", action="store_true", help="as JSON")
    action("verify", run_verify)
    reencoding = action("reencode", run_reencode, REENCODE_EXAMPLES)
    _add_cutting(reencoding.add_argument_group("layout"))
    add_model(reencoding)
    action("compact", run_compact)
    export = action("export", run_export, TRANSFER_EXAMPLES)
    export.add_argument("file", metavar="FILE", help="ends in .parquet")
    export.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    copying = action("copy", run_copy, COPY_EXAMPLES)
    copying.add_argument("to", metavar="TO", help="where there is no index yet, or a copy that was broken off")
    importing = action("import", run_import, TRANSFER_EXAMPLES)
    importing.add_argument("file", metavar="FILE", help="a file that `munjang index export` wrote")
    add_own_model(importing)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
    name: str,
    run: _Run,
    epilog: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        parents=[common],
        help=ACTIONS[name],
        description=ACTIONS[name][0].upper() + ACTIONS[name][1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="the folder of the index, or its address on a server")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no report")
    parser.set_defaults(run=run, usage_error=parser.error)
    return parser


def _add_layout(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("layout")
    group.add_argument("--vectors", choices=get_args(VectorKind), default="float32", help="how they are kept (float32)")
    _add_cutting(group)
    group.add_argument("--no-keyword", action="store_true", help="vectors only: no keyword or hybrid search")


def _add_cutting(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--chunk-tokens",
        type=positive,
        metavar="N",
        help="tokens of a passage (3/4 of what the model reads, at most 256)",
    )
    group.add_argument("--stride", type=positive, metavar="N", help="tokens from one passage to the next (half of it)")
    title = group.add_mutually_exclusive_group()
    title.add_argument("--title", default="title", metavar="C", help="column that is searched with the text (title)")
    title.add_argument("--no-title", dest="title", action="store_const", const=None, help="search the text alone")


# --- filling ---------------------------------------------------------------------------------------------------------


def run_create(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read everything once, load the model, make the index, fill it."""
    options = IndexOptions(args.vectors, args.chunk_tokens, args.stride, keyword=not args.no_keyword, title=args.title)
    _check_vacant(args.path)
    from munjang.index.index import Index

    with documents_of(args) as documents:
        total = survey(documents, reporter)
        model = load_model(args, reporter)
        was_there = Path(args.path).exists()
        index: Index | None = None
        try:
            with Index.create(args.path, model, options=options) as index:
                report = index.add(documents, progress=reporter.progress(total))
        except BaseException as error:
            _take_back(args.path, index, itself=not was_there)
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(f"interrupted; {masked(args.path)} was not made") from None
            raise
    reporter.say(f"{masked(args.path)}: {report}")


def run_add(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read everything once, open the index, add."""
    with documents_of(args) as documents:
        total = survey(documents, reporter)
        with open_index(args, reporter) as index:
            before = index.count
            try:
                report = index.add(documents, progress=reporter.progress(total))
            except KeyboardInterrupt:
                now = "keeps what was added before" if is_address(args.path) else f"is as it was: {before:,} documents"
                raise KeyboardInterrupt(f"interrupted; {masked(args.path)} {now}") from None
            reporter.say(f"{masked(args.path)}: {report}; {index.count:,} documents now")


def _check_vacant(path: str) -> None:
    """Raise where an index cannot be made, before everything is read."""
    from munjang.index.schema import DATABASE

    if is_address(path):
        from munjang.index.remote.opening import check_vacant

        check_vacant(path)
        return
    folder = Path(path)
    if folder.is_file():
        raise InputError(f"an index is a folder, but {folder} is a file: choose another PATH")
    if (folder / DATABASE).is_file():
        raise InputError(f"{folder} is an index already: `munjang index add {folder} FILE...` adds to it")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is a folder with other files: an index needs one of its own")


def _take_back(path: str, index: Index | None, *, itself: bool) -> None:
    """Take away what this command made, in a folder that was empty or not there, or on a server."""
    if not is_address(path):
        _remove(Path(path), itself=itself)
    elif index is not None:
        from munjang.index.remote.opening import drop

        with contextlib.suppress(MunjangError):  # what went wrong first is what to tell
            drop(path)


def _remove(folder: Path, *, itself: bool) -> None:
    for part in list(folder.iterdir()) if folder.is_dir() else []:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
    if itself:
        with contextlib.suppress(OSError):
            folder.rmdir()


# --- keeping ---------------------------------------------------------------------------------------------------------


def run_delete(args: argparse.Namespace, reporter: Reporter) -> None:
    """Delete all of the ids or, if one is not there, none."""
    from munjang.data.columns import some_of

    ids = list(dict.fromkeys(_ids(args.ids)))
    with open_index(args, reporter) as index:
        missing = [repr(key) for key in ids if key not in index]
        if missing and not args.missing_ok:
            raise InputError(
                f"{masked(args.path)} has no document {some_of(missing)}; nothing was deleted (--missing-ok deletes "
                "the others)"
            )
        deleted = index.delete(ids)
        reporter.say(f"{masked(args.path)}: {deleted:,} deleted; {index.count:,} documents now")


def _ids(given: list[str]) -> Iterator[str]:
    for key in given:
        if key == "-":
            yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
        else:
            yield key


def run_get(args: argparse.Namespace, reporter: Reporter) -> None:
    """Print the documents."""
    with open_index(args, reporter) as index:
        found = [index.get(key) for key in args.ids]
    for number, document in enumerate(found):
        print(_as_json(document) if args.json else ("\n" if number else "") + _as_text(document))


def _as_json(document: Document) -> str:
    content = {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}
    return json.dumps(content, ensure_ascii=False)


def _as_text(document: Document) -> str:
    facts = "".join(f"{name}: {value}\n" for name, value in document.metadata.items())
    return f"id: {document.id}\n{facts}\n{document.text}"


def run_info(args: argparse.Namespace, reporter: Reporter) -> None:
    """Print what the index says of itself."""
    with open_index(args, reporter) as index:
        facts: Mapping[str, object] = index.describe()
    if args.json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    print(table([[name, _said(value)] for name, value in facts.items()]))


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def run_verify(args: argparse.Namespace, reporter: Reporter) -> None:
    """Check; what is wrong is an error, and the exit status says so."""
    with open_index(args, reporter) as index:
        report = index.verify(progress=reporter.progress(None))
    if not report.ok:
        raise DataError(f"{masked(args.path)} is damaged: {report}")
    print(report)


def run_reencode(args: argparse.Namespace, reporter: Reporter) -> None:
    """Move the index to the model."""
    from munjang.index.index import Index

    model = load_model(args, reporter)
    with Index.open(args.path) as index:
        own = index.options
        options = replace(own, chunk_tokens=args.chunk_tokens, stride=args.stride, title=args.title)
        try:
            count = index.reencode(model, options=options, progress=reporter.progress(index.count))
        except KeyboardInterrupt:
            again = f"interrupted; {masked(args.path)} keeps its model, and the same command goes on where it stopped"
            raise KeyboardInterrupt(again) from None
    reporter.say(f"{masked(args.path)}: {count:,} documents, searched with {model.parts.source}")


def run_compact(args: argparse.Namespace, reporter: Reporter) -> None:
    """Compact, and say what it brought."""
    with open_index(args, reporter) as index:
        before = _megabytes(index)
        index.compact()
        after = _megabytes(index)
    reporter.say(f"{masked(args.path)}: {before:.1f} MB before, {after:.1f} MB now")


def _megabytes(index: Index) -> float:
    if is_address(index.path):
        sizes = index.describe().get("bytes")
        return sum(sizes.values()) / 1e6 if isinstance(sizes, Mapping) else 0.0
    return sum(file.stat().st_size for file in Path(index.path).rglob("*") if file.is_file()) / 1e6


def run_export(args: argparse.Namespace, reporter: Reporter) -> None:
    """Write the Parquet file."""
    if Path(args.file).suffix.lower() != ".parquet":
        args.usage_error(f"FILE must end in .parquet, got {args.file!r}")
    if Path(args.file).exists() and not args.overwrite:
        raise DataError(f"{args.file} is there already; pass --overwrite to replace it")
    with open_index(args, reporter) as index:
        count = index.export(args.file, overwrite=args.overwrite, progress=reporter.progress(index.count))
    reporter.say(f"{args.file}: {count:,} documents")


def run_import(args: argparse.Namespace, reporter: Reporter) -> None:
    """Make the index from the file."""
    from munjang.index.identity import Identity
    from munjang.index.index import Index
    from munjang.index.transfer import read_header

    _check_vacant(args.path)
    header = read_header(Path(args.file))
    model = own_model(args, Identity(**header["model"]), reporter)
    try:
        index = Index.import_(args.file, args.path, model, progress=reporter.progress(header["documents"]))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {masked(args.path)} was not made") from None
    with index:
        reporter.say(f"{masked(args.path)}: {index.count:,} documents")


def run_copy(args: argparse.Namespace, reporter: Reporter) -> None:
    """Copy, and compare."""
    from munjang.index.remote.copying import copy

    with open_index(args, reporter) as index:
        try:
            report = copy(index, args.to, progress=reporter.progress(2 * index.count))
        except KeyboardInterrupt:
            again = f"interrupted; the same command goes on with {masked(args.to)} where it stopped"
            raise KeyboardInterrupt(again) from None
    reporter.say(f"{masked(args.to)}: {report}")
