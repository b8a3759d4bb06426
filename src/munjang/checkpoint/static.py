"""Static models: sentence-transformers' StaticEmbedding, model2vec, and word vectors in text form.

Tokenizers of word vectors drop words that have no vector, as WordEmbeddings of sentence-transformers does: an average
over unknown words would pull every vector to the same place. The `tokenizers` library has no such model, but its BPE
without merges and without an unknown token keeps a word of the vocabulary and drops characters that are not in it.
Every word is prefixed with a mark, so that no entry is a single character and none is found inside another word.
"""

from __future__ import annotations

import gzip
import json
import unicodedata
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers
from torch import Tensor

from munjang.checkpoint.parts import BiParts
from munjang.checkpoint.weights import load_weights, write_weights
from munjang.errors import DataError, InputError, ModelError
from munjang.files import list_contents, write_json
from munjang.nn.bodies import StaticEmbedding
from munjang.nn.pooling import Pooling
from munjang.text.tokenizer import Tokenizer, read_backend

UNLIMITED = 1 << 30  # max_length of a model that reads texts of any length
_MARK = "▁"
Vector = np.ndarray[Any, np.dtype[np.float32]]


def plain_tokenizer(backend: tokenizers.Tokenizer, max_length: int | None = None) -> Tokenizer:
    """Make a tokenizer without special tokens; it truncates only if the backend or `max_length` says so."""
    truncation = backend.truncation
    backend.no_truncation()
    backend.no_padding()
    backend.post_processor = None
    saved = UNLIMITED if truncation is None else int(truncation["max_length"])
    return Tokenizer(backend, max_length=max_length or saved)


# --- folders ---------------------------------------------------------------------------------------------------------


def read_static(folder: Path, *, max_length: int | None) -> tuple[StaticEmbedding, Tokenizer]:
    """Read the folder of a StaticEmbedding module or of a model2vec model."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{folder} has no tokenizer.json, which a static model needs; {list_contents(folder)}")
    tokenizer = plain_tokenizer(read_backend(path), max_length)
    table = _read_table(folder, tokenizer.vocab_size)
    if tokenizer.vocab_size > len(table):
        raise ModelError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the embedding only {len(table)} rows: "
            "they do not belong together"
        )
    return StaticEmbedding(table).eval(), tokenizer


def _read_table(folder: Path, tokens: int) -> Tensor:  # [vocabulary, dimension]
    """One row per token id; model2vec's mapping and weights per token are folded in."""
    weights = load_weights(folder)
    table = weights.get("embedding.weight", weights.get("embeddings"))
    if table is None:
        raise ModelError(
            f"{folder} should hold a table 'embedding.weight' or 'embeddings', got {', '.join(sorted(weights)[:5])}"
        )
    if table.dim() != 2:
        raise ModelError(f"{folder}: the table of word vectors must have two dimensions, got shape {list(table.shape)}")
    if "mapping" in weights:
        mapping = weights["mapping"].long()
        # A short mapping could repeat a long row any number of times: there must be one entry for each token.
        if mapping.shape != (tokens,) or (tokens and not 0 <= mapping.min() <= mapping.max() < len(table)):
            raise ModelError(
                f"{folder}: 'mapping' must have one of the {len(table)} rows for each of the {tokens} tokens, got "
                f"shape {list(mapping.shape)}: the files do not belong together"
            )
        table = table[mapping]
    if "weights" in weights:
        table = table * weights["weights"].to(table.dtype)[:, None]
    return table.float().contiguous()


def write_static(parts: BiParts, folder: Path, dtype: torch.dtype) -> None:
    """Write the folder of a StaticEmbedding module."""
    if parts.pooling.modes != ("mean",):
        raise ModelError(f"a static model is saved with mean pooling only, got {'+'.join(parts.pooling.modes)}")
    compact = dtype == torch.int8
    folder.mkdir()
    write_weights(folder, parts.body.state_dict(), dtype)
    parts.tokenizer.save(folder, compact=compact)
    limit = parts.tokenizer.max_length
    if limit < UNLIMITED:
        # sentence-transformers has no max_seq_length here, but truncates as tokenizer.json says.
        path = folder / "tokenizer.json"
        truncation = {"direction": "Right", "max_length": limit, "strategy": "LongestFirst", "stride": 0}
        content = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, content | {"truncation": truncation}, compact=compact)


# --- word vectors in text form ---------------------------------------------------------------------------------------


def read_word_vectors(path: str | Path, *, lower_case: bool = False, max_words: int | None = None) -> BiParts:
    """Make a model that averages word vectors from a GloVe, word2vec or fastText .vec file, also gzipped.

    Args:
        path: Lines `word v1 v2 ... vn`; a first line `count dimension` is skipped.
        lower_case: Lower-case words and texts.
        max_words: Read only this many words.

    Returns:
        A static model. If a word occurs twice, its first vector counts, and a note says so.

    Raises:
        DataError: The file cannot be read, or a line is malformed.
        InputError: `max_words` is below 1.
    """
    path = Path(path)
    if max_words is not None and max_words < 1:
        raise InputError(f"max_words must be at least 1, got {max_words}")
    words: dict[str, int] = {}
    values = array("f")
    repeated = 0
    for word, vector in _word_vectors(path):
        word = unicodedata.normalize("NFC", word.lower() if lower_case else word)
        if word in words:
            repeated += 1
            continue
        words[word] = len(words)
        values.frombytes(vector.tobytes())
        if len(words) == max_words:
            break
    if not words:
        raise DataError(f"{path} holds no word vectors: expected lines 'word v1 v2 ...'")
    note = f"{repeated} words occur again in {path.name}: the first vector of each is used"
    return BiParts(
        body=StaticEmbedding(torch.frombuffer(values, dtype=torch.float32).reshape(len(words), -1).clone()).eval(),
        tokenizer=plain_tokenizer(_word_backend(words, lower_case)),
        pooling=Pooling(),
        notes=[note] if repeated else [],
        source=str(path),
    )


def _word_backend(words: dict[str, int], lower_case: bool) -> tokenizers.Tokenizer:
    """Split at white space and around punctuation; drop unknown words."""
    backend = tokenizers.Tokenizer(models.BPE({_MARK + word: i for word, i in words.items()}, [], ignore_merges=True))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), *[normalizers.Lowercase()] * lower_case])
    mark = pre_tokenizers.Metaspace(replacement=_MARK, prepend_scheme="always", split=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), mark])
    return backend


def _word_vectors(path: Path) -> Iterator[tuple[str, Vector]]:
    """Words, which may contain spaces, and their vectors."""
    width = 0
    for number, line in _lines(path):
        fields = line.split()
        if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
            width = int(fields[1])  # 'count dimension', as no word has a vector of one value
            continue
        width = width or len(fields) - 1
        parts = line.replace("\t", " ").rsplit(" ", width)
        if len(parts) != width + 1 or width < 1:
            raise DataError(f"{path}, line {number}: expected a word and {width} values, got {len(fields)} fields")
        try:
            vector = np.array(parts[1:], dtype=np.float32)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: expected a word and {width} numbers: {error}") from error
        if not np.isfinite(vector).all():
            raise DataError(f"{path}, line {number}: the vector of {parts[0]!r} has values that are not finite")
        yield parts[0], vector


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
