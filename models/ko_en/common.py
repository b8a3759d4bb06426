"""What the scripts share: compressed JSON lines, development sets, and weights between two models."""

from __future__ import annotations

import copy
import hashlib
import json
import lzma
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from settings import LISTS, Part

from munjang.data import Examples
from munjang.data.overlaps import normalise
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.evaluation.sts import StsEvaluator
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]
BEGAN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:6.1f} s] {text}", flush=True)


def write_rows(path: Path, rows: Iterable[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(lzma.compress(text.encode(), preset=6))


def read_rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]


def pair_key(a: str, b: str) -> int:
    """A hash of a pair, in either order, whatever its punctuation."""
    first, second = sorted((normalise(a), normalise(b)))
    return int.from_bytes(hashlib.blake2b(f"{first}\0{second}".encode(), digest_size=8).digest(), "little")


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


def teachers_scores(found: Questions, stored: Mapping[str, Array]) -> Array:
    """float32 [lists, candidates]: e5, the miner and the reranker of 0.1.0 together, as logits.

    That reranker cannot judge across languages: where a query's passage is in the other one, its part is 0.
    """
    cosines = stored["e5"].astype(np.float32) + stored["miner"].astype(np.float32)
    foreign = [
        is_korean(found.queries[row]) != is_korean(found.passages[place])
        for row, place in zip(stored["rows"].tolist(), stored["places"][:, 0].tolist(), strict=True)
    ]
    weight = np.where(foreign, 0.0, LISTS.reranker_weight)[:, None]
    return np.asarray(LISTS.cosine_weight * cosines + weight * stored["reranker"], np.float32)


@dataclass(frozen=True)
class Search:
    """A development set: queries, passages, and which passages answer each query."""

    name: str
    queries: list[str]
    passages: list[str]
    answers: list[list[int]]


@dataclass(frozen=True)
class Questions:
    """The training queries: each with its kind and the place of its passage; passages with their groups and sources."""

    queries: list[str]
    kinds: list[str]
    answers: Array  # int64 [queries]
    passages: list[str]
    groups: Array  # int64 [passages]
    sources: list[str]


def questions_of(texts: Path) -> Questions:
    rows = read_rows(texts / "passages.jsonl.xz")
    queries = [
        (text, kind, place)
        for place, row in enumerate(rows)
        for kind, text in row[4]
        if text.split() != row[0].split()  # a text with itself teaches nothing
    ]
    return Questions(
        [text for text, *_ in queries],
        [kind for _, kind, _ in queries],
        np.array([place for *_, place in queries]),
        [row[0] for row in rows],
        np.unique([row[2] for row in rows], return_inverse=True)[1],
        [row[1] for row in rows],
    )


def dev_searches(data: Path) -> list[Search]:
    return [Search(**row) for row in read_rows(data / "dev.jsonl.xz")]


def ndcg_and_recall(ranked: Array, answers: list[list[int]]) -> tuple[float, float]:
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
    scores = {}
    for search in searches:
        if not any(search.answers):  # questions without an answer are for the reranker
            continue
        queries = unit_vectors(model, [query + text for text in search.queries])
        passages = unit_vectors(model, [passage + text for text in search.passages])
        near = top_k(queries, passages, min(10, len(passages)), device=str(model.device)).indices
        scores[search.name] = ndcg_and_recall(np.asarray(near), search.answers)
    return scores


def is_korean(text: str) -> bool:
    """Whether at least a fifth of the letters is Hangul."""
    letters = sum(character.isalpha() for character in text)
    return letters > 0 and sum("가" <= character <= "힣" for character in text) >= 0.2 * letters


def unit_vectors(model: BiEncoder, texts: Sequence[str]) -> Array:
    """float32 [n, d], without a prompt."""
    return model.encode_report(texts, normalize=True).vectors


def scored_lists(bi: BiEncoder, cross: CrossEncoder | None, search: Search, count: int) -> tuple[Array, Array, Array]:
    """Places, cosines and logits [queries, count] of the first passages that the bi-encoder finds."""
    near = top_k(
        *(unit_vectors(bi, some) for some in (search.queries, search.passages)), min(count, len(search.passages))
    )
    places = np.asarray(near.indices)
    if cross is None:
        return places, np.asarray(near.scores), np.zeros(places.shape, np.float32)
    pairs = (
        (query, search.passages[p]) for query, row in zip(search.queries, places.tolist(), strict=True) for p in row
    )
    return places, np.asarray(near.scores), cross.predict(pairs, raw=True).reshape(places.shape)


def orders(
    places: Array, cosines: Array, logits: Array, answers: list[list[int]], weights: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """(nDCG@10, recall@1) of the first stage, of the reranker's order, and of logit + weight x cosine."""
    report = {"first stage": ndcg_and_recall(places, answers)}
    for name, scores in (
        ("reranked", logits),
        *((f"+ {weight:g} cosine", logits + weight * cosines) for weight in weights),
    ):
        order = np.argsort(-scores, axis=1, kind="stable")
        report[name] = ndcg_and_recall(np.take_along_axis(places, order, axis=1), answers)
    return report


def load(folder: Path, device: str | None, length: int) -> BiEncoder:
    """A model that reads `length` tokens, or as many as it can."""
    model = BiEncoder.load(folder, device=device)
    model.max_length = min(length, model.max_length)
    return model


def sts_scores(model: BiEncoder | CrossEncoder, sets: Mapping[str, Examples]) -> dict[str, float]:
    return {name: 100 * StsEvaluator(examples)(model).value for name, examples in sets.items()}


def line_of(sts: Mapping[str, float], search: Mapping[str, tuple[float, float]]) -> str:
    parts = [f"{name} {value:.1f}" for name, value in sts.items()]
    parts += [f"{name} {ndcg:.1f}/{first:.1f}" for name, (ndcg, first) in search.items()]
    if sts:
        parts.append(f"| STS {fmean(sts.values()):.2f}")
    if search:
        parts.append(f"| search {fmean(ndcg for ndcg, _ in search.values()):.2f}")
    return "  ".join(parts)


def silver_rows(texts: Path, silver: Path) -> Examples:
    sentences = [row[0] for row in read_rows(texts / "sentences.jsonl.xz")]
    stored = np.load(silver / "silver.npz")
    a, b = ([sentences[place] for place in side] for side in stored["pairs"].T.tolist())
    return Examples("silver", "scored", {"a": a, "b": b}, stored["labels"].astype(np.float32))


def steps_of(examples: Examples, part: Part, model: BiEncoder | CrossEncoder, tokens_per_second: float) -> int:
    """As many steps as take the seconds of a part, by the mean length of its rows."""
    some = np.sort(np.random.default_rng(0).permutation(len(examples))[:2000])
    first, *others = (
        np.minimum(model.tokenizer.encode(column).lengths, model.max_length).mean()
        for column in examples.take(some).columns.values()
    )
    cross = isinstance(model, CrossEncoder)  # reads the first column with each of the others
    tokens = len(others) * first + sum(others) if cross else first + sum(others)
    return max(1, round(part.seconds * tokens_per_second / (float(tokens) * min(part.batch, len(examples)))))


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
