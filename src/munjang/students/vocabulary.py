"""Which pieces a student's vocabulary holds: old ones that stay, new ones of the user's texts.

Enters: the model's tokenizer, a `VocabularyPlan`, texts. Leaves: `Pieces`, and how text is cut into words.
The normaliser is corrected first where it tears Hangul, so that pieces are learnt of syllables; a plan of letters has
it tear Hangul in any case, and then the letters count as new ones even where the old vocabulary has them.

Single characters come before longer pieces, up to three quarters of the room: a word with a character that has no
piece would be unknown as a whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

from munjang.errors import InputError
from munjang.students import trainers
from munjang.students.normaliser import JAMO, composing, decomposing, plain_normaliser
from munjang.students.plans import VocabularyPlan
from munjang.students.trainers import Cutting
from munjang.text.fast_words import METASPACE, SEPARATING, encode_ids, from_lists, steps
from munjang.text.tokenizer import Tokenizer

_KINDS = {models.WordPiece: "wordpiece", models.Unigram: "unigram"}
_WINDOW = 50_000  # words that the old model encodes at once
_UNKNOWN = "[UNK]"  # where the old vocabulary of bytes has no token for what is unknown


@dataclass(frozen=True)
class Pieces:
    """The pieces of a new vocabulary, in the order in which they take free ids."""

    special: tuple[str, ...]  # keep their ids where they can
    old: tuple[str, ...]
    new: tuple[str, ...]
    scores: Mapping[str, float]  # Unigram's; empty for WordPiece
    cutting: Cutting
    unknown: str  # the token of what is unknown
    prefix: str  # of a piece inside a word: '##'; empty for Unigram
    same_kind: bool  # as the old vocabulary: a piece that is written alike is the same piece


@dataclass(frozen=True)
class OldVocabulary:
    """What the tokenizer has now."""

    kind: str  # wordpiece, unigram, or the model's own name
    ids: Mapping[str, int]  # added tokens included
    special: tuple[str, ...]
    prefix: str
    scores: Mapping[str, float]
    unknown: str | None

    @property
    def pieces(self) -> list[str]:
        """What is not special, by id."""
        special = set(self.special)
        return sorted((piece for piece in self.ids if piece not in special), key=self.ids.__getitem__)

    def letters_of(self, piece: str) -> str:
        return piece.removeprefix(self.prefix) if len(piece) > len(self.prefix) else piece


def old_vocabulary(tokenizer: Tokenizer, *, keep_added: bool) -> OldVocabulary:
    """Pieces, special tokens and scores of a tokenizer; `keep_added` counts every added token as special."""
    backend = tokenizer.backend
    ids: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    model = backend.model
    scores: dict[str, float] = {}
    unknown = tokenizer.special_tokens().get("unk_token")
    special = {backend.id_to_token(i) for i in (*tokenizer.prefix, *tokenizer.suffix, tokenizer.pad_id)}
    if isinstance(model, models.Unigram):
        content = json.loads(backend.to_str())["model"]
        scores = {piece: float(score) for piece, score in content["vocab"]}
        if content.get("unk_id") is not None:
            unknown = content["vocab"][content["unk_id"]][0]
        if content.get("byte_fallback"):
            special |= {f"<0x{byte:02X}>" for byte in range(256)}
    special |= set(tokenizer.special_tokens().values()) | ({unknown} if unknown else set())
    for token in backend.get_added_tokens_decoder().values():
        if token.special or keep_added:
            special.add(token.content)
    present = sorted((token for token in special if token in ids), key=ids.__getitem__)
    kind = _KINDS.get(type(model), type(model).__name__)
    prefix = model.continuing_subword_prefix if kind == "wordpiece" else ""
    return OldVocabulary(kind, ids, tuple(present), prefix, scores, unknown if unknown in ids else None)


def check_plan(plan: VocabularyPlan, tokenizer: Tokenizer) -> None:
    """Raise where old and new vocabulary cannot be joined, before any text is read."""
    old = old_vocabulary(tokenizer, keep_added=plan.keep != "none")
    if plan.keep != "none" and old.kind != plan.kind:
        other = f"kind={old.kind!r} or " if old.kind in _KINDS.values() else ""
        raise InputError(
            f"old pieces can stay only where old and new vocabulary are of one kind: the model's is {old.kind}, the "
            f"plan's {plan.kind}. Choose {other}keep='none', a wholly new vocabulary"
        )
    if plan.keep == "all" and plan.size <= len(old.ids):
        raise InputError(
            f"with keep='all' the vocabulary's size must be more than {len(old.ids)} (the pieces that the model has), "
            f"got {plan.size}; keep='used' makes it smaller"
        )
    if plan.size < len(old.special) + 8:
        raise InputError(
            f"the vocabulary's size must be at least {len(old.special) + 8} ({len(old.special)} special tokens and a "
            f"few pieces), got {plan.size}"
        )


def choose_pieces(
    tokenizer: Tokenizer, plan: VocabularyPlan, *, texts: Sequence[str], done: Callable[[int], None]
) -> Pieces:
    """Train on the texts and join with the old pieces, as the plan says."""
    check_plan(plan, tokenizer)
    old = old_vocabulary(tokenizer, keep_added=plan.keep != "none")
    cutting = cutting_for(tokenizer.backend, plan)
    words = trainers.count_words(texts, cutting, done)
    if not words:
        raise InputError(f"a vocabulary is learnt from texts, but the {len(texts)} given hold no words")
    room = plan.size - len(old.special) - (old.unknown is None)
    stays = _staying(old, plan, words, tokenizer.backend)
    least = len(stays) if plan.keep == "all" else min(len(stays), _old_room(plan, room))
    special = old.special if old.unknown is not None else (*old.special, _UNKNOWN)
    new, scores = _new_pieces(old, plan, words, wanted=room - least, taken={*special, *stays[:least]})
    spare = room - len(new) if plan.keep == "used" and plan.old_share is None else 0
    kept = sorted(stays[: max(least, spare)], key=old.ids.__getitem__)
    taken = {*kept, *special}
    new = [piece for piece in new if piece not in taken][: room - len(kept)]
    prefix = "" if plan.kind == "unigram" else old.prefix or "##"
    scores = {**scores, **{piece: old.scores[piece] for piece in kept if piece in old.scores}}
    return Pieces(
        special=special,
        old=tuple(kept),
        new=tuple(new),
        scores=scores,
        cutting=cutting,
        unknown=old.unknown or _UNKNOWN,
        prefix=prefix,
        same_kind=old.kind == plan.kind,
    )


def _old_room(plan: VocabularyPlan, room: int) -> int:
    """The places that old pieces have for sure."""
    if plan.keep == "none":
        return 0
    return room // 2 if plan.old_share is None else round(plan.old_share * room)


def cutting_for(backend: tokenizers.Tokenizer, plan: VocabularyPlan) -> Cutting:
    """The student's normaliser and pre-tokeniser: the old ones where they suit the kind, the usual ones otherwise."""
    splitting = [str(step["type"]) for step in steps(backend.pre_tokenizer)]
    present = plain_normaliser() if backend.normalizer is None and "ByteLevel" in splitting else backend.normalizer
    normaliser = decomposing(present) if plan.hangul == "letters" else composing(present)
    if plan.kind == "wordpiece":
        suits = bool(splitting) and splitting[0] in SEPARATING and not {"Metaspace", "ByteLevel"} & set(splitting)
        return Cutting(normaliser, backend.pre_tokenizer if suits else pre_tokenizers.BertPreTokenizer(), False)
    if "Metaspace" in splitting and "ByteLevel" not in splitting:
        return Cutting(normaliser, backend.pre_tokenizer, True)
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return Cutting(normaliser, split, True)


def _staying(old: OldVocabulary, plan: VocabularyPlan, words: Counter[str], backend: tokenizers.Tokenizer) -> list[str]:
    """Old pieces that may stay, the most needed first."""
    if plan.keep == "none":
        return []
    if plan.keep == "all":
        return old.pieces
    uses = _uses(old, words, backend)
    letters = trainers.count_letters(words)
    # Single characters first: what is left of a word whose longer pieces went. ASCII stays in any case.
    needed = {letter for letter, count in letters.items() if count >= plan.min_count} | set(map(chr, range(33, 127)))
    first = {piece for piece in old.pieces if old.letters_of(piece) in needed}
    first |= {METASPACE} & set(old.pieces)
    used = {piece for piece in old.pieces if uses[piece] >= plan.min_count and piece not in first}
    return [*trainers.by_count({p: uses[p] for p in first}), *trainers.by_count({p: uses[p] for p in used})]


def _uses(old: OldVocabulary, words: Counter[str], backend: tokenizers.Tokenizer) -> Counter[str]:
    """How often the old model would use each piece for these words, as the student's normaliser leaves them."""
    bare = tokenizers.Tokenizer(backend.model)  # no normaliser, no pre-tokeniser: a word is one pre-token
    totals = np.zeros(max(old.ids.values()) + 1, np.int64)
    every = list(words)
    for start in range(0, len(every), _WINDOW):
        window = every[start : start + _WINDOW]
        ids, lengths = from_lists(encode_ids(bare, window, special=False))
        counts = np.fromiter((words[word] for word in window), np.int64, len(window))
        totals += np.bincount(ids, np.repeat(counts, lengths), len(totals)).astype(np.int64)
    return Counter({piece: int(totals[place]) for piece, place in old.ids.items()})


def _new_pieces(
    old: OldVocabulary, plan: VocabularyPlan, words: Counter[str], *, wanted: int, taken: set[str]
) -> tuple[list[str], dict[str, float]]:
    """At most `wanted` pieces that are not taken: characters, trained pieces, and last the rare characters."""
    known: set[str] = set()
    if plan.keep != "none" and plan.add == "unseen":
        known = {letter for piece in old.pieces for letter in old.letters_of(piece)} | {METASPACE}
    if plan.hangul == "letters":
        known -= JAMO
    prefix = "" if plan.kind == "unigram" else old.prefix or "##"

    def fits(piece: str) -> bool:
        return piece not in taken and any(letter not in known for letter in piece.removeprefix(prefix))

    words = Counter({word: count for word, count in words.items() if any(letter not in known for letter in word)})
    if wanted < 1 or not words:
        return [], {}
    first, last, trainable = _letters(words, plan, prefix=prefix, most=max(2, wanted * 3 // 4), fits=fits)
    scores: dict[str, float] = {}
    longer: list[str] = []
    if trainable and plan.kind == "unigram":
        longer, scores = trainers.unigram(trainable, wanted=wanted, fits=fits)
    elif trainable:
        longer = trainers.wordpiece(trainable, prefix=prefix, min_count=plan.min_count, wanted=wanted, fits=fits)
    ordered = [*first, *longer, *last][:wanted]
    floor = min(scores.values(), default=-10.0)
    return ordered, {piece: scores.get(piece, floor) for piece in ordered} if plan.kind == "unigram" else {}


def _letters(
    words: Counter[str], plan: VocabularyPlan, *, prefix: str, most: int, fits: trainers.Fits
) -> tuple[list[str], list[str], dict[str, int]]:
    """Single characters that come first, those that come last, and the words that can be spelt with the first.

    First the frequent ones as they stand at the beginning of words and inside them, then the same the other way.
    """
    counts = trainers.count_forms(words, prefix)
    forms = [form for form in trainers.by_count(counts) if fits(form)]
    frequent = [form for form in forms if counts[form] >= plan.min_count][:most]
    letters = {form.removeprefix(prefix) for form in frequent} if prefix else set(frequent)
    both = [form for letter in sorted(letters) for form in {letter: 0, prefix + letter: 0} if fits(form)]
    first = list(dict.fromkeys([*frequent, *both]))[:most]
    chosen = set(first)
    last = [form for form in forms if form not in chosen]
    lost = {form.removeprefix(prefix) if len(form) > len(prefix) else form for form in last} - letters
    return first, last, {word: count for word, count in words.items() if lost.isdisjoint(word)}
