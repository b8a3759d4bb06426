"""The index in a folder keeps the contract that the ones on servers keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from index.remote.contract import Contract, Place


class TestFolder(Contract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return lambda name: str(tmp_path / name)
