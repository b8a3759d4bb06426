"""The README and the guides: every Python snippet runs against a hub cache that holds MiniLM, every command parses."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest

from munjang import bundled
from munjang.cli import _parser
from munjang.errors import ModelNotFoundError, MunjangWarning

ROOT = Path(__file__).parents[1]
TWINS = [
    ("README.md", "README.ko.md"),
    ("docs/guide.md", "docs/guide.ko.md"),
    ("docs/training.md", "docs/training.ko.md"),
    ("docs/recipes.md", "docs/recipes.ko.md"),
    ("docs/search.md", "docs/search.ko.md"),
    ("docs/service.md", "docs/service.ko.md"),
]
# Whose snippets and their output tests/tasks runs.
TASKS = [
    (f"docs/{name}.md", f"docs/{name}.ko.md")
    for name in (
        "clustering",
        "paraphrases",
        "classification",
        "recommendation",
        "keywords",
        "topics",
        "map",
        "gallery",
    )
]
SCALE = ("docs/scale.md", "docs/scale.ko.md")  # whose snippets need servers and shards
MODELS = ("docs/models.md", "docs/models.ko.md")  # whose snippets need the bundled models
PAGES = [page for pair in TWINS for page in pair]
COMMIT = "0" * 40


@pytest.fixture
def hub(tmp_path: Path, minilm_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub cache as huggingface_hub lays it out, with one model in it, and no network."""
    repository = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots" / COMMIT).symlink_to(minilm_path, target_is_directory=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def _commands(page: str) -> list[str]:
    """The lines of all bash blocks, continued ones joined, comments away."""
    lines = "\n".join(_blocks(page, "bash")).replace("\\\n", " ").splitlines()
    plain = (re.sub(r"(^|\s+)# .*", "", line).strip() for line in lines)
    return [re.sub(r"\s+", " ", line) for line in plain if line]


# The Korean pages have as many blocks of code and the same commands (`test_twins_have_the_same_parts`).
_TIMED = [
    pytest.param(one, marks=pytest.mark.slow) if one.startswith("docs/") and ".ko." in one else one for one in PAGES
]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("page", _TIMED)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = _blocks(page, "python")
    assert snippets
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MunjangWarning)
        for snippet in snippets:
            exec(compile(snippet, f"{page} snippet", "exec"), names)


@pytest.mark.parametrize("page", MODELS)
def test_snippets_of_the_bundled_models_run(page: str) -> None:
    try:
        for name in bundled.NAMES:
            bundled.path(name)
    except ModelNotFoundError as missing:
        pytest.skip(str(missing))
    names: dict[str, object] = {}
    for snippet in _blocks(page, "python"):
        exec(compile(snippet, f"{page} snippet", "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, *SCALE, *(page for pair in TASKS for page in pair)])
def test_commands_parse(page: str) -> None:
    """No command of a page has an option that is not there; whether its files are is the reader's affair."""
    found = [part for line in _commands(page) for part in line.split(" | ") if part.startswith("munjang ")]
    assert found
    for command in found:
        _parser().parse_args(shlex.split(command.split(" > ")[0])[1:])  # exits where it does not parse


@pytest.mark.parametrize(("page", "twin"), [*TWINS, MODELS, SCALE, *TASKS])
def test_twins_have_the_same_parts(page: str, twin: str) -> None:
    """The two languages say the same: as many sections and blocks of code, and the same commands."""

    def shape(name: str) -> tuple[list[str], int]:
        text = (ROOT / name).read_text(encoding="utf-8")
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        return re.findall(r"^#+", prose, re.MULTILINE), len(re.findall(r"```", text))

    assert shape(page) == shape(twin)
    assert _commands(page) == _commands(twin)


@pytest.mark.parametrize(("page", "twin"), [*TWINS, SCALE, *TASKS])
def test_twins_have_the_same_figures(page: str, twin: str) -> None:
    """What was measured stands in both languages: numbers with decimals, in prose and tables, in any order."""

    def figures(name: str) -> list[str]:
        prose = re.sub(r"```.*?```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        # A Korean particle follows its number without a space, and is a letter: \w would not do.
        return sorted(re.findall(r"(?<![a-zA-Z0-9_.])\d+\.\d+(?![a-zA-Z0-9_])(?!\.\d)", prose))

    assert figures(page) == figures(twin)


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        *SCALE,
        *(page for pair in TASKS for page in pair),
        "docs/formats.md",
        "docs/design.md",
        "docs/reproduction.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_links_within_a_page_lead_to_a_heading(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    # As GitHub names them: lower case, without punctuation, spaces as hyphens.
    headings = [re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)]
    for target in re.findall(r"\]\(#([^)]+)\)", text):
        assert target in [title.replace(" ", "-") for title in headings], target


def test_the_summary_is_the_same_everywhere() -> None:
    """README, package metadata and `munjang --help` begin with one sentence."""
    summary = re.search(r'^description = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert summary is not None
    assert f"**{summary[1]}.**" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert _parser().description == f"{summary[1]}."
