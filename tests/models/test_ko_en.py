"""The making of the bundled models, its stages one after the other on a handful of made-up rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.small_models import bi_encoder, cross_encoder

SCRIPTS = Path(__file__).parents[2] / "models" / "ko_en"
WORDS = ["고양이", "강아지", "바다", "산", "학교", "여행", "날씨", "cat", "dog", "sea", "school", "travel", "weather"]


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPTS / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def scripts() -> Iterator[None]:
    """The folder of the scripts can be imported from, as when one of them runs."""
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory, scripts: None) -> Path:
    from common import write_rows

    folder = tmp_path_factory.mktemp("making")
    bi_encoder("bert").save(folder / "body")
    cross_encoder("bert").save(folder / "rerank")
    draw = np.random.default_rng(0)

    def text(count: int = 4) -> str:
        return " ".join(draw.choice(WORDS, count))

    data = folder / "data"
    passages = [
        [text(9), ("bills", "chatbot")[i % 2], f"group {i}", "ko", [["summary", text(3)], ["asked", text(2)]]]
        for i in range(40)
    ]
    write_rows(data / "passages.jsonl.xz", passages)
    write_rows(data / "sentences.jsonl.xz", [[f"{text()} {i}", "judged" if i % 2 else "plain", -1] for i in range(60)])
    scored = [["sts", split, text(), text(), i % 6 / 5] for split in ("train", "dev") for i in range(30)]
    write_rows(data / "scored.jsonl.xz", scored)
    write_rows(data / "nli.jsonl.xz", [[text(5), text(3), text(3)] for _ in range(20)])
    write_rows(data / "translations.jsonl.xz", [["tatoeba", text(5), text(4)] for _ in range(20)])
    search = {"name": "everyday", "queries": [text(2)], "passages": [text(8) for _ in range(12)], "answers": [[3]]}
    write_rows(data / "dev.jsonl.xz", [search])
    np.save(data / "known.npy", np.array([1], np.uint64))
    return folder


def test_statements_become_questions(scripts: None) -> None:
    from queries import korean_question

    draw = random.Random(0)
    assert korean_question("세금은 집값으로 정하고 있음", draw).endswith("있나?")
    assert korean_question("가게는 아홉 시에 문을 엽니다.", draw).endswith("여나요?")
    assert korean_question("강아지 산책", draw) == ""


def test_noise_keeps_queries_readable(scripts: None) -> None:
    from queries import noisy, tidy

    draw = random.Random(0)
    found = {noisy("환불은 어떻게 하나요?", draw) for _ in range(200)}
    assert "환불은어떻게하나요?" in found
    assert "환불은 어떻게 하나요?" in found
    assert all("환" in text or "불" in text for text in found)
    assert tidy("「학교에서」") == "학교"


@pytest.mark.slow
def test_stages_run_one_after_the_other(material: Path) -> None:
    data, tiny = material / "data", ("--device", "cpu")
    told = run("03_silver.py", "--body", material / "body", "--texts", data, "--reranker", material / "rerank",
               "--out", material / "silver", *tiny)  # fmt: skip
    assert "weights" in told
    silver = np.load(material / "silver" / "silver.npz")
    assert len(silver["pairs"]) == len(silver["labels"]) > 60
    assert 0 <= silver["labels"].min() <= silver["labels"].max() <= 1
    run("04_lists.py", "--body", material / "body", "--miner", material / "body", "--texts", data,
        "--reranker", material / "rerank", "--out", material / "lists", "--processes", 1, *tiny)  # fmt: skip
    lists = np.load(material / "lists" / "lists.npz")
    assert lists["places"].shape == lists["reranker"].shape == (80, 8)
    assert (lists["places"][:, 1:] != lists["places"][:, :1]).mean() > 0.9
    run("05_bi_encoder.py", "--body", material / "body", "--texts", data, "--silver", material / "silver",
        "--lists", material / "lists", "--out", material / "bi", "--tokens-per-second", 50, "--trial",
        *tiny)  # fmt: skip
    chosen = json.loads((material / "bi" / "chosen.json").read_text())
    assert set(chosen["steps"]) == {"queries", "translations", "silver", "people", "nli"}
    run("06_reranker.py", "--bi", material / "bi" / "trained", "--first", material / "bi" / "model",
        "--texts", data, "--lists", material / "lists", "--silver", material / "silver", "--trial",
        "--teachers", material / "rerank", material / "rerank", "--out", material / "reranker",
        "--tokens-per-second", 20, "--layers", 0, 1, *tiny)  # fmt: skip
    report = json.loads((material / "reranker" / "dev.json").read_text())
    assert set(report["everyday"]) >= {"first stage", "reranked"}
