"""The command `munjang map`."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

import munjang
from munjang.cli import map as command
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from support import small_models

ROWS = "text,분류\n비가 온다,날씨\nIt is raining,날씨\n빵을 굽는다,요리\nBake the bread,요리\n우산을 샀다,\n"


@pytest.fixture(autouse=True)
def _loads(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_models.bi_encoder()
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setitem(vars(munjang), "load", lambda name=None, **options: model)


@pytest.fixture
def texts(tmp_path: Path) -> str:
    (tmp_path / "texts.csv").write_text(ROWS, encoding="utf-8")
    return str(tmp_path / "texts.csv")


def run(*words: str) -> str:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["map", *words])
    said = io.StringIO()
    args.run(args, Reporter(said))
    return said.getvalue()


def test_a_page_coloured_by_a_column(texts: str, tmp_path: Path) -> None:
    said = run(texts, "--column", "text", "--labels", "분류", "-o", str(tmp_path / "map.html"), "--theme", "dark")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "laying out 5 texts (pca)" in said
    assert "<title>texts</title>" in page
    for word in ("날씨 (2)", "요리 (2)", "none (1)", '"theme":"dark"'):
        assert word in page


@pytest.mark.filterwarnings("ignore:no font with Hangul")  # the names of the clusters are Korean
def test_a_picture_coloured_by_clusters(texts: str, tmp_path: Path) -> None:
    run(texts, "--column", "text", "--clusters", "2", "--title", "빵과 비", "-o", str(tmp_path / "map.png"))
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="--overwrite"):
        run(texts, "--column", "text", "-o", str(tmp_path / "map.png"))
    before = (tmp_path / "map.png").read_bytes()
    run(texts, "--column", "text", "--clusters", "-o", str(tmp_path / "map.png"), "--overwrite", "--theme", "dark")
    assert (tmp_path / "map.png").read_bytes() != before


def test_errors(texts: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="nothing to map"):
        run(str(tmp_path / "empty.txt"), "-o", str(tmp_path / "map.html"))
    with pytest.raises(DataError, match="there is no folder"):
        run(texts, "--column", "text", "-o", str(tmp_path / "no" / "map.html"))
    with pytest.raises(SystemExit):
        run(texts, "-o", str(tmp_path / "map.svg"))
    with pytest.raises(SystemExit):
        run(texts)
