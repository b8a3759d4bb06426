"""The models page: every figure from the results, both languages alike, a picture that is well formed."""

from __future__ import annotations

import re
import shlex
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from making.results import results_file
from models.ko_en_0_1.__main__ import build_parser, main
from models.ko_en_0_1.page import PARTS, filled, overview, parts_of, write_pages
from models.ko_en_0_1.picture import picture
from models.ko_en_0_1.published import ENGLISH, SIMILARITY
from models.ko_en_0_1.results import Measured, read_results
from models.ko_en_0_1.tables import (
    english_table,
    everything_table,
    overlap_table,
    similarity_table,
    table,
    two_stage_table,
)
from models.ko_en_0_1.words import note
from munjang.cli import _parser
from munjang.errors import DataError, InputError
from munjang.recipes.card import plain_cell

ROOT = Path(__file__).resolve().parents[2]
TWINS = ("docs/models.md", "docs/models.ko.md")


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Measured]:
    return read_results(results_file(tmp_path / "results.json"))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Copies of the pages, to write into."""
    (tmp_path / "docs").mkdir()
    for page in TWINS:
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path / "docs"


def _figures(text: str) -> list[str]:
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return sorted(re.findall(r"(?<![a-zA-Z0-9_.])\d+\.\d+(?![a-zA-Z0-9_])(?!\.\d)", prose))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_pipe_in_a_cell_is_escaped_once() -> None:
    assert table(["a", "b"], [[plain_cell("x|y"), "x|y"]]).splitlines()[-1] == "| x\\|y | x\\|y |"


def test_measured_and_published_rows_stand_apart(results: dict[str, Measured]) -> None:
    lines = similarity_table(results, "en").splitlines()
    ours = next(line for line in lines if line.startswith("| **munjang-ko-en**"))
    assert ours == "| **munjang-ko-en** | 80.11 ± 1.10 | 80.22 ± 1.10 | 80.33 ± 1.10 | measured |"
    assert [line for line in lines[2:] if line.endswith("| measured |")] == lines[2:5]
    assert len(lines) == 2 + 3 + len(SIMILARITY)
    kpf = next(line for line in lines if "kpf-sbert-v1.1" in line)
    assert kpf == "| kpf-sbert-v1.1 | 87.50 | 89.00 | 88.63 | published: model cards |"
    assert all("published: " in line for line in lines[5:])
    assert "±" not in "".join(lines[5:])


def test_the_published_mean_is_that_of_the_five_years(results: dict[str, Measured]) -> None:
    row = next(line for line in english_table(results, "en").splitlines() if "SBERT-NLI-base" in line)
    assert row.startswith("| SBERT-NLI-base | 70.97 | 76.53 | 73.19 | 79.09 | 74.30 | 74.82 | 77.03 | published: ")
    assert all(len(one.scores) == 6 for one in ENGLISH)


def test_every_set_has_a_row_and_what_is_missing_a_reason(results: dict[str, Measured]) -> None:
    shown = everything_table(results, "en")
    assert "| KorQuAD dev | recall@1 | 81.21 ± 1.10 [1] | - [2] |" in shown
    assert "2. needs vectors, and a cross-encoder makes none" in shown
    assert "1. KorQuAD dev: truncated: 3 of 964 texts to 256 tokens" in shown
    korean = everything_table(results, "ko")
    assert "잘림: 글 964 중 3을 256 토큰으로" in korean
    assert "크로스 인코더는 벡터를 만들지 않음" in korean
    assert _figures(shown) == _figures(korean)


def test_two_stages_show_the_gain(results: dict[str, Measured]) -> None:
    shown = two_stage_table(results, "en")
    row = (
        "| KorQuAD dev | recall@1 | munjang-ko-en | 95.00 | 62.00 ± 1.00 | 71.00 ± 1.00 | +9.00 (+8.00 … +10.00) [1] |"
    )
    assert row in shown
    assert "reranked by munjang-rerank-ko-en" in shown


def test_overlap_is_told_of_sets_that_the_model_can_be_given(results: dict[str, Measured]) -> None:
    shared = {"rows": 100, "exact": 8, "normalised": 10, "whole rows": 0, "by": {"KorSTS train": 10}}
    cross = replace(results["munjang-rerank-ko-en"], about={"overlap": {"KorSTS test": shared, "KorQuAD dev": shared}})
    shown = overlap_table(cross, "en").splitlines()
    assert [line.split(" | ")[0] for line in shown[2:]] == ["| KorSTS test"]
    nothing = replace(cross, about={"overlap": {"KorQuAD dev": shared}})
    assert overlap_table(nothing, "en") == overlap_table(replace(cross, about={"overlap": {}}), "en")


@pytest.mark.parametrize(
    ("english", "korean"),
    [
        ("capped: 1,000 of 5,774 queries", "줄임: 질의 5,774 중 1,000"),
        ("770 training rows", "학습 행 770"),
        ("something new", "something new"),
    ],
)
def test_notes_in_korean(english: str, korean: str) -> None:
    assert note(english, "ko") == korean
    assert note(english, "en") == english


def test_notes_that_evaluators_leave_are_all_translated() -> None:
    """Every note whose wording is in the evaluators' sources has a Korean form."""
    for text in (
        "capped: 9 of 99 training rows",
        "capped: 9 of 99 documents",
        "truncated: texts beyond 256 tokens, counted at an earlier set",
        "truncated: 3 of 9 pairs to 64 tokens",
        "20 lexical candidates per query",
        "5 pairs mined, 7 to find",
        "3 of 9 queries have no relevant document: left out",
        "1 queries have only relevant or only other documents: left out",
        "first 100 of the bi-encoder reranked by r",
        "first 100 of the bi-encoder reranked",
        "10 of 99 rows share a text with training text: left out",
        "700 groups that thresholds were not calibrated on",
        "of capped sets",
    ):
        assert re.search("[가-힣]", note(text, "ko")), text


# --- pages -----------------------------------------------------------------------------------------------------------


def test_both_pages_are_filled_and_say_the_same(docs: Path, results: dict[str, Measured]) -> None:
    before = (docs / "models.md").read_text(encoding="utf-8")
    written = write_pages(docs / "models.md", results)
    assert [path.name for path in written] == ["models.md", "models.svg", "models.ko.md", "models.ko.svg"]
    english, korean = ((docs / name).read_text(encoding="utf-8") for name in ("models.md", "models.ko.md"))
    assert "Not measured yet." not in english
    assert "아직 측정하지 않았습니다" not in korean
    assert _figures(english) == _figures(korean)
    assert "76.54" in english  # without the rows that were trained on
    assert (
        "| munjang-ko-en | paraphrase: the same meaning | 0.777 | ParaKQC test, first 300 groups (3,000) |" in english
    )
    for text in (english, korean):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (docs / target).exists(), target
    # What people wrote stays, and filling again changes nothing.
    cut = r"<!-- models:(?!log)[a-z-]+:begin -->.*?<!-- models:[a-z-]+:end -->"
    assert re.sub(cut, "", before, flags=re.DOTALL) == re.sub(cut, "", english, flags=re.DOTALL)
    write_pages(docs / "models.md", results)
    assert (docs / "models.md").read_text(encoding="utf-8") == english


def test_a_page_without_a_marker_stays_as_it_is(docs: Path, results: dict[str, Measured]) -> None:
    page = docs / "models.ko.md"
    page.write_text(page.read_text(encoding="utf-8").replace("<!-- models:overlap:end -->", ""), encoding="utf-8")
    before = (docs / "models.md").read_text(encoding="utf-8")
    with pytest.raises(DataError, match=r"models\.ko\.md: expected <!-- models:overlap:begin -->"):
        write_pages(docs / "models.md", results)
    assert (docs / "models.md").read_text(encoding="utf-8") == before  # nothing is written by halves
    page.unlink()
    with pytest.raises(DataError, match="there is no such page"):
        write_pages(docs / "models.md", results)


def test_the_parts_are_those_of_the_pages(results: dict[str, Measured]) -> None:
    assert tuple(parts_of(results, "en", image="x.svg")) == PARTS
    for page in TWINS:
        text = (ROOT / page).read_text(encoding="utf-8")
        for part in (*PARTS, "log"):
            assert text.count(f"<!-- models:{part}:begin -->") == text.count(f"<!-- models:{part}:end -->") == 1
    assert filled("a<!-- models:x:begin -->old<!-- models:x:end -->b", {"x": "new"}, Path("p")) == (
        "a<!-- models:x:begin -->\nnew\n<!-- models:x:end -->b"
    )


def test_the_pages_are_twins_and_their_commands_parse() -> None:
    english, korean = ((ROOT / page).read_text(encoding="utf-8") for page in TWINS)

    def shape(text: str) -> tuple[list[str], int]:
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        return re.findall(r"^#+", prose, re.MULTILINE), text.count("```")

    def commands(text: str) -> list[str]:
        return "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).split("\n")

    assert shape(english) == shape(korean)
    assert commands(english) == commands(korean)
    for command in filter(None, commands(english)):
        start, _, arguments = command.partition(" ")
        if start == "python":
            build_parser().parse_args(shlex.split(arguments.removeprefix("-m models.ko_en_0_1 ")))
        else:
            _parser().parse_args(shlex.split(arguments))
    for text in (english, korean):
        for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            compile(snippet, "snippet", "exec")


def test_the_command_writes_and_prints(docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = results_file(tmp_path / "results.json")
    assert main(["models-page", str(file)]) == 0
    assert capsys.readouterr().out == overview(read_results(file))
    assert main(["models-page", str(file), "--write", str(docs / "models.md")]) == 0
    assert "written:" in capsys.readouterr().err
    assert main(["models-page", str(tmp_path / "none.json")]) == 1
    assert "there are no results here" in capsys.readouterr().err


# --- the picture -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_picture_is_whole(results: dict[str, Measured], language: str) -> None:
    text = picture(results, language)  # type: ignore[arg-type]
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    bars = [one for one in root.iter(f"{space}rect") if one.find(f"{space}title") is not None]
    published = sum(len(row.scores) for row in SIMILARITY)
    assert sum(one.get("class") == "hollow" for one in bars) == published
    assert sum(one.get("class") != "hollow" for one in bars) == 3 * 3 + 2 * 11  # similarity, then the others
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    for one in root.iter():
        for side, most in (("x", width), ("y", height), ("x1", width), ("x2", width)):
            assert 0 <= float(one.get(side, "0")) <= most
    longest = {one.find(f"{space}title").text: float(one.get("width", "0")) for one in bars}  # type: ignore[union-attr]
    assert longest["kpf-sbert-v1.1: 87.50"] > longest["distiluse-base-multilingual-cased-v2: 74.75"]
    assert "prefers-color-scheme: dark" in text
    assert "script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_one_model_has_one_colour(results: dict[str, Measured]) -> None:
    root = ET.fromstring(picture(results))
    space = "{http://www.w3.org/2000/svg}"
    titled = [(one.find(f"{space}title"), one.get("class")) for one in root.iter(f"{space}rect")]
    colours = {kind for title, kind in titled if title is not None and str(title.text).startswith("another")}
    assert len(colours) == 1


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        picture({"m": Measured("m", {})})
