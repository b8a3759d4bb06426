"""`python -m benchmarks.classification --data DIR`: few labelled texts and all of them, beside TF-IDF.

    sets -> vectors, once -> for every number of rows and every seed: heads, TF-IDF -> a table -> stdout, the page

YNAT (Korean news titles, 7 topics, macro F1) and Banking77 (English questions, 77 intents, accuracy), on their test
splits. Every seed draws other training rows; what a table shows is the mean and the standard deviation over them. The
vectors of the model are what `Classifier.fit` learns from; `--fine-tune` trains the body, too, which takes long.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import munjang
from benchmarks.page import Table
from munjang.data import Examples, load_dataset
from munjang.evaluation.metrics import accuracy, f1
from munjang.tasks.classifier import Classifier
from munjang.tasks.classifier_fitting import HeadSettings, Logistic, Prototype, choose, fit_head, judge
from munjang.tasks.classifier_labels import Targets
from munjang.tasks.few_shot import FineTune

Array = np.ndarray[Any, Any]
BEGIN, END = "<!-- classification:begin -->", "<!-- classification:end -->"
SIZES: dict[str, tuple[int | None, ...]] = {"ynat": (8, 16, 64, None), "banking77": (8, 16, None)}  # None: all rows
WORDS: dict[str, dict[str, Any]] = {  # what TF-IDF counts
    "ynat": {"analyzer": "char_wb", "ngram_range": (1, 3)},  # Korean words carry their particles
    "banking77": {"ngram_range": (1, 2)},
}
NOTE = (
    "Macro F1 (YNAT) and accuracy (Banking77) x 100 on the test split, mean ± standard deviation over {seeds} seeds "
    "that draw the training rows; all rows: one run. zero-shot: the names of the labels alone. TF-IDF: scikit-learn's "
    "LogisticRegression on TF-IDF of words and word pairs (Korean: of 1 to 3 characters), C of 1, 10, 100 by three "
    "folds (all rows: 10). error: how far the logistic head's probabilities are from frequencies (expected calibration "
    "error x 100). Model: {model}."
)


@dataclass(frozen=True)
class Set:
    """A set with the vectors of both of its splits."""

    name: str
    train: Examples
    test: Examples
    train_vectors: Array  # [n, d]
    test_vectors: Array


@dataclass(frozen=True)
class Told:
    """What one classifier said about the test rows."""

    score: float  # x 100
    error: float = 0.0  # x 100


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page where one is named."""
    args = _parser().parse_args(argv)
    model = munjang.load(args.model, device=args.device)
    methods = ["logistic", "prototype", "TF-IDF", *(["fine-tuned"] if args.fine_tune else [])]
    columns = ("set", "rows per label", *methods, "error")
    source = model.parts.source
    note = NOTE.format(seeds=args.seeds, model=Path(source).name if Path(source).exists() else source)
    table = Table("Labels from few texts", columns, note=note)
    for name in args.sets:
        found = _read(name, args.data, model, args.limit)
        zero = _score(
            found, Classifier.zero_shot(_names(found.train), model).head.scores(found.test_vectors), error=False
        )
        table.rows.append(
            (found.test.name, "0 (zero-shot)", "-", f"{zero.score:.1f}", *("-" for _ in methods[2:]), "-")
        )
        for size in SIZES[name]:
            table.rows.append(_row(found, size, methods, args, model))
            print(table.rows[-1], flush=True)
    print(table.text())
    if args.page is not None:
        _write(args.page, table)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classification", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of public data sets")
    parser.add_argument("--model", help="bundled name, folder or hub id (default: the bundled model)")
    parser.add_argument("--device")
    parser.add_argument("--sets", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many rows of every split (for a quick look)")
    parser.add_argument(
        "--fine-tune", action="store_true", help="also train the body on pairs (SetFit), but not on all rows"
    )
    parser.add_argument("--page", type=Path, help="write the table between the marks of this page")
    return parser


def _read(name: str, data: Path, model: munjang.BiEncoder, limit: int | None) -> Set:
    splits = [load_dataset(name, split, data) for split in ("train", "test")]
    if limit is not None:
        random = np.random.default_rng(0)
        splits = [one.take(np.sort(random.permutation(len(one))[:limit])) for one in splits]
    train, test = splits
    began = time.perf_counter()
    vectors = [model.encode(one.columns["text"]) for one in splits]
    print(f"{name}: {len(train):,} + {len(test):,} texts encoded in {time.perf_counter() - began:.0f} s", flush=True)
    return Set(name, train, test, vectors[0], vectors[1])


def _row(
    found: Set, size: int | None, methods: Sequence[str], args: argparse.Namespace, model: munjang.BiEncoder
) -> tuple[str, ...]:
    seeds = range(args.seeds if size is not None else 1)
    told: dict[str, list[Told]] = {method: [] for method in methods}
    for seed in seeds:
        rows = _drawn(found.train, size, seed)
        for method in methods:
            if method == "fine-tuned" and size is None:
                continue
            told[method].append(_measure(found, rows, method, seed, model))
    cells = [_mean([one.score for one in told[method]]) for method in methods]
    error = statistics.fmean(one.error for one in told["logistic"])
    return (found.test.name, "all" if size is None else str(size), *cells, f"{error:.1f}")


def _drawn(train: Examples, size: int | None, seed: int) -> Array:
    """So many rows of every label."""
    assert train.targets is not None
    if size is None:
        return np.arange(len(train))
    random = np.random.default_rng(seed)
    places = [np.flatnonzero(train.targets == label) for label in range(len(train.labels))]
    return np.sort(np.concatenate([random.permutation(own)[:size] for own in places]))


def _measure(found: Set, rows: Array, method: str, seed: int, model: munjang.BiEncoder) -> Told:
    assert found.train.targets is not None
    if method == "TF-IDF":
        return _tf_idf(found, rows)
    targets = Targets(found.train.labels, found.train.targets[rows])
    if method == "fine-tuned":
        few = found.train.take(rows)
        labels = [few.labels[place] for place in targets.values]
        tuned = Classifier.fit(few.columns["text"], labels, model, fine_tune=FineTune(seed=seed))
        said = tuned.probabilities(found.test.columns["text"])
        order = [tuned.labels.index(label) for label in found.train.labels]
        return _score(found, said[:, order])
    settings: HeadSettings = Logistic(seed=seed) if method == "logistic" else Prototype()
    vectors = found.train_vectors[rows]
    choice = choose(vectors, targets, settings)
    head = fit_head(vectors, targets, settings, c=choice.c)
    return _score(found, choice.scaling.probabilities(head.scores(found.test_vectors), multilabel=False))


def _tf_idf(found: Set, rows: Array) -> Told:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    assert found.train.targets is not None
    texts = [found.train.columns["text"][row] for row in rows.tolist()]
    counted = TfidfVectorizer(sublinear_tf=True, **WORDS[found.name])
    train = counted.fit_transform(texts)
    model: Any = LogisticRegression(C=10.0, max_iter=1000)
    if len(rows) < len(found.train):
        model = GridSearchCV(model, {"C": [1.0, 10.0, 100.0]}, cv=3)
    model.fit(train, found.train.targets[rows])
    test = counted.transform(found.test.columns["text"])
    said = np.zeros((test.shape[0], len(found.train.labels)), np.float32)
    said[:, model.classes_] = model.predict_proba(test)
    return _score(found, said)


def _score(found: Set, probabilities: Array, *, error: bool = True) -> Told:
    assert found.test.targets is not None
    guess = probabilities.argmax(axis=1)
    score = f1(found.test.targets, guess) if found.name == "ynat" else accuracy(found.test.targets, guess)
    off = judge(probabilities, Targets(found.test.labels, found.test.targets))[1] if error else 0.0
    return Told(100 * score, 100 * off)


def _names(examples: Examples) -> list[str]:
    return [label.replace("_", " ") for label in examples.labels]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.fmean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def _write(page: Path, table: Table) -> None:
    """Put the table between the marks; what stands around them is kept."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text.partition(BEGIN)[2]:
        raise SystemExit(f"{page} needs the marks {BEGIN} and {END} to say where the table goes")
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table.markdown()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
