"""An index of the demo: there whole or not at all, found again, made anew when it no longer fits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from munjang import demo
from munjang.demo import building, corpus
from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError
from munjang.index.index import Index
from munjang.index.schema import DATABASE
from support import small_models

DOCUMENTS = [
    {"id": "rain", "text": "비가 오는 날에 우산 없이 걷다", "kind": "날씨"},
    {"id": "bread", "text": "a bakery at the end of the street", "kind": "food"},
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory, model: BiEncoder) -> Iterator[Index]:
    with demo.build_index(tmp_path_factory.mktemp("sample") / "index", model) as index:
        yield index


def test_the_index_holds_the_whole_sample(sample: Index) -> None:
    expected = demo.documents()
    assert [document.id for document in sample.documents()] == [document["id"] for document in expected]
    for document in expected[::97]:
        found = sample.get(document["id"])
        assert found.text == document["text"]
        assert dict(found.metadata) == {k: v for k, v in document.items() if k not in ("id", "text")}
    sample.verify()


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("category=요리/food", lambda d: d["category"] == "요리/food"),
        ("language=en and year>=2025", lambda d: d["language"] == "en" and d["year"] >= 2025),
        ("date>=2024-06-01 and date<2024-07-01", lambda d: d["date"].startswith("2024-06")),
    ],
)
def test_filters_find_what_they_should(sample: Index, condition: str, wanted: object) -> None:
    expected = {d["id"] for d in demo.documents() if wanted(d)}  # type: ignore[operator]
    assert expected
    for query in ("비가 온다", "It is raining"):
        assert {hit.id for hit in sample.search(query, len(DOCUMENTS) + 700, filter=condition)} == expected


def test_keyword_search_finds_words_of_both_languages(sample: Index) -> None:
    for query, word in (("시금치", "시금치"), ("hydrangea", "hydrangea")):
        hits = sample.search(query, 5, mode="keyword")
        assert len(hits)
        assert word in hits[0].text


def test_progress_is_told(tmp_path: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "documents", lambda: DOCUMENTS)
    told: list[tuple[int, int | None]] = []
    with demo.build_index(tmp_path / "i", model, progress=lambda done, of: told.append((done, of))) as index:
        assert index.count == 2
        assert index.model is model
    assert told[-1] == (2, 2)


# --- whole or not at all ---------------------------------------------------------------------------------------------


def test_a_failure_leaves_nothing_behind(tmp_path: Path, model: BiEncoder) -> None:
    def broken() -> Iterator[dict[str, str]]:
        yield DOCUMENTS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        building.fill(tmp_path / "deep" / "i", model, broken())
    assert list((tmp_path / "deep").iterdir()) == []


def test_nothing_is_there_before_everything_is(tmp_path: Path, model: BiEncoder) -> None:
    """What a kill in the middle would leave: no index under its name."""

    def looking() -> Iterator[dict[str, str]]:
        for document in DOCUMENTS:
            assert not (tmp_path / "i").exists()
            yield document

    building.fill(tmp_path / "i", model, looking())
    with Index.open(tmp_path / "i", model) as index:
        assert index.count == 2
        index.verify()
    assert [entry.name for entry in tmp_path.iterdir()] == ["i"]


def test_an_empty_folder_is_filled(tmp_path: Path, model: BiEncoder) -> None:
    (tmp_path / "i").mkdir()
    building.fill(tmp_path / "i", model, DOCUMENTS)
    with Index.open(tmp_path / "i", model) as index:
        assert index.count == 2


def test_what_is_there_is_left_alone(tmp_path: Path, model: BiEncoder) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes").write_text("mine")
    building.fill(tmp_path / "i", model, DOCUMENTS[:1])
    for name, said in (("file", "is a file"), ("folder", "with other files"), ("i", "an index at .* already")):
        with pytest.raises(InputError, match=said):
            demo.build_index(tmp_path / name, model)
    assert (tmp_path / "folder" / "notes").read_text() == "mine"
    with Index.open(tmp_path / "i", model) as index:
        assert index.count == 1


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, model: BiEncoder) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="no index was made"):
        building.fill(tmp_path / "file" / "i", model, DOCUMENTS)


# --- the cache -------------------------------------------------------------------------------------------------------


def test_the_cache_is_where_the_user_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUNJANG_CACHE", str(tmp_path))
    assert building.cache_folder() == tmp_path / "demo"
    monkeypatch.delenv("MUNJANG_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert building.cache_folder() == tmp_path / "xdg" / "munjang" / "demo"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says: ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert building.cache_folder() == tmp_path / ".cache" / "munjang" / "demo"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert building.cache_folder() == tmp_path / "Library" / "Caches" / "munjang" / "demo"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert building.cache_folder() == tmp_path / "local" / "munjang" / "demo"


def test_another_model_or_other_documents_have_another_folder(
    cache: Path, model: BiEncoder, model_folder: Path
) -> None:
    import munjang

    folder = building.cached_folder("sample", model, "a")
    assert folder.parent == cache
    again = munjang.load(model_folder, device="cpu", dtype="float32")  # another place, the same model
    assert building.cached_folder("sample", again, "a") == folder
    shorter = small_models.bi_encoder(max_length=32)
    others = [
        building.cached_folder("sample", model, "b"),
        building.cached_folder("docs", model, "a"),
        building.cached_folder("sample", shorter, "a"),
        building.cached_folder("sample", small_models.bi_encoder("roberta"), "a"),
    ]
    assert len({folder, *others}) == 5


def test_a_cached_index_is_usable_until_it_is_damaged(cache: Path, model: BiEncoder) -> None:
    folder = building.cached_folder("docs", model, "a")
    assert not building.usable(folder, model)
    assert building.fill_cached(folder, model, DOCUMENTS) is not None
    assert building.usable(folder, model)
    assert not building.usable(folder, small_models.bi_encoder("roberta"))
    for part in folder.glob(DATABASE + "*"):
        part.write_bytes(b"noise" * 1000)
    assert not building.usable(folder, model)
    assert building.fill_cached(folder, model, DOCUMENTS) is not None
    assert building.usable(folder, model)
    assert list(cache.iterdir()) == [folder]


def test_an_empty_index_is_not_usable(cache: Path, model: BiEncoder) -> None:
    folder = building.cached_folder("docs", model, "a")
    building.fill(folder, model, [])
    assert not building.usable(folder, model)


def test_two_processes_at_once_end_with_one_index(cache: Path, model: BiEncoder) -> None:
    folder = building.cached_folder("docs", model, "a")

    def meanwhile() -> Iterator[dict[str, str]]:
        yield DOCUMENTS[0]
        building.fill(folder, model, DOCUMENTS)  # the other one is faster
        yield DOCUMENTS[1]

    assert building.fill_cached(folder, model, meanwhile()) is None
    assert building.usable(folder, model)
    assert list(cache.iterdir()) == [folder]


def test_old_indexes_and_what_a_kill_left_are_forgotten(cache: Path, model: BiEncoder) -> None:
    def aged(name: str, days: float) -> Path:
        folder = cache / name
        folder.mkdir(parents=True)
        (folder / DATABASE).write_text("")
        when = time.time() - days * 86_400
        for path in (folder / DATABASE, folder):
            os.utime(path, (when, when))
        return folder

    kept = [aged("sample-young", 29), aged(".sample-a.building-1-aa", 0.9)]
    gone = [aged("sample-old", 31), aged(".sample-b.building-1-bb", 1.1)]
    used = aged("docs-used", 31)
    os.utime(used / DATABASE)
    folder = building.cached_folder("docs", model, "a")
    building.fill_cached(folder, model, DOCUMENTS)
    assert [path.exists() for path in gone] == [False, False]
    assert set(cache.iterdir()) == {*kept, used, folder}


def test_looking_at_a_cached_index_keeps_it(cache: Path, model: BiEncoder) -> None:
    folder = building.cached_folder("docs", model, "a")
    building.fill(folder, model, DOCUMENTS)
    long_ago = time.time() - 40 * 86_400
    for path in (*folder.iterdir(), folder):
        os.utime(path, (long_ago, long_ago))
    assert building.usable(folder, model)
    building.forget(cache)
    assert folder.exists()
