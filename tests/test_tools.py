"""The tools that compare two trees agree with themselves, and notice a change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


def differential(old: Path, new: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "differential.py"), "--old", str(old), "--new", str(new)]
    return subprocess.run([*command, "--only", "tokens", "--seed", "1"], capture_output=True, text=True)


def test_a_tree_is_the_same_as_itself() -> None:
    done = differential(ROOT, ROOT)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "tokens: same"), done.stdout + done.stderr


def test_a_change_is_noticed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "src" / "munjang" / "__init__.py"
    changed = "\nimport numpy as _numpy\n_load = __getattr__('load')\ndef load(*a, **k):\n    model = _load(*a, **k)\n"
    changed += "    encode = model.encode\n    model.encode = lambda texts: encode(texts) + _numpy.float32(0.001)\n"
    package.write_text(package.read_text(encoding="utf-8") + changed + "    return model\n", encoding="utf-8")
    done = differential(ROOT, tmp_path)
    assert done.returncode == 1
    assert "differences" in done.stdout
