"""Paths and hub ids: folders first, then the cache, and messages that say what was tried. No network."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from munjang.checkpoint import read, resolve
from munjang.errors import InputError, ModelError, ModelNotFoundError

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(bodies: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds two models."""
    root = tmp_path / "hub"
    for name in ("models--org--tiny", "models--sentence-transformers--bare"):
        (root / name / "refs").mkdir(parents=True)
        (root / name / "refs" / "main").write_text(SHA)
        shutil.copytree(bodies("bert"), root / name / "snapshots" / SHA)
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return root


def test_a_folder_wins(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "org" / "tiny"
    folder.mkdir(parents=True)
    assert resolve("org/tiny") == Path("org/tiny")
    assert resolve(folder) == folder


def test_a_hub_id_from_the_cache(cache: Path) -> None:
    found = resolve("org/tiny")
    assert found == cache / "models--org--tiny" / "snapshots" / SHA
    assert resolve("org/tiny", revision=SHA) == found
    assert resolve("org/tiny", local_files_only=True) == found
    assert read(found).source == f"org/tiny@{SHA}"


def test_a_bare_name_means_sentence_transformers(cache: Path) -> None:
    assert resolve("bare").parts[-3] == "models--sentence-transformers--bare"


def test_hf_home(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert resolve("org/tiny").is_dir()


@pytest.mark.parametrize("revision", [None, "v2"])
def test_a_hub_id_that_is_not_there(cache: Path, revision: str | None) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("org/none", revision=revision)
    message = str(caught.value)
    for part in ("'org/none'", str(Path("org/none").absolute()), "cache only", str(cache), "What to do"):
        assert part in message
    assert (revision or "at revision") in message or revision is None


def test_a_bare_name_says_both_ids(cache: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"sentence-transformers/none: .*; none: "):
        resolve("none")


@pytest.mark.parametrize(
    "given", ["./none", "/none/at/all", "~/none-such", "a\\b", "a/b/c", "../none", "has space", "here/none"]
)
def test_what_can_only_be_a_path_never_asks_the_hub(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFoundError, match="there is no folder"):
        resolve(given)


def test_a_path_object_never_asks_the_hub(cache: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="exists as far as"):
        resolve(Path("org/tiny"))


def test_files_and_empty_names(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelNotFoundError, match="is a file"):
        resolve("file")
    with pytest.raises(InputError, match="empty"):
        resolve("  ")


def test_no_network_but_a_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the offline switch, a dead network falls back to the cache, and else says what it met."""
    import huggingface_hub.constants

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", dead)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", dead)
    assert resolve("org/tiny").is_dir()
    with pytest.raises(ModelNotFoundError, match="in the cache and on the network"):
        resolve("org/none")


def dead(*_: Any, **__: Any) -> Any:
    from huggingface_hub.errors import OfflineModeIsEnabled

    raise OfflineModeIsEnabled("no route to host")


def test_what_is_downloaded(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickles only where there are no safetensors; the revision is passed on."""
    calls: list[dict[str, Any]] = []
    files = ["config.json", "pytorch_model.bin"]

    def fetch(hub_id: str, **options: Any) -> str:
        calls.append({"id": hub_id} | options)
        return str(tmp_path)

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda *_, **__: list(files))
    resolve("org/x", revision="abc")
    files.append("model.safetensors")
    resolve("org/x")
    assert any("pytorch_model" in pattern for pattern in calls[0]["allow_patterns"])
    assert not any("pytorch_model" in pattern for pattern in calls[1]["allow_patterns"])
    assert [call["revision"] for call in calls] == ["abc", None]
    assert not calls[0]["local_files_only"]


def test_gated_models(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class GatedRepoError(Exception):
        pass

    def fetch(*_: Any, **__: Any) -> str:
        raise GatedRepoError("401")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    with pytest.raises(ModelError, match="accept them on its page"):
        resolve("org/x")


def test_without_huggingface_hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="pip install huggingface_hub"):
        resolve("org/tiny")
