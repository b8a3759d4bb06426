"""Plans beside the same sums done by hand, what grows with what, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.planning import Prices, Workload, estimate
from planning.material import KIND, rates


def test_by_hand() -> None:
    """100 million rows of 30 tokens on 8 GPUs."""
    prices = Prices(gpu_hour=2.0, disk_gb_month=0.1)
    plan = estimate(Workload(100_000_000, 30, gpus=8, prices=prices), rates())
    row = 1e-5 + 30e-6 + 900e-9
    assert plan.passages == 10**8
    assert plan.encoding.seconds == pytest.approx(1e8 * row / 8)
    assert plan.encoding.device_hours == pytest.approx(1e8 * row / 3600)
    assert plan.encoding.rows_per_second == pytest.approx(8 / row)
    assert plan.encoding.tokens == 3e9
    assert plan.building.write == pytest.approx(1 + 1e8 * 1e-4 + 3e9 * 1e-6)
    assert plan.building.keyword == pytest.approx(1e8 * 1e-4 + 3e9 * 1e-5)
    assert plan.building.graph == pytest.approx(1e8 * 1e-5 * 1e8**0.2)
    assert plan.building.seconds == pytest.approx(plan.building.write + plan.building.keyword + plan.building.graph)
    structures = 1e8 * (4 * 256 + 8 + 280)
    assert plan.disk.vectors == 1e8 * 1024
    assert plan.disk.documents == pytest.approx(1e8 * (100 + 1024) + 3e9 * 5)
    assert plan.disk.structures == pytest.approx(structures + 3e9 * 4)
    assert plan.disk.total == pytest.approx(plan.disk.documents + plan.disk.structures)
    assert plan.searching.memory == pytest.approx(1.5e9 + structures + 3e9 * 4)
    assert plan.building.memory == pytest.approx(1.5e9 + 2.5 * structures)
    assert plan.searching.look == pytest.approx(1e-3 + 1e-4 * 1e8**0.2)
    assert plan.searching.seconds == pytest.approx(2e-3 + plan.searching.look)
    assert not plan.searching.exact
    assert plan.money.encoding == pytest.approx(2.0 * 1e8 * row / 3600)
    assert plan.money.disk_month == pytest.approx(0.1 * plan.disk.total / 1e9)
    assert plan.money.first_month == pytest.approx((plan.money.encoding or 0) + (plan.money.disk_month or 0))
    assert any("8 GPUs are 8 times one" in one for one in plan.assumptions)
    assert any("10,000 times the rows" in one for one in plan.assumptions)
    assert any("milvus://" in one and "int8" in one and "binary" in one for one in plan.notes)  # 330 GB, there are 64
    json.dumps(plan.as_dict(), allow_nan=False)


def test_few_rows_need_no_graph() -> None:
    plan = estimate(Workload(200_000, 30), rates())
    assert plan.searching.exact
    assert plan.building.graph == 0
    assert plan.searching.look == pytest.approx(1e-3 + 200_000 * 1e-7)
    assert plan.disk.structures == pytest.approx(200_000 * (1024 + 8 + 30 * 4))
    assert (plan.notes, plan.money.first_month) == ((), None)
    assert not estimate(Workload(200_001, 30), rates()).searching.exact


def test_bits_and_no_faiss_look_at_everything() -> None:
    bits = estimate(Workload(10**9, 30, vectors="binary"), rates())
    assert bits.searching.exact
    assert bits.searching.look == pytest.approx(1e-3 + 10.0)
    assert any("a search takes 10 s" in one for one in bits.notes)
    without = estimate(Workload(10**9, 30), rates(graphs=False))
    assert any("pip install 'munjang[search]'" in one for one in without.notes)


def test_long_texts_become_passages() -> None:
    assert estimate(Workload(10, 96), rates()).passages == 10
    plan = estimate(Workload(10, 97), rates())
    assert (plan.passages, plan.passage_tokens) == (20, 96)
    plan = estimate(Workload(10, 96 + 47 * 3), rates())
    assert plan.passages == 40
    assert plan.encoding.seconds == pytest.approx(40 * (1e-5 + 96e-6 + 96**2 * 1e-9))
    assert plan.disk.documents == pytest.approx(10 * 100 + 40 * 1024 + 10 * 237 * 5)
    assert any("becomes 4 passages of 96 tokens" in one for one in plan.assumptions)


def test_shorter_vectors() -> None:
    whole, half = (estimate(Workload(10**6, 30, dimension=d), rates()) for d in (None, 128))
    assert half.building.graph == pytest.approx(whole.building.graph / 2)
    assert half.disk.vectors == whole.disk.vectors / 2
    assert half.encoding == whole.encoding
    assert half.searching.look == pytest.approx(1e-3 + 0.5 * KIND.walk * 10**1.2)
    kept = {kind: estimate(Workload(10**6, 30, vectors=kind, keyword=False), rates()) for kind in ("int8", "binary")}
    assert kept["int8"].disk.structures == pytest.approx(1e6 * (256 + 8 + 280))
    assert kept["binary"].disk.structures == pytest.approx(1e6 * (32 + 8))
    assert kept["binary"].disk.documents == kept["int8"].disk.documents  # bits are rescored with bytes
    assert kept["int8"].building.keyword == 0


def test_a_busy_machine_is_told() -> None:
    assert any(
        "busy when it was measured (load 6.0 on 8" in one for one in estimate(Workload(9, 9), rates(load=6)).notes
    )
    assert not estimate(Workload(9, 9), rates(load=3.9)).notes


def test_how_many_for_a_day() -> None:
    plan = estimate(Workload(10**11, 30), rates())
    days = plan.encoding.seconds / 86_400
    assert any(f"a day with {math.ceil(days)} GPUs" in one for one in plan.notes)
    assert any("one process builds the graph in" in one for one in plan.notes)


@given(
    st.integers(1, 10**12),
    st.floats(1, 1e5),
    st.sampled_from(["float32", "int8", "binary"]),
    st.integers(1, 256),
    st.booleans(),
)
def test_more_is_never_less(rows: int, tokens: float, vectors: Any, dimension: int, keyword: bool) -> None:
    """Twice the rows or the tokens take at least as much of everything; all figures are finite."""
    asked = {"dimension": dimension, "vectors": vectors, "keyword": keyword}
    plans = [
        estimate(Workload(r, t, **asked), rates()) for r, t in ((rows, tokens), (2 * rows, tokens), (rows, 2 * tokens))
    ]
    for more in plans[1:]:
        for part in ("encoding", "building", "disk"):
            for name, value in vars(getattr(plans[0], part)).items():
                if name not in ("rows_per_second", "devices"):
                    assert math.isfinite(value)
                    assert getattr(getattr(more, part), name) >= value * (1 - 1e-9), (part, name)
        assert more.passages >= plans[0].passages


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": 0}, "rows must be 1 to 10T, got 0"),
        ({"rows": 10**14}, "rows must be 1 to 10T"),
        ({"tokens": 0.5}, "tokens must be 1 to 10M, got 0.5"),
        ({"tokens": float("nan")}, "tokens must be 1 to 10M, got nan"),
        ({"gpus": 0}, "gpus must be 1 to 100K, got 0"),
        ({"vectors": "int4"}, "vectors must be one of float32, int8, binary, got 'int4'"),
        ({"dimension": 0}, r"dimension must be 1 to 256 \(the vectors of my-model\), got 0"),
        ({"dimension": 257}, "measure a model with longer vectors"),
    ],
)
def test_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        estimate(Workload(**{"rows": 10, "tokens": 30, **given}), rates())


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_prices_that_make_no_sense(price: float) -> None:
    with pytest.raises(InputError, match="the price gpu_hour must be 0 or more"):
        Prices(gpu_hour=price)


def test_gpus_of_a_machine_without() -> None:
    with pytest.raises(InputError, match=r"gpus=8 was asked for, but my-model was measured on a CPU \(eight cores\)"):
        estimate(Workload(10, 30, gpus=8), rates(device="cpu", device_name="eight cores"))
