"""Pairs of texts to token ids and segments: `[CLS] A [SEP] B [SEP]`, truncated to `max_length`, without padding.

Truncation is LongestFirst of the `tokenizers` library: the longer text is cut down to the length of the shorter one,
then both share the room. Of an odd room, the text that was longer gets the odd token (the second, if both were equal).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from munjang.errors import InputError
from munjang.text.fast_words import check_unicode
from munjang.text.packing import Int32, Tokens, positions, starts_of
from munjang.text.tokenizer import Frame, Tokenizer


def encode_pairs(
    tokenizer: Tokenizer, a: Sequence[str], b: Sequence[str], *, segments: int = 2, by_words: bool = True
) -> Tokens:
    """Tokenize each pair (a[i], b[i]), add special tokens and truncate to max_length.

    Args:
        tokenizer: of the cross-encoder.
        a: first texts.
        b: second texts.
        segments: number of segments the model knows; with fewer than two, the result has none.
        by_words: as in `Tokenizer.encode`.

    Returns:
        Ids and segments of all pairs; `segments` is None where all are 0.

    Raises:
        InputError: if the numbers of texts differ, max_length leaves no room, or a text is not valid Unicode.
    """
    if len(a) != len(b):
        raise InputError(f"a pair has two texts: got {len(a)} first and {len(b)} second ones")
    frame = tokenizer.pair_frame
    specials = int(tokenizer.backend.num_special_tokens_to_add(True)) if frame is None else frame.size
    if tokenizer.max_length < specials:
        raise InputError(
            f"max_length must be at least {specials} for pairs (their special tokens), got {tokenizer.max_length}"
        )
    try:
        if frame is None:
            tokens = tokenizer.encode_by_backend(list(zip(a, b, strict=True)))
        else:
            tokens = _frame_pairs(tokenizer, frame, *tokenizer.bodies([*a, *b], by_words=by_words))
    except InputError:
        check_unicode(list(zip(a, b, strict=True)))  # names the pair
        raise
    if tokens.segments is None or segments < 2 or tokenizer.ignores_segments:
        return replace(tokens, segments=None)
    return replace(tokens, segments=np.minimum(tokens.segments, np.int32(segments - 1)))


def _frame_pairs(tokenizer: Tokenizer, frame: Frame, ids: Int32, lengths: Int32) -> Tokens:
    """Truncate and frame pairs. ids, lengths: all first texts, then all second ones, [total] and [2 * pairs]."""
    starts, lengths = starts_of(lengths).reshape(2, -1).T, lengths.reshape(2, -1).T  # [pairs, 2]
    whole = lengths.sum(axis=1, dtype=np.int64)  # [pairs]
    room = tokenizer.max_length - frame.size
    kept = _longest_first(lengths, room)
    if tokenizer.keep_end:
        starts = starts + (lengths - kept)
    texts = ids[positions(starts.ravel(), kept.ravel())]
    framed_ids, framed, segments = frame.build(texts, kept, segmented=not frame.one_segment)
    longest = int(whole.max()) + frame.size if len(whole) else 0
    return Tokens(framed_ids, framed, int(np.count_nonzero(whole > room)), longest, segments)


def _longest_first(lengths: Int32, room: int) -> Int32:
    """Tokens kept of each text, [pairs, 2], so that a pair has at most `room`."""
    a, b = lengths.T
    short, long = np.minimum(a, b), np.maximum(a, b)
    # The shorter text is cut too where half of the room is less than it has.
    new_short = np.minimum(short, room // 2)
    new_long = np.minimum(long, room - new_short)
    return np.stack([np.where(a > b, new_long, new_short), np.where(a > b, new_short, new_long)], axis=1)
