"""A recommender on disk: recommender.json, the vectors as safetensors, items with their chunks as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from munjang.errors import ModelError
from munjang.index.results import Passage
from munjang.tasks.folders import Saved, read_folder, write_folder
from munjang.tasks.model_reference import ModelReference
from munjang.tasks.recommend_items import Chunking, Items

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder

KIND = "recommender"
_VECTORS = "vectors.safetensors"
_ITEMS = "items.jsonl"


def write(folder: str | Path, model: BiEncoder, items: Items, chunking: Chunking) -> None:
    """Save; whatever happens, the folder holds the old recommender or the new one."""
    tensors = {
        "vectors": np.ascontiguousarray(items.vectors),
        "chunk_vectors": np.ascontiguousarray(items.chunk_vectors),
        "ends": items.ends,
    }

    def write_items(path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for place, id in enumerate(items.ids):
                kept = items.passages[items.chunks_of(place)]
                chunks = [[passage.start, passage.end, passage.text] for passage in kept]
                line = {"id": id, "metadata": items.metadata[place], "chunks": chunks}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    facts = {
        "items": len(items.ids),
        "chunk_tokens": chunking.tokens,
        "stride": chunking.stride,
        "kept_chunks": chunking.kept,
        "empty": list(items.empty),
        "model": ModelReference.of(model).as_dict(),
    }
    files = {_VECTORS: lambda path: save_file(tensors, path), _ITEMS: write_items}
    write_folder(folder, KIND, Saved(facts, files))


def read(
    folder: str | Path, model: BiEncoder | None, *, device: str | None = None
) -> tuple[BiEncoder, Items, Chunking]:
    """Load; everything is looked at before the model is."""
    found = read_folder(folder, KIND)
    what = f"the recommender in {folder}"
    reference = ModelReference.from_dict(found.facts.get("model"))
    try:
        numbers = {name: int(cast("int", found.facts[name])) for name in ("chunk_tokens", "stride", "kept_chunks")}
        empty = tuple(str(id) for id in cast("list[Any]", found.facts["empty"]))
        items = _items(found.files[_ITEMS], load_file(found.files[_VECTORS]), reference.dimension, empty)
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ModelError(f"{what} is damaged or incomplete ({error!r}): save it again") from error
    chunking = Chunking(numbers["chunk_tokens"], numbers["stride"], numbers["kept_chunks"])
    if model is None:
        return reference.load(what, device=device), items, chunking
    return reference.check(model, what), items, chunking


def _items(path: Path, tensors: dict[str, Any], dimension: int, empty: tuple[str, ...]) -> Items:
    ids: list[str] = []
    metadata: list[dict[str, Any]] = []
    passages: list[Passage] = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            ids.append(record["id"])
            metadata.append(record["metadata"])
            passages.extend(Passage(text, start, end) for start, end, text in record["chunks"])
    vectors, chunk_vectors, ends = tensors["vectors"], tensors["chunk_vectors"], tensors["ends"]
    shapes = (vectors.shape, chunk_vectors.shape, ends.shape)
    if shapes != ((len(ids), dimension), (len(passages), dimension), (len(ids) + 1,)):
        raise ValueError(f"{len(ids)} items and {len(passages)} chunks do not fit vectors of shapes {shapes}")
    return Items(ids, metadata, vectors, ends, passages, chunk_vectors, empty)
