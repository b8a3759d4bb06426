"""Recognising encodings: cp949 where it is cp949, an error with a line where UTF-8 is broken."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.data import ReadOptions, open_texts, read_texts
from munjang.data.files import decode, decode_pipe, text_lines
from munjang.errors import DataError, MunjangWarning

KOREAN = [
    "한 소녀가 피아노를 치고 있다.",  # two thirds of its cp949 bytes happen to be valid UTF-8 sequences
    "그네를 타고 있는 어린 소년",
    "도끼 공격으로 중상을 입은 뉴욕 경찰관",
    "가",
    "ASCII first, then 한글",
]


def found(path: Path, encoding: str | None = None) -> list[str]:
    return read_texts(path, options=ReadOptions(encoding=encoding))


def lines(blocks: list[bytes]) -> list[str]:
    return list(text_lines(decode_pipe(blocks, "stdin")))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_unicode_is_recognised(tmp_path: Path, encoding: str, ending: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(ending.join([*KOREAN, "😀 뷁"]).encode(encoding))
    assert found(path) == [*KOREAN, "😀 뷁"]
    assert lines([path.read_bytes()]) == [*KOREAN, "😀 뷁"]


def test_a_mark_is_dropped_also_when_utf_8_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,id\n가,1\n".encode("utf-8-sig"))
    for encoding in (None, "utf-8", "UTF8", "utf_8"):
        assert found(path, encoding) == ["가"]


@pytest.mark.parametrize("text", KOREAN)
@pytest.mark.parametrize("encoding", ["cp949", "euc-kr"])
def test_cp949_is_recognised_and_announced(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "a.txt"
    expected = ["id 1", text, "뷁 하고 똠방각하" if encoding == "cp949" else "끝"]  # 뷁 and 똠 are not in EUC-KR
    path.write_bytes("\n".join(expected).encode(encoding))
    with pytest.warns(MunjangWarning, match=r"line 2\); read as cp949"):
        assert found(path) == expected
    assert found(path, "cp949") == expected  # named: no warning


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_utf_8_with_one_broken_byte_is_never_read_as_cp949(data: st.DataObject) -> None:
    text = "\n".join(data.draw(st.lists(st.sampled_from([*KOREAN, "Maître é", "café"]), min_size=1, max_size=6)))
    content = text.encode()
    at = data.draw(st.sampled_from([position for position, byte in enumerate(content) if byte > 127]))
    kind = data.draw(st.sampled_from(["drop", "cut", "byte"]))
    broken = content[:at] + {"drop": b"", "cut": b"\n", "byte": b"\xff"}[kind] + content[at + 1 :]
    try:
        broken.decode()
    except UnicodeDecodeError as error:
        line = broken[: error.start].count(b"\n") + 1
        with pytest.raises(DataError, match=rf"stdin, line {line}: byte 0x.. at offset {error.start:,} is not valid"):
            lines([broken])


def test_french_lines_beside_half_a_korean_character_are_not_cp949() -> None:
    # Two thirds of the bytes are valid UTF-8, and é and î as cp949 would be common Hangul.
    with pytest.raises(DataError, match="stdin, line 2"):
        lines(["Maître é\n".encode() + b"\xea\xb7\n"])


def test_a_break_far_into_a_file_is_found_before_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("한국어 문장\n".encode() * 200_000 + b"\xb0\xa1\n")
    with pytest.raises(DataError, match=r"line 200001: byte 0xb0 at offset 3,400,000.*--encoding"):
        next(iter(open_texts(path)))


def test_cp949_that_breaks_later_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("한국어 문장\n".encode("cp949") * 1000 + b"\xff\n")
    with pytest.raises(DataError, match="line 1: "):
        found(path)
    with pytest.raises(DataError, match=r"line 1001: byte 0xff at offset 12,000 is not valid cp949"):
        found(path, "cp949")


@pytest.mark.parametrize("text", ["café au lait\nnaïve\n", "Ärger über Übel\n", "日本語の文章です\n"])
def test_other_encodings_are_refused(text: str) -> None:
    content = text.encode("latin-1") if text.isascii() or "é" in text or "Ä" in text else text.encode("shift-jis")
    with pytest.raises(DataError, match="--encoding"):
        lines([content])


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_without_a_mark_is_refused_with_advice(tmp_path: Path, order: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("plain words\n".encode(f"utf-16-{order}"))
    with pytest.raises(DataError, match=f"--encoding utf-16-{order}"):
        found(path)
    with pytest.raises(DataError, match=f"--encoding utf-16-{order}"):
        lines([path.read_bytes()])
    assert found(path, f"utf-16-{order}") == ["plain words"]


def test_a_nul_here_and_there_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("가나\x00다라 and more\n".encode())
    assert found(path) == ["가나\x00다라 and more"]


def test_a_pipe_decides_on_its_first_piece_that_is_not_ascii() -> None:
    korean = "한국어 문장\n".encode("cp949")
    with pytest.warns(MunjangWarning, match=r"stdin is not UTF-8 \(line 3\)"):
        assert lines([b"a\nb", b"\n", korean[:3], korean[3:], korean]) == ["a", "b", "한국어 문장", "한국어 문장"]
    with pytest.raises(DataError, match=r"stdin, line 3: byte 0xc7 at offset 9 is not valid utf-8"):
        lines([b"a\n", "한국\n".encode(), korean])


def test_a_character_cut_off_at_the_end() -> None:
    for blocks in (["가나".encode()[:-1]], [b"\xea", b"\xb0"]):
        with pytest.raises(DataError, match="stdin, line 1"):
            lines(blocks)
        with pytest.raises(DataError, match=r"line 1: byte 0x.. at offset (0|3) is not valid utf-8 \(unexpected end"):
            list(decode(blocks, "utf-8", "file"))


@given(st.binary(max_size=60))
def test_any_bytes_give_texts_or_a_data_error(content: bytes) -> None:
    file = io.BytesIO(content)
    with contextlib.suppress(DataError, MunjangWarning):
        list(text_lines(decode_pipe(iter(lambda: file.read(7), b""), "stdin")))
