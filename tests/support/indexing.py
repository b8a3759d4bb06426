"""For tests of the index: texts, and what an index should do, in plain Python with brute force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from munjang.encoders import BiEncoder
from munjang.index.cutting import Cutter
from munjang.index.index import Index
from munjang.index.results import Results

TEXTS = [
    "비가 온다.",
    "비가 오는 날에는 빵을 굽는다.",
    "골목 끝까지 빵 냄새가 났다.",
    "It is raining again.",
    "People look for a bakery at the end of the street.",
    "the umbrella of the people",
    "우산 없이 걷다가 an umbrella 를 찾았다",
    "bread and rain, rain and bread",
    "비 rain 빵 bread " * 40,
    "골목 끝에서 people look at the street " * 15,
    " 빵 ",
    "   \n\t ",
    "",
]


@dataclass
class Plain:
    """What an index should hold, and what a search in it should find."""

    model: BiEncoder
    documents: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def scores(self, query: str, ids: Sequence[str] | None = None) -> dict[str, float]:
        """Every document that has words, with the similarity of its best passage."""
        kept = [id for id in self.documents if ids is None or id in set(ids)]
        cutter = Cutter.resolve(self.model.tokenizer, None, None)
        spans = cutter.cut([self.documents[id][0] for id in kept])
        pairs = [
            (id, self.documents[id][0][span.start : span.end])
            for id, some in zip(kept, spans, strict=True)
            for span in some
        ]
        if not pairs:
            return {}
        vectors = self.model.encode_document([text for _, text in pairs], normalize=True)
        found = vectors @ self.model.encode_query([query], normalize=True)[0]
        best: dict[str, float] = {}
        for (id, _), score in zip(pairs, found.tolist(), strict=True):
            best[id] = max(score, best.get(id, -2.0))
        return best

    def check(self, results: Results, query: str, k: int, ids: Sequence[str] | None = None) -> None:
        """The hits are the k best, in order, with their true scores, texts, metadata and passages."""
        best = self.scores(query, ids)
        found = [hit.score for hit in results]
        assert len(set(results.ids)) == len(results) == min(k, len(best))
        np.testing.assert_allclose(found, sorted(best.values(), reverse=True)[: len(found)], atol=2e-5)
        for rank, hit in enumerate(results, start=1):
            assert abs(hit.score - best[hit.id]) < 2e-5
            assert (hit.text, dict(hit.metadata)) == self.documents[hit.id]
            assert hit.passage.text == hit.text[hit.passage.start : hit.passage.end] != ""
            assert hit.stages[0].rank == rank

    def check_all(self, index: Index) -> None:
        """The index holds these documents and no others, and finds them."""
        assert {one.id: (one.text, dict(one.metadata)) for one in index.documents()} == self.documents
        assert index.count == len(self.documents)
        for query in ("비가 온다", "bread for the people"):
            self.check(index.search(query, k=len(self.documents) + 5, mode="semantic"), query, len(self.documents) + 5)
