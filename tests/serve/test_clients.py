"""Clients that people use already, pointed at the service: a real server on loopback, the official packages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import httpx
import numpy as np
import pytest

from munjang import vectors
from munjang.nn.heads import Normalize
from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import Limits, ServeSettings
from support.serving import running
from support.small_models import TEXTS, bi_encoder, cross_encoder

SHORT = TEXTS[:4]
QUERY = "비 오는 날 rain"


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return Rooms.open({"small": bi_encoder("bert", None, Normalize())}, {"ranker": cross_encoder()})


@pytest.fixture(scope="module")
def address(rooms: Rooms) -> Iterator[str]:
    with running(create_app(ServeSettings(limits=Limits(queue_tokens=100_000)), rooms=rooms)) as found:
        yield found


def same(found: object, expected: object) -> None:
    np.testing.assert_allclose(found, expected, atol=2e-6)  # type: ignore[arg-type]


def test_openai(address: str, rooms: Rooms) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    found = client.embeddings.create(model="small", input=SHORT)  # the client asks for base64 by itself
    same([row.embedding for row in found.data], rooms.bi().model.encode(SHORT))
    assert found.usage.total_tokens == rooms.bi().model.encode_report(SHORT).report.tokens
    plain = client.embeddings.create(model="small", input=SHORT[0], encoding_format="float", dimensions=8)
    same([plain.data[0].embedding], vectors.normalize(rooms.bi().model.encode(SHORT[:1])[:, :8]))
    assert [model.id for model in client.models.list()] == ["small", "ranker"]
    with pytest.raises(openai.NotFoundError, match="no bi-encoder of the name 'other'"):
        client.embeddings.create(model="other", input="a")


def test_openai_async_many_at_once(address: str, rooms: Rooms) -> None:
    openai = pytest.importorskip("openai")

    async def ask() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
            answers = await asyncio.gather(*(client.embeddings.create(model="small", input=text) for text in SHORT * 5))
        return [answer.data[0].embedding for answer in answers]

    same(asyncio.run(ask()), np.tile(rooms.bi().model.encode(SHORT), (5, 1)))


@pytest.mark.parametrize("version", [1, 2])
def test_cohere(address: str, rooms: Rooms, version: int) -> None:
    cohere = pytest.importorskip("cohere")
    make = cohere.Client if version == 1 else cohere.ClientV2
    client = make(api_key="none", base_url=address)
    found = client.rerank(model="ranker", query=QUERY, documents=SHORT, top_n=3)
    best = rooms.reranker().model.rank(QUERY, SHORT, 3)
    assert [row.index for row in found.results] == [row.index for row in best]
    same([row.relevance_score for row in found.results], [row.score for row in best])
    if version == 1:
        documents = [{"text": text} for text in SHORT]
        told = client.rerank(model="ranker", query=QUERY, documents=documents, return_documents=True)
        assert [row.document.text for row in told.results[:3]] == [row.text for row in best]
    with pytest.raises(cohere.NotFoundError):
        client.rerank(model="other", query=QUERY, documents=SHORT)


def test_langchain(address: str, rooms: Rooms) -> None:
    langchain = pytest.importorskip("langchain_openai")
    client = langchain.OpenAIEmbeddings(
        base_url=f"{address}/v1", api_key="none", model="small", check_embedding_ctx_length=False
    )
    same(client.embed_documents(SHORT), rooms.bi().model.encode(SHORT))
    same([client.embed_query(SHORT[0])], rooms.bi().model.encode(SHORT[:1]))


def test_llama_index(address: str, rooms: Rooms) -> None:
    llama_index = pytest.importorskip("llama_index.embeddings.openai")
    client = llama_index.OpenAIEmbedding(model_name="small", api_base=f"{address}/v1", api_key="none")
    same(client.get_text_embedding_batch(SHORT), rooms.bi().model.encode(SHORT))
    same([client.get_query_embedding(SHORT[0])], rooms.bi().model.encode(SHORT[:1]))


def test_no_answer_is_lost_or_swapped_under_mixed_load(address: str, rooms: Rooms) -> None:
    pool = [f"{a} {b} {n}" for n in range(12) for a in ("비", "rain", "빵") for b in ("온다", "bread", "a")]
    expected = dict(zip(pool, rooms.bi().model.encode(pool), strict=True))
    scores = dict(zip(pool, rooms.reranker().model.predict([(QUERY, text) for text in pool]), strict=True))

    def client(seed: int) -> int:
        random, checked = Random(seed), 0
        with httpx.Client(base_url=address, timeout=30) as http:
            for _ in range(12):
                texts = random.sample(pool, random.choice([1, 1, 1, 30]))
                if random.random() < 0.3:
                    rows = http.post("/rerank", json={"query": QUERY, "texts": texts}).json()
                    same([row["score"] for row in rows], [scores[texts[row["index"]]] for row in rows])
                else:
                    rows = http.post("/embed", json={"inputs": texts}).json()
                    same(rows, [expected[text] for text in texts])
                checked += len(texts)
        return checked

    with ThreadPoolExecutor(8) as clients:
        assert sum(clients.map(client, range(8))) > 8 * 12


def test_a_client_that_hangs_up_harms_nobody_and_its_work_is_given_up() -> None:
    model = bi_encoder()
    started, gate = threading.Event(), threading.Event()
    rooms = Rooms.open({"small": model})
    work = rooms.bi().batcher._does
    plain = work.compute

    def held(batch: object, kind: object) -> object:
        started.set()
        assert gate.wait(20)
        return plain(batch, kind)  # type: ignore[arg-type]

    work.compute = held  # type: ignore[method-assign,assignment]
    with running(create_app(ServeSettings(), rooms=rooms)) as address:
        try:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{address}/embed", json={"inputs": [f"비 {n} " * 15 for n in range(200)]}, timeout=0.5)
            assert started.wait(10)
            for _ in range(400):
                stats = rooms.bi().batcher.stats()
                if not stats.waiting_requests:
                    break
                threading.Event().wait(0.01)
            assert stats.waiting_requests == stats.waiting_tokens == 0
            assert stats.dropped > 100
        finally:
            gate.set()
        found = httpx.post(f"{address}/embed", json={"inputs": ["비가 온다."]}, timeout=20).json()
        same(found, model.encode(["비가 온다."], normalize=True))


def test_overload_is_told_with_the_time_to_wait() -> None:
    rooms = Rooms.open({"small": bi_encoder()}, limits=Limits(queue_tokens=600))
    gate = threading.Event()
    work = rooms.bi().batcher._does
    plain = work.compute

    def held(batch: object, kind: object) -> object:
        assert gate.wait(20)
        return plain(batch, kind)  # type: ignore[arg-type]

    work.compute = held  # type: ignore[method-assign,assignment]
    with running(create_app(ServeSettings(), rooms=rooms)) as address, ThreadPoolExecutor(30) as pool:
        asked = [
            pool.submit(
                httpx.post,
                f"{address}/v1/embeddings",
                json={"input": [f"빵 {n} {m} " * 9 for m in range(10)]},
                timeout=30,
            )
            for n in range(30)
        ]
        for _ in range(1500):
            if rooms.bi().batcher.stats().refused:
                break
            threading.Event().wait(0.01)
        gate.set()
        answers = [one.result() for one in asked]
        counts = {status: sum(answer.status_code == status for answer in answers) for status in (200, 429)}
        assert sum(counts.values()) == 30
        assert min(counts.values()) > 0
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
