"""The engine `ray` on a real cluster of several nodes on this machine: workers, nodes and drivers killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from munjang.errors import InputError, MissingExtraError
from munjang.index.index import Index
from munjang.sharding import Reading, ShardOptions, ShardResult, encode_shards
from support.sharded import once_under_way, outputs, rows, rows_aside, write_jsonl, write_parquet

_STORE = 80 << 20  # bytes, the least that Ray takes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for workers, and two nodes with room for one each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    try:
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": _STORE},
        )
        for _ in range(2):
            made.add_node(num_cpus=1, object_store_memory=_STORE)
        made.wait_for_nodes(timeout=60)
    except Exception as error:  # no room, no ports: whatever Ray says
        pytest.skip(f"a Ray cluster cannot start here: {error}")
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "in"
    write_jsonl(folder / "큰 조각.jsonl", ({"id": n, "text": f"빵 {n}"} for n in range(8300)))
    write_parquet(folder / "b.parquet", rows(40, "b"))
    for number in range(4):
        write_jsonl(folder / f"작은-{number}.jsonl.gz", [*rows(20, str(number)), {"id": 1}])
    return folder


def encode(shards: Path, out: Path, model: Path, *, progress: Any = False, **given: Any) -> ShardResult:
    options = ShardOptions(format="npy", reading=Reading(column="text"), **given)
    return encode_shards(shards, out, model=model, options=options, progress=progress)


@pytest.fixture(scope="module")
def plain(shards: Path, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an unbroken run of the engine `processes` makes."""
    out = tmp_path_factory.mktemp("plain") / "out"
    assert encode(shards, out, model_folder, engine="processes", workers=1).encoded == 6
    return outputs(out)


def workers() -> list[psutil.Process]:
    """The actors of our own cluster."""
    found = psutil.Process().children(recursive=True)
    return [child for child in found if child.is_running() and "ray::_Actor" in "".join(child.cmdline()[:1])]


@pytest.mark.server
class TestOnACluster:
    def test_the_same_bytes_as_the_other_engine(
        self, cluster: Any, shards: Path, plain: dict[str, bytes], model_folder: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        result = encode(shards, out, model_folder, engine="ray", address=cluster.address)
        assert (result.encoded, result.rows, result.rejected) == (6, 8420, 4)
        assert outputs(out) == plain
        again = encode(shards, out, model_folder, engine="ray", address=cluster.address)
        assert (again.encoded, again.skipped) == (0, 6)
        other = encode(shards, out, model_folder, engine="processes", workers=1)  # one record for both engines
        assert (other.encoded, other.skipped) == (0, 6)

    def test_a_worker_killed(
        self, cluster: Any, shards: Path, plain: dict[str, bytes], model_folder: Path, tmp_path: Path
    ) -> None:
        killed: list[int] = []

        def kill() -> None:
            for worker in workers():
                worker.send_signal(signal.SIGKILL)
                killed.append(worker.pid)

        with once_under_way(tmp_path / "out", kill):
            assert encode(shards, tmp_path / "out", model_folder, engine="ray", address=cluster.address).ok
        assert killed
        assert outputs(tmp_path / "out") == plain

    def test_a_node_killed(
        self, cluster: Any, shards: Path, plain: dict[str, bytes], model_folder: Path, tmp_path: Path
    ) -> None:
        killed: list[Any] = []

        def kill() -> None:
            killed.append(_node_of_a_worker(cluster))
            cluster.remove_node(killed[0], allow_graceful=False)

        try:
            with once_under_way(tmp_path / "out", kill):
                result = encode(shards, tmp_path / "out", model_folder, engine="ray", address=cluster.address)
        finally:
            cluster.add_node(num_cpus=1, object_store_memory=_STORE)
            cluster.wait_for_nodes(timeout=60)
        assert killed
        assert result.ok
        assert outputs(tmp_path / "out") == plain

    def test_the_driver_killed_and_run_again(
        self,
        cluster: Any,
        shards: Path,
        plain: dict[str, bytes],
        model_folder: Path,
        tmp_path: Path,
        environment: dict[str, str],
    ) -> None:
        out = tmp_path / "out"
        command = [sys.executable, "-m", "munjang", "encode", str(shards), "--engine", "ray"]
        command += ["--address", cluster.address, "--model", str(model_folder), "--column", "text"]
        command += ["--output-format", "npy", "-o", str(out)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + 120
            while not rows_aside(out):
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
        before = outputs(out)
        assert len(before) < 6
        assert all(plain[name] == data for name, data in before.items())
        result = encode(shards, out, model_folder, engine="ray", address=cluster.address)
        assert result.encoded + result.skipped == 6
        assert result.ok
        assert outputs(out) == plain

    def test_into_an_index(self, cluster: Any, tmp_path: Path, model: Any) -> None:
        Index.create(tmp_path / "index", model).close()
        write_jsonl(tmp_path / "in" / "a.jsonl", rows(1500, "a"))
        write_parquet(tmp_path / "in" / "b.parquet", rows(100, "b"))
        options = ShardOptions(engine="ray", address=cluster.address)
        assert encode_shards(tmp_path / "in", into=tmp_path / "index", options=options).rows == 1600
        with Index.open(tmp_path / "index") as index:
            assert set(index.ids()) == {row["id"] for row in [*rows(1500, "a"), *rows(100, "b")]}
            assert index.verify().ok


def _node_of_a_worker(cluster: Any) -> Any:
    """A node that has an actor of ours: its raylet is an ancestor of the actor."""
    ancestors = {parent.pid for worker in workers() for parent in worker.parents()}
    for node in cluster.list_all_nodes():
        raylets = node.all_processes.get("raylet", [])
        if node is not cluster.head_node and any(info.process.pid in ancestors for info in raylets):
            return node
    raise AssertionError("no node has a worker")


@pytest.mark.parametrize(
    ("address", "match"),
    [("127.0.0.1:1", "no Ray cluster can be reached at 127.0.0.1:1"), ("ray://x:1", "HOST:PORT"), ("x", "HOST:PORT")],
)
def test_an_address_where_no_cluster_is(
    address: str, match: str, shards: Path, model_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=match):
        encode(shards, tmp_path / "out", model_folder, engine="ray", address=address)
    assert not (tmp_path / "out").exists()


def test_without_ray_the_extra_is_named(
    shards: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'munjang\[ray\]'"):
        encode(shards, tmp_path / "out", model_folder, engine="ray")


def test_how_many_workers_a_cluster_has_room_for() -> None:
    from munjang.sharding.ray_team import cluster_size

    class Ray:
        def __init__(self, *nodes: tuple[float, float]) -> None:
            self._nodes = nodes

        def nodes(self) -> list[dict[str, Any]]:
            dead = {"Alive": False, "Resources": {"CPU": 64.0}}
            return [dead, *({"Alive": True, "Resources": {"CPU": cpu, "GPU": gpu}} for cpu, gpu in self._nodes)]

    assert cluster_size(Ray((16, 0), (8, 0)), None, device=None) == (6, 4, False)
    assert cluster_size(Ray((0, 0), (1, 0), (1, 0)), None, device=None) == (2, 1, False)
    assert cluster_size(Ray((16, 0), (7, 0)), 8, device=None) == (2, 8, False)
    assert cluster_size(Ray((16, 4), (16, 4)), None, device=None) == (8, 4, True)
    assert cluster_size(Ray((16, 4), (16, 4)), None, device="cpu") == (8, 4, False)
    assert cluster_size(Ray(), None, device=None) == (1, 4, False)
