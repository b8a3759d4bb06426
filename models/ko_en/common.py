"""What the scripts share: compressed JSON lines, development sets, and weights between two models."""

from __future__ import annotations

import copy
import json
import lzma
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.evaluation.sts import StsEvaluator
from munjang.vectors import top_k

BEGAN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:6.1f} s] {text}", flush=True)


def write_rows(path: Path, rows: Iterable[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(lzma.compress(text.encode(), preset=6))


def read_rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]


def scored_sets(data: Path, split: str) -> dict[str, Examples]:
    """The sets of pairs that people scored, of data/scored.jsonl.xz: 'train' or 'dev'."""
    rows: dict[str, list[list[Any]]] = {}
    for name, found, a, b, score in read_rows(data / "scored.jsonl.xz"):
        if found == split:
            rows.setdefault(name, []).append([a, b, score])
    return {
        name: Examples(
            name,
            "scored",
            {"a": [r[0] for r in some], "b": [r[1] for r in some]},
            np.array([r[2] for r in some], np.float32),
        )
        for name, some in rows.items()
    }


@dataclass(frozen=True)
class Search:
    """A development set: queries, passages, and which passages answer each query."""

    name: str
    queries: list[str]
    passages: list[str]
    answers: list[list[int]]


def dev_searches(data: Path) -> list[Search]:
    return [Search(**row) for row in read_rows(data / "dev.jsonl.xz")]


def ndcg_and_recall(ranked: np.ndarray[Any, Any], answers: list[list[int]]) -> tuple[float, float]:
    """(nDCG@10, recall@1), x 100; ranked: places of passages [queries, 10 or more]."""
    gains = 1 / np.log2(np.arange(2, 12))
    scores, firsts = [], []
    for row, right in zip(ranked[:, :10].tolist(), answers, strict=True):
        hits = np.isin(row, right)
        scores.append(float((gains[: len(row)] * hits).sum() / gains[: min(len(right), 10)].sum()))
        firsts.append(float(hits[0]))
    return 100 * fmean(scores), 100 * fmean(firsts)


def search_scores(
    model: BiEncoder, searches: Iterable[Search], *, query: str = "", passage: str = ""
) -> dict[str, tuple[float, float]]:
    """(nDCG@10, recall@1) of every development set; query, passage: prefixes."""
    found = {}
    for one in searches:
        asked = model.encode_report([query + text for text in one.queries], normalize=True).vectors
        texts = model.encode_report([passage + text for text in one.passages], normalize=True).vectors
        near = top_k(asked, texts, min(10, len(texts)), device=str(model.device)).indices
        found[one.name] = ndcg_and_recall(np.asarray(near), one.answers)
    return found


def load(folder: Path, device: str | None, length: int) -> BiEncoder:
    """A model that reads `length` tokens, or as many as it can."""
    model = BiEncoder.load(folder, device=device)
    model.max_length = min(length, model.max_length)
    return model


def sts_scores(model: BiEncoder, sets: Mapping[str, Examples]) -> dict[str, float]:
    return {name: 100 * StsEvaluator(one)(model).value for name, one in sets.items()}


def line_of(sts: Mapping[str, float], search: Mapping[str, tuple[float, float]]) -> str:
    parts = [f"{name} {value:.1f}" for name, value in sts.items()]
    parts += [f"{name} {ndcg:.1f}/{first:.1f}" for name, (ndcg, first) in search.items()]
    if sts:
        parts.append(f"| STS {fmean(sts.values()):.2f}")
    if search:
        parts.append(f"| search {fmean(ndcg for ndcg, _ in search.values()):.2f}")
    return "  ".join(parts)


def between(first: BiEncoder, second: BiEncoder, share: float) -> BiEncoder:
    """A model with (1 - share) of the first one's weights and `share` of the second one's."""
    parts = copy.copy(second.parts)
    parts.body = copy.deepcopy(second.parts.body)
    old = first.parts.body.state_dict()
    new = {
        name: torch.lerp(old[name].to(value), value, share) if value.is_floating_point() else value
        for name, value in second.parts.body.state_dict().items()
    }
    parts.body.load_state_dict(new)
    return BiEncoder(parts, device=second.device)
