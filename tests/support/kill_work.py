"""Public calls that write something durable into a folder; `support.kills` runs and kills them.

The folder holds the models `tiny` and `other`, `cross`, and what else a test puts there.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import munjang
import munjang.cli
from munjang.data import Examples
from munjang.errors import DataError
from munjang.recipes import AugmentOptions, DistillOptions, RecipeOptions, augmented, distill, sts
from recipes.material import scored, sentences

TEXTS = sentences(200, 3)
MANY_TEXTS = [f"{text} {number}" for number in range(100) for text in TEXTS]  # several windows of an encoding
STEPS: dict[str, Any] = {"max_steps": 6, "batch_size": 8, "learning_rate": 1e-3, "save_every": 1}
_PRELOADED = (munjang.BiEncoder, munjang.Classifier, munjang.Index, munjang.Recommender)

load = functools.partial(munjang.load, device="cpu", dtype="float32")


def command(*arguments: object) -> None:
    """A command line, which must succeed."""
    status = munjang.cli.main([str(argument) for argument in arguments])
    assert status == 0, arguments


# --- models ----------------------------------------------------------------------------------------------------------


def save_model(folder: Path) -> None:
    load(str(folder / "other")).save(folder / "model")


def save_compact_model(folder: Path) -> None:
    load(str(folder / "other")).save(folder / "model", dtype="int8")


def save_cross_encoder(folder: Path) -> None:
    munjang.load_cross_encoder(str(folder / "cross"), device="cpu", dtype="float32").save(folder / "model")


def export_model(folder: Path) -> None:
    command("export", folder / "other", "-o", folder / "model", "--overwrite", "-q")


def export_onnx(folder: Path) -> None:
    command("export", folder / "other", "--format", "onnx", "-o", folder / "model", "--overwrite", "-q")


def save_classifier(folder: Path) -> None:
    munjang.Classifier.zero_shot(["one child", "국수를 먹는다"], load(str(folder / "other"))).save(folder / "classes")


def save_recommender(folder: Path) -> None:
    munjang.Recommender.build(documents(0, 20, 2026), load(str(folder / "other")), chunk_tokens=32, stride=16).save(
        folder / "items"
    )


# --- index -----------------------------------------------------------------------------------------------------------


def documents(first: int, last: int, year: int) -> list[dict[str, Any]]:
    return [{"id": str(number), "text": f"{TEXTS[number]} {year}", "year": year} for number in range(first, last)]


def add_documents(folder: Path) -> None:
    with munjang.Index.open(folder / "index", load(str(folder / "tiny"))) as index:
        index.add(documents(6, 14, 2026))


def delete_documents(folder: Path) -> None:
    with munjang.Index.open(folder / "index", load(str(folder / "tiny"))) as index:
        index.delete(["1", "2", "7"])


def compact_index(folder: Path) -> None:
    with munjang.Index.open(folder / "index", load(str(folder / "tiny"))) as index:
        index.compact()


def reencode_index(folder: Path) -> None:
    with munjang.Index.open(folder / "index") as index:
        index.reencode(load(str(folder / "other")))


def export_index(folder: Path) -> None:
    with munjang.Index.open(folder / "index", load(str(folder / "tiny"))) as index:
        index.export(folder / "index.parquet", overwrite=True)


def copy_index(folder: Path) -> None:
    command("index", "copy", folder / "index", folder / "copy", "-q")


# --- vectors ---------------------------------------------------------------------------------------------------------


def _encode(folder: Path, suffix: str) -> None:
    path = folder / f"vectors.{suffix}"
    try:
        load(str(folder / "tiny")).encode_to(MANY_TEXTS, path)
    except DataError:  # a finished file is not written again: the kill came after the last step that matters
        if not path.exists():
            raise


encode_npy = functools.partial(_encode, suffix="npy")
encode_jsonl = functools.partial(_encode, suffix="jsonl")
encode_parquet = functools.partial(_encode, suffix="parquet")


# --- training and recipes --------------------------------------------------------------------------------------------


def train(folder: Path) -> None:
    options = RecipeOptions(folder=folder / "run", changes=STEPS, device="cpu", seed=1)
    sts(str(folder / "tiny"), scored("train", 24), scored("dev", 12, 50), options=options)


def augment(folder: Path) -> None:
    changes = {**STEPS, "max_steps": 4}
    options = AugmentOptions(folder=folder / "run", bi_changes=changes, cross_changes=changes, device="cpu")
    gold, dev = scored("gold", 24), scored("dev", 16, 50)
    augmented(str(folder / "tiny"), gold=gold, domain=sentences(40, 7), dev=dev, options=options)


def distill_vectors(folder: Path) -> None:
    source = Examples("p", "pairs", {"anchor": TEXTS[:40], "positive": TEXTS[40:80]})
    options = DistillOptions(folder / "run", changes={**STEPS, "max_steps": 4}, seed=1, device="cpu")
    distill(str(folder / "tiny"), str(folder / "other"), source, options=options)


def distill_scores(folder: Path) -> None:
    scores = np.linspace(0, 1, 24).astype(np.float32)
    source = Examples("s", "scored", {"a": TEXTS[:24], "b": TEXTS[24:48]}, scores)
    options = DistillOptions(folder / "run", changes={**STEPS, "max_steps": 4}, seed=1, device="cpu")
    distill(str(folder / "tiny"), str(folder / "cross"), source, options=options)


# --- files of commands -----------------------------------------------------------------------------------------------


def _write_output(folder: Path, name: str) -> None:
    texts, pairs, model = folder / "texts.txt", folder / "pairs.csv", ("--model", folder / "tiny")
    output = ("-o", folder / OUTPUTS[name], "--overwrite", "-q")
    arguments: dict[str, tuple[object, ...]] = {
        "cluster": (texts, "--k", 3, *model),
        "mine": (texts, "--threshold", 0.5, "--top", 20, *model),
        "negatives": (pairs, "--all-positive", "-n", 1, "--no-relative-margin", *model),
        "similarity": (texts, texts, *model),
        "keywords": (texts, *model),
        "topics": (texts, "-k", 3, *model),
        "map": (texts, "--method", "pca", *model),
        "classify": (texts, "--labels", "집에서,at home", *model),
        "score": (pairs, "--model", folder / "cross"),
        "evaluate": (folder / "tiny", "--triplets", folder / "triplets.csv"),
    }
    without_overwrite = ("-o", folder / OUTPUTS[name], "-q")
    command(name, *arguments[name], *(without_overwrite if name == "evaluate" else output))


OUTPUTS = {
    "cluster": "out.csv",
    "mine": "out.csv",
    "negatives": "out.jsonl",
    "similarity": "out.npy",
    "keywords": "out.jsonl",
    "topics": "out.csv",
    "map": "out.html",
    "classify": "out.csv",
    "score": "out.csv",
    "evaluate": "out.json",
}
for _name in OUTPUTS:
    globals()[f"write_{_name}"] = functools.partial(_write_output, name=_name)
