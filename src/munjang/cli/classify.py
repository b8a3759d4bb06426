"""`munjang classify`: labelled texts -> a classifier; texts, with one or with bare labels -> a label for each text."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from munjang.cli.options import add_model, add_reading, load_model, positive, texts_of
from munjang.cli.progress import Reporter
from munjang.cli.sets import add_any_labels
from munjang.cli.similarity import written
from munjang.data.rows import Texts
from munjang.errors import DataError
from munjang.report.tables import table

if TYPE_CHECKING:
    from munjang.tasks.classifier import Classifier
    from munjang.tasks.classifier_report import ClassifierReport

_SUFFIXES = (".csv", ".jsonl")
_ACTIONS = ("train", "test")
_EXAMPLES = """\
examples:
  munjang classify titles.txt --labels "스포츠,경제,정치"                   no training: by the labels alone
  munjang classify mail.txt --label "bill=a question about an invoice" --label "fault=something is broken"
  munjang classify train labelled.csv --label-column topic -o topics       eight rows per label are a beginning
  munjang classify train few.csv -o topics --fine-tune                     slower, better where rows are few
  munjang classify train tagged.jsonl --label-column tags --several -o tags
  munjang classify test held-out.csv --classifier topics --label-column topic
  munjang classify new.txt --classifier topics -o new.csv                  label and probabilities for every text

A line of the output is a label and its probability. A file that is named train or test is written ./train.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "classify",
        parents=[common],
        help="learn labels from examples and give them to texts",
        usage="munjang classify [train | test] FILE [options]",
        description="Give every text of FILE its label: with a classifier that was trained, or with nothing but the"
        " names of the labels. `train` makes a classifier of labelled texts, `test` measures one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="+", metavar="FILE", help="texts: txt, csv, tsv, jsonl, json, parquet; - is stdin"
    )
    parser.add_argument("--classifier", metavar="FOLDER", help="the classifier that `train` wrote")
    parser.add_argument("--labels", metavar="A,B,...", help="labels for classifying without training")
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=TEXT", help="a label and its description; may be repeated"
    )
    parser.add_argument("--template", default="{}", help="a sentence around each label, with {} in its place")
    parser.add_argument("--threshold", type=float, default=0.5, help="of several labels: from which probability on")
    parser.add_argument("-o", "--output", metavar="PATH", help="train: the folder; else a .csv or .jsonl file")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    _add_training(parser)
    add_reading(parser)
    add_model(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training and testing")
    group.add_argument("--label-column", default="label", metavar="C", help="column of the labels (default: label)")
    add_any_labels(group)
    group.add_argument("--several", action="store_true", help="a text may have several labels, or none")
    group.add_argument("--separator", default=",", help="between several labels in one cell (default: a comma)")
    group.add_argument("--head", choices=["logistic", "prototype"], default="logistic")
    group.add_argument("--balanced", action="store_true", help="let rare labels count as much as frequent ones")
    group.add_argument("--c", type=float, help="inverse strength of the L2 (default: chosen by rows held out)")
    group.add_argument("--fine-tune", action="store_true", help="train the model's body on pairs of the texts first")
    group.add_argument("--pairs", type=positive, metavar="N", help="for that (default: 20 per text, at most 10,000)")
    group.add_argument("--epochs", type=float, default=1.0, help="over the pairs (default: 1)")
    group.add_argument("--learning-rate", type=float, default=2e-5, help="of the body (default: 2e-5)")
    group.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Train, test or classify."""
    action, path = _checked(args)
    if action == "train":
        _train(args, path, reporter)
    elif action == "test":
        texts, labels = _labelled(args, path)
        classifier = _classifier(args, reporter)
        _print_report(
            classifier.evaluate(texts, labels, threshold=args.threshold, progress=reporter.progress(len(texts)))
        )
    else:
        _classify(args, path, reporter)


def _checked(args: argparse.Namespace) -> tuple[str | None, str]:
    action = args.words[0] if len(args.words) == 2 and args.words[0] in _ACTIONS else None
    if len(args.words) != (1 if action is None else 2):
        args.usage_error(f"expected one FILE, or train FILE, or test FILE, got {' '.join(args.words)}")
    ways = (args.classifier is not None) + (args.labels is not None or bool(args.label))
    if action == "train" and (ways or args.output is None):
        args.usage_error("train makes a classifier: give it -o FOLDER, and neither --classifier nor --labels")
    if action != "train" and ways != 1:
        args.usage_error("expected either --classifier FOLDER (which `train` writes) or --labels A,B,...")
    if action == "test" and args.output is not None:
        args.usage_error("test prints what it measured; -o is for train and for classifying")
    if not 0 < args.threshold < 1:
        args.usage_error(f"--threshold must be between 0 and 1, got {args.threshold}")
    if args.output is not None:
        _check_output(args, action)
    return action, args.words[-1]


def _check_output(args: argparse.Namespace, action: str | None) -> None:
    output = Path(args.output)
    if action is None and output.suffix.lower() not in _SUFFIXES:
        args.usage_error(f"--output must end in {' or '.join(_SUFFIXES)}, got {args.output!r}")
    there = (output / "classifier.json").exists() if action == "train" else output.exists()
    if there and not args.overwrite:
        raise DataError(f"{args.output} is there already; pass --overwrite to replace it")


def _train(args: argparse.Namespace, path: str, reporter: Reporter) -> None:
    texts, labels = _labelled(args, path)
    from munjang.tasks.classifier import Classifier
    from munjang.tasks.classifier_fitting import Logistic, Prototype
    from munjang.tasks.classifier_labels import targets_for_fitting
    from munjang.tasks.few_shot import FineTune
    from munjang.tasks.folders import check_target

    check_target(Path(args.output), "classifier")
    # Before a model is loaded:
    targets_for_fitting(texts, labels, multilabel=args.several, any_labels=args.any_labels)
    logistic = Logistic(args.c, args.balanced, args.seed)
    tune = FineTune(args.pairs, args.epochs, learning_rate=args.learning_rate, seed=args.seed)
    classifier = Classifier.fit(
        texts,
        labels,
        load_model(args, reporter),
        head=logistic if args.head == "logistic" else Prototype(),
        multilabel=args.several,
        any_labels=args.any_labels,
        fine_tune=tune if args.fine_tune else None,
        progress=reporter.progress(None),
    )
    classifier.save(args.output)
    found = classifier.calibration
    compared = None if found is None else found.against_majority
    if found is None or compared is None:
        reporter.say("accuracy: not measured, too few rows per label to hold any out")
    else:
        if compared.at_chance:
            reporter.warn(f"at chance: the labels cannot be told from these texts; held out: {compared}")
        else:
            reporter.say(f"held out: {compared}")
        reporter.say(
            f"log loss {found.log_loss_after:.4f}, calibration error {found.error_after:.3f}"
            f" (before calibration {found.error_before:.3f})"
        )
    reporter.say(f"classifier of {len(texts):,} texts, {len(classifier.labels)} labels: {args.output}")


def _classifier(args: argparse.Namespace, reporter: Reporter) -> Classifier:
    from munjang.tasks.classifier import Classifier

    if args.classifier is not None:
        model = None if args.model is None else load_model(args, reporter)
        return Classifier.load(args.classifier, model, device=args.device)
    described = {name.strip(): name.strip() for name in (args.labels or "").split(",") if name.strip()}
    for given in args.label:
        name, sign, text = given.partition("=")
        if not sign or not name.strip() or not text.strip():
            args.usage_error(f"--label must be NAME=TEXT, got {given!r}")
        described[name.strip()] = text.strip()
    if len(described) < 2:
        args.usage_error(f"expected two labels or more, got {', '.join(described) or 'none'}")
    return Classifier.zero_shot(described, load_model(args, reporter), template=args.template)


def _labelled(args: argparse.Namespace, path: str) -> tuple[list[str], Any]:
    """The texts and their labels; with --several a list for each."""
    (source,) = texts_of(args, [path], keep=[args.label_column])
    texts: list[str] = []
    labels: list[str | list[str]] = []
    for number, row in enumerate(source.rows()):
        texts.append(row.text)
        labels.append(_cell(row.columns[args.label_column], args, f"{source.name}, row {number}"))
    return texts, labels


def _cell(cell: object, args: argparse.Namespace, where: str) -> str | list[str]:
    several = args.several
    if isinstance(cell, int) and not isinstance(cell, bool) and not several:
        return str(cell)
    if isinstance(cell, str):
        return [part.strip() for part in cell.split(args.separator) if part.strip()] if several else cell
    if several and isinstance(cell, list) and all(isinstance(part, str) for part in cell):
        return cell
    wanted = "a list of texts, or a text with separators" if several else "a text"
    raise DataError(f"{where}: {args.label_column!r} must be {wanted}, got {cell!r:.60}")


def _classify(args: argparse.Namespace, path: str, reporter: Reporter) -> None:
    (source,) = texts_of(args, [path])
    total = None if not source.reiterable else source.survey().rows  # an error shows before any work is done
    classifier = _classifier(args, reporter)
    kind = "" if args.output is None else Path(args.output).suffix.lower()
    with ExitStack() as stack:
        file = sys.stdout if args.output is None else stack.enter_context(written(args.output))
        write = {"": _lines, ".csv": _csv, ".jsonl": _jsonl}[kind](file, classifier, args.threshold)
        for text, probabilities in _classified(classifier, source, total, reporter):
            write(text, probabilities)


def _classified(
    classifier: Classifier, source: Texts, total: int | None, reporter: Reporter
) -> Iterator[tuple[str, Any]]:
    """Every text with its probabilities, in order and in bounded memory; at the end, how many were cut."""
    waiting: deque[str] = deque()

    def texts() -> Iterator[str]:
        for row in source.rows():
            waiting.append(row.text)
            yield row.text

    report = None
    for window in classifier.stream(texts(), progress=reporter.progress(total)):
        report = window.report if report is None else report.plus(window.report)
        for row in window.probabilities:
            yield waiting.popleft(), row
    if report is not None and report.truncated:
        reporter.warn(
            f"warning: truncated: {report.truncated:,} of {report.texts:,} texts were longer than"
            f" {report.max_length} tokens (the longest has {report.longest:,})"
        )


Writer = Callable[[str, Any], None]


def _lines(file: TextIO, classifier: Classifier, threshold: float) -> Writer:
    """The label and its probability; of several labels, each with its own, or a bare line for none."""

    def write(text: str, probabilities: Any) -> None:
        chosen = classifier.chosen(probabilities, threshold=threshold)
        cells = (f"{name}\t{probabilities[classifier.labels.index(name)]:.4f}" for name in chosen)
        file.write("\t".join(cells) + "\n")

    return write


def _csv(file: TextIO, classifier: Classifier, threshold: float) -> Writer:
    writer = csv.writer(file)
    writer.writerow(["text", "label", *classifier.labels])

    def write(text: str, probabilities: Any) -> None:
        chosen = ",".join(classifier.chosen(probabilities, threshold=threshold))
        writer.writerow([text, chosen, *(f"{value:.6g}" for value in probabilities)])

    return write


def _jsonl(file: TextIO, classifier: Classifier, threshold: float) -> Writer:
    def write(text: str, probabilities: Any) -> None:
        chosen = classifier.chosen(probabilities, threshold=threshold)
        said = {"labels": list(chosen)} if classifier.multilabel else {"label": chosen[0]}
        values = [float(f"{value:.6g}") for value in probabilities]
        found = {"text": text, **said, "probabilities": dict(zip(classifier.labels, values, strict=True))}
        file.write(json.dumps(found, ensure_ascii=False) + "\n")

    return write


def _print_report(report: ClassifierReport) -> None:
    rows = [
        [row.label, f"{row.precision:.3f}", f"{row.recall:.3f}", f"{row.f1:.3f}", f"{row.rows:,}"]
        for row in report.labels
    ]
    print(table([["label", "precision", "recall", "F1", "rows"], *rows], right=(1, 2, 3, 4)))
    print("\n" + "  ".join(f"{name} {value:.4f}" for name, value in report.scores.values.items()))
    if report.mixed_up:
        pairs = (f"{pair.label} taken for {pair.said}: {pair.rows}" for pair in report.mixed_up[:5])
        print("most often mixed up: " + "; ".join(pairs))
