"""Atomic writes, folder replacement and the output lock, also when the writing process is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from munjang.errors import DataError
from munjang.files import OutputLock, atomic_path, atomic_write, disk_errors, repair_folder, replace_folder, user_cache


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    atomic_write(path, b"old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.bin"]
    atomic_write(path, memoryview(b"new"))
    assert path.read_bytes() == b"new"


_KILLED = """
import os, signal, sys
from pathlib import Path
from munjang.files import {imports}
target = Path(sys.argv[1])
def kill(*_): os.kill(os.getpid(), signal.SIGKILL)
{body}
"""


def _run_killed(target: Path, imports: str, body: str) -> None:
    code = _KILLED.format(imports=imports, body=body)
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_writer_killed_before_the_rename_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"old")
    _run_killed(path, "atomic_write", 'os.replace = kill; atomic_write(target, b"new")')
    assert path.read_bytes() == b"old"
    atomic_write(path, b"newer")
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.bin"]


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_replacement_killed_between_its_renames_is_repaired(renames: int, tmp_path: Path) -> None:
    folder = tmp_path / "model"

    def fill(content: str) -> None:
        replace_folder(folder, lambda new: (new / "a").write_text(content) and None, owned=lambda name: True)

    fill("old")
    body = f"""
left = [{renames}]
rename = os.rename
def limited(*names):
    if not left[0]: kill()
    left[0] -= 1
    rename(*names)
os.rename = limited
replace_folder(target, lambda new: (new / "a").write_text("new") and None, owned=lambda name: True)
"""
    _run_killed(folder, "replace_folder", body)
    repair_folder(folder)
    assert (folder / "a").read_text() == ("new" if renames == 2 else "old")
    fill("newest")
    assert (folder / "a").read_text() == "newest"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_the_lock_excludes_other_processes_until_its_holder_dies(tmp_path: Path) -> None:
    lock, target = tmp_path / "out.lock", tmp_path / "out"
    code = (
        "import sys, time; from pathlib import Path; from munjang.files import OutputLock\n"
        "held = OutputLock(Path(sys.argv[1]), Path('out')); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DataError, match="another process"):
            OutputLock(lock, target)
        holder.kill()
        holder.wait()
    assert lock.exists()  # a lock file without a holder locks nothing
    OutputLock(lock, target).release()
    assert not lock.exists()


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "could not be")])
def test_disk_errors_say_what_is_intact(number: int, expected: str) -> None:
    with (
        pytest.raises(DataError, match=rf"out\.npy.*{expected}.*42 rows are kept"),
        disk_errors(Path("out.npy"), safe="42 rows are kept"),
    ):
        raise OSError(number, "no")


def test_the_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNJANG_CACHE", str(tmp_path))
    assert user_cache() == tmp_path
    monkeypatch.delenv("MUNJANG_CACHE")
    assert user_cache().name == "munjang"
