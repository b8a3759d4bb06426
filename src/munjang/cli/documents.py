"""The files of documents that a command was given: read once to be checked, then once more to be added."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_reading, sources
from munjang.cli.progress import Reporter
from munjang.data.files import RowFile
from munjang.errors import DataError, InputError

if TYPE_CHECKING:
    from munjang.data.documents import DocumentFiles, DocumentSurvey, WholeFiles

_MARKDOWN = (".md", ".markdown")


def add_documents(parser: argparse.ArgumentParser) -> None:
    """FILE..., what of it is a document, and how to read it."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="txt, csv, tsv, jsonl, json, parquet; text formats also .gz, .xz, .bz2; - is stdin",
    )
    group = parser.add_argument_group("documents")
    group.add_argument("--id-column", metavar="C", help="column of the ids (default: id, where there is one)")
    group.add_argument(
        "--metadata", default="all", metavar="C,C", help="columns to keep and filter by; all (default), or none"
    )
    group.add_argument(
        "--as-text", metavar="C,C", help="columns of a csv or tsv that stay texts though all are numbers"
    )
    group.add_argument(
        "--whole-files",
        action="store_true",
        help="a FILE, or every .txt and .md of a folder, is one document; warns about other files",
    )
    add_reading(parser)


@contextlib.contextmanager
def documents_of(args: argparse.Namespace) -> Iterator[DocumentFiles | WholeFiles]:
    """What the files hold; pipes are copied to a temporary file first, because they are read twice."""
    from munjang.data.documents import DocumentFiles, WholeFiles

    if args.whole_files:
        if args.id_column or args.column or args.as_text or args.metadata != "all":
            args.usage_error("--whole-files takes no columns: a file is one text")
        yield WholeFiles(args.files, args.encoding)
        return
    for path in args.files:
        if Path(path).is_dir():
            raise InputError(f"{path} is a folder: pass --whole-files to make every .txt and .md in it a document")
        if args.format is None and Path(path).suffix.lower() in _MARKDOWN:
            raise InputError(
                f"{path}: pass --whole-files to make it one document, or --format txt for one in each line"
            )
    with tempfile.TemporaryDirectory() as folder:
        inputs = [_spooled(source, Path(folder)) for source in sources(args, args.files)]
        metadata = None if args.metadata == "all" else [] if args.metadata == "none" else _names(args.metadata)
        yield DocumentFiles(inputs, args.id_column, metadata, _names(args.as_text or ""), args.column)


def _spooled(source: RowFile, folder: Path) -> RowFile:
    """The source or, of a pipe, a copy that can be read twice."""
    if source.reiterable:
        return source
    copy = folder / f"{len(list(folder.iterdir()))}.{source.kind}"
    with contextlib.ExitStack() as stack:
        pipe = sys.stdin.buffer if source.is_stdin else stack.enter_context(open(source.path, "rb"))
        shutil.copyfileobj(pipe, stack.enter_context(copy.open("wb")))
    return RowFile(copy, replace(source.options, format=source.kind, name=source.name))


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def survey(documents: DocumentFiles | WholeFiles, reporter: Reporter) -> int:
    """Read the inputs once before the work begins: errors show now, and the progress knows its end."""
    surveys = documents.survey()
    for found in surveys:
        reporter.say(_told(found))
        _check_fields(found)
    total = sum(found.documents for found in surveys)
    if not total:
        raise DataError(f"there is no document in {', '.join(found.name for found in surveys)}")
    return total


def _check_fields(found: DocumentSurvey) -> None:
    """Raise for a column whose name metadata cannot have."""
    from munjang.index.documents import incoming

    try:
        incoming({"text": "", **dict.fromkeys(found.fields, 0)}, 0)
    except InputError as error:
        raise InputError(f"{found.name}: {error} (or leave the column out: --metadata)") from None


def _told(found: DocumentSurvey) -> str:
    line = f"{found.name}: {found.documents:,} documents"
    if found.column is not None:
        line += f", text in {found.column!r}"
        line += f", id in {found.id_column!r}" if found.id_column is not None else ", no ids"
    if found.fields:
        shown = (f"{name} (number)" if name in found.numbers else name for name in found.fields[:20])
        line += f", metadata: {', '.join(shown)}" + (" and more" if len(found.fields) > 20 else "")
    return line + (f"; {found.blank:,} blank lines are none" if found.blank else "")
