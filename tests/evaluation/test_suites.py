"""Suites: what is in the folder is run, what is not is named, what is capped is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.sample import PAIRS, TOPICS, Stub
from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError
from munjang.evaluation import build_suite, suite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """KorSTS test, YNAT and ParaKQC in their layouts, with sentences of our own."""
    (tmp_path / "korsts").mkdir()
    rows = ["genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"]
    rows += [f"g\tf\ty\t{n:04}\t{5 * score:.3f}\t{a}\t{b}" for n, (a, b, score) in enumerate(PAIRS)]
    (tmp_path / "korsts" / "sts-test.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "ynat").mkdir()
    names = ["경제", "스포츠", "사회"]
    lines = [f'"{text}",{name}' for name, some in zip(names, TOPICS.values(), strict=True) for text in some]
    for split in ("train", "test"):
        (tmp_path / "ynat" / f"{split}.csv").write_text("\n".join(["title,topic", *lines]) + "\n", encoding="utf-8")
    (tmp_path / "parakqc").mkdir()
    groups = [f"0\t0\t{text} {n}" for text in list(TOPICS["food"])[:5] for n in range(10)]
    (tmp_path / "parakqc" / "paraKQC_v1.txt").write_text("\n".join(groups) + "\n", encoding="utf-8")
    return tmp_path


def test_what_is_there_is_run_and_what_is_not_is_named(folder: Path) -> None:
    found = build_suite("korean", folder, intervals=False)
    assert [trial.name for trial in found.trials] == ["KorSTS test", "ParaKQC mining", "YNAT probe", "YNAT clustering"]
    assert [trial.kind for trial in found.trials] == ["sts", "mining", "probe", "clustering"]
    assert "KorSTS dev" in found.absent
    assert "korsts/sts-dev.tsv" in found.absent["KorSTS dev"]
    assert {"KLUE-STS dev", "KorQuAD dev", "KorQuAD reranking", "NSMC probe"} <= set(found.absent)
    assert not any(name.startswith("STS") for name in found.absent)  # no English in the Korean suite
    with pytest.raises(DataError, match=r"sts-dev\.tsv"):
        suite("korean", folder)


def test_a_set_that_cannot_be_used_is_named_and_the_others_are_run(folder: Path) -> None:
    (folder / "banking77").mkdir()
    for split, labels in (("train", "ab"), ("test", "abc")):
        lines = [f"text {n},label {labels[n % len(labels)]}" for n in range(12)]
        (folder / "banking77" / f"{split}.csv").write_text(
            "\n".join(["text,category", *lines]) + "\n", encoding="utf-8"
        )
    lines = ["title,topic", *(f'"{text}",경제' for text in TOPICS["food"])]
    (folder / "ynat" / "test.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = build_suite("all", folder, only=["probe", "clustering"], intervals=False)
    assert [trial.name for trial in found.trials] == ["YNAT probe", "Banking77 clustering"]
    assert "label c" in found.absent["Banking77 probe"]
    assert "경제" in found.absent["YNAT clustering"]


def test_only_some_kinds(folder: Path) -> None:
    found = build_suite("all", folder, only=["sts"])
    assert [trial.name for trial in found.trials] == ["KorSTS test"]
    assert set(found.absent) >= {"KorSTS dev", "STSb test", "STS16 test"}
    assert not any("probe" in name for name in found.absent)
    assert build_suite("english", folder, only=["clustering"]).trials == ()


def test_a_cap_is_said_and_always_the_same(folder: Path) -> None:
    first, again = (build_suite("korean", folder, intervals=False, quick=10) for _ in range(2))
    notes = {trial.name: trial.notes for trial in first.trials}
    assert notes["KorSTS test"] == ("capped: 10 of 12 rows",)
    assert notes["ParaKQC mining"] == ("capped: 10 of 50 texts",)
    assert notes["YNAT probe"] == ("capped: 10 of 24 training rows", "capped: 10 of 24 rows")
    stub = Stub({text: (len(text) % 7, 1.0) for a, b, _ in PAIRS for text in (a, b)})
    scores = [found.trials[0](stub) for found in (first, again)]  # type: ignore[arg-type]
    assert scores[0] == scores[1]
    assert scores[0].rows == 10
    assert scores[0].notes[0] == "capped: 10 of 12 rows"


def test_the_trials_run(folder: Path, model: BiEncoder) -> None:
    values = {trial.name: trial(model) for trial in build_suite("korean", folder).trials}
    assert values["KorSTS test"].intervals
    assert values["ParaKQC mining"].value > 0.9
    assert values["YNAT probe"].value == 1  # the same texts train and test here
    assert 0 < values["YNAT clustering"].value <= 1


def test_bad_wishes_are_said(folder: Path) -> None:
    with pytest.raises(InputError, match="suite must be one of korean, english, all, got 'french'"):
        build_suite("french", folder)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="only must be of sts"):
        build_suite("korean", folder, only=["stss"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="quick must be 10"):
        build_suite("korean", folder, quick=2)
    with pytest.raises(DataError, match="is not a folder"):
        build_suite("korean", folder / "none")


@pytest.mark.data
@pytest.mark.slow
def test_every_public_set_is_there(data_path: Path) -> None:
    found = build_suite("all", data_path, quick=100)
    assert found.absent == {}
    assert len({trial.name for trial in found.trials}) == len(found.trials) == 29
