"""`Rates`: what a model and an index cost on one machine, and the file that keeps them.

The file holds one entry for every model and kind of device that was measured; measuring again replaces the entry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from munjang.errors import DataError, InputError
from munjang.files import atomic_write, disk_errors, user_cache
from munjang.index.options import VectorKind

_FORMAT = 1
_MEASURE = "munjang plan --measure"


@dataclass(frozen=True)
class KindRates:
    """What an index costs with vectors kept in one way; seconds."""

    write_start: float  # of adding, however little
    write_row: float  # of a passage: checked, cut, written
    graph_row: float  # of a passage in a graph, times their number to the power of `Rates.graph_growth`
    search: float  # of a search, however little there is
    scan_row: float  # of a passage that is looked at, where all are
    walk: float  # of a walk through a graph, times its passages to the same power


@dataclass(frozen=True)
class Rates:
    """What was measured. Times are seconds, sizes bytes."""

    model: str
    fingerprint: str
    device: str  # cpu, cuda, mps
    device_name: str
    dimension: int
    max_length: int
    chunk_tokens: int  # of a passage, at most
    stride: int
    encode_row: float
    encode_token: float
    encode_square: float  # of a token times the tokens of its text: attention
    encode_deviation: float  # of the costs from what was measured, as a share
    query: float  # one short text alone
    write_token: float
    keyword_row: float
    keyword_token: float
    kinds: Mapping[str, KindRates]
    graphs: bool  # whether an index of this installation has them (faiss)
    graph_growth: float  # how a passage's cost in a graph grows with their number: a power
    exact_up_to: int  # passages without a graph
    text_bytes: float  # of a token, in UTF-8
    document_bytes: float  # of a document in the database beside its text and vectors
    row_bytes: float  # of a passage in the structures that are searched, beside its vector
    graph_bytes: float  # of a passage in a graph
    keyword_bytes: float  # of a token
    base_memory: float  # of a process that holds the model and encodes
    keyword_memory: float  # of the analyser of keywords
    build_memory: float  # of building, as a multiple of the structures that are built
    memory: float  # of the machine
    cores: int
    load: float  # of the machine before it was measured: processes that wanted a core; 0 where nobody says
    measured_rows: int
    measured_tokens: float  # of the longest texts
    measured: str  # date
    version: str

    @property
    def busy(self) -> bool:
        """Whether others used so much of the machine that the rates are worse than they would be."""
        return self.load > 0.5 * self.cores

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"


def vector_bytes(kind: VectorKind, dimension: int) -> float:
    """Of a vector in memory and in the structures that are searched."""
    return {"float32": 4.0 * dimension, "int8": float(dimension), "binary": dimension / 8}[kind]


def rates_path() -> Path:
    """Where rates are kept: $MUNJANG_CACHE/rates.json, else in the user's cache folder."""
    return user_cache() / "rates.json"


def read_rates(path: Path) -> list[Rates]:
    """All entries of a file."""
    if not path.is_file():
        raise InputError(f"there are no rates at {path}: {_MEASURE} measures this machine and keeps them there")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}")
        return [_entry(one) for one in content["rates"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is no file of rates ({error}): remove it, and measure again with {_MEASURE}"
        ) from error


def add_rates(path: Path, rates: Rates) -> None:
    """Put an entry into a file, in place of the one for the same model and kind of device."""
    before = read_rates(path) if path.is_file() else []
    kept = [one for one in before if (one.model, one.device) != (rates.model, rates.device)]
    content = {"format": _FORMAT, "rates": [asdict(one) for one in (*kept, rates)]}
    with disk_errors(path, safe="the rates that were there are as they were"):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def find_rates(entries: Sequence[Rates], model: str | None, *, gpu: bool | None = None) -> Rates:
    """The entry for a model (the last one measured where none is named) on a GPU or not (either where it is None)."""
    fitting = [one for one in entries if model is None or one.model == model]
    if not fitting:
        known = ", ".join(sorted({one.model for one in entries})) or "none"
        raise InputError(f"{model} was not measured (these were: {known}): {_MEASURE} --model {model}")
    found = [one for one in fitting if gpu is None or one.gpu == gpu]
    if not found:
        name, where = fitting[-1].model, "a GPU" if gpu else "a CPU"
        told = f"{_MEASURE} --model {name} --device {'cuda' if gpu else 'cpu'}"
        raise InputError(f"{name} was not measured on {where}, only on {fitting[-1].device_name}: {told}")
    return found[-1]


def _entry(content: Any) -> Rates:
    kinds = {str(name): KindRates(**_numbers(one, KindRates)) for name, one in content["kinds"].items()}
    return Rates(**{**_numbers(content, Rates), "kinds": kinds})


def _numbers(content: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The fields of a dataclass, each of which must be there, and each number 0 or more."""
    names = [field.name for field in fields(kind)]
    if set(content) != set(names):
        odd = sorted(set(content) ^ set(names))
        raise ValueError(f"expected the fields of this release, got others: {', '.join(odd)}")
    for name, value in content.items():
        number = isinstance(value, int | float)
        if number and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be 0 or more, got {value}")
        if not number and not isinstance(value, str | Mapping):
            raise ValueError(f"{name} must be a number or a text, got {value!r}")
    return dict(content)
