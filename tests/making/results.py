"""A file of results whose every figure is known, and the facts of a making: what pages and cards are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from models.ko_en_0_1.tables import TASKS
from munjang.evaluation import Scores

_MAINS = {
    "sts": "spearman",
    "bitext": "accuracy",
    "reranking": "ndcg@10",
    "classification": "accuracy",
    "clustering": "v_measure",
    "paraphrase": "average_precision",
}


def _scores(base: float, tasks: tuple[str, ...]) -> dict[str, Scores]:
    found: dict[str, Scores] = {}
    value = base
    for task in tasks:
        for name, metric in TASKS[task]:
            value += 0.0011
            main = metric or _MAINS[task]
            known = found.get(name)
            values = {**(known.values if known else {}), main: value}
            intervals = {**(known.intervals if known else {}), main: (value - 0.01, value + 0.012)}
            notes = ("truncated: 3 of 964 texts to 256 tokens",) if name.startswith("KorQuAD") else ()
            found[name] = Scores(name, values, known.main if known else main, 100, intervals, notes)
    return found


def _model(name: str, kind: str, scores: dict[str, Scores], **about: object) -> dict[str, Any]:
    machine = {"device": "CPU", "torch": "2.10", "munjang": "0.1.0", "date": "2026-01-02"}
    facts = {"kind": kind, "machine": machine, "versions": {"munjang": "0.1.0"}, "thresholds": {}, **about}
    saved = {name: {"content": "x", **one.to_dict()} for name, one in scores.items()}
    skipped = {} if kind == "bi-encoder" else {"KorQuAD dev": "needs vectors, and a cross-encoder makes none"}
    head = {"model": name, "fingerprint": name, "dtype": "float32", "dimension": 384}
    return {**head, "sets": saved, "skipped": skipped, "about": facts}


def results_file(path: Path) -> Path:
    """munjang-ko-en, munjang-rerank-ko-en and another model."""
    ours = _scores(0.80, tuple(TASKS))
    values = {"recall@1": 0.71, "recall@1_before": 0.62, "recall@1_gain": 0.09, "recall_of_candidates": 0.95}
    intervals = {"recall@1": (0.7, 0.72), "recall@1_before": (0.61, 0.63), "recall@1_gain": (0.08, 0.1)}
    notes = ("first 100 of the bi-encoder reranked by munjang-rerank-ko-en",)
    staged = Scores("KorQuAD dev two-stage", values, "recall@1", 100, intervals, notes)
    unseen = Scores("KorSTS test, unseen rows", {"spearman": 0.7654}, "spearman", 90)
    overlap = {"KorSTS test": {"rows": 100, "exact": 8, "normalised": 10, "whole rows": 0, "by": {"KorSTS train": 10}}}
    sets = [{"set": "ParaKQC test, first 300 groups", "rows": 3000, "f1": 0.5432, "precision": 0.6, "recall": 0.5}]
    threshold = {"value": 0.777, "task": "paraphrase", "meaning": "the same", "measured": {"sets": sets}}
    models = [
        _model("another", "bi-encoder", _scores(0.60, tuple(TASKS))),
        _model(
            "munjang-ko-en",
            "bi-encoder",
            {**ours, staged.name: staged, unseen.name: unseen},
            overlap=overlap,
            thresholds={"paraphrase": threshold},
        ),
        _model("munjang-rerank-ko-en", "cross-encoder", _scores(0.81, ("sts", "reranking"))),
    ]
    saved = {"format": 1, "models": {one["model"]: one for one in models}}
    path.write_text(json.dumps(saved, ensure_ascii=False), encoding="utf-8")
    return path


def making(name: str = "munjang-ko-en", kind: str = "bi-encoder") -> dict[str, Any]:
    return {
        "format": 1,
        "name": name,
        "kind": kind,
        "licence": "Apache-2.0",
        "command": "python -m models.ko_en_0_1 ko-en --data DIR --output runs/ko-en",
        "seed": 7,
        "model": {"layers": 6, "hidden size": 384, "vocabulary": 30000, "parameters": 22800000},
        "sizes": [
            {"what": {"en": "int8 weights", "ko": "int8 가중치"}, "bytes": 23400000, "source": "the saved folder"}
        ],
        "data": [
            {
                "name": "KorSTS train",
                "set": "korsts:train",
                "licence": "CC BY-SA 4.0",
                "rows": 5749,
                "use": {"en": "scored pairs", "ko": "점수가 붙은 쌍"},
                "source": "kakaobrain/kor-nlu-datasets",
            },
            {
                "name": "NSMC reviews",
                "set": "nsmc:train",
                "licence": "CC0",
                "rows": 688000,
                "use": "plain sentences",
                "source": "e9t/nsmc",
            },
        ],
        "teachers": [{"name": "all-mpnet-base-v2", "licence": "Apache-2.0", "use": "English", "source": "PyPI"}],
        "stages": [
            {"name": "distil", "seconds": 61.4, "settings": {"learning rate": 2e-4, "batch": 768}},
            {"name": "multi-task", "seconds": 35.1, "settings": {"learning rate": 1e-4}},
        ],
        "selection": [
            {
                "set": "KorSTS dev",
                "metric": "spearman",
                "value": 0.8412,
                "source": {"en": "the last stage", "ko": "마지막 단계"},
            }
        ],
        "speed": [{"what": "short", "per second": 98765, "device": "H200", "source": "benchmarks.encode --json"}],
        "machine": {"device": "NVIDIA H200", "torch": "2.10"},
    }
