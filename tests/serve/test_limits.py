"""Bodies against the limits, piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.serve.errors import BadRequest, Invalid, ServeError
from munjang.serve.limits import BodyLimit, check_json
from munjang.serve.settings import Limits
from munjang.serve.threads import Threads
from munjang.serve.uploads import plain_name

LIMITS = replace(Limits(), body_bytes=100, file_bytes=200, body_seconds=0.1)


def _run(pieces: Sequence[bytes | float], path: str = "/search", limits: Limits = LIMITS) -> tuple[int, bytes]:
    """What a body of these pieces (numbers: seconds of silence) comes to: status, and what the handler saw."""
    seen, status = bytearray(), 0
    coming = list(pieces)

    async def receive() -> dict[str, Any]:
        while coming and isinstance(coming[0], float):
            await asyncio.sleep(coming.pop(0))  # type: ignore[arg-type]
        if not coming:
            return {"type": "http.disconnect"}
        piece = coming.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(coming)}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            seen.extend(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(BodyLimit(app, limits)(scope, receive, send))
    return status, bytes(seen)


_PIECES = st.binary(min_size=1, max_size=40).map(lambda piece: piece.replace(b"\0", b"0"))  # no JSON has a zero byte


@given(st.lists(_PIECES, min_size=1, max_size=8))
def test_a_body_arrives_whole_or_is_refused(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    status, seen = _run(pieces)
    assert (status, seen) == ((200, whole) if len(whole) <= 100 else (413, b""))


def test_a_file_is_handed_on_piece_by_piece_up_to_its_own_limit() -> None:
    assert _run([b"x" * 90, b"x" * 90], "/documents/a/file") == (200, b"x" * 180)
    assert _run([b"x" * 90, b"x" * 90, b"x" * 90], "/documents/a/file")[0] == 413


def test_silence_is_not_waited_for() -> None:
    assert _run([b"x", 0.5, b"x"])[0] == 408
    assert _run([b"x", 0.5, b"x"], "/documents/a/file")[0] == 408
    slow: list[bytes | float] = [part for _ in range(6) for part in (b"x", 0.04)]
    assert _run([*slow, b"x"])[0] == 408  # a drop at a time does not get by either
    assert _run([*slow, b"x"], "/documents/a/file")[0] == 200  # a file may take as long as it keeps coming


def test_all_bodies_together_are_bounded() -> None:
    limit = BodyLimit(lambda *_: asyncio.sleep(0), LIMITS)  # type: ignore[arg-type]
    limit.hold(1600)
    with pytest.raises(ServeError) as told:
        limit.hold(1)
    assert told.value.status == 429


_TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS


@given(st.recursive(_PLAIN, lambda part: st.lists(part) | st.dictionaries(_TEXTS, part), max_leaves=8))
def test_proper_json_passes(value: Any) -> None:
    check_json(json.dumps(value).encode())
    check_json(json.dumps(value, ensure_ascii=False).encode())


@pytest.mark.parametrize("body", ["NaN", "[Infinity]", '{"a": -Infinity}', "[1e400]", '["\\ud800"]', '{"\\udfff": 1}'])
def test_what_python_would_read_is_refused(body: str) -> None:
    with pytest.raises((BadRequest, Invalid)):
        check_json(body.encode())


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.csv", "a.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\문서.txt", "문서.txt"),
        ("a\x00b.txt", "a_b.txt"),
        ("/abs/dir/x.jsonl", "x.jsonl"),
        ("..hidden.txt", "_..hidden.txt"),
    ],
)
def test_names_of_files_are_made_plain(given: str, name: str) -> None:
    assert plain_name(given) == name


def test_a_pool_refuses_what_it_cannot_take() -> None:
    async def crowd() -> list[Any]:
        threads = Threads("test", 1, waiting=2)
        import time

        calls = [threads.run(lambda: time.sleep(0.05)) for _ in range(5)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert threads.close(1.0)
        return [type(one).__name__ for one in found]

    assert asyncio.run(crowd()) == ["NoneType"] * 3 + ["Overloaded"] * 2
