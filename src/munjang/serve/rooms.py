"""The models of a service by name, each in a room with its own batcher.

Enters: names with paths (or loaded models) and limits. Leaves: `Rooms`, of which handlers ask a room by name, or the
default one, the first. A room answers with exactly what `encode` or `predict` of its model would give.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from munjang import vectors
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.encoders.runtime import CallOptions, plan_for
from munjang.errors import InputError
from munjang.index.fusion import SimilarityScale
from munjang.loading import load, load_cross_encoder
from munjang.nn.calibration import sigmoid, softmax
from munjang.serve.answers import Answer
from munjang.serve.batching import Batcher, BatcherOptions
from munjang.serve.computing import ModelWork
from munjang.serve.errors import Invalid, NotFound, Unready
from munjang.serve.queues import Priority
from munjang.serve.settings import Limits

Array = np.ndarray[Any, Any]
Pair = tuple[str, str]
Room = TypeVar("Room")

DEVICE_TOKENS = 32_768  # in a batch on a GPU: a query waits for no more

_log = logging.getLogger("munjang.serve")


@dataclass(frozen=True)
class Wish:
    """How a request wants to be treated."""

    priority: Priority | None = None  # by size
    deadline: float | None = None  # seconds from now
    cancelled: Callable[[], bool] | None = None


PLAIN = Wish()
QUERY = Wish(priority="query")


class BiRoom:
    """A bi-encoder and its batcher."""

    def __init__(self, name: str, model: BiEncoder, limits: Limits) -> None:
        self.name = name
        self.model = model
        self.batcher = Batcher(ModelWork(model), _options(model, limits), name=name)

    @functools.cached_property
    def scale(self) -> SimilarityScale:
        """What the model's similarities mean; measured when it is first asked for."""
        return SimilarityScale.of(self.model)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        wish: Wish = PLAIN,
    ) -> Answer:
        """The vectors that `model.encode` gives, float32 [n, dimension].

        dimensions: only the first so many values, made unit length again if the whole vector is of unit length or
        `normalize` asks for it.
        """
        call = self.model.call_options(prompt, prompt_name, normalize)
        if dimensions is not None and not 1 <= dimensions <= self.model.dimension:
            raise Invalid(
                f"dimensions must be 1..{self.model.dimension} (the model's dimension), got {dimensions}",
                param="dimensions",
            )
        items = [call.prompt + text for text in texts] if call.prompt else texts
        answer = await self._submit(items, CallOptions(prompt_tokens=call.prompt_tokens), wish)
        rows = answer.values[:, : dimensions or self.model.dimension]
        if call.normalize or (dimensions is not None and dimensions < self.model.dimension):
            rows = vectors.normalize(rows)
        return replace(answer, values=np.ascontiguousarray(rows))

    async def embed_query(self, texts: Sequence[str], *, wish: Wish = QUERY) -> Answer:
        """The vectors that `model.encode_query` gives."""
        return await self.embed(texts, prompt_name=self.model.prompt_for("query"), wish=wish)

    async def embed_document(self, texts: Sequence[str], *, wish: Wish = PLAIN) -> Answer:
        """The vectors that `model.encode_document` gives."""
        return await self.embed(texts, prompt_name=self.model.prompt_for("document", "passage", "corpus"), wish=wish)

    async def embed_tokens(self, texts: Sequence[str], *, prompt_name: str | None = None, wish: Wish = PLAIN) -> Answer:
        """For every text the vectors of its tokens before pooling, special ones included: float32 [tokens, hidden]."""
        call = self.model.call_options(None, prompt_name, None)
        items = [call.prompt + text for text in texts] if call.prompt else texts
        return await self._submit(items, CallOptions(every_token=True), wish)

    def longest(self, texts: Sequence[str]) -> int:
        """Tokens of the longest text before it is cut."""
        return self.model.tokenizer.encode(texts).longest

    async def _submit(self, items: Sequence[str], kind: CallOptions, wish: Wish) -> Answer:
        return await self.batcher.submit(
            items, kind=kind, priority=wish.priority, deadline=wish.deadline, cancelled=wish.cancelled
        )


class RerankRoom:
    """A cross-encoder and its batcher."""

    def __init__(self, name: str, model: CrossEncoder, limits: Limits) -> None:
        self.name = name
        self.model = model
        self.batcher = Batcher(ModelWork(model), _options(model, limits), name=name)

    async def score(self, pairs: Sequence[Pair], *, raw: bool = False, wish: Wish = PLAIN) -> Answer:
        """What `model.predict` gives: float32 [n] for one label, [n, labels] for more. raw: the head's bare outputs."""
        answer = await self._submit(pairs, wish)
        return replace(answer, values=self.model.scores_of(answer.values, raw=raw))

    async def probabilities(self, pairs: Sequence[Pair], *, wish: Wish = PLAIN) -> Answer:
        """A sigmoid of one output, a softmax of several, whatever activation was saved: float32 [n, labels]."""
        answer = await self._submit(pairs, wish)
        logits = answer.values
        return replace(answer, values=sigmoid(logits) if logits.shape[1] == 1 else softmax(logits))

    def longest(self, pairs: Sequence[Pair]) -> int:
        """Tokens of the longest pair before it is cut."""
        return self.model.parts.tokenise([pair[0] for pair in pairs], [pair[1] for pair in pairs]).longest

    async def _submit(self, pairs: Sequence[Pair], wish: Wish) -> Answer:
        return await self.batcher.submit(
            [(first, second) for first, second in pairs],
            kind=CallOptions(),
            priority=wish.priority,
            deadline=wish.deadline,
            cancelled=wish.cancelled,
        )


class Rooms:
    """Every model of a service. The first of each sort is the one that is meant where no name is given."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._bi: dict[str, BiRoom] = {}
        self._cross: dict[str, RerankRoom] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.ready = False  # set by `open`, or by whoever calls `fill`, when everything that was asked for is there

    @classmethod
    def open(
        cls,
        models: Mapping[str, str | Path | BiEncoder],
        rerankers: Mapping[str, str | Path | CrossEncoder] | None = None,
        *,
        limits: Limits | None = None,
        device: str | None = None,
    ) -> Rooms:
        """Load every model and start its workers; ready when it returns."""
        rooms = cls(limits)
        try:
            rooms.fill(models, rerankers or {}, device=device)
        except BaseException:
            rooms.close(0)
            raise
        rooms.ready = True
        return rooms

    def fill(
        self,
        models: Mapping[str, str | Path | BiEncoder],
        rerankers: Mapping[str, str | Path | CrossEncoder],
        *,
        device: str | None = None,
    ) -> None:
        """Load what is not here yet. It may run in a thread while the service already says that it is not ready."""
        for name, model in models.items():
            self.add_bi(name, model if isinstance(model, BiEncoder) else load(model, device=device))
        for name, reranker in rerankers.items():
            if not isinstance(reranker, CrossEncoder):
                reranker = load_cross_encoder(reranker, device=device)
            self.add_reranker(name, reranker)

    def add_bi(self, name: str, model: BiEncoder) -> BiRoom:
        """Give a bi-encoder a room; one that is already here under that name is kept if it is the same model."""
        with self._lock:
            self._check_open()
            if (there := self._bi.get(name)) is not None:
                if there.model.fingerprint != model.fingerprint:
                    raise InputError(f"there are two bi-encoders of the name {name!r}: give one of them another name")
                return there
            self._bi[name] = BiRoom(name, model, self._limits)
            _log.info("bi-encoder %s: %r", name, model)
            return self._bi[name]

    def add_reranker(self, name: str, model: CrossEncoder) -> RerankRoom:
        """Give a cross-encoder a room."""
        with self._lock:
            self._check_open()
            if (there := self._cross.get(name)) is not None:
                if there.model.fingerprint != model.fingerprint:
                    raise InputError(f"there are two cross-encoders of the name {name!r}: give one another name")
                return there
            self._cross[name] = RerankRoom(name, model, self._limits)
            _log.info("cross-encoder %s: %r", name, model)
            return self._cross[name]

    def bi(self, name: str | None = None) -> BiRoom:
        """The bi-encoder of that name, or the first."""
        return _find(self._bi, name, "bi-encoder")

    def reranker(self, name: str | None = None) -> RerankRoom:
        """The cross-encoder of that name, or the first."""
        return _find(self._cross, name, "cross-encoder")

    def bi_with(self, fingerprint: str) -> BiRoom | None:
        """The room of the very model that made an index, where there is one."""
        return next((room for room in self.bi_rooms if room.model.fingerprint == fingerprint), None)

    @property
    def bi_rooms(self) -> tuple[BiRoom, ...]:
        return tuple(self._bi.values())

    @property
    def rerankers(self) -> tuple[RerankRoom, ...]:
        return tuple(self._cross.values())

    def close(self, timeout: float | None = None) -> None:
        """Take no more requests, finish what was admitted, and end every worker."""
        with self._lock:
            self._closed = True
            self.ready = False
            rooms: list[BiRoom | RerankRoom] = [*self._bi.values(), *self._cross.values()]
        closing = [threading.Thread(target=room.batcher.close, args=(timeout,)) for room in rooms]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise Unready("the service is ending and loads no more models")


def _find(rooms: Mapping[str, Room], name: str | None, what: str) -> Room:
    if name is None:
        if not rooms:
            raise NotFound(f"this service has no {what}", param="model", code="model_not_found")
        return next(iter(rooms.values()))
    if name not in rooms:
        known = ", ".join(map(repr, rooms)) or "none"
        raise NotFound(
            f"there is no {what} of the name {name!r} here; there are: {known}", param="model", code="model_not_found"
        )
    return rooms[name]


def _options(model: BiEncoder | CrossEncoder, limits: Limits) -> BatcherOptions:
    """One worker per core on a CPU, with one for queries; two that take turns on other devices."""
    cpu = model.device.type == "cpu"
    plan = plan_for(model.device, model.threads)
    return BatcherOptions(
        max_tokens=plan.budget if cpu else min(plan.budget, DEVICE_TOKENS),
        max_queue_tokens=limits.queue_tokens,
        max_request_tokens=limits.tokens,
        workers=plan.workers if cpu else 2,
        express=cpu,
        intra_op=not cpu,
    )
