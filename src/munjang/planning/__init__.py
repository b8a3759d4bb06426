"""Planning: how long, how much memory, how much disk and how much money, before anything is begun.

    texts.py       generated texts and vectors
    measuring.py   a model on this machine -> Rates (fitting.py: points -> costs)
    rates.py       Rates <-> a file
    estimating.py  Workload + Rates -> Plan
    sizes.py       "100M" -> 100,000,000

    rates = munjang.planning.measure(model, "my-model")
    print(munjang.planning.estimate(Workload(rows=100_000_000, tokens=30), rates).building.seconds)

Only measuring loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from munjang.planning.estimating import Plan, Prices, Workload, estimate
from munjang.planning.rates import Rates, add_rates, find_rates, rates_path, read_rates
from munjang.planning.sizes import parse_count

if TYPE_CHECKING:
    from munjang.planning.measuring import MeasureOptions, measure

__all__ = [
    "MeasureOptions",
    "Plan",
    "Prices",
    "Rates",
    "Workload",
    "add_rates",
    "estimate",
    "find_rates",
    "measure",
    "parse_count",
    "rates_path",
    "read_rates",
]


def __getattr__(name: str) -> object:
    if name in ("MeasureOptions", "measure"):
        return getattr(importlib.import_module("munjang.planning.measuring"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
