"""A workload and measured rates -> a `Plan`: time, memory, disk and money, with what was assumed.

Nothing here is a rule of thumb: every figure is a measured cost times a number of rows, tokens or bytes. What cannot be
known from the measurement (that eight GPUs are eight times one) is written down as an assumption.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from munjang.errors import InputError
from munjang.index.options import VectorKind
from munjang.planning.rates import KindRates, Rates, vector_bytes
from munjang.planning.sizes import MOST, show_bytes, show_count, show_seconds

_LONGEST = 10_000_000  # tokens of a text
_MANY = 100_000  # GPUs
_DAY = 86_400.0


@dataclass(frozen=True)
class Prices:
    """What things cost, in any currency; None leaves a thing out."""

    gpu_hour: float | None = None  # of rates that were measured on a CPU: an hour of the machine
    disk_gb_month: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(f"the price {name} must be 0 or more, got {value}")


@dataclass(frozen=True)
class Workload:
    """What is to be done. tokens: of a row, on average, as the model cuts them, special ones included."""

    rows: int
    tokens: float
    gpus: int | None = None  # None: as measured, one GPU or the CPUs of the machine
    dimension: int | None = None  # None: the model's own
    vectors: VectorKind = "float32"
    keyword: bool = True
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        for name, least, most in (("rows", 1, MOST), ("tokens", 1, _LONGEST), ("gpus", 1, _MANY)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:  # not for a NaN either
                raise InputError(f"{name} must be {least} to {show_count(most)}, got {value}")
        if self.vectors not in get_args(VectorKind):
            raise InputError(f"vectors must be one of {', '.join(get_args(VectorKind))}, got {self.vectors!r}")


@dataclass(frozen=True)
class Encoding:
    """Texts to vectors."""

    seconds: float  # with all devices
    devices: int
    device_hours: float
    rows_per_second: float
    tokens: float
    memory: float  # bytes of each process


@dataclass(frozen=True)
class Building:
    """Vectors and texts into an index; one process. The parts are added up in `seconds`."""

    seconds: float
    write: float
    keyword: float
    graph: float
    memory: float


@dataclass(frozen=True)
class Disk:
    """Bytes."""

    vectors: float  # a file of them, as `munjang encode` writes it (float32)
    documents: float  # the index's database: texts and vectors
    structures: float  # what it searches
    total: float  # of the index


@dataclass(frozen=True)
class Searching:
    """One query at a time in one process."""

    seconds: float
    encode: float
    look: float
    per_second: float
    memory: float
    exact: bool  # every vector is looked at


@dataclass(frozen=True)
class Money:
    """In the currency of the prices."""

    encoding: float | None
    disk_month: float | None
    first_month: float | None


@dataclass(frozen=True)
class Plan:
    """What a workload takes."""

    workload: Workload
    passages: int
    passage_tokens: float
    encoding: Encoding
    building: Building
    disk: Disk
    searching: Searching
    money: Money
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def estimate(workload: Workload, rates: Rates) -> Plan:
    """The plan for a workload on machines like the one that was measured."""
    _check(workload, rates)
    passages, tokens = _passages(workload, rates)
    kind = rates.kinds[workload.vectors]
    graph = _has_graph(workload, rates, passages)
    dense = _structures(workload, rates, passages, graph=graph)
    keyword = passages * tokens * rates.keyword_bytes if workload.keyword else 0.0
    held = _base(workload, rates) + dense + keyword
    encoding = _encoding(workload, rates, passages, tokens)
    building = _building(workload, rates, kind, sizes=(passages, tokens), dense=dense, graph=graph)
    disk = _disk(workload, rates, passages, structures=dense + keyword)
    searching = _searching(workload, rates, kind, passages, memory=held, graph=graph)
    return Plan(
        workload,
        passages,
        tokens,
        encoding,
        building,
        disk,
        searching,
        _money(workload.prices, encoding, disk),
        tuple(_assumptions(workload, rates, passages, tokens)),
        tuple(_notes(workload, rates, passages, encoding, building, searching)),
    )


def _check(workload: Workload, rates: Rates) -> None:
    if workload.gpus is not None and not rates.gpu:
        raise InputError(
            f"gpus={workload.gpus} was asked for, but {rates.model} was measured on a CPU ({rates.device_name}): "
            "measure it on a machine with such a GPU, munjang plan --measure --device cuda --rate FILE, and plan with "
            "that file"
        )
    if workload.dimension is not None and not 1 <= workload.dimension <= rates.dimension:
        raise InputError(
            f"dimension must be 1 to {rates.dimension} (the vectors of {rates.model}), got {workload.dimension}: "
            "measure a model with longer vectors to plan for it"
        )


def _passages(workload: Workload, rates: Rates) -> tuple[int, float]:
    """How many there are, and the tokens of one; long texts become several that overlap."""
    if workload.tokens <= rates.chunk_tokens:
        return workload.rows, float(workload.tokens)
    more = math.ceil((workload.tokens - rates.chunk_tokens) / rates.stride)
    return workload.rows * (1 + more), float(rates.chunk_tokens)


def _has_graph(workload: Workload, rates: Rates, passages: int) -> bool:
    return rates.graphs and workload.vectors != "binary" and passages > rates.exact_up_to


def _dimension(workload: Workload, rates: Rates) -> int:
    return workload.dimension or rates.dimension


def _base(workload: Workload, rates: Rates) -> float:
    """Bytes of a process that holds what does not grow."""
    return rates.base_memory + (rates.keyword_memory if workload.keyword else 0.0)


def _structures(workload: Workload, rates: Rates, passages: int, *, graph: bool) -> float:
    one = vector_bytes(workload.vectors, _dimension(workload, rates)) + rates.row_bytes
    return passages * (one + (rates.graph_bytes if graph else 0.0))


def _encoding(workload: Workload, rates: Rates, passages: int, tokens: float) -> Encoding:
    row = rates.encode_row + rates.encode_token * tokens + rates.encode_square * tokens**2
    devices = workload.gpus or 1
    seconds = passages * row / devices
    return Encoding(
        seconds,
        devices,
        passages * row / 3600,
        workload.rows / seconds if seconds else math.inf,
        passages * tokens,
        rates.base_memory,
    )


def _building(
    workload: Workload, rates: Rates, kind: KindRates, *, sizes: tuple[int, float], dense: float, graph: bool
) -> Building:
    passages, tokens = sizes
    share = _dimension(workload, rates) / rates.dimension
    total = passages * tokens
    write = kind.write_start + passages * kind.write_row + total * rates.write_token
    keyword = passages * rates.keyword_row + total * rates.keyword_token if workload.keyword else 0.0
    linked = passages * kind.graph_row * passages**rates.graph_growth * share if graph else 0.0
    memory = _base(workload, rates) + rates.build_memory * dense
    return Building(write + keyword + linked, write, keyword, linked, memory)


def _disk(workload: Workload, rates: Rates, passages: int, *, structures: float) -> Disk:
    dimension = _dimension(workload, rates)
    stored = 4 * dimension if workload.vectors == "float32" else 4 + dimension
    texts = workload.rows * workload.tokens * rates.text_bytes
    documents = workload.rows * rates.document_bytes + passages * stored + texts
    return Disk(4.0 * dimension * passages, documents, structures, documents + structures)


def _searching(
    workload: Workload, rates: Rates, kind: KindRates, passages: int, *, memory: float, graph: bool
) -> Searching:
    share = _dimension(workload, rates) / rates.dimension
    steps = kind.walk * passages**rates.graph_growth if graph else kind.scan_row * passages
    look = kind.search + steps * share
    seconds = rates.query + look
    return Searching(seconds, rates.query, look, 1 / seconds if seconds else math.inf, memory, exact=not graph)


def _money(prices: Prices, encoding: Encoding, disk: Disk) -> Money:
    hours = None if prices.gpu_hour is None else prices.gpu_hour * encoding.device_hours
    month = None if prices.disk_gb_month is None else prices.disk_gb_month * disk.total / 1e9
    known = [value for value in (hours, month) if value is not None]
    return Money(hours, month, sum(known) if known else None)


def _assumptions(workload: Workload, rates: Rates, passages: int, tokens: float) -> list[str]:
    found = [
        f"rates of {rates.model} on {rates.device_name}, measured {rates.measured} with up to {rates.measured_rows:,} "
        f"rows and {rates.measured_tokens:.0f} tokens a text; its costs meet the points within "
        f"{100 * rates.encode_deviation:.0f} %",
        f"the machine is as fast and as busy as it was then (load {rates.load:.1f} on {rates.cores} cores)",
    ]
    if (workload.gpus or 1) > 1:
        found.append(f"{workload.gpus} GPUs are {workload.gpus} times one: each takes shards of its own")
    if passages > workload.rows:
        each = passages // workload.rows
        found.append(f"a text of {workload.tokens:g} tokens becomes {each} passages of {tokens:g} tokens that overlap")
    if passages > rates.measured_rows:
        times = passages / rates.measured_rows
        found.append(
            f"{times:,.0f} times the rows that were measured: costs of a row stay, those of graphs grow slowly"
        )
    if workload.dimension is not None and workload.dimension < rates.dimension:
        found.append(f"comparing vectors of {workload.dimension} dimensions takes that share of {rates.dimension}")
    found.append(f"a token is {rates.text_bytes:.1f} bytes of text; metadata is not counted")
    if workload.prices != Prices():
        what = "GPU" if rates.gpu else "machine"
        found.append(f"money is {what} time of encoding and disk of the index, each in use all of the time; no network")
    return found


def _notes(
    workload: Workload, rates: Rates, passages: int, encoding: Encoding, building: Building, searching: Searching
) -> list[str]:
    notes = []
    if rates.busy:
        notes.append(
            f"the machine was busy when it was measured (load {rates.load:.1f} on {rates.cores} cores): measure "
            "again when it is idle, or expect it to be as busy"
        )
    most = max(building.memory, searching.memory)
    if most > rates.memory:
        smaller = [
            f"{kind} {show_bytes(_base(workload, rates) + rates.build_memory * _one(workload, rates, passages, kind))}"
            for kind in get_args(VectorKind)
            if vector_bytes(kind, 8) < vector_bytes(workload.vectors, 8)
        ]
        told = f" ({', '.join(smaller)})" if smaller else ""
        notes.append(
            f"one process needs {show_bytes(most)} of memory, this machine has {show_bytes(rates.memory)}: keep "
            f"vectors smaller{told}, or share the index out over machines (milvus://, postgresql://)"
        )
    if encoding.seconds > 2 * _DAY:
        wanted = math.ceil(encoding.seconds * encoding.devices / _DAY)
        what = "GPUs" if rates.gpu else "such machines"
        notes.append(f"encoding would take a day with {wanted:,} {what} (munjang encode --engine ray)")
    if building.graph > 2 * _DAY:
        notes.append(
            f"one process builds the graph in {show_seconds(building.graph)}: an engine with many machines builds "
            "parts of it at the same time"
        )
    if searching.exact and searching.look > 1:
        why = "" if rates.graphs else "; without faiss every vector is looked at: pip install 'munjang[search]'"
        notes.append(f"a search takes {show_seconds(searching.look)}{why}")
    return notes


def _one(workload: Workload, rates: Rates, passages: int, kind: VectorKind) -> float:
    dimension = _dimension(workload, rates)
    graph = rates.graphs and kind != "binary" and passages > rates.exact_up_to
    return passages * (vector_bytes(kind, dimension) + rates.row_bytes + (rates.graph_bytes if graph else 0.0))
