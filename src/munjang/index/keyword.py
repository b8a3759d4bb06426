"""Texts of the living passages -> the best ones for the words of a query, by BM25 over morphemes.

    text/morphemes.py     texts -> terms
    keyword_segment.py    terms of many passages -> a segment
    keyword_state.py      segments + who lives -> scores
    keyword_files.py      segments <-> files

Following a new generation analyses only the new passages; removed ones are marked. A state is never changed: a search
keeps the one it began with while another thread follows. The files hold segments, written by the one process that may
write; they save the analysis, which takes longest (about 3,000 short texts a second on two cores), and are no source
of truth: missing, damaged, foreign or newer, the texts are analysed again.

Why this is not an engine like tantivy: its scores count removed documents until segments happen to be merged, so the
same passages would score differently after a rebuild or in another process; its files carry checksums that cannot be
checked from Python; and what has not been saved yet would be scored apart from what has.
"""

from __future__ import annotations

import re
import threading
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from munjang.errors import InputError, MunjangWarning
from munjang.index import keyword_files
from munjang.index.dense_file import Unusable
from munjang.index.keyword_files import FOLDER, FORMAT, Listed
from munjang.index.keyword_segment import Mask, Segment, built, merged
from munjang.index.keyword_state import KeywordState, Query
from munjang.index.passages import Found, Passages
from munjang.progress import Progress, track
from munjang.text.morphemes import Analyser, has_hangul

_BLOCK = 1_000_000  # characters that are analysed and made a segment at a time
_GROWTH = 3  # a segment is merged into the one before it unless that is so many times larger
_SHARE = 5  # a segment of which a fifth was removed is written without it
_WORTH = 256  # fewer new passages are analysed sooner than files are read
_WITNESSES = 8  # passages whose texts must be those that a file was made from
_QUOTED = re.compile('["“”]([^"“”]+)["“”]')


class KeywordIndex:
    """Keyword search in an index, kept up with it by `refresh`. For any number of threads."""

    def __init__(self, folder: Path, *, analyser: Analyser | None = None, identity: str = "") -> None:
        """`identity` is the index's own, if it has one: files with another are not used."""
        self._folder = folder / FOLDER
        self._analyser = Analyser() if analyser is None else analyser
        self._identity = identity
        self._lock, self._saving = threading.RLock(), threading.Lock()
        self._state: KeywordState | None = None
        self._warned = analyser is not None  # who chose an analyser knows it

    def refresh(self, passages: Passages, *, progress: Progress = False) -> KeywordState:
        """Follow the index to a state of it, and return that."""
        with self._lock:
            old = self._state
            if old is not None and old.generation == passages.generation:
                return old
            segments, upto = self._base(old, passages)
            state = self._followed(segments, upto, passages, progress)
            if old is None or passages.generation >= old.generation:
                self._state = state
            return state

    def search(self, queries: Sequence[str], k: int, *, allowed: Mask | None = None) -> Found:
        """The k passages that say most of what each query says, best first; words in "quotes" must all be there.

        `allowed` [n] says for each of `passages.numbers()` whether it may be found. Equal scores go to the lower
        number. Where fewer than k passages have a word of the query, the rest is -1 with a score of -inf.
        """
        state = self._state
        if state is None:
            raise InputError("there is nothing to search yet: call refresh(passages) first")
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        if allowed is not None and (allowed.shape != (state.living,) or allowed.dtype != np.bool_):
            raise InputError(
                f"allowed must be one bool for each of the {state.living} passages, got {allowed.dtype} "
                f"{allowed.shape}: make it from the numbers of the same state of the index"
            )
        within = state.within(allowed)
        asked = self._queries(queries)
        scores = np.full((len(asked), int(k)), -np.inf, np.float32)
        numbers = np.full((len(asked), int(k)), -1, np.int64)
        for row, query in enumerate(asked):
            best, found = state.best(query, int(k), within)
            scores[row, : len(best)], numbers[row, : len(found)] = best, found
        reach = np.array([state.reach(query) or 1.0 for query in asked], np.float32)  # [q]; 1 where there is no term
        return Found(scores, numbers, scores / reach[:, None])

    def save(self, passages: Passages, *, progress: Progress = False) -> None:
        """Write what is not in the files yet; for the one process that may write.

        Small segments are merged with those before them, so that there are never many, and what was removed is
        dropped where it has come to something.
        """
        with self._saving:
            state = self.refresh(passages, progress=progress)
            there = keyword_files.present(self._folder, [segment.file for segment in state.segments if segment.file])
            segments = [
                segment if segment.file in there else keyword_files.write_segment(self._folder, segment)
                for segment in _compacted(state, there)
            ]
            names = tuple(segment.file for segment in segments)
            listed = Listed(FORMAT, self._analyser.identity, self._identity, state.generation, state.upto, names)
            if listed != self._listed():
                keyword_files.write_list(self._folder, listed)
            new = KeywordState.of(segments, passages.numbers(), state.generation, state.upto)
            assert new is not None  # only removed passages were dropped
            with self._lock:
                if self._state is state:
                    self._state = new

    def _listed(self) -> Listed | None:
        try:
            return keyword_files.read_list(self._folder)
        except Unusable:
            return None

    def _base(self, old: KeywordState | None, passages: Passages) -> tuple[list[Segment], int]:
        """Where to start from: what is in memory, or the files where those save analysing much."""
        segments, upto = ([], 0) if old is None else (list(old.segments), old.upto)
        living = passages.numbers()
        if len(living) - np.searchsorted(living, upto, side="right") <= _WORTH:
            return segments, upto
        listed = self._listed()
        if listed is None or listed.upto <= upto or listed.generation > passages.generation:
            return segments, upto
        ours = (FORMAT, self._analyser.identity, self._identity)
        if (listed.format, listed.analyser, listed.identity) != ours:
            return segments, upto
        known = {segment.file: segment for segment in segments if segment.file}
        try:
            found = keyword_files.read_segments(self._folder, listed.files, known)
        except Unusable:
            return segments, upto
        if not _fits(found, listed.upto, passages):
            return segments, upto
        return found, listed.upto

    def _followed(self, segments: list[Segment], upto: int, passages: Passages, progress: Progress) -> KeywordState:
        """The segments, and the passages beyond them as further ones."""
        living, last = passages.numbers(), passages.last_number()
        known = KeywordState.of(segments, living[living <= upto], passages.generation, upto)
        if known is None:  # not made from this index
            segments, upto = [], 0
        fresh = len(living) - int(np.searchsorted(living, upto, side="right"))
        with track(progress, fresh) as tell:
            numbers: list[NDArray[np.int64]] = []
            texts: list[str] = []
            size = 0
            for block, own in passages.stream_texts(upto, last) if fresh else ():
                numbers.append(block)
                texts += own
                size += sum(map(len, own))
                if size >= _BLOCK:
                    segments = _grown([*segments, self._built(np.concatenate(numbers), texts)])
                    numbers, texts, size = [], [], 0
                tell(len(own))
            if texts:
                segments = _grown([*segments, self._built(np.concatenate(numbers), texts)])
        state = KeywordState.of(segments, living, passages.generation, max(upto, last))
        if state is None:
            raise InputError("the passages do not agree with their numbers: open the index again, and verify it")
        return state

    def _built(self, numbers: NDArray[np.int64], texts: list[str]) -> Segment:
        if not self._analyser.uses_kiwi and not self._warned and any(map(has_hangul, texts)):
            self._warned = True
            warnings.warn(
                "kiwipiepy is not installed, so Korean is searched by pairs of syllables, which finds less and more "
                "than it should: pip install 'munjang[korean]'",
                MunjangWarning,
                stacklevel=6,
            )
        return built(numbers, [_check(text) for text in texts], self._analyser.terms(texts))

    def _queries(self, queries: Sequence[str]) -> list[Query]:
        """The terms of every query, and those in quotes among them."""
        if isinstance(queries, str):
            raise InputError("queries must be a list of texts, got one text: put it into a list")
        pieces: list[str] = []
        owners: list[tuple[int, bool]] = []
        for row, query in enumerate(queries):
            if not isinstance(query, str):
                raise InputError(f"query {row} must be a text, got {type(query).__name__}")
            for place, piece in enumerate(_QUOTED.split(query)):
                pieces.append(piece)
                owners.append((row, place % 2 == 1))
        terms: list[list[str]] = [[] for _ in queries]
        required: list[set[str]] = [set() for _ in queries]
        for (row, is_quoted), own in zip(owners, self._analyser.terms(pieces), strict=True):
            terms[row] += own
            if is_quoted:
                required[row].update(own)
        return [Query(own, frozenset(must)) for own, must in zip(terms, required, strict=True)]


def _grown(segments: list[Segment]) -> list[Segment]:
    """Small segments at the end merged, as far as they are in no file."""
    while len(segments) > 1 and not segments[-2].file and _is_small(segments[-2], segments[-1]):
        segments = [*segments[:-2], merged(segments[-2:], [None, None])]
    return segments


def _compacted(state: KeywordState, there: set[str]) -> list[Segment]:
    """Few segments, and no large part of any removed."""
    found: list[Segment] = []
    for segment, mask in zip(state.segments, state.masks(), strict=True):
        removed = 0 if mask is None else len(mask) - int(mask.sum())
        if removed and (segment.file not in there or removed * _SHARE > len(segment.numbers)):
            segment = merged([segment], [mask])
        if len(segment.numbers):
            found.append(segment)
        while len(found) > 1 and _is_small(found[-2], found[-1]):
            found[-2:] = [merged(found[-2:], [None, None])]
    return found


def _is_small(before: Segment, segment: Segment) -> bool:
    return len(before.numbers) < _GROWTH * len(segment.numbers)


def _check(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _fits(segments: Sequence[Segment], upto: int, passages: Passages) -> bool:
    """Whether segments were made from these passages: all that live are there, and a few have the same texts."""
    numbers = np.concatenate([np.zeros(0, np.int64), *(segment.numbers for segment in segments)])
    checks = np.concatenate([np.zeros(0, np.uint32), *(segment.checks for segment in segments)])
    living = passages.numbers()
    living = living[living <= upto]
    if np.any(np.diff(numbers) <= 0) or not np.isin(living, numbers, assume_unique=True).all():
        return False
    some = np.unique(np.linspace(0, len(living) - 1, _WITNESSES).astype(np.int64)) if len(living) else ()
    for number in (int(living[place]) for place in some):
        texts = [text for _, own in passages.stream_texts(number - 1, number) for text in own]
        if [_check(text) for text in texts] != [int(checks[np.searchsorted(numbers, number)])]:
            return False
    return True
