"""Chosen pieces to a tokenizer: ids, post-processor, decoder and settings that fit one another.

Enters: the old tokenizer and `Pieces`. Leaves: a new `Tokenizer`, and for every new id the old id it had.
Special tokens keep their ids where the vocabulary is large enough, because RoBERTa and MPNet count positions from the
padding token's id. The tokenizer has no source folder, so that no vocab.txt of the old vocabulary is saved beside it,
and its settings name no class that would put another normaliser into its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers

from munjang.students.normaliser import tears
from munjang.students.trainers import LONGEST_WORD
from munjang.students.vocabulary import Pieces
from munjang.text.fast_words import METASPACE, describe
from munjang.text.packing import Int64
from munjang.text.tokenizer import Tokenizer

# Of tokenizer_config.json: what stays true. Class names, lower-casing and listed ids were the old vocabulary's.
_KEPT_SETTINGS = ("clean_up_tokenization_spaces", "padding_side", "truncation_side", "model_max_length")


@dataclass(frozen=True)
class Assembled:
    """A tokenizer and where its pieces come from."""

    tokenizer: Tokenizer
    old_ids: Int64  # [rows]: the old id of each new id; -1 where the piece is new
    tokens: tuple[str | None, ...]  # [rows]: the piece of each id; None where an id is not used


def assemble(old: Tokenizer, pieces: Pieces, *, keep_ids: bool, segments: bool) -> Assembled:
    """The new tokenizer. keep_ids: every old piece keeps its id. segments: the body is told a pair's segments."""
    old_ids: dict[str, int] = old.backend.get_vocab(with_added_tokens=True)
    if not pieces.same_kind:  # 'the' is a part of a word in one kind and a whole word in another
        old_ids = {token: old_ids[token] for token in pieces.special if token in old_ids}
    ids = _place(pieces, old_ids, keep_ids)
    rows = max(ids.values()) + 1
    tokens: list[str | None] = [None] * rows
    origin = np.full(rows, -1, np.int64)
    if keep_ids:
        origin[:] = np.where(np.arange(rows) <= max(old_ids.values()), np.arange(rows), -1)  # rows of unused ids too
    for token, place in ids.items():
        tokens[place] = token
        origin[place] = old_ids.get(token, -1)
    backend = tokenizers.Tokenizer.from_str(json.dumps(_content(old, pieces, ids), ensure_ascii=False))
    pad = old.backend.id_to_token(old.pad_id)
    tokenizer = Tokenizer(
        backend,
        max_length=old.max_length,
        pad_id=ids.get(pad or "", 0),
        keep_end=old.keep_end,
        config=_settings(old, ids, segments),
    )
    return Assembled(tokenizer, origin, tuple(tokens))


def _place(pieces: Pieces, old_ids: Mapping[str, int], keep_ids: bool) -> dict[str, int]:
    """Token -> id: what keeps its id first, then everything else in order into the free ids."""
    everything = [*pieces.special, *pieces.old, *pieces.new]
    fixed = [token for token in ([*pieces.special, *pieces.old] if keep_ids else pieces.special) if token in old_ids]
    ids = {token: old_ids[token] for token in fixed if keep_ids or old_ids[token] < len(everything)}
    taken = set(ids.values())
    free = (place for place in range(len(everything) + len(taken)) if place not in taken)
    for token in everything:
        if token not in ids:
            ids[token] = next(free)
    return ids


def _content(old: Tokenizer, pieces: Pieces, ids: Mapping[str, int]) -> dict[str, Any]:
    """tokenizer.json."""
    content: dict[str, Any] = json.loads(old.backend.to_str())
    kept = [token for token in content["added_tokens"] if token["content"] in ids]
    known = {token["content"] for token in kept}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    if pieces.unknown not in known:
        kept.append({"content": pieces.unknown, **flags})
    content["added_tokens"] = sorted(
        ({**token, "id": ids[token["content"]]} for token in kept), key=lambda token: token["id"]
    )
    content["truncation"] = content["padding"] = None
    content["normalizer"] = describe(pieces.cutting.normaliser)
    content["pre_tokenizer"] = describe(pieces.cutting.pre_tokeniser)
    content["post_processor"] = _renumbered(content["post_processor"], ids)
    unigram = not pieces.prefix
    if unigram:
        if content["model"]["type"] != "Unigram":
            spaces = {"replacement": METASPACE, "prepend_scheme": "always", "split": True}
            content["decoder"] = {"type": "Metaspace", **spaces}
        content["model"] = _unigram_model(content["model"], pieces, ids)
    else:
        content["decoder"] = {"type": "WordPiece", "prefix": pieces.prefix, "cleanup": True}
        longest = content["model"].get("max_input_chars_per_word", LONGEST_WORD)
        content["model"] = {
            "type": "WordPiece",
            "unk_token": pieces.unknown,
            "continuing_subword_prefix": pieces.prefix,
            # A syllable is three letters: a word shall not become unknown because it is spelt.
            "max_input_chars_per_word": 3 * longest if tears(pieces.cutting.normaliser) else longest,
            "vocab": dict(sorted(ids.items(), key=lambda item: item[1])),
        }
    return content


def _unigram_model(old: Mapping[str, Any], pieces: Pieces, ids: Mapping[str, int]) -> dict[str, Any]:
    """A piece's place in the list is its id, so that ids which nothing uses need a name that no text has."""
    rows = max(ids.values()) + 1
    names = {place: token for token, place in ids.items()}
    floor = min(pieces.scores.values(), default=-10.0)
    special = set(pieces.special)
    vocabulary = []
    for place in range(rows):
        token = names.get(place, f"<unused {place}>")
        score = 0.0 if token in special else pieces.scores.get(token, floor)
        vocabulary.append([token, score])
    fallback = bool(old.get("byte_fallback")) and "<0x00>" in ids
    return {"type": "Unigram", "unk_id": ids[pieces.unknown], "vocab": vocabulary, "byte_fallback": fallback}


def _renumbered(step: dict[str, Any] | None, ids: Mapping[str, int]) -> dict[str, Any] | None:
    """A post-processor with the new ids of the special tokens that it puts around a text."""
    if step is None:
        return None
    if step["type"] == "Sequence":
        return {**step, "processors": [_renumbered(inner, ids) for inner in step["processors"]]}
    if step["type"] == "TemplateProcessing":
        tokens = {
            name: {**entry, "ids": [ids[token] for token in entry["tokens"]]}
            for name, entry in step["special_tokens"].items()
        }
        return {**step, "special_tokens": tokens}
    ends: dict[str, Any] = {key: [step[key][0], ids[step[key][0]]] for key in ("sep", "cls") if key in step}
    return {**step, **ends}


def _settings(old: Tokenizer, ids: Mapping[str, int], segments: bool) -> dict[str, Any]:
    """tokenizer_config.json."""
    settings: dict[str, Any] = {key: old.config[key] for key in _KEPT_SETTINGS if key in old.config}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings |= {name: token for name, token in old.special_tokens().items() if token in ids}
    settings["model_input_names"] = [
        "input_ids",
        *["token_type_ids"] * (segments and not old.ignores_segments),
        "attention_mask",
    ]
    return settings


def renumbered_config(config: Mapping[str, object], old: Tokenizer, new: Assembled) -> dict[str, object]:
    """config.json with the new vocabulary's size and its tokens' new ids; a token that went takes its key along."""
    places = {int(place): row for row, place in enumerate(new.old_ids) if place >= 0}
    result: dict[str, object] = {}
    for key, value in config.items():
        if key.endswith("_token_id") and isinstance(value, int) and not isinstance(value, bool):
            if value in places:
                result[key] = places[value]
        else:
            result[key] = value
    if "pad_token_id" in config:
        result.setdefault("pad_token_id", new.tokenizer.pad_id)
    return result | {"vocab_size": len(new.old_ids)}
