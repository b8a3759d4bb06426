"""Long runs with requests of ever-changing size: resident memory levels off after the warm-up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import serve_mixed  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="measures resident memory as Linux reports it"),
]
GROWTH = 0.15

_LOOP = """
import random
import munjang, psutil
from benchmarks import corpora
from benchmarks.serve_mixed import text_of

model, random, process = munjang.load(device="cpu"), random.Random(1), psutil.Process()
sentences = corpora.texts("koen", 500)
for calls in (100, 300):
    for _ in range(calls):
        model.encode([text_of(random, sentences) for _ in range(8)])
    print(process.memory_info().rss)
"""


def test_memory_of_encode_in_a_loop() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOP], cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    warm, end = map(int, done.stdout.split())
    assert end / warm - 1 < GROWTH


def test_memory_of_a_service_under_mixed_load(tmp_path: Path) -> None:
    with serve_mixed.serving(tmp_path / "sample") as (process, address):
        asyncio.run(serve_mixed.load(address, serve_mixed.CLIENTS, 60, seed=1))
        warm = process.memory_info().rss
        seconds, errors = asyncio.run(serve_mixed.load(address, serve_mixed.CLIENTS, 120, seed=2))
        assert not errors
        assert all(seconds.values())
        assert process.memory_info().rss / warm - 1 < GROWTH
