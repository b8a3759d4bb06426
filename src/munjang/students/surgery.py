"""Vocabulary surgery: a body with another vocabulary, its embeddings begun from the old ones, its files right.

    texts -> pieces (vocabulary) -> tokenizer (assembling) -> rows (embeddings, alignment, guided) -> body

Enters: a model, a `VocabularyPlan`, texts, perhaps translations and a guide. Leaves: a model, a report and notes.
Position and segment tables and everything above the embeddings stay as they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from munjang.checkpoint import ModelParts
from munjang.errors import InputError
from munjang.nn.encoder import Encoder
from munjang.students.alignment import ROUNDS, Aligned, Bools, align
from munjang.students.assembling import Assembled, assemble, renumbered_config
from munjang.students.coverage import coverage, words_by_script
from munjang.students.embeddings import Hints, Table, first_rows
from munjang.students.guided import WORK as GUIDE_WORK
from munjang.students.guided import Guide, Guided, guided_rows
from munjang.students.normaliser import legible, tears_hangul
from munjang.students.plans import StudentPlan, VocabularyPlan
from munjang.students.rebuilding import known_body, rebuilt
from munjang.students.vocabulary import OldVocabulary, Pieces, choose_pieces, old_vocabulary
from munjang.text.fast_words import METASPACE
from munjang.text.packing import Int32
from munjang.text.tokenizer import Tokenizer

Translations = tuple[Sequence[str], Sequence[str]]
_WINDOW = 10_000  # texts that are tokenised at once


@dataclass(frozen=True)
class Work:
    """What a vocabulary is made from."""

    texts: Sequence[str]
    translations: Translations | None
    guide: Guide | None
    seed: int
    done: Callable[[int], None]


@dataclass(frozen=True)
class Remade:
    """A model with another vocabulary."""

    parts: ModelParts
    report: dict[str, object]
    notes: tuple[str, ...]


def work_of(plan: StudentPlan, texts: Sequence[str], translations: Translations | None) -> int:
    """What `remade` will tell of: texts once; translations when read, linked, and in every round; the guide's work."""
    if plan.vocabulary is None:
        return 0
    way = plan.vocabulary.embeddings
    aligned = 0 if translations is None or way == "pieces" else len(translations[0])
    return len(texts) + aligned * (3 + ROUNDS) + (GUIDE_WORK if way == "guide" else 0)


def remade(parts: ModelParts, plan: VocabularyPlan, work: Work) -> Remade:
    """The model with the vocabulary that the plan asks for."""
    body = known_body(parts.body, "a student with another vocabulary")
    old = parts.tokenizer
    pieces = choose_pieces(old, plan, texts=work.texts, done=work.done)
    new = assemble(old, pieces, keep_ids=plan.keep == "all", segments=body.config.segments > 1)
    _check_positions(body, parts, new)
    vocabulary = old_vocabulary(old, keep_added=plan.keep != "none")
    aligned: dict[int, Aligned] = {}
    pairs = 0
    if plan.embeddings != "pieces" and work.translations is not None:
        aligned, pairs = _alignment(work, old, vocabulary, new)
    table = body.embeddings.word.weight.detach().float().cpu().numpy()
    guided = _guidance(work, old, vocabulary, new, table=table, prefix=pieces.prefix)
    hints = Hints(aligned, guided.rows)
    rows = first_rows(table, old, vocabulary=vocabulary, new=new, hints=hints, prefix=pieces.prefix, seed=work.seed)
    state = body.state_dict() | {"embeddings.word.weight": torch.from_numpy(rows.table)}
    grown = rebuilt(replace(body.config, vocab_size=len(rows.table)), state)
    made = replace(parts, body=grown, tokenizer=new.tokenizer, hf_config=renumbered_config(parts.hf_config, old, new))
    scripts = words_by_script(work.texts)
    report: dict[str, object] = {
        "before": len(vocabulary.ids),
        "after": new.tokenizer.vocab_size,
        "kind": plan.kind,
        "special": len(pieces.special),
        "kept": len(pieces.old),
        "new": len(pieces.new),
        "hangul": plan.hangul,
        "hangul corrected": tears_hangul(old.backend) and plan.hangul == "syllables",
        "embeddings": rows.describe(),
        "aligned pairs": pairs,
        **({"guide": guided.report} if work.guide else {}),
        "coverage before": coverage(old, scripts),
        "coverage after": coverage(new.tokenizer, scripts),
    }
    return Remade(made, report, (*_notes(plan, pieces, old, new), *guided.notes))


def _check_positions(body: Encoder, parts: ModelParts, new: Assembled) -> None:
    """RoBERTa and its kin count positions from the padding token's id, so that it must not move."""
    if not body.config.position_offset:
        return
    pad = parts.hf_config.get("pad_token_id", body.config.position_offset - 1)
    row = np.flatnonzero(new.old_ids == pad)
    if not len(row) or int(row[0]) != pad:
        raise InputError(
            f"the padding token must keep its id {pad}, from which this model counts positions, but the new vocabulary "
            f"of {len(new.old_ids)} pieces has no such place for it: choose a larger size"
        )


def _alignment(work: Work, old: Tokenizer, vocabulary: OldVocabulary, new: Assembled) -> tuple[dict[int, Aligned], int]:
    """What old pieces the new ones stand for, by the translations."""
    assert work.translations is not None
    old_side = _bodies(old, work.translations[0], work.done)
    new_side = _bodies(new.tokenizer, work.translations[1], work.done)
    ignored, weak = _kinds(vocabulary)
    aligned, pairs = align(old_side, new_side, ignored=ignored, weak=weak, done=work.done)
    return {row: found for row, found in aligned.items() if new.old_ids[row] < 0}, pairs


def _guidance(
    work: Work, old: Tokenizer, vocabulary: OldVocabulary, new: Assembled, *, table: Table, prefix: str
) -> Guided:
    """What the guide takes the new pieces for; nothing without a guide."""
    if work.guide is None:
        return Guided({}, {})
    letters: dict[int, str] = {}
    for row in np.flatnonzero(new.old_ids < 0):
        piece = new.tokens[row] or ""
        text = piece.removeprefix(prefix) if prefix and len(piece) > len(prefix) else piece
        letters[int(row)] = legible(text.replace(METASPACE, " ").strip())
    return guided_rows(
        table, old, vocabulary=vocabulary, letters=letters, guide=work.guide, seed=work.seed, done=work.done
    )


def _bodies(tokenizer: Tokenizer, texts: Sequence[str], done: Callable[[int], None]) -> tuple[Int32, Int32]:
    """Ids without special tokens, window after window."""
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for start in range(0, len(texts), _WINDOW):
        window = list(texts[start : start + _WINDOW])
        for kept, part in zip((ids, lengths), tokenizer.bodies(window), strict=True):
            kept.append(part)
        done(len(window))
    return np.concatenate(ids), np.concatenate(lengths)


def _kinds(vocabulary: OldVocabulary) -> tuple[Bools, Bools]:
    """Old ids that are special, and old ids without a letter or a digit."""
    size = max(vocabulary.ids.values()) + 1
    ignored, weak = np.zeros(size, bool), np.zeros(size, bool)
    ignored[[vocabulary.ids[token] for token in vocabulary.special]] = True
    for piece, place in vocabulary.ids.items():
        letters = vocabulary.letters_of(piece).lstrip("▁Ġ")
        weak[place] = not any(unicodedata.category(letter)[0] in "LNM" for letter in letters)
    return ignored, weak


def _notes(plan: VocabularyPlan, pieces: Pieces, old: Tokenizer, new: Assembled) -> tuple[str, ...]:
    notes = []
    if tears_hangul(old.backend) and plan.hangul == "syllables":
        notes.append("the normaliser tore Hangul into jamo; the new vocabulary's composes it again (NFC)")
    missing = plan.size - new.tokenizer.vocab_size
    if missing > 0:
        why = (
            "the texts hold few characters that the old vocabulary lacks; add='any' lets frequent words in"
            if plan.keep != "none" and plan.add == "unseen"
            else f"no more pieces occur {plan.min_count} times in the texts; more text gives more"
        )
        notes.append(f"the vocabulary has {new.tokenizer.vocab_size:,} pieces, not {plan.size:,}: {why}")
    if not pieces.new:
        notes.append("the vocabulary was pruned only: no new piece came in")
    return tuple(notes)
