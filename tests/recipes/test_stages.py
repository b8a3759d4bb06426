"""Stages of a long recipe: done once, skipped when unchanged, begun anew when changed, gone on with after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from munjang.errors import DataError, InputError
from munjang.recipes.stages import Done, Made, Stages, check_run_folder, hash_files, key_of, open_stages

Make = Callable[[Path], Made]


def writer(text: str, calls: list[str], *, name: str = "out.txt") -> Make:
    """A stage that writes a text and remembers that it was called."""

    def make(folder: Path) -> Made:
        calls.append(text)
        (folder / name).write_text(text, encoding="utf-8")
        return Made([name], {"length": len(text), "where": folder / name})

    return make


def two(stages: Stages, calls: list[str], *, first: str = "하나", seed: int = 0) -> tuple[Done, Done]:
    """Two stages, of which the second is made of the first."""
    one = stages.run("one", {"text": first}, writer(first, calls))
    other = stages.run("two", {"one": one.digest, "seed": seed}, writer(f"two {seed}", calls))
    return one, other


def test_a_second_run_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    with open_stages(tmp_path / "새 run", "sts") as stages:
        before = two(stages, calls)
    assert [done.folder.name for done in before] == ["1-one", "2-two"]
    assert not any(done.skipped for done in before)
    with open_stages(tmp_path / "새 run", "sts", progress=True) as stages:
        after = two(stages, calls)
        assert stages.done == list(after)
    assert calls == ["하나", "two 0"]
    assert all(done.skipped for done in after)
    for old, new in zip(before, after, strict=True):
        assert (old.name, old.folder, old.digest) == (new.name, new.folder, new.digest)
        assert old.facts == new.facts  # also what JSON makes texts of, such as paths
        assert new.seconds == pytest.approx(old.seconds, abs=1e-3)
    said = capsys.readouterr().err
    assert said.splitlines() == ["1-one: done before, skipped", "2-two: done before, skipped"]


def test_other_inputs_begin_a_stage_anew_and_those_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    with open_stages(tmp_path, "sts") as stages:
        two(stages, calls)
    (tmp_path / "2-two" / "half.bin").write_text("of the stage as it was")
    with open_stages(tmp_path, "sts", progress=True) as stages:
        one, other = two(stages, calls, seed=1)
    assert (one.skipped, other.skipped) == (True, False)
    assert not (tmp_path / "2-two" / "half.bin").exists()
    said = capsys.readouterr().err.splitlines()
    assert said[1:3] == ["2-two: it was made with other seed; the stage begins anew", "2-two: begins"]
    with open_stages(tmp_path, "sts") as stages:
        one, other = two(stages, calls, first="둘", seed=1)
    assert not one.skipped
    assert not other.skipped  # the digest of the first is an input of the second
    assert calls == ["하나", "two 0", "two 1", "둘", "two 1"]


def test_an_equal_output_of_a_changed_stage_leaves_those_after_it(tmp_path: Path) -> None:
    calls: list[str] = []
    with open_stages(tmp_path, "sts") as stages:
        one = stages.run("one", {"way": "slow"}, writer("same", calls))
        stages.run("two", {"one": one.digest}, writer("two", calls))
    with open_stages(tmp_path, "sts") as stages:
        one = stages.run("one", {"way": "quick"}, writer("same", calls))
        assert stages.run("two", {"one": one.digest}, writer("two", calls)).skipped
    assert calls == ["same", "two", "same"]


def test_a_missing_output_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    with open_stages(tmp_path, "sts") as stages:
        before = two(stages, calls)
    (tmp_path / "1-one" / "out.txt").unlink()
    with open_stages(tmp_path, "sts", progress=True) as stages:
        after = two(stages, calls)
    assert [done.skipped for done in after] == [False, True]
    assert after[0].digest == before[0].digest
    assert "1-one: out.txt is gone; the stage is done again" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["other", "same"])
def test_an_edited_output_is_used_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str) -> None:
    calls: list[str] = []
    with open_stages(tmp_path, "sts") as stages:
        before = two(stages, calls, first="abc")
    edited = tmp_path / "1-one" / "out.txt"
    edited.write_text("xyz" if size == "same" else "longer than before")
    later = edited.stat().st_mtime_ns + 10**9
    os.utime(edited, ns=(later, later))
    with open_stages(tmp_path, "sts", progress=True) as stages:
        one, other = two(stages, calls, first="abc")
    assert one.skipped
    assert one.digest != before[0].digest
    assert not other.skipped  # it is made of the edited file
    assert calls == ["abc", "two 0", "two 0"]
    assert "1-one: out.txt was changed since it was made, and is used as it is now" in capsys.readouterr().err


def test_a_folder_is_an_output_too(tmp_path: Path) -> None:
    def make(folder: Path) -> Made:
        (folder / "model" / "1_Pooling").mkdir(parents=True)
        (folder / "model" / "config.json").write_text("{}")
        (folder / "model" / "1_Pooling" / "config.json").write_text("{}")
        return Made(["model"])

    with open_stages(tmp_path, "sts") as stages:
        before = stages.run("train", {}, make)
    with open_stages(tmp_path, "sts") as stages:
        assert stages.run("train", {}, make).digest == before.digest
    (tmp_path / "1-train" / "model" / "1_Pooling" / "config.json").rename(tmp_path / "1-train" / "model" / "moved")
    with open_stages(tmp_path, "sts") as stages:
        assert stages.run("train", {}, make).digest != before.digest  # names count, not only bytes


def test_an_error_leaves_the_half_work_and_the_next_run_goes_on(tmp_path: Path) -> None:
    seen: list[bool] = []

    def make(folder: Path) -> Made:
        seen.append((folder / "half").exists())
        (folder / "half").write_text("1")
        if len(seen) == 1:
            raise KeyboardInterrupt
        (folder / "out").write_text("2")
        return Made(["out"])

    with pytest.raises(KeyboardInterrupt), open_stages(tmp_path, "sts") as stages:
        stages.run("work", {"a": 1}, make)
    assert not (tmp_path / "1-work" / "stage.json").exists()
    with open_stages(tmp_path, "sts") as stages:  # the lock went with the error
        assert not stages.run("work", {"a": 1}, make).skipped
    assert seen == [False, True]
    seen.clear()
    with pytest.raises(KeyboardInterrupt), open_stages(tmp_path, "sts") as stages:
        stages.run("work", {"a": 2}, make)
    assert seen == [False]  # other inputs: nothing of the old work


def killed(folder: Path, where: str, value: str = "1") -> int | bool:
    """Do a stage in a process of its own, which kills itself at that place: its signal, or whether it was skipped."""
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else {10: False, 11: True}[os.WEXITSTATUS(status)]
    try:
        os._exit(10 + _work(folder, where, value))
    finally:
        os._exit(1)


def _work(folder: Path, where: str, value: str) -> bool:
    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def clear(path: Path) -> None:
        (Path(path) / "begun.json").unlink()
        die()

    def make(folder: Path) -> Made:
        (folder / "half").write_text("kept")
        if where == "work":
            die()
        (folder / "out").write_text("done")
        return Made(["out"])

    rename = os.replace
    if where == "begun":  # between the file written aside and its name
        os.replace = lambda aside, target: die() if Path(target).name == "begun.json" else rename(aside, target)
    if where == "clearing":  # in the middle of what was made of something else
        shutil.rmtree = clear  # type: ignore[assignment]
    with open_stages(folder, "sts") as stages:
        return stages.run("work", {"a": value}, make).skipped


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("where", ["work", "begun", "clearing"])
def test_killed_in_the_middle(tmp_path: Path, where: str) -> None:
    if where == "clearing":
        assert killed(tmp_path, "", "before") is False
    assert killed(tmp_path, where) == -signal.SIGKILL
    assert killed(tmp_path, "") is False  # neither the lock nor a half folder is in the way
    assert (tmp_path / "1-work" / "out").read_text() == "done"
    assert killed(tmp_path, "") is True
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["1-work", "run.json"]


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "1-one").mkdir()
    (tmp_path / "1-one" / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(DataError, match=r"no stage of a run.*choose another run folder"),
        open_stages(tmp_path, "sts") as one,
    ):
        one.run("one", {}, writer("x", []))
    assert (tmp_path / "1-one" / "thesis.txt").read_text() == "years of work"
    assert [entry.name for entry in (tmp_path / "1-one").iterdir()] == ["thesis.txt"]
    (tmp_path / "1-two").mkdir()  # an empty one is in nobody's way
    with open_stages(tmp_path, "sts") as stages:
        assert stages.run("two", {}, writer("x", [])).folder == tmp_path / "1-two"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(DataError, match="being written by another process")
    with open_stages(tmp_path, "sts"), refused, open_stages(tmp_path, "sts"):
        pass
    with open_stages(tmp_path, "sts") as stages:
        assert stages.done == []


def test_broken_records_are_no_stages(tmp_path: Path) -> None:
    calls: list[str] = []
    with open_stages(tmp_path, "sts") as stages:
        stages.run("one", {}, writer("x", calls))
    (tmp_path / "1-one" / "stage.json").write_text("[1, 2")
    with open_stages(tmp_path, "sts") as stages:
        assert not stages.run("one", {}, writer("x", calls)).skipped
    saved = json.loads((tmp_path / "1-one" / "stage.json").read_text(encoding="utf-8"))
    assert saved["stage"] == "one"
    assert set(saved["outputs"]) == {"out.txt"}


def test_keys_and_hashes(tmp_path: Path) -> None:
    assert key_of("a", {"x": 1, "y": [1, 2]}) == key_of("a", {"y": (1, 2), "x": 1})
    different = {
        key_of("a", {}),
        key_of("b", {}),
        key_of("a", {"x": 1}),
        key_of("a", {"x": "1"}),
        key_of("a", {"x": 2}),
    }
    assert len(different) == 5
    assert key_of("한국어", {"text": "\udcff"})  # half a surrogate pair, as a broken file name holds
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, names in ((first, ("a", "b")), (second, ("a", "c"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_bytes(b"0" * (1 << 20) + b"1")
    assert hash_files(first / "a") == hash_files(second / "a")
    assert hash_files(first) != hash_files(second)


def test_a_stage_with_another_number_is_renamed_and_not_done_again(tmp_path: Path) -> None:
    def make(folder: Path) -> Made:
        (folder / "out.txt").write_text("한 번", encoding="utf-8")
        return Made(["out.txt"])

    with open_stages(tmp_path, "sts") as stages:
        stages.run("labels", {"a": 1}, make)
        first = stages.run("bi", {"b": 2}, make)
    (tmp_path / "x-bi").mkdir()  # not a stage of ours: its number is none
    with open_stages(tmp_path, "sts") as stages:
        stages.run("labels", {"a": 1}, make)
        stages.run("more", {}, make)
        moved = stages.run("bi", {"b": 2}, make)
        other = stages.run("labels", {"a": 3}, make)  # another key is another stage
    assert (moved.folder.name, moved.skipped, moved.digest) == ("3-bi", True, first.digest)
    assert not (tmp_path / "2-bi").exists()
    assert (other.folder.name, other.skipped) == ("4-labels", False)
    assert (tmp_path / "1-labels").is_dir()


def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    def folder(name: str, *files: str, run: str | None = None) -> Path:
        path = tmp_path / name
        for file in files:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (path / file).write_text("{}", encoding="utf-8")
        if run is not None:
            path.mkdir(exist_ok=True)
            (path / "run.json").write_text(run, encoding="utf-8")
        return path

    check_run_folder(tmp_path / "not-there", "distill")
    check_run_folder(folder("notes", "thesis.docx"), "distill")  # nothing of it would be written over
    with open_stages(tmp_path / "killed", "distill"):
        pass  # at once: the run is known all the same
    check_run_folder(folder("killed", "model/config.json"), "distill")
    check_run_folder(folder("done", "result.json", "index.html", run='{"recipe": "distill"}'), "distill")
    for other in (
        folder("trained", "recipe.json", "model/config.json", "result.json"),
        folder("augmented", "1-baseline/begun.json", run='{"recipe": "augmented"}'),
        folder("project", "model/config.json"),
        folder("saved", "modules.json"),
        folder("site", "index.html"),
        folder("damaged", "1-teacher/begun.json", run="half a fi"),
        folder("list", run="[1]"),
    ):
        before = sorted(other.rglob("*"))
        for attempt in (
            lambda where: check_run_folder(where, "distill"),
            lambda where: open_stages(where, "distill").__enter__(),
        ):
            with pytest.raises(InputError, match=r"something else than a run of 'distill'.*another run folder"):
                attempt(other)
        assert sorted(other.rglob("*")) == before
