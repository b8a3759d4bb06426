"""Calls into the `tokenizers` library: texts in, lists of ids out, and its failures as our errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tokenizers

from munjang.errors import InputError

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_ids(backend: tokenizers.Tokenizer, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    """Ids of each text, with or without special tokens."""
    # encode_batch_fast leaves out the offsets, which nobody reads here
    encode_batch = getattr(backend, "encode_batch_fast", backend.encode_batch)
    try:
        return [encoding.ids for encoding in encode_batch(list(texts), add_special_tokens=special)]
    except (TypeError, UnicodeError) as error:
        check_unicode(texts)
        raise InputError(f"the tokenizer refused a text: {error}") from error
    except BaseException as error:  # a panic of the library, which is no Exception: its pattern backtracked too long
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"the tokenizer failed on a text: {error}") from error


def check_unicode(texts: Sequence[str], *, first: int = 0) -> None:
    """Raise for the first text that holds half a surrogate pair, and name its position, counted from `first`."""
    for position, text in enumerate(texts, start=first):
        if found := LONE_SURROGATE.search(text):
            raise InputError(
                f"text {position} is not valid Unicode: a lone surrogate {found.group()!r} at character "
                f"{found.start()}; repair it, for example with "
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
            )
