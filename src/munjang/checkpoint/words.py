"""Word vectors in text form (GloVe, word2vec, fastText .vec, also gzipped) to a static model.

    word v1 v2 ... vn        one word a line; a first line 'count dimension' may stand before

The tokenizer is made to drop words that have no vector, as sentence-transformers' WordEmbeddings does: an average over
unknown words would pull every vector to the same place. The `tokenizers` library has no such model, but its BPE without
merges and without an unknown token keeps a word that is in the vocabulary and drops characters that are not. Every word
carries a mark before it, so that no word of the vocabulary is a single character and none is found inside another.
"""

from __future__ import annotations

import gzip
import unicodedata
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers

from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.static import static_body, without_special_tokens
from munjang.errors import DataError, InputError
from munjang.nn.pooling import Pooling

_MARK = "▁"


def static_from_words(path: str | Path, *, lower_case: bool = False, max_words: int | None = None) -> ModelParts:
    """A model that averages the vectors of the words it knows; of a word given twice the first counts."""
    path = Path(path)
    if max_words is not None and max_words < 1:
        raise InputError(f"max_words must be at least 1, got {max_words}")
    notes: list[str] = []
    words, table = _read_vectors(path, lower_case, max_words, notes)
    return ModelParts(
        body=static_body(torch.from_numpy(table)).eval(),
        tokenizer=without_special_tokens(_backend(words, lower_case)),
        pooling=Pooling(),
        notes=notes,
        source=str(path),
    )


def _backend(words: dict[str, int], lower_case: bool) -> tokenizers.Tokenizer:
    """Splits at white space and around punctuation; unknown words leave nothing."""
    vocabulary = {_MARK + word: index for word, index in words.items()}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    steps = [normalizers.NFC(), normalizers.Lowercase()] if lower_case else [normalizers.NFC()]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Metaspace(replacement=_MARK, prepend_scheme="always", split=False),
        ]
    )
    return backend


def _read_vectors(
    path: Path, lower_case: bool, limit: int | None, notes: list[str]
) -> tuple[dict[str, int], np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    words: dict[str, int] = {}
    values = array("f")
    width = 0
    repeated = 0
    for number, line in _lines(path):
        if number == 1 and _is_header(line):
            width = int(line.split()[1])
            continue
        width = width or len(line.split()) - 1
        word, vector = _parse(line, width, path, number)
        word = unicodedata.normalize("NFC", word.lower() if lower_case else word)
        if word in words:
            repeated += 1
            continue
        words[word] = len(words)
        values.frombytes(vector.tobytes())
        if limit is not None and len(words) >= limit:
            break
    if not words:
        raise DataError(f"{path} holds no word vectors: expected lines 'word v1 v2 ...'")
    if repeated:
        notes.append(f"{repeated} words occur again in {path.name}: the first vector of each is used")
    return words, np.frombuffer(values, dtype=np.float32).reshape(len(words), width).copy()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n ")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}); a binary .bin file must be converted to text") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _is_header(line: str) -> bool:
    """'count dimension'; a word with a single value would look so too, but nobody has vectors of one value."""
    parts = line.split()
    return len(parts) == 2 and all(part.isdigit() for part in parts)


def _parse(line: str, width: int, path: Path, number: int) -> tuple[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """A word, which may hold spaces itself, and its vector."""
    parts = line.replace("\t", " ").rsplit(" ", width)
    if len(parts) != width + 1 or width < 1:
        raise DataError(f"{path}, line {number}: expected a word and {width} values, got {len(line.split())} fields")
    try:
        vector = np.array(parts[1:], dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: expected a word and {width} numbers: {error}") from error
    if not np.isfinite(vector).all():
        raise DataError(f"{path}, line {number}: the vector of {parts[0]!r} has values that are not finite")
    return parts[0], vector
