"""Any row of additions, replacements, deletions, reopenings and damage leaves what a plain dict and brute force say."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from munjang.errors import InputError
from munjang.index import dense, derived
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from support.indexing import TEXTS, Plain
from support.small_models import bi_encoder

IDS = st.integers(0, 9).map(str)
METADATA = st.fixed_dictionaries({}, optional={"year": st.integers(0, 3), "tag": st.sampled_from(["a", "비"])})
DOCUMENTS = st.dictionaries(IDS, st.tuples(st.sampled_from(TEXTS), METADATA), min_size=1, max_size=6)
QUERIES = st.sampled_from(["비가 온다", "bread and people", "우산"])


class IndexMachine(RuleBasedStateMachine):
    """An index on disk beside a dict; saved with every commit, so that the files take part."""

    @initialize(exact=st.booleans())
    def begin(self, exact: bool) -> None:
        self.before = derived._SMALL, derived._SHARE, dense.SMALL
        derived._SMALL, derived._SHARE, dense.SMALL = 0, 0.0, 1
        self.folder = Path(tempfile.mkdtemp())
        self.plain = Plain(bi_encoder())
        options = IndexOptions(exact_up_to=200_000 if exact else 0)
        self.index = Index.create(self.folder / "index", self.plain.model, options=options)

    @rule(documents=DOCUMENTS)
    def add(self, documents: dict[str, Any]) -> None:
        old = self.plain.documents
        report = self.index.add([{"id": id, "text": text, **rest} for id, (text, rest) in documents.items()])
        new = [id for id in documents if id not in old]
        same = [id for id in documents if id in old and old[id] == documents[id]]
        assert (report.added, report.unchanged) == (len(new), len(same))
        assert report.replaced == len(documents) - len(new) - len(same)
        self.plain.documents |= documents

    @rule(documents=DOCUMENTS)
    def add_what_breaks(self, documents: dict[str, Any]) -> None:
        rows: list[Any] = [{"id": id, "text": text, **rest} for id, (text, rest) in documents.items()]
        try:
            self.index.add([*rows, {"id": "x", "text": None}])
        except InputError:
            return
        raise AssertionError("a document without text was taken")

    @rule(ids=st.lists(IDS, max_size=6))
    def delete(self, ids: list[str]) -> None:
        gone = {id for id in ids if id in self.plain.documents}
        assert self.index.delete(ids) == len(gone)
        for id in gone:
            del self.plain.documents[id]

    @rule(query=QUERIES, k=st.integers(1, 12), year=st.none() | st.integers(0, 3))
    def search(self, query: str, k: int, year: int | None) -> None:
        if year is None:
            self.plain.check(self.index.search(query, k, mode="semantic"), query, k)
            return
        kept = [id for id, (_, rest) in self.plain.documents.items() if rest.get("year") == year]
        try:
            results = self.index.search(query, k, mode="semantic", filter={"year": year})
        except InputError as error:
            assert "no document has the field" in str(error)  # noqa: PT017
            assert all("year" not in rest for _, rest in self.plain.documents.values())
            return
        self.plain.check(results, query, k, kept)

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.folder / "index", self.plain.model)

    @rule(how=st.sampled_from(["delete", "truncate", "noise"]), close=st.booleans())
    def damage(self, how: str, close: bool) -> None:
        if close:
            self.index.close()
        for file in sorted((self.folder / "index" / "derived").rglob("*")):
            if file.is_file():
                damage_file(file, how)
        if close:
            self.index = Index.open(self.folder / "index", self.plain.model)

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @invariant()
    def holds_what_it_should(self) -> None:
        if hasattr(self, "index"):
            self.plain.check_all(self.index)

    def teardown(self) -> None:
        if hasattr(self, "index"):
            report = self.index.verify()
            assert report.ok, report.problems
            self.index.close()
            shutil.rmtree(self.folder)
            derived._SMALL, derived._SHARE, dense.SMALL = self.before


def damage_file(file: Path, how: str) -> None:
    """Into a new file, as a person or a copy would: a file that is mapped into memory is not cut under its reader."""
    data = file.read_bytes()
    file.unlink()
    if how == "truncate":
        file.write_bytes(data[: len(data) // 2])
    elif how == "noise":
        file.write_bytes(bytes((byte * 7 + place) % 251 for place, byte in enumerate(data)))


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(
    max_examples=5, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
)
