"""Addresses: what they mean, what is wrong with them, and that no password is ever shown."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.index.remote.address import is_address, masked, parse


def test_the_parts_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGUSER", "PGPASSWORD", "MILVUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    text = "postgresql://kim:se%40cret@db.example.org:5433/search?index=faq&sslmode=require&timeout=2.5&attempts=3&m=24"
    one = parse(text)
    assert (one.scheme, one.host, one.port, one.database, one.name) == (
        "postgresql",
        "db.example.org",
        5433,
        "search",
        "faq",
    )
    assert (one.user, one.password, one.timeout, one.attempts) == ("kim", "se@cret", 2.5, 3)
    assert dict(one.parameters) == {"sslmode": "require", "m": "24"}
    assert one.whole("m", 16) == 24
    two = parse("milvus://localhost/faq?secure=true&database=shop")
    assert (two.port, two.name, two.database, two.user, two.password) == (19530, "faq", "shop", None, None)
    assert two.truth("secure", default=False) is True
    assert parse("postgres://h/d?index=i").scheme == "postgresql"
    assert parse("postgresql://%2Fvar%2Frun/d?index=i").host == "/var/run"
    assert parse("postgresql://[::1]:5/d?index=i").host == "::1"
    assert str(parse("postgresql://[::1]:5/d?index=i")) == "postgresql://[::1]:5/d?index=i"


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "kim")
    monkeypatch.setenv("PGPASSWORD", "geheim")
    monkeypatch.setenv("MILVUS_TOKEN", "token")
    assert (parse("postgresql://h/d?index=i").user, parse("postgresql://h/d?index=i").password) == ("kim", "geheim")
    assert parse("postgresql://lee:own@h/d?index=i").password == "own"
    assert parse("milvus://h/i").token == "token"
    assert "geheim" not in str(parse("postgresql://h/d?index=i")) + repr(parse("postgresql://h/d?index=i"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mysql://h/d?index=i", "postgresql:// or milvus://"),
        ("postgresql://h/d", "needs a name"),
        ("postgresql://h/d?index=a-b", "needs a name"),
        ("postgresql://h/d?index=" + "a" * 49, "at most 48"),
        ("postgresql://h/?index=i", "database is missing"),
        ("postgresql://h:port/d?index=i", "cannot be read"),
        ("postgresql://h/d?index=i&index=j", "stands twice"),
        ("postgresql://h/d?index=i&timeout=soon", "timeout must be"),
        ("postgresql://h/d?index=i&timeout=0", "timeout must be"),
        ("postgresql://h/d?index=i&attempts=0", "attempts must be"),
        ("milvus://h", "needs a name"),
        ("milvus://h/a/b", "needs a name"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(text)


def test_wrong_parameters_are_said() -> None:
    one = parse("milvus://h/i?m=many&secure=perhaps")
    with pytest.raises(InputError, match=r"m must be a whole number of 1\.\.64, got 'many'"):
        one.whole("m", 16, most=64)
    with pytest.raises(InputError, match="secure must be true or false"):
        one.truth("secure", default=False)
    with pytest.raises(InputError, match="unknown parameter 'secure'; there are: timeout, attempts, m"):
        one.check_parameters(("m",))


@given(
    secret=st.text(st.characters(codec="utf-8", exclude_characters="/?#@[]:\\"), min_size=12, max_size=20),
    rest=st.sampled_from(["h/d?index=i", "h/d", "h:port/d?index=i", "h/d?index=i&timeout=x", "h:99999/d?index=i"]),
    scheme=st.sampled_from(["postgresql", "milvus"]),
)
def test_no_password_is_ever_shown(secret: str, rest: str, scheme: str) -> None:
    quoted = quote(secret, safe="")
    for written in (f"{scheme}://kim:{quoted}@{rest}", f"{scheme}://{rest}&password={quoted}"):
        shown = [masked(written)]
        try:
            one = parse(written)
        except InputError as error:
            shown.append(str(error))
        else:
            shown += [str(one), repr(one)]
        for text in shown:
            assert quoted not in text
            assert secret not in text


def test_folders_are_no_addresses() -> None:
    for path in ("my-index", "/a/b", "C:\\x", "a:b", Path("postgresql:/x"), "./milvus:/x"):
        assert not is_address(path)
        assert masked(path) == str(path)
    assert is_address("milvus://h/i")
    assert is_address("anything://h")
