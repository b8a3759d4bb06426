"""An index through a .parquet file: the same documents, passages, vectors and answers; damage is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError, ModelError
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from support.indexing import TEXTS, Plain
from support.small_models import bi_encoder


@pytest.fixture
def file(tmp_path: Path, model: BiEncoder) -> Path:
    with Index.create(tmp_path / "index", model) as index:
        index.add([{"id": n, "text": text, "n": n, "tags": ["가", n]} for n, text in enumerate(TEXTS)])
        index.delete(["2"])
        assert index.export(tmp_path / "index.parquet") == len(TEXTS) - 1
    return tmp_path / "index.parquet"


@pytest.fixture
def plain(model: BiEncoder) -> Plain:
    return Plain(model, {str(n): (text, {"n": n, "tags": ["가", n]}) for n, text in enumerate(TEXTS) if n != 2})


def test_there_and_back(
    file: Path, plain: Plain, tmp_path: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("encoded")

    with monkeypatch.context() as patch:
        patch.setattr(BiEncoder, "encode_document", never)
        imported = Index.import_(file, tmp_path / "second", model)
    with imported as index, Index.open(tmp_path / "index", model) as first:
        plain.check_all(index)
        assert index.verify().ok
        assert index.options == first.options
        with index._store.reading() as ours, first._store.reading() as theirs:
            np.testing.assert_array_equal(ours.vectors(ours.numbers()), theirs.vectors(theirs.numbers()))
        index.export(tmp_path / "again.parquet")
    assert pq.read_table(file).equals(pq.read_table(tmp_path / "again.parquet"))


def test_other_people_can_read_it(file: Path, model: BiEncoder) -> None:
    rows = pq.read_table(file).to_pylist()
    row = next(row for row in rows if row["id"] == "8")
    parts = [row["text"][start:end] for start, end in zip(row["start"], row["end"], strict=True)]
    np.testing.assert_allclose(np.array(row["vectors"]), model.encode_document(parts), atol=1e-6)
    assert next(row for row in rows if row["id"] == "12")["vectors"] == []


def test_another_layout(file: Path, plain: Plain, tmp_path: Path, model: BiEncoder) -> None:
    with Index.import_(file, tmp_path / "int8", model, options=IndexOptions(vectors="int8")) as index:
        assert index.verify().ok
        best = plain.scores("비")
        assert {hit.id for hit in index.search("비", k=50)} == set(best)
        index.export(tmp_path / "int8.parquet")
    with Index.import_(tmp_path / "int8.parquet", tmp_path / "int8 again", model) as again:
        assert again.options.vectors == "int8"
        again.export(tmp_path / "int8 again.parquet")
    assert pq.read_table(tmp_path / "int8.parquet").equals(pq.read_table(tmp_path / "int8 again.parquet"))


def test_many_row_groups(
    file: Path, plain: Plain, tmp_path: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("munjang.index.transfer.GROUP_BYTES", 500)
    with Index.open(tmp_path / "index", model) as index:
        told: list[tuple[int, int | None]] = []
        index.export(file, overwrite=True, progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (2 * index.count, 2 * index.count)
    assert pq.ParquetFile(file).num_row_groups > 2
    with Index.import_(file, tmp_path / "second", model) as index:
        plain.check_all(index)


def test_an_empty_index(tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "index", model) as index:
        assert index.export(tmp_path / "none.parquet") == 0
    with Index.import_(tmp_path / "none.parquet", tmp_path / "second", model) as again:
        assert again.count == 0


def test_what_cannot_be_exported_to(file: Path, tmp_path: Path, model: BiEncoder) -> None:
    with Index.open(tmp_path / "index", model) as index:
        with pytest.raises(InputError, match="is there already"):
            index.export(file)
        with pytest.raises(InputError, match=r"to a \.parquet file"):
            index.export(tmp_path / "x.csv")
        with pytest.raises(InputError, match="there is no folder"):
            index.export(tmp_path / "nowhere" / "x.parquet")


def test_what_cannot_be_imported(file: Path, tmp_path: Path, model: BiEncoder) -> None:
    (tmp_path / "text.parquet").write_text("no parquet")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="there is no file"):
        Index.import_(tmp_path / "missing.parquet", tmp_path / "to", model)
    with pytest.raises(DataError, match="cannot be read as an exported index"):
        Index.import_(tmp_path / "text.parquet", tmp_path / "to", model)
    with pytest.raises(InputError, match="is not an exported index"):
        Index.import_(tmp_path / "other.parquet", tmp_path / "to", model)
    with pytest.raises(ModelError, match="another model"):
        Index.import_(file, tmp_path / "to", bi_encoder("roberta"))
    with pytest.raises(InputError, match=r"there is an index at .* already"):
        Index.import_(file, tmp_path / "index", model)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("column", ["text", "vectors", "end", "id", "rows"])
def test_a_damaged_export_leaves_no_index(file: Path, tmp_path: Path, model: BiEncoder, column: str) -> None:
    table = pq.read_table(file)
    rows = table.to_pylist()
    if column == "rows":
        rows = rows[:-1]
    elif column == "text":
        rows[0]["text"] = "x"
    elif column == "vectors":
        rows[0]["vectors"][0][3] = float("nan")
    elif column == "end":
        rows[0]["end"] = [9999]
    else:
        rows[0]["id"] = rows[1]["id"]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    with pytest.raises(DataError, match=r"document|passage|vector|twice"):
        Index.import_(file, tmp_path / "to", model)
    assert not (tmp_path / "to").exists()


def test_flipped_bytes_are_found(file: Path, tmp_path: Path, model: BiEncoder) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(DataError, match="exported"):
        Index.import_(file, tmp_path / "to", model)
