"""Tokens are the backend's, cut exactly; what is saved loads again here and in transformers."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors

from munjang.errors import InputError
from munjang.text.fast_words import WordTokenizer
from munjang.text.packing import Tokens
from munjang.text.tokenizer import Tokenizer

Backends = dict[str, Callable[[], tokenizers.Tokenizer]]
TEXTS = ["", "A man is playing a flute.", "오늘 서울의 날씨는 맑다.", " Ünïcode  and  spaces \n", "word " * 300]
batches = st.lists(st.one_of(st.text(max_size=60), st.sampled_from(TEXTS)), max_size=8)


def rows(tokens: Tokens) -> list[list[int]]:
    parts = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1]) if len(tokens.lengths) else []
    return [part.tolist() for part in parts]


def truncating(tokenizer: Tokenizer, direction: str = "right") -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.enable_truncation(tokenizer.max_length, direction=direction)
    return backend


@settings(max_examples=60, deadline=None)
@given(batch=batches)
def test_cut_as_the_backend_cuts(any_tokenizer: Tokenizer, batch: list[str]) -> None:
    backend = truncating(any_tokenizer)
    tokens = any_tokenizer.encode(batch)
    full = [len(any_tokenizer.backend.encode(text).ids) for text in batch]
    assert rows(tokens) == [backend.encode(text).ids for text in batch]
    assert tokens.truncated == sum(length > any_tokenizer.max_length for length in full)
    assert tokens.longest == max(full, default=0)
    assert any_tokenizer.count(batch).tolist() == full
    assert tokens.ids.dtype == tokens.lengths.dtype == any_tokenizer.count(batch).dtype == np.int32


@pytest.mark.parametrize("length", [3, 4, 7, 302])
def test_every_max_length(minilm_path: Path, length: int) -> None:
    tokenizer = Tokenizer.from_folder(minilm_path, max_length=length)
    assert rows(tokenizer.encode(TEXTS)) == [truncating(tokenizer).encode(text).ids for text in TEXTS]


def test_the_end_is_kept_where_the_config_says_so(minilm: Tokenizer, tmp_path: Path) -> None:
    minilm.save(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"truncation_side": "left",', 1))
    tokenizer = Tokenizer.from_folder(tmp_path, max_length=6)
    assert rows(tokenizer.encode(TEXTS)) == [truncating(tokenizer, "left").encode(text).ids for text in TEXTS]
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.from_folder(tmp_path / "again")
    assert rows(again.encode(TEXTS)) == rows(tokenizer.encode(TEXTS))


def test_nothing(minilm: Tokenizer) -> None:
    tokens = minilm.encode([])
    assert (len(tokens.ids), len(tokens.lengths), tokens.truncated, tokens.longest) == (0, 0, 0, 0)
    assert tokens.ids.dtype == tokens.lengths.dtype == np.int32
    assert minilm.count([]).shape == (0,)
    assert rows(minilm.encode([""])) == [[101, 102]]


def test_what_it_knows_about_itself(minilm: Tokenizer) -> None:
    assert (minilm.prefix, minilm.suffix, minilm.pad_id, minilm.vocab_size) == ((101,), (102,), 0, 30522)
    assert (minilm.max_length, minilm.specials) == (256, 2)


def test_max_length_can_be_set(minilm_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(minilm_path)
    assert tokenizer.max_length == 512, "model_max_length of the folder, not the 128 in tokenizer.json"
    tokenizer.max_length = 5
    assert tokenizer.encode(TEXTS).lengths.max() == 5
    for wrong in (2, 0, -1, True, 3.5):
        with pytest.raises(InputError, match="at least 3"):
            tokenizer.max_length = wrong  # type: ignore[assignment]


def test_special_tokens_that_do_not_stand_around_the_text(local_backends: Backends) -> None:
    """A template that repeats the text: the backend then cuts, and the counts are still right."""
    backend = local_backends["wordpiece-lower"]()
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP] $A [SEP]", pair=None, special_tokens=ids
    )
    tokenizer = Tokenizer(backend, max_length=12)
    assert (tokenizer.prefix, tokenizer.suffix) == ((), ())
    expected = [backend.encode(text).ids for text in TEXTS]
    tokens = tokenizer.encode(TEXTS)
    assert tokenizer.count(TEXTS).tolist() == [len(row) for row in expected]
    assert tokens.longest == max(map(len, expected))
    assert tokens.truncated == sum(len(row) > 12 for row in expected)
    assert rows(tokens) == [truncating(tokenizer).encode(text).ids for text in TEXTS]


def test_no_special_tokens(local_backends: Backends) -> None:
    backend = local_backends["byte-level"]()
    backend.post_processor = None
    tokenizer = Tokenizer(backend, max_length=9)
    assert (tokenizer.prefix, tokenizer.suffix) == ((), ())
    assert rows(tokenizer.encode(TEXTS)) == [backend.encode(text).ids[:9] for text in TEXTS]


def test_a_backend_that_pads_is_left_as_it_was(local_backends: Backends) -> None:
    backend = local_backends["wordpiece-lower"]()
    backend.enable_padding(length=50)
    backend.enable_truncation(5)
    tokenizer = Tokenizer(backend, max_length=30)
    assert tokenizer.encode(["a b c d e f g h"]).lengths.tolist() == [10]
    assert backend.padding is not None
    assert backend.truncation is not None


@pytest.mark.parametrize("texts", [["fine", "half \ud83d pair"], ["half \udc4d"], ["a\nb", "c", "\ud800"]])
def test_lone_surrogates_are_named(any_tokenizer: Tokenizer, texts: list[str]) -> None:
    with pytest.raises(InputError, match=rf"text {len(texts) - 1} is not valid Unicode"):
        any_tokenizer.encode(texts)
    assert any_tokenizer.encode(["fine"]).truncated == 0


def test_lower_case_first(local_backends: Backends, tmp_path: Path) -> None:
    cased = local_backends["wordpiece-cased"]()
    plain = Tokenizer(cased, max_length=64)
    plain.save(tmp_path)
    tokenizer = Tokenizer.from_folder(tmp_path, lower_case=True)
    assert tokenizer.words is not None
    texts = ["The QUICK Brown", "ΣΑΣ [SEP] SENTENCE", "한국어 E-MAIL"]
    lowered = [text.lower().replace("[sep]", "[SEP]").replace("ς", "σ") for text in texts]
    assert rows(tokenizer.encode(texts)) == [cased.encode(text).ids for text in lowered]
    assert rows(plain.encode(texts)) != rows(tokenizer.encode(texts))


@pytest.mark.parametrize("lower_case", [False, True])
def test_same_ids_as_sentence_transformers(minilm_path: Path, lower_case: bool) -> None:
    module = pytest.importorskip("sentence_transformers.models")
    theirs = module.Transformer(str(minilm_path), max_seq_length=32, do_lower_case=lower_case)
    ours = Tokenizer.from_folder(minilm_path, max_length=32, lower_case=lower_case)
    for text, row in zip(TEXTS, rows(ours.encode(TEXTS)), strict=True):
        assert theirs.tokenize([text])["input_ids"][0].tolist() == row


def test_saved_and_loaded(any_tokenizer: Tokenizer, tmp_path: Path) -> None:
    any_tokenizer.save(tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    assert again.max_length == any_tokenizer.max_length
    assert again.pad_id == any_tokenizer.pad_id
    assert (again.prefix, again.suffix) == (any_tokenizer.prefix, any_tokenizer.suffix)
    assert rows(again.encode(TEXTS)) == rows(any_tokenizer.encode(TEXTS))


def test_transformers_reads_what_was_saved(any_tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    any_tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert theirs.model_max_length == any_tokenizer.max_length
    assert theirs.pad_token_id == any_tokenizer.pad_id
    assert theirs(TEXTS, truncation=True)["input_ids"] == rows(any_tokenizer.encode(TEXTS))


def test_save_over_its_own_folder(minilm: Tokenizer, tmp_path: Path) -> None:
    minilm.save(tmp_path)
    assert (tmp_path / "vocab.txt").is_file()
    again = Tokenizer.from_folder(tmp_path)
    again.max_length = 77
    again.save(tmp_path)
    assert Tokenizer.from_folder(tmp_path).max_length == 77


def test_threads_share_a_tokenizer(any_tokenizer: Tokenizer) -> None:
    parts = [[f"{number} {word} " * (number % 9) for number in range(60)] for word in ("the", "문장", "fox", "x\ty")]
    expected = [rows(any_tokenizer.encode(part)) for part in parts]
    results: dict[int, list[list[list[int]]]] = {}

    def work(number: int) -> None:
        results[number] = [rows(any_tokenizer.encode(parts[number])) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number] for number in range(len(parts))] == [[row] * 5 for row in expected]


@settings(max_examples=40, deadline=None)
@given(batch=batches, data=st.data())
def test_cached_texts_have_the_same_ids(any_tokenizer: Tokenizer, batch: list[str], data: st.DataObject) -> None:
    distinct = list(dict.fromkeys(batch))
    cached = any_tokenizer.with_cache(distinct)
    again = data.draw(st.lists(st.sampled_from(distinct), max_size=20)) if distinct else []
    assert rows(cached.encode(again)) == rows(any_tokenizer.encode(again))
    assert cached.encode(again).truncated == any_tokenizer.encode(again).truncated
    mixed = [*again, "다른 문장 other"]  # with a text that is not cached
    assert rows(cached.encode(mixed)) == rows(any_tokenizer.encode(mixed))


def test_a_cache_tokenizes_once_and_leaves_the_tokenizer_alone(
    minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = minilm.with_cache(["비가 온다", "rain", "snow falls"])
    calls: list[list[str]] = []
    original = WordTokenizer.encode
    monkeypatch.setattr(WordTokenizer, "encode", lambda self, texts: calls.append(list(texts)) or original(self, texts))
    texts = ["rain", "비가 온다", "rain"]
    assert rows(cached.encode(texts)) == rows(minilm.encode(texts))
    assert calls == [texts], "only the tokenizer without a cache had to tokenize"


def test_cached_texts_are_truncated_to_the_present_length(minilm_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(minilm_path, max_length=20)
    cached = tokenizer.with_cache(TEXTS)
    for length in (7, 12):
        tokenizer.max_length = cached.max_length = length
        assert rows(cached.encode(TEXTS)) == rows(tokenizer.encode(TEXTS))


def test_truncation_by_the_backend_follows_max_length(local_backends: Backends) -> None:
    backend = local_backends["wordpiece-lower"]()
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP] $A", pair=None, special_tokens=ids)
    tokenizer = Tokenizer(backend, max_length=12)
    for length in (12, 9, 12, 5):
        tokenizer.max_length = length
        assert rows(tokenizer.encode(TEXTS)) == [truncating(tokenizer).encode(text).ids for text in TEXTS]


def test_pickled_and_copied(any_tokenizer: Tokenizer) -> None:
    for other in (pickle.loads(pickle.dumps(any_tokenizer)), copy.deepcopy(any_tokenizer)):
        assert rows(other.encode(TEXTS)) == rows(any_tokenizer.encode(TEXTS))
        assert other.max_length == any_tokenizer.max_length
