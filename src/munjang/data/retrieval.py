"""Questions, passages, and which passage answers which question: KorQuAD, and sets in the layout of BEIR."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from munjang.data.building import Array
from munjang.data.examples import Examples
from munjang.data.files import TextSource
from munjang.data.reading import Counting, Reading
from munjang.errors import DataError, InputError


@dataclass(frozen=True)
class Retrieval:
    """A corpus to search, queries, and what is relevant to each of them."""

    name: str
    queries: dict[str, str]  # id -> text
    corpus: dict[str, str]  # id -> text
    relevant: dict[str, dict[str, int]]  # query id -> document id -> grade; 0 is not relevant
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        unasked = [query for query in self.relevant if query not in self.queries]
        unknown = {document for grades in self.relevant.values() for document in grades if document not in self.corpus}
        if unasked or unknown:
            what, ids = ("queries", unasked) if unasked else ("documents", sorted(unknown))
            raise InputError(
                f"{self.name}: {len(ids):,} {what} of `relevant` are not there, such as {', '.join(islice(ids, 3))}"
            )

    def __len__(self) -> int:
        """How many queries have something relevant."""
        return sum(any(grade > 0 for grade in grades.values()) for grades in self.relevant.values())

    def as_ranked(self) -> Examples:
        """The judged pairs of query and document, for reranking and for the leakage check."""
        pairs = [
            (query, document, grade) for query, found in self.relevant.items() for document, grade in found.items()
        ]
        numbers = {query: place for place, query in enumerate(self.relevant)}
        groups: Array = np.asarray([numbers[query] for query, _, _ in pairs], dtype=np.int64)
        return Examples(
            self.name,
            "ranked",
            {
                "query": [self.queries[query] for query, _, _ in pairs],
                "document": [self.corpus[document] for _, document, _ in pairs],
            },
            np.asarray([grade for _, _, grade in pairs], dtype=np.float32),
            groups=groups,
            reading=self.reading,
        )


def korquad(path: str | Path, *, name: str = "KorQuAD") -> Retrieval:
    """KorQuAD 1.0 (SQuAD's layout): its passages are the corpus; each question has the passage it was asked about."""
    source = TextSource(path, format="json")
    try:
        content = json.loads("".join(source.content()))
        paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
        asked = [(question, paragraph["context"]) for paragraph in paragraphs for question in paragraph["qas"]]
        questions = [(str(question["id"]), str(question["question"]), str(context)) for question, context in asked]
        contexts = dict.fromkeys(str(paragraph["context"]) for paragraph in paragraphs)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{source.name}: expected SQuAD's layout, data > paragraphs > context and qas, but: {error!r}"
        ) from None
    passages = {text: f"passage-{place}" for place, text in enumerate(contexts)}
    counting = Counting(Path(path).name, "question")
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for number, (query, text, context) in enumerate(questions, start=1):
        problem = _problem_of_query(query, text, queries)
        if problem:
            counting.refuse(number, problem, (query, text))
            continue
        queries[query] = text
        relevant[query] = {passages[context]: 1}
    corpus = {place: text for text, place in passages.items()}
    return Retrieval(name, queries, corpus, relevant, counting.reading(len(questions)))


def beir(path: str | Path, *, split: str = "test", name: str | None = None) -> Retrieval:
    """A set in BEIR's layout, a folder or its zip: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    A document's text is its title and its text. Only the queries of the split are taken.
    """
    files = _BeirFiles(Path(path))
    corpus: dict[str, str] = {}
    for item in files.objects("corpus.jsonl"):
        corpus[item["_id"]] = f"{item.get('title') or ''} {item.get('text') or ''}".strip()
    texts = {item["_id"]: item.get("text") or "" for item in files.objects("queries.jsonl")}
    counting = Counting(f"{files.name} qrels/{split}.tsv", "line")
    relevant: dict[str, dict[str, int]] = {}
    rows = 0
    for number, fields in files.judgements(split):
        rows += 1
        problem = _problem_of_judgement(fields, texts, corpus)
        if problem:
            counting.refuse(number, problem, fields)
            continue
        relevant.setdefault(fields[0], {})[fields[1]] = int(float(fields[2]))
    if not relevant:
        raise DataError(f"{files.name}: not one judgement of the split {split!r} can be used: {counting.reading(rows)}")
    queries = {query: texts[query] for query in relevant}
    return Retrieval(name or files.name, queries, corpus, relevant, counting.reading(rows))


class _BeirFiles:
    """The files of a BEIR set, in a folder or in a zip."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.stem
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder")
        self._zip: zipfile.ZipFile | None = None
        if not path.is_dir():
            try:
                self._zip = zipfile.ZipFile(path)
            except (zipfile.BadZipFile, OSError) as error:
                raise DataError(f"{path}: expected a folder or a zip in BEIR's layout: {error}") from None

    def objects(self, member: str) -> Iterator[dict[str, str]]:
        for number, line in self._lines(member):
            try:
                value = json.loads(line)
                value["_id"] = str(value["_id"])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{self._path}, {member}, line {number}: expected an object with _id: {error!r}"
                ) from None
            yield value

    def judgements(self, split: str) -> Iterator[tuple[int, list[str]]]:
        """query, document, grade of every line below the header."""
        for number, line in self._lines(f"qrels/{split}.tsv"):
            if number > 1:
                yield number, line.split("\t")

    def _lines(self, member: str) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self._content(member).split("\n"), start=1):
            if line.strip():
                yield number, line.removesuffix("\r")

    def _content(self, member: str) -> str:
        if self._zip is None:
            return "".join(TextSource(self._path / member, format="txt").content())
        found = [name for name in self._zip.namelist() if name == member or name.endswith(f"/{member}")]
        if len(found) != 1:
            raise DataError(f"{self._path}: expected one {member} inside, found {len(found)}")
        try:
            return self._zip.read(found[0]).decode("utf-8-sig")
        except (UnicodeDecodeError, zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{self._path}, {member}: cannot be read: {error}") from None


def _problem_of_query(query: str, text: str, queries: Mapping[str, str]) -> str:
    if not text.strip():
        return "question is empty"
    return "the same id again" if query in queries else ""


def _problem_of_judgement(fields: list[str], queries: Mapping[str, str], corpus: Mapping[str, str]) -> str:
    if len(fields) != 3:
        return f"{len(fields)} fields instead of 3"
    query, document, grade = fields
    if not queries.get(query, "").strip():
        return "the query is not there, or empty"
    if document not in corpus:
        return "the document is not there"
    try:
        whole = float(grade).is_integer()
    except ValueError:
        whole = False
    return "" if whole else "the grade is not a whole number"
