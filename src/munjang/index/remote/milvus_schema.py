"""The two collections of an index in Milvus, and what an address says about them.

    NAME         key, document, number, count, version, spread, pieces, body, facets (JSON), vector (HNSW)
    NAME__more   key, text; see milvus_rows.py

The header stands in the description of NAME, so an index is there as soon as that collection is. Everything else (the
other collection, the graph, loading into memory) is made by whoever opens it first, as often as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from munjang.errors import DataError, InputError
from munjang.index.remote.address import Address
from munjang.index.remote.engine import Unreachable
from munjang.index.remote.milvus_connecting import TLS
from munjang.index.remote.milvus_rows import FILLER, LONGEST_ID, LONGEST_KEY, LONGEST_TEXT, described

METRICS = {"cosine": "COSINE", "dot": "IP", "euclidean": "L2"}
_LEVELS = {"strong": "Strong", "session": "Session", "bounded": "Bounded"}
_MOST_DIMENSIONS = 32_768
_MOST_SHARDS, _MOST_PARTITIONS = 16, 1_024
_VERSION_BYTES = 80
_POLL = 0.05  # seconds


@dataclass(frozen=True)
class Layout:
    """What an address says about an index; the first four are fixed when it is made, and stored."""

    m: int  # neighbours of a passage in the HNSW graph
    ef_construction: int  # candidates while the graph is built
    shards: int  # parts of the log, which are written side by side
    partitions: int  # parts of the collection, by a hash of the document's id; 1: not divided
    ef_search: int  # candidates of a search
    consistency: str  # strong: a read sees all that was written; session: all that this process wrote; bounded

    @classmethod
    def of(cls, address: Address) -> Layout:
        own = ("m", "ef_construction", "ef_search", "shards", "partitions", "consistency")
        address.check_parameters((*TLS, *own))
        consistency = address.parameters.get("consistency", "strong")
        if consistency not in _LEVELS:
            raise InputError(f"{address}: consistency must be one of {', '.join(_LEVELS)}, got {consistency!r}")
        return cls(
            m=address.whole("m", 16, least=4, most=64),
            ef_construction=address.whole("ef_construction", 200, least=8, most=512),
            shards=address.whole("shards", 1, most=_MOST_SHARDS),
            partitions=address.whole("partitions", 1, most=_MOST_PARTITIONS),
            ef_search=address.whole("ef_search", 128, most=32_768),
            consistency=consistency,
        )

    @property
    def level(self) -> str:
        """The consistency in Milvus' words."""
        return _LEVELS[self.consistency]

    def check(self, address: Address, dimension: int, similarity: str) -> None:
        """Raise where Milvus cannot keep such vectors."""
        if similarity not in METRICS:
            raise InputError(
                f"{address}: Milvus compares by {', '.join(METRICS)}, the model by {similarity}: use a folder or "
                "PostgreSQL"
            )
        if dimension > _MOST_DIMENSIONS:
            raise InputError(
                f"{address}: Milvus keeps vectors of at most {_MOST_DIMENSIONS:,} dimensions, the model has "
                f"{dimension:,}"
            )

    def as_json(self) -> dict[str, Any]:
        """What is stored."""
        return {key: value for key, value in asdict(self).items() if key not in ("ef_search", "consistency")}


@dataclass(frozen=True)
class Facts:
    """What was fixed when the index was made."""

    header: dict[str, Any]
    layout: Layout
    dimension: int
    similarity: str

    def as_json(self) -> dict[str, Any]:
        return {
            "header": self.header,
            "layout": self.layout.as_json(),
            "dimension": self.dimension,
            "similarity": self.similarity,
        }


def facts_of(client: Any, address: Address) -> Facts:
    """What the description says; InputError where there is no index, or a collection of another program."""
    found = client.describe_collection(address.name, timeout=address.timeout)
    facts = described(found.get("description", ""))
    if facts is None:
        raise InputError(
            f"{address}: {address.name!r} is a collection of another program, not an index of Munjang: choose another "
            "name"
        )
    try:
        layout = Layout(**facts["layout"], ef_search=0, consistency="strong")
        return Facts(facts["header"], layout, int(facts["dimension"]), facts["similarity"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{address}: the header of the index cannot be read ({error!r}): a newer munjang may have written it (pip "
            "install --upgrade munjang), or it is damaged"
        ) from error


def create_passages(client: Any, address: Address, facts: Facts, description: str) -> None:
    """NAME. It is there with its description, or not at all."""
    from pymilvus import DataType

    divided = facts.layout.partitions > 1
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=LONGEST_KEY)
    schema.add_field("document", DataType.VARCHAR, max_length=LONGEST_ID, is_partition_key=divided)
    schema.add_field("number", DataType.INT64)
    schema.add_field("count", DataType.INT64)
    schema.add_field("version", DataType.VARCHAR, max_length=_VERSION_BYTES)
    schema.add_field("spread", DataType.INT64)
    schema.add_field("pieces", DataType.INT64)
    schema.add_field("body", DataType.VARCHAR, max_length=LONGEST_TEXT)
    schema.add_field("facets", DataType.JSON)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=facts.dimension)
    parts = {"num_partitions": facts.layout.partitions} if divided else {}
    client.create_collection(
        address.name,
        schema=schema,
        num_shards=facts.layout.shards,
        consistency_level="Strong",
        timeout=address.timeout,
        **parts,
    )


def create_more(client: Any, address: Address, name: str) -> None:
    """NAME__more, where it is missing."""
    from pymilvus import DataType

    if client.has_collection(name, timeout=address.timeout):
        return
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=f"belongs to {address.name}")
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=LONGEST_KEY)
    schema.add_field("text", DataType.VARCHAR, max_length=LONGEST_TEXT)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=len(FILLER))
    client.create_collection(name, schema=schema, num_shards=1, consistency_level="Strong", timeout=address.timeout)


def make_ready(client: Any, address: Address, names: Sequence[str], facts: Facts) -> None:
    """Indexes where they are missing, and both collections in memory; nothing where all is so already."""
    main, more = names
    graph: Mapping[str, Any] = {
        "index_type": "HNSW",
        "metric_type": METRICS[facts.similarity],
        "params": {"M": facts.layout.m, "efConstruction": facts.layout.ef_construction},
    }
    flat: Mapping[str, Any] = {"index_type": "FLAT", "metric_type": "L2", "params": {}}
    for name, how in ((main, graph), (more, flat)):
        if not client.list_indexes(name, field_name="vector"):
            asked = client.prepare_index_params()
            asked.add_index("vector", index_name="vector", **how)
            client.create_index(name, asked, timeout=address.timeout)
        client.load_collection(name, timeout=address.timeout, _async=True)  # both at once: each takes seconds
    deadline = time.monotonic() + address.timeout
    while not all(_is_loaded(client, address, name) for name in names):
        if time.monotonic() > deadline:
            raise Unreachable(f"{address}: the server is still loading the index after {address.timeout:.0f} s")
        time.sleep(_POLL)


def _is_loaded(client: Any, address: Address, name: str) -> bool:
    state = client.get_load_state(name, timeout=address.timeout)["state"]
    return str(getattr(state, "name", state)) == "Loaded"
