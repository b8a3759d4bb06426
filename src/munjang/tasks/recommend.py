"""`Recommender`: 'books like this one'. Long texts in, the most similar others out, with the passages that show why.

    items -> mean vectors -> cosine shortlist -> (cross-encoder over sampled chunks) -> recommendations

The shortlist is exact. A cross-encoder then reads a few chunks of the one text beside a few of the other; the mean of
its scores, or the highest, decides the order. An item is never recommended to itself.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError, MunjangWarning
from munjang.index.results import Passage, Stage
from munjang.progress import Progress
from munjang.tasks import recommend_saving
from munjang.tasks.recommend_items import Chunking, Items, Text, encode_text, make_items
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]
Combine = Literal["mean", "max"]


@dataclass(frozen=True)
class Because:
    """The two passages that are most alike: by the cross-encoder among those it read, else by their cosine."""

    asked: Passage  # of the text that was asked with
    found: Passage  # of the item
    score: float


@dataclass(frozen=True)
class Recommendation:
    """An item that is like the one asked with."""

    id: str
    score: float  # of the last stage
    stages: tuple[Stage, ...]  # semantic, and rerank where there was a cross-encoder
    because: Because
    metadata: Mapping[str, Any]
    moved: int = 0  # places up (+) or down (-) by the cross-encoder


@dataclass(frozen=True, eq=False)
class Recommender:
    """Items that can be compared with each other and with any text. Make one with `build`."""

    model: BiEncoder
    items: Items
    chunking: Chunking

    @classmethod
    def build(
        cls,
        items: Iterable[Mapping[str, object]],
        model: BiEncoder,
        *,
        chunk_tokens: int = 128,
        stride: int = 64,
        kept_chunks: int = 64,
        progress: Progress = False,
    ) -> Recommender:
        """Encode items: dicts with `text`, `id` (default: their position) and anything else, which is handed back.

        kept_chunks: how many chunks of an item are kept for cross-encoders and explanations, spread over its text; its
        vector is the mean of all. Items whose text has no words are left out, with a warning.
        """
        how = Chunking(chunk_tokens, stride, kept_chunks)
        made = make_items(items, model, how, progress=progress)
        if made.empty:
            warnings.warn(
                f"{len(made.empty):,} items have no words in their text and are left out: {_listed(made.empty)}",
                MunjangWarning,
                stacklevel=2,
            )
        return cls(model, made, how)

    @classmethod
    def load(cls, folder: str | Path, model: BiEncoder | None = None, *, device: str | None = None) -> Recommender:
        """Read a saved one. model: the one it was built with, where its name leads nowhere any more."""
        return cls(*recommend_saving.read(folder, model, device=device))

    def save(self, folder: str | Path) -> None:
        """Write it to a folder: JSON lines and safetensors. A killed save leaves the old one or none."""
        recommend_saving.write(folder, self.model, self.items, self.chunking)

    @property
    def ids(self) -> list[str]:
        return list(self.items.ids)

    def __len__(self) -> int:
        return len(self.items.ids)

    def __contains__(self, id: object) -> bool:
        return id in self._places

    def like(
        self,
        id: str,
        k: int = 10,
        *,
        reranker: CrossEncoder | None = None,
        shortlist: int = 50,
        sampled_chunks: int = 3,
        combine: Combine = "mean",
        seed: int = 0,
    ) -> list[Recommendation]:
        """The k items most like this one, never itself; fewer where there are fewer.

        reranker: a cross-encoder with one score, which reads `sampled_chunks` chunks of this item beside as many of
        each of the `shortlist` nearest. combine: the mean of its scores, or the highest. The same seed samples the
        same chunks.
        """
        place = self._place(id)
        chunks = self.items.chunks_of(place)
        passages, vectors = self.items.passages[chunks], self.items.chunk_vectors[chunks]
        asked = Text(self.items.vectors[place], passages, vectors)
        how = _How(k, reranker, shortlist, sampled_chunks, combine, seed)
        return self._found(asked, how, key=id, itself=place)

    def like_text(
        self,
        text: str,
        k: int = 10,
        *,
        reranker: CrossEncoder | None = None,
        shortlist: int = 50,
        sampled_chunks: int = 3,
        combine: Combine = "mean",
        seed: int = 0,
    ) -> list[Recommendation]:
        """The k items most like this text, which is none of them; the rest as in `like`."""
        how = _How(k, reranker, shortlist, sampled_chunks, combine, seed)
        return self._found(encode_text(text, self.model, self.chunking), how, key=text, itself=None)

    def __repr__(self) -> str:
        return f"Recommender({len(self):,} items, {len(self.items.passages):,} chunks, {self.model!r})"

    # --- inside ------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {id: place for place, id in enumerate(self.items.ids)}

    def _place(self, id: str) -> int:
        place = self._places.get(id)
        if place is not None:
            return place
        if id in self.items.empty:
            raise InputError(f"the item {id!r} has no words in its text: nothing is like it")
        near = difflib.get_close_matches(str(id), self.items.ids[:10_000], n=3)
        hint = f" (near it: {', '.join(map(repr, near))})" if near else ""
        raise InputError(
            f"there is no item {id!r} among the {len(self):,}{hint}; a text that is no item goes to like_text"
        )

    def _found(self, asked: Text, how: _How, *, key: str, itself: int | None) -> list[Recommendation]:
        count = min(how.depth, len(self) - (itself is not None))
        if count < 1:
            return []
        near = top_k(asked.vector[None], self.items.vectors, count + (itself is not None))
        pairs = zip(near.indices[0].tolist(), near.scores[0].tolist(), strict=True)
        listed = [(place, score) for place, score in pairs if place != itself][:count]
        if how.reranker is None:
            return [
                self._recommendation(place, (Stage("semantic", score, rank),), self._closest(asked, place))
                for rank, (place, score) in enumerate(listed, start=1)
            ]
        return self._reranked(asked, listed, how, key)

    def _recommendation(
        self, place: int, stages: tuple[Stage, ...], because: Because, *, moved: int = 0
    ) -> Recommendation:
        id, metadata = self.items.ids[place], self.items.metadata[place]
        return Recommendation(id, stages[-1].score, stages, because, metadata, moved)

    def _closest(self, asked: Text, place: int) -> Because:
        chunks = self.items.chunks_of(place)
        cosines = asked.vectors.astype(np.float32) @ self.items.chunk_vectors[chunks].astype(np.float32).T
        mine, theirs = np.unravel_index(int(cosines.argmax()), cosines.shape)
        found = self.items.passages[chunks.start + int(theirs)]
        return Because(asked.passages[int(mine)], found, float(cosines[mine, theirs]))

    def _reranked(self, asked: Text, listed: list[tuple[int, float]], how: _How, key: str) -> list[Recommendation]:
        """The shortlist in the order of the cross-encoder's scores; equal ones stay in the order of the shortlist."""
        assert how.reranker is not None
        mine = [asked.passages[at] for at in how.sample(len(asked.passages), f"asked\0{key}")]
        theirs: list[list[Passage]] = []
        for place, _ in listed:
            chunks = self.items.chunks_of(place)
            sampled = how.sample(chunks.stop - chunks.start, self.items.ids[place])
            theirs.append([self.items.passages[chunks.start + at] for at in sampled])
        pairs = [(a, b) for group in theirs for a in mine for b in group]
        scores = how.reranker.predict([(a.text, b.text) for a, b in pairs])
        ends = np.cumsum([len(mine) * len(group) for group in theirs])[:-1]
        parts = np.split(scores, ends)
        combined = np.array([part.max() if how.combine == "max" else part.mean() for part in parts], np.float64)
        starts = [0, *ends.tolist()]
        found: list[Recommendation] = []
        for rank, at in enumerate(np.argsort(-combined, kind="stable")[: how.k].tolist(), start=1):
            place, cosine = listed[at]
            best = starts[at] + int(parts[at].argmax())
            asked_with, found_in = pairs[best]
            because = Because(asked_with, found_in, float(scores[best]))
            stages = (Stage("semantic", cosine, at + 1), Stage("rerank", float(combined[at]), rank))
            found.append(self._recommendation(place, stages, because, moved=at + 1 - rank))
        return found


@dataclass(frozen=True)
class _How:
    """What a caller asked for, checked."""

    k: int
    reranker: CrossEncoder | None
    shortlist: int
    sampled_chunks: int
    combine: Combine
    seed: int

    def __post_init__(self) -> None:
        for name in ("k", "shortlist", "sampled_chunks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.combine not in ("mean", "max"):
            raise InputError(f"combine must be 'mean' or 'max', got {self.combine!r}")
        if self.reranker is not None and len(self.reranker.labels) != 1:
            labels = ", ".join(self.reranker.labels)
            raise InputError(f"a reranker gives one score, but this one has the labels {labels}")

    @property
    def depth(self) -> int:
        """Items that the first stage finds."""
        return self.k if self.reranker is None else max(self.k, self.shortlist)

    def sample(self, count: int, key: str) -> Sequence[int]:
        """Some of so many chunks, in their order; which ones hangs on the seed and on whose they are."""
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        random = np.random.default_rng([self.seed, int.from_bytes(digest, "big")])
        chosen: list[int] = np.sort(random.choice(count, min(count, self.sampled_chunks), replace=False)).tolist()
        return chosen


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 5:,} more" if len(ids) > 5 else ""
    return ", ".join(map(repr, ids[:5])) + more
