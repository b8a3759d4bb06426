"""Which device is taken, on machines that have more of them than the one that runs the tests."""

from __future__ import annotations

import pytest
import torch

from munjang.errors import InputError
from munjang.nn.device import choose_device


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
