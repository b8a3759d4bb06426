"""The first half of the bi-encoder's making: from two teachers to a student that places both languages like them.

student     the English teacher's body with a bilingual vocabulary; new rows by translations and the second teacher
second      the second teacher's vectors of all texts, and neighbours among plain sentences by them
passages    made questions, and passages that answer them
tuned       the English teacher, tuned on English NLI and STS; of passages and rare words it is to think as before
targets     its vectors of English sentences, of passages, and of texts with rare words
warm-up     hidden words, in single sentences and in translations (left out where it has no steps)
distil      the student learns to place sentences and passages of both languages where the teachers place them
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.ko_en_0_1.definitions import definition_texts
from models.ko_en_0_1.foreign_words import foreign_texts, whole_words
from models.ko_en_0_1.joined import JoinedTeacher
from models.ko_en_0_1.material import Material
from models.ko_en_0_1.passages import Questions, Unit, joined, make_questions
from models.ko_en_0_1.settings import BiPlan
from models.ko_en_0_1.silver import neighbours_of, pairs_of, silver_pairs
from models.ko_en_0_1.stage_training import Array, Workshop, described, load_array, save_arrays, task
from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.errors import ModelError
from munjang.progress import Progress
from munjang.recipes.distilling.options import VectorTeacher
from munjang.recipes.stages import Done, Made
from munjang.students import StudentPlan, VocabularyPlan, make_student
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import normalize

_MIDDLE = 4_000  # plain sentences whose mean is the middle of the bilingual model's vectors
PROMPT = "query: "  # what multilingual-e5 was trained with, where texts are compared with their like
_TAUGHT_NEIGHBOURS = 4  # of every plain sentence, by the second teacher
PASSAGE_NEIGHBOURS = 12
SHARES = (0.5, 0.35, 0.15)  # of the questions: over translated sentences, Korean ones, English ones


@dataclass(frozen=True)
class MakeOptions:
    """Where the data and the teachers are, and where the run lies."""

    data: Path
    folder: Path
    teacher: str | Path  # the English bi-encoder
    second: VectorTeacher  # knows both languages
    bilingual: str | Path | None = None  # multilingual-e5-small, joined to `second`: knows both languages better
    larger: str | Path | None = None  # a larger English bi-encoder: labels pairs, grades passages
    plan: BiPlan = field(default_factory=BiPlan)
    seed: int = 0
    scale: float = 1.0  # below 1: a small trial
    device: str | None = None
    progress: Progress = False


class Teaching:
    """The stages up to `distil`; each is a method that tells what it is made of."""

    def __init__(self, options: MakeOptions, plan: BiPlan, material: Material, shop: Workshop) -> None:
        self.options, self.plan, self.material, self.shop = options, plan, material, shop
        english = BiEncoder.load(options.teacher, device="cpu")
        self.teacher_width, self.teacher_print = english.dimension, english.fingerprint
        self.second_teacher = _joined(options, material, plan)
        frames = [*self._translations[0], *material.nli["en"].texts()]
        words = whole_words(english.tokenizer)
        if not words:
            raise ModelError(
                f"expected an English teacher whose vocabulary has whole words, got none in {options.teacher}: give "
                "the folder of all-MiniLM-L6-v2"
            )
        self.rare = [
            *foreign_texts(frames, words, count=plan.foreign, seed=options.seed),
            *definition_texts(material.dictionary, count=plan.definitions, seed=options.seed),
        ]
        self.hashes: Mapping[str, object] = {
            "translations": data_hash(material.translations),
            "plain": hash_texts(material.plain),
            "nli": [data_hash(one) for one in material.nli.values()],
            "sts": data_hash(material.graded()),
            "questions": data_hash(material.questions),
        }

    def of(self, *names: str) -> dict[str, object]:
        """The hashes of some data, for a stage's key."""
        return {name: self.hashes[name] for name in names}

    # --- student, second teacher, passages ---------------------------------------------------------------------------

    def student(self) -> Done:
        plan, options = self.plan, self.options
        vocabulary = VocabularyPlan(plan.vocabulary, old_share=plan.old_share, embeddings="guide", hangul=plan.hangul)
        texts = self.texts()

        def make(folder: Path) -> Made:
            return self.save_student(options.teacher, vocabulary, texts, folder)

        inputs = {"teacher": self.teacher_print, "guide": self.second_teacher.fingerprint, "seed": options.seed}
        inputs |= {"vocabulary": asdict(vocabulary), "texts": hash_texts(texts)}
        return self.shop.stages.run("student", inputs, make)

    def texts(self) -> list[str]:
        """What a bilingual vocabulary is learnt from, in both languages."""
        english, korean = self._translations
        meanings = self.material.dictionary.texts()  # what they say of medicine decides which English pieces stay
        return [*english, *korean, *self.material.plain, *self.material.nli["en"].texts(), *meanings]

    def save_student(self, model: str | Path, vocabulary: VocabularyPlan, texts: Sequence[str], folder: Path) -> Made:
        """An English model with another vocabulary, learnt from texts, as the only output of a stage."""
        options = self.options
        made = make_student(
            BiEncoder.load(model, device=options.device),
            StudentPlan(vocabulary=vocabulary),
            texts=texts,
            translations=self._translations,
            guide=self.second_teacher,
            seed=options.seed,
            progress=options.progress,
        )
        BiEncoder(made.parts, device="cpu").save(folder / "model")
        return Made(["model"], {"report": made.report})

    def second(self) -> Done:
        material, plan, seed = self.material, self.plan, self.options.seed

        def make(folder: Path) -> Made:
            english, korean = material.translations.columns.values()
            both = normalize(each(english, self._second) + each(korean, self._second))
            plain = self._second(material.plain)
            near = neighbours_of(plain, _TAUGHT_NEIGHBOURS, device=self._device)
            pairs = silver_pairs(near, random_share=plan.random_pairs, seed=seed)
            scores = np.clip(np.einsum("nd,nd->n", plain[pairs[:, 0]], plain[pairs[:, 1]]), 0, 1)
            half = {"translations": both.astype(np.float16), "plain": plain.astype(np.float16)}
            names = save_arrays(folder, **half, pairs=pairs, scores=scores.astype(np.float32))
            return Made(names, {"translations": len(both), "plain": len(plain), "pairs": len(pairs)})

        inputs = self.of("translations", "plain") | {"second": self.second_teacher.fingerprint, "seed": seed}
        return self.shop.stages.run("second", {**inputs, "random": plan.random_pairs}, make)

    def passages(self, second: Done) -> Done:
        plan, material, seed = self.plan, self.material, self.options.seed

        def make(folder: Path) -> Made:
            found = []
            vectors = self._unit_vectors(second)
            for units, near, share in zip(material.units(), vectors, SHARES, strict=True):
                places = neighbours_of(near, min(PASSAGE_NEIGHBOURS, len(units) - 1), device=self._device)
                found.append(make_questions(units, places, count=round(share * plan.passages), seed=seed))
            rest, held = joined(found).split(plan.held_questions, seed=seed)
            for name, some in (("passages", rest), ("held", held)):
                text = json.dumps(asdict(some), ensure_ascii=False)
                (folder / f"{name}.json").write_text(text, encoding="utf-8")
            counts = {"questions": len(rest.queries), "passages": len(rest.passages), "held": len(held.queries)}
            return Made(["passages.json", "held.json"], counts)

        inputs = self.of("translations", "plain", "nli") | {"second": second.digest, "seed": seed}
        inputs |= {"count": plan.passages, "held": plan.held_questions, "shares": SHARES}
        return self.shop.stages.run("passages", inputs, make)

    def _unit_vectors(self, second: Done) -> list[Array]:
        """The second teacher's vectors of the units, in their order; most are there already."""
        translated, plain, others = self.material.units()
        pairs = {pair: row for row, pair in reversed([*enumerate(zip(*self._translations, strict=True))])}
        rows = {text: row for row, text in enumerate(self.material.plain)}
        return [
            load_array(second, "translations")[[pairs[_pair(unit)] for unit in translated]].astype(np.float32),
            load_array(second, "plain")[[rows[unit.versions[0]] for unit in plain]].astype(np.float32),
            self._second([unit.versions[0] for unit in others]),
        ]

    # --- the English teacher -----------------------------------------------------------------------------------------

    def tuned(self, passages: Done) -> Done:
        plan, material, shop, parts = self.plan, self.material, self.shop, self.plan.tuned_parts

        def begin() -> BiEncoder:
            return BiEncoder.load(self.options.teacher, device=shop.device, max_length=plan.max_length)

        def tasks() -> list[Task]:
            texts = [*(english for english, _ in read_passages(passages).twins()), *self.rare]
            kept = Examples("kept", "taught", {"text": texts}, begin().encode(texts, normalize=True))
            return [
                task(material.triplets("en", shop.seed), objectives.Ranking(), parts["nli"]),
                task(material.scored("stsb"), objectives.CoSent(), parts["sts"]),
                task(kept, self.long_objective(), parts["kept"]),
            ]

        inputs = self.of("nli", "sts") | {"teacher": self.teacher_print, "passages": passages.digest}
        inputs |= {"rare": hash_texts(self.rare)}
        inputs |= {"parts": described(parts), "length": plan.max_length, "losses": [plan.cosine, plan.relational]}
        english = replace(shop, selection=shop.selection[-1:])  # it reads no Korean
        return english.trained("tuned", begin, tasks, schedule=plan.tuned, inputs=inputs)

    def targets(self, tuned: Done, passages: Done) -> Done:
        def make(folder: Path) -> Made:
            teacher = self.shop.bi(tuned, self.plan.max_length)
            long = [english for english, _ in read_passages(passages).twins()]
            found = {
                name: each(texts, lambda some: teacher.encode(some, normalize=True)).astype(np.float16)
                for name, texts in (
                    ("translations", self._translations[0]),
                    ("long", long),
                    ("rare", self.rare),
                )
            }
            return Made(save_arrays(folder, **found), {name: len(vectors) for name, vectors in found.items()})

        inputs = self.of("translations") | {"tuned": tuned.digest, "passages": passages.digest}
        inputs |= {"rare": hash_texts(self.rare)}
        return self.shop.stages.run("targets", {**inputs, "length": self.plan.max_length}, make)

    # --- the student learns ------------------------------------------------------------------------------------------

    def warm_up(self, student: Done) -> Done:
        plan, material, parts = self.plan, self.material, self.plan.warm_up_parts

        def tasks() -> list[Task]:
            english, korean = self._translations
            both = Examples("translations", "plain", {"text": english, "translation": korean})
            plain = Examples("plain", "plain", {"text": material.plain})
            return [
                task(plain, objectives.MaskedWords(), parts["plain"]),
                task(both, objectives.MaskedWords(), parts["translations"]),
            ]

        inputs = self.of("translations", "plain") | {"student": student.digest}
        inputs |= {"parts": described(parts), "length": plan.train_length}
        return self.shop.trained(
            "warm-up",
            lambda: self.shop.bi(student, plan.train_length),
            tasks,
            schedule=plan.warm_up,
            inputs=inputs,
            select=False,
        )

    def distil(self, begun: Done, taught: Taught) -> Done:
        plan, material, parts = self.plan, self.material, self.plan.distil_parts
        second = taught.second

        def tasks() -> list[Task]:
            plain = Examples("plain", "taught", {"text": material.plain}, load_array(second, "plain"))
            scores = load_array(second, "scores")
            near = pairs_of(material.plain, load_array(second, "pairs"), scores, name="neighbours")
            relational = objectives.Distil([self.by_second(1.0)])
            return [
                task(self.taught(taught), self.objective(), parts["translations"]),
                task(self.long(taught), self.long_objective(), parts["long"]),
                task(self.words(taught), self.long_objective(), parts["words"]),
                task(plain, relational, parts["plain"]),
                task(near, objectives.CoSent(), parts["neighbours"]),
            ]

        inputs = {"student": begun.digest, **taught.digests, "parts": described(parts), "losses": self.losses}
        return self.shop.trained(
            "distil",
            lambda: self.shop.bi(begun, plan.max_length),
            tasks,
            schedule=plan.distil,
            inputs=inputs | {"length": plan.max_length},
        )

    @property
    def losses(self) -> list[float]:
        plan = self.plan
        return [plan.cosine, plan.contrastive, plan.relational, plan.second_relational]

    def taught(self, taught: Taught) -> Examples:
        """Translations with both teachers' vectors."""
        english, korean = self._translations
        vectors = [load_array(one, "translations") for one in (taught.targets, taught.second)]
        return Examples(
            "translations", "taught", {"text": english, "translation": korean}, np.concatenate(vectors, axis=1)
        )

    def objective(self, width: int | None = None) -> objectives.Distil:
        """For translations: the first teacher's vectors, then the second's. width: of another first teacher."""
        plan = self.plan
        first = objectives.Teaching(
            width or self.teacher_width,
            mse=0,
            cosine=plan.cosine,
            contrastive=plan.contrastive,
            relational=plan.relational,
        )
        return objectives.Distil([first, self.by_second(plan.second_relational)])

    def long(self, taught: Taught) -> Examples:
        """Passages in both languages with the English teacher's vectors."""
        english, korean = (list(side) for side in zip(*read_passages(taught.passages).twins(), strict=True))
        vectors = load_array(taught.targets, "long")
        return Examples("long", "taught", {"text": english, "translation": korean}, vectors)

    def words(self, taught: Taught) -> Examples:
        """Texts with words that nothing else has, and the English teacher's vectors."""
        return Examples("words", "taught", {"text": self.rare}, load_array(taught.targets, "rare"))

    def long_objective(self) -> objectives.Distil:
        plan = self.plan
        return objectives.Distil(
            [objectives.Teaching(self.teacher_width, mse=0, cosine=plan.cosine, relational=plan.relational)]
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _translations(self) -> tuple[list[str], list[str]]:
        english, korean = self.material.translations.columns.values()
        return english, korean

    @property
    def _device(self) -> str:
        return str(getattr(self.second_teacher, "device", None) or self.options.device or "cpu")

    def by_second(self, weight: float) -> objectives.Teaching:
        return objectives.Teaching(self.second_teacher.dimension, mse=0, relational=weight)

    def _second(self, texts: Sequence[str]) -> Array:  # float32 [n, width], of length 1
        return normalize(np.asarray(self.second_teacher.encode(list(texts)), np.float32))


def _joined(options: MakeOptions, material: Material, plan: BiPlan) -> VectorTeacher:
    """The second teacher; with a bilingual model beside it where one was given."""
    if options.bilingual is None:
        return options.second
    model = BiEncoder.load(options.bilingual, device=options.device, max_length=plan.train_length)
    some = material.plain[:: max(1, len(material.plain) // _MIDDLE)]
    return JoinedTeacher(options.second, model, some, share=plan.bilingual_share, prompt=PROMPT)


@dataclass(frozen=True)
class Taught:
    """The stages that say what the student is taught."""

    second: Done
    targets: Done
    passages: Done

    @property
    def digests(self) -> dict[str, object]:
        return {one.name: one.digest for one in (self.second, self.targets, self.passages)}


def read_passages(done: Done, name: str = "passages") -> Questions:
    """The questions and passages of a run; 'held': those that nothing is trained on."""
    return Questions(**json.loads((done.folder / f"{name}.json").read_text(encoding="utf-8")))


def question_pairs(questions: Questions) -> Examples:
    """Questions with the passages that answer them."""
    answers = [questions.passages[place] for place in questions.answers]
    return Examples("passages", "pairs", {"anchor": list(questions.queries), "positive": answers})


def _pair(unit: Unit) -> tuple[str, str]:
    first, second = unit.versions
    return first, second


def each(texts: Sequence[str], encode: Callable[[list[str]], Any]) -> Array:
    """Vectors of texts, every different one encoded once."""
    unique = list(dict.fromkeys(texts))
    place = {text: row for row, text in enumerate(unique)}
    vectors: Array = np.asarray(encode(unique), np.float32)
    return vectors[[place[text] for text in texts]]
