"""New pieces out of the user's texts: words are counted once, then WordPiece or Unigram is trained on the counts.

Enters: texts, and the normaliser and pre-tokeniser that the student will have. Leaves: pieces, the best first.
`tokenizers` trains. It numbers continuation letters in the order of a hash table, which decides ties between merges;
handing it the letters in a fixed order makes the same texts give the same vocabulary.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from munjang.errors import InputError

WORDS_AT_ONCE = 500_000  # distinct words that wait for the pre-tokeniser
WORDS_HELD = 5_000_000  # distinct pre-tokens held; beyond it those seen once are forgotten
LONGEST_WORD = 100  # letters; BERT takes a longer word for unknown
_REPEATS = 1_000  # of a word in one line for the trainer
_ROUNDS = 4  # of training with more room, where too few pieces were of use

Fits = Callable[[str], bool]  # whether a piece may come in


@dataclass(frozen=True)
class Cutting:
    """How the student will cut text into words: before the model, nothing else decides."""

    normaliser: normalizers.Normalizer | None
    pre_tokeniser: pre_tokenizers.PreTokenizer
    spaced: bool  # a word carries the space before it (Metaspace)

    def words(self, text: str) -> list[str]:
        """The pre-tokens of a text."""
        text = f" {text}" if self.spaced else text
        if self.normaliser is not None:
            text = self.normaliser.normalize_str(text)
        return [word for word, _ in self.pre_tokeniser.pre_tokenize_str(text)]


def count_words(texts: Iterable[str], cutting: Cutting, done: Callable[[int], None]) -> Counter[str]:
    """How often each pre-token stands in the texts, in bounded memory."""
    counts: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    place = -1
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {place} must be a string, got {type(text).__name__}: {text!r:.60}")
        waiting.update(text.split())
        if len(waiting) > WORDS_AT_ONCE:
            _absorb(counts, waiting, cutting)
        if place % 1_000 == 999:
            done(1_000)
    done((place + 1) % 1_000)
    _absorb(counts, waiting, cutting)
    return counts


def _absorb(counts: Counter[str], waiting: Counter[str], cutting: Cutting) -> None:
    for raw, count in waiting.items():
        for word in cutting.words(raw):
            if len(word) <= LONGEST_WORD:
                counts[word] += count
    waiting.clear()
    if len(counts) > WORDS_HELD:
        for word in [word for word, count in counts.items() if count == 1]:
            del counts[word]


def count_letters(words: Mapping[str, int]) -> Counter[str]:
    """How often each character stands in the words."""
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    return letters


def count_forms(words: Mapping[str, int], prefix: str) -> Counter[str]:
    """How often each character begins a word, and how often it stands inside one, written with `prefix`."""
    forms: Counter[str] = Counter()
    for word, count in words.items():
        forms[word[0]] += count
        for letter in word[1:]:
            forms[prefix + letter] += count
    return forms


def by_count(counts: Mapping[str, int]) -> list[str]:
    """The most frequent first; equals in the order of their characters."""
    return sorted(counts, key=lambda item: (-counts[item], item))


def wordpiece(words: Mapping[str, int], *, prefix: str, min_count: int, wanted: int, fits: Fits) -> list[str]:
    """At most `wanted` pieces that `fits`, longer than a letter, the most useful first."""
    forms = by_count(count_forms(words, prefix))
    single = set(forms)
    size = len(forms) + wanted
    found: list[str] = []
    for _ in range(_ROUNDS):
        backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix))
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            min_frequency=min_count,
            special_tokens=forms,
            continuing_subword_prefix=prefix,
            show_progress=False,
        )
        _train(backend, trainer, words)
        ids: dict[str, int] = backend.get_vocab(with_added_tokens=False)
        longer = [piece for piece in ids if len(piece.removeprefix(prefix)) > 1 and piece not in single]
        found = [piece for piece in sorted(longer, key=ids.__getitem__) if fits(piece)]
        if len(found) >= wanted or len(ids) < size:
            break
        size += 2 * (wanted - len(found)) + 64
    return found[:wanted]


def unigram(words: Mapping[str, int], *, wanted: int, fits: Fits) -> tuple[list[str], dict[str, float]]:
    """At most `wanted` pieces that `fits`, longer than a letter, the likeliest first; and every piece's score."""
    letters = by_count(count_letters(words))
    size = len(letters) + wanted + 1
    found: list[str] = []
    scores: dict[str, float] = {}
    for _ in range(_ROUNDS):
        backend = tokenizers.Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=["<unk>"], unk_token="<unk>", initial_alphabet=letters, show_progress=False
        )
        _train(backend, trainer, words)
        scores = _steady(dict(json.loads(backend.to_str())["model"]["vocab"][1:]), len(letters))
        likeliest = sorted(scores, key=lambda piece: (-scores[piece], piece))
        found = [piece for piece in likeliest if len(piece) > 1 and fits(piece)]
        if len(found) >= wanted or len(scores) < size - 1:
            break
        size += 2 * (wanted - len(found)) + 64
    return found[:wanted], scores


def _steady(scores: dict[str, float], letters: int) -> dict[str, float]:
    """Scores without what the order of a hash table does to them, so that the same texts give the same pieces.

    It changes the last digits, and it shares out the scores of letters that training let go: these come back just
    above the lowest score, 0.0001 apart.
    """
    lowest = min(scores.values(), default=0.0)
    band = lowest + 1e-4 * (letters + 1)
    return {piece: round(lowest if len(piece) == 1 and score <= band else score, 6) for piece, score in scores.items()}


def _train(backend: tokenizers.Tokenizer, trainer: trainers.Trainer, words: Mapping[str, int]) -> None:
    # A pre-token holds no white space, so that the words can be handed over as lines of repeated words.
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.train_from_iterator(_lines(words), trainer)


def _lines(words: Mapping[str, int]) -> Iterator[str]:
    for word in sorted(words):
        left = words[word]
        while left > 0:
            yield " ".join([word] * min(left, _REPEATS))
            left -= _REPEATS
