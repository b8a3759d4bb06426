"""`munjang-ko-en`, from public data and two teachers to the model in the package: one call, stage after stage.

    tuned       the English teacher, tuned on English NLI and STS
    student     its body with a bilingual vocabulary; the rows of new pieces by the second teacher, which knows Korean
    targets     the teachers' vectors of all texts
    warm-up     hidden words, in single sentences and in translations
    distil      the student learns to place both languages where the teachers place them
    passages    made questions with passages that answer them
    multi       NLI, STS, questions, passages, translations together: a first whole model
    pairs       neighbours among all sentences, with that model's cosines
    labeller-*  cross-encoders: NLI, then these pairs, then STS
    labels      the pairs again, labelled by cross-encoders and bi-encoder together
    final       `multi` again from `distil`, with the labelled pairs
    finish      thresholds, int8 weights, making.json

Every stage is done once; the same call after a kill goes on, and changed settings repeat what depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.data.cells import NLI_LABELS
from munjang.data.kinds import Kind
from munjang.inputs import Progress
from munjang.recipes.bundled.material import Material, read_material
from munjang.recipes.bundled.passages import make_questions
from munjang.recipes.bundled.settings import BiPlan, scaled
from munjang.recipes.bundled.silver import (
    Labeller,
    known_pairs,
    neighbours_of,
    silver_pairs,
    without_known,
)
from munjang.recipes.bundled.stage_training import Workshop, described, save_arrays, task
from munjang.recipes.distilling.options import VectorTeacher
from munjang.recipes.stages import Done, Made, open_stages
from munjang.students import StudentPlan, VocabularyPlan, make_student
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import normalize, pairwise_similarity

Array = np.ndarray[Any, Any]
RECIPE = "bundled bi-encoder"
_NEIGHBOURS_TAUGHT = 4  # of every plain sentence, by the second teacher
_PASSAGE_NEIGHBOURS = 12
_NLI = tuple(NLI_LABELS)[:3]


@dataclass(frozen=True)
class MakeOptions:
    """Where the data and the teachers are, and where the run lies."""

    data: Path
    folder: Path
    teacher: str | Path  # the English bi-encoder
    second: VectorTeacher  # knows both languages
    plan: BiPlan = field(default_factory=BiPlan)
    seed: int = 0
    scale: float = 1.0  # below 1: a small trial
    device: str | None = None
    progress: Progress = False


@dataclass(frozen=True)
class BiMade:
    """What the making left: stages by name, and the finished model's folder."""

    folder: Path
    stages: Mapping[str, Done]
    facts: Mapping[str, Any]


def make_bi(options: MakeOptions) -> BiMade:
    """Make the bi-encoder, or go on with it."""
    plan = scaled(options.plan, options.scale)
    material = read_material(options.data, plan, seed=options.seed)
    with open_stages(options.folder, RECIPE, progress=options.progress) as stages:
        shop = Workshop(stages, options.device, options.seed, options.progress, material.selection)
        return _Making(options, plan, material, shop).run()


class _Making:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, options: MakeOptions, plan: BiPlan, material: Material, shop: Workshop) -> None:
        self.options, self.plan, self.material, self.shop = options, plan, material, shop
        self.hashes = {
            "translations": data_hash(material.translations),
            "plain": hash_texts(material.plain),
            "nli": [data_hash(one) for one in material.nli.values()],
            "sts": [data_hash(one) for one in material.sts.values()],
            "questions": data_hash(material.questions),
        }

    def run(self) -> BiMade:
        tuned = self.tuned()
        student = self.student()
        targets = self.targets(tuned)
        warm = self.warm_up(student) if self.plan.warm_up.steps else student
        distil = self.distil(warm, targets)
        passages = self.passages(distil)
        multi = self.together("multi", distil, targets, passages)
        pairs = self.pairs(multi)
        labellers = [self.labeller(number, distil, pairs) for number in range(1, self.plan.labellers + 1)]
        labels = self.labels(pairs, multi, labellers)
        final = self.together("final", distil, targets, passages, silver=(pairs, labels))
        finish = self.finish(final)
        done = {one.name: one for one in self.shop.stages.done}
        return BiMade(finish.folder / "model", done, finish.facts)

    # --- teachers and student ----------------------------------------------------------------------------------------

    def tuned(self) -> Done:
        plan, material, shop = self.plan, self.material, self.shop
        parts = plan.tuned_parts

        def begin() -> BiEncoder:
            return BiEncoder.load(self.options.teacher, device=shop.device, max_length=plan.train_length)

        def tasks() -> list[Task]:
            return [
                task(material.triplets("en", shop.seed), objectives.Ranking(), parts["nli"]),
                task(material.scored("stsb"), objectives.CoSent(), parts["sts"]),
            ]

        inputs = {"teacher": begin().fingerprint, "nli": self.hashes["nli"], "sts": self.hashes["sts"]}
        english = replace(shop, selection=shop.selection[-1:])  # it reads no Korean
        return english.trained("tuned", begin, tasks, schedule=plan.tuned, inputs=inputs | {"parts": described(parts)})

    def student(self) -> Done:
        plan, material, options = self.plan, self.material, self.options
        vocabulary = VocabularyPlan(plan.vocabulary, old_share=plan.old_share, embeddings="guide")
        english, korean = material.translations.columns.values()
        texts = [*english, *korean, *material.plain]

        def make(folder: Path) -> Made:
            begins = BiEncoder.load(options.teacher, device=options.device)
            made = make_student(
                begins,
                StudentPlan(vocabulary=vocabulary),
                texts=texts,
                translations=(english, korean),
                guide=options.second,
                seed=options.seed,
                progress=options.progress,
            )
            BiEncoder(made.parts, device="cpu").save(folder / "model")
            return Made(["model"], {"report": made.report})

        begins = BiEncoder.load(options.teacher, device="cpu").fingerprint
        inputs = {"teacher": begins, "guide": options.second.fingerprint, "vocabulary": asdict(vocabulary)}
        return self.shop.stages.run("student", {**inputs, "texts": hash_texts(texts), "seed": options.seed}, make)

    def targets(self, tuned: Done) -> Done:
        """The vectors that the student is taught, and neighbours of plain sentences with their cosines."""
        material, options = self.material, self.options

        def make(folder: Path) -> Made:
            english, korean = material.translations.columns.values()
            teacher = self.shop.bi(tuned, self.plan.train_length)
            first = _each(english, lambda texts: teacher.encode(texts, normalize=True))
            second = normalize(_each(english, self._second) + _each(korean, self._second))
            plain = self._second(material.plain)
            near = neighbours_of(plain, _NEIGHBOURS_TAUGHT, device=str(teacher.device))
            pairs = silver_pairs(near, random_share=self.plan.random_pairs, seed=options.seed)
            scores = np.clip(np.einsum("nd,nd->n", plain[pairs[:, 0]], plain[pairs[:, 1]]), 0, 1)
            names = save_arrays(
                folder,
                translations=np.concatenate([first, second], axis=1).astype(np.float16),
                plain=plain.astype(np.float16),
                pairs=pairs,
                scores=scores.astype(np.float32),
            )
            return Made(names, {"translations": len(first), "plain": len(plain), "pairs": len(pairs)})

        inputs: dict[str, object] = {name: self.hashes[name] for name in ("translations", "plain")}
        inputs |= {"tuned": tuned.digest, "second": options.second.fingerprint, "seed": options.seed}
        return self.shop.stages.run("targets", {**inputs, "random": self.plan.random_pairs}, make)

    def _second(self, texts: Sequence[str]) -> Array:  # float32 [n, width], of length 1
        return normalize(np.asarray(self.options.second.encode(list(texts)), np.float32))

    def warm_up(self, student: Done) -> Done:
        plan, material, parts = self.plan, self.material, self.plan.warm_up_parts

        def tasks() -> list[Task]:
            english, korean = material.translations.columns.values()
            both = Examples("translations", "plain", {"text": english, "translation": korean})
            plain = Examples("plain", "plain", {"text": material.plain})
            return [
                task(plain, objectives.MaskedWords(), parts["plain"]),
                task(both, objectives.MaskedWords(), parts["translations"]),
            ]

        inputs = {"student": student.digest, "parts": described(parts), "length": plan.train_length}
        inputs |= {name: self.hashes[name] for name in ("translations", "plain")}
        return self.shop.trained(
            "warm-up",
            lambda: self.shop.bi(student, plan.train_length),
            tasks,
            schedule=plan.warm_up,
            inputs=inputs,
            select=False,
        )

    def distil(self, begun: Done, targets: Done) -> Done:
        plan, material, parts = self.plan, self.material, self.plan.distil_parts

        def tasks() -> list[Task]:
            width = self.options.second.dimension
            plain = Examples("plain", "taught", {"text": material.plain}, _load(targets, "plain"))
            pairs, scores = _load(targets, "pairs"), _load(targets, "scores")
            near = pairs_of(material.plain, pairs, scores, name="neighbours")
            relational = objectives.Distil([objectives.Teaching(width, mse=0, relational=1.0)])
            return [
                task(self.taught(targets), self.teaching(), parts["translations"]),
                task(plain, relational, parts["plain"]),
                task(near, objectives.CoSent(), parts["neighbours"]),
            ]

        inputs: dict[str, object] = {"student": begun.digest, "targets": targets.digest, "parts": described(parts)}
        inputs |= {"losses": [plan.cosine, plan.contrastive, plan.relational, plan.second_relational]}
        return self.shop.trained(
            "distil", lambda: self.shop.bi(begun, plan.train_length), tasks, schedule=plan.distil, inputs=inputs
        )

    def taught(self, targets: Done) -> Examples:
        """Translations with both teachers' vectors."""
        english, korean = self.material.translations.columns.values()
        vectors = _load(targets, "translations")
        return Examples("translations", "taught", {"text": english, "translation": korean}, vectors)

    def teaching(self) -> objectives.Distil:
        plan, width = self.plan, self.options.second.dimension
        first = objectives.Teaching(
            BiEncoder.load(self.options.teacher, device="cpu").dimension,
            mse=0,
            cosine=plan.cosine,
            contrastive=plan.contrastive,
            relational=plan.relational,
        )
        return objectives.Distil([first, objectives.Teaching(width, mse=0, relational=plan.second_relational)])

    # --- passages ----------------------------------------------------------------------------------------------------

    def passages(self, distil: Done) -> Done:
        """Questions over passages, Korean and English; the last of them are held out, to calibrate."""
        plan, material, options = self.plan, self.material, self.options

        def make(folder: Path) -> Made:
            model = self.shop.bi(distil, plan.train_length)
            english, korean = (list(dict.fromkeys(side)) for side in material.translations.columns.values())
            forth = dict(zip(*material.translations.columns.values(), strict=True))
            back = {ko: en for en, ko in forth.items()}
            content: dict[str, list[Any]] = {"queries": [], "passages": [], "answers": []}
            for texts, other, share in ((korean + material.plain, back, 0.7), (english, forth, 0.3)):
                near = neighbours_of(model.encode(texts), _PASSAGE_NEIGHBOURS, device=str(model.device))
                made = make_questions(texts, near, other, count=round(share * plan.passages), seed=options.seed)
                content["answers"] += (made.answers + len(content["passages"])).tolist()
                content["queries"] += made.queries
                content["passages"] += made.passages
            (folder / "passages.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
            return Made(["passages.json"], {name: len(rows) for name, rows in content.items()})

        inputs = {name: self.hashes[name] for name in ("translations", "plain")}
        return self.shop.stages.run(
            "passages", {**inputs, "model": distil.digest, "count": plan.passages, "seed": options.seed}, make
        )

    # --- everything together -----------------------------------------------------------------------------------------

    def together(
        self, name: str, begun: Done, targets: Done, passages: Done, *, silver: tuple[Done, Done] | None = None
    ) -> Done:
        plan, material = self.plan, self.material
        parts = plan.final_parts if silver else plan.multi_parts

        def tasks() -> list[Task]:
            questions = read_passages(passages)
            found = [
                task(material.triplets("ko", self.shop.seed), objectives.Ranking(), parts["nli-ko"]),
                task(material.triplets("en", self.shop.seed), objectives.Ranking(), parts["nli-en"]),
                task(material.scored(), objectives.CoSent(), parts["sts"]),
                task(material.questions, objectives.Ranking(symmetric=True), parts["questions"]),
                task(questions.pairs(), objectives.Ranking(), parts["passages"]),
                task(self.taught(targets), self.teaching(), parts["translations"]),
            ]
            if silver:
                found.append(task(self.silver(*silver), objectives.CoSent(), parts["silver"]))
            return found

        inputs: dict[str, object] = {"begun": begun.digest, "targets": targets.digest, "passages": passages.digest}
        inputs |= {
            "parts": described(parts),
            "data": [self.hashes["nli"], self.hashes["sts"], self.hashes["questions"]],
        }
        inputs |= {"silver": [one.digest for one in silver or ()]}
        schedule = plan.final if silver else plan.multi
        length = plan.max_length  # the passages are long
        return self.shop.trained(name, lambda: self.shop.bi(begun, length), tasks, schedule=schedule, inputs=inputs)

    # --- silver pairs ------------------------------------------------------------------------------------------------

    def pairs(self, multi: Done) -> Done:
        plan, material = self.plan, self.material
        pool = material.pool()

        def make(folder: Path) -> Made:
            model = self.shop.bi(multi, plan.train_length)
            vectors = model.encode(pool, normalize=True)
            near = neighbours_of(vectors, plan.pool_neighbours, device=str(model.device))
            pairs = silver_pairs(near, random_share=plan.random_pairs, seed=self.shop.seed)
            known = known_pairs([*material.sts.values(), *material.selection])
            pairs = without_known(pool, pairs, known)
            cosines = np.asarray(pairwise_similarity(vectors[pairs[:, 0]], vectors[pairs[:, 1]]), np.float32)
            labels = Labeller(model, [], material.scored(), cosine_weight=1.0).scale(cosines)
            names = save_arrays(folder, pairs=pairs, cosines=cosines, labels=labels)
            return Made(names, {"sentences": len(pool), "pairs": len(pairs)})

        inputs = {"model": multi.digest, "pool": hash_texts(pool), "neighbours": plan.pool_neighbours}
        return self.shop.stages.run("pairs", {**inputs, "random": plan.random_pairs, "seed": self.shop.seed}, make)

    def silver(self, pairs: Done, labels: Done) -> Examples:
        return pairs_of(self.material.pool(), _load(pairs, "pairs"), _load(labels, "labels"), name="silver")

    def labeller(self, number: int, distil: Done, pairs: Done) -> Done:
        """One cross-encoder: NLI, then the bi-encoder's labels of many pairs, then those of people."""
        plan, material, name = self.plan, self.material, f"labeller-{number}"
        shop = replace(self.shop, seed=self.shop.seed + number)
        size, length = plan.labeller_batch, plan.train_length

        def begin() -> CrossEncoder:
            body = shop.bi(distil, length)
            return CrossEncoder.from_body(body, _NLI, seed=shop.seed, device=shop.device)

        def nli_tasks() -> list[Task]:
            return [Task(one, objectives.CrossEntropy(), batch_size=size) for one in material.nli.values()]

        nli = shop.trained(
            f"{name}-nli",
            begin,
            nli_tasks,
            schedule=plan.labeller_nli,
            inputs={"body": distil.digest, "nli": self.hashes["nli"], "batch": size},
            select=False,
        )
        silver = shop.trained(
            f"{name}-silver",
            lambda: shop.cross(nli.folder / "model", length, labels=1),
            lambda: [Task(self.silver(pairs, pairs), objectives.CrossScore(), batch_size=2 * size)],
            schedule=plan.labeller_silver,
            inputs={"model": nli.digest, "pairs": pairs.digest, "batch": 2 * size},
            select=False,
        )
        return shop.trained(
            f"{name}-sts",
            lambda: shop.cross(silver.folder / "model", length),
            lambda: [Task(material.scored(), objectives.CrossScore(), batch_size=size)],
            schedule=plan.labeller_sts,
            inputs={"model": silver.digest, "sts": self.hashes["sts"], "batch": size},
        )

    def labels(self, pairs: Done, multi: Done, labellers: Sequence[Done]) -> Done:
        plan, material = self.plan, self.material

        def make(folder: Path) -> Made:
            bi = self.shop.bi(multi, plan.train_length)
            crosses = [self.shop.cross(one.folder / "model", plan.train_length) for one in labellers]
            labeller = Labeller(bi, crosses, material.scored(), cosine_weight=plan.cosine_weight)
            silver = self.silver(pairs, pairs)
            labels = labeller.label(
                silver.columns["a"],
                silver.columns["b"],
                labeller.scale(_load(pairs, "cosines")),
                progress=self.shop.progress,
            )
            return Made(save_arrays(folder, labels=labels), {"agreement": labeller.agreement(material.selection)})

        inputs = {"pairs": pairs.digest, "bi": multi.digest, "crosses": [one.digest for one in labellers]}
        return self.shop.stages.run("labels", {**inputs, "cosine": plan.cosine_weight}, make)

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self, final: Done) -> Done:
        """The model at its full length, with its thresholds, as float32 and as int8."""
        from munjang.recipes.bundled.calibrating import calibrate_bi

        def make(folder: Path) -> Made:
            model = self.shop.bi(final, self.plan.max_length)
            model = model.with_thresholds(calibrate_bi(model, self.options.data))
            model.save(folder / "model", dtype="int8")
            model.save(folder / "float32")
            sets = self.material.selection
            before, after = model, BiEncoder.load(folder / "model", device=self.shop.device)
            scores = {
                kind: {one.name: value for one, value in zip(sets, _spearmans(which, sets), strict=True)}
                for kind, which in (("float32", before), ("int8", after))
            }
            return Made(["model", "float32"], {"selection": scores, "rows": dict(self.material.rows)})

        return self.shop.stages.run("finish", {"model": final.digest, "length": self.plan.max_length}, make)


def _spearmans(model: BiEncoder, sets: Sequence[Examples]) -> list[float]:
    from munjang.evaluation.sts import StsEvaluator

    return [StsEvaluator(one)(model).value for one in sets]


@dataclass(frozen=True)
class PassageSet:
    """What the stage `passages` left."""

    queries: list[str]
    passages: list[str]
    answers: list[int]

    def pairs(self, *, without: int = 0) -> Examples:
        """Questions with their passages; less the last ones, which are held out."""
        count = len(self.queries) - without
        columns = {
            "anchor": self.queries[:count],
            "positive": [self.passages[place] for place in self.answers[:count]],
        }
        return Examples("passages", "pairs", columns)


def read_passages(done: Done) -> PassageSet:
    """The passages of a run."""
    return PassageSet(**json.loads((done.folder / "passages.json").read_text(encoding="utf-8")))


def pairs_of(texts: Sequence[str], pairs: Array, scores: Array, *, name: str, kind: Kind = "scored") -> Examples:
    """Pairs of places and their scores as examples."""
    a, b = ([texts[place] for place in side] for side in pairs.T.tolist())
    return Examples(name, kind, {"a": a, "b": b}, np.asarray(scores, np.float32))


def _each(texts: Sequence[str], encode: Any) -> Array:
    """Vectors of texts, every different one encoded once."""
    unique = list(dict.fromkeys(texts))
    place = {text: row for row, text in enumerate(unique)}
    vectors: Array = np.asarray(encode(unique), np.float32)
    return vectors[[place[text] for text in texts]]


def _load(done: Done, name: str) -> Array:
    found: Array = np.load(done.folder / f"{name}.npy")
    return found
