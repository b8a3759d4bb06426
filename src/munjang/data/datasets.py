"""Public data sets by name: their files in a folder, how each is read, and what it may be used for.

Nothing is downloaded. A file is looked for in its own folder, as `korsts/sts-train.tsv`, and then directly in the given
folder; a compressed one (.gz, .xz, .bz2) serves as well. Tab-separated files are read with quoting off: KorSTS and
others have bare quotation marks inside their sentences, and a quoting reader joins rows there without a word. Rows
without a gold label (`-`, -1, a blank score) are refused and counted.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from munjang.data.columns import Kind, named_column
from munjang.data.encodings import text_lines
from munjang.data.examples import Examples, Retrieval, join
from munjang.data.readers import COMPRESSED_SUFFIXES, RowFile, json_lines, open_binary, read_lines
from munjang.data.reading import NLI_LABELS, LabelMap, ReadingCounter, read_examples
from munjang.data.rows import Format, ReadOptions, Row, RowSource, Table
from munjang.errors import DataError, InputError

Use = Literal["train", "evaluation", "experiment"]  # experiment: train and report, but not into shipped models
Set = TypeVar("Set", Examples, Retrieval)
Reader: TypeAlias = Callable[[Path], Examples]
Change: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, object] | str | None]

_NSMC_TEST = 0.1  # of the rows; the set has no test split
_STS_RANGE = (0.0, 5.0)
_POLARITY = ("negative", "positive")
_TOPICS = ("IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치")
_PARAKQC_GROUP = 10  # consecutive sentences with the same meaning
_MNLI_QUESTION = re.compile(
    r'For the statement, "(?P<a>.*)", does the hypothesis "(?P<b>.*)"'
    r" represent entailment, contradiction, or neutrality\?",
    re.DOTALL,
)
_WORDNET_MARK = re.compile(r"\((?:a|p|ip)\)$")
# the beginning of a SentEval file's name -> its labels
_SENTEVAL: dict[str, tuple[str, ...]] = {
    "rt-polarity": _POLARITY,
    "custrev": _POLARITY,
    "mpqa": _POLARITY,
    "subj": ("subjective", "objective"),
    "trec": ("description", "entity", "abbreviation", "human", "location", "number"),
    "stsa.binary": _POLARITY,
    "stsa.fine": ("very negative", "negative", "neutral", "positive", "very positive"),
}


@dataclass(frozen=True)
class Split(Generic[Set]):
    """The files of one split; several become one set."""

    files: tuple[str, ...]
    use: Use
    read: Callable[[Path], Set] | None = None  # where it differs from the set's own


@dataclass(frozen=True)
class Known(Generic[Set]):
    """A public data set: of examples, or for retrieval."""

    title: str
    splits: Mapping[str, Split[Set]]
    read: Callable[[Path], Set]
    licence: str


def load_dataset(name: str, split: str, folder: str | Path) -> Examples:
    """Load one split of a public data set, such as `load_dataset("korsts", "train", "data")`.

    Raises:
        InputError: there is no set or split of this name.
        DataError: a file is missing or cannot be read.
    """
    title, parts = _load(DATASETS, name, split, folder)
    return replace(parts[0], name=title) if len(parts) == 1 else join(parts, name=title)


def load_retrieval(name: str, split: str, folder: str | Path) -> Retrieval:
    """Load one split of a public data set for retrieval, such as `load_retrieval("korquad", "dev", "data")`."""
    title, (loaded,) = _load(RETRIEVAL_DATASETS, name, split, folder)
    return replace(loaded, name=title)


def find_files(name: str, split: str, folder: str | Path) -> list[Path]:
    """Return the paths of a split's files before any is read; a missing one is a `DataError`."""
    known = _known(DATASETS, name, split)
    return _find(known, split, Path(folder))


def _load(sets: Mapping[str, Known[Set]], name: str, split: str, folder: str | Path) -> tuple[str, list[Set]]:
    known = _known(sets, name, split)
    read = known.splits[split].read or known.read
    return f"{known.title} {split}", [read(path) for path in _find(known, split, Path(folder))]


def _known(sets: Mapping[str, Known[Set]], name: str, split: str) -> Known[Set]:
    if name not in sets:
        other = ": load it with load_retrieval" if name in RETRIEVAL_DATASETS else ""
        raise InputError(f"unknown set {name!r}{other}; known are {', '.join(sets)}")
    known = sets[name]
    if split not in known.splits:
        raise InputError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    return known


def _find(known: Known[Set], split: str, folder: Path) -> list[Path]:
    paths: list[Path] = []
    for file in known.splits[split].files:
        places = (folder / (place + end) for place in (file, Path(file).name) for end in ("", *COMPRESSED_SUFFIXES))
        path = next((path for path in places if path.exists()), None)
        if path is None:
            raise DataError(
                f"{known.title} {split}: there is no {file} (or {Path(file).name}, or one of them with "
                f"{', '.join(COMPRESSED_SUFFIXES)}) in the folder {folder}"
            )
        paths.append(path)
    return paths


def _rows(name: str, names: tuple[str, ...], rows: Iterator[Row], notes: tuple[str, ...] = ()) -> RowSource:
    return RowSource(name, lambda: Table(names, lambda columns: rows, notes=notes))


def _changed(source: RowSource, change: Change, *names: str) -> RowSource:
    """The rows of a source, each changed, to the columns `names` if they are new ones.

    `change` returns None for a row that does not count, and the reason for one to refuse.
    """
    table = source.open()

    def rows() -> Iterator[Row]:
        for row in table.read(None):
            changed = row.problem or change(row.values)
            if isinstance(changed, str):
                yield row._replace(problem=changed)
            elif changed is not None:
                yield row._replace(values=changed)

    return _rows(source.short_name, names or table.names, rows(), table.notes)


def _table(
    kind: Kind, *, format: Format | None = None, header: bool = True, split: str | None = None,
    label_map: LabelMap | None = None, score_range: tuple[float, float] | None = None, change: Change | None = None,
    **columns: str,
) -> Reader:  # fmt: skip
    """Return the reader of a table: role=column.

    Args:
        split: take the rows with this value in the column `split`.
        change: of each row, to one that has these columns.
    """

    def read(path: Path) -> Examples:
        source: RowSource = RowFile(
            path, ReadOptions(format, quoting=False if format == "tsv" else None, header=header)
        )
        if split is not None:
            source = _selected(source, "split", [split], keep=True)
        if change is not None:
            source = _changed(source, change, *columns.values())
        return read_examples(
            source, kind=kind, columns=columns or None, label_map=label_map, score_range=score_range, name=path.name,
            drop_outside=True,
        )  # fmt: skip

    return read


def _selected(source: RowSource, column: str, values: Collection[str], *, keep: bool) -> RowSource:
    """The rows with one of these values in the column, or all others; the others do not count."""
    seen: dict[str, None] = {}
    table = source.open()
    named_column(table.names, column, source.name)

    def rows() -> Iterator[Row]:
        for row in table.read(None):
            value = "" if row.problem else str(row.values[column])
            if not row.problem and len(seen) < 100:
                seen.setdefault(value)
            if row.problem or (value in values) == keep:
                yield row
        for value in values:
            if value not in seen:
                raise DataError(f"{source.name}: no row has {column} {value!r}; there are {', '.join(sorted(seen))}")

    return _rows(source.short_name, table.names, rows())


def _nli(a: str, b: str, label: str, *, format: Format | None = None, split: str | None = None) -> Reader:
    """Return the reader of an NLI table; entailment, neutral and contradiction have the ids 0, 1, 2."""
    return _table("labelled", format=format, split=split, label_map=NLI_LABELS, a=a, b=b, label=label)


def _sts(
    a: str = "sentence1", b: str = "sentence2", score: str = "score", *,
    format: Format | None = None, header: bool = True, change: Change | None = None,
) -> Reader:  # fmt: skip
    """Return the reader of two sentences and a score of 0..5."""
    return _table(
        "scored", format=format, header=header, score_range=_STS_RANGE, change=change, a=a, b=b, score=score
    )  # fmt: skip


def _klue_label(row: Mapping[str, Any]) -> Mapping[str, object]:
    """The official JSON list has objects as labels: take the real-valued one. A csv has it as a column."""
    labels = row.get("labels")
    return {**row, "label": labels.get("label")} if isinstance(labels, Mapping) else row


def _stsb(path: Path) -> Examples:
    """The STS benchmark: csv without a header (sentence, sentence, score), or the classic tsv with one."""
    is_csv = RowFile(path, ReadOptions()).kind == "csv"
    return (_sts("0", "1", "2", header=False) if is_csv else _sts(format="tsv"))(path)


def _sts_year(folder: Path) -> Examples:
    """All test files of one year of SemEval STS as one set; a blank score is refused."""
    files = sorted(folder.glob("*.test.tsv"))
    if not files:
        raise DataError(f"{folder}: there is no file *.test.tsv in this folder")
    return join(list(map(_sts("1", "2", "0", format="tsv", header=False), files)), name=folder.name)


def _snli(path: Path) -> Examples:
    """SNLI: tsv with premise, hypothesis and label (0, 1, 2), or with sentence1, sentence2 and gold_label."""
    is_official = "gold_label" in RowFile(path, ReadOptions("tsv", quoting=False)).open().names
    columns = ("sentence1", "sentence2", "gold_label") if is_official else ("premise", "hypothesis", "label")
    return _nli(*columns, format="tsv")(path)


def _mnli_parts(row: Mapping[str, Any]) -> Mapping[str, object] | str:
    """MultiNLI as a csv of questions: premise and hypothesis are inside one text, the label is the answer."""
    match = _MNLI_QUESTION.fullmatch(str(row.get("Question")).strip())
    if match is None:
        return "no premise and hypothesis inside the question"
    return {**match.groupdict(), "label": row.get("Answer")}


def _translations(source: RowSource, name: str) -> Examples:
    return read_examples(source, kind="pairs", columns={"anchor": "en", "positive": "ko"}, name=name)


def parallel(path: Path, *, without: Collection[str] = ()) -> Examples:
    """Translations: tsv with en, ko and source; anchor is English, positive is Korean; without some of the sources."""
    source = RowFile(path, ReadOptions("tsv", quoting=False))
    return _translations(_selected(source, "source", without, keep=False), path.name)


def parallel_by_source(path: str | Path, *, encoding: str | None = None) -> dict[str, Examples]:
    """Translations as one set for every source, so that each can have its own weight."""
    source = RowFile(Path(path), ReadOptions("tsv", encoding, quoting=False))
    table = source.open()
    named_column(table.names, "source", source.name)
    by_source: dict[str, list[Row]] = {}
    current = ""
    for row in table.read(None):
        current = current if row.problem else str(row.values["source"])  # a broken row counts with the one before
        by_source.setdefault(current, []).append(row)
    return {
        name: _translations(_rows(source.short_name, table.names, iter(rows)), name) for name, rows in by_source.items()
    }


def _tatoeba(folder: Path) -> Examples:
    """Two aligned files, *.eng and *.kor: anchor is English, positive is Korean; line n translates line n."""
    paths: list[Path] = []
    for suffix in (".eng", ".kor"):
        files = sorted(folder.glob(f"*{suffix}"))
        if len(files) != 1:
            raise DataError(f"{folder}: expected one file *{suffix} in this folder, found {len(files)}")
        paths.append(files[0])

    def aligned() -> Iterator[Row]:
        for number, (english, korean) in enumerate(zip_longest(*map(read_lines, paths)), start=1):
            if english is None or korean is None:
                shorter = paths[korean is None].name
                raise DataError(
                    f"{paths[0]} and {paths[1]} must have the same number of lines; {shorter} ends at {number}"
                )
            yield Row(f"line {number}", {"en": english, "ko": korean})

    return _translations(_rows(f"{paths[0].name} and {paths[1].name}", ("en", "ko"), aligned()), folder.name)


def _synset(row: Mapping[str, Any]) -> Mapping[str, object] | str | None:
    """A line of one of WordNet's files data.*: a word with its synonyms, and their meaning.

    It is `offset file kind count word id [word id ...] ... | meaning; "examples"`, the count in hexadecimal; lines of
    the licence begin with a space. Adjectives may carry a mark: 'galore(ip)'.
    """
    if row["text"].startswith(" "):
        return None
    left, mark, meaning = row["text"].partition(" | ")
    cells = left.split()
    try:
        count = int(cells[3], 16)
    except (IndexError, ValueError):
        count = 0
    words = [_WORDNET_MARK.sub("", word).replace("_", " ") for word in cells[4 : 4 + 2 * count : 2]]
    if not mark or not count or len(words) != count:
        return "no line of WordNet: expected 'offset file kind count word id ... | meaning'"
    return {"words": ", ".join(words), "meaning": meaning.strip()}


def _senteval_class(row: Mapping[str, Any]) -> Mapping[str, object] | str | None:
    label, space, text = row["text"].partition(" ")
    if label and not space:
        return "no space between label and text"
    return {"label": label, "text": text} if space else None


def _senteval(path: Path) -> Examples:
    """A SentEval file: on every line the number of the class, a space, the text.

    Files that are not valid UTF-8 are read as cp1252, or as Latin-1 where that fails, and the report says so.
    """
    labels = next((names for start, names in _SENTEVAL.items() if path.name.lower().startswith(start)), None)
    if labels is None:
        raise DataError(f"{path}: not a known SentEval file; expected a name that begins with {', '.join(_SENTEVAL)}")
    with open_binary(path) as binary:
        content = binary.read()
    encoding = next(encoding for encoding in ("utf-8", "cp1252", "latin-1") if _decodes(content, encoding))
    source = _changed(RowFile(path, ReadOptions("txt", encoding)), _senteval_class, "label", "text")
    examples = read_examples(source, kind="classified", label_map=labels, name=path.name, drop_outside=True)
    notes = () if encoding == "utf-8" else (f"read as {encoding}",)
    return replace(examples, reading=examples.reading.refusing({}, *notes))


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _parakqc(path: Path) -> Examples:
    """ParaKQC: tsv of topic, type and text; ten consecutive sentences mean the same, and their group is their label."""
    rows: list[Row] = []
    for number, line in enumerate(read_lines(path)):
        fields = line.split("\t")
        if len(fields) != 3:  # a line left out would shift every group after it
            raise DataError(f"{path}, line {number + 1}: expected 3 fields (topic, type, text), got {len(fields)}")
        rows.append(Row(f"line {number + 1}", {"label": f"group {number // _PARAKQC_GROUP:04}", "text": fields[2]}))
    if len(rows) % _PARAKQC_GROUP:
        raise DataError(f"{path}: expected groups of {_PARAKQC_GROUP} lines, got {len(rows):,} lines")
    return read_examples(_rows(path.name, ("label", "text"), iter(rows)), kind="classified", name=path.name)


_reviews = _table("classified", format="tsv", label_map=_POLARITY, text="document", label="label")


def _nsmc_part(path: Path, *, part: Literal[0, 1]) -> Examples:
    """NSMC re-sampled has one file: nine tenths of it are for training, the rest for testing, always the same."""
    return _reviews(path).split(_NSMC_TEST, seed=0)[part]


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
        key: f"{item.get('title') or ''} {item.get('text') or ''}".strip()
        for key, item in _beir_objects(path, "corpus.jsonl")
    }
    texts = {key: item.get("text") or "" for key, item in _beir_objects(path, "queries.jsonl")}
    judgements = [
        (number, line.split("\t"))
        for number, line in enumerate(text_lines(_beir_member(path, f"qrels/{split}.tsv")), start=1)
        if number > 1 and line.strip()  # the first line is the header
    ]
    counter = ReadingCounter(f"{path.stem} qrels/{split}.tsv")
    relevant: dict[str, dict[str, int]] = {}
    for number, fields in judgements:
        if len(fields) != 3:
            problem = f"{len(fields)} fields instead of 3"
        elif not texts.get(fields[0], "").strip():
            problem = "the query is not there, or empty"
        elif fields[1] not in corpus:
            problem = "the document is not there"
        else:
            problem = "" if re.fullmatch(r"\s*[+-]?\d+(\.0*)?\s*", fields[2]) else "the grade is not a whole number"
        if problem:
            counter.refuse(f"line {number}", problem, fields)
        else:
            relevant.setdefault(fields[0], {})[fields[1]] = int(float(fields[2]))
    reading = counter.reading(len(judgements))
    if not relevant:
        raise DataError(f"{path.stem}: not one judgement of the split {split!r} can be used: {reading}")
    return Retrieval(name or path.stem, {query: texts[query] for query in relevant}, corpus, relevant, reading)


def _beir_objects(path: Path, member: str) -> Iterator[tuple[str, dict[str, str]]]:
    where = f"{path}, {member}"
    for place, value in json_lines(_beir_member(path, member), where):
        if not isinstance(value, dict) or "_id" not in value:
            raise DataError(f"{where}, {place}: expected an object with _id")
        yield str(value["_id"]), value


def _beir_member(path: Path, member: str) -> Iterable[str]:
    """The content of a file of the set, in pieces."""
    if path.is_dir():
        return RowFile(path / member, ReadOptions("txt")).content()
    try:
        with zipfile.ZipFile(path) as file:
            members = [name for name in file.namelist() if name == member or name.endswith(f"/{member}")]
            if len(members) != 1:
                raise DataError(f"{path}: expected one {member} inside, found {len(members)}")
            return [file.read(members[0]).decode("utf-8-sig")]
    except (UnicodeDecodeError, zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path}, {member}: expected a folder or a zip in BEIR's layout: {error}") from None


def _splits(folder: str, use: Use | None = None, **files: str | tuple[str, ...]) -> dict[str, Split[Any]]:
    """Splits by name. By default `train` is for training, the others are for evaluation."""
    return {
        split: Split(
            tuple(f"{folder}/{file}" for file in ([names] if isinstance(names, str) else names)),
            use or ("train" if split == "train" else "evaluation"),
        )
        for split, names in files.items()
    }


def _academic(title: str, **files: str) -> Known[Examples]:
    return Known(title, _splits("senteval", "evaluation", **files), _senteval, "classic academic set")


def _with_readers(
    splits: dict[str, Split[Any]], reader: Callable[[str], Callable[[Path], Any]]
) -> dict[str, Split[Any]]:
    """Splits that are read differently from the same file."""
    return {name: replace(split, read=reader(name)) for name, split in splits.items()}


_CC_BY_SA = "CC BY-SA 4.0"
_SEMEVAL = "SemEval terms"
_ALLNLI = partial(_nli, "sentence1", "sentence2", "label", format="tsv")  # SNLI and MultiNLI, all splits in one file
_NSMC = "nsmc_balanced_200k.tsv"

DATASETS: dict[str, Known[Examples]] = {
    "korsts": Known(
        "KorSTS", _splits("korsts", train="sts-train.tsv", dev="sts-dev.tsv", test="sts-test.tsv"), _sts(format="tsv"),
        _CC_BY_SA,
    ),
    "klue-sts": Known(
        "KLUE-STS", _splits("klue-sts", train="train.csv", dev="dev.csv"), _sts(score="label", change=_klue_label),
        _CC_BY_SA,
    ),
    "stsb": Known(
        "STSb", _splits("stsb-en", train="stsb-en-train.csv", dev="stsb-en-dev.csv", test="stsb-en-test.csv"), _stsb,
        _SEMEVAL,
    ),
    **{
        f"sts{year}": Known(f"STS{year}", _splits("sts12-16", test=f"20{year}"), _sts_year, _SEMEVAL)
        for year in range(12, 17)
    },
    "klue-nli": Known(
        "KLUE-NLI", _splits("klue-nli", train="train.json", dev="dev.json"),
        _nli("premise", "hypothesis", "gold_label"), _CC_BY_SA,
    ),
    "kornli": Known(
        "KorNLI",
        _splits("kornli", train=("multinli.train.ko.tsv", "snli_1.0_train.ko.tsv"))
        | _splits("kornli", "experiment", dev="xnli.dev.ko.tsv", test="xnli.test.ko.tsv"),
        _nli("sentence1", "sentence2", "gold_label", format="tsv"),
        "CC BY-SA 4.0; dev and test are XNLI: non-commercial",
    ),
    "allnli": Known(
        "AllNLI",
        _with_readers(
            _splits("allnli", train="AllNLI.tsv", dev="AllNLI.tsv", test="AllNLI.tsv"), lambda name: _ALLNLI(split=name)
        ),
        _ALLNLI(split="train"), "SNLI: CC BY-SA 4.0; MultiNLI: OANC and others",
    ),
    "snli": Known(  # dev and test serve to train, as the training split is not among the files: never report on them
        "SNLI", _splits("snli-en", "train", dev="validation.tsv", test="test.tsv"), _snli, _CC_BY_SA
    ),
    "mnli": Known(
        "MultiNLI", _splits("mnli-en", "train", train="mnli_train.csv", dev="mnli_validation.csv"),
        _table("labelled", label_map=NLI_LABELS, change=_mnli_parts, a="a", b="b", label="label"), "OANC and others",
    ),
    "parallel": Known(
        "parallel en-ko", _splits("parallel-en-ko", train="train.tsv"),
        partial(parallel, without=("xnli-dev", "wikiqa")),
        "per source; less the two sources that may not go into shipped models",
    ),
    "parallel-all": Known(
        "parallel en-ko, all sources", _splits("parallel-en-ko", "experiment", train="train.tsv"), parallel,
        "per source; two of them not for shipped models",
    ),
    "tatoeba": Known("Tatoeba en-ko", {"test": Split(("tatoeba-en-ko",), "evaluation")}, _tatoeba, "CC BY 2.0"),
    "question-pair": Known(  # in the file 0 means same and 1 different; here 'same' has the id 1
        "Question pair", _splits("question-pair", train="kor_pair_train.csv", test="kor_Pair_test.csv"),
        _table(
            "labelled", label_map={"1": "different", "0": "same"}, a="question1", b="question2", label="is_duplicate"
        ),
        "MIT",
    ),
    "chatbot": Known(
        "Chatbot", _splits("chatbot", train="ChatbotData.csv"), _table("pairs", anchor="Q", positive="A"), "MIT"
    ),
    "wordnet": Known(  # Debian's package wordnet-base has the files
        "WordNet", _splits("wordnet", train=("data.noun", "data.verb", "data.adj", "data.adv")),
        _table("pairs", format="txt", change=_synset, anchor="words", positive="meaning"),
        "WordNet 3.0 licence: any use, the notice kept",
    ),
    "parakqc": Known("ParaKQC", _splits("parakqc", test="paraKQC_v1.txt"), _parakqc, _CC_BY_SA),
    "ynat": Known(
        "YNAT", _splits("ynat", train="train.csv", dev="val.csv", test="test.csv"),
        _table("classified", label_map=_TOPICS, text="title", label="topic"), "CC BY-SA 4.0; not the official split",
    ),
    "nsmc": Known(
        "NSMC",
        _with_readers(
            _splits("nsmc", train=_NSMC, test=_NSMC), lambda name: partial(_nsmc_part, part=0 if name == "train" else 1)
        ),
        _reviews, "CC0; our own split, nine to one",
    ),
    "nsmc-reviews": Known(
        "NSMC reviews", _splits("nsmc", train="reviews.txt"), _table("plain", format="txt"), "CC0"
    ),
    "banking77": Known(  # both for few-shot evaluation
        "Banking77", _splits("banking77", "evaluation", train="train.csv", test="test.csv"),
        _table("classified", text="text", label="category"), "CC BY 4.0",
    ),
    "mr": _academic("MR", all="rt-polarity.all"),
    "cr": _academic("CR", all="custrev.all"),
    "subj": _academic("SUBJ", all="subj.all"),
    "mpqa": _academic("MPQA", all="mpqa.all"),
    "trec": _academic("TREC", train="TREC.train.all", test="TREC.test.all"),
    "sst2": _academic("SST-2", train="stsa.binary.train", dev="stsa.binary.dev", test="stsa.binary.test"),
    "sst5": _academic("SST-5", train="stsa.fine.train", dev="stsa.fine.dev", test="stsa.fine.test"),
}  # fmt: skip

RETRIEVAL_DATASETS: dict[str, Known[Retrieval]] = {
    "korquad": Known(
        "KorQuAD", _splits("korquad1", dev="dev.json"), korquad, "CC BY-ND 2.0 KR: no text of it may be shipped"
    ),
    "nfcorpus": Known(
        "NFCorpus",
        _with_readers(
            _splits("nfcorpus", "evaluation", train="nfcorpus.zip", dev="nfcorpus.zip", test="nfcorpus.zip"),
            lambda name: partial(beir, split=name),
        ),
        beir, "research",
    ),
}  # fmt: skip
