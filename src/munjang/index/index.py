"""`Index`: documents and their vectors in a folder, searched by meaning, by words, or both.

    documents -> passages -> vectors -> documents.sqlite3 -> (derived structures) -> search -> Results

What was acknowledged is on the disk, and a search sees one committed state. One process at a time writes; any number
read meanwhile. An Index may be used from several threads.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, ModelError
from munjang.files import sync_folder
from munjang.index import reencoding, searching, transfer, verifying
from munjang.index.adding import Adder, AddReport, Encode, Tools
from munjang.index.codes import Codec
from munjang.index.columns import Column, Columns
from munjang.index.cutting import Cutter
from munjang.index.derived import Derived
from munjang.index.documents import id_of, title_of, windows
from munjang.index.ends import End, FolderEnd
from munjang.index.filters import Filter, as_filter
from munjang.index.fusion import SimilarityScale
from munjang.index.identity import Identity, document_prompt
from munjang.index.options import IndexOptions
from munjang.index.passages import Found
from munjang.index.remote.address import is_address
from munjang.index.results import Document, Mode, Results
from munjang.index.sampling import Sample, sample
from munjang.index.schema import (
    DATABASE,
    DERIVED,
    check_folder,
    create_tables,
    database_errors,
    is_index,
    make_folder,
    read_meta,
    take_away,
)
from munjang.index.searching import Asked, Clock, Request, Vectors
from munjang.index.state import metadata_of
from munjang.index.store import Store, commit, next_generation, remove_passages
from munjang.progress import Progress, track

if TYPE_CHECKING:
    from munjang.index.remote.index import RemoteIndex

FilterLike = Filter | Mapping[str, Any] | str | None


class Index:
    """Documents on disk that can be searched. `Index.create` makes one, `Index.open` opens it."""

    def __init__(self, folder: Path, model: BiEncoder | None) -> None:
        """Open what is there: `Index.open`."""
        check_folder(folder)
        self._open_folder(folder, model)

    def _open_folder(self, folder: Path, model: BiEncoder | None) -> None:
        meta = read_meta(folder)
        self.name: str = meta["name"]  # made by chance, so that a copy knows what it is a copy of
        self._identity = Identity(**json.loads(meta["model"]))
        self.options = IndexOptions.from_json(json.loads(meta["options"]))
        if model is not None:
            self._identity.check(model, folder)
        self._model = model
        self._scale: SimilarityScale | None = None
        self._loading = threading.Lock()
        self.path: Path | str = folder  # an index on a server has an address instead
        self._folder = folder
        self._codec = Codec(self.options.vectors, self._identity.dimension)
        self._store = Store(folder, self._codec, self.options.title, self.name)
        self._derived = Derived(self._store, self._identity, self.options, self.name)
        self._columns = Columns()
        self._wrote = False

    @classmethod
    def create(cls, path: str | Path, model: BiEncoder, *, options: IndexOptions | None = None) -> Index:
        """Make an empty index in a folder that is not there yet, or is empty; or on a server, where path is an
        address: postgresql://user:password@host/database?index=NAME, milvus://host:19530/NAME.
        """
        identity = Identity.of(model)
        options = options or IndexOptions()
        cutter = Cutter.resolve(model.tokenizer, options.chunk_tokens, options.stride, prompt=document_prompt(model))
        return cls.make(path, identity, replace(options, chunk_tokens=cutter.size, stride=cutter.stride), model)

    @classmethod
    def make(cls, path: str | Path, identity: Identity, options: IndexOptions, model: BiEncoder | None) -> Index:
        """`create` where the model need not be at hand: of another index's identity and options."""
        if is_address(path):
            return _remote().make(path, identity, options, model)
        folder = Path(path).expanduser()
        make_folder(folder)
        meta = {
            "name": secrets.token_hex(16),
            "model": json.dumps(identity.as_json(), ensure_ascii=False),
            "options": json.dumps(options.as_json()),
            "generation": "0",
            "forgotten": "0",
        }
        lock = Store(folder, Codec(options.vectors, identity.dimension)).lock()
        try:
            with database_errors(folder, safe="no index was made"):
                if is_index(folder):
                    raise InputError(f"there is an index at {folder} already: Index.open opens it")
                create_tables(folder, meta)
            sync_folder(folder)
        finally:
            lock.release()
        return cls(folder, model)

    @classmethod
    def open(cls, path: str | Path, model: BiEncoder | None = None) -> Index:
        """Open an index, in a folder or at an address. Without a model, the one that made it is loaded from where it
        was, when it is first needed.
        """
        if model is not None and not isinstance(model, BiEncoder):
            raise InputError(f"the model of an index is a bi-encoder (munjang.load), got {type(model).__name__}")
        return _remote().open(path, model) if is_address(path) else cls(Path(path).expanduser(), model)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def model(self) -> BiEncoder:
        """The model that made the vectors."""
        with self._loading:
            if self._model is None:
                self._model = self._identity.load(self.path)
            return self._model

    @property
    def identity(self) -> Identity:
        """Which model the index belongs to, and where it was."""
        return self._identity

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self._identity.dimension

    @property
    def count(self) -> int:
        """How many documents there are."""
        with self._store.reading() as state:
            return state.count()

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True  # an empty index is an index

    def __contains__(self, id: object) -> bool:
        if isinstance(id, bool) or not isinstance(id, str | int | np.integer):
            return False
        with self._store.reading() as state:
            return state.row_of(str(id)) is not None

    def ids(self) -> Iterator[str]:
        """The ids of all documents, in the order in which they came; one state, however long it takes."""
        with self._store.reading() as state:
            for (id,) in state.connection.execute("SELECT id FROM documents ORDER BY row"):
                yield id

    def documents(self) -> Iterator[Document]:
        """All documents, in the order in which they came; one state, however long it takes."""
        with self._store.reading() as state:
            for id, text, metadata in state.connection.execute("SELECT id, text, metadata FROM documents ORDER BY row"):
                yield Document(id, text, metadata_of(metadata))

    def get(self, id: str | int) -> Document:
        """The document of that id; an error where there is none (`id in index` asks)."""
        with self._store.reading() as state:
            found = state.document(id_of(id, "a document"))
            return found if found is not None else self._unknown(id)

    def columns(self) -> dict[str, Column]:
        """The metadata of the documents that can be found, field by field, as filters read it."""
        with self._store.reading() as state:
            _, names = self._columns.of(state, ())
            return self._columns.of(state, names)[0]

    def sample(self, most: int) -> Sample:
        """Documents with the means of their passages' vectors; an even choice where there are more than `most`."""
        with self._store.reading() as state:
            return sample(state, most)

    def _unknown(self, id: str | int) -> NoReturn:
        raise InputError(f"there is no document {str(id)!r} in {self.path}")

    def describe(self) -> dict[str, object]:
        """What the index is, for people."""
        with self._store.reading() as state:
            return {
                "path": str(self.path),
                "documents": state.count(),
                "passages": len(state.numbers()),
                "model": self._identity.source,
                "fingerprint": self._identity.fingerprint,
                "dimension": self.dimension,
                "similarity": self._identity.similarity,
                **self.options.as_json(),
                "generation": state.generation,
                "bytes": {
                    "documents": sum(file.stat().st_size for file in self._folder.glob(DATABASE + "*")),
                    "derived": sum(f.stat().st_size for f in (self._folder / DERIVED).rglob("*") if f.is_file()),
                },
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
        """Add documents, or replace those whose id is there; they are on the disk when it returns.

        documents: texts, or dicts with `text`, optionally `id` (a text or a whole number; one is made where it is
        missing), and anything else as metadata. A stream of any length passes through bounded memory. One broken
        document, or an id that comes twice, is an error, and nothing of the call is kept; with `commit_every` what was
        committed before it is. encode: makes the passages' vectors in place of the model's `encode_document`.
        """
        if commit_every is not None and (isinstance(commit_every, bool) or commit_every < 1):
            raise InputError(f"commit_every must be at least 1, got {commit_every!r}")
        total = len(documents) if isinstance(documents, Sized) else None
        tools = self._tools(encode)
        with self._writing() as connection, track(progress, total) as done:
            try:
                report = Adder(connection, tools).run(documents, done, commit_every)
            finally:
                self._wrote = True
            self._derived.save(connection)
        return report

    def add_together(
        self, requests: Iterable[Iterable[Mapping[str, Any] | str]], *, encode: Encode | None = None
    ) -> list[AddReport | InputError | ModelError]:
        """Add several lists of documents in one commit: each whole, or not at all where it has an error.

        Returns a report or the error for each list, in order; what was added is on the disk by then. A list replaces
        documents of the lists before it.
        """
        tools = self._tools(encode)
        with self._writing() as connection:
            try:
                results = Adder(connection, tools).run_each(requests)
            finally:
                self._wrote = True
            self._derived.save(connection)
        return results

    def passages_to_encode(self, documents: Iterable[Mapping[str, Any] | str]) -> list[str]:
        """The passages that `add` would encode now: those of documents that are new or have another text."""
        checked = [document for window in windows(documents) for document in window]
        stored = self._stored_texts([document.id for document in checked if document.named])
        title = self.options.title
        fresh = []
        for document in checked:
            text, metadata = stored.get(document.id, (None, "{}"))
            if text != document.text or title_of(metadata, title) != title_of(document.metadata, title):
                fresh.append(document)
        titles = [title_of(document.metadata, title) for document in fresh]
        return self._cutter().passages([document.text for document in fresh], titles)[1]

    def _stored_texts(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Id -> text and metadata."""
        with self._store.reading() as state:
            return state.texts(ids)

    def _tools(self, encode: Encode | None) -> Tools:
        encode = encode or self.model.encode_document
        return Tools(self._folder, encode, self._cutter(), self._codec, self.options.title)

    def _cutter(self) -> Cutter:
        size, stride = self.options.chunk_tokens, self.options.stride
        return Cutter.resolve(self.model.tokenizer, size, stride, prompt=self._identity.prompt)

    def delete(self, ids: Iterable[str | int] | str | int) -> int:
        """Delete documents; returns how many of the ids were there. All or, after an error, none."""
        given = [ids] if isinstance(ids, str | int) else ids
        names = [id_of(id, f"entry {place} of ids") for place, id in enumerate(given)]
        deleted = 0
        with self._writing() as connection:
            connection.execute("BEGIN IMMEDIATE")
            generation = next_generation(connection)
            for name in names:
                found = connection.execute("SELECT row FROM documents WHERE id = ?", (name,)).fetchone()
                if found is None:
                    continue
                remove_passages(connection, found[0], generation)
                connection.execute("DELETE FROM documents WHERE row = ?", found)
                deleted += 1
            if deleted:
                commit(connection, generation)
                self._wrote = True
                self._derived.save(connection)
        return deleted

    def compact(self) -> None:
        """Give the room of what was deleted back to the disk, and make the derived files anew."""
        with self._writing() as connection:
            connection.execute("BEGIN IMMEDIATE")
            now = str(next_generation(connection) - 1)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'forgotten'", (now,))
            connection.execute("DELETE FROM removals")
            connection.execute("COMMIT")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._derived.rebuild(connection)
            self._wrote = False

    def reencode(self, model: BiEncoder, *, options: IndexOptions | None = None, progress: Progress = False) -> int:
        """Move the index to another model: encode the stored texts again.

        Until all is encoded, the index keeps its old model and can be searched, but not written, by everybody; a call
        that was interrupted or killed is resumed by the next one. Other processes that have the index open must open it
        again afterwards.

        Args:
            model: The new model.
            options: How passages are cut and vectors kept (default: as in a new index, but with the old one's
                `vectors`, `keyword` and `exact_up_to`).
            progress: True for a bar on stderr, or a function of (done, total); documents.

        Returns:
            How many documents the index has; they are searched with the new model when it returns.

        Example:
            >>> index = munjang.Index.open("my-index")  # doctest: +SKIP
            >>> index.reencode(munjang.load(), progress=True)  # doctest: +SKIP
        """
        identity = Identity.of(model)
        if options is None:
            own = self.options
            options = IndexOptions(own.vectors, keyword=own.keyword, exact_up_to=own.exact_up_to)
        cutter = Cutter.resolve(model.tokenizer, options.chunk_tokens, options.stride, prompt=identity.prompt)
        options = replace(options, chunk_tokens=cutter.size, stride=cutter.stride)
        if (replace(identity, source=""), options) == (replace(self._identity, source=""), self.options):
            return self.count
        with self._writing() as connection:
            (total,) = connection.execute("SELECT count(*) FROM documents").fetchone()
            with track(progress, total) as done:
                reencoding.reencode(
                    connection,
                    identity,
                    options,
                    encode=model.encode_document,
                    cutter=cutter,
                    codec=Codec(options.vectors, identity.dimension),
                    done=done,
                )
            old = self._store
            self._open_folder(self._folder, model)
        old.close()
        self.compact()
        return self.count

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._store.writing() as connection:
            self._derived.check_lineage(connection)
            yield connection

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str | Any,
        k: int = 10,
        *,
        filter: FilterLike = None,
        mode: Mode | None = None,
        reranker: CrossEncoder | None = None,
        candidates: int | None = None,
        rerank_budget: float | None = None,
    ) -> Results:
        """The k best documents for a text or a vector [d]; all there are where there are fewer.

        Args:
            query: A text, or a vector made by the index's model.
            k: How many documents.
            filter: A condition on metadata, such as {"category": "news", "year": {">=": 2020}} or the same as a text,
                'category=news and year>=2020'.
            mode: 'semantic' by meaning, 'keyword' by words, 'hybrid' by both (default: hybrid; semantic for vectors,
                and where the index has no keywords).
            reranker: A cross-encoder that reads the best hits together with the query and puts them in order.
            candidates: How many hits the reranker reads (default: 30).
            rerank_budget: Seconds for the reranker and each query instead: it reads as many of the best 100 hits as
                fit, at least k.

        Returns:
            The hits, best first. A reranked hit shows the reranker's probability. The order can differ from that of the
            probabilities, because it also heeds the first search (see `munjang.index.reranking`).
        """
        one = [query] if isinstance(query, str) else np.asarray(_numbers(query))[None]
        return self.search_many(
            one,
            k,
            filter=filter,
            mode=mode,
            reranker=reranker,
            candidates=candidates,
            rerank_budget=rerank_budget,
        )[0]

    def search_many(
        self,
        queries: Sequence[str] | Any,
        k: int = 10,
        *,
        filter: FilterLike = None,
        mode: Mode | None = None,
        reranker: CrossEncoder | None = None,
        candidates: int | None = None,
        rerank_budget: float | None = None,
    ) -> list[Results]:
        """`search` for many queries at once, texts or vectors [q, d], all in the same state of the index."""
        if isinstance(queries, str):
            raise InputError("search_many takes a list of queries, got one text: search(query), or [query]")
        queries = queries if hasattr(queries, "shape") else list(queries)  # an array, a tensor; or any iterable
        texts = len(queries) == 0 or isinstance(queries[0], str)
        request = Request(
            k, mode or self.usual_mode(texts=texts), as_filter(filter), reranker, candidates, budget=rerank_budget
        )
        if len(queries) == 0:
            return []
        clock, run = Clock(), self._runner()
        asked = self._asked(queries, request)
        if asked.texts is not None and request.mode != "keyword":
            threshold = self.model.thresholds.get("answer")
            request = replace(request, answer=None if threshold is None else threshold.value)
        clock.lap("encode")
        return run(asked, request, clock)

    def usual_mode(self, *, texts: bool = True) -> Mode:
        """The mode of a search that names none."""
        return "hybrid" if texts and self.options.keyword else "semantic"

    def search_ready(self, asked: Asked, request: Request) -> list[Results]:
        """`search_many` for texts whose vectors are there already, where models compute elsewhere."""
        ready = None if asked.vectors is None else searching.check_vectors(asked.vectors, self.dimension)
        return self._runner()(Asked(asked.texts, ready), request, Clock())

    def _runner(self) -> Callable[[Asked, Request, Clock], list[Results]]:
        """What searches the index as it is now; an index that `reencode` moves meanwhile is an error, no wrong hit."""
        derived, title = self._derived, self.options.title

        def run(asked: Asked, request: Request, clock: Clock) -> list[Results]:
            scale = self._similarity_scale() if asked.vectors is not None else None
            return searching.run(asked, request, derived, self._columns, clock, scale=scale, title=title)

        return run

    def _similarity_scale(self) -> SimilarityScale | None:
        """The scale of the model; None where only vectors are at hand."""
        with self._loading:
            if self._scale is None and self._model is not None:
                self._scale = SimilarityScale.of(self._model)
            return self._scale

    def more_like(
        self,
        id: str | int,
        k: int = 10,
        *,
        filter: FilterLike = None,
        reranker: CrossEncoder | None = None,
        candidates: int | None = None,
        rerank_budget: float | None = None,
    ) -> Results:
        """The documents nearest to one that is in the index, without itself.

        It is searched for by the mean of its passages' vectors; a reranker reads its first passage as the query.
        """
        name = id_of(id, "a document")
        request = Request(k, "semantic", as_filter(filter), reranker, candidates, without=name, budget=rerank_budget)
        clock, run = Clock(), self._runner()
        vectors, text = self._likeness(name)
        if not len(vectors):
            raise InputError(f"document {name!r} has no words, so nothing is like it")
        mean = vectors.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
        clock.lap("fetch")
        return run(Asked(None if reranker is None else [text], mean), request, clock)[0]

    def _likeness(self, id: str) -> tuple[Vectors, str]:
        """The vectors of a document's passages [n, d], and the text of the first."""
        with self._store.reading() as state:
            row = state.row_of(id)
            numbers = state.passages_of(row) if row is not None else self._unknown(id)
            if not len(numbers):
                return np.zeros((0, self.dimension), np.float32), ""
            _, passage = state.passages([int(numbers[0])], whole=False)[int(numbers[0])]
            return state.vectors(numbers), passage.text

    def nearest(self, vectors: Any, k: int, *, filter: FilterLike = None) -> Found:
        """The passages nearest to vectors [q, d]: their numbers and scores, [q, k], without documents."""
        condition = Request(k, "semantic", as_filter(filter), None, 1).filter
        queries = searching.check_vectors(vectors, self.dimension)
        with self._derived.session(dense=True, keyword=False) as session:
            allowed = searching.allowed_passages(session.state, self._columns, condition)
            assert session.dense is not None
            return session.dense.search(queries, k, allowed=allowed)

    def _asked(self, queries: Any, request: Request) -> Asked:
        if not isinstance(queries[0], str):
            if request.mode != "semantic" or request.reranker is not None:
                raise InputError("a vector can only be searched for by mode='semantic', without a reranker: give texts")
            return Asked(None, searching.check_vectors(queries, self.dimension))
        texts = searching.check_texts(queries)
        return Asked(texts, None if request.mode == "keyword" else self.model.encode_query(texts))

    # --- the whole of it ---------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress = False) -> verifying.VerifyReport:
        """Look whether everything is whole: the database, every vector and offset, the derived structures."""
        return verifying.verify(self._store, self._derived, self._codec, self._identity.similarity, progress=progress)

    def export(self, path: str | Path, *, overwrite: bool = False, progress: Progress = False) -> int:
        """Write all documents with passages and vectors to a .parquet file; returns how many documents."""
        header = {"model": self._identity.as_json(), "options": self.options.as_json()}
        return transfer.export(self._store, Path(path), header, overwrite=overwrite, progress=progress)

    @classmethod
    def import_(
        cls,
        source: str | Path,
        to: str | Path,
        model: BiEncoder | None = None,
        *,
        options: IndexOptions | None = None,
        progress: Progress = False,
    ) -> Index:
        """Make an index from a file that `export` wrote; nothing is encoded, so the model must be the same.

        options: another layout, such as vectors="int8"; passages stay as they were cut.
        """
        header = transfer.read_header(Path(source))
        identity = Identity(**header["model"])
        model = identity.load(Path(source)) if model is None else model
        identity.check(model, Path(source))
        index = cls.create(to, model, options=options or IndexOptions.from_json(header["options"]))
        try:
            with track(progress, header["documents"]) as done:
                index._fill(Path(source), done)
        except BaseException:
            index._undo()
            raise
        return index

    def end(self) -> End:
        """The index as a copy reads or writes it (`munjang.index.remote.copying.copy`)."""
        return FolderEnd(self._store, self._derived, self._codec)

    def _fill(self, source: Path, done: Callable[[int], None]) -> None:
        with self._store.writing() as connection:
            transfer.fill(connection, source, self._codec, done)
            self._derived.save(connection, always=True)

    def _undo(self) -> None:
        """Take away an index that nobody has seen."""
        self.close()
        take_away(self._folder)

    def close(self) -> None:
        """Let go of the files. What was written is saved already; this makes the next opening quick."""
        if self._wrote:
            self._wrote = False
            with contextlib.suppress(DataError), self._store.writing() as connection:  # another one may be writing now
                self._derived.save(connection, always=True)
        self._store.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, model={self._identity.source!r}, dimension={self.dimension})"


def _remote() -> type[RemoteIndex]:
    from munjang.index.remote.index import RemoteIndex  # it stands on this module

    return RemoteIndex


def _numbers(query: Any) -> Any:
    return query.numpy(force=True) if hasattr(query, "numpy") else query
