"""Metadata -> the JSON that Milvus filters by (facets), and a `Filter` -> an expression on it.

    {"year": [2020, 2024], "tag": "뉴스"}
    ->  {"Y": ["n40...", "n40..."], "Yn": least number, "YN": greatest number, "G": ["t..."], "Gt": ..., "GT": ...}

Milvus compares single values only, and reads quotes and escapes in its own way. So every value becomes a text of
letters and digits whose order is that of the values: a number by the bits of its float and what is left of a large
integer, a text by its UTF-8 bytes. A field is named by a hash. What a person wrote never becomes part of an expression,
equality is membership in a list, and a range asks the least or the greatest value: some value lies below a limit where
the least does. The answers are those of an index in a folder.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from munjang.errors import InputError
from munjang.index.columns import Range
from munjang.index.filters import All, Any_, Comparison, Filter, Not, Value

NONE = "count < 0"  # no row has such a count
FIELD = "facets"
LONGEST_LIMIT = 200  # bytes of a text that a range compares with; of longer values so many are kept

Facets = dict[str, Any]


def facets(metadata: Mapping[str, Any]) -> Facets:
    """Metadata as filters read it: what is missing, null or an empty list is not there."""
    found: Facets = {}
    for name, value in metadata.items():
        values = [one for one in (value if isinstance(value, list) else [value]) if one is not None]
        if not values:
            continue
        key = _key(name)
        found[key] = sorted({_token(one) for one in values})
        numbers = [_number(one) for one in values if not isinstance(one, bool | str)]
        texts = [_text(one) for one in values if isinstance(one, str)]
        if numbers:
            found[key + "n"], found[key + "N"] = min(numbers), max(numbers)
        if texts:
            found[key + "t"], found[key + "T"] = min(texts), max(texts)
    return found


def expression(filter: Filter) -> str:
    """The condition of a filter, on the column `facets`."""
    if isinstance(filter, Comparison):
        return _comparison(filter)
    if isinstance(filter, Not):
        return _not(expression(filter.part))
    if isinstance(filter, All | Any_):
        word = " and " if isinstance(filter, All) else " or "
        return "(" + word.join(expression(part) for part in filter.parts) + ")"
    raise InputError(f"filter: Milvus cannot be asked for a {type(filter).__name__}")


def _comparison(asked: Comparison) -> str:
    key = _key(asked.field)
    if asked.sign == "exists":
        there = f'(exists {FIELD}["{key}"])'
        return there if asked.values[0].boolean else _not(there)
    if asked.sign in get_args(Range):
        return _ordered(asked, key)
    tokens = sorted({_token(meaning) for value in asked.values for meaning in value.meanings})
    equal = f'json_contains_any({FIELD}["{key}"], [{quoted(tokens)}])' if tokens else f"({NONE})"
    return equal if asked.sign in ("=", "in") else _not(equal)


def _ordered(asked: Comparison, key: str) -> str:
    """Below a limit the least value counts, above it the greatest; a number before a text where a word may be both."""
    value: Value = asked.values[0]
    least = asked.sign in ("<", "<=")
    if value.number is not None:
        return f'({FIELD}["{key}{"n" if least else "N"}"] {asked.sign} "{_number(value.number)}")'
    if value.text is None:
        raise InputError(f"filter: {asked.field!r} {asked.sign} needs a number or a text, got true or false")
    size = len(value.text.encode())
    if size > LONGEST_LIMIT:
        raise InputError(
            f"filter: {asked.field!r} {asked.sign} compares with a text of {size:,} bytes; an index in Milvus compares "
            f"with at most {LONGEST_LIMIT}: give its beginning"
        )
    return f'({FIELD}["{key}{"t" if least else "T"}"] {asked.sign} "{_text(value.text)}")'


def quoted(words: Sequence[str]) -> str:
    """Words of letters and digits as the inside of a list."""
    return ", ".join(f'"{word}"' for word in words)


def _not(part: str) -> str:
    return f"(not ({part}))"


def _key(field: str) -> str:
    return hashlib.blake2b(field.encode(), digest_size=8).hexdigest()


def _token(value: str | int | float | bool) -> str:
    """A value for equality: the same for 1 and 1.0, another for True and '1'."""
    if isinstance(value, bool):
        return f"b{int(value)}"
    if not isinstance(value, str):
        return _number(value)
    data = value.encode()
    if len(data) > LONGEST_LIMIT:
        return "x" + hashlib.blake2b(data, digest_size=16).hexdigest()
    return _text(value)


def _text(value: str) -> str:
    """A text for the order of code points; a long one stands right after its beginning; no limit is longer."""
    data = value.encode()
    return f"t{data[:LONGEST_LIMIT].hex()}{'~' if len(data) > LONGEST_LIMIT else ''}"


def _number(value: int | float) -> str:
    """A number for its order: the bits of the nearest float, then by how much an integer differs from it."""
    try:
        near = float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        near = float("inf") if value > 0 else float("-inf")
    (bits,) = struct.unpack(">Q", struct.pack(">d", near))
    bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    rest = int(value) - int(near) if isinstance(value, int) and near not in (float("inf"), float("-inf")) else 0
    return f"n{bits:016x}{max(0, min(0xFFFF, rest + 0x8000)):04x}"
