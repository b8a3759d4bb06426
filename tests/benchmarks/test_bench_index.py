"""The benchmark of the index: its arithmetic, its page, and one tiny run from end to end."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import index, index_measure  # noqa: E402


def _record() -> index_measure.Record:
    return {
        "layout": "graph",
        "rows": 1000,
        "graph": True,
        "recall": {"1": 0.999, "0.5": 0.99, "0.05": 1.0, "0.001": 1.0},
        "seconds": {
            "single": [2.0, 1.0, 4.0],
            "single faiss": [1.0, 1.0, 1.0],
            "batch": [0.5, 0.5, 0.5],
            "batch faiss": [0.25, 0.5, 1.0],
        },
        "singles": 10,
        "batch": 100,
        "build and save s": 2.0,
        "add s": 0.5,
        "added": 100,
        "file MB": 3.0,
        "open s": 0.1,
        "first answer s": 0.2,
        "memory MB": 7.0,
    }


def test_ratios_stay_within_rounds() -> None:
    found = index_measure.ratio(_record(), "single")
    assert (found.middle, found.low, found.high) == (0.5, 0.25, 1.0)
    assert index_measure.rate(_record(), "single") == 5.0
    assert index_measure.rate(_record(), "batch faiss") == 200.0


def test_tables() -> None:
    assert index.recall_table([_record()]).rows == [("graph", "1,000", "yes", "0.9990", "0.9900", "1.0000", "1.0000")]
    (row,) = index.speed_table([_record()]).rows
    assert row == ("graph", "5", "10", "0.50 (0.25-1.00)", "200", "200", "1.00 (0.50-2.00)")
    (row,) = index.cost_table([_record()]).rows
    assert row == ("graph", "500", "200", "3", "0.10", "0.20", "7")


def test_truth_is_the_tenth_best_of_the_allowed() -> None:
    rows, queries = index.generated(300, 8), index.generated(5, 8)
    mask = np.arange(300) % 3 == 0
    expected = np.sort(queries @ rows[mask].T, axis=1)[:, -10]
    np.testing.assert_allclose(index_measure.truth(rows, queries, mask), expected, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("faiss")
    np.save(tmp_path / "v.npy", index.generated(700, 24))
    arguments = ["--vectors", str(tmp_path / "v.npy"), "--queries", "20", "--singles", "3", "--repeats", "2"]
    page = tmp_path / "page.md"
    page.write_text("# Benchmarks\n\n<!-- cpu:begin -->\nas it was\n<!-- cpu:end -->\n", encoding="utf-8")
    arguments += ["--layouts", "exact,graph,binary", "--write", str(page), "--json", str(tmp_path / "raw.json")]
    assert index.main(arguments) == 0
    records = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))["records"]
    assert [record["layout"] for record in records] == ["exact", "graph", "binary"]
    assert [record["graph"] for record in records] == [False, True, False]
    assert records[0]["recall"] == {"1": 1.0, "0.5": 1.0, "0.05": 1.0, "0.001": 1.0}
    assert all(len(one) == 2 and min(one) > 0 for record in records for one in record["seconds"].values())
    text = page.read_text(encoding="utf-8")
    assert text.count("as it was") == text.count("<!-- index:begin -->") == 1
    assert str(tmp_path) not in text
    assert "Recall@10" in capsys.readouterr().out
    index.write(page, "again", {}, [], "so")
    assert page.read_text(encoding="utf-8").count("<!-- index:end -->") == 1
    page.write_text(text.replace("<!-- index:end -->", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="index:end"):
        index.write(page, "again", {}, [], "so")


def test_texts_may_be_packed(tmp_path: Path) -> None:
    (tmp_path / "t.txt.xz").write_bytes(lzma.compress("하나\n\ntwo\n".encode()))
    assert index._texts(tmp_path / "t.txt.xz") == ["하나", "two"]


@pytest.mark.parametrize("arguments", [["--layouts", "none"], ["--rows", "50", "--queries", "50"]])
def test_wrong_settings_are_named(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=arguments[-2]):
        index.main(arguments)
