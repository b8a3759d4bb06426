"""Calls into the `tokenizers` library: texts in, lists of ids out, and its failures as our errors."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from munjang.errors import InputError


def encode_ids(backend: tokenizers.Tokenizer, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    """Ids of each text, with or without special tokens."""
    # encode_batch_fast leaves out the offsets, which nobody reads here
    encode_batch = getattr(backend, "encode_batch_fast", backend.encode_batch)
    try:
        return [encoding.ids for encoding in encode_batch(list(texts), add_special_tokens=special)]
    except (TypeError, UnicodeError) as error:
        check_unicode(texts)
        raise InputError(f"the tokenizer refused a text: {error}") from error


def check_unicode(texts: Sequence[str]) -> None:
    """Raise for the first text that holds half a surrogate pair, and name its position."""
    for position, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"text {position} is not valid Unicode: a lone surrogate {text[error.start]!r} at character "
                f"{error.start}; repair it, for example with "
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
            ) from None
