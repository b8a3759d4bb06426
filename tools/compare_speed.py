#!/usr/bin/env python3
"""Time the same work in two trees of the project: old, new, old, new ..., each time in a fresh process.

    git worktree add ../old COMMIT
    .venv/bin/python tools/compare_speed.py --old ../old --new . [--only encode,index] [--gpu]

Prints the median of each tree and the median ratio new / old of neighbouring runs with its spread; exits with 1 where
a ratio is above the limit. Neighbours share what else the machine does; on a busy machine take more rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from samples import free_port, minilm, text, tiny_model

PARTS: dict[str, Callable[[Path], dict[str, float]]] = {}


def part(function: Callable[[Path], dict[str, float]]) -> Callable[[Path], dict[str, float]]:
    """A part runs in a child process; it takes the shared folder and returns seconds by name."""
    PARTS[function.__name__] = function
    return function


def best(call: Callable[[], object]) -> float:
    """The least seconds of at least three calls; of more where they are short."""
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < 1 and len(seconds) < 20):
        seconds.append(once(call))
    return min(seconds)


def once(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def texts(count: int, low: int, high: int) -> list[str]:
    generator = random.Random(7)
    return [text(generator, low, high) for _ in range(count)]


def random_vectors(count: int, dimension: int = 64) -> Any:
    """Unit vectors around a few hundred centres, float32 [count, dimension]."""
    import numpy as np

    generator = np.random.default_rng(7)
    centres = generator.standard_normal((300, dimension))
    rows = centres[generator.integers(0, 300, count)] + 0.3 * generator.standard_normal((count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


# --- parts -----------------------------------------------------------------------------------------------------------


@part
def start(_: Path) -> dict[str, float]:
    """Whole processes: `import munjang`, and `munjang --help`."""

    def process(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    return {"import": best(process("-c", "import munjang")), "help": best(process("-m", "munjang", "--help"))}


@part
def encode(_: Path) -> dict[str, float]:
    return _encode("cpu", 200, 20)


def _encode(device: str, short: int, long: int) -> dict[str, float]:
    import munjang

    short_texts, long_texts, seconds = texts(short, 3, 18), texts(long, 200, 300), {}
    for dtype in ("float32", "auto"):
        model = munjang.load(minilm(), device=device, dtype=dtype)
        model.encode(short_texts[:20])
        seconds[f"short {dtype}"] = best(lambda model=model: model.encode(short_texts))
        seconds[f"long {dtype}"] = best(lambda model=model: model.encode(long_texts))
    return seconds


@part
def predict(_: Path) -> dict[str, float]:
    import munjang

    body = munjang.load(minilm(), device="cpu", dtype="float32")
    cross = munjang.CrossEncoder.from_body(body, 1, device="cpu", seed=3)
    pairs = list(zip(texts(100, 3, 18), texts(100, 20, 40), strict=True))
    cross.predict(pairs[:10])
    return {"100 pairs": best(lambda: cross.predict(pairs))}


@part
def train(folder: Path) -> dict[str, float]:
    return _train(str(folder / "tiny"), "cpu", steps=30, rows=16)


def _train(model: str, device: str, *, steps: int, rows: int) -> dict[str, float]:
    """Whole `sts` runs that keep nothing on the disk."""
    import numpy as np

    import munjang
    from munjang.data import Examples
    from munjang.recipes import RecipeOptions

    several = texts(8 * rows, 6, 14)
    examples = Examples(
        "s", "scored", {"a": several, "b": several[::-1]}, np.linspace(0, 1, len(several)).astype(np.float32)
    )

    def run(count: int) -> Callable[[], object]:
        changes = {"max_steps": count, "batch_size": rows, "learning_rate": 1e-5}
        options = RecipeOptions(device=device, seed=1, before=False, changes=changes)
        return lambda: munjang.recipes.sts(model, examples, options=options)

    run(2)()
    return {f"{steps} steps": best(run(steps))}


@part
def index(folder: Path) -> dict[str, float]:
    """Building, adding one document, filtered search; vectors are given, so that the model costs nothing."""
    import munjang

    model = munjang.load(str(folder / "tiny"), device="cpu", dtype="float32")
    vectors = random_vectors(50_000)
    documents = [{"id": str(number), "text": f"비 {number}", "year": number % 30} for number in range(50_000)]

    def given(passages: Any, **_: Any) -> Any:
        return vectors[[int(passage.split()[1]) for passage in passages]]

    seconds = {}
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary)
        with munjang.Index.create(path / "small", model) as small:
            seconds["build 5,000"] = once(lambda: small.add(documents[:5000], encode=given))
        with munjang.Index.create(path / "index", model) as store:
            store.add(documents, encode=given)
            store.search("비가 온다", 10, mode="hybrid")
            numbers = itertools.count()
            seconds["add one to 50,000"] = best(lambda: store.add([f"새 문서 {next(numbers)}"]))
            seconds["filtered search"] = best(
                lambda: [store.search(vectors[n], 10, filter="year >= 10 and year < 12") for n in range(20)]
            )
            seconds["hybrid search"] = best(lambda: [store.search(f"비 {n}", 10, mode="hybrid") for n in range(20)])

        def first_search() -> None:
            with munjang.Index.open(path / "index", model) as store:
                store.search("비가 온다", 10, mode="semantic")

        seconds["first search"] = best(first_search)
    return seconds


@part
def mine(_: Path) -> dict[str, float]:
    import munjang

    vectors = random_vectors(10_000)
    return {"10,000 vectors": best(lambda: list(munjang.mine_paraphrases(vectors, threshold=0.9)))}


@part
def http(_: Path, clients: int = 8, duration: float = 10.0) -> dict[str, float]:
    """Seconds per request of 8 clients that ask /embed for 8 texts as soon as they were answered."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    body = json.dumps({"inputs": texts(8, 3, 18)}).encode()
    answered = [0] * clients

    def ask(path: str, data: bytes | None = None) -> None:
        request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

    def client(number: int, until: float) -> None:
        while time.perf_counter() < until:
            ask("/embed", body)
            answered[number] += 1

    with _service(port):
        _wait(lambda: ask("/ready"))
        ask("/embed", body)
        started = time.perf_counter()
        threads = [threading.Thread(target=client, args=(number, started + duration)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"request": (time.perf_counter() - started) / sum(answered)}


@contextlib.contextmanager
def _service(port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "munjang", "serve", "--model", minilm(), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait(30)


def _wait(ready: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            ready()
            return
        time.sleep(0.2)
    raise TimeoutError(f"the service was not ready within {seconds:.0f} seconds")


@part
def gpu(_: Path) -> dict[str, float]:
    """Encoding and training on CUDA, at sizes that keep a large GPU busy."""
    steps = _train(minilm(), "cuda", steps=200, rows=256)
    return {**_encode("cuda", 50_000, 2_000), **steps}


# --- rounds ----------------------------------------------------------------------------------------------------------


def measure(tree: Path, name: str, folder: Path) -> dict[str, float]:
    """Run a part in a fresh process that imports the package from `tree`."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--child", name, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{name} failed in {tree}:\n{done.stderr[-2000:]}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def compare(name: str, trees: tuple[Path, Path], rounds: int, folder: Path) -> dict[str, float]:
    """Print a row for each measurement of a part; return their ratios, new / old."""
    olds, news = [], []
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)  # neither tree always comes second
        measured = {side: measure(trees[side], name, folder) for side in order}
        olds.append(measured[0])
        news.append(measured[1])
    ratios = {}
    for key in olds[0]:
        each = [new[key] / old[key] for old, new in zip(olds, news, strict=True)]
        ratios[f"{name}: {key}"] = ratio = statistics.median(each)
        old, new = (statistics.median(run[key] for run in runs) for runs in (olds, news))
        spread = f"({min(each):.2f}-{max(each):.2f})"
        print(f"| {f'{name}: {key}':30} | {old:10.4f} | {new:10.4f} | {ratio:5.2f} {spread:12} |", flush=True)
    return ratios


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(PARTS[sys.argv[2]](Path(sys.argv[3]))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the tree to compare with, such as a git worktree")
    parser.add_argument("--new", type=Path, default=Path(), help="the changed tree (default: the current folder)")
    parser.add_argument("--only", metavar="PART,PART", help=f"of {', '.join(PARTS)} (default: all but gpu)")
    parser.add_argument("--gpu", action="store_true", help="only the part gpu, on CUDA")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tree (default: 3)")
    parser.add_argument("--limit", type=float, default=1.10, help="worst acceptable ratio (default: 1.10)")
    arguments = parser.parse_args()
    default = ["gpu"] if arguments.gpu else [name for name in PARTS if name != "gpu"]
    names = arguments.only.split(",") if arguments.only else default
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    print(
        f"| {'part (seconds)':30} | {'old':10} | {'new':10} | {'ratio (min-max)':18} |", "|---|---|---|---|", sep="\n"
    )
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        tiny_model(Path(folder) / "tiny")
        for name in names:
            trees = (arguments.old.resolve(), arguments.new.resolve())
            ratios.update(compare(name, trees, arguments.rounds, Path(folder)))
    slower = [name for name, ratio in ratios.items() if ratio > arguments.limit]
    print(f"slower than {arguments.limit}: {', '.join(slower) or 'nothing'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
