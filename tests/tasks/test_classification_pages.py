"""The pages on classification and recommendation: every snippet prints the output below it, every command parses."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import warnings
from pathlib import Path

import pytest

from munjang.cli import classify, recommend
from munjang.errors import MunjangWarning

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("classification", "recommendation")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("page", PAGES)
def test_snippets_print_what_the_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    snippets, outputs = blocks(f"{page}.md", "python"), blocks(f"{page}.md", "text")
    assert snippets
    names: dict[str, object] = {}
    for snippet, output in zip(snippets, outputs, strict=True):
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("ignore", MunjangWarning)
            exec(compile(snippet, f"{page} snippet", "exec"), names)
        assert printed.getvalue() == output


@pytest.mark.parametrize("page", PAGES)
def test_the_korean_page_has_the_same_code(page: str) -> None:
    for language in ("python", "text", "bash"):
        assert blocks(f"{page}.md", language) == blocks(f"{page}.ko.md", language)


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse(page: str) -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for command in (classify, recommend):
        command.add(commands, argparse.ArgumentParser(add_help=False))
    lines = "\n".join(blocks(f"{page}.md", "bash")).splitlines()
    assert lines
    for line in lines:
        parser.parse_args(shlex.split(line)[1:])  # exits where it does not parse
