"""The paper's tables as rows to run: pooling, concatenation, stages; and what the paper found.

Numbers are Spearman x 100 as printed in the paper, with BERT-base. A column is named by its role (`dev`, `test`) or by
its set (`STS12`), so that the same rows run in another language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from munjang.nn.pooling import PoolingMode
from munjang.training.losses import Part

Stage = Literal["nli", "sts"]
Kind = Literal["bi", "cross"]
StudyName = Literal["sbert-ablation", "sbert-transfer", "sbert-table1"]
PARTS: tuple[Part, ...] = ("u", "v", "|u-v|")


@dataclass(frozen=True)
class Row:
    """One row of a table: what is trained, on what, how; whatever the seed."""

    block: str  # the part of the table in which rows are compared with each other
    name: str
    kind: Kind = "bi"
    stages: tuple[Stage, ...] = ("nli",)  # none: not trained at all
    pooling: PoolingMode = "mean"
    parts: tuple[Part, ...] = PARTS  # what the softmax of NLI sees
    paper: Mapping[str, float] = field(default_factory=dict, compare=False)  # column -> value


@dataclass(frozen=True)
class Study:
    """One table of the paper."""

    name: StudyName
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


def _pooling(mode: PoolingMode, dev: float) -> Row:
    return Row("pooling", mode, pooling=mode, paper={"dev": dev})


def _parts(parts: tuple[Part, ...], dev: float) -> Row:
    name = ", ".join(parts)
    return Row("concatenation", f"({name})" if len(parts) > 1 else name, parts=parts, paper={"dev": dev})


def _table1(name: str, stages: tuple[Stage, ...], pooling: PoolingMode, values: tuple[float, ...]) -> Row:
    return Row("", name, stages=stages, pooling=pooling, paper=dict(zip(_TABLE1, values, strict=True)))


_TABLE1 = ("STS12", "STS13", "STS14", "STS15", "STS16", "test")

ABLATION = Study(
    "sbert-ablation",
    "Table 6: pooling and concatenation, trained on NLI",
    ("dev",),
    (
        _pooling("mean", 80.78),
        _pooling("max", 79.07),
        _pooling("cls", 79.80),
        _parts(("u", "v"), 66.04),
        _parts(("|u-v|",), 69.78),
        _parts(("u*v",), 70.54),
        _parts(("|u-v|", "u*v"), 78.37),
        _parts(("u", "v", "u*v"), 77.44),
        _parts(("u", "v", "|u-v|"), 80.78),
        _parts(("u", "v", "|u-v|", "u*v"), 80.44),
    ),
    "Poolings are compared with the concatenation (u, v, |u-v|), concatenations with mean pooling.",
)

TRANSFER = Study(
    "sbert-transfer",
    "Table 2: NLI, STS, and NLI then STS",
    ("test",),
    (
        Row("bi-encoder", "not trained", stages=(), paper={"test": 46.35}),
        Row("bi-encoder", "NLI", stages=("nli",), paper={"test": 77.03}),
        Row("bi-encoder", "STS", stages=("sts",), paper={"test": 84.67}),
        Row("bi-encoder", "NLI, then STS", stages=("nli", "sts"), paper={"test": 85.35}),
        Row("cross-encoder", "NLI", kind="cross", stages=("nli",)),
        Row("cross-encoder", "STS", kind="cross", stages=("sts",), paper={"test": 84.30}),
        Row("cross-encoder", "NLI, then STS", kind="cross", stages=("nli", "sts"), paper={"test": 88.33}),
    ),
    "A cross-encoder trained on NLI alone has three outputs; its probability of entailment is taken for the score, "
    "which the paper does not do.",
)

TABLE1 = Study(
    "sbert-table1",
    "Table 1: without any STS data",
    _TABLE1,
    (
        _table1("CLS, not trained", (), "cls", (20.16, 30.01, 20.09, 36.88, 38.08, 16.50)),
        _table1("mean, not trained", (), "mean", (38.78, 57.98, 57.98, 63.15, 61.06, 46.35)),
        _table1("mean, NLI", ("nli",), "mean", (70.97, 76.53, 73.19, 79.09, 74.30, 77.03)),
    ),
    "SICK-R is not among the data here, and STS12 is without MSRvid.",
)

STUDIES: dict[StudyName, Study] = {study.name: study for study in (ABLATION, TRANSFER, TABLE1)}
