"""`Retrieval`: queries, documents and which document answers which query; read from KorQuAD and BEIR's layout."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from munjang.data.examples import Examples
from munjang.data.readers import read_lines
from munjang.data.reading import Reading, ReadingCounter
from munjang.errors import DataError, InputError


@dataclass(frozen=True)
class Retrieval:
    """A corpus to search, queries, and the documents that are relevant to each of them."""

    name: str
    queries: dict[str, str]  # id -> text
    corpus: dict[str, str]  # id -> text
    relevant: dict[str, dict[str, int]]  # query id -> document id -> grade; 0 is not relevant
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        for what, texts in (("queries", self.queries), ("corpus", self.corpus)):
            wrong = next((key for key, text in texts.items() if not isinstance(text, str)), None)
            if wrong is not None:
                raise InputError(
                    f"{self.name}: {what}[{wrong!r}] must be a string, got {type(texts[wrong]).__name__}. An empty "
                    "text is '', a missing one must be left out or replaced"
                )
        queries = [query for query in self.relevant if query not in self.queries]
        documents = {
            document for grades in self.relevant.values() for document in grades if document not in self.corpus
        }
        for what, ids in (("queries", queries), ("documents", sorted(documents))):
            if ids:
                raise InputError(
                    f"{self.name}: {len(ids):,} {what} of `relevant` are not there, such as {', '.join(islice(ids, 3))}"
                )

    def __len__(self) -> int:
        """Number of queries with a relevant document."""
        return sum(any(grade > 0 for grade in grades.values()) for grades in self.relevant.values())

    def as_ranked(self) -> Examples:
        """Return the judged pairs of query and document, for reranking and for the leakage check."""
        pairs = [
            (query, document, grade) for query, grades in self.relevant.items() for document, grade in grades.items()
        ]
        numbers = {query: place for place, query in enumerate(self.relevant)}
        return Examples(
            self.name,
            "ranked",
            {
                "query": [self.queries[query] for query, _, _ in pairs],
                "document": [self.corpus[document] for _, document, _ in pairs],
            },
            np.asarray([grade for _, _, grade in pairs], dtype=np.float32),
            groups=np.asarray([numbers[query] for query, _, _ in pairs], dtype=np.int64),
            reading=self.reading,
        )


def korquad(path: str | Path, *, name: str = "KorQuAD") -> Retrieval:
    """Read KorQuAD 1.0 (SQuAD's layout): its passages are the corpus, a question's answer is in its own passage."""
    try:
        content = json.loads("\n".join(read_lines(path)))
        paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
        questions = [
            (str(question["id"]), str(question["question"]), str(paragraph["context"]))
            for paragraph in paragraphs
            for question in paragraph["qas"]
        ]
        contexts = dict.fromkeys(str(paragraph["context"]) for paragraph in paragraphs)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: expected SQuAD's layout, data > paragraphs > context and qas, but: {error!r}"
        ) from None
    passages = {text: f"passage-{place}" for place, text in enumerate(contexts)}
    counter = ReadingCounter(Path(path).name)
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for number, (query, text, context) in enumerate(questions, start=1):
        problem = "question is empty" if not text.strip() else "the same id again" if query in queries else ""
        if problem:
            counter.refuse(f"question {number}", problem, (query, text))
            continue
        queries[query] = text
        relevant[query] = {passages[context]: 1}
    corpus = {place: text for text, place in passages.items()}
    return Retrieval(name, queries, corpus, relevant, counter.reading(len(questions)))


def beir(path: str | Path, *, split: str = "test", name: str | None = None) -> Retrieval:
    """Read a set in BEIR's layout, a folder or its zip: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    A document's text is its title and its text. Only the queries of the split are taken.
    """
    path = Path(path)
    corpus = {
        item["_id"]: f"{item.get('title') or ''} {item.get('text') or ''}".strip()
        for item in _beir_objects(path, "corpus.jsonl")
    }
    texts = {item["_id"]: item.get("text") or "" for item in _beir_objects(path, "queries.jsonl")}
    counter, rows = ReadingCounter(f"{path.stem} qrels/{split}.tsv"), 0
    relevant: dict[str, dict[str, int]] = {}
    for number, line in _beir_lines(path, f"qrels/{split}.tsv"):
        if number == 1:
            continue  # the header
        rows += 1
        fields = line.split("\t")
        if len(fields) != 3:
            problem = f"{len(fields)} fields instead of 3"
        elif not texts.get(fields[0], "").strip():
            problem = "the query is not there, or empty"
        elif fields[1] not in corpus:
            problem = "the document is not there"
        else:
            problem = "" if _is_whole(fields[2]) else "the grade is not a whole number"
        if problem:
            counter.refuse(f"line {number}", problem, fields)
        else:
            relevant.setdefault(fields[0], {})[fields[1]] = int(float(fields[2]))
    if not relevant:
        raise DataError(f"{path.stem}: not one judgement of the split {split!r} can be used: {counter.reading(rows)}")
    queries = {query: texts[query] for query in relevant}
    return Retrieval(name or path.stem, queries, corpus, relevant, counter.reading(rows))


def _beir_objects(path: Path, member: str) -> Iterator[dict[str, str]]:
    for number, line in _beir_lines(path, member):
        try:
            value = json.loads(line)
            value["_id"] = str(value["_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, {member}, line {number}: expected an object with _id: {error!r}") from None
        yield value


def _beir_lines(path: Path, member: str) -> Iterator[tuple[int, str]]:
    """Number and content of the lines of a member that are not blank."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.is_dir():
        lines = read_lines(path / member)
    else:
        try:
            with zipfile.ZipFile(path) as file:
                members = [name for name in file.namelist() if name == member or name.endswith(f"/{member}")]
                if len(members) != 1:
                    raise DataError(f"{path}: expected one {member} inside, found {len(members)}")
                content = file.read(members[0]).decode("utf-8-sig")
        except (UnicodeDecodeError, zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{path}, {member}: expected a folder or a zip in BEIR's layout: {error}") from None
        lines = iter(content.split("\n"))
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.removesuffix("\r")


def _is_whole(number: str) -> bool:
    try:
        return float(number).is_integer()
    except ValueError:
        return False
