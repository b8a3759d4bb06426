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
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from munjang.data.columns import Kind, named_column
from munjang.data.examples import Examples, Retrieval, join
from munjang.data.files import COMPRESSED_SUFFIXES, RowFile, decodes, json_lines, open_binary, read_lines, text_lines
from munjang.data.reading import NLI_LABELS, LabelMap, ReadingCounter, read_examples
from munjang.data.rows import Change, Format, ReadOptions, Row, RowSource, Table
from munjang.errors import DataError, InputError

Use = Literal["train", "evaluation", "experiment"]  # experiment: train and report, but not into shipped models
Set = TypeVar("Set", Examples, Retrieval)
_TRAINABLE: tuple[Use, Use] = ("train", "evaluation")
_EVALUATION: tuple[Use, Use] = ("evaluation", "evaluation")
Reader: TypeAlias = Callable[[Path, str], Examples]  # a file and the name of the split

_POLARITY = ("negative", "positive")
_TOPICS = ("IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치")
_PARAKQC_GROUP = 10  # consecutive sentences with the same meaning
_MNLI_QUESTION = re.compile(
    r'For the statement, "(?P<a>.*)", does the hypothesis "(?P<b>.*)"'
    r" represent entailment, contradiction, or neutrality\?",
    re.DOTALL,
)
_SYNSET = re.compile(r"\S+\s+\S+\s+\S+\s+([0-9a-fA-F]+)\s+(.*?) \| (.*)")  # offset file kind count words | meaning
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


class Split(NamedTuple):
    """The files of one split; several become one set."""

    files: tuple[str, ...]
    use: Use


@dataclass(frozen=True)
class Known(Generic[Set]):
    """A public data set: of examples, or for retrieval."""

    title: str
    licence: str
    splits: Mapping[str, Split]
    read: Callable[[Path, str], Set]  # a file and the name of the split


def load_dataset(name: str, split: str, folder: str | Path) -> Examples:
    """Load one split of a public data set, such as `load_dataset("korsts", "train", "data")`.

    Raises:
        InputError: there is no set or split of this name.
        DataError: a file is missing or cannot be read.
    """
    known, paths = _find(DATASETS, name, split, folder)
    return join([known.read(path, split) for path in paths], name=f"{known.title} {split}")


def load_retrieval(name: str, split: str, folder: str | Path) -> Retrieval:
    """Load one split of a public data set for retrieval, such as `load_retrieval("korquad", "dev", "data")`."""
    known, (path,) = _find(RETRIEVAL_DATASETS, name, split, folder)
    return replace(known.read(path, split), name=f"{known.title} {split}")


def find_files(name: str, split: str, folder: str | Path) -> list[Path]:
    """Return the paths of a split's files before any is read; a missing one is a `DataError`."""
    return _find(DATASETS, name, split, folder)[1]


def _find(
    sets: Mapping[str, Known[Set]], name: str, split: str, folder: str | Path
) -> tuple[Known[Set], list[Path]]:  # fmt: skip
    if name not in sets:
        other = ": load it with load_retrieval" if name in RETRIEVAL_DATASETS else ""
        raise InputError(f"unknown set {name!r}{other}; known are {', '.join(sets)}")
    known = sets[name]
    if split not in known.splits:
        raise InputError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    paths: list[Path] = []
    for file in known.splits[split].files:
        tried = [Path(folder, name + end) for name in (file, Path(file).name) for end in ("", *COMPRESSED_SUFFIXES)]
        path = next((path for path in tried if path.exists()), None)
        if path is None:
            raise DataError(
                f"{known.title} {split}: there is no {file} (or {Path(file).name}, or one of them with "
                f"{', '.join(COMPRESSED_SUFFIXES)}) in the folder {folder}"
            )
        paths.append(path)
    return known, paths


def _table(
    kind: Kind, *, format: Format | None = None, header: bool = True, has_splits: bool = False,
    label_map: LabelMap | None = None, score_range: tuple[float, float] | None = None, change: Change | None = None,
    **columns: str,
) -> Reader:  # fmt: skip
    """Return the reader of a table: role=column.

    Args:
        has_splits: the file holds all splits, named in its column `split`.
        change: of each row, to one that has these columns.
    """
    options = ReadOptions(format, quoting=False if format == "tsv" else None, header=header)

    def read(path: Path, split: str) -> Examples:
        source: RowSource = RowFile(path, options)
        if has_splits:
            source = _selected(source, "split", [split], keep=True)
        if change is not None:
            source = source.map(change, tuple(columns.values()))
        return read_examples(
            source, kind=kind, columns=columns or None, label_map=label_map, score_range=score_range, name=path.name,
            drop_outside=True,
        )  # fmt: skip

    return read


# NLI: entailment, neutral and contradiction have the ids 0, 1, 2. STS: two sentences and a score of 0..5.
_nli = partial(_table, "labelled", label_map=NLI_LABELS)
_sts = partial(_table, "scored", score_range=(0.0, 5.0))
_plain_sts = partial(_sts, a="sentence1", b="sentence2", score="score")
_translations = partial(read_examples, kind="pairs", columns={"anchor": "en", "positive": "ko"})


def _rows(name: str, names: tuple[str, ...], rows: Iterable[Row]) -> RowSource:
    return RowSource(name, lambda: Table(names, lambda columns: iter(rows)))


def _selected(source: RowSource, column: str, values: Collection[str], *, keep: bool) -> RowSource:
    """The rows with one of these values in the column, or all others; the others do not count."""
    table = source.open()
    named_column(table.names, column, source.name)

    def rows() -> Iterator[Row]:
        seen: dict[str, None] = {}
        for row in table.read(None):
            value = None if row.problem else str(row.values[column])
            if value is not None and len(seen) < 100:
                seen.setdefault(value)
            if value is None or (value in values) == keep:
                yield row
        for value in values:
            if value not in seen:
                raise DataError(f"{source.name}: no row has {column} {value!r}; there are {', '.join(sorted(seen))}")

    return _rows(source.short_name, table.names, rows())


def _klue_label(row: Mapping[str, Any]) -> Mapping[str, object]:
    """The official JSON list has objects as labels: take the real-valued one. A csv has it as a column."""
    labels = row.get("labels")
    return {**row, "label": labels.get("label")} if isinstance(labels, Mapping) else row


def _stsb(path: Path, split: str) -> Examples:
    """The STS benchmark: csv without a header (sentence, sentence, score), or the classic tsv with one."""
    is_csv = RowFile(path, ReadOptions()).kind == "csv"
    return (_sts(header=False, a="0", b="1", score="2") if is_csv else _plain_sts(format="tsv"))(path, split)


def _sts_year(folder: Path, split: str) -> Examples:
    """All test files of one year of SemEval STS as one set; a blank score is refused."""
    files = sorted(folder.glob("*.test.tsv"))
    if not files:
        raise DataError(f"{folder}: there is no file *.test.tsv in this folder")
    read = _sts(format="tsv", header=False, a="1", b="2", score="0")
    return join([read(path, split) for path in files], name=folder.name)


def _snli(path: Path, split: str) -> Examples:
    """SNLI: tsv with premise, hypothesis and label (0, 1, 2), or with sentence1, sentence2 and gold_label."""
    if "gold_label" in RowFile(path, ReadOptions("tsv", quoting=False)).open().names:
        return _nli(format="tsv", a="sentence1", b="sentence2", label="gold_label")(path, split)
    return _nli(format="tsv", a="premise", b="hypothesis", label="label")(path, split)


def _mnli_parts(row: Mapping[str, Any]) -> Mapping[str, object] | str:
    """MultiNLI as a csv of questions: premise and hypothesis are inside one text, the label is the answer."""
    match = _MNLI_QUESTION.fullmatch(str(row.get("Question")).strip())
    if match is None:
        return "no premise and hypothesis inside the question"
    return {**match.groupdict(), "label": row.get("Answer")}


def parallel(path: Path, split: str = "train", *, without: Collection[str] = ()) -> Examples:
    """Translations: tsv with en, ko and source; anchor is English, positive is Korean; without some of the sources."""
    source = RowFile(path, ReadOptions("tsv", quoting=False))
    return _translations(_selected(source, "source", without, keep=False), name=path.name)


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
        name: _translations(_rows(source.short_name, table.names, rows), name=name) for name, rows in by_source.items()
    }


def _tatoeba(folder: Path, split: str) -> Examples:
    """Two aligned files, *.eng and *.kor: anchor is English, positive is Korean; line n translates line n."""
    lines: list[list[str]] = []
    for suffix in (".eng", ".kor"):
        files = sorted(folder.glob(f"*{suffix}"))
        if len(files) != 1:
            raise DataError(f"{folder}: expected one file *{suffix} in this folder, found {len(files)}")
        lines.append(list(read_lines(files[0])))
    english, korean = lines
    if len(english) != len(korean):
        raise DataError(
            f"{folder}: the files *.eng and *.kor must have the same number of lines, got {len(english):,} and "
            f"{len(korean):,}"
        )
    pairs = enumerate(zip(english, korean, strict=True), start=1)
    rows = (Row(f"line {number}", {"en": en, "ko": ko}) for number, (en, ko) in pairs)
    return _translations(_rows(folder.name, ("en", "ko"), rows), name=folder.name)


def _synset(row: Mapping[str, Any]) -> Mapping[str, object] | str | None:
    """A line of one of WordNet's files data.*: a word with its synonyms, and their meaning.

    It is `offset file kind count word id [word id ...] ... | meaning; "examples"`, the count in hexadecimal; lines of
    the licence begin with a space. Adjectives may carry a mark: 'galore(ip)'.
    """
    if row["text"].startswith(" "):
        return None
    match = _SYNSET.fullmatch(row["text"])
    count = int(match[1], 16) if match else 0
    words = match[2].split()[: 2 * count : 2] if match else []
    if not match or not count or len(words) != count:
        return "no line of WordNet: expected 'offset file kind count word id ... | meaning'"
    plain = ", ".join(_WORDNET_MARK.sub("", word).replace("_", " ") for word in words)
    return {"words": plain, "meaning": match[3].strip()}


def _senteval(path: Path, split: str) -> Examples:
    """A SentEval file: on every line the number of the class, a space, the text.

    Files that are not valid UTF-8 are read as cp1252, or as Latin-1 where that fails, and the report says so.
    """
    labels = next((names for start, names in _SENTEVAL.items() if path.name.lower().startswith(start)), None)
    if labels is None:
        raise DataError(f"{path}: not a known SentEval file; expected a name that begins with {', '.join(_SENTEVAL)}")

    def parts(row: Mapping[str, Any]) -> Mapping[str, object] | str | None:
        label, space, text = row["text"].partition(" ")
        if label and not space:
            return "no space between label and text"
        return {"label": label, "text": text} if space else None

    with open_binary(path) as file:
        content = file.read()
    encoding = next(encoding for encoding in ("utf-8", "cp1252", "latin-1") if decodes(content, encoding))
    source = RowFile(path, ReadOptions("txt", encoding)).map(parts, ("label", "text"))
    examples = read_examples(source, kind="classified", label_map=labels, name=path.name, drop_outside=True)
    notes = () if encoding == "utf-8" else (f"read as {encoding}",)
    return replace(examples, reading=examples.reading.refusing({}, *notes))


def _parakqc(path: Path, split: str) -> Examples:
    """ParaKQC: tsv of topic, type and text; ten consecutive sentences mean the same, and their group is their label."""
    lines = list(RowFile(path, ReadOptions("tsv", quoting=False, header=False)))  # a broken row would shift all groups
    if len(lines) % _PARAKQC_GROUP:
        raise DataError(f"{path}: expected groups of {_PARAKQC_GROUP} lines, got {len(lines):,} lines")
    rows = [
        Row(line.place, {"label": f"group {at // _PARAKQC_GROUP:04}", "text": line.values.get("2")})
        for at, line in enumerate(lines)
    ]
    return read_examples(_rows(path.name, ("label", "text"), rows), kind="classified", name=path.name)


def _nsmc(path: Path, split: str) -> Examples:
    """NSMC re-sampled has one file: nine tenths of it are for training, the rest for testing, always the same."""
    read = _table("classified", format="tsv", label_map=_POLARITY, text="document", label="label")
    return read(path, split).split(0.1, seed=0)[("train", "test").index(split)]


def korquad(path: str | Path, split: str = "dev") -> Retrieval:
    """Read KorQuAD 1.0 (SQuAD's layout): its passages are the corpus, a question's answer is in its own passage."""
    try:
        articles = json.loads("\n".join(read_lines(path)))["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        contexts = dict.fromkeys(str(paragraph["context"]) for paragraph in paragraphs)
        questions = [
            (str(question["id"]), str(question["question"]), str(paragraph["context"]))
            for paragraph in paragraphs
            for question in paragraph["qas"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: expected SQuAD's layout, data > paragraphs > context and qas, but: {error!r}"
        ) from None
    passages = {text: f"passage-{at}" for at, text in enumerate(contexts)}
    counter = ReadingCounter(Path(path).name)
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for number, (query, text, context) in enumerate(questions, start=1):
        problem = "question is empty" if not text.strip() else "the same id again" if query in queries else ""
        if problem:
            counter.refuse(f"question {number}", problem, (query, text))
        else:
            queries[query] = text
            relevant[query] = {passages[context]: 1}
    corpus = {passage: text for text, passage in passages.items()}
    return Retrieval("KorQuAD", queries, corpus, relevant, counter.reading(len(questions)))


def beir(path: str | Path, split: str = "test") -> Retrieval:
    """Read a set in BEIR's layout, a folder or its zip: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    A document's text is its title and its text. Only the queries of the split are taken.
    """
    path = Path(path)

    def objects(member: str) -> Iterator[tuple[str, dict[str, str]]]:
        for place, value in json_lines(_beir_member(path, member), f"{path}, {member}"):
            if not isinstance(value, dict) or "_id" not in value:
                raise DataError(f"{path}, {member}, {place}: expected an object with _id")
            yield str(value["_id"]), value

    corpus = {
        key: f"{item.get('title') or ''} {item.get('text') or ''}".strip() for key, item in objects("corpus.jsonl")
    }
    texts = {key: item.get("text") or "" for key, item in objects("queries.jsonl")}
    lines = text_lines(_beir_member(path, f"qrels/{split}.tsv"))
    next(lines, None)  # the header
    counter = ReadingCounter(f"{path.stem} qrels/{split}.tsv")
    relevant: dict[str, dict[str, int]] = {}
    count = 0
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        count += 1
        fields = line.split("\t")
        if len(fields) != 3:
            problem = f"{len(fields)} fields instead of 3"
        elif not texts.get(fields[0], "").strip():
            problem = "the query is not there, or empty"
        elif fields[1] not in corpus:
            problem = "the document is not there"
        elif not re.fullmatch(r"\s*[+-]?\d+(\.0*)?\s*", fields[2]):
            problem = "the grade is not a whole number"
        else:
            relevant.setdefault(fields[0], {})[fields[1]] = int(float(fields[2]))
            continue
        counter.refuse(f"line {number}", problem, fields)
    reading = counter.reading(count)
    if not relevant:
        raise DataError(f"{path.stem}: not one judgement of the split {split!r} can be used: {reading}")
    return Retrieval(path.stem, {query: texts[query] for query in relevant}, corpus, relevant, reading)


def _beir_member(path: Path, member: str) -> Iterable[str]:
    """The content of a file of the set, in pieces."""
    if path.is_dir():
        return RowFile(path / member, ReadOptions("txt")).content()
    try:
        with zipfile.ZipFile(path) as file:
            (inside,) = [name for name in file.namelist() if f"/{name}".endswith(f"/{member}")]
            return [file.read(inside).decode("utf-8-sig")]
    except (ValueError, zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path}: expected a folder or a zip in BEIR's layout with one {member}: {error}") from None


def _known(
    title: str, licence: str, read: Callable[[Path, str], Set], folder: str, uses: tuple[Use, Use] = _TRAINABLE,
    **files: str | tuple[str, ...],
) -> Known[Set]:  # fmt: skip
    """A set whose files are in one folder: split=file; uses: of the split `train`, and of the others."""
    splits = {
        split: Split(
            tuple(f"{folder}/{file}" for file in ([names] if isinstance(names, str) else names)), uses[split != "train"]
        )
        for split, names in files.items()
    }
    return Known(title, licence, splits, read)


def _academic(title: str, **files: str) -> Known[Examples]:
    return _known(title, "classic academic set", _senteval, "senteval", _EVALUATION, **files)


_CC_BY_SA = "CC BY-SA 4.0"
_SEMEVAL = "SemEval terms"

DATASETS: dict[str, Known[Examples]] = {
    "korsts": _known(
        "KorSTS", _CC_BY_SA, _plain_sts(format="tsv"), "korsts",
        train="sts-train.tsv", dev="sts-dev.tsv", test="sts-test.tsv",
    ),
    "klue-sts": _known(
        "KLUE-STS", _CC_BY_SA, _plain_sts(score="label", change=_klue_label), "klue-sts",
        train="train.csv", dev="dev.csv",
    ),
    "stsb": _known(
        "STSb", _SEMEVAL, _stsb, "stsb-en",
        train="stsb-en-train.csv", dev="stsb-en-dev.csv", test="stsb-en-test.csv",
    ),
    **{f"sts{year}": _known(f"STS{year}", _SEMEVAL, _sts_year, "sts12-16", test=f"20{year}") for year in range(12, 17)},
    "klue-nli": _known(
        "KLUE-NLI", _CC_BY_SA, _nli(a="premise", b="hypothesis", label="gold_label"), "klue-nli",
        train="train.json", dev="dev.json",
    ),
    "kornli": _known(
        "KorNLI", "CC BY-SA 4.0; dev and test are XNLI: non-commercial",
        _nli(format="tsv", a="sentence1", b="sentence2", label="gold_label"), "kornli", ("train", "experiment"),
        train=("multinli.train.ko.tsv", "snli_1.0_train.ko.tsv"), dev="xnli.dev.ko.tsv", test="xnli.test.ko.tsv",
    ),
    "allnli": _known(  # SNLI and MultiNLI
        "AllNLI", "SNLI: CC BY-SA 4.0; MultiNLI: OANC and others",
        _nli(format="tsv", has_splits=True, a="sentence1", b="sentence2", label="label"), "allnli",
        train="AllNLI.tsv", dev="AllNLI.tsv", test="AllNLI.tsv",
    ),
    "snli": _known(  # dev and test serve to train, as the training split is not among the files: never report on them
        "SNLI", _CC_BY_SA, _snli, "snli-en", ("train", "train"), dev="validation.tsv", test="test.tsv"
    ),
    "mnli": _known(
        "MultiNLI", "OANC and others", _nli(change=_mnli_parts, a="a", b="b", label="label"), "mnli-en",
        ("train", "train"), train="mnli_train.csv", dev="mnli_validation.csv",
    ),
    "parallel": _known(
        "parallel en-ko", "per source; less the two sources that may not go into shipped models",
        partial(parallel, without=("xnli-dev", "wikiqa")), "parallel-en-ko", train="train.tsv",
    ),
    "parallel-all": _known(
        "parallel en-ko, all sources", "per source; two of them not for shipped models", parallel, "parallel-en-ko",
        ("experiment", "experiment"), train="train.tsv",
    ),
    "tatoeba": Known("Tatoeba en-ko", "CC BY 2.0", {"test": Split(("tatoeba-en-ko",), "evaluation")}, _tatoeba),
    "question-pair": _known(  # in the file 0 means same and 1 different; here 'same' has the id 1
        "Question pair", "MIT",
        _table(
            "labelled", label_map={"1": "different", "0": "same"}, a="question1", b="question2", label="is_duplicate"
        ),
        "question-pair", train="kor_pair_train.csv", test="kor_Pair_test.csv",
    ),
    "chatbot": _known("Chatbot", "MIT", _table("pairs", anchor="Q", positive="A"), "chatbot", train="ChatbotData.csv"),
    "wordnet": _known(  # Debian's package wordnet-base has the files
        "WordNet", "WordNet 3.0 licence: any use, the notice kept",
        _table("pairs", format="txt", change=_synset, anchor="words", positive="meaning"), "wordnet",
        train=("data.noun", "data.verb", "data.adj", "data.adv"),
    ),
    "parakqc": _known("ParaKQC", _CC_BY_SA, _parakqc, "parakqc", test="paraKQC_v1.txt"),
    "ynat": _known(
        "YNAT", "CC BY-SA 4.0; not the official split",
        _table("classified", label_map=_TOPICS, text="title", label="topic"), "ynat",
        train="train.csv", dev="val.csv", test="test.csv",
    ),
    "nsmc": _known(
        "NSMC", "CC0; our own split, nine to one", _nsmc, "nsmc",
        train="nsmc_balanced_200k.tsv", test="nsmc_balanced_200k.tsv",
    ),
    "nsmc-reviews": _known("NSMC reviews", "CC0", _table("plain", format="txt"), "nsmc", train="reviews.txt"),
    "banking77": _known(  # both for few-shot evaluation
        "Banking77", "CC BY 4.0", _table("classified", text="text", label="category"), "banking77", _EVALUATION,
        train="train.csv", test="test.csv",
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
    "korquad": _known(
        "KorQuAD", "CC BY-ND 2.0 KR: no text of it may be shipped", korquad, "korquad1", dev="dev.json"
    ),
    "nfcorpus": _known(
        "NFCorpus", "research", beir, "nfcorpus", _EVALUATION,
        train="nfcorpus.zip", dev="nfcorpus.zip", test="nfcorpus.zip",
    ),
}  # fmt: skip
