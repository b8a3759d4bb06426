"""A folder laid out as the public sets are, with Korean and English sentences of our own: enough to measure on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np

from recipes.material import sentences

TOPICS = ("경제", "스포츠", "사회")


def put(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def pairs(count: int, seed: int) -> list[tuple[str, str, float]]:
    """Pairs with a score 0..5 that falls from row to row."""
    scores = np.linspace(5, 0, count)
    return list(zip(sentences(count, seed), sentences(count, seed + 500), map(float, scores.round(2)), strict=True))


def public_sets(folder: Path) -> Path:
    """Write the sets into the folder; KorSTS test shares three rows with KorSTS train, STS13 two with STSb train."""
    head = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"
    train = pairs(30, 0)
    for split, rows in (("train", train), ("test", [*pairs(17, 1), *train[:3]])):
        lines = [f"g\tf\ty\t{i}\t{s}\t{a}\t{b}" for i, (a, b, s) in enumerate(rows)]
        put(folder / f"korsts/sts-{split}.tsv", [head, *lines])
    english = pairs(30, 2)
    for split, rows in (("train", english), ("test", pairs(20, 3))):
        put(folder / f"stsb-en/stsb-en-{split}.csv", [f"{a},{b},{s}" for a, b, s in rows])
    for year in range(2012, 2017):
        rows = [*pairs(12, year), *(english[:2] if year == 2013 else [])]
        put(folder / f"sts12-16/{year}/a.test.tsv", [f"{s}\t{a}\t{b}" for a, b, s in rows])
    put(folder / "klue-sts/dev.csv", ["sentence1,sentence2,label", *(f"{a},{b},{s}" for a, b, s in pairs(12, 4))])
    same = [f"{a},{a}!,0" for a, _, _ in pairs(12, 5)] + [f"{a},{b},1" for a, b, _ in pairs(12, 6)]
    for name in ("kor_pair_train.csv", "kor_Pair_test.csv"):
        put(folder / f"question-pair/{name}", ["question1,question2,is_duplicate", *same])
    groups = [f"0\t0\t{text} {'!' * n}" for text in sentences(20, 7) for n in range(1, 11)]
    put(folder / "parakqc/paraKQC_v1.txt", groups)
    labelled = [f"{text},{'top up' if i % 2 else 'card lost'}" for i, text in enumerate(sentences(40, 8))]
    for split in ("train", "test"):
        put(folder / f"banking77/{split}.csv", ["text,category", *labelled])
    for split, seed in (("train", 9), ("test", 10)):
        rows_ = [f"{text},{TOPICS[i % 3]}" for i, text in enumerate(sentences(24, seed))]
        put(folder / f"ynat/{split}.csv", ["title,topic", *rows_])
    _korquad(folder / "korquad1/dev.json")
    _nfcorpus(folder / "nfcorpus/nfcorpus.zip")
    return folder


def _korquad(path: Path) -> None:
    paragraphs = [
        {"context": f"{text} {text}", "qas": [{"id": f"q{i}", "question": f"{text}?"}]}
        for i, text in enumerate(sentences(20, 11))
    ]
    put(path, [json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False)])


def _nfcorpus(path: Path) -> None:
    texts = sentences(16, 12)
    corpus = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(texts)]
    queries = [json.dumps({"_id": f"q{i}", "text": f"{text} ?"}) for i, text in enumerate(texts[:6])]
    judged = [f"q{i}\td{i}\t2" for i in range(6)] + [f"q{i}\td{i + 6}\t1" for i in range(6)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("nfcorpus/corpus.jsonl", "\n".join(corpus))
        file.writestr("nfcorpus/queries.jsonl", "\n".join(queries))
        file.writestr("nfcorpus/qrels/test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *judged]))
