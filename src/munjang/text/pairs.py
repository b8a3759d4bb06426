"""Pairs of texts to token ids and segment ids: `[CLS] A [SEP] B [SEP]`, cut to `max_length`, never padded.

    (a, b) -> bodies of both (tokenizer.py's fast path) -> cut the longer -> frame -> Tokens with segments

Cutting is what `tokenizers` calls LongestFirst: the longer text gives way first, down to the shorter one's length; then
both share the room, and of an odd room the text that was longer gets the odd token (the second, where both were
equally long). The frame is learnt by probing the backend; where special tokens do not simply stand around the two
bodies, the backend does the whole work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import tokenizers

from munjang.errors import InputError
from munjang.text.backend import LONE_SURROGATE
from munjang.text.ragged import Int32, Int64, from_lists, positions, starts_of
from munjang.text.tokenizer import PROBES, Tokenizer, Tokens

_PROBES = [(a, b) for a in reversed(PROBES) for b in (PROBES[2], PROBES[0], "")]


@dataclass(frozen=True)
class PairFrame:
    """The special ids around two bodies, and the segment of everything."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    segments: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]  # before, A, between, B, after

    @property
    def specials(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    @property
    def one_segment(self) -> bool:
        """Whether every token is of segment 0, as RoBERTa has it."""
        before, a, between, b, after = self.segments
        return not (a or b or any(before) or any(between) or any(after))


def encode_pairs(
    tokenizer: Tokenizer, a: Sequence[str], b: Sequence[str], *, segments: int = 2, by_words: bool = True
) -> Tokens:
    """Token ids and segment ids of each (a[i], b[i]), special tokens included, cut to max_length.

    segments: how many the model has (`body.config.segments`); with fewer than two, all are 0 and None is given.
    by_words: as in `Tokenizer.encode`.
    """
    if len(a) != len(b):
        raise InputError(f"a pair has two texts: got {len(a)} first and {len(b)} second ones")
    frame = pair_frame(tokenizer)
    specials = _specials(tokenizer, frame)
    if tokenizer.max_length < specials:
        raise InputError(
            f"max_length must be at least {specials} for pairs (their special tokens), got {tokenizer.max_length}"
        )
    try:
        if frame is None:
            tokens = _by_backend(tokenizer, a, b)
        else:
            tokens = _framed(tokenizer, frame, tokenizer.bodies([*a, *b], by_words=by_words))
    except InputError as error:
        _name_pair(a, b, error)
        raise
    return fit_segments(tokens, 1 if tokenizer.ignores_segments else segments)


def fit_segments(tokens: Tokens, segments: int) -> Tokens:
    """Segment ids that a model of so many segments has; None where all of them are 0."""
    given = tokens.segments
    if given is None or (segments > 1 and (len(given) == 0 or int(given.max()) < segments)):
        return tokens
    return replace(tokens, segments=None if segments < 2 else np.minimum(given, np.int32(segments - 1)))


def pair_frame(tokenizer: Tokenizer) -> PairFrame | None:
    """How the backend frames pairs, found once per tokenizer; None where it does more than frame them."""
    known = tokenizer.known_pair_frame
    if known is None:
        known = (_probe(tokenizer),)
        tokenizer.known_pair_frame = known
    return known[0]


def _specials(tokenizer: Tokenizer, frame: PairFrame | None) -> int:
    return int(tokenizer.backend.num_special_tokens_to_add(True)) if frame is None else frame.specials


def _probe(tokenizer: Tokenizer) -> PairFrame | None:
    bodies = {text: list(ids) for text, ids in _bodies_of(tokenizer, {text for pair in _PROBES for text in pair})}
    whole = _encode(tokenizer.backend, _PROBES)
    (first_a, first_b), first = _PROBES[0], whole[0]
    a, b = len(bodies[first_a]), len(bodies[first_b])
    extra = len(first.ids) - a - b
    for before in range(extra + 1):
        for between in range(extra - before + 1):
            cuts = (0, before, before + a, before + a + between, before + a + between + b, len(first.ids))
            ids = [tuple(first.ids[i:j]) for i, j in pairwise(cuts)]
            kinds = [tuple(first.type_ids[i:j]) for i, j in pairwise(cuts)]
            of_a, of_b = kinds[1][0] if a else 0, kinds[3][0] if b else 0
            frame = PairFrame(ids[0], ids[2], ids[4], (kinds[0], of_a, kinds[2], of_b, kinds[4]))
            if all(_agrees(frame, bodies[x], bodies[y], e) for (x, y), e in zip(_PROBES, whole, strict=True)):
                return frame
    return None


def _bodies_of(tokenizer: Tokenizer, texts: set[str]) -> list[tuple[str, list[int]]]:
    ordered = sorted(texts)
    ids, lengths = tokenizer.bodies(ordered)
    return [(text, row.tolist()) for text, row in zip(ordered, np.split(ids, np.cumsum(lengths)[:-1]), strict=True)]


def _agrees(frame: PairFrame, a: list[int], b: list[int], whole: tokenizers.Encoding) -> bool:
    before, kind_a, between, kind_b, after = frame.segments
    ids = [*frame.before, *a, *frame.between, *b, *frame.after]
    kinds = [*before, *[kind_a] * len(a), *between, *[kind_b] * len(b), *after]
    return ids == list(whole.ids) and kinds == list(whole.type_ids)


def kept_lengths(a: Int32, b: Int32, room: int) -> tuple[Int32, Int32]:
    """How many tokens LongestFirst leaves of each pair of bodies: [n], [n]."""
    short = np.minimum(a, b)
    # The longer text gives way first, but not below the shorter one; then both share the room.
    shared = short + np.maximum(short, room - short) > room
    new_short = np.where(shared, room // 2, short)
    new_long = np.where(shared, room - room // 2, np.maximum(short, room - short))
    cut = a + b > room
    kept_a = np.where(cut, np.where(a > b, new_long, new_short), a)
    kept_b = np.where(cut, np.where(a > b, new_short, new_long), b)
    return kept_a.astype(np.int32), kept_b.astype(np.int32)


def _framed(tokenizer: Tokenizer, frame: PairFrame, bodies: tuple[Int32, Int32]) -> Tokens:
    """Bodies of all first texts, then of all second ones -> cut and framed pairs."""
    ids, lengths = bodies
    count = len(lengths) // 2
    a, b = lengths[:count], lengths[count:]
    room = tokenizer.max_length - frame.specials
    kept_a, kept_b = kept_lengths(a, b, room)
    starts = starts_of(lengths)
    if tokenizer.keeps_end:
        starts = starts + (lengths - np.concatenate([kept_a, kept_b]))
    framed = (kept_a + kept_b + np.int32(frame.specials)).astype(np.int32)
    flat = np.empty(int(framed.sum()), np.int32)
    kinds = None if frame.one_segment else np.empty(len(flat), np.int32)
    before, kind_a, between, kind_b, after = frame.segments
    at = starts_of(framed)  # [n]: where the next piece of every pair goes
    for specials, segments, kept, source, kind in (
        (frame.before, before, kept_a, starts[:count], kind_a),
        (frame.between, between, kept_b, starts[count:], kind_b),
        (frame.after, after, None, None, 0),
    ):
        at = _put_specials(flat, kinds, at, specials, segments)
        if kept is not None and source is not None:
            places = positions(at, kept)
            flat[places] = ids[positions(source, kept)]
            if kinds is not None:
                kinds[places] = kind
            at = at + kept
    truncated = int(np.count_nonzero(a.astype(np.int64) + b > room))
    longest = int((a.astype(np.int64) + b).max()) + frame.specials if count else 0
    return Tokens(flat, framed, truncated, longest, kinds)


def _put_specials(
    flat: Int32, kinds: Int32 | None, at: Int64, specials: tuple[int, ...], segments: tuple[int, ...]
) -> Int64:
    for special, segment in zip(specials, segments, strict=True):
        flat[at] = special
        if kinds is not None:
            kinds[at] = segment
        at = at + 1
    return at


def _by_backend(tokenizer: Tokenizer, a: Sequence[str], b: Sequence[str]) -> Tokens:
    """For backends whose special tokens do not simply stand around the two bodies."""
    pairs = list(zip(a, b, strict=True))
    rows = _encode(tokenizer.backend, pairs)
    longest = max((len(row.ids) for row in rows), default=0)
    long = [index for index, row in enumerate(rows) if len(row.ids) > tokenizer.max_length]
    if long:
        cutter = tokenizer.cutter()
        for index, row in zip(long, _encode(cutter, [pairs[i] for i in long]), strict=True):
            rows[index] = row
    ids, lengths = from_lists([row.ids for row in rows])
    kinds, _ = from_lists([row.type_ids for row in rows])
    return Tokens(ids, lengths, len(long), longest, kinds if len(kinds) and kinds.any() else None)


def _encode(backend: tokenizers.Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[tokenizers.Encoding]:
    encode_batch = getattr(backend, "encode_batch_fast", backend.encode_batch)
    try:
        return list(encode_batch(list(pairs), add_special_tokens=True))
    except (TypeError, UnicodeError) as error:
        raise InputError(f"the tokenizer refused a pair: {error}") from error


def _name_pair(a: Sequence[str], b: Sequence[str], error: InputError) -> None:
    """Say which pair holds a text that is not Unicode: both texts went to the tokenizer in one list."""
    for place, pair in enumerate(zip(a, b, strict=True)):
        for which, text in zip(("first", "second"), pair, strict=True):
            if LONE_SURROGATE.search(text):
                reason = str(error).partition("not valid Unicode: ")[2]
                raise InputError(f"pair {place}, {which} text is not valid Unicode: {reason or error}") from error
