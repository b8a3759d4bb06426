"""Scenarios of `differential.py`: public calls over random inputs, each returning plain values.

A scenario gets a `Sandbox` and returns numbers, strings, arrays, lists and dicts. It runs in a fresh process per tree.
Only documented names may be used here: inner modules differ between the trees.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samples import free_port, minilm, text, tiny_model, unicode_text

SKIPPED = "skipped"  # what a tree does not support, or this machine does not have
FLOAT32: dict[str, Any] = {"device": "cpu", "dtype": "float32"}
SCENARIOS: dict[str, Callable[[Sandbox], Any]] = {}


@dataclass(frozen=True)
class Sandbox:
    """What a scenario may use: random numbers of the seed, an empty folder, the folder of the old tree's run."""

    random: random.Random
    folder: Path
    old: Path | None = None  # set in the new tree; its artefacts are opened by `compat`

    def texts(self, count: int, low: int = 3, high: int = 18) -> list[str]:
        return [text(self.random, low, high) for _ in range(count)]


def scenario(function: Callable[[Sandbox], Any]) -> Callable[[Sandbox], Any]:
    SCENARIOS[function.__name__] = function
    return function


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or of a refusal its exception type and the numbers of the rows that it names."""
    try:
        return call()
    except Exception as error:  # refusals are compared as well
        rows = re.findall(r"(?:line|row|record|entry|item|document|text|pair|query)s? (\d+)", str(error))
        return {"refused": type(error).__name__, "rows": [int(row) for row in rows[:1]]}


def run_cli(sandbox: Sandbox, *arguments: str) -> list[Any]:
    """Exit status and stdout of a command that runs in the sandbox."""
    command = [sys.executable, "-m", "munjang", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=sandbox.folder, timeout=300)
    return [done.returncode, done.stdout]


def load(path: str | Path, **options: Any) -> Any:
    import munjang

    return munjang.load(str(path), **{**FLOAT32, **options})


def reranker(folder: Path, **options: Any) -> Any:
    import munjang

    munjang.CrossEncoder.from_body(load(minilm()), 1, seed=3, **FLOAT32).save(folder)
    return munjang.load_cross_encoder(str(folder), **{**FLOAT32, **options})


def hits(results: Any) -> list[list[Any]]:
    return [[hit.id, float(hit.score)] for hit in results]


def scored_pairs(sandbox: Sandbox, name: str, count: int) -> Any:
    import numpy as np

    from munjang.data import Examples

    scores = np.array([sandbox.random.random() for _ in range(count)], np.float32)
    return Examples(name, "scored", {"a": sandbox.texts(count), "b": sandbox.texts(count)}, scores)


# --- texts, pairs ----------------------------------------------------------------------------------------------------


@scenario
def vectors(sandbox: Sandbox) -> Any:
    import numpy as np

    import munjang

    model = load(minilm())
    texts = [*sandbox.texts(120), "", "word " * 700, "한" * 900]
    sandbox.random.shuffle(texts)
    encoded = model.encode_report(texts)
    values: dict[str, Any] = {
        "encode": encoded.vectors,
        "report": [encoded.report.truncated, encoded.report.tokens, encoded.report.texts],
        "normalized": model.encode(texts[:20], normalize=True),
        "prompt": model.encode(texts[:9], prompt="query: "),
        "similarity": munjang.similarity(encoded.vectors[:7], encoded.vectors[7:20]),
    }
    best = munjang.top_k(encoded.vectors[:9], encoded.vectors, 5)
    values["top_k"] = [best.indices, best.scores]
    model.encode_to(iter(texts[:30]), sandbox.folder / "vectors.npy")
    values["npy"] = np.load(sandbox.folder / "vectors.npy")
    model.save(sandbox.folder / "model")
    values["saved"] = load(sandbox.folder / "model").encode(texts[:9])
    model.truncate_dim = 64
    values["truncated"] = model.encode(texts[:9])
    return values


@scenario
def tokens(sandbox: Sandbox) -> Any:
    """Random Unicode: token counts text by text, and the vectors, which follow from the ids."""
    model = load(tiny_model(sandbox.folder / "tiny"))
    texts = [unicode_text(sandbox.random) for _ in range(400)]
    counts = [model.encode_report([one]).report.tokens for one in texts]
    return {"tokens": counts, "together": model.encode_report(texts).report.tokens, "vectors": model.encode(texts)}


@scenario
def pairs(sandbox: Sandbox) -> Any:
    cross = reranker(sandbox.folder / "cross")
    some = [(text(sandbox.random), text(sandbox.random)) for _ in range(40)]
    ranked = cross.rank(some[0][0], [document for _, document in some], top_k=7)
    return {"predict": cross.predict(some), "rank": [[best.index, best.score] for best in ranked]}


@scenario
def frames(sandbox: Sandbox) -> Any:
    """Every shape in which texts arrive, and where their errors are placed."""
    import numpy as np

    import munjang

    model = load(tiny_model(sandbox.folder / "tiny"))
    texts = sandbox.texts(12)
    values: dict[str, Any] = {
        "list": model.encode(texts),
        "tuple": model.encode(tuple(texts)),
        "generator": model.encode(one for one in texts),
        "one string": model.encode(texts[0]),
        "array": model.encode(np.array(texts)),
        "empty": outcome(lambda: model.encode([])),
        "cluster": [int(label) for label in munjang.cluster(texts, model, k=3).labels],
        "clustered vectors": [int(label) for label in munjang.cluster(model.encode(texts), k=3).labels],
    }
    for name, path in _text_files(sandbox.folder, texts).items():
        values[f"file {name}"] = _column(path, None if path.suffix == ".txt" else "본문")
    for output, arguments in (("csv.npy", ("texts.csv", "--column", "본문")), ("txt.npy", ("utf-8.txt", "cp949.txt"))):
        status, _ = run_cli(sandbox, "encode", *arguments, "--model", "tiny", "--dtype", "float32", "-q", "-o", output)
        values[output] = [status, np.load(sandbox.folder / output)]
    (sandbox.folder / "notes").mkdir()
    for number, one in enumerate(texts[:3]):
        (sandbox.folder / "notes" / f"{number}.txt").write_text(one, encoding="utf-8")
    values["folder"] = run_cli(sandbox, "index", "create", "index", "notes", "--whole-files", "--model", "tiny", "-q")[
        0
    ]
    with munjang.Index.open(sandbox.folder / "index", load(sandbox.folder / "tiny", dtype="auto")) as index:
        values["folder ids"] = sorted(index.ids())
    for name, broken in _broken_rows(texts).items():
        values[f"encode {name}"] = outcome(lambda rows=broken: model.encode(rows))
        values[f"encode_to {name}"] = outcome(lambda rows=broken: model.encode_to(rows, sandbox.folder / "bad.npy"))
    with munjang.Index.create(sandbox.folder / "rows", model) as index:
        for name, broken in _broken_documents(texts).items():
            values[f"add {name}"] = outcome(lambda rows=broken: index.add(rows).documents)
        index.add({"id": number, "text": one} for number, one in enumerate(texts))
        values["added"] = hits(index.search(texts[0], 5))
    for name, content in _broken_files(texts).items():
        (sandbox.folder / name).write_bytes(content)
        values[f"read {name}"] = outcome(lambda path=sandbox.folder / name: _column(path, "text"))
    values["pandas"] = _pandas_inputs(model, texts)
    return values


def _column(path: Path, name: str | None) -> list[str]:
    """The texts of a file, as commands read it."""
    from munjang.data import read_texts

    # Trees before the one gate yield rows.
    return [row if isinstance(row, str) else row.text for row in read_texts(path, column=name)]


def _text_files(folder: Path, texts: list[str]) -> dict[str, Path]:
    """Write the same texts in every format."""
    import pandas

    table = pandas.DataFrame({"id": range(len(texts)), "본문": [" ".join(one.split()) for one in texts]})
    table.to_csv(folder / "texts.csv", index=False)
    table.to_csv(folder / "texts.tsv", index=False, sep="\t")
    table.to_json(folder / "texts.jsonl", orient="records", lines=True, force_ascii=False)
    table.to_parquet(folder / "texts.parquet", index=False)
    for encoding in ("utf-8", "cp949", "utf-16"):
        (folder / f"{encoding}.txt").write_bytes("\n".join(table["본문"]).encode(encoding, "ignore"))
    names = [f"texts.{suffix}" for suffix in ("csv", "tsv", "jsonl", "parquet")]
    return {name: folder / name for name in (*names, "utf-8.txt", "cp949.txt", "utf-16.txt")}


def _broken_rows(texts: list[str]) -> dict[str, list[Any]]:
    wrong = {"none": None, "number": 3, "bytes": b"x", "nan": float("nan"), "list": ["x"], "surrogate": "\ud800"}
    return {name: [*texts[:5], value, *texts[5:]] for name, value in wrong.items()}


def _broken_documents(texts: list[str]) -> dict[str, list[Any]]:
    wrong: dict[str, Any] = {
        "without text": {"id": "x"},
        "number": {"text": 3},
        "blank id": {"id": " ", "text": "x"},
        "twice": {"id": "0", "text": "x"},
        "bad metadata": {"text": "x", "when": object()},
        "none": None,
    }
    documents = [{"id": str(number), "text": one} for number, one in enumerate(texts)]
    return {name: [*documents[:4], value, *documents[4:]] for name, value in wrong.items()}


def _broken_files(texts: list[str]) -> dict[str, bytes]:
    rows = "\n".join(f'"{one}",1' for one in texts[:3])
    return {
        "fields.csv": f'text,n\n{rows}\n"a","b","c","d"\n'.encode(),
        "quote.csv": f'text,n\n{rows}\n"open,1\n'.encode(),
        "column.csv": f"other,n\n{rows}\n".encode(),
        "bytes.csv": b"text\nfine\n\xff\xfe\xfa\n",
        "broken.jsonl": b'{"text": "a"}\n{"text": "b"}\n{"text": \n',
        "null.jsonl": b'{"text": "a"}\n{"text": null}\n',
        "missing.jsonl": b'{"text": "a"}\n{"body": "b"}\n',
        "empty.csv": b"",
        "not.parquet": b"PAR1 no",
    }


def _pandas_inputs(model: Any, texts: list[str]) -> Any:
    """A Series and the records of a DataFrame; skipped where the tree refuses them."""
    import pandas

    table = pandas.DataFrame({"id": range(len(texts)), "text": texts}, index=range(5, 5 + len(texts)))
    values = {"series": outcome(lambda: model.encode(table["text"])), "frame": outcome(lambda: model.encode(table))}
    return {name: SKIPPED if "refused" in value else value for name, value in values.items()}


# --- index -----------------------------------------------------------------------------------------------------------


@scenario
def index(sandbox: Sandbox) -> Any:
    """A random story of additions, deletions, reopenings and every kind of search."""
    import munjang

    generator = sandbox.random
    model, cross, log = load(minilm()), reranker(sandbox.folder / "cross"), []
    store = munjang.Index.create(sandbox.folder / "index", model)
    ids = [f"d{number}" for number in range(160)]
    filters = [None, {"topic": "a"}, {"year": {">": 2005}}, "year >= 2000 and topic in ('a', 'b')", "not topic = 'c'"]
    for step in range(14):
        some = generator.sample(ids, generator.randint(1, 60))
        if generator.random() < 0.25 and step:
            log.append(["delete", store.delete([id for id in some if id in set(store.ids())][:10])])
        else:
            store.add(
                {
                    "id": id,
                    "text": text(generator, 3, generator.choice((18, 400))),
                    "year": generator.randint(1990, 2026),
                    "topic": generator.choice("abc"),
                }
                for id in some
            )
        if generator.random() < 0.2:
            store.close()
            store = munjang.Index.open(sandbox.folder / "index", model)
        log.append(["count", int(store.count)])
        for mode in ("semantic", "keyword", "hybrid"):
            chosen, k = generator.choice(filters), generator.choice((1, 5, 20))
            found = store.search(text(generator, 2, 5), k, mode=mode, filter=chosen)
            log.append([mode, str(chosen), hits(found)])
        found = store.search(text(generator, 2, 5), 5, mode="hybrid", reranker=cross, candidates=30)
        log.append(["rerank", hits(found)])
        kept = sorted(store.ids())
        if kept:
            log.append(["like", hits(store.more_like(kept[0], 5))])
    store.compact()
    log.append(["compacted", hits(store.search(text(generator, 2, 5), 20, mode="hybrid"))])
    store.close()
    return log


@scenario
def compat(sandbox: Sandbox) -> Any:
    """Artefacts of the old tree, opened by the new one: a model, an index, a classifier."""
    import munjang

    texts = sandbox.texts(40)
    if sandbox.old is None:
        model = load(minilm())
        model.save(sandbox.folder / "model")
        with munjang.Index.create(sandbox.folder / "index", model) as store:
            store.add([{"id": str(number), "text": one, "year": number} for number, one in enumerate(texts)])
            store.delete(["3", "4"])
        munjang.Classifier.fit(texts, [["a", "b"][len(one) % 2] for one in texts], model).save(
            sandbox.folder / "classes"
        )
    made = sandbox.old or sandbox.folder
    model = load(made / "model")
    with munjang.Index.open(made / "index", model) as store:
        modes = ("semantic", "keyword", "hybrid")
        found = [hits(store.search(one, 5, mode=mode, filter="year > 5")) for one in texts[:6] for mode in modes]
        count = int(store.count)
    classes = munjang.Classifier.load(made / "classes", model).probabilities(texts[:9])
    return {"vectors": model.encode(texts[:9]), "hits": found, "count": count, "classes": classes}


# --- training --------------------------------------------------------------------------------------------------------

STEPS: dict[str, Any] = {
    "max_steps": 3,
    "batch_size": 8,
    "learning_rate": 1e-4,
    "precision": "float32",
    "dropout": 0.0,
}


def _trained(sandbox: Sandbox, device: str) -> dict[str, Any]:
    import numpy as np

    import munjang
    from munjang.data import Examples
    from munjang.recipes import RecipeOptions

    texts = sandbox.texts(64)
    a, b, c = texts[:24], texts[24:48], texts[40:64]
    scored = Examples("s", "scored", {"a": a, "b": b}, np.array([sandbox.random.random() for _ in a], np.float32))
    classes = np.array([number % 3 for number in range(24)])
    labelled = Examples("l", "labelled", {"a": a, "b": b}, classes, labels=("x", "y", "z"))
    triples = Examples("t", "pairs", {"anchor": a, "positive": b, "negative": c})
    runs = [("sts", scored, None), ("sts", scored, "cosent"), ("nli", labelled, None), ("triplet", triples, None)]
    runs += [("contrastive", triples, None), ("cross_sts", scored, None), ("cross_nli", labelled, None)]
    values = {}
    for recipe, examples, objective in runs:
        name = f"{recipe}-{objective}"
        options = RecipeOptions(
            folder=sandbox.folder / name, objective=objective, device=device, seed=5, before=False, changes=STEPS
        )

        def run(recipe: str = recipe, examples: Any = examples, options: Any = options) -> Any:
            getattr(munjang.recipes, recipe)(minilm(), examples, options=options)
            model = str(Path(options.folder) / "model")
            if recipe.startswith("cross"):
                return munjang.load_cross_encoder(model, **FLOAT32).predict(list(zip(a, b, strict=True))[:9], raw=True)
            return load(model).encode(texts[:9])

        values[name] = outcome(run)
    return values


@scenario
def train(sandbox: Sandbox) -> Any:
    return _trained(sandbox, "cpu")


@scenario
def augment(sandbox: Sandbox) -> Any:
    """Augmented SBERT, three steps of every training, candidates by meaning and by words."""
    import munjang
    from munjang.recipes import AugmentOptions, Candidates

    tiny = tiny_model(sandbox.folder / "tiny")
    changes = {**STEPS, "learning_rate": 1e-3}
    options = AugmentOptions(
        folder=sandbox.folder / "run",
        bi_changes=changes,
        cross_changes=changes,
        candidates=Candidates(strategies=("semantic", "bm25"), top_k=3),
        device="cpu",
    )
    data = {name: scored_pairs(sandbox, name, 24) for name in ("gold", "dev", "test")}
    result = munjang.recipes.augmented(tiny, domain=sandbox.texts(40), options=options, **data)
    silver = [path.read_text(encoding="utf-8").splitlines() for path in sorted(sandbox.folder.rglob("silver.tsv"))]
    rows = [[_number(cell) for cell in line.split("\t")] for line in silver[0]] if silver else []
    return {"vectors": result.model.encode(sandbox.texts(9)), "silver": rows}


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


@scenario
def distill(sandbox: Sandbox) -> Any:
    """A one-layer student of the vectors of a teacher, and of the scores of a cross-encoder, in three steps each."""
    import numpy as np

    import munjang
    from munjang.data import Examples
    from munjang.recipes import DistillOptions

    tiny = tiny_model(sandbox.folder / "tiny")
    a, b = sandbox.texts(24), sandbox.texts(24)
    translations = Examples("p", "pairs", {"anchor": a, "positive": b})
    scored = Examples("s", "scored", {"a": a, "b": b}, np.linspace(0, 1, 24).astype(np.float32))
    munjang.CrossEncoder.from_body(load(tiny), 1, seed=3, **FLOAT32).save(sandbox.folder / "cross")
    values = {}
    for name, teacher, source in (("vectors", tiny, translations), ("scores", str(sandbox.folder / "cross"), scored)):
        options = DistillOptions(sandbox.folder / name, changes=STEPS, seed=7, device="cpu")
        values[name] = outcome(
            lambda teacher=teacher, source=source, options=options: munjang.recipes.distill(
                tiny, teacher, source, options=options
            ).model.encode(a[:9])
        )
    return values


@scenario
def evaluate(sandbox: Sandbox) -> Any:
    import numpy as np

    from munjang import evaluation
    from munjang.data import Examples

    a, b, c = (sandbox.texts(50) for _ in range(3))
    triples = Examples("t", "pairs", {"anchor": a, "positive": b, "negative": c})
    parity = np.array([number % 2 for number in range(50)])
    labelled = Examples("l", "labelled", {"a": a, "b": b}, parity, labels=("no", "yes"))
    evaluators = [
        evaluation.StsEvaluator(scored_pairs(sandbox, "s", 50)),
        evaluation.TripletEvaluator(triples),
        evaluation.PairClassificationEvaluator(labelled, positive="yes"),
    ]
    return [dict(scores.values) for scores in evaluation.evaluate(load(minilm()), evaluators)]


@scenario
def applications(sandbox: Sandbox) -> Any:
    import munjang

    model = load(minilm())
    texts = sandbox.texts(60, 4, 9)
    texts += [f"{one} today" for one in texts[:20]]
    mined = munjang.mine_paraphrases(texts, model, threshold=0.7)
    communities = munjang.cluster(texts, model, method="communities", threshold=0.75, min_size=2)
    words = munjang.keywords(" ".join(texts[:6]), model, top=5)
    labels = [["rain", "cats", "banks"][number % 3] for number in range(len(texts))]
    classifier = munjang.Classifier.fit(texts, labels, model)
    return {
        "mined": sorted([*sorted((int(pair.left), int(pair.right))), float(pair.score)] for pair in mined),
        "communities": [int(label) for label in communities.labels],
        "kmeans": [int(label) for label in munjang.cluster(texts, model, k=6).labels],
        "keywords": [[word.text, float(word.score)] for word in words],
        "classes": classifier.probabilities(texts[:9]),
        "zero shot": munjang.Classifier.zero_shot(["날씨", "bank"], model).probabilities(texts[:9]),
    }


# --- durability ------------------------------------------------------------------------------------------------------


def _child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python program of this tree that talks through pipes."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# Kills itself before the n-th rename or removal, wherever the package makes them; n = 0: never.
MORTAL = """
import os, signal, sys
left = int(sys.argv[1])
def count(event, arguments):
    global left
    if event in ("os.rename", "os.remove"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
"""
TRAINING = (
    MORTAL
    + """
import munjang, numpy as np
from munjang.data import Examples
from munjang.recipes import RecipeOptions
a, b = ([f"{side} {number} rain in Seoul" for number in range(32)] for side in ("비가", "눈이"))
examples = Examples("s", "scored", {"a": a, "b": b}, np.linspace(0, 1, 32).astype(np.float32))
changes = {"max_steps": 12, "batch_size": 8, "learning_rate": 1e-3, "save_every": 2, "precision": "float32"}
options = RecipeOptions(folder=sys.argv[3], device="cpu", seed=5, before=False, changes=changes)
munjang.recipes.sts(sys.argv[2], examples, options=options)
"""
)
SAVING = """
import sys, munjang
first, second = (munjang.load(path, device="cpu", dtype="float32") for path in sys.argv[1:3])
print("ready", flush=True)
while True:
    for model in (second, first):
        model.save(sys.argv[3])
"""
INDEXING = """
import sys, munjang
with munjang.Index.open(sys.argv[2], munjang.load(sys.argv[1], device="cpu", dtype="float32")) as index:
    print("ready", flush=True)
    for number in range(10**6):
        index.add([{"id": f"{number}-{part}", "text": f"비가 온다 {number}"} for part in range(3)])
        print(number, "added", flush=True)
        if number % 3 == 2:
            index.delete([f"{number - 1}-{part}" for part in range(3)])
            print(number - 1, "deleted", flush=True)
"""


@scenario
def resume(sandbox: Sandbox) -> Any:
    """What was interrupted, by an exception or by SIGKILL, ends as if it had not been."""
    import numpy as np

    tiny = tiny_model(sandbox.folder / "tiny")
    model, texts, values = load(tiny), sandbox.texts(13_000, 1, 3), {}

    def broken() -> Iterator[str]:
        yield from texts[:12_800]
        raise RuntimeError("the input ended early")

    for suffix in ("npy", "jsonl", "parquet"):
        whole, path = sandbox.folder / f"whole.{suffix}", sandbox.folder / f"broken.{suffix}"
        model.encode_to(texts, whole)
        failed = outcome(lambda path=path: model.encode_to(broken(), path))
        values[suffix] = [failed["refused"], path.exists(), model.encode_to(texts, path).skipped > 0]
        values[suffix].append(whole.read_bytes() == path.read_bytes())
    values["vectors"] = np.load(sandbox.folder / "broken.npy")[::100]
    values["command"] = _killed_command(sandbox, texts)
    for name, kills in (("unbroken", (0,)), ("killed", (7, 13, 0))):
        for renames in kills:
            child = _child(TRAINING, renames, tiny, sandbox.folder / name)
            child.communicate(timeout=300)
        values[f"training {name}"] = [child.returncode, load(sandbox.folder / name / "model").encode(texts[:9])]
    return values


def _killed_command(sandbox: Sandbox, texts: list[str]) -> Any:
    """`munjang encode` killed once its first rows are on the disk, then run again: the vectors."""
    import numpy as np

    (sandbox.folder / "texts.txt").write_text("\n".join(" ".join(one.split()) for one in texts), encoding="utf-8")
    command = [sys.executable, "-m", "munjang", "encode", "texts.txt", "--model", "tiny", "--dtype", "float32", "-q"]
    command += ["-o", "command.npy"]
    process = subprocess.Popen(command, cwd=sandbox.folder)
    while process.poll() is None and not any(path.stat().st_size for path in sandbox.folder.glob("command.npy*")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    status = subprocess.run(command, cwd=sandbox.folder, timeout=300).returncode
    return [status, np.load(sandbox.folder / "command.npy")[::100]]


@scenario
def kill(sandbox: Sandbox) -> Any:
    """SIGKILL at random moments: what is on the disk opens, and is the old state or the new one."""
    import numpy as np

    import munjang

    first, second = minilm(), tiny_model(sandbox.folder / "tiny")
    target, known = sandbox.folder / "model", [load(path).encode(["비가 온다"]) for path in (second, first)]
    load(first).save(target)
    saved = []
    for _ in range(6):
        _kill_soon(_child(SAVING, first, second, target), sandbox)
        found = load(target).encode(["비가 온다"])
        saved.append(any(found.shape == one.shape and np.allclose(found, one, atol=1e-5) for one in known))
    munjang.Index.create(sandbox.folder / "index", load(second)).close()
    indexed = []
    for _ in range(6):
        acknowledged = _kill_soon(_child(INDEXING, second, sandbox.folder / "index"), sandbox)
        words = [line.split() for line in acknowledged if len(line.split()) == 2]
        gone = {number for number, what in words if what == "deleted"}
        with munjang.Index.open(sandbox.folder / "index", load(second)) as store:
            ids = set(store.ids())
            batches = {id.split("-")[0] for id in ids}
            whole = all({f"{batch}-{part}" for part in range(3)} <= ids for batch in batches)
            last = len(words) and int(words[-1][0]) + 1  # this batch may have been on its way out
            kept = all(
                (number in batches) == (number not in gone)
                for number, what in words
                if what == "added" and int(number) < last - 2
            )
            indexed.append(
                [whole, kept, store.verify().ok, len(hits(store.search("비가 온다", 3))) == min(3, len(ids))]
            )
            store.delete(list(ids))
    return {"saved": saved, "indexed": indexed}


def _kill_soon(child: subprocess.Popen[str], sandbox: Sandbox) -> list[str]:
    """Kill a child a moment after it is ready; the lines that it printed since."""
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(sandbox.random.uniform(0.05, 0.5))
    os.kill(child.pid, signal.SIGKILL)
    return child.communicate()[0].splitlines()


# --- service, command line, GPU --------------------------------------------------------------------------------------


@scenario
def http(sandbox: Sandbox) -> Any:
    import munjang

    with munjang.Index.create(sandbox.folder / "index", munjang.load(minilm(), device="cpu")) as store:
        store.add([{"id": str(number), "text": text(sandbox.random), "year": number} for number in range(50)])
    port = free_port()
    command = [sys.executable, "-m", "munjang", "serve", str(sandbox.folder / "index"), "--model", minilm()]
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return [answer.status, json.loads(answer.read() or b"null")]
        except urllib.error.HTTPError as error:
            return [error.code, None]
        except (OSError, ValueError):
            return [0, None]

    try:
        deadline = time.monotonic() + 90
        while ask("/ready")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.3)
        model = ask("/v1/models")[1]["data"][0]["id"]
        one, two, three = sandbox.texts(3)
        status, answer = ask("/v1/embeddings", {"input": [one, two], "model": model})
        values = {"openai": [status, [row["embedding"] for row in answer["data"]]]}
        values["tei"] = ask("/embed", {"inputs": [one]})
        values["similarity"] = ask("/similarity", {"inputs": {"source_sentence": one, "sentences": [two, three]}})
        status, answer = ask("/search", {"query": two, "k": 5, "mode": "hybrid", "rerank": False})
        values["search"] = [status, [[hit["id"], hit["score"]] for hit in answer["hits"]]]
        bad = [("/embed", {"inputs": 3}), ("/v1/embeddings", {"input": []}), ("/search", {"query": "x", "k": -1})]
        bad += [("/search", {"query": "x", "filter": "(((("}), ("/nothing", None)]
        values["bad"] = [ask(path, body)[0] for path, body in bad]
        return values
    finally:
        server.terminate()
        server.wait(30)


@scenario
def command(sandbox: Sandbox) -> Any:
    for name in ("a.txt", "b.txt"):
        (sandbox.folder / name).write_text("\n".join(sandbox.texts(12)), encoding="utf-8")
    (sandbox.folder / "bad.csv").write_bytes(b"text\n\xff\xfe\xfa\n")
    model = ("--model", minilm())
    return {
        "similarity": run_cli(sandbox, "similarity", "a.txt", "b.txt", "--top", "2", *model),
        "encode": run_cli(sandbox, "encode", "a.txt", *model, "--output", "v.npy")[0],
        "missing": run_cli(sandbox, "encode", "none.txt", *model)[0],
        "bad": run_cli(sandbox, "encode", "bad.csv", "--column", "text", *model)[0],
        "usage": run_cli(sandbox, "encode")[0],
        "unknown": run_cli(sandbox, "embedd")[0],
    }


@scenario
def gpu(sandbox: Sandbox) -> Any:
    """Vectors and pairs in float32 and `auto`, and trainings, on CUDA."""
    import torch

    if not torch.cuda.is_available():
        return SKIPPED
    texts, values = sandbox.texts(300), {}
    some = list(zip(texts[:100], texts[100:200], strict=True))
    for dtype in ("float32", "auto"):
        options = {"device": "cuda", "dtype": dtype}
        cross = reranker(sandbox.folder / f"cross-{dtype}", **options)
        digits = 4 if dtype == "auto" else 7  # float16 is not exact
        values[dtype] = {
            "vectors": load(minilm(), **options).encode([*texts, "", "한" * 900]).round(digits),
            "pairs": cross.predict(some).round(digits),
        }
    return {**values, "train": _trained(sandbox, "cuda")}
