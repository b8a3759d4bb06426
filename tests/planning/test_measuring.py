"""A tiny model measured for real: the rates describe builds and encodings that were not measured."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from munjang.errors import InputError
from munjang.planning import MeasureOptions, Rates, Workload, add_rates, estimate, measure, read_rates
from munjang.planning.building import Builder
from munjang.planning.memory import machine_memory, peak_memory, used_memory
from munjang.planning.texts import texts, vectors
from support.small_models import bi_encoder

pytest.importorskip("faiss")
pytestmark = pytest.mark.slow  # it measures for real


@pytest.fixture(scope="module")
def measured() -> tuple[Rates, list[tuple[int, int | None]]]:
    told: list[tuple[int, int | None]] = []
    options = MeasureOptions(seconds=0.2)
    rates = measure(bi_encoder(), "작은 모델", options=options, progress=lambda done, total: told.append((done, total)))
    return rates, told


def test_what_is_known(measured: tuple[Rates, list[tuple[int, int | None]]], tmp_path: Path) -> None:
    rates, told = measured
    model = bi_encoder()
    assert (rates.model, rates.device, rates.dimension) == ("작은 모델", "cpu", model.dimension)
    assert (rates.max_length, rates.chunk_tokens, rates.stride) == (64, 48, 23)
    assert rates.fingerprint == model.fingerprint
    assert rates.encode_row + rates.encode_token > 0
    assert rates.query > 0
    assert rates.graphs
    assert 200 < rates.graph_bytes < 400  # 64 links of 4 bytes on the lowest level
    assert 8 <= rates.row_bytes < 16  # a number of 8 bytes
    assert set(rates.kinds) == {"float32", "int8", "binary"}
    for kind in rates.kinds.values():
        assert kind.scan_row > 0
        assert kind.write_row > 0
    assert rates.kinds["float32"].graph_row > 0
    assert 0.1 <= rates.graph_growth <= 0.3
    assert told[-1][0] == told[-1][1] == len(told)
    add_rates(tmp_path / "rates.json", rates)
    assert read_rates(tmp_path / "rates.json") == [rates]


@pytest.mark.parametrize(("kind", "graph"), [("float32", True), ("int8", False), ("binary", False)])
def test_sizes_of_an_index_that_was_not_measured(
    measured: tuple[Rates, list[tuple[int, int | None]]], tmp_path: Path, kind: str, graph: bool
) -> None:
    """Sizes are told within a tenth; times here only roughly, because others may use the machine."""
    rates, _ = measured
    build = Builder(bi_encoder(), tmp_path, lambda n: None)(kind, 16_000, words=6, graph=graph)  # type: ignore[arg-type]
    limit = 0 if graph else 1 << 40
    work = Workload(16_000, build.tokens / 16_000, vectors=kind, keyword=False)  # type: ignore[arg-type]
    plan = estimate(work, Rates(**{**vars(rates), "exact_up_to": limit}))
    assert plan.disk.structures == pytest.approx(build.derived, rel=0.1)
    assert plan.disk.documents == pytest.approx(build.documents, rel=0.15)
    assert 0.1 < build.seconds / plan.building.seconds < 10
    assert not list(tmp_path.iterdir())


def test_an_encoding_that_was_not_measured(measured: tuple[Rates, list[tuple[int, int | None]]]) -> None:
    rates, _ = measured
    report = bi_encoder().encode_report(texts(3000, 5, seed=77)).report
    plan = estimate(Workload(3000, report.tokens / report.texts), rates)
    assert 0.1 < report.seconds / plan.encoding.seconds < 10


def test_material() -> None:
    made = texts(500, 12, seed=3)
    assert made == texts(500, 12, seed=3)
    assert len(set(made)) == 500
    assert {len(text.split()) for text in made} == {12}
    assert any("비가" in text for text in made)
    assert any("river" in text for text in made)
    rows = vectors(2000, 48)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    nearest = np.sort(rows[:50] @ rows.T, axis=1)[:, -2]
    assert nearest.mean() > 0.5  # they crowd; without any structure the nearest of 2,000 would be about 0.45
    assert (rows == vectors(2000, 48)).all()


def test_memory() -> None:
    if used_memory() is None:
        pytest.skip("this system does not say how much memory a process uses")
    with peak_memory() as watched:
        before = used_memory()
        block = np.ones(20_000_000)  # 160 MB
        time.sleep(0.1)
        del block
    assert watched.peak is not None
    assert before is not None
    assert watched.peak - before > 120e6
    assert machine_memory() > watched.peak


@pytest.mark.parametrize("given", [{"seconds": 0}, {"seconds": float("nan")}, {"rows": 9_999}, {"rows": 10**8}])
def test_measurements_that_make_no_sense(given: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"(seconds|rows to measure with) must be"):
        MeasureOptions(**given)
