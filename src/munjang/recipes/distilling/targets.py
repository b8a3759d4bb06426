"""The stage `teacher`: what the teachers say about every source, as files that training memory-maps.

Vector teachers: targets-1.npy [rows, sum of the widths] for source 1, the teachers side by side, assembled block by
block from the cache; rows come in the order, and as often, as training takes them. A cross-encoder: scores-1.npy, the
raw logits [rows of the source] or [rows, candidates]; every different pair is scored once, block after block, and a
killed stage goes on behind the last whole block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from munjang.data import Examples
from munjang.encoders import CrossEncoder
from munjang.files import disk_errors
from munjang.progress import Progress, track
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.sources import Taken
from munjang.recipes.stages import Made
from munjang.recipes.telling import say
from munjang.vectors import open_writer, read_vectors
from munjang.vectors.files import create_npy

Array = np.ndarray[Any, Any]
_BLOCK = 65_536  # rows that are copied at a time
PAIRS = 4096  # pairs that are scored and written at a time
_SAFE = "the stages before it are whole; make room and run the same command again"


def anchors(examples: Examples) -> list[str]:
    """The texts that a vector teacher encodes: the first column."""
    return next(iter(examples.columns.values()))


def make_targets(folder: Path, job: Job) -> Made:
    """Encode what no cache has yet, and write the targets of every source."""
    taken, options, cache = job.taken, job.options, job.cache
    texts = list(dict.fromkeys(text for one in taken for text in anchors(one.examples)))
    told: list[dict[str, object]] = []
    stores = []
    for teacher in job.teachers:
        store = teacher.vectors(cache, options)
        say(options.progress, f"teacher {teacher.name}: vectors of {len(texts):,} different texts")
        there = [text for text, row in zip(texts, store.rows_for(texts).tolist(), strict=True) if row >= 0]
        teacher.truncated = teacher.cuts(there)
        encoded = store.add(texts, teacher.encode, progress=options.progress)
        stores.append(store)
        said = {"name": teacher.name, "width": teacher.width, "encoded": encoded, "known": len(texts) - encoded}
        said |= {"truncated": teacher.truncated, "max_length": teacher.max_length}
        told.append(said)
    outputs = []
    with disk_errors(folder, safe=_SAFE):
        for number, one in enumerate(taken, start=1):
            rows = one.rows(options.seeded)
            found = [store.rows_for(anchors(one.examples))[rows] for store in stores]  # int64 [n] each
            outputs.append(f"targets-{number}.npy")
            _assemble(folder / outputs[-1], [store.array for store in stores], found)
    return Made(outputs, {"texts": len(texts), "cache": str(cache), "teachers": told})


def _assemble(path: Path, arrays: Sequence[Array], rows: Sequence[Array]) -> None:
    """The rows of several arrays side by side, as a .npy file, without ever holding it."""
    width = sum(array.shape[1] for array in arrays)
    with create_npy(path, (len(rows[0]), width), arrays[0].dtype) as out:
        for first in range(0, len(rows[0]), _BLOCK):
            last = first + _BLOCK
            out[first:last] = np.concatenate(
                [array[places[first:last]] for array, places in zip(arrays, rows, strict=True)], axis=1
            )


def read_targets(folder: Path, number: int) -> Array:
    """The targets of a source: a read-only memory map."""
    found: Array = np.load(folder / f"targets-{number}.npy", mmap_mode="r")
    return found


# --- cross-encoders --------------------------------------------------------------------------------------------------


def make_scores(folder: Path, job: Job, taken: Sequence[Taken]) -> Made:
    """Score every pair of every source; `taken` with the negatives that were found for them."""
    teacher, progress = job.teachers[0], job.options.progress
    model = teacher.model
    assert isinstance(model, CrossEncoder)
    outputs, counts, cut = [], {}, {}
    with disk_errors(folder, safe="the blocks before are whole; make room and run the same command again"):
        for number, one in enumerate(taken, start=1):
            place: dict[tuple[str, str], int] = {}  # every different pair, in the order in which it first comes
            each = np.array([place.setdefault(pair, len(place)) for pair in _pairs(one.examples)], np.int64)
            unique = list(place)
            del place
            say(progress, f"teacher {teacher.name}: scores of {len(unique):,} pairs of {one.name}")
            scores, truncated = _score(folder / f"pairs-{number}.npy", unique, model, progress=progress)
            shape = (len(one.examples),) if one.examples.kind == "scored" else (len(one.examples), -1)
            outputs.append(f"scores-{number}.npy")
            rows = scores[each].reshape(shape)
            with create_npy(folder / outputs[-1], rows.shape, np.float32) as out:
                out[:] = rows
            counts[one.name], cut[one.name] = len(unique), truncated
    said = {"name": teacher.name, "scored": counts, "truncated": sum(cut.values()), "max_length": model.max_length}
    return Made(outputs, {"pairs": sum(counts.values()), "teachers": [said]})


def _pairs(examples: Examples) -> Iterator[tuple[str, str]]:
    """Row by row, its candidates side by side."""
    first, *others = examples.columns.values()
    return ((text, other[row]) for row, text in enumerate(first) for other in others)


def _score(
    path: Path, pairs: Sequence[tuple[str, str]], model: CrossEncoder, *, progress: Progress
) -> tuple[Array, int]:
    """Return logits, float32 [n], and how many pairs were truncated; blocks of an interrupted call are kept."""
    if path.is_file():  # killed after the last block
        return read_vectors(path)[:, 0], _cut(pairs, model)
    truncated, setting = 0, f"{model.fingerprint} {model.dtype}"
    with open_writer(path, width=1, setting=setting) as writer, track(progress, len(pairs)) as tell:
        for first in range(0, len(pairs), PAIRS):
            block = pairs[first : first + PAIRS]
            keys = [json.dumps(pair) for pair in block]
            done = writer.skip(keys)
            truncated += _cut(block[:done], model)
            if done < len(block):
                found = model.predict_report(block[done:], raw=True)
                truncated += found.report.truncated
                writer.append(found.scores.reshape(-1, 1), keys[done:])
            tell(len(block))
        writer.finish()
    return read_vectors(path)[:, 0], truncated


def _cut(pairs: Sequence[tuple[str, str]], model: CrossEncoder) -> int:
    """How many of these pairs the model has to cut."""
    found = 0
    for first in range(0, len(pairs), PAIRS):
        a, b = zip(*pairs[first : first + PAIRS], strict=True)
        found += model.tokenizer.encode_pairs(a, b).truncated
    return found


def read_scores(folder: Path, number: int) -> Array:
    """The teacher's logits of a source: float32 [n] of scored pairs, else [n, candidates]."""
    found: Array = np.load(folder / f"scores-{number}.npy")
    return found
