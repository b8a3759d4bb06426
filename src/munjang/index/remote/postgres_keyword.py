"""Keyword search in PostgreSQL: terms of passages in a GIN index, BM25 in SQL.

The terms are those of the index in a folder (`munjang.text.morphemes`: Korean without its particles), and so is the
formula (index/keyword_state.py): both indexes give the same scores. PostgreSQL's own ranking knows neither how rare a
word is nor Korean, which is why it is not used. Passages with a term are found by the GIN index; how many have each
term is counted at the moment of asking.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from munjang.errors import MunjangWarning
from munjang.index.keyword_state import K1, B
from munjang.index.remote.engine import Scored
from munjang.index.remote.postgres_filters import Condition
from munjang.text.morphemes import Analyser

if TYPE_CHECKING:
    from munjang.index.remote.postgres_connecting import Cursor

_QUOTED = re.compile('["“”]([^"“”]+)["“”]')

_FREQUENCIES = """
SELECT term, (SELECT count(*) FROM {s}.passages WHERE terms @> ARRAY[term]) FROM unnest(%s::text[]) AS term
"""
_BEST = """
SELECT d.id, p.number, sum(a.factor * t.times / (t.times + %s * (1 - %s + %s * p.length / %s))) AS score
FROM {s}.passages p
JOIN {s}.documents d ON d.row = p.row
CROSS JOIN LATERAL unnest(p.terms, p.counts) AS t (term, times)
JOIN unnest(%s::text[], %s::float8[]) AS a (term, factor) ON a.term = t.term
WHERE p.terms && %s::text[] AND p.terms @> %s::text[] AND {where}
GROUP BY d.id, p.row, p.number
ORDER BY score DESC, p.row, p.number
LIMIT %s
"""


class Words:
    """Texts to terms, and terms to passages."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._analyser = Analyser()
        self._warned = False

    @property
    def identity(self) -> str:
        return self._analyser.identity

    def check(self, identity: str) -> None:
        """Warn once where the index was made with another analyser: its terms may not meet those of a query."""
        if identity and identity != self.identity and not self._warned:
            self._warned = True
            warnings.warn(
                f"the keywords of this index were made by {identity}, here is {self.identity}: some words will not be "
                "found until the same versions are installed, or the index is made anew",
                MunjangWarning,
                stacklevel=2,
            )

    def terms(self, texts: Sequence[str]) -> list[tuple[list[str], list[int], int]]:
        """For every passage its different terms, how often each stands there, and how many terms there are in all."""
        counted = [Counter(own) for own in self._analyser.terms(texts)]
        return [(list(one), list(one.values()), one.total()) for one in counted]

    def search(
        self, cursor: Cursor, query: str, k: int, where: Condition, *, passages: int, words: int
    ) -> list[Scored]:
        """The k best passages for the words of a query; those in "quotes" must all be there."""
        terms, required = self._query(query)
        if not terms or not passages:
            return []
        counted = cursor.execute(self._sql(_FREQUENCIES), [list(terms)]).fetchall()
        every = {
            term: terms[term] * math.log1p((passages - often + 0.5) / (often + 0.5)) * (K1 + 1)
            for term, often in counted
        }
        factors = {term: every[term] for term, often in counted if often}
        if not factors or not required <= factors.keys():
            return []
        names = list(factors)
        rows = cursor.execute(
            self._sql(_BEST, where[0]),
            [K1, B, B, words / passages or 1.0, names, list(factors.values()), names, sorted(required), *where[1], k],
        ).fetchall()
        reach = sum(every.values())
        return [Scored(id, number, score, score / reach) for id, number, score in rows]

    def _query(self, query: str) -> tuple[Counter[str], set[str]]:
        pieces = _QUOTED.split(query)
        terms: Counter[str] = Counter()
        required: set[str] = set()
        for place, own in enumerate(self._analyser.terms(pieces)):
            terms.update(own)
            if place % 2 == 1:
                required.update(own)
        return terms, required

    def _sql(self, text: str, where: str = "true") -> bytes:
        return text.replace("{s}", self._schema).replace("{where}", where).encode()
