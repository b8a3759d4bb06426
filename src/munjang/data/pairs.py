"""Sets of texts that belong together -> pairs, or pairs with a label: translations, questions, answers, meanings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from munjang.data.building import Broken, Records, Wanted
from munjang.data.columns import named_column
from munjang.data.encodings import text_lines
from munjang.data.examples import Examples
from munjang.data.files import TextSource
from munjang.data.tabular import file_records, read_records, read_source
from munjang.errors import DataError, InputError

_TRANSLATIONS = Wanted("pairs", {"anchor": "en", "positive": "ko"})
_Row = tuple[int, Sequence[object] | Broken]
_WHERE = re.compile(r"\((?:a|p|ip)\)$")


def parallel(
    path: str | Path, *, only: Collection[str] = (), without: Collection[str] = (), name: str = "parallel en-ko"
) -> Examples:
    """Translations: tsv with en, ko and source; anchor is English, positive is Korean.

    `only` and `without` choose by source, because licences and quality differ between sources.
    """
    found = file_records(TextSource(path, format="tsv", quoting=False))
    place = named_column(found.names, "source", found.where)

    def rows() -> Iterator[_Row]:
        seen: dict[str, None] = {}
        for number, cells in found.rows:
            if isinstance(cells, Broken):
                yield number, cells
                continue
            source = str(cells[place])
            seen[source] = None
            if (not only or source in only) and source not in without:
                yield number, cells
        unknown = [asked for asked in (*only, *without) if asked not in seen]
        if unknown:
            raise InputError(f"{found.where}: there is no source {', '.join(unknown)}; there are {', '.join(seen)}")

    return read_records(replace(found, rows=rows()), _TRANSLATIONS, name=name)


def parallel_by_source(path: str | Path, *, encoding: str | None = None) -> dict[str, Examples]:
    """The same, a set for every source, so that each can be given a weight of its own."""
    found = file_records(TextSource(path, format="tsv", quoting=False, encoding=encoding))
    place = named_column(found.names, "source", found.where)
    by_source: dict[str, list[_Row]] = {}
    source = ""
    for number, cells in found.rows:
        source = source if isinstance(cells, Broken) else str(cells[place])  # a broken row counts with the one before
        by_source.setdefault(source, []).append((number, cells))
    return {
        source: read_records(replace(found, rows=iter(rows)), _TRANSLATIONS, name=source)
        for source, rows in by_source.items()
    }


def tatoeba(folder: str | Path, *, name: str = "Tatoeba en-ko") -> Examples:
    """Two aligned files, *.eng and *.kor: anchor is English, positive is Korean; line n translates line n."""
    english, korean = (_only_file(Path(folder), suffix) for suffix in (".eng", ".kor"))
    found = Records(f"{english.name} and {korean.name}", "line", ("eng", "kor"), _aligned(english, korean))
    return read_records(found, Wanted("pairs", {"anchor": "eng", "positive": "kor"}), name=name)


def question_pair(path: str | Path, *, name: str = "Question pair") -> Examples:
    """songys/Question_pair: in the file 0 means same and 1 different; here 'same' has the id 1."""
    columns = {"a": "question1", "b": "question2", "label": "is_duplicate"}
    return read_source(TextSource(path), Wanted("labelled", columns, {"1": "different", "0": "same"}), name=name)


def chatbot(path: str | Path, *, name: str = "Chatbot") -> Examples:
    """songys/Chatbot_data: anchor is the question, positive its answer."""
    return read_source(TextSource(path), Wanted("pairs", {"anchor": "Q", "positive": "A"}), name=name)


def wordnet(path: str | Path, *, name: str = "WordNet") -> Examples:
    """Princeton's WordNet, one of its files data.*: anchor is a word and its synonyms, positive what they mean."""
    found = Records(Path(path).name, "line", ("words", "meaning"), _synsets(Path(path)))
    return read_records(found, Wanted("pairs", {"anchor": "words", "positive": "meaning"}), name=name)


def _synsets(path: Path) -> Iterator[_Row]:
    """`offset file kind count word id [word id ...] ... | meaning; "examples"`; the licence's lines begin with a space.

    The count is hexadecimal. Adjectives may say where they stand: 'galore(ip)'.
    """
    for number, line in enumerate(text_lines(TextSource(path, format="txt").content()), start=1):
        if line.startswith(" "):
            continue
        left, mark, meaning = line.partition(" | ")
        cells = left.split()
        try:
            count = int(cells[3], 16)
            words = cells[4 : 4 + 2 * count : 2]
        except (IndexError, ValueError):
            count, words = 0, []
        if not mark or not count or len(words) < count:
            yield number, Broken("no line of WordNet: expected 'offset file kind count word id ... | meaning'", (line,))
        else:
            yield number, (", ".join(_WHERE.sub("", word).replace("_", " ") for word in words), meaning.strip())


def _only_file(folder: Path, suffix: str) -> Path:
    files = sorted(folder.glob(f"*{suffix}"))
    if len(files) != 1:
        raise DataError(f"{folder}: expected one file *{suffix} in this folder, found {len(files)}")
    return files[0]


def _aligned(first: Path, second: Path) -> Iterator[_Row]:
    """Line n of both files; they must be of the same length, or nothing says where a line is missing."""
    lines = [text_lines(TextSource(path, format="txt").content()) for path in (first, second)]
    for number, (one, other) in enumerate(zip_longest(*lines), start=1):
        if one is None or other is None:
            shorter = first if one is None else second
            raise DataError(f"{first} and {second} must have the same number of lines; {shorter.name} ends at {number}")
        yield number, (one, other)
