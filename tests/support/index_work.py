"""Work on an index in another process: to be killed in, or to be read beside. It imports nothing but munjang."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from munjang.encoders import BiEncoder
from munjang.index import dense, derived
from munjang.index.index import Index
from support.indexing import TEXTS


def load(folder: str | Path) -> BiEncoder:
    return BiEncoder.load(folder, device="cpu", dtype="float32")


def save_often() -> None:
    """Write the derived files with every commit, however small the index."""
    derived._SMALL, derived._SHARE = 0, 0.0
    dense.SMALL = 1


def operations(kind: str, seed: int) -> Any:
    """An endless row of operations, mostly of one kind, the same for the same seed."""
    generator = random.Random(seed)
    made = 0
    while True:
        chosen = kind if made and generator.random() < 0.6 else "add"
        if chosen == "add":
            count = generator.randint(1, 12)
            ids = [str(generator.randint(0, 60)) for _ in range(count)]
            texts = {id: f"{generator.choice(TEXTS)} {generator.randint(0, 999)}" for id in ids}
            yield ["add", {id: [text, {"year": generator.randint(2000, 2030)}] for id, text in texts.items()}]
        elif chosen == "delete":
            yield ["delete", [str(generator.randint(0, 60)) for _ in range(20)]]
        else:
            yield [chosen, None]
        made += 1


def apply(documents: dict[str, Any], operation: Sequence[Any]) -> dict[str, Any]:
    """What the documents are after an operation."""
    name, what = operation
    if name == "add":
        return {**documents, **{id: (text, metadata) for id, (text, metadata) in what.items()}}
    if name == "delete":
        return {id: value for id, value in documents.items() if id not in set(what)}
    return documents


def perform(index: Index, operation: Sequence[Any]) -> None:
    name, what = operation
    if name == "add":
        index.add([{"id": id, "text": text, **metadata} for id, (text, metadata) in what.items()])
    elif name == "delete":
        index.delete(what)
    elif name == "compact":
        index.compact()
    else:  # rebuild: the derived files are gone, and made anew by a search and a save
        shutil.rmtree(index.path / "derived", ignore_errors=True)
        index.search("비", k=3, mode="hybrid" if index.options.keyword else "semantic")
        index._wrote = True
        index.close()


def work(folder: str, model_folder: str, log: str, kind: str, seed: int) -> None:
    """Operations without end; each stands in the log before it begins, and is marked there when it has returned."""
    save_often()
    model = load(model_folder)
    index = Index.open(folder, model)
    with open(log, "w", encoding="utf-8") as file:
        for operation in operations(kind, seed):
            file.write(json.dumps(operation) + "\n")
            file.flush()
            perform(index, operation)
            if operation[0] == "rebuild":
                index = Index.open(folder, model)
            file.write("done\n")
            file.flush()


def logged(log: Path) -> tuple[list[list[Any]], list[Any] | None]:
    """The operations that returned, and the one that was under way."""
    finished: list[list[Any]] = []
    open_one = None
    for line in log.read_text(encoding="utf-8").split("\n")[:-1]:
        if line == "done":
            finished.append(open_one)  # type: ignore[arg-type]
            open_one = None
        else:
            open_one = json.loads(line)
    return finished, open_one


# --- reading while another writes -------------------------------------------------------------------------------------


def read_for(folder: str, model_folder: str, seconds: float, answers: Any) -> None:
    """Search all the time; every answer must be of one committed state: pairs of documents come and go together."""
    index = Index.open(folder, load(model_folder))
    index.search("비", mode="hybrid")  # whatever has to be loaded
    end = time.monotonic() + seconds
    seen, wrong = set(), []
    while time.monotonic() < end:
        results = index.search("비가 온다", k=100, mode=random.choice(["semantic", "keyword", "hybrid"]))
        ids = {hit.id for hit in results}
        halves = {id[:-1] for id in ids}
        if any(f"{half}a" not in ids or f"{half}b" not in ids for half in halves):
            wrong.append(sorted(ids))
        seen.add(len(ids))
    answers.put((os.getpid(), len(seen), wrong[:1]))
