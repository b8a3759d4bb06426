"""A model on this machine -> `Rates`: short encodings, small index builds at growing sizes, and costs fitted to them.

Encoding is measured with texts of growing length, in rounds, so that what slows the machine down for a while slows all
lengths down; the middle round counts. An index is built from generated vectors in a temporary folder: with and without
a graph, with and without keywords, for each way of keeping vectors. What differs between two builds is the cost of what
they differ in.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from munjang.bi_encoder import BiEncoder
from munjang.errors import InputError, MunjangWarning
from munjang.index.cutting import Cutter
from munjang.index.options import IndexOptions, VectorKind
from munjang.nn.device import cpu_cores
from munjang.planning.building import Build, Builder
from munjang.planning.fitting import fit
from munjang.planning.memory import machine_memory, peak_memory
from munjang.planning.rates import KindRates, Rates, vector_bytes
from munjang.planning.texts import texts
from munjang.progress import Progress, track

LEAST_ROWS = 10_000  # a smaller index keeps no file of what it searches
_WORDS = (2, 8, 24, 64, 160)  # of a text, as long as the model reads them
_ROUNDS = 3
_BATCHES = 6_144  # tokens: fewer would not keep the workers of a CPU busy
_MOST_TEXTS = 400_000
_NOTHING = 1e-9  # seconds: what a difference counts at least that came out as less than nothing
_BUILDS = 16  # index builds of one measurement
_GROWTH = (0.1, 0.3)  # the powers that are believed: less or more is what a busy machine makes of it
_BUILD_MEMORY = 2.5  # times the structures, where a system does not say how much memory a process uses


@dataclass(frozen=True)
class MeasureOptions:
    """seconds: of encoding for every length of texts. rows: of a graph; the largest has twice, an index without one
    four times as many."""

    seconds: float = 3.0
    rows: int = LEAST_ROWS

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 3600:
            raise InputError(f"seconds must be above 0 and at most 3,600, got {self.seconds}")
        if not LEAST_ROWS <= self.rows <= 10_000_000:
            raise InputError(f"rows to measure with must be {LEAST_ROWS:,} to 10,000,000, got {self.rows:,}")


def measure(
    model: BiEncoder, name: str | None = None, *, options: MeasureOptions | None = None, progress: Progress = False
) -> Rates:
    """Measure a model and an index of its vectors here; a minute or a few. Run it on a machine that is otherwise idle.

    name: what the rates are found by later; the model's own where it is None.
    """
    options = options or MeasureOptions()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    lengths = [words for words in _WORDS if words == _WORDS[0] or 2 * words <= model.max_length]
    with track(progress, len(lengths) * _ROUNDS + _BUILDS) as done, warnings.catch_warnings():
        warnings.simplefilter("ignore", MunjangWarning)  # texts that are cut, a missing analyser: not the user's
        with peak_memory() as encoding:
            encode = _encoding(model, lengths, options.seconds / _ROUNDS, done)
        query = _query(model)
        with tempfile.TemporaryDirectory(prefix="munjang-plan-", ignore_cleanup_errors=True) as folder:
            index = _index(Builder(model, Path(folder), done), options.rows)
    cutter = Cutter.resolve(model.tokenizer, None, None)
    return Rates(
        model=name or str(model.parts.source or "unnamed"),
        fingerprint=model.fingerprint,
        device=model.device.type,
        device_name=_device_name(model.device),
        dimension=model.dimension,
        max_length=model.max_length,
        chunk_tokens=cutter.size,
        stride=cutter.stride,
        query=query,
        exact_up_to=IndexOptions().exact_up_to,
        base_memory=encoding.peak or _weights(model),
        memory=machine_memory(),
        cores=cpu_cores(),
        load=load,
        measured_rows=4 * options.rows,
        measured=datetime.date.today().isoformat(),
        version=importlib.metadata.version("munjang"),
        **encode,
        **index,
    )


# --- encoding --------------------------------------------------------------------------------------------------------


def _encoding(model: BiEncoder, lengths: list[int], seconds: float, done: Callable[[int], None]) -> dict[str, Any]:
    """Costs of a row, a token, and a token beside its neighbours."""
    model.encode_report(texts(64, lengths[-1]))  # the first call makes ready
    counts: dict[int, int] = {}
    points: dict[int, list[tuple[float, float]]] = {words: [] for words in lengths}  # tokens and seconds of a row
    for round_ in range(_ROUNDS):
        for words in lengths:
            if words not in counts:
                counts[words] = _enough(model, words, seconds)
            given = texts(counts[words], words, seed=round_)
            report = model.encode_report(given).report
            points[words].append((report.tokens / report.texts, report.seconds / report.texts))
            done(1)
    tokens = [statistics.median(point[0] for point in points[words]) for words in lengths]
    measured = [statistics.median(point[1] for point in points[words]) for words in lengths]
    costs, deviation = fit([(1.0, one, one * one) for one in tokens], measured)
    names = ("encode_row", "encode_token", "encode_square")
    return {**dict(zip(names, costs, strict=True)), "encode_deviation": deviation, "measured_tokens": max(tokens)}


def _enough(model: BiEncoder, words: int, seconds: float) -> int:
    """So many texts that encoding them takes about that long, and keeps all workers busy."""
    count = 64
    while True:
        report = model.encode_report(texts(count, words, seed=9)).report
        least = math.ceil(_BATCHES * report.texts / report.tokens)
        wanted = max(least, math.ceil(count * seconds / max(report.seconds, 1e-6)))
        if wanted <= 2 * count or count >= _MOST_TEXTS:
            return min(wanted, _MOST_TEXTS)
        count = min(wanted, 8 * count, _MOST_TEXTS)  # step by step: a small trial says little about a large one


def _query(model: BiEncoder) -> float:
    asked = texts(12, 6, seed=5)
    times = []
    for text in asked:
        started = time.perf_counter()
        model.encode_query([text])
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


# --- the index -------------------------------------------------------------------------------------------------------


def _index(build: Builder, rows: int) -> dict[str, Any]:
    """Costs and sizes of an index, from builds that differ in one thing each."""
    sizes = (rows // 4, rows // 2)
    # Small and large: what fits into the caches of a processor says nothing about what does not.
    flat = {kind: [build(kind, size) for size in (sizes[0], 4 * rows)] for kind in get_args(VectorKind)}
    plain, longer, between = flat["float32"], build("float32", sizes[0], words=40), build("float32", sizes[1])
    linked = {
        "float32": [build("float32", size, graph=True) for size in (sizes[0], rows, 2 * rows)],
        "int8": [build("int8", size, graph=True) for size in (sizes[0], rows)],
    }
    build("float32", sizes[0] // 10, keyword=True)  # the first one loads the analyser, which stays in memory
    worded = build("float32", sizes[1], keyword=True), build("float32", sizes[0], words=40, keyword=True)
    points = [plain[0], between, plain[1], longer]
    (_, _, token), _ = fit([(1.0, one.rows, one.tokens) for one in points], [one.seconds for one in points])
    byte = _seconds_per_byte()
    growth = _growth(linked["float32"], _links(plain, linked["float32"], token))
    kinds = {
        kind: _kind(builds, linked.get(kind, []), (token, growth), byte * vector_bytes(kind, build.dimension))
        for kind, builds in flat.items()
    }
    largest, graph = plain[1], linked["float32"][2]
    keyword = [
        max(_NOTHING, one.seconds - without.seconds) for one, without in zip(worded, (between, longer), strict=True)
    ]
    (keyword_row, keyword_token), _ = fit([(one.rows, one.tokens) for one in worded], keyword)
    graph_bytes = graph.derived / graph.rows - largest.derived / largest.rows
    documents = largest.documents - largest.vector_bytes - largest.text_bytes
    return {
        "write_token": token,
        "keyword_row": keyword_row,
        "keyword_token": keyword_token,
        "kinds": kinds,
        "graphs": graph_bytes > 1,
        "graph_growth": growth,
        "text_bytes": largest.text_bytes / largest.tokens,
        "document_bytes": max(0.0, documents) / largest.rows,
        "row_bytes": max(0.0, largest.derived / largest.rows - 4.0 * build.dimension),
        "graph_bytes": max(0.0, graph_bytes),
        "keyword_bytes": max(0.0, worded[1].derived - longer.derived) / worded[1].tokens,
        "keyword_memory": max(0.0, (worded[1].peak or 0.0) - (longer.peak or 0.0)),
        "build_memory": _memory_factor(linked["float32"]),
    }


def _kind(flat: list[Build], linked: list[Build], costs: tuple[float, float], least_scan: float) -> KindRates:
    """Of one way of keeping vectors; costs: of a token, and the power that those of a graph grow by."""
    token, growth = costs
    start, row = _writing(flat, token)
    (search, scan), _ = fit([(1.0, one.rows) for one in flat], [one.search for one in flat])
    powers = [one.rows**growth for one in linked]
    built = [cost / power for cost, power in zip(_links(flat, linked, token), powers, strict=True)]
    walked = [max(_NOTHING, one.search - search) / power for one, power in zip(linked, powers, strict=True)]
    graph, walk = (statistics.median(some) if some else 0.0 for some in (built, walked))
    return KindRates(start, row, graph, search, max(scan, least_scan), walk)


def _writing(flat: list[Build], token: float) -> tuple[float, float]:
    """Seconds of adding anything, and of a passage."""
    left = [max(_NOTHING, one.seconds - token * one.tokens) for one in flat]
    (start, row), _ = fit([(1.0, one.rows) for one in flat], left)
    return start, row


def _links(flat: list[Build], linked: list[Build], token: float) -> list[float]:
    """Seconds of a passage that building with a graph takes longer."""
    start, row = _writing(flat, token)
    return [max(_NOTHING, one.seconds - start - row * one.rows - token * one.tokens) / one.rows for one in linked]


def _growth(linked: list[Build], costs: list[float]) -> float:
    """The power of their number that the cost of a passage grows by.

    In theory the logarithm of it (Malkov and Yashunin 2016); but the larger a graph, the less of it lies in the caches
    of a processor, and a million passages took five times what the logarithm said.
    """
    found = math.log(costs[-1] / costs[0]) / math.log(linked[-1].rows / linked[0].rows)
    return min(_GROWTH[1], max(_GROWTH[0], found))


def _seconds_per_byte() -> float:
    """Of vectors that are compared with one; no scan is quicker, whatever a few small ones seem to say."""
    rows, query = np.ones((1 << 16, 256), dtype=np.float32), np.ones(256, dtype=np.float32)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        rows @ query
        times.append(time.perf_counter() - started)
    return min(times) / rows.nbytes


def _memory_factor(builds: list[Build]) -> float:
    """How much memory building takes for every byte that is built; the rest of the process cancels out."""
    small, large = builds[0], builds[-1]
    if small.peak is None or large.peak is None or large.derived <= small.derived:
        return _BUILD_MEMORY
    return min(6.0, max(1.0, (large.peak - small.peak) / (large.derived - small.derived)))


# --- the machine -----------------------------------------------------------------------------------------------------


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{_processor()}, {cpu_cores()} cores" if device.type == "cpu" else device.type


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or os.name


def _weights(model: BiEncoder) -> float:
    return float(sum(weight.numel() * weight.element_size() for weight in model.parts.body.parameters()))
