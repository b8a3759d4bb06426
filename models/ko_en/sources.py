"""Readers of the raw material: bills, manuals, dictionaries, and the public sets that may be trained on.

A `Passage` is a text that answers queries. Passages of one group answer much the same queries (bills that amend one
law, sections of one page, a page and its translation), so they are never each other's negatives, and a group is either
for training or for development as a whole.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from common import is_korean
from settings import DATA

from munjang.data import load_dataset
from munjang.data.overlaps import normalise

HANGUL = re.compile("[가-힣]")
_DOC = "usr/share/doc"
# Of Debian 12: manual -> language -> (package, folder of its pages).
MANUALS = {
    "libreoffice": {
        "ko": ("libreoffice-help-ko", "usr/share/libreoffice/help/ko"),
        "en": ("libreoffice-help-en-us", "usr/share/libreoffice/help/en-US"),
    },
    "gimp": {
        "ko": ("gimp-help-ko", "usr/share/gimp/2.0/help/ko"),
        "en": ("gimp-help-en", "usr/share/gimp/2.0/help/en"),
    },
    "gnome": {"ko": ("gnome-user-docs", "usr/share/help/ko"), "en": ("gnome-user-docs", "usr/share/help/C")},
    "handbook": {
        "ko": ("debian-handbook", f"{_DOC}/debian-handbook/html/ko-KR"),
        "en": ("debian-handbook", f"{_DOC}/debian-handbook/html/en-US"),
    },
    "installation": {
        "ko": ("installation-guide-amd64", f"{_DOC}/installation-guide-amd64/ko"),
        "en": ("installation-guide-amd64", f"{_DOC}/installation-guide-amd64/en"),
    },
    "python": {"en": ("python3.11-doc", f"{_DOC}/python3.11/html")},
    "git": {"en": ("git-doc", f"{_DOC}/git/html")},
    "postgresql": {"en": ("postgresql-doc-15", f"{_DOC}/postgresql-doc-15/html")},
}
_EVALUATED = (
    ("korsts", "dev"),
    ("korsts", "test"),
    ("klue-sts", "dev"),
    ("stsb", "dev"),
    ("stsb", "test"),
    ("klue-nli", "dev"),
    ("tatoeba", "test"),
    ("question-pair", "test"),
    ("ynat", "dev"),
    ("ynat", "test"),
    ("nsmc", "test"),
    *((f"sts{year}", "test") for year in range(12, 17)),
)
_SPACES = re.compile(r"\s+")
_NUMBERING = re.compile(r"^(?:(?:제\s*)?\d+장\.?|[A-Z]?\d*(?:\.\d+)+\.?|[A-Z]?\d*\.|부록 [A-Z]\.)\s*")


@dataclass
class Passage:
    """A text and the queries that it answers, each with its kind."""

    text: str
    source: str
    group: str
    language: str
    queries: list[tuple[str, str]] = field(default_factory=list)  # (kind, text)


def clean(text: str) -> str:
    return _SPACES.sub(" ", text.replace("\u200b", "").replace("¶", "")).strip()


def language_of(text: str) -> str:
    return "ko" if is_korean(text) else "en"


def shortened(text: str, characters: int | None = None) -> str:
    """The beginning of a text, whole sentences where there are some."""
    if characters is None:
        characters = DATA.passage_characters[language_of(text)]
    if len(text) <= characters:
        return text
    cut = max(text.rfind(mark, characters // 2, characters) for mark in (". ", "음.", "임.", "함.", "? ", "! "))
    return text[: cut + 2].strip() if cut > 0 else text[:characters].rsplit(" ", 1)[0]


def evaluation_texts(data: Path) -> set[str]:
    """The sentences of every set that is reported, without case, spaces and punctuation: never trained on."""
    found: set[str] = set()
    for name, split in _EVALUATED:
        found.update(map(normalise, load_dataset(name, split, data).texts()))
    return found


# --- bills -----------------------------------------------------------------------------------------------------------


_HEADING = re.compile(
    r"■\s*(?:제안\s*이유\s*및\s*주요\s*내용|제안\s*이유|주요\s*내용|대안의?\s*제안\s*이유)|^\s*제안이유\s*", re.M
)
_ARTICLES = re.compile(r"\s*\((?:안\s)?[^()]*(?:제\d+조|별표|부칙|신설|삭제)[^()]*\)")
_ITEM = re.compile(r"(?:^|\n)\s*(?:[가-하]|\d+)\s*[.)]\s+")
_SENTENCE = re.compile(r"(?<=[음임함됨다])\.\s*\n?|\n+")
_AMENDMENT = re.compile(r"\s*(?:일부|전부)?개정(?:법률)?안.*$|\s*폐지법률안.*$|\(.*?\)")


def bills(folder: Path) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """(name, law, sentences of the reason, items of the contents) of every bill with a reason (CC BY 4.0)."""
    import pyarrow.parquet as parquet

    names = parquet.read_table(folder / "bills.parquet", columns=["BILL_ID", "BILL_NAME"]).to_pydict()
    texts = parquet.read_table(folder / "bill_texts.parquet", columns=["BILL_ID", "propose_reason"]).to_pydict()
    by_id = dict(zip(texts["BILL_ID"], texts["propose_reason"], strict=True))
    for bill, name in zip(names["BILL_ID"], names["BILL_NAME"], strict=True):
        text = by_id.get(bill)
        if not text or not name:
            continue
        reason, *contents = re.split(r"■\s*주요\s*내용", text, maxsplit=1)
        sentences = [clean(one) for one in _SENTENCE.split(_HEADING.sub(" ", _ARTICLES.sub("", reason)))]
        items = [clean(_ARTICLES.sub("", one)) for one in _ITEM.split(contents[0])] if contents else []
        law = clean(_AMENDMENT.sub("", name))
        yield clean(name), law, [one for one in sentences if len(one) > 15], [one for one in items if len(one) > 25]


# --- manuals ---------------------------------------------------------------------------------------------------------


class _Sections(HTMLParser):
    """Headings and the text below them, of HTML and of Mallard pages (GNOME)."""

    _SKIP = frozenset(
        {"script", "style", "head", "header", "aside", "nav", "info", "table", "pre", "screen", "footer", "code-block"}
    )
    _HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
    _BLOCKS = frozenset({"p", "li", "dd", "dt", "div", "section", "br", "item", "td"})
    _VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})

    def __init__(self, mallard: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.headings = frozenset({"title"}) if mallard else self._HEADINGS
        self.sections: list[tuple[str, list[str]]] = []
        self._skipping: list[str] = []
        self._heading: list[str] | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = dict(attrs).get("class") or ""
        if tag in self._VOID:
            return
        if (
            self._skipping
            or tag in self._SKIP
            or classes in ("navheader", "navfooter", "toc", "caution", "docnav top", "sphinxsidebar", "related")
        ):
            self._skipping.append(tag)
        elif tag in self.headings:
            self._end()
            self._heading = []
        elif tag in self._BLOCKS:
            self._text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag in self._skipping:
                while self._skipping.pop() != tag:
                    pass
        elif tag in self.headings and self._heading is not None:
            heading = _NUMBERING.sub("", clean("".join(self._heading)))
            self._heading = None
            self.sections.append((heading, []))
        elif tag in self._BLOCKS:
            self._text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._heading is not None:
            self._heading.append(data)
        else:
            self._text.append(_SPACES.sub(" ", data))

    def _end(self) -> None:
        if self.sections:
            lines = [clean(line) for line in "".join(self._text).split("\n")]
            self.sections[-1][1].extend(line for line in lines if len(line) > 1)
        self._text = []

    def close(self) -> None:
        super().close()
        self._end()


def manual_sections(debian: Path) -> Iterator[tuple[str, str, int, str, str]]:
    """(manual, page, number of the section, heading, text) of every section, Korean pages first."""
    for manual, languages in MANUALS.items():
        for package, folder in languages.values():
            root = debian / package / folder
            files = sorted([*root.rglob("*.html"), *root.rglob("*.page")])
            for file in files:
                parser = _Sections(file.suffix == ".page")
                parser.feed(file.read_text(encoding="utf-8", errors="replace"))
                parser.close()
                page = f"{manual}/{file.relative_to(root).with_suffix('')}"
                for number, (heading, lines) in enumerate(parser.sections):
                    if 2 < len(heading) < 100 and sum(map(len, lines)) > 60:
                        yield manual, page, number, heading, " ".join(lines)


# --- dictionaries ----------------------------------------------------------------------------------------------------


_CITE = re.compile(r"\[[^\[\]]*\]|--[A-Z][\w. ]+|[{}]")


def wordnet(debian: Path) -> Iterator[tuple[list[str], str]]:
    """(words, meaning) of every synset."""
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (debian / "wordnet-base/usr/share/wordnet" / f"data.{kind}").read_text("utf-8").splitlines():
            if line.startswith(" "):
                continue
            head, _, gloss = line.partition(" | ")
            cells = head.split()
            words = [cells[4 + 2 * i].replace("_", " ").split("(")[0] for i in range(int(cells[3], 16))]
            yield words, clean(gloss)


def entries(debian: Path, package: str) -> Iterator[tuple[str, str]]:
    """(headword, text) of a dictionary in dictd's form (foldoc: GFDL; gcide: GPL-3+)."""
    (file,) = (debian / package / "usr/share/dictd").glob("*.dict.dz")
    word, lines = "", [""]
    with gzip.open(file, "rt", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line[:1].strip() and not line.startswith("{"):
                if word and len(text := clean(_CITE.sub("", " ".join(lines)))) > 60:
                    yield word, text
                word, lines = clean(line.split("\\")[0]), []
            else:
                lines.append(line)


# --- public sets -----------------------------------------------------------------------------------------------------


def entailed(data: Path, sets: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Premises with what they entail."""
    found: dict[str, list[str]] = {}
    for name, split in sets:
        examples = load_dataset(name, split, data)
        assert examples.targets is not None
        right = examples.labels.index("entailment")
        for a, b, label in zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True):
            if label == right and normalise(a) != normalise(b):
                found.setdefault(clean(a), []).append(clean(b))
    return found
