"""The command `munjang`: arguments in, one library call, data to stdout, words to stderr.

Every command is a module with `add(commands, common)`, which declares its arguments, and a function that runs it.
Torch is imported by what runs a command, never by the parser, so that `munjang --help` answers at once.

Exit status: 0 done; 1 an error, told in one line (`--debug` shows where); 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import TextIO

from munjang.cli import (
    augment,
    classify,
    cluster,
    demo,
    distill,
    encode,
    evaluate,
    export,
    index,
    info,
    keywords,
    mine,
    negatives,
    plan,
    recommend,
    report,
    score,
    search,
    serve,
    similarity,
    topics,
    train,
)
from munjang.cli import map as text_map
from munjang.cli.progress import Reporter
from munjang.errors import MunjangError, MunjangWarning

_DESCRIPTION = "Fast sentence embeddings and reranking for Korean and English."
_EXAMPLES = """\
examples:
  munjang encode corpus.txt --model MODEL --output corpus.npy
  munjang encode reviews.csv --column 본문 --keep id --output reviews.parquet
  echo "한국어 문장" | munjang encode - > vectors.jsonl
  munjang similarity --text "비가 온다" --text "It is raining"
  munjang similarity queries.txt corpus.txt --top 5
  munjang score --query "환불은 어떻게 하나요?" --documents faq.txt --model RERANKER
  munjang index create my-index faq.csv --column question && munjang search my-index "환불은 어떻게 하나요?" --rerank
  munjang cluster reviews.txt
  munjang mine questions.txt --output pairs.csv
  munjang map corpus.txt --output map.html
  munjang train sts --model MODEL --train korsts --dev korsts --test korsts --data DIR --output runs/sts
  munjang train chain nli,sts --model MODEL --train nli=klue-nli --train sts=klue-sts --data DIR --output runs/chain
  munjang augment --model MODEL --gold few.tsv --domain sentences.txt --dev dev.tsv --output runs/augmented
  munjang distill --teacher MODEL --parallel talks.tsv --vocabulary 32000 --output runs/bilingual
  munjang evaluate MODEL OTHER --suite korean --data DIR
  munjang export -o ko-en-onnx --format onnx
  munjang info MODEL
  munjang encode shards/ --engine processes --workers 4 --output vectors/
  munjang index copy my-index "postgresql://host/database?index=faq"
  munjang plan --measure && munjang plan --rows 100M --tokens 30 --vectors int8

MODEL is a bundled name, a folder or a hub id. Commands that encode, compare, score or evaluate take a bundled model
where none is given (munjang-ko-en; `score`: munjang-rerank-ko-en). The environment variable MUNJANG_MODEL names another
for all commands, MUNJANG_RERANKER another cross-encoder for `score`.
`munjang COMMAND --help` explains a command. "-" is stdin; data go to stdout, progress to stderr.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; wrong usage leaves through SystemExit(2), as argparse does."""
    return run_command(_parser(), argv)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> int:
    """Parse a command line and call the `run(args, reporter)` that it selects; errors become one line and a status."""
    _speak_any_language()
    args = parser.parse_args(argv)
    reporter = Reporter(sys.stderr, quiet=getattr(args, "quiet", False))
    try:
        with _warnings_to(reporter):
            args.run(args, reporter)
            sys.stdout.flush()
            if getattr(args, "output", None) is not None:
                reporter.written(str(args.output))
    except BrokenPipeError:
        _forget_stdout()  # the reader has had enough, as in `| head`
        return 0
    except KeyboardInterrupt as interruption:
        reporter.warn(str(interruption) or "interrupted")
        return 130
    except (MunjangError, OSError, MemoryError) as error:
        return _failed(error, reporter, debug=args.debug)
    except Exception as error:
        if not args.debug:
            reporter.warn("internal error, please report it; rerun with --debug for a traceback")
        return _failed(error, reporter, debug=args.debug)
    finally:
        reporter.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error came from")
    parser = argparse.ArgumentParser(
        prog="munjang",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and leave")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    used = (encode, similarity, score, evaluate, export, info, plan)
    found = (index, search, cluster, mine, classify, keywords, topics, recommend, text_map, serve, demo)
    made = (train, augment, distill, negatives, report)
    for command in (*used, *found, *made):
        command.add(commands, common)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"munjang {version('munjang')}")
        parser.exit()


def _failed(error: BaseException, reporter: Reporter, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    reporter.warn(f"error: {error or type(error).__name__}")
    return 1


@contextlib.contextmanager
def _warnings_to(reporter: Reporter) -> Iterator[None]:
    """Warnings of ours as one plain line, each once; those of other packages as they are."""
    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", MunjangWarning)
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, MunjangWarning):
                usual(message, category, filename, lineno, file, line)
            elif str(message) not in said:
                said.add(str(message))
                reporter.warn(f"warning: {message}")

        warnings.showwarning = show
        yield


def _speak_any_language() -> None:
    """A console that lacks a character shows a substitute instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _forget_stdout() -> None:
    """Python flushes stdout once more when it ends, and would complain there."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
