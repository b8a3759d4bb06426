"""The file of rates: kept, found, replaced, and refused where it is something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from munjang.errors import DataError, InputError
from munjang.planning import add_rates, find_rates, rates_path, read_rates
from planning.material import rates


def test_kept_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rates.json"
    one, other = rates(), rates(device="cpu", device_name="여덟 코어")
    for entry in (one, other, rates(query=0.5)):
        add_rates(path, entry)
    assert read_rates(path) == [other, rates(query=0.5)]
    assert list(path.parent.iterdir()) == [path]


def test_found(tmp_path: Path) -> None:
    entries = [rates(), rates(device="cpu", device_name="eight cores"), rates(model="나의 모델", device="cpu")]
    assert find_rates(entries, None) is entries[2]
    assert find_rates(entries, "my-model") is entries[1]
    assert find_rates(entries, "my-model", gpu=True) is entries[0]
    assert find_rates(entries, None, gpu=True) is entries[0]
    with pytest.raises(InputError, match=r"other was not measured \(these were: my-model, 나의 모델\): munjang plan"):
        find_rates(entries, "other")
    with pytest.raises(InputError, match="나의 모델 was not measured on a GPU, only on"):
        find_rates(entries, "나의 모델", gpu=True)


def test_none_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there are no rates at .*munjang plan --measure measures this machine"):
        read_rates(tmp_path / "rates.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content | {"format": 2},
        lambda content: [content],
        lambda content: content | {"rates": [content["rates"][0] | {"query": -1.0}]},
        lambda content: content | {"rates": [content["rates"][0] | {"query": None}]},
        lambda content: content | {"rates": [content["rates"][0] | {"query": float("nan")}]},
        lambda content: content | {"rates": [content["rates"][0] | {"extra": 1.0}]},
        lambda content: content | {"rates": [{"model": "x"}]},
        lambda content: {"format": 1},
    ],
)
def test_damaged(tmp_path: Path, change: object) -> None:
    path = tmp_path / "rates.json"
    add_rates(path, rates())
    whole = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(change(whole))  # type: ignore[operator]
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="is no file of rates"):
        read_rates(path)
    with pytest.raises(DataError, match="is no file of rates"):
        add_rates(path, rates())  # what is not understood is not written over
    assert path.read_text(encoding="utf-8") == text


def test_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUNJANG_CACHE", str(tmp_path))
    assert rates_path() == tmp_path / "rates.json"
    monkeypatch.delenv("MUNJANG_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert rates_path() == tmp_path / "munjang" / "rates.json"
