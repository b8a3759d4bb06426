"""Translated sentences and passages -> lists of passages with graded relevance, by the larger English model.

The made questions have their words out of the passage that answers them, and every other passage counts as equally
wrong. The larger English bi-encoder learned from a great many people's questions and answers: its cosines say how near
a passage comes also where it uses other words. They are taken in English, where it can read, and hold for the same
query and the same passages in Korean; so they are learned in both languages and across them.

A query is a translated sentence, whole or as a made question. No sentence of a held-out passage asks, and no held-out
passage is a candidate: the reranker's probabilities are found with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.ko_en_0_1.material import Material
from models.ko_en_0_1.passages import Questions, Unit, question_of
from models.ko_en_0_1.stage_training import Workshop, load_array, save_arrays
from models.ko_en_0_1.teaching import read_passages
from munjang.data import Examples
from munjang.data.overlaps import normalise
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.recipes.stages import Done, Made
from munjang.training.run import data_hash
from munjang.vectors import pairwise_similarity, top_k

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

_NEAREST, _NEAR, _RANDOM = 1, 4, 3  # candidates of a list: the nearest, some of the next ones, any
_LOOKED_AT = 40  # the next ones
_CANDIDATES = _NEAREST + _NEAR + _RANDOM
_LEAST_WORDS = 4  # of a sentence that asks, in either language
_MADE = 0.5  # how often a query is a made question, else the whole sentence
_SAME_LANGUAGE = 0.7  # how often query and passages are in one language


@dataclass(frozen=True)
class Grading:
    """What the stage `relevance` is made of."""

    larger: str | Path  # the English bi-encoder that grades
    count: int  # lists
    material: Material
    passages: Done  # the stage that made questions and passages
    shop: Workshop

    def run(self) -> Done:
        """Queries in both languages; int64 and float32 [lists, 8]: places among the twins, and cosines of them."""
        seed, progress = self.shop.seed, self.shop.progress

        def make(folder: Path) -> Made:
            generator = np.random.default_rng(seed)
            held = read_passages(self.passages, "held").passages
            english, korean = queries_of(self.material.units()[0], held, count=self.count, generator=generator)
            twins = [first for first, _ in read_passages(self.passages).twins()]
            model = BiEncoder.load(self.larger, device=self.shop.device)
            places, scores = graded(model, english, twins, generator=generator, progress=progress)
            languages = languages_of(len(english), generator)
            text = json.dumps({"en": english, "ko": korean}, ensure_ascii=False)
            (folder / "queries.json").write_text(text, encoding="utf-8")
            names = save_arrays(folder, passages=places, scores=scores, languages=languages)
            facts = {"best": float(scores.max(axis=1).mean()), "mean": float(scores.mean())}
            return Made(["queries.json", *names], {"lists": len(english), "passages": len(twins), **facts})

        inputs = {
            "larger": BiEncoder.load(self.larger, device="cpu").fingerprint,
            "passages": self.passages.digest,
            "translations": data_hash(self.material.translations),
            "count": self.count,
            "candidates": [_NEAREST, _NEAR, _RANDOM, _LOOKED_AT],
            "queries": [_LEAST_WORDS, _MADE],
            "same language": _SAME_LANGUAGE,
            "seed": seed,
        }
        return self.shop.stages.run("relevance", inputs, make)


def graded_lists(done: Done, questions: Questions, *, temperature: float) -> Examples:
    """The lists of the stage, each query and each list of passages in one language.

    targets [n, 8]: cosines by the temperature, whose softmax is what a listwise objective wants of the scores.
    """
    queries = json.loads((done.folder / "queries.json").read_text(encoding="utf-8"))
    places, languages = load_array(done, "passages"), load_array(done, "languages")
    twins, asked = questions.twins(), (queries["en"], queries["ko"])
    columns = {"anchor": [asked[language][row] for row, language in enumerate(languages[:, 0].tolist())]}
    for number, column in enumerate(places.T.tolist()):
        role = "positive" if number == 0 else "negative" if number == 1 else f"negative_{number}"
        told = zip(column, languages[:, 1].tolist(), strict=True)
        columns[role] = [twins[place][language] for place, language in told]
    targets = (load_array(done, "scores") / temperature).astype(np.float32)
    return Examples("relevance", "pairs", columns, targets)


def queries_of(
    units: Sequence[Unit], held: Sequence[str], *, count: int, generator: np.random.Generator
) -> tuple[list[str], list[str]]:
    """About `count` queries in English, and the same in Korean, none out of a held passage."""
    standing = _Standing(held)
    english: list[str] = []
    korean: list[str] = []
    for place in generator.permutation(len(units)).tolist():
        if len(english) >= count:
            break
        sentences = [text.strip() for text in units[place].versions]
        if any(len(text.split()) < _LEAST_WORDS or text in standing for text in sentences):
            continue
        if generator.random() < _MADE:
            # Alone: of a sentence in two languages `question_of` may take the other one, and the model reads English.
            sentences = [question_of(Unit((text,)), 0, generator) for text in sentences]
        english.append(sentences[0])
        korean.append(sentences[1])
    return english, korean


class _Standing:
    """Whether a sentence of at least `_LEAST_WORDS` words stands in a text; most are told by how they begin."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.every = "\n".join(texts)
        self.begins: set[tuple[str, ...]] = set()
        for text in texts:
            words = text.split()
            self.begins.update(zip(*(words[first:] for first in range(_LEAST_WORDS)), strict=False))

    def __contains__(self, sentence: str) -> bool:
        return tuple(sentence.split()[:_LEAST_WORDS]) in self.begins and sentence in self.every


def graded(
    model: BiEncoder,
    queries: Sequence[str],
    passages: Sequence[str],
    *,
    generator: np.random.Generator,
    progress: Progress = False,
) -> tuple[Int64, Float32]:
    """Candidates of every query in no order, each once: places [n, 8], and the model's cosines [n, 8]."""
    if len(passages) <= _CANDIDATES or not queries:
        raise InputError(
            f"expected more than {_CANDIDATES} passages in two languages and at least one sentence in two languages "
            f"that asks for them, got {len(passages):,} and {len(queries):,}: give more translations or make more "
            "questions (a trial: a larger scale)"
        )
    asked = model.encode_query(queries, normalize=True, progress=progress)  # float32 [n, d]
    told = model.encode_document(passages, normalize=True, progress=progress)  # float32 [passages, d]
    most = min(_NEAREST + _LOOKED_AT + 1, len(passages))  # the query itself may be among them
    found = top_k(asked, told, most, memory_mb=2048, device=str(model.device)).indices
    same = {normalise(text): place for place, text in enumerate(passages)}
    itself = [same.get(normalise(query), -1) for query in queries]
    rows = [_candidates(near, one, len(passages), generator) for near, one in zip(found, itself, strict=True)]
    places = np.stack(rows)
    cosines = [pairwise_similarity(asked, told[column]) for column in places.T]
    return places, np.stack(cosines, axis=1).astype(np.float32)


def _candidates(found: Int64, itself: int, count: int, generator: np.random.Generator) -> Int64:
    """8 different passages: of the nearest, found for one query, and of all; never the one that is the query itself."""
    near = found[found != itself]
    next_ones = generator.permutation(near[_NEAREST : _NEAREST + _LOOKED_AT])[:_NEAR]
    chosen = np.concatenate([near[:_NEAREST], next_ones])
    drawn = generator.choice(count, _CANDIDATES + 1, replace=False)  # so many that enough are left
    drawn = drawn[~np.isin(drawn, chosen) & (drawn != itself)][:_RANDOM]
    return generator.permutation(np.concatenate([chosen, drawn]))


def languages_of(count: int, generator: np.random.Generator) -> npt.NDArray[np.int8]:
    """[n, 2]: of every list the language of the query and that of all its passages; 0 English, 1 Korean."""
    query = generator.integers(2, size=count)
    other = generator.random(count) >= _SAME_LANGUAGE
    return np.stack([query, query ^ other], axis=1).astype(np.int8)
