"""Documents -> the phrases in them that lie nearest to the whole, unlike each other (the method of KeyBERT).

    document -> chunks -> mean vector ┐
    document -> candidates -> vectors ┴> cosines -> choice -> Keyword(text, score, places)

Candidates are Korean noun phrases and English n-grams (`candidates.py`). A document longer than the model reads is
encoded in chunks, and its vector is their mean. Many documents pass in windows: a window's chunks are encoded in one
go, and a phrase that many documents share is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from munjang.data.rows import Source, open_texts
from munjang.errors import InputError
from munjang.progress import Progress, track
from munjang.tasks.candidates import Candidate, Language, Place, check_choices, find_candidates, find_given
from munjang.tasks.keywords_choice import max_sum, mmr, nearest
from munjang.text.chunks import chunk_all
from munjang.vectors import normalize

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder

Array = np.ndarray[Any, Any]
WINDOW = 256  # documents that are worked on together
WINDOW_CHARACTERS = 2_000_000
MOST_CHUNKS = 512  # of one document, evenly spread; more would not move its mean
MOST_CACHED = 100_000  # phrases whose vectors are kept for the next windows


@dataclass(frozen=True)
class Keyword:
    """A phrase of a document, its cosine with the whole, and where it stands (start, end in characters)."""

    text: str
    score: float
    places: tuple[Place, ...]


@dataclass(frozen=True)
class MMR:
    """Maximal marginal relevance; the weight of being unlike those already chosen, against being near the document."""

    weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise InputError(f"the weight of MMR must be 0 (relevance alone) to 1 (novelty alone), got {self.weight}")


@dataclass(frozen=True)
class MaxSum:
    """Of the `pool` nearest candidates the set whose members are least alike."""

    pool: int = 20

    def __post_init__(self) -> None:
        if self.pool < 1:
            raise InputError(f"the pool of MaxSum must be 1 or more, got {self.pool}")


Diversity = Literal["mmr", "max_sum"] | MMR | MaxSum | None


@dataclass(frozen=True)
class _Job:
    """One call's settings, checked."""

    top: int
    diversity: MMR | MaxSum | None
    given: tuple[str, ...] | None
    ngrams: tuple[int, int]
    language: Language


def keywords(
    document: str,
    model: BiEncoder | None = None,
    *,
    top: int = 5,
    diversity: Diversity = "mmr",
    candidates: Sequence[str] | None = None,
    ngrams: tuple[int, int] = (1, 3),
    language: Language = "auto",
) -> tuple[Keyword, ...]:
    """The keywords of one document; fewer than `top` where it has fewer phrases.

    model: by default the bundled one. diversity: 'mmr' or MMR(weight), 'max_sum' or MaxSum(pool), None for the nearest
    whatever they share. candidates: rate these phrases instead of the document's own; one that does not stand in the
    document has no places. ngrams: fewest and most words of a phrase. The best keyword comes first, except with
    diversity, where the order is that of the choice.
    """
    if not isinstance(document, str):
        raise InputError(f"document must be one text, got {type(document).__name__}; keywords_of_many takes several")
    job = _job(top, diversity, candidates, ngrams, language)
    return next(_windows([document], _loaded(model), job, False))[0]


def keywords_of_many(
    documents: Source,
    model: BiEncoder | None = None,
    *,
    top: int = 5,
    diversity: Diversity = "mmr",
    candidates: Sequence[str] | None = None,
    ngrams: tuple[int, int] = (1, 3),
    language: Language = "auto",
    progress: Progress = False,
) -> Iterator[tuple[Keyword, ...]]:
    """The keywords of each document, in order, as they are found: a stream of any length passes in bounded memory."""
    job = _job(top, diversity, candidates, ngrams, language)
    found = _windows(documents, _loaded(model), job, progress)
    return (row for window in found for row in window)


def _job(
    top: int,
    diversity: Diversity,
    candidates: Sequence[str] | None,
    ngrams: tuple[int, int],
    language: Language,
) -> _Job:
    if top < 1:
        raise InputError(f"top must be 1 or more, got {top}")
    check_choices(ngrams, language)
    named = {"mmr": MMR(), "max_sum": MaxSum()}
    if isinstance(diversity, str):
        if diversity not in named:
            raise InputError(f"diversity must be mmr, max_sum, MMR(weight), MaxSum(pool) or None, got {diversity!r}")
        diversity = named[diversity]  # type: ignore[assignment]
    if isinstance(diversity, MaxSum) and diversity.pool < top:
        raise InputError(f"MaxSum chooses {top} keywords out of pool={diversity.pool}: the pool must be larger")
    if isinstance(candidates, str):
        raise InputError(f"candidates must be a list of phrases, got one text: [{candidates!r}] would be a list of one")
    given = None if candidates is None else tuple(candidates)
    for phrase in given or ():
        if not isinstance(phrase, str) or not phrase.strip():
            raise InputError(f"every candidate must be a phrase, got {phrase!r}")
    return _Job(top, diversity, given, tuple(ngrams), language)  # type: ignore[arg-type]


def _windows(documents: Source, model: BiEncoder, job: _Job, progress: Progress) -> Iterator[list[tuple[Keyword, ...]]]:
    from munjang.encoders.runtime import split_windows  # imports torch

    opened = open_texts([documents] if isinstance(documents, str) else documents)
    cache: dict[str, Array] = {}
    with track(progress, opened.total) as done:
        for texts in split_windows(iter(opened), len, WINDOW, WINDOW_CHARACTERS):
            found = [
                find_candidates(text, ngrams=job.ngrams, language=job.language)
                if job.given is None
                else find_given(text, job.given)
                for text in texts
            ]
            _encode_phrases(found, model, cache)
            whole = document_vectors(texts, model)
            yield [_chosen(vector, each, cache, job) for vector, each in zip(whole, found, strict=True)]
            done(len(texts))


def document_vectors(texts: Sequence[str], model: BiEncoder) -> Array:
    """Unit vectors of texts of any length, [n, dimension]: the mean of a text's chunks; zero where it has no word."""
    size = max(model.max_length - _prompt_tokens(model), model.tokenizer.specials + 1)
    stride = max(1, (size - model.tokenizer.specials) * 3 // 4)
    owners: list[int] = []
    parts: list[str] = []
    for number, chunks in _chunks_of(texts, model, size, stride):
        step = max(1.0, len(chunks) / MOST_CHUNKS)
        kept = [chunks[int(place * step)] for place in range(min(len(chunks), MOST_CHUNKS))]
        parts.extend(kept)
        owners.extend([number] * len(kept))
    out = np.zeros((len(texts), model.dimension), dtype=np.float32)
    if parts:
        np.add.at(out, np.array(owners), normalize(model.encode_document(parts)))
    return normalize(out)


def _prompt_tokens(model: BiEncoder) -> int:
    """Tokens that the model's prompt for documents takes from every chunk."""
    names = ("document", "passage", "corpus", model.parts.default_prompt_name)
    prompt = next((model.prompts[name] for name in names if name is not None and name in model.prompts), "")
    return int(model.tokenizer.count([prompt])[0]) - model.tokenizer.specials if prompt else 0


def _chunks_of(texts: Sequence[str], model: BiEncoder, size: int, stride: int) -> Iterator[tuple[int, list[str]]]:
    gathered: list[str] = []
    current = -1
    for number, chunk in chunk_all(texts, model.tokenizer, size=size, stride=stride):
        if number != current and gathered:
            yield current, gathered
            gathered = []
        current = number
        gathered.append(chunk.text)
    if gathered:
        yield current, gathered


def _encode_phrases(found: Sequence[Sequence[Candidate]], model: BiEncoder, cache: dict[str, Array]) -> None:
    """Put the vectors of all candidates into the cache, those that lack one in a single call."""
    phrases = dict.fromkeys(candidate.text for each in found for candidate in each)
    if len(cache) + len(phrases) > MOST_CACHED:
        cache.clear()
    missing = [phrase for phrase in phrases if phrase not in cache]
    if missing:
        cache.update(zip(missing, normalize(model.encode_document(missing)), strict=True))


def _chosen(whole: Array, found: Sequence[Candidate], cache: dict[str, Array], job: _Job) -> tuple[Keyword, ...]:
    if not found:
        return ()
    vectors = np.stack([cache[candidate.text] for candidate in found])  # [n, d]
    relevance = vectors @ whole  # [n]
    if isinstance(job.diversity, MMR):
        rows = mmr(relevance, vectors, top=job.top, weight=job.diversity.weight)
    elif isinstance(job.diversity, MaxSum):
        rows = max_sum(relevance, vectors, top=job.top, pool=job.diversity.pool)
    else:
        rows = nearest(relevance, job.top)
    return tuple(Keyword(found[row].text, float(relevance[row]), tuple(found[row].places)) for row in rows)


def _loaded(model: BiEncoder | None) -> BiEncoder:
    if model is not None:
        return model
    from munjang.loading import load

    return load()
