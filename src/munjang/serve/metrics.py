"""Numbers for Prometheus: what was asked, how long it took, what waits, how large the indexes are.

Enters: answered requests (`logs`), and at every scrape the counters of the batchers and the sizes of the indexes.
Leaves: the text of `/metrics`. Every application has a registry of its own, so that several can live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from munjang.errors import MissingExtraError
from munjang.serve.logs import Served

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class IndexSize:
    """How large an index is."""

    documents: int
    passages: int


@dataclass(frozen=True)
class Sources:
    """Where the numbers of a scrape come from."""

    batchers: Callable[[], Mapping[str, Any]]  # model -> `batching.Stats`
    indexes: Callable[[], Mapping[str, IndexSize]]
    ready: Callable[[], bool]


class Metrics:
    """The numbers of one service."""

    def __init__(self) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "serve", "/metrics") from error
        self._registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "munjang_requests", "Requests that were answered", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = prometheus_client.Histogram(
            "munjang_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=self._registry
        )
        self._received = prometheus_client.Counter(
            "munjang_received_bytes", "Bytes of request bodies", registry=self._registry
        )
        self._stages = prometheus_client.Histogram(
            "munjang_search_seconds", "Time of a search, by stage", ["stage"], buckets=_SECONDS, registry=self._registry
        )
        self._written = prometheus_client.Counter(
            "munjang_documents_written", "Documents added, replaced or deleted", ["index"], registry=self._registry
        )
        self.type = prometheus_client.CONTENT_TYPE_LATEST

    def observe(self, served: Served) -> None:
        """Count an answered request."""
        self._requests.labels(served.method, served.route, str(served.status)).inc()
        self._seconds.labels(served.route).observe(served.seconds)
        self._received.inc(served.received)

    def searched(self, seconds: Mapping[str, float]) -> None:
        """Count the stages of a search."""
        for stage, value in seconds.items():
            self._stages.labels(stage).observe(value)

    def wrote(self, index: str, documents: int) -> None:
        """Count documents that were written."""
        self._written.labels(index).inc(documents)

    def attach(self, sources: Sources) -> None:
        """Read queues and indexes at every scrape from now on."""
        self._registry.register(_Collector(sources))

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        import prometheus_client

        return bytes(prometheus_client.generate_latest(self._registry))


class _Collector:
    """What is read when it is asked for, not counted along the way."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        ready = GaugeMetricFamily("munjang_ready", "1 when models and indexes are loaded")
        ready.add_metric([], float(self._sources.ready()))
        yield ready
        batchers = self._sources.batchers()
        for name, words in (("waiting_tokens", "Tokens in the queue"), ("waiting_requests", "Requests in the queue")):
            gauge = GaugeMetricFamily(f"munjang_{name}", words, labels=["model"])
            for model, stats in batchers.items():
                gauge.add_metric([model], getattr(stats, name))
            yield gauge
        for name, words in (
            ("refused", "Requests refused because the queue was full"),
            ("batches", "Batches that a model computed"),
            ("items", "Texts or pairs that a model computed"),
            ("tokens", "Tokens that a model computed"),
            ("joined", "Texts that were being computed already for another request"),
            ("dropped", "Texts that nobody waited for any more"),
            ("truncated", "Texts longer than the model reads, which were cut"),
        ):
            counter = CounterMetricFamily(f"munjang_model_{name}", words, labels=["model"])
            for model, stats in batchers.items():
                counter.add_metric([model], getattr(stats, name))
            yield counter
        sizes = self._sources.indexes()
        for name in ("documents", "passages"):
            gauge = GaugeMetricFamily(f"munjang_index_{name}", f"The {name} of an index", labels=["index"])
            for index, size in sizes.items():
                gauge.add_metric([index], getattr(size, name))
            yield gauge
