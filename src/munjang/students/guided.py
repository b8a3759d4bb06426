"""First rows of new pieces by a guide: a model that knows both languages says which old words a new piece is like.

    guide(old word) -> its row: a linear map, fitted by ridge regression         guide(new piece) -> map -> its row

Enters: the old table, the old words, the new pieces, and a guide (anything that makes vectors of texts). Leaves: a row
for every new piece, and how well the map does on words that it was not fitted on.

The map is fitted on whole words of three letters or more: what '##ing' or 'th' mean to the guide by themselves has
little to do with what their rows are for, and with them the map did worse on Korean. How strong the ridge is, is chosen
on a held-out tenth of the words, and then the strongest is taken that costs next to nothing there: the map is made in
one language and used in another, where a stronger ridge carries further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from tokenizers import decoders

from munjang.errors import InputError
from munjang.students.vocabulary import OldVocabulary
from munjang.text.fast_words import METASPACE, steps
from munjang.text.tokenizer import Tokenizer

Table = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # shares of the mean variance of what the guide says
ENOUGH = 0.95  # of the best R2 on held-out words: what a stronger ridge must keep
FEWEST = 20  # words without which there is nothing to fit
_WHOLE = 500  # whole words of three letters or more; where there are fewer, shorter ones and parts of words serve too
_MOST = 50_000  # words that a map is fitted on, spread evenly over the vocabulary
_BLOCK = 4_096  # texts that the guide is given at once
_LITTLE = 0.05  # R2 below which a guide is of doubtful use
WORK = 50_000  # what `guided_rows` tells of, whatever there is to read


@runtime_checkable
class Guide(Protocol):
    """Anything that makes vectors of texts in the language of the model and in the new one."""

    def encode(self, texts: list[str], /) -> Any:
        """float [n, width]"""


@dataclass(frozen=True)
class Guided:
    """Rows for new pieces, and how the map was fitted."""

    rows: Mapping[int, Table]  # new id -> [width]
    report: dict[str, object]
    notes: tuple[str, ...] = ()  # what a person should know, in words


def guided_rows(
    table: Table,
    old: Tokenizer,
    *,
    vocabulary: OldVocabulary,
    letters: Mapping[int, str],
    guide: Guide,
    seed: int,
    done: Callable[[int], None],
) -> Guided:
    """A row for every new id. letters: what each new piece is written as, without marks of where in a word it stands.

    done is told of `WORK` in all, as the guide reads the old words and the new pieces.
    """
    words = check_words(old, vocabulary)
    named = {row: text for row, text in letters.items() if text}
    tell = _shares(len(words) + len(named), done)
    said = _vectors(guide, list(words.values()), tell)  # [words, guide's width]
    rows = table[list(words)].astype(np.float64)  # [words, width]
    ridge, figures = _chosen(said, rows, seed)
    apply = _fitted(said, rows)(ridge)
    made = apply(_vectors(guide, list(named.values()), tell, width=said.shape[1])).astype(np.float32)
    report: dict[str, object] = {"words": len(words), "guide's width": said.shape[1], "ridge": ridge, **figures}
    return Guided(dict(zip(named, made, strict=True)), report, _notes(figures["R2"]))


def _shares(total: int, done: Callable[[int], None]) -> Callable[[int], None]:
    """A function that takes 'n more of these texts are read' and passes it on as a share of `WORK`."""
    read = told = 0

    def tell(count: int) -> None:
        nonlocal read, told
        read += count
        now = WORK * read // total
        done(now - told)
        told = now

    return tell


def _notes(explained: float) -> tuple[str, ...]:
    if explained >= _LITTLE:
        return ()
    return (
        f"the guide says little about the words of this model (R2 {explained:.3f} on words that its map was not fitted "
        "on): embeddings by translations, or another guide, may be better",
    )


def check_words(old: Tokenizer, vocabulary: OldVocabulary) -> dict[int, str]:
    """The words that a map is fitted on; an error where there are too few."""
    words = fitting_words(old, vocabulary)
    if len(words) < FEWEST:
        raise InputError(
            f"embeddings='guide' fits a map on the words of the old vocabulary, but only {len(words)} of its pieces "
            f"are made of letters, and it takes {FEWEST}: take embeddings='pieces' or 'translations'"
        )
    return words


def fitting_words(old: Tokenizer, vocabulary: OldVocabulary) -> dict[int, str]:
    """The old ids that a map is fitted on, and what they are written as."""
    whole: dict[int, str] = {}
    others: dict[int, str] = {}
    surface = _surfaces(old, vocabulary)
    for piece in vocabulary.pieces:
        text, begins = surface(piece)
        if text.isalpha():
            (whole if begins and len(text) > 2 else others)[vocabulary.ids[piece]] = text
    found = whole if len(whole) >= _WHOLE else dict(sorted({**whole, **others}.items()))
    places = list(found)
    if len(places) > _MOST:
        places = [places[step * len(places) // _MOST] for step in range(_MOST)]
    return {place: found[place] for place in places}


def _surfaces(old: Tokenizer, vocabulary: OldVocabulary) -> Callable[[str], tuple[str, bool]]:
    """A function of a piece: its letters, and whether a word begins with it."""
    if vocabulary.prefix:
        return lambda piece: (vocabulary.letters_of(piece), not piece.startswith(vocabulary.prefix))
    if "ByteLevel" in {step["type"] for step in steps(old.backend.pre_tokenizer)}:
        decoder = decoders.ByteLevel()

        def decoded(piece: str) -> tuple[str, bool]:
            text: str = decoder.decode([piece])
            return text.removeprefix(" "), text.startswith(" ")

        return decoded
    return lambda piece: (piece.removeprefix(METASPACE), piece.startswith(METASPACE))


def _vectors(guide: Guide, texts: Sequence[str], done: Callable[[int], None], *, width: int | None = None) -> Floats:
    """What the guide says of these texts, [n, guide's width], checked."""
    blocks: list[Floats] = []
    for start in range(0, len(texts), _BLOCK):
        block = list(texts[start : start + _BLOCK])
        found = np.asarray(guide.encode(block), np.float64)
        width = found.shape[1] if width is None and found.ndim == 2 else width
        if found.ndim != 2 or found.shape != (len(block), width):
            raise InputError(
                f"the guide must give one vector for each of {len(block)} texts, [{len(block)}, "
                f"{'width' if width is None else width}], got an array of shape {list(found.shape)}"
            )
        if not np.isfinite(found).all():
            bad = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
            raise InputError(f"the guide's vector of {block[bad]!r} holds values that are not finite numbers")
        blocks.append(found)
        done(len(block))
    return np.concatenate(blocks) if blocks else np.zeros((0, width or 0))


def _chosen(said: Floats, rows: Floats, seed: int) -> tuple[float, dict[str, float]]:
    """The ridge, and what it does on a tenth of the words that it was not fitted on."""
    order = np.random.default_rng(seed).permutation(len(said))
    held, used = order[: max(1, len(order) // 10)], order[max(1, len(order) // 10) :]
    fitted = _fitted(said[used], rows[used])
    mean = rows[used].mean(axis=0)
    total = float(((rows[held] - mean) ** 2).sum())
    scores: dict[float, tuple[float, float]] = {}
    for ridge in RIDGES:
        guess = fitted(ridge)(said[held])
        explained = 1 - float(((guess - rows[held]) ** 2).sum()) / total if total else 0.0
        scores[ridge] = (explained, _cosine(guess, rows[held]))
    best = max(score for score, _ in scores.values())
    kept = [ridge for ridge, (score, _) in scores.items() if score >= ENOUGH * best] if best > 0 else [RIDGES[-1]]
    explained, cosine = scores[max(kept)]
    return max(kept), {"held-out words": len(held), "R2": round(explained, 4), "cosine": round(cosine, 4)}


def _cosine(one: Floats, other: Floats) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / np.maximum(lengths, 1e-12)).mean())


def _fitted(said: Floats, rows: Floats) -> Callable[[float], Callable[[Floats], Floats]]:
    """For each ridge the map of vectors [n, guide's width] to rows [n, width], with an intercept.

    One decomposition serves all ridges: with S = V diag(s) V' the products of the centred vectors, the weights are
    V diag(1 / (s + ridge * mean(s))) V' X' Y.
    """
    centre, mean = said.mean(axis=0), rows.mean(axis=0)
    spread = said - centre
    values, axes = np.linalg.eigh(spread.T @ spread)  # [guide's width], [guide's width, guide's width]
    products = axes.T @ (spread.T @ (rows - mean))  # [guide's width, width]

    def with_ridge(ridge: float) -> Callable[[Floats], Floats]:
        penalty = max(ridge * float(values.mean()), 1e-12)
        weights = axes @ (products / (np.maximum(values, 0) + penalty)[:, None])
        return lambda given: (given - centre) @ weights + mean

    return with_ridge
