"""`munjang distill`: teachers and texts in, a student and a report out, by one call of `munjang.recipes.distill`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from munjang.cli.distill_words import EXAMPLES
from munjang.cli.options import model_name, positive
from munjang.cli.progress import Reporter
from munjang.cli.sets import add_drop_outside, columns_of, listed, set_options
from munjang.cli.settings import SETTINGS
from munjang.recipes.distilling.defaults import LOSSES, OBJECTIVES, VECTORS, WARM_UP, shown
from munjang.report.tables import shorten, table

if TYPE_CHECKING:
    from munjang.recipes import DistillResult, Source, Teacher
    from munjang.students import StudentPlan

_WITH = re.compile(rf"(?P<model>.+):(?P<losses>(?:{'|'.join(LOSSES)})(?:=[^,:]*)?(?:,[^:]*)?)")
_VOCABULARY = {  # as usual
    "vocabulary_kind": "wordpiece",
    "keep": "used",
    "add": "unseen",
    "embeddings": "pieces",
    "hangul": "syllables",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "distill",
        parents=[common],
        help="teach a student what other models know",
        description=(
            "Distil: a student learns a teacher's vectors (or a cross-encoder's scores): another language, fewer "
            f"layers,\nanother vocabulary. Defaults: {shown(VECTORS)}."
        ),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_models(parser)
    _add_data(parser)
    _add_student(parser)
    _add_settings(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def _add_models(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument("--teacher", action="append", required=True, metavar="T[:LOSS=W,...]",
                       help="folder or hub id; may be repeated; LOSS=W: what is learned from this one")  # fmt: skip
    group.add_argument("--student", metavar="S", help="the model that the student begins as (the teacher)")
    group.add_argument("--student-kind", choices=["bi", "cross"], help="make a bi- or cross-encoder of --student")
    group.add_argument("--objective", metavar="LOSS[=W],...",
                       help=f"of teachers that make vectors: {', '.join(LOSSES)} with weights (mse)")  # fmt: skip
    group.add_argument("--score-objective", choices=OBJECTIVES,
                       help="of a cross-encoder that teaches (kl; cosent or bce for scored pairs)")  # fmt: skip
    group.add_argument("--device", help="cpu, cuda, cuda:1... (default: the GPU where there is one)")
    group.add_argument("--max-length", type=positive, metavar="N", help="tokens that the student reads (its own)")


def _add_data(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    told = "FILE[=WEIGHT]"
    group.add_argument("--parallel", action="append", default=[], metavar=told, help="translations; may be repeated")
    group.add_argument("--texts", action="append", default=[], metavar=told, help="plain texts; may be repeated")
    group.add_argument("--pairs", action="append", default=[], metavar=told,
                       help="for a cross-encoder teacher: anchor, positive, negatives; or a, b, score")  # fmt: skip
    group.add_argument("--weight", action="append", default=[], metavar="SOURCE=W",
                       help="of a source in a file: 2 is twice an epoch, 0.5 half of it, 0 leaves it out")  # fmt: skip
    group.add_argument("--source-columns", metavar="ROLE=NAME,...",
                       help="columns of these files: anchor=영어,positive=한국어 or text=본문")  # fmt: skip
    group.add_argument("--dev", action="append", default=[], metavar="SET", help="chooses the best student")
    group.add_argument("--test", action="append", default=[], metavar="SET", help="reports; another set than --dev")
    group.add_argument("--data", metavar="DIR", help="folder of the public sets that are given by name")
    group.add_argument("--columns", metavar="ROLE=NAME,...", help="columns of --dev and --test files")
    group.add_argument("--score-range", metavar="LOW,HIGH", help="range of the scores in files, such as 0,5")
    add_drop_outside(group)
    group.add_argument("--encoding", help="of files (UTF-8, UTF-16 or cp949, recognised)")
    group.add_argument("--leakage", choices=["report", "remove", "refuse"], default="report",
                       help="what to do when evaluation sentences stand in the sources (report)")  # fmt: skip
    group.add_argument("--negatives", type=positive, metavar="N", help="to find for pairs that have none (4)")
    run = parser.add_argument_group("run")
    run.add_argument("-o", "--output", required=True, metavar="RUN", help="run folder: stages, model, report")
    run.add_argument("--cache", metavar="DIR", help="teacher vectors, which runs may share (in the run folder)")
    run.add_argument("--storage", choices=["float32", "float16"], default="float32",
                     help="of teacher vectors; float16 takes half the disk (float32)")  # fmt: skip
    run.add_argument("--seed", type=int, help="of everything random (0)")
    run.add_argument("--no-before", action="store_true", help="do not measure teachers and untrained student")
    run.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _add_student(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("student")
    group.add_argument("--layers", type=positive, metavar="N", help="keep so many layers, chosen evenly")
    group.add_argument("--hidden", type=positive, metavar="N", help="a narrower body")
    group.add_argument("--dimension", type=positive, metavar="N", help="vectors of this width, by a Dense layer")
    group.add_argument("--vocabulary", type=positive, metavar="N", help="a vocabulary of N pieces, from the sources")
    group.add_argument("--vocabulary-kind", choices=["wordpiece", "unigram"], default=_VOCABULARY["vocabulary_kind"],
                       help="of the new vocabulary (wordpiece)")  # fmt: skip
    group.add_argument("--keep", choices=["used", "all", "none"], default=_VOCABULARY["keep"],
                       help="which old pieces stay (used: those that the texts use)")  # fmt: skip
    group.add_argument("--add", choices=["unseen", "any"], default=_VOCABULARY["add"],
                       help="new pieces: of characters that no old piece has, or any frequent (unseen)")  # fmt: skip
    group.add_argument("--embeddings", choices=["pieces", "translations", "guide"], default=_VOCABULARY["embeddings"],
                       help="of new pieces: from old pieces in them, by translations, by --guide (pieces)")  # fmt: skip
    group.add_argument("--hangul", choices=["syllables", "letters"], default=_VOCABULARY["hangul"],
                       help="what Korean pieces are made of; letters leave more room to words (syllables)")  # fmt: skip
    group.add_argument("--guide", metavar="M", help="for --embeddings guide: a model that knows both languages")
    group.add_argument("--mlm-epochs", type=float, default=0.0, metavar="X",
                       help="masked-language-model warm-up over all texts, before the teaching (0: none)")  # fmt: skip
    group.add_argument("--mlm-translations", action="store_true", help="in it, also read translations as one text")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings")
    rates = ", ".join(f"{rate:g} {size}" for size, rate in VECTORS.learning_rates.items())
    known = {
        "epochs": f"{VECTORS.epochs:g}",
        "batch_size": str(VECTORS.batch_size),
        "learning_rate": rates,
        "embedding_rate": "as the rest; 3 times as much for a new vocabulary",
        "warm_up": f"{WARM_UP:g}",
    }
    for setting in SETTINGS:
        told = f"{setting.help} ({known[setting.field]})" if setting.field in known else setting.help
        metavar = None if setting.choices else "V"
        group.add_argument(
            setting.flag, dest=setting.field, type=setting.type, choices=setting.choices, metavar=metavar, help=told
        )


# --- running ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Distil."""
    if not (args.parallel or args.texts or args.pairs):
        args.usage_error("give something to learn over: --parallel, --texts or --pairs")
    from munjang.recipes import DistillOptions, distill
    from munjang.training import NegativeMining

    changes = {one.field: getattr(args, one.field) for one in SETTINGS if getattr(args, one.field) is not None}
    options = DistillOptions(
        folder=args.output,
        plan=_plan(args),
        student_kind=args.student_kind,
        changes=changes,
        weights=dict(_weighted(args, one, needed=True) for one in args.weight),
        mlm_epochs=args.mlm_epochs,
        mlm_translations=args.mlm_translations,
        guide=None if args.guide is None else model_name(args.guide),
        objective=args.score_objective,
        negatives=None if args.negatives is None else NegativeMining(negatives_per_row=args.negatives),
        cache=args.cache,
        storage=args.storage,
        leakage=args.leakage,
        max_length=args.max_length,
        device=args.device,
        seed=args.seed,
        sets=set_options(args),
        progress=not args.quiet,
        before=not args.no_before,
    )
    student = None if args.student is None else model_name(args.student)
    teachers = [_teacher(args, one) for one in args.teacher]
    result = distill(student, teachers, _sources(args), dev=args.dev, test=args.test, options=options)
    _tell(result, reporter)


def _plan(args: argparse.Namespace) -> StudentPlan | None:
    from munjang.students import StudentPlan, VocabularyPlan

    vocabulary = None
    for name, usual in _VOCABULARY.items():
        if args.vocabulary is None and getattr(args, name) != usual:
            args.usage_error(f"--{name.replace('_', '-')} is about a new vocabulary: give --vocabulary N too")
    if args.vocabulary is not None:
        vocabulary = VocabularyPlan(
            args.vocabulary,
            kind=args.vocabulary_kind,
            keep=args.keep,
            embeddings=args.embeddings,
            add=args.add,
            hangul=args.hangul,
        )
    plan = StudentPlan(args.layers, args.hidden, args.dimension, vocabulary)
    return None if plan == StudentPlan() else plan


def _teacher(args: argparse.Namespace, given: str) -> Teacher:
    """T, or T:relational=0.3; without losses of its own, --objective counts."""
    from munjang.recipes import Teacher

    found = None if Path(given).exists() else _WITH.fullmatch(given)
    if found is not None:
        return Teacher(model_name(found["model"]), **_losses(args, found["losses"], "--teacher"))
    return Teacher(
        model_name(given), **({} if args.objective is None else _losses(args, args.objective, "--objective"))
    )


def _losses(args: argparse.Namespace, text: str, option: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in listed(text):
        name, sign, value = part.partition("=")
        try:
            weight = float(value) if sign else 1.0
        except ValueError:
            weight = -1.0
        if name not in LOSSES or weight < 0:
            args.usage_error(f"{option}: expected LOSS or LOSS=WEIGHT of {', '.join(LOSSES)}, got {part!r}")
        found[name] = weight
    return found


def _sources(args: argparse.Namespace) -> list[Source]:
    from munjang.recipes import Source

    columns = columns_of(args, args.source_columns, "--source-columns")
    found = []
    for kind in ("parallel", "texts", "pairs"):
        for one in getattr(args, kind):
            path, weight = _weighted(args, one, needed=False)
            found.append(Source(path, weight, kind=kind, columns=columns))
    return found


def _weighted(args: argparse.Namespace, text: str, *, needed: bool) -> tuple[str, float]:
    """FILE=2 as FILE and 2; a name that ends in no number is a name."""
    name, sign, value = text.rpartition("=")
    try:
        weight = float(value) if sign and name else -1.0
    except ValueError:
        weight = -1.0
    if weight >= 0:
        return name, weight
    if needed:
        args.usage_error(f"--weight: expected SOURCE=WEIGHT with a number from 0 on, got {text!r}")
    return text, 1.0


def _tell(result: DistillResult, reporter: Reporter) -> None:
    """The scores as a table on stdout; words to stderr."""
    (reporter.warn if result.training.unchanged else reporter.say)(f"distill: {result.training}")
    for note in result.notes:
        reporter.say(f"note: {note}")
    rows: list[tuple[str, ...]] = [
        ("set", "part", "metric", "before", "student x 100", "95 % interval", "teacher", "kept", "rows")
    ]
    for one in result.compared:
        bounds = one.after.intervals.get(one.after.main)
        rows.append(
            (
                shorten(one.after.name, 40),
                "test" if one.part == "test" else "dev, chose the model",
                one.after.main,
                _hundred(one.before),
                _hundred(one.after),
                f"{100 * bounds[0]:.2f} to {100 * bounds[1]:.2f}" if bounds else "",
                _hundred(one.teacher),
                "" if one.kept is None else f"{100 * one.kept:.1f} %",
                f"{one.after.rows:,}",
            )
        )
    if len(rows) > 1:
        print(table(rows, right=(3, 4, 6, 7, 8)))
    reporter.say(f"report: {result.folder / 'index.html'}")
    reporter.say(f"model: {result.folder / 'model'}")


def _hundred(scores: Any) -> str:
    return "" if scores is None else f"{100 * scores.value:.2f}"
