"""`munjang negatives`: pairs (anchor, positive) -> the same with hard negatives."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from munjang.cli.options import add_model, load_model, positive
from munjang.cli.progress import Reporter
from munjang.cli.sets import listed
from munjang.cli.similarity import written
from munjang.data.rows import FORMATS, ReadOptions, RowSource, open_rows, read_texts
from munjang.errors import DataError, InputError

if TYPE_CHECKING:
    from munjang.data.examples import Examples
    from munjang.encoders import CrossEncoder
    from munjang.training.negatives import NegativeMining

_SUFFIXES = (".jsonl", ".csv")
_EXAMPLES = """\
examples:
  munjang negatives pairs.tsv --model MODEL --output triplets.jsonl
  munjang negatives qa.csv --anchor 질문 --positive 답변 --asymmetric -n 4 -o triplets.jsonl
  munjang negatives pairs.jsonl --corpus sentences.txt --sampling random --range-min 5 -o triplets.csv
  munjang negatives pairs.tsv --cross-encoder RERANKER --scores -o taught.jsonl
  munjang negatives nli.tsv -o triplets.jsonl                    entailments are positives, contradictions negatives
  munjang negatives scored.tsv --threshold 4 -o triplets.jsonl

What scores nearly as high as the positive is probably right as well, and is left out: --relative-margin 0.05 leaves
out what is above 95 % of the positive's score.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "negatives",
        parents=[common],
        help="find hard negatives for pairs of texts",
        description="Find texts that the model takes for near to an anchor although they are not its positive.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pairs", metavar="PAIRS", help="csv, tsv, jsonl, json or parquet; - is stdin")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="ends in .jsonl or .csv")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    _add_reading(parser)
    _add_mining(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Read, mine, write, report."""
    _check_usage(args)
    pairs, known_negatives = _read(args)
    reporter.say(f"{args.pairs}: {pairs.reading}")
    if known_negatives:
        reporter.say(f"{len(known_negatives):,} pairs are known negatives: candidates that no margin leaves out")
    corpus = None
    if args.corpus is not None:
        corpus = read_texts(Path(args.corpus), column=args.corpus_column)
    from munjang.training.negatives import mine_negatives

    model = load_model(args, reporter)
    found, report = mine_negatives(
        pairs, model, settings=_settings(args, corpus, known_negatives), progress=reporter.progress(len(pairs))
    )
    _write(args.output, found)
    reporter.say(str(report))


def _read(args: argparse.Namespace) -> tuple[Examples, list[tuple[str, str]]]:
    """The positives, and the pairs that a label says are none, of a file with or without labels or scores."""
    from munjang.data import labelled_to_pairs, nli_pairs
    from munjang.data.columns import choose_columns, some_of
    from munjang.data.reading import label_key, read_examples

    columns = {role: getattr(args, role) for role in ("anchor", "positive") if getattr(args, role) is not None}
    if args.no_header and not columns:
        columns = {"anchor": 0, "positive": 1}
    quoting = None if args.quoting is None else args.quoting == "on"
    source = open_rows(args.pairs, options=ReadOptions(args.format, args.encoding, quoting, not args.no_header))
    table, name = source.open(), source.short_name
    chosen = choose_columns(table.names, "pairs", columns, name)
    target = None if args.all_positive else _target(args, table.names, list(chosen.texts.values()), name)
    if target is None:
        rows = RowSource(name, lambda: table)
        return read_examples(rows, kind="pairs", columns=columns or None, name=name), []
    if len(chosen.texts) > 2:
        raise InputError(f"{name}: these pairs have negatives already ({', '.join(list(chosen.texts)[2:])})")
    roles = {"a": chosen.texts["anchor"], "b": chosen.texts["positive"], "label": target}
    notes = (*chosen.note, f"positives by column {table.names[target]}")
    rows = RowSource(name, lambda: replace(table, notes=notes))
    # Scores are read as labels too: they are compared on the scale of the file.
    found = read_examples(rows, kind="labelled", columns=roles, any_labels=True, name=name)
    where = f"{name}: the column {table.names[target]!r}"
    if args.threshold is not None:
        return _above(found, args.threshold, where), []
    if args.positive_label is not None:
        positive = [label_key(label) for label in listed(args.positive_label)]
        pairs = labelled_to_pairs(found, positive)
        return pairs, _with_labels(found, set(found.labels) - set(positive))
    if {"entailment", "contradiction"} <= {label.casefold() for label in found.labels}:
        return nli_pairs(found), _with_labels(
            found, {label for label in found.labels if label.casefold() == "contradiction"}
        )
    raise InputError(
        f"{where} labels or scores the pairs ({some_of(found.labels)}). "
        "Name the labels of the positives (--positive-label same), or the lowest score of a positive (--threshold 4), "
        "or take every row for a positive (--all-positive)"
    )


def _target(args: argparse.Namespace, names: Sequence[str], taken: Sequence[int], where: str) -> int | None:
    """The column that labels or scores the pairs: as named, or by a usual name."""
    from munjang.data.columns import PAIR_LABELS, PAIR_SCORES, choose_column

    if args.label_column is not None:
        return choose_column(names, args.label_column, where)
    plain = [name.strip().lower() for name in names]
    usual = (*PAIR_SCORES, *PAIR_LABELS) if args.threshold is not None else (*PAIR_LABELS, *PAIR_SCORES)
    for name in usual:
        if name in plain and plain.index(name) not in taken:
            return plain.index(name)
    if args.positive_label is not None or args.threshold is not None:
        raise InputError(f"{where}: no column of labels or scores found in {', '.join(names)}; name it: --label-column")
    return None


def _with_labels(found: Examples, labels: Collection[str]) -> list[tuple[str, str]]:
    assert found.targets is not None
    rows = zip(found.columns["a"], found.columns["b"], found.targets.tolist(), strict=True)
    return [(a, b) for a, b, label in rows if found.labels[label] in labels]


def _above(found: Examples, threshold: float, where: str) -> Examples:
    """The rows whose label is a number of at least the threshold."""
    from munjang.data import labelled_to_pairs
    from munjang.data.columns import some_of

    try:
        scores = [float(label) for label in found.labels]
    except ValueError:
        raise InputError(f"{where} holds no scores ({some_of(found.labels, 5)}), so --threshold does not fit") from None
    if max(scores) < threshold:
        raise InputError(f"{where} holds no score of {threshold:g} or more; the highest is {max(scores):g}")
    assert found.targets is not None
    below = [row for row, label in enumerate(found.targets.tolist()) if scores[label] < threshold]
    return labelled_to_pairs(found.less(below, reason=f"score below {threshold:g}"), found.labels)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reading")
    group.add_argument("--anchor", metavar="C", help="column of the anchors: its name, or its number from 0")
    group.add_argument("--positive", metavar="C", help="column of the positives (default: usual names)")
    group.add_argument(
        "--label-column", metavar="C", help="column that labels or scores the pairs (default: usual names, if any)"
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--positive-label", metavar="A,...", help="labels of the positives (default: entailment in a file of NLI)"
    )
    which.add_argument("--threshold", type=float, metavar="S", help="lowest score of a positive, as in the file")
    which.add_argument("--all-positive", action="store_true", help="take every row for a positive, whatever its label")
    group.add_argument("--format", choices=FORMATS, help="format of the pairs (default: from the file's name)")
    group.add_argument("--encoding", help="encoding of the pairs (default: UTF-8, UTF-16 or cp949, recognised)")
    group.add_argument("--quoting", choices=["on", "off"], help='whether "..." encloses fields')
    group.add_argument("--no-header", action="store_true", help="the first record of a csv or tsv is data, not names")
    group.add_argument(
        "--corpus", metavar="FILE", help="find negatives in these texts (default: the positives and known negatives)"
    )
    group.add_argument("--corpus-column", metavar="C", help="column of the corpus that holds the texts")


def _add_mining(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("mining")
    group.add_argument("-n", "--negatives", type=positive, default=1, metavar="N", help="negatives per pair (1)")
    group.add_argument("--range-min", type=int, default=0, metavar="R", help="leave out the R nearest texts (0)")
    group.add_argument("--range-max", type=positive, default=100, metavar="R", help="look at the R nearest texts (100)")
    group.add_argument("--max-score", type=float, metavar="S", help="leave out what scores above")
    group.add_argument("--min-score", type=float, metavar="S", help="leave out what scores below")
    group.add_argument("--absolute-margin", type=float, metavar="M", help="at most the positive's score - M")
    margin = group.add_mutually_exclusive_group()
    margin.add_argument(
        "--relative-margin", type=float, default=0.05, metavar="M", help="at most (1 - M) of its score (0.05)"
    )
    margin.add_argument("--no-relative-margin", action="store_true", help="also what scores above the positive")
    group.add_argument("--sampling", choices=["top", "random"], default="top", help="the nearest of the rest, or any")
    group.add_argument("--seed", type=int, default=0, help="for --sampling random (0)")
    group.add_argument("--asymmetric", action="store_true", help="anchors are queries, positives documents: prompts")
    group.add_argument("--cross-encoder", metavar="M", help="judges candidates by its own scores: folder or hub id")
    group.add_argument("--scores", action="store_true", help="write the cross-encoder's scores as well")


def _check_usage(args: argparse.Namespace) -> None:
    if Path(args.output).suffix.lower() not in _SUFFIXES:
        args.usage_error(f"--output must end in {' or '.join(_SUFFIXES)}, got {args.output!r}")
    if args.scores and args.cross_encoder is None:
        args.usage_error("--scores needs --cross-encoder")
    if Path(args.output).exists() and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _settings(
    args: argparse.Namespace, corpus: list[str] | None, known_negatives: list[tuple[str, str]]
) -> NegativeMining:
    from munjang.training.negatives import NegativeMining

    return NegativeMining(
        corpus=corpus,
        known_negatives=known_negatives,
        negatives_per_row=args.negatives,
        range_min=args.range_min,
        range_max=args.range_max,
        max_score=args.max_score,
        min_score=args.min_score,
        absolute_margin=args.absolute_margin,
        relative_margin=None if args.no_relative_margin else args.relative_margin,
        sampling=args.sampling,
        seed=args.seed,
        cross_encoder=None if args.cross_encoder is None else _judge(args),
        keep_scores=args.scores,
        asymmetric=args.asymmetric,
    )


def _judge(args: argparse.Namespace) -> CrossEncoder:
    import munjang

    return munjang.load_cross_encoder(
        args.cross_encoder, device=args.device, dtype=args.dtype, local_files_only=args.local_files_only
    )


def _write(output: str, found: Examples) -> None:
    names = list(found.columns)
    texts = zip(*found.columns.values(), strict=True)
    scores = None if found.targets is None else [[float(f"{s:.7g}") for s in row] for row in found.targets.tolist()]
    with written(output) as file:
        if output.lower().endswith(".csv"):
            writer = csv.writer(file)
            writer.writerow([*names, *(f"score_{name}" for name in names[1:] if scores is not None)])
            writer.writerows([*row, *(scores[i] if scores is not None else [])] for i, row in enumerate(texts))
            return
        for i, row in enumerate(texts):
            line: dict[str, object] = dict(zip(names, row, strict=True))
            if scores is not None:
                line["scores"] = scores[i]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
