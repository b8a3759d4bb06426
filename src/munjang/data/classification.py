"""Sets of single texts with a class -> classified examples: YNAT, NSMC, Banking77, SentEval's, ParaKQC's groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from munjang.data.building import Broken, Records, Wanted
from munjang.data.cells import LabelMap
from munjang.data.encodings import text_lines
from munjang.data.examples import Examples
from munjang.data.files import TextSource, read_bytes
from munjang.data.tabular import read_records, read_source, short_name
from munjang.errors import DataError

YNAT_LABELS = ("IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치")
NSMC_LABELS = ("negative", "positive")
PARAKQC_GROUP = 10  # sentences that mean the same, one after the other

_POLARITY = ("negative", "positive")
# the beginning of a SentEval file's name -> the names of its labels
_SENTEVAL: dict[str, tuple[str, ...]] = {
    "rt-polarity": _POLARITY,
    "custrev": _POLARITY,
    "mpqa": _POLARITY,
    "subj": ("subjective", "objective"),
    "trec": ("description", "entity", "abbreviation", "human", "location", "number"),
    "stsa.binary": _POLARITY,
    "stsa.fine": ("very negative", "negative", "neutral", "positive", "very positive"),
}


def ynat(path: str | Path, *, name: str = "YNAT") -> Examples:
    """KLUE-YNAT: csv with title and topic; seven topics of news."""
    return read_source(
        TextSource(path), Wanted("classified", {"text": "title", "label": "topic"}, YNAT_LABELS), name=name
    )


def nsmc(path: str | Path, *, name: str = "NSMC") -> Examples:
    """Naver film reviews: tsv with document and label, 0 negative, 1 positive."""
    wanted = Wanted("classified", {"text": "document", "label": "label"}, NSMC_LABELS)
    return read_source(TextSource(path, format="tsv", quoting=False), wanted, name=name)


def banking77(path: str | Path, *, label_map: LabelMap | None = None, name: str = "Banking77") -> Examples:
    """Banking77: csv with text and category; the names in alphabetical order are the same in both of its files."""
    return read_source(
        TextSource(path), Wanted("classified", {"text": "text", "label": "category"}, label_map), name=name
    )


def senteval(path: str | Path, *, name: str | None = None) -> Examples:
    """A SentEval file: on every line the number of the class, a space, the text.

    These files are older than UTF-8's victory: those that are not valid UTF-8 are read as cp1252 (Latin-1 with
    quotation marks), or as Latin-1 where even that fails, and the reading says so.
    """
    source = TextSource(path, format="txt")
    file = short_name(source)
    labels = next((names for start, names in _SENTEVAL.items() if file.lower().startswith(start)), None)
    if labels is None:
        raise DataError(f"{path}: not a known SentEval file; expected a name that begins with {', '.join(_SENTEVAL)}")
    encoding = _western_encoding(read_bytes(path))
    lines = text_lines(TextSource(path, format="txt", encoding=encoding).content())
    notes = () if encoding == "utf-8" else (f"read as {encoding}",)
    found = Records(file, "line", ("label", "text"), _numbered_lines(lines), notes)
    return read_records(found, Wanted("classified", {"text": "text", "label": "label"}, labels), name=name or file)


def parakqc(path: str | Path, *, name: str = "ParaKQC") -> Examples:
    """ParaKQC: tsv of topic, type and text; ten sentences each mean the same, and their group is their label."""
    lines = text_lines(TextSource(path, format="txt").content())
    cells: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t")
        if len(fields) != 3:  # a line left out would shift every group behind it
            raise DataError(f"{path}, line {number}: expected 3 fields (topic, type, text), got {len(fields)}")
        cells.append((f"group {(number - 1) // PARAKQC_GROUP:04}", fields[2]))
    if len(cells) % PARAKQC_GROUP:
        raise DataError(f"{path}: expected groups of {PARAKQC_GROUP} lines, got {len(cells):,} lines")
    found = Records(Path(path).name, "line", ("group", "text"), enumerate(cells, start=1))
    return read_records(found, Wanted("classified", {"text": "text", "label": "group"}), name=name)


def _numbered_lines(lines: Iterator[str]) -> Iterator[tuple[int, tuple[str, str] | Broken]]:
    for number, line in enumerate(lines, start=1):
        label, space, text = line.partition(" ")
        if space:
            yield number, (label, text)
        elif line:
            yield number, Broken("no space between label and text", [line])


def _western_encoding(content: bytes) -> str:
    for encoding in ("utf-8", "cp1252"):
        try:
            content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"
