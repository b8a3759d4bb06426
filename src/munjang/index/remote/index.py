"""`RemoteIndex`: the calls of `Index`, on a database server instead of a folder.

    documents -> adding.py (cut, encoded here) -> Engine -> server
    queries   -> (encoded here) -> searching.py -> Engine -> server -> Results

What was acknowledged is durable on the server, and a search sees it. Any number of processes may read and write at the
same time; a document is written whole, and the last writer of an id wins. `Index.create` and `Index.open` give one for
an address.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError, ModelError
from munjang.index import transfer
from munjang.index.adding import AddReport, Encode
from munjang.index.columns import Column, columns_of
from munjang.index.documents import id_of
from munjang.index.ends import End
from munjang.index.identity import Identity
from munjang.index.index import FilterLike, Index
from munjang.index.options import IndexOptions
from munjang.index.passages import Found
from munjang.index.remote import moving, searching
from munjang.index.remote.adding import PUT_DOCUMENTS, RemoteAdder, Tools, stamp
from munjang.index.remote.address import Address, parse
from munjang.index.remote.engine import FORMAT, Engine, StoredDocument
from munjang.index.remote.fields import Fields
from munjang.index.remote.opening import connected
from munjang.index.remote.verifying import verify
from munjang.index.results import Document, Mode, Results
from munjang.index.sampling import Sample
from munjang.index.searching import Asked, Clock, Request, Vectors
from munjang.index.verifying import VerifyReport
from munjang.progress import Progress, track

_COLUMNS = 5_000  # documents of which `columns` reads the metadata
_CHARACTERS = 4_000  # of a text in a sample
_DELETED = 2_000  # ids in one transaction


class RemoteIndex(Index):
    """Documents on a server that can be searched; every call of `Index` but `nearest`."""

    def __init__(self, address: Address, engine: Engine, model: BiEncoder | None) -> None:
        """Open what is there: `Index.open`."""
        header = engine.header()
        if header.get("format", 0) > FORMAT:
            raise DataError(
                f"{address} has format {header['format']}, which a newer munjang wrote; this one reads up to {FORMAT}: "
                "pip install --upgrade munjang"
            )
        self.path = str(address)
        self.name = str(header["name"])
        self._identity = Identity(**header["model"])
        self.options = IndexOptions.from_json(header["options"])
        if model is not None:
            self._identity.check(model, self.path)
        self._model = model
        self._scale = None
        self._loading = threading.Lock()
        self._engine = engine
        self._fields = Fields(engine)

    @classmethod
    def make(cls, path: str | Path, identity: Identity, options: IndexOptions, model: BiEncoder | None) -> Index:
        """Make an empty index at an address."""
        address = parse(str(path))
        if options.vectors != "float32":
            raise InputError(f"{address} keeps vectors as float32, got vectors={options.vectors!r}: leave it out")
        header = {
            "format": FORMAT,
            "name": secrets.token_hex(16),
            "model": identity.as_json(),
            "options": options.as_json(),
        }
        engine = connected(address)
        try:
            engine.create(header, identity.dimension, identity.similarity)
            return cls(address, engine, model)
        except BaseException:
            engine.close()
            raise

    @classmethod
    def open(cls, path: str | Path, model: BiEncoder | None = None) -> Index:
        """Open an index at an address."""
        address = parse(str(path))
        engine = connected(address)
        try:
            return cls(address, engine, model)
        except BaseException:
            engine.close()
            raise

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """What speaks with the server."""
        return self._engine

    @property
    def count(self) -> int:
        """How many documents there are."""
        return self._engine.count()[0]

    def __contains__(self, id: object) -> bool:
        if isinstance(id, bool) or not isinstance(id, str | int | np.integer):
            return False
        return str(id) in self._engine.versions([str(id)])

    def ids(self) -> Iterator[str]:
        """The ids of all documents, ascending; what is written meanwhile may be among them or not."""
        for document in self.stored(vectors=False):
            yield document.id

    def documents(self) -> Iterator[Document]:
        """All documents, in the order of their ids; what is written meanwhile may be among them or not."""
        for document in self.stored(vectors=False):
            yield Document(document.id, document.text, document.fields)

    def stored(self, *, vectors: bool = True, after: str | None = None) -> Iterator[StoredDocument]:
        """All documents as the server keeps them, in the order of their ids, a page at a time."""
        while page := self._engine.scan(after, PUT_DOCUMENTS, vectors=vectors):
            yield from page
            after = page[-1].id

    def get(self, id: str | int) -> Document:
        """The document of that id; an error where there is none (`id in index` asks)."""
        name = id_of(id, "a document")
        found = self._engine.get([name]).get(name)
        return self._unknown(id) if found is None else Document(found.id, found.text, found.fields)

    def _unknown(self, id: str | int) -> NoReturn:
        raise InputError(f"there is no document {str(id)!r} in {self.path}")

    def columns(self) -> dict[str, Column]:
        """The metadata field by field, of an even choice of documents where there are many."""
        chosen = self._engine.choose(_COLUMNS)
        return columns_of([document.fields for document in self._chosen(chosen, vectors=False)])

    def sample(self, most: int) -> Sample:
        """Documents with the means of their passages' vectors; an even choice where there are more than `most`."""
        generation = self._generation()
        documents = self._engine.count()[0]
        ids: list[str] = []
        texts: list[str] = []
        means: list[Vectors] = []
        for document in self._chosen(self._engine.choose(most), vectors=True):
            assert document.vectors is not None
            if len(document.vectors):
                ids.append(document.id)
                texts.append(document.text[:_CHARACTERS])
                means.append(document.vectors.mean(axis=0, dtype=np.float32))
        vectors = np.array(means, np.float32).reshape(-1, self.dimension)
        return Sample(generation, ids, texts, vectors, max(documents, len(ids)))

    def _chosen(self, ids: list[str], *, vectors: bool) -> Iterator[StoredDocument]:
        for first in range(0, len(ids), PUT_DOCUMENTS):
            yield from self._engine.get(ids[first : first + PUT_DOCUMENTS], vectors=vectors).values()

    def _generation(self) -> int:
        return int(self._engine.notes().get("generation", "0"))

    def describe(self) -> dict[str, object]:
        """What the index is, for people."""
        documents, passages = self._engine.count()
        return {
            "path": self.path,
            "documents": documents,
            "passages": passages,
            "model": self._identity.source,
            "fingerprint": self._identity.fingerprint,
            "dimension": self.dimension,
            "similarity": self._identity.similarity,
            **self.options.as_json(),
            "keyword": self.options.keyword and self._engine.can_keyword,
            "generation": self._generation(),
            **self._engine.describe(),
        }

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        documents: Iterable[Mapping[str, Any] | str],
        *,
        progress: Progress = False,
        commit_every: int | None = None,
        encode: Encode | None = None,
    ) -> AddReport:
        """Add documents, or replace those whose id is there; they are durable on the server when it returns.

        As `Index.add`: one broken document, or an id that comes twice, is an error before anything is written; with
        `commit_every` what came before it is written. A connection that is lost is made again, and nothing comes twice;
        where the server stays away, the error says how many documents are in.
        """
        if commit_every is not None and (isinstance(commit_every, bool) or commit_every < 1):
            raise InputError(f"commit_every must be at least 1, got {commit_every!r}")
        total = len(documents) if isinstance(documents, Sized) else None
        encode = encode or self.model.encode_document
        tools = Tools(self._engine, self._fields, encode, self._cutter(), self.dimension, self.options.title)
        with track(progress, total) as done:
            report = RemoteAdder(tools).run(documents, done, commit_every)
        self._engine.ready()
        return report

    def add_together(
        self, requests: Iterable[Iterable[Mapping[str, Any] | str]], *, encode: Encode | None = None
    ) -> list[AddReport | InputError | ModelError]:
        """`add` for several lists of documents, one after the other: a report or the error for each, in order."""
        results: list[AddReport | InputError | ModelError] = []
        for documents in requests:
            try:
                results.append(self.add(documents, encode=encode))
            except (InputError, ModelError) as error:  # noqa: PERF203
                results.append(error)
        return results

    def _stored_texts(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        return {id: (document.text, document.metadata) for id, document in self._engine.get(ids).items()}

    def delete(self, ids: Iterable[str | int] | str | int) -> int:
        """Delete documents; returns how many of the ids were there."""
        given = [ids] if isinstance(ids, str | int) else ids
        names = list(dict.fromkeys(id_of(id, f"entry {place} of ids") for place, id in enumerate(given)))
        deleted = 0
        for first in range(0, len(names), _DELETED):
            there = list(self._engine.versions(names[first : first + _DELETED]))
            if there:
                self._engine.delete(there)
                stamp(self._engine)
            deleted += len(there)
        return deleted

    def reencode(self, model: BiEncoder, *, options: IndexOptions | None = None, progress: Progress = False) -> int:
        """Not on a server: make a new index of the documents."""
        raise InputError(
            f"{self.path}: an index on a server is not re-encoded in place: make one with the new model at another "
            "address or in a folder, and add this one's documents to it (Index.documents)"
        )

    def compact(self) -> None:
        """Build what makes searches fast, where it is missing; the server gives room back by itself."""
        self._engine.ready()

    def drop(self) -> None:
        """Take the whole index away from the server."""
        self._engine.drop()

    # --- searching ---------------------------------------------------------------------------------------------------

    def usual_mode(self, *, texts: bool = True) -> Mode:
        """The mode of a search that names none."""
        return super().usual_mode(texts=texts and self._engine.can_keyword)

    def _runner(self) -> Callable[[Asked, Request, Clock], list[Results]]:
        return self._run

    def _run(self, asked: Asked, request: Request, clock: Clock) -> list[Results]:
        if request.mode != "semantic" and not self.options.keyword:
            raise InputError(
                f"{self.path} was made without keywords (IndexOptions.keyword=False): mode {request.mode!r} is not "
                "possible, only 'semantic'"
            )
        if request.filter is not None:
            self._fields.check(request.filter)
        scale = self._similarity_scale() if asked.vectors is not None else None
        return searching.run(asked, request, self._engine, clock, scale=scale, title=self.options.title)

    def _likeness(self, id: str) -> tuple[Vectors, str]:
        found = self._engine.get([id], vectors=True).get(id)
        if found is None:
            self._unknown(id)
        assert found.vectors is not None
        start, end = found.spans[0] if found.spans else (0, 0)
        return found.vectors, found.text[start:end]

    def nearest(self, vectors: Any, k: int, *, filter: FilterLike = None) -> Found:
        """Not on a server: passages have no numbers there."""
        raise InputError(f"{self.path}: passages of an index on a server have no numbers: use search or search_many")

    # --- the whole of it ---------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress = False) -> VerifyReport:
        """Look whether everything is whole: every document, offset and vector, the counts, and the search."""
        return verify(self._engine, self._identity.dimension, self._identity.similarity, progress=progress)

    def export(self, path: str | Path, *, overwrite: bool = False, progress: Progress = False) -> int:
        """Write all documents with passages and vectors to a .parquet file; returns how many documents."""
        header = {"model": self._identity.as_json(), "options": self.options.as_json()}
        content = transfer.Content(self.count, self.dimension, moving.groups(self.stored()))
        return transfer.write(content, Path(path), header, overwrite=overwrite, progress=progress)

    def end(self) -> End:
        """The index as a copy reads or writes it."""
        return moving.RemoteEnd(self._engine, self._fields)

    def _fill(self, source: Path, done: Callable[[int], None]) -> None:
        moving.fill(self._engine, self._fields, source, self.dimension, done)
        self._engine.ready()

    def _undo(self) -> None:
        self.drop()
        self.close()

    def close(self) -> None:
        """Let go of the connections; what was written is durable already."""
        self._engine.close()

    def __repr__(self) -> str:
        return f"RemoteIndex({self.path!r}, model={self._identity.source!r}, dimension={self.dimension})"
