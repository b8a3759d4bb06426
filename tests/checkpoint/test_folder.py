"""Model folders are replaced atomically: files of the user, killed processes, full disks, concurrent readers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from munjang.checkpoint import read_bi, resolve, write_bi
from munjang.checkpoint.write import replace_model_folder
from munjang.errors import InputError, ModelError
from munjang.files import previous_of


def fill(text: str) -> Any:
    def put(folder: Path) -> None:
        (folder / "modules.json").write_text(text)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(text)

    return put


def test_only_the_model_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    replace_model_folder(folder, fill("old"))
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "notes.txt").write_text("mine")
    (folder / "pytorch_model.bin").write_text("stale")
    folder.chmod(0o750)
    replace_model_folder(folder, fill("new"))
    assert (folder / "modules.json").read_text() == "new"
    assert sorted(entry.name for entry in folder.iterdir()) == [".git", "1_Pooling", "modules.json", "notes.txt"]
    assert folder.stat().st_mode & 0o777 == 0o750
    assert [entry.name for entry in folder.parent.iterdir()] == ["model"]


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_can_be_read_by_whom_the_umask_lets(umask: int, tmp_path: Path) -> None:
    def private(folder: Path) -> None:
        fill("new")(folder)
        safetensors.torch.save_file({"a": torch.zeros(2)}, folder / "model.safetensors")
        (folder / "1_Pooling" / "config.json").chmod(0o600)  # as files are that a library makes aside and renames

    before = os.umask(umask)
    try:
        replace_model_folder(tmp_path / "model", private)
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}


def test_folders_that_are_not_models_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is not a model \(it contains photo.jpg\): nothing was changed"):
        replace_model_folder(tmp_path / "holiday", fill("new"))
    with pytest.raises(InputError, match="is a file"):
        replace_model_folder(tmp_path / "file", fill("new"))
    replace_model_folder(tmp_path / "empty", fill("new"))
    assert (tmp_path / "empty" / "modules.json").read_text() == "new"
    assert os.listdir(tmp_path / "holiday") == ["photo.jpg"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    replace_model_folder(tmp_path / "v1", fill("old"))
    (tmp_path / "current").symlink_to(tmp_path / "v1")
    replace_model_folder(tmp_path / "current", fill("new"))
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "v1" / "modules.json").read_text() == "new"


def test_errors_leave_everything_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    replace_model_folder(folder, fill("old"))

    def full(aside: Path) -> None:
        (aside / "modules.json").write_text("new")
        raise OSError(28, "No space left on device")

    def rust(aside: Path) -> None:
        raise Exception("No space left on device (os error 28)")

    def wrong(aside: Path) -> None:
        raise KeyError("a bug")

    for filler in (full, rust):
        with pytest.raises(ModelError, match=r"the disk is full.*is unchanged"):
            replace_model_folder(folder, filler)
    with pytest.raises(KeyError):
        replace_model_folder(folder, wrong)
    assert (folder / "modules.json").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_an_interrupted_replacement_is_undone_by_the_next_reader(old_layout: Any) -> None:
    folder = old_layout()
    for comes in (resolve, read_bi):
        folder.rename(previous_of(folder))
        comes(folder)
        assert folder.is_dir()
        assert not previous_of(folder).exists()


def test_files_left_by_a_killed_replacement_are_kept_or_removed(tmp_path: Path) -> None:
    """Killed after the new folder was in place, before the old one was gone."""
    folder = tmp_path / "model"
    replace_model_folder(folder, fill("new"))
    previous = previous_of(folder)
    fill("old")(make(previous))
    (previous / "notes.txt").write_text("mine")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    from munjang import files

    abandoned = make(tmp_path / f".model.saving-{files._host()}-{dead.pid}-00")
    living = make(tmp_path / f".model.saving-{files._host()}-{os.getppid()}-00")
    elsewhere = make(tmp_path / ".model.saving-other-1-00")
    replace_model_folder(folder, fill("newer"))
    assert (folder / "modules.json").read_text() == "newer"
    assert (folder / "notes.txt").read_text() == "mine"
    assert not previous.exists()
    assert not abandoned.exists()
    assert living.exists()
    assert elsewhere.exists()


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_folder_replaced_while_it_is_read(old_layout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixture of both is never returned, and an error caused by the replacement is retried."""
    import munjang.checkpoint.read as reading

    folder = old_layout()
    parts = read_bi(folder)
    real, calls = reading.load_weights, []

    def slow(path: Path) -> Any:
        calls.append(path)
        if len(calls) == 1:
            write_bi(parts, folder)
        if len(calls) == 2:
            write_bi(parts, folder)
            raise ModelError("a file that was there is gone")
        return real(path)

    monkeypatch.setattr(reading, "load_weights", slow)
    read_bi(folder)
    assert len(calls) == 3


SAVER = """
import os, sys
from pathlib import Path
from munjang.checkpoint import read_bi, write_bi
a, b = (read_bi(Path(p)) for p in sys.argv[1:3])
for line in sys.stdin:  # each line asks for a process that saves until it is killed
    child = os.fork()
    if child == 0:
        while True:
            write_bi(a, Path(sys.argv[3])); write_bi(b, Path(sys.argv[3]))
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment(old_layout: Any, tmp_path: Path) -> None:
    first = old_layout()
    parts = read_bi(first)
    with torch.no_grad():
        for parameter in parts.body.parameters():
            parameter.fill_(0.5)
    second, target = tmp_path / "second", tmp_path / "target"
    write_bi(parts, second)
    write_bi(read_bi(first), target)
    (target / "notes.txt").write_text("mine")
    known = {total(folder) for folder in (first, second)}
    assert len(known) == 2
    chance = random.Random(1)
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(first), str(second), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert saver.stdin is not None
    assert saver.stdout is not None
    with saver:
        for _ in range(25):
            print("go", file=saver.stdin, flush=True)
            child = int(saver.stdout.readline())
            time.sleep(chance.uniform(0, 0.15))
            os.kill(child, signal.SIGKILL)
            assert saver.stdout.readline() == "dead\n"
            assert total(target) in known
        saver.stdin.close()
    write_bi(read_bi(first), target)
    assert (target / "notes.txt").read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def total(folder: Path) -> float:
    return float(read_bi(folder).body.embeddings.word.weight.detach().sum())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(12))
def test_killed_at_every_step(tmp_path: Path, step: int, after: bool) -> None:
    """The process ends before or after each rename, sync and removal in turn."""
    folder = tmp_path / "model"
    replace_model_folder(folder, fill("old"))
    (folder / "notes.txt").write_text("mine")
    child = os.fork()
    if child == 0:
        left = step

        def dying(real: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1 and not after:
                    os._exit(9)
                result = real(*arguments, **options)
                if left == -1:
                    os._exit(9)
                return result

            return call

        for name in ("rename", "fsync", "unlink", "rmdir"):
            setattr(os, name, dying(getattr(os, name)))
        replace_model_folder(folder, fill("new"))
        os._exit(0)
    os.waitpid(child, 0)
    assert resolve(folder) == folder
    value = (folder / "modules.json").read_text()
    assert value in ("old", "new")
    assert (folder / "1_Pooling" / "config.json").read_text() == value
    replace_model_folder(folder, fill("newer"))
    assert (folder / "modules.json").read_text() == "newer"
    assert (folder / "notes.txt").read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs a mount")
def test_a_disk_that_is_full(old_layout: Any, tmp_path: Path) -> None:
    parts = read_bi(old_layout())
    write_bi(parts, tmp_path / "measure")
    used = sum(path.stat().st_size for path in (tmp_path / "measure").rglob("*"))
    disk = make(tmp_path / "disk")
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", f"size={used * 3 // 2}", "tmpfs", str(disk)], check=False
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        write_bi(parts, disk / "model")
        before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
        with pytest.raises(ModelError, match="the disk is full"):
            write_bi(parts, disk / "model")
        assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before
        assert [entry.name for entry in disk.iterdir()] == ["model"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
