"""Pairs of texts to ids and segments, beside what the backend and transformers do with them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from munjang.errors import InputError
from munjang.text.packing import Tokens, pack
from munjang.text.tokenizer import Tokenizer

WORDS = st.sampled_from(["한국어", "문장을", "fox", "don't", "3.14", "x", "날씨는", "embeddings", " ", "\n", "é", "👍"])
TEXTS = st.lists(WORDS, max_size=14).map(" ".join)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6)


def bert_like(backend: tokenizers.Tokenizer, begin: str = "[CLS]", end: str = "[SEP]") -> tokenizers.Tokenizer:
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(name, backend.token_to_id(name)) for name in (begin, end)],
    )
    return backend


def roberta_like(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return backend


def xlnet_like(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="$A [SEP] [CLS]:2", pair="$A [SEP] $B:1 [SEP]:1 [CLS]:2", special_tokens=ids
    )
    return backend


def turned_round(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A frame that is none: the second text stands first."""
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $B:1 [SEP]:1 $A [SEP]", special_tokens=ids
    )
    return backend


@pytest.fixture(scope="module")
def kinds(local_backends: Any) -> dict[str, tokenizers.Tokenizer]:
    return {
        "bert": bert_like(local_backends["wordpiece-lower"]()),
        "roberta": roberta_like(local_backends["byte-level"]()),
        "albert": bert_like(local_backends["metaspace-always"](), "<s>", "</s>"),
        "modernbert": bert_like(local_backends["byte-level-nfc"](), "<s>", "</s>"),
        "xlnet": xlnet_like(local_backends["wordpiece-lower"]()),
        "turned round": turned_round(local_backends["wordpiece-cased"]()),
    }


def expected(tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
    backend = copy.deepcopy(tokenizer.backend)
    backend.enable_truncation(tokenizer.max_length, direction="left" if tokenizer.keep_end else "right")
    encoded = backend.encode_batch(pairs)
    return [e.ids for e in encoded], [e.type_ids for e in encoded]


def rows(tokens: Tokens) -> tuple[list[list[int]], list[list[int]]]:
    cuts = np.cumsum(tokens.lengths)[:-1]
    kinds = np.zeros_like(tokens.ids) if tokens.segments is None else tokens.segments
    return [r.tolist() for r in np.split(tokens.ids, cuts)], [r.tolist() for r in np.split(kinds, cuts)]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "albert", "modernbert", "xlnet", "turned round"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=PAIRS, max_length=st.integers(4, 40), by_words=st.booleans())
def test_ids_and_segments_are_the_backends(
    kinds: dict[str, tokenizers.Tokenizer], kind: str, side: str, pairs: Any, max_length: int, by_words: bool
) -> None:
    tokenizer = Tokenizer(kinds[kind], max_length=max_length, keep_end=side == "left")
    assert (tokenizer.pair_frame is None) == (kind == "turned round")
    tokens = tokenizer.encode_pairs([a for a, _ in pairs], [b for _, b in pairs], segments=3, by_words=by_words)
    assert rows(tokens) == expected(tokenizer, pairs)
    whole = [len(e.ids) for e in kinds[kind].encode_batch(pairs)]
    assert (tokens.longest, tokens.truncated) == (max(whole), sum(n > max_length for n in whole))
    assert tokens.ids.dtype == tokens.lengths.dtype == np.int32
    assert (tokens.segments is None) or tokens.segments.dtype == np.int32


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.integers(0, 30), b=st.integers(0, 30), room=st.integers(0, 40))
def test_the_longer_gives_way_first(kinds: dict[str, tokenizers.Tokenizer], a: int, b: int, room: int) -> None:
    """By the definition: a token at a time from the longer; of an odd room the once longer keeps the odd token."""
    x, y = a, b
    while x + y > room:
        if x > y or (x == y and a <= b):
            x -= 1
        else:
            y -= 1
    tokenizer = Tokenizer(kinds["bert"], max_length=room + 3)
    first, second = (tokenizer.bodies([word])[0].tolist() for word in ("a", "b"))
    assert len(first) == len(second) == 1
    tokens = tokenizer.encode_pairs(["a " * a], ["b " * b])
    assert tokens.ids.tolist() == [*tokenizer.prefix, *first * x, *tokenizer.suffix, *second * y, *tokenizer.suffix]


@pytest.mark.parametrize(
    ("name", "segmented"),
    [("BertTokenizerFast", True), ("ElectraTokenizerFast", True), ("DistilBertTokenizerFast", False)],
)
def test_as_transformers_has_them(name: str, segmented: bool, minilm_path: Path, tmp_path: Path) -> None:
    import transformers

    theirs = getattr(transformers, name).from_pretrained(minilm_path)
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.from_folder(tmp_path)
    pairs = [
        ("비가 온다", "It is raining"),
        ("", ""),
        ("one two three four five six seven", "a b c d e f g h"),
        ("x", ""),
    ]
    for length in (5, 9, 12, 13, 64):
        ours.max_length = length
        found = theirs([a for a, _ in pairs], [b for _, b in pairs], truncation="longest_first", max_length=length)
        ids, kinds = rows(ours.encode_pairs([a for a, _ in pairs], [b for _, b in pairs]))
        assert ids == found["input_ids"]
        assert ("token_type_ids" in found) == segmented
        assert kinds == found.get("token_type_ids", [[0] * len(row) for row in ids])


def test_segments_are_clipped_to_what_the_model_has(kinds: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(kinds["bert"], max_length=32)
    two = tokenizer.encode_pairs(["a", "b"], ["c", "d e"])
    assert two.segments is not None
    assert set(two.segments.tolist()) == {0, 1}
    for have in (0, 1):
        assert tokenizer.encode_pairs(["a"], ["b"], segments=have).segments is None
    tokenizer.ignores_segments = True
    assert tokenizer.encode_pairs(["a"], ["b"]).segments is None


def test_more_segments_than_the_model_has(kinds: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(kinds["xlnet"], max_length=32)
    for have, highest in ((2, 1), (3, 2), (4, 2)):
        segments = tokenizer.encode_pairs(["fox"], ["x"], segments=have).segments
        assert segments is not None
        assert int(segments.max()) == highest


def test_what_the_tokenizer_says_about_segments(kinds: dict[str, tokenizers.Tokenizer], tmp_path: Path) -> None:
    def says(**config: object) -> bool:
        return Tokenizer(kinds["bert"], max_length=8, config=config).ignores_segments

    assert not says()
    assert not says(tokenizer_class="BertTokenizer")
    assert says(tokenizer_class="RobertaTokenizerFast")
    assert not says(tokenizer_class="RobertaTokenizer", model_input_names=["input_ids", "token_type_ids"])
    assert says(tokenizer_class="BertTokenizer", model_input_names=["input_ids", "attention_mask"])
    for segments in (True, False):
        Tokenizer(kinds["bert"], max_length=8).save(tmp_path, segments=segments)
        assert Tokenizer.from_folder(tmp_path).ignores_segments is not segments


def test_batches_carry_segments(kinds: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(kinds["bert"], max_length=32)
    a = ["fox " * n for n in (1, 7, 3, 0, 5)]
    b = ["한국어 문장을", "x", "", "날씨는 x", "don't"]
    tokens = tokenizer.encode_pairs(a, b)
    ids, segments = rows(tokens)
    seen = 0
    for batch in pack(tokens, budget=20):
        assert batch.segments is not None
        cuts = np.cumsum(batch.lengths)[:-1]
        for row, these, kind in zip(batch.rows, np.split(batch.ids, cuts), np.split(batch.segments, cuts), strict=True):
            assert (these.tolist(), kind.tolist()) == (ids[row], segments[row])
            seen += 1
    assert seen == 5
    assert all(batch.segments is None for batch in pack(tokenizer.encode(a), budget=20))


def test_none_and_what_is_refused(kinds: dict[str, tokenizers.Tokenizer]) -> None:
    for kind in ("bert", "turned round"):
        tokenizer = Tokenizer(kinds[kind], max_length=16)
        empty = tokenizer.encode_pairs([], [])
        assert (len(empty.ids), len(empty.lengths), empty.truncated, empty.longest) == (0, 0, 0, 0)
        with pytest.raises(InputError, match="got 2 first and 1 second"):
            tokenizer.encode_pairs(["a", "b"], ["c"])
        with pytest.raises(InputError, match="pair 1, second text is not valid Unicode"):
            tokenizer.encode_pairs(["a", "b"], ["c", "x\ud800y"])
        tokenizer.max_length = 3
        assert tokenizer.encode_pairs(["fox"], ["x"]).lengths.tolist() == [3]
    roberta = Tokenizer(kinds["roberta"], max_length=3)
    with pytest.raises(InputError, match="at least 4 for pairs"):
        roberta.encode_pairs(["a"], ["b"])
