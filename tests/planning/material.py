"""Rates that nobody measured, with round numbers, so that plans can be computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from munjang.planning.rates import KindRates, Rates

KIND = KindRates(write_start=1.0, write_row=1e-4, graph_row=1e-5, search=1e-3, scan_row=1e-7, walk=1e-4)

RATES = Rates(
    model="my-model",
    fingerprint="f" * 32,
    device="cuda",
    device_name="한 GPU",
    dimension=256,
    max_length=128,
    chunk_tokens=96,
    stride=47,
    encode_row=1e-5,
    encode_token=1e-6,
    encode_square=1e-9,
    encode_deviation=0.03,
    query=2e-3,
    write_token=1e-6,
    keyword_row=1e-4,
    keyword_token=1e-5,
    kinds={"float32": KIND, "int8": replace(KIND, scan_row=5e-8), "binary": replace(KIND, scan_row=1e-8)},
    graphs=True,
    graph_growth=0.2,
    exact_up_to=200_000,
    text_bytes=5.0,
    document_bytes=100.0,
    row_bytes=8.0,
    graph_bytes=280.0,
    keyword_bytes=4.0,
    base_memory=1e9,
    keyword_memory=5e8,
    build_memory=2.5,
    memory=64e9,
    cores=8,
    load=0.2,
    measured_rows=10_000,
    measured_tokens=120.0,
    measured="2026-01-02",
    version="0.1.0",
)


def rates(**changes: Any) -> Rates:
    return replace(RATES, **changes)
