"""A service without models for tests of the page: the routes and shapes of the real one, scores from shared letters.

`FakeService` answers as the real service does (a test of the real stack sees that they agree) and can be told to be
busy, to want a key, or to let the map take its time, which a real service does only when it has to.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, File, HTTPException, Request, UploadFile
from fastapi.responses import JSONResponse, Response, StreamingResponse

from munjang.serve.page import PAGE_PATHS, page_router

_TEXTS = (
    ("food", "ko", "김치찌개는 묵은지로 끓여야 깊은 맛이 난다. 돼지고기를 먼저 볶는다. 두부는 마지막에 넣는다."),
    ("food", "ko", "된장찌개에는 애호박과 두부를 넣는다. 멸치로 국물을 내면 더 구수하다."),
    ("food", "en", "A kimchi stew tastes best with old, sour kimchi. Fry the pork first. Add the tofu at the end."),
    ("food", "en", "Bread needs time: let the dough rest overnight in the fridge. The crust gets darker."),
    ("food", "ko", "빵 반죽은 하룻밤 냉장고에서 쉬게 하면 맛이 좋아진다."),
    ("weather", "ko", "장마철에는 우산을 늘 챙겨야 한다. 비가 갑자기 쏟아질 때가 많다. 신발도 젖지 않게 조심한다."),
    ("weather", "ko", "내일은 전국에 비가 내리고 바람이 강하게 불겠다."),
    ("weather", "en", "Take an umbrella in the rainy season. Showers come without warning. Keep dry shoes at work."),
    ("weather", "en", "The first snow fell early this year and the roads were icy in the morning."),
    ("weather", "ko", "올해는 첫눈이 일찍 내려 아침 길이 얼었다. ☃️ 천천히 걸으세요."),
    ("travel", "ko", "부산행 기차는 주말에 일찍 매진된다. 미리 예매하면 자리도 고를 수 있다."),
    ("travel", "en", "Trains to the coast sell out early at weekends. Book ahead and you can choose your seat."),
    ("travel", "ko", "제주도에서는 버스로도 섬을 한 바퀴 돌 수 있다. 시간은 넉넉히 잡아야 한다."),
    ("travel", "en", "Pack light: one bag that fits under the seat saves money and time."),
    ("health", "ko", "잠을 잘 자려면 저녁에 밝은 화면을 멀리하는 것이 좋다. 방은 서늘하게 한다."),
    ("health", "en", "To sleep well, keep bright screens away in the evening. A cool room helps."),
    ("health", "ko", "오래 앉아 일하면 한 시간마다 일어나 허리를 펴 주어야 한다."),
    ("health", "en", "A short walk after lunch wakes you up better than another coffee."),
    ("money", "ko", "환불은 물건을 받은 날부터 7일 안에 신청할 수 있다. 영수증을 꼭 챙긴다."),
    ("money", "en", "You can ask for your money back within seven days. Keep the receipt."),
    ("money", "ko", "가계부를 쓰면 어디에 돈이 나가는지 한눈에 보인다."),
    ("money", "en", 'Read the small print: "free" trials often renew on their own.'),
)  # fmt: skip
NASTY = (
    '<script>window.stolen = true</script> "quotes" & \'marks\' <img src=x onerror="window.stolen=true"> <b>bold</b>'
)


def documents() -> list[dict[str, Any]]:
    """Texts of everyday life in two languages, and one that tries to act."""
    found = [
        {
            "id": f"doc/{number}",
            "text": text,
            "metadata": {
                "category": category,
                "language": language,
                "date": f"202{3 + number % 4}-{1 + number % 12:02d}-15",
                "year": 2023 + number % 4,
                "draft": number % 5 == 0,
            },
        }
        for number, (category, language, text) in enumerate(_TEXTS)
    ]
    extra = {"category": "<i>odd</i>", "language": "en", "date": "2026-01-01", "year": 2026, "title": NASTY}
    return [*found, {"id": 'nasty"><script>', "text": NASTY, "metadata": extra}]


@dataclass
class FakeService:
    """What it holds, and how it behaves today."""

    documents: list[dict[str, Any]] = field(default_factory=documents)
    key: str | None = None  # wanted in every request but those for the page
    busy: int = 0  # how many requests to refuse with 429
    answered: bool | None = True
    map_polls: int = 0  # how often the map is 'building' before it is there
    upload_delay: float = 0.0  # seconds between two lines of progress
    seen: list[tuple[str, Any]] = field(default_factory=list)  # (path, body) of JSON requests
    rerankers: tuple[str, ...] = ("letters",)
    names: tuple[str, ...] = ("sample",)  # of indexes; all hold the same
    suggests: bool = True  # whether /info has examples

    def app(self) -> FastAPI:
        """The routes."""
        app = FastAPI()
        app.include_router(page_router())
        app.middleware("http")(self._gate)
        app.get("/info")(self._info)
        app.get("/indexes")(self._indexes)
        app.post("/search")(self._search)
        app.post("/similarity")(self._similarity)
        app.post("/cluster")(self._cluster)
        app.post("/indexes/{name}/more-like")(self._more_like)
        app.post("/indexes/{name}/place")(self._place)
        app.get("/indexes/{name}/map")(self._map)
        app.post("/documents/{index}/file")(self._file)
        app.get("/documents/{index}")(self._document)
        app.get("/documents/{index}/{id:path}")(self._document)
        return app

    async def _gate(self, request: Request, call_next: Any) -> Response:
        path = request.url.path
        if path == "/" or any(path.startswith(one) for one in PAGE_PATHS if one != "/"):
            page: Response = await call_next(request)
            return page
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": "a key is needed", "error_type": "unauthorized"}, 401)
        if self.busy:
            self.busy -= 1
            error = {"error": "the queue is full", "error_type": "overloaded"}
            return JSONResponse(error, 429, headers={"Retry-After": "1"})
        answer: Response = await call_next(request)
        return answer

    def _info(self) -> dict[str, Any]:
        examples = ["비 오는 날 챙길 것", "how to get a refund", "잠을 잘 자는 방법"]
        return {
            "model_id": "letters",
            "rerankers": list(self.rerankers),
            "examples": examples if self.suggests else [],
            "title": "Munjang",
        }

    def _indexes(self) -> list[dict[str, Any]]:
        fields = [
            {"name": "category", "kind": "text", "values": self._counts("category")},
            {"name": "language", "kind": "text", "values": self._counts("language")},
            {"name": "date", "kind": "text", "values": self._counts("date")},
            {"name": "year", "kind": "number", "min": 2023, "max": 2026},
            {"name": "draft", "kind": "bool"},
        ]
        count = len(self.documents)
        row = {"documents": count, "passages": count, "model": "letters", "fields": fields}
        return [{"name": name, **row, "keyword": name != "no words"} for name in self.names]

    def _counts(self, name: str) -> list[dict[str, Any]]:
        found: dict[str, int] = {}
        for one in self.documents:
            if name in one["metadata"]:
                found[one["metadata"][name]] = found.get(one["metadata"][name], 0) + 1
        ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
        return [{"value": value, "count": count} for value, count in ranked[:20]]

    async def _search(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        self.seen.append(("/search", body))
        if "boom" in body["query"]:
            raise HTTPException(500, "request 42")
        return self._answer(body["query"], body)

    async def _more_like(self, name: str, request: Request) -> dict[str, Any]:
        body = await request.json()
        self.seen.append((f"/indexes/{name}/more-like", body))
        text = next(one["text"] for one in self.documents if one["id"] == body["id"])
        return self._answer(text, body, without=body["id"])

    def _answer(self, query: str, body: dict[str, Any], without: str | None = None) -> dict[str, Any]:
        kept = [one for one in self.documents if one["id"] != without and _passes(one, body.get("filter") or {})]
        mode = body.get("mode", "semantic")
        first = sorted(kept, key=lambda one: -_letters(query, one["text"]))
        if mode == "keyword":
            first = [one for one in first if _words(query) & _words(one["text"])]
        ranks = {one["id"]: rank for rank, one in enumerate(first, 1)}
        order = sorted(first, key=lambda one: -_overlap(query, one["text"])) if body.get("rerank") else first
        hits = [
            _hit(query, one, stage=mode, rank=ranks[one["id"]], reranked=place if body.get("rerank") else None)
            for place, one in enumerate(order[: body.get("k", 10)], 1)
        ]
        timings = {"tokenise": 0.4, "queue": 0.2, "encode": 6.1, "search": 1.3, "fetch": 0.8, "total": 10.2}
        if body.get("rerank"):
            timings |= {"rerank": 31.5, "total": 41.9}
        answered = self.answered if body.get("rerank") else None
        return {
            "hits": hits, "timings": timings, "mode": mode, "answered": answered, "scored": len(first), "truncated": 0,
            "index": "sample", "request_id": "fake",
        }  # fmt: skip

    async def _similarity(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        self.seen.append(("/similarity", body))
        scores = [[_letters(a, b) for b in body.get("b") or body["a"]] for a in body["a"]]
        return {"scores": scores, "unrelated": 0.0, "same": 1.0}

    async def _cluster(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        self.seen.append(("/cluster", body))
        names = [entry["value"] for entry in self._counts("category")]
        found = []
        for number, name in enumerate(names):
            own = [one for one in self.documents if one["metadata"].get("category") == name]
            words = sorted({word for one in own for word in _words(one["text"])}, key=len, reverse=True)[:5]
            middle = {"id": own[0]["id"], "text": own[0]["text"]}
            ids = [one["id"] for one in own]
            found.append(
                {"number": number, "size": len(own), "keywords": words, "representative": middle, "members": ids}
            )
        return {"clusters": found}

    def _map(self, name: str) -> Any:
        if self.map_polls:
            self.map_polls -= 1
            return JSONResponse({"state": "building", "progress": 0.5}, 202)
        names = [entry["value"] for entry in self._counts("category")]
        labels = [
            names.index(one["metadata"]["category"]) if "category" in one["metadata"] else -1 for one in self.documents
        ]
        return {
            "points": [self._point(number, label) for number, label in enumerate(labels)],
            "ids": [one["id"] for one in self.documents],
            "texts": [one["text"][:120] for one in self.documents],
            "clusters": labels,
            "names": {str(number): value for number, value in enumerate(names)},
            "method": "tsne",
            "built_at": "2026-10-01T00:00:00Z",
        }

    def _point(self, number: int, label: int) -> list[float]:
        turn = 2 * math.pi * label / 6
        return [5 * math.cos(turn) + math.cos(number * 2.4) * 1.1, 5 * math.sin(turn) + math.sin(number * 2.4) * 1.1]

    async def _place(self, name: str, request: Request) -> dict[str, float]:
        query = (await request.json())["query"]
        best = max(range(len(self.documents)), key=lambda at: _letters(query, self.documents[at]["text"]))
        x, y = self._map(name)["points"][best]
        return {"x": x + 0.4, "y": y + 0.4}

    def _document(self, index: str, id: str) -> Any:
        found = next((one for one in self.documents if one["id"] == id), None)
        return found or JSONResponse({"error": f"no document {id}", "error_type": "not_found"}, 404)

    async def _file(self, index: str, file: UploadFile = File()) -> StreamingResponse:  # noqa: B008
        rows = [line for line in (await file.read()).decode().splitlines() if line.strip()]
        return StreamingResponse(self._add(file.filename or "", rows), media_type="application/x-ndjson")

    async def _add(self, name: str, rows: list[str]) -> AsyncIterator[str]:
        if "broken" in name:
            yield json.dumps({"read": 2}) + "\n"
            yield json.dumps({"error": f"{name}, line 3: no column text", "error_type": "validation"}) + "\n"
            return
        for number in range(1, len(rows) + 1):
            yield json.dumps({"encoded": number, "of": len(rows)}) + "\n"
            await asyncio.sleep(self.upload_delay)
        for row in rows:
            text = json.loads(row)["text"] if name.endswith("jsonl") else row
            self.documents.append({"id": f"new-{len(self.documents)}", "text": text, "metadata": {}})
        report = {"added": len(rows), "replaced": 0, "unchanged": 0, "passages": len(rows), "empty": 0, "truncated": 0}
        yield json.dumps({"report": {**report, "seconds": 0.1}}) + "\n"


def _pairs(text: str) -> set[str]:
    flat = re.sub(r"\W+", " ", text.lower())
    return {flat[at : at + 2] for at in range(len(flat) - 1)}


def _letters(a: str, b: str) -> float:
    left, right = _pairs(a), _pairs(b)
    return len(left & right) / math.sqrt(len(left) * len(right)) if left and right else 0.0


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{2,}", text.lower()))


def _overlap(query: str, text: str) -> float:
    wanted = set(query.lower())
    return len(wanted & set(text.lower())) / max(1, len(wanted))


def _hit(query: str, one: dict[str, Any], *, stage: str, rank: int, reranked: int | None) -> dict[str, Any]:
    text = one["text"]
    sentences = [(found.start(), found.end()) for found in re.finditer(r"[^.!?]+[.!?]?\s*", text)]
    start, end = max(sentences, key=lambda span: _letters(query, text[span[0] : span[1]]))
    end = start + len(text[start:end].rstrip())
    first = round(_letters(query, text), 4)
    stages = [{"name": stage, "score": first, "rank": rank, "normalized": first}]
    if reranked is not None:
        chance = round(_overlap(query, text), 4)
        stages.append({"name": "rerank", "score": chance, "rank": reranked, "normalized": chance})
    return {
        "id": one["id"], "text": text, "metadata": one["metadata"], "score": stages[-1]["score"], "stages": stages,
        "passage": {"text": text, "start": 0, "end": len(text)}, "sentence": {"start": start, "end": end},
        "moved": 0 if reranked is None else rank - reranked,
    }  # fmt: skip


def _passes(one: dict[str, Any], wanted: dict[str, Any]) -> bool:
    for name, condition in wanted.items():
        value = one["metadata"].get(name)
        if not isinstance(condition, dict):
            condition = {"in": [condition]}
        for sign, limit in condition.items():
            checks = {"in": lambda v, x: v in x, ">=": lambda v, x: v >= x, "<=": lambda v, x: v <= x}
            if value is None or not checks[sign](value, limit):
                return False
    return True
