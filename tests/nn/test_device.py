"""Devices, precisions and cores, also of machines that the tests do not run on."""

from __future__ import annotations

import pytest
import torch

from munjang.errors import InputError
from munjang.nn import device as devices
from munjang.nn.device import choose_device, choose_dtype, explain


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for name in ("LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("four_gpus")
def test_alone_it_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device(None) == choose_device("cuda") == torch.device("cuda", 0)
    assert choose_device("cuda:3") == torch.device("cuda", 3)
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "2")  # without others it says nothing
    assert choose_device(None) == torch.device("cuda", 0)
    with pytest.raises(InputError, match="sees 4 CUDA devices"):
        choose_device("cuda:4")


@pytest.mark.usefixtures("four_gpus")
def test_of_several_processes_each_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert choose_device(None) == choose_device("cuda") == torch.device("cuda", 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)  # a number is obeyed
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # where each process sees one only
    assert choose_device(None) == torch.device("cuda", 0)


def test_unknown_devices_and_precisions_are_refused() -> None:
    with pytest.raises(InputError, match="device must be like"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch sees 0 CUDA devices"):
            choose_device("cuda")
    cpu = torch.device("cpu")
    with pytest.raises(InputError, match="dtype must be"):
        choose_dtype("float8", cpu)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="float16 is slow"):
        choose_dtype("float16", cpu)
    assert choose_dtype(torch.bfloat16, cpu) == torch.bfloat16
    assert choose_dtype("auto", torch.device("cuda")) == torch.float16


@pytest.mark.usefixtures("exact")
def test_the_choice_is_explained() -> None:
    cpu = torch.device("cpu")
    assert choose_dtype("auto", cpu) == torch.float32
    assert "does not multiply bfloat16 natively" in explain(cpu, torch.float32, "auto")
    assert "bfloat16 as requested" in explain(cpu, torch.bfloat16, "bfloat16")


def test_the_quota_of_a_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cgroup_quota", lambda: 0.5)
    devices.cpu_cores.cache_clear()
    assert devices.cpu_cores() == 1
    monkeypatch.setattr(devices, "_cgroup_quota", lambda: None)
    devices.cpu_cores.cache_clear()
    assert devices.cpu_cores() >= 1
    devices.cpu_cores.cache_clear()
