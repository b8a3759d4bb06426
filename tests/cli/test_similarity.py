"""`munjang similarity`, in this process, with a small encoder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang.cli import main
from munjang.report.tables import width
from munjang.vectors import similarity


def files(folder: Path) -> tuple[str, str]:
    (folder / "a.txt").write_text("가나\nabc\n", encoding="utf-8")
    (folder / "b.txt").write_text("가나다\nab\n가가\n", encoding="utf-8")
    return str(folder / "a.txt"), str(folder / "b.txt")


def expected(small: Any, kind: Any = "cosine") -> np.ndarray:
    return similarity(small.encode(["가나", "abc"]), small.encode(["가나다", "ab", "가가"]), kind)


def test_a_table_that_aligns(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["similarity", *files(tmp_path)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["가나다", "ab", "가가"]
    assert [row.split()[0] for row in rows] == ["가나", "abc"]
    scores = [[float(cell) for cell in row.split()[1:]] for row in rows]
    assert np.allclose(scores, expected(small), atol=6e-4)
    assert len({width(line) for line in (header, *rows)}) == 1


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("block", [1, 4, 1000])
def test_the_matrix_as_a_file(
    small: Any, tmp_path: Path, kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("munjang.cli.similarity._BLOCK", block)
    a, b = files(tmp_path)
    matrix = expected(small, kind)
    for suffix in ("npy", "jsonl", "csv"):
        assert main(["similarity", a, b, "--kind", kind, "-o", str(tmp_path / f"m.{suffix}")]) == 0
    assert np.allclose(np.load(tmp_path / "m.npy"), matrix)
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == ["가나", "abc"]
    assert np.allclose([line["scores"] for line in lines], matrix, rtol=1e-6)
    with (tmp_path / "m.csv").open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["text", "가나다", "ab", "가가"]
    assert np.allclose([[float(cell) for cell in row[1:]] for row in rows], matrix, rtol=1e-6)
    assert not list(tmp_path.glob("*.tmp"))


def test_the_models_own_kind_is_the_default(small: Any, tmp_path: Path) -> None:
    small.similarity_name = "dot"
    assert main(["similarity", *files(tmp_path), "-o", str(tmp_path / "m.npy")]) == 0
    assert np.allclose(np.load(tmp_path / "m.npy"), expected(small, "dot"))


def test_nearest_neighbours(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = files(tmp_path)
    assert main(["similarity", a, b, "--top", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "0  가나"
    assert shown[1].split()[1:] == ["0", "가나다"]
    assert main(["similarity", a, b, "--top", "2", "-o", str(tmp_path / "n.jsonl")]) == 0
    first = json.loads((tmp_path / "n.jsonl").read_text(encoding="utf-8").splitlines()[0])
    best = np.argsort(-expected(small)[0])[:2]
    assert [near["row"] for near in first["neighbours"]] == best.tolist()
    assert np.allclose([near["score"] for near in first["neighbours"]], expected(small)[0][best], rtol=1e-6)
    assert main(["similarity", a, b, "--top", "9", "-o", str(tmp_path / "n.csv")]) == 0
    with (tmp_path / "n.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["row"], row["rank"]) for row in rows] == [(str(r), str(k)) for r in (0, 1) for k in (1, 2, 3)]
    assert {row["neighbour"] for row in rows} == {"가나다", "ab", "가가"}


def test_within_one_file_a_text_is_no_neighbour_of_itself(small: Any, tmp_path: Path) -> None:
    out = tmp_path / "n.jsonl"
    assert main(["similarity", files(tmp_path)[1], "--top", "5", "-o", str(out)]) == 0
    rows = [json.loads(line)["neighbours"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert [sorted(near["row"] for near in row) for row in rows] == [[1, 2], [0, 2], [0, 1]]


def test_texts_from_the_command_line(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["similarity", "--text", "가", "--text", "나"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["similarity", "--text", "가", files(tmp_path)[1], "--top", "1"]) == 0
    assert "가" in capsys.readouterr().out.splitlines()[1]
    assert main(["similarity", "--text", "가", "--top", "1"]) == 1
    assert "nothing to compare with" in capsys.readouterr().err


def test_queries_and_documents(small: Any, tmp_path: Path) -> None:
    assert main(["similarity", *files(tmp_path), "--asymmetric"]) == 0
    assert [call["prompt_name"] for call in small.calls] == ["query", "document"]


def test_what_is_refused(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = files(tmp_path)
    for arguments in ([], [a, b, a], ["--text", "x", a, b], [a, "--asymmetric"], [a, "-o", "x.parquet"]):
        with pytest.raises(SystemExit) as left:
            main(["similarity", *arguments])
        assert left.value.code == 2
    (tmp_path / "long.txt").write_text("x\n" * 21)
    capsys.readouterr()
    assert main(["similarity", str(tmp_path / "long.txt")]) == 1
    assert "--top K" in capsys.readouterr().err
    assert small.options == {}  # said before any model was loaded
    assert main(["similarity", a, "-o", str(tmp_path / "m.csv")]) == 0
    assert main(["similarity", a, "-o", str(tmp_path / "m.csv")]) == 1
    assert main(["similarity", a, "-o", str(tmp_path / "m.csv"), "--overwrite"]) == 0
