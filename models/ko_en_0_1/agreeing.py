"""A finished reranker once more: what it says of pairs, put right by models that err elsewhere, and learned again.

People's scores are few, and a cross-encoder of the package's size that read them many times over knows them by heart.
Cosines err elsewhere: those of the finished bi-encoder, and those of larger models as they were given, which were not
taught these scores here. All together agree better with people than the reranker alone, which the stage `voices` tells.
Cross-encoders of the larger models learn that, and know more than their cosines (`readers`).

    begun     the reranker as it was before its scores became probabilities
    pairs     neighbours, by the bi-encoder, of the sentences that people scored and of those with a translation
    voices    their labels, by all together (`voices`): in English where a pair is there in both languages
    passages  questions and passages, made as for the bi-encoder, and what the reranker says of them
    bilingual-*, larger-*   readers: what the voices say, and one half of people's scores each
    labels    the pairs again, by voices and readers
    people    people's scores, half way to what readers say of them that did not learn them
    agreed    likeness is learned anew; what it says of passages is to stay
    agreed-2 ..., mean   the same by other seeds, and the mean of their weights
    merged    part of the way from the weights before to these (`merging`)
    finish    probabilities, the threshold of 'no good answer', int8 weights

Enters: both finished models, the public sets, larger models. Leaves: another reranker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.ko_en.everyday import everyday_lists, read_questions
from models.ko_en_0_1.calibrating import uncalibrated
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.material import Material, read_material
from models.ko_en_0_1.merging import furthest, merge
from models.ko_en_0_1.passages import Questions, joined, make_questions
from models.ko_en_0_1.readers import HALVES, Reading, kinds_of
from models.ko_en_0_1.recording import write_agreed
from models.ko_en_0_1.reranker import RerankMade, find_negatives, finished, lists_of, ranked
from models.ko_en_0_1.settings import AgreePlan, BiPlan, scaled
from models.ko_en_0_1.silver import (
    Float32,
    Int64,
    agreement,
    both_ways,
    either_way,
    in_other_languages,
    known_pairs,
    neighbours_of,
    pairs_of,
    silver_pairs,
    without_known,
)
from models.ko_en_0_1.stage_training import (
    OTHER_SEED,
    Array,
    Selection,
    Workshop,
    described,
    load_array,
    save_arrays,
    task,
)
from models.ko_en_0_1.teaching import PASSAGE_NEIGHBOURS, PROMPT, SHARES, read_passages
from models.ko_en_0_1.voices import Cosine, Cross, Voter, together
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.recipes.stages import Done, Made, open_stages
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import top_k

RECIPE = "bundled reranker, once more"
_KEPT_NEGATIVES = 2  # of a question, in what is to stay
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class AgreeOptions:
    """Where the models and the data are, and where the run lies."""

    data: Path
    folder: Path
    reranker: str | Path
    bi: str | Path
    bilingual: str | Path | None = None  # multilingual-e5-small
    larger: str | Path | None = None  # all-mpnet-base-v2
    making: Path | None = None  # making.json of the reranker
    plan: AgreePlan = field(default_factory=AgreePlan)
    texts: BiPlan = field(default_factory=BiPlan)  # what of the public sets is read
    seed: int = 0
    scale: float = 1.0  # below 1: a small trial
    device: str | None = None
    progress: Progress = False


def make_agreed(options: AgreeOptions) -> RerankMade:
    """Let the reranker learn once more, or go on with it."""
    if options.seed < 0:
        raise InputError(f"seed must be at least 0, got {options.seed}")
    if options.plan.agreements < 1:
        raise InputError(
            f"it learns in at least one training: agreements must be 1 or more, got {options.plan.agreements}"
        )
    plan = scaled(options.plan, options.scale)
    before = None if options.making is None else read_making(options.making)
    material = read_material(options.data, scaled(options.texts, options.scale), seed=options.seed)
    with open_stages(options.folder, RECIPE, progress=options.progress) as stages:
        shop = Workshop(stages, options.device, options.seed, options.progress, material.selection)
        making = _Making(options, plan, material, shop)
        begun, pairs = making.begun(), making.pairs()
        voices, passages = making.voices(begun, pairs), making.passages(begun)
        learned = making.learned(pairs, voices, passages)
        trained = [making.agreed(number, begun, learned) for number in range(1, plan.agreements + 1)]
        mean = shop.mean(trained, lambda one: shop.cross(one.folder / "model", plan.max_length))
        finish = making.finish(making.merged(begun, mean), learned.passages)
        folder = finish.folder / "model"
        model = CrossEncoder.load(folder, device=options.device)
        write_agreed(
            options.folder / "making.json",
            model,
            folder,
            stages.done,
            seed=options.seed,
            rows=material.rows,
            labellers={"bilingual": options.bilingual is not None, "larger": options.larger is not None},
            before=before,
        )
        return RerankMade(folder, list(stages.done), dict(finish.facts))


@dataclass(frozen=True)
class Learned:
    """The stages that `agreed` learns from. people: None where no larger model reads them."""

    pairs: Done
    labels: Done
    passages: Done
    people: Done | None


class _Making:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, options: AgreeOptions, plan: AgreePlan, material: Material, shop: Workshop) -> None:
        self.options, self.plan, self.material, self.shop = options, plan, material, shop
        # Where one is missing, that is said now and not after the stages before.
        given = {"reranker": CrossEncoder.load(options.reranker, device="cpu").fingerprint}
        for name, one in (("bi", options.bi), ("bilingual", options.bilingual), ("larger", options.larger)):
            if one is not None:
                given[name] = BiEncoder.load(one, device="cpu").fingerprint
        self.given: Mapping[str, str] = given

    @cached_property
    def bi(self) -> BiEncoder:
        return BiEncoder.load(self.options.bi, device=self.shop.device)

    @property
    def pool(self) -> list[str]:
        return self.reading.pool

    @property
    def _device(self) -> str:
        return str(self.bi.device)

    def begun(self) -> Done:
        def make(folder: Path) -> Made:
            uncalibrated(CrossEncoder.load(self.options.reranker, device="cpu")).save(folder / "model")
            return Made(["model"])

        return self.shop.stages.run("begun", {"reranker": self.given["reranker"]}, make)

    def pairs(self) -> Done:
        """int64 [pairs, 2]: places in the pool."""
        plan, material, pool = self.plan, self.material, self.pool

        def make(folder: Path) -> Made:
            vectors = self.bi.encode(pool, normalize=True, progress=self.shop.progress)
            judged, translated = material.judged(), np.array([text in material.other for text in pool])
            found = pairs_with(judged, translated, vectors, plan, seed=self.shop.seed, device=self._device)
            known = known_pairs([*material.sts.values(), *material.selection, *material.evaluation])
            found = without_known(pool, found, known)
            both = int(translated[found].all(axis=1).sum())
            facts = {"sentences": len(pool), "pairs": len(found), "in both languages": both}
            return Made(save_arrays(folder, pairs=found), facts)

        inputs: dict[str, object] = {"bi": self.given["bi"], "pool": hash_texts(pool), "random": plan.random_pairs}
        inputs |= {"neighbours": [plan.neighbours, plan.translated_neighbours, plan.other_neighbours]}
        inputs |= {"translations": self.reading.translations, "scored": data_hash(material.scored())}
        inputs["seed"] = self.shop.seed
        inputs["evaluation"] = [data_hash(one) for one in (*material.selection, *material.evaluation)]
        return self.shop.stages.run("pairs", inputs, make)

    def voices(self, begun: Done, pairs: Done) -> Done:
        """float32 [pairs], and of the rows of the selection sets, one set after another."""
        plan, shop, material = self.plan, self.shop, self.material

        def make(folder: Path) -> Made:
            voters = self._voters(begun)
            read = pairs_of(self.pool, *_unlabelled(pairs), name="silver")
            labels, _ = together(voters, *read.columns.values(), progress=shop.progress)
            told = [together(voters, *one.columns.values()) for one in material.selection]
            alone = {
                voter.name: agreement(material.selection, [said[voter.name] for _, said in told])
                for voter in voters
                if not voter.english
            }
            chosen = [label for label, _ in told]
            facts = {"alone": alone, "together": agreement(material.selection, chosen)}
            names = save_arrays(folder, labels=labels, selection=np.concatenate(chosen))
            return Made(names, {"pairs": len(labels), "agreement": facts})

        inputs: dict[str, object] = {"given": dict(self.given), "begun": begun.digest, "pairs": pairs.digest}
        inputs |= {"weights": plan.weights, "length": plan.train_length}
        inputs |= {"scored": data_hash(material.scored()), "selection": [data_hash(one) for one in material.selection]}
        return shop.stages.run("voices", inputs, make)

    def learned(self, pairs: Done, voices: Done, passages: Done) -> Learned:
        """What the readers make of labels and scores; as they were where no larger model was given."""
        reading, kinds = self.reading, self.reading.kinds
        if not kinds:
            return Learned(pairs, voices, passages, None)
        begun = [(kind, reading.nli(kind)) for kind in kinds]
        readers = {
            (kind.name, half): reading.reader(kind, half, nli, pairs, voices) for kind, nli in begun for half in HALVES
        }
        return Learned(pairs, reading.labels(pairs, voices, readers), passages, reading.people(readers))

    @cached_property
    def reading(self) -> Reading:
        given = self.options
        return Reading(
            self.plan, self.material, self.shop, kinds_of(self.plan, bilingual=given.bilingual, larger=given.larger)
        )

    def _voters(self, begun: Done) -> list[Voter]:
        """The reranker, the bi-encoder, and larger models as they were given: nobody taught these the scores here."""
        plan, shop, options, people = self.plan, self.shop, self.options, self.material.scored()
        own = shop.cross(begun.folder / "model", plan.train_length)
        found: list[Voter] = [
            Cross("own", plan.weights["own"], own),
            Cosine("cosine", plan.weights["cosine"], self.bi, people),
        ]
        if options.bilingual is not None:
            model = BiEncoder.load(options.bilingual, device=shop.device, max_length=plan.train_length)
            found.append(Cosine("bilingual", plan.weights["bilingual"], model, people, prompt=PROMPT))
        if options.larger is not None:
            model = BiEncoder.load(options.larger, device=shop.device, max_length=plan.train_length)
            found.append(Cosine("larger", plan.weights["larger"], model, self.material.sts["stsb"], english=True))
        return found

    def passages(self, begun: Done) -> Done:
        """Questions to keep and questions held out; int64 negatives of each; the reranker's scores of kept pairs."""
        plan, shop, material, seed = self.plan, self.shop, self.material, self.shop.seed

        def make(folder: Path) -> Made:
            found = []
            for units, share in zip(material.units(), SHARES, strict=True):
                texts = [" ".join(unit.versions) for unit in units]
                vectors = self.bi.encode(texts, normalize=True, progress=shop.progress)
                near = neighbours_of(vectors, min(PASSAGE_NEIGHBOURS, len(units) - 1), device=self._device)
                found.append(make_questions(units, near, count=round(share * plan.questions), seed=seed))
            rest, held = joined(found).split(plan.held_questions, seed=seed)
            for name, some in (("passages", rest), ("held", held)):
                (folder / f"{name}.json").write_text(json.dumps(asdict(some), ensure_ascii=False), encoding="utf-8")
            every = joined([held, Questions([], rest.passages, [], rest.groups)])
            negatives = [
                find_negatives(self.bi, some, count, seed, progress=shop.progress)
                for some, count in ((rest, _KEPT_NEGATIVES), (every, plan.negatives))
            ]
            kept = ranked(lists_of(rest, negatives[0], name="kept"))
            cross = shop.cross(begun.folder / "model", plan.train_length)
            scores = cross.predict(_rows(kept), progress=shop.progress)
            names = save_arrays(folder, kept=scores, negatives=negatives[0], wrong=negatives[1])
            counts = {"questions": len(rest.queries), "passages": len(rest.passages), "held": len(held.queries)}
            return Made(["passages.json", "held.json", *names], counts)

        inputs: dict[str, object] = {"begun": begun.digest, "bi": self.given["bi"], "length": plan.train_length}
        inputs |= {"translations": data_hash(material.translations), "plain": hash_texts(material.plain), "seed": seed}
        inputs |= {"nli": [data_hash(one) for one in material.nli.values()], "shares": SHARES}
        inputs |= {"count": plan.questions, "held": plan.held_questions, "negatives": [_KEPT_NEGATIVES, plan.negatives]}
        return shop.stages.run("passages", inputs, make)

    def agreed(self, number: int, begun: Done, learned: Learned) -> Done:
        """One of several trainings, which read the pairs in other orders and languages.

        Without people's scores the other parts keep their proportion.
        """
        shop = replace(self.shop, seed=self.shop.seed + OTHER_SEED * (number - 1))
        plan, parts, people = self.plan, self.plan.agreed_parts, learned.people

        def tasks() -> list[Task]:
            places, labels = load_array(learned.pairs, "pairs"), load_array(learned.labels, "labels")
            labelled = pairs_of(self.pool, places, labels, name="silver")
            silver = in_other_languages(labelled, self.material.other, seed=shop.seed, share=plan.korean)
            found = [
                task(either_way(silver, seed=shop.seed), objectives.CrossScore(), parts["silver"]),
                task(_kept(learned.passages), objectives.CrossScore(), parts["kept"]),
            ]
            if people:
                doubted = replace(self.material.graded(), name="people", targets=load_array(people, "scores"))
                found.append(task(both_ways(doubted), objectives.CrossScore(), parts["people"]))
            return found

        made_of = [one for one in (begun, learned.pairs, learned.labels, learned.passages, people) if one]
        inputs: dict[str, object] = {one.name: one.digest for one in made_of}
        inputs |= {"translations": self.reading.translations, "korean": plan.korean}
        return shop.trained(
            "agreed" if number == 1 else f"agreed-{number}",
            lambda: shop.cross(begun.folder / "model", plan.train_length),
            tasks,
            schedule=plan.agreed,
            inputs=inputs | {"parts": described(parts), "length": plan.train_length},
        )

    def merged(self, begun: Done, mean: Done) -> Done:
        """Part of the way from what it was to what it learned, as far as it costs the selection sets next to nothing.

        They have sentences of the kinds that people's scores were learned of; of other kinds it knows more at the end.
        """
        plan, shop = self.plan, self.shop

        def make(folder: Path) -> Made:
            before, after = (shop.cross(one.folder / "model", plan.max_length) for one in (begun, mean))
            chooses = Selection(shop.selection)
            found, scores = furthest(
                plan.merged_shares, lambda share: chooses(merge(before, after, 1 - share)).value, plan.merged_cost
            )
            merge(before, after, 1 - found).save(folder / "model")
            return Made(["model"], {"share": found, "scores": {str(share): value for share, value in scores.items()}})

        inputs: dict[str, object] = {"begun": begun.digest, "trained": mean.digest, "length": plan.max_length}
        inputs |= {"shares": plan.merged_shares, "cost": plan.merged_cost}
        return shop.stages.run("merged", inputs | {"selection": [data_hash(one) for one in shop.selection]}, make)

    def finish(self, mean: Done, passages: Done) -> Done:
        plan, shop = self.plan, self.shop

        def make(folder: Path) -> Made:
            rest, held = read_passages(passages), read_passages(passages, "held")
            every = joined([held, Questions([], rest.passages, [], rest.groups)])
            lists = lists_of(every, load_array(passages, "wrong"), name="held")
            known = everyday_lists(self.bi, plan.everyday) if plan.everyday else ranked(lists)
            return finished(mean, folder, "agreed", shop=shop, length=plan.max_length, known=known, held=lists)

        inputs: dict[str, object] = {"model": mean.digest, "passages": passages.digest, "everyday": plan.everyday}
        inputs |= {"bi": self.given["bi"], "length": plan.max_length}
        if plan.everyday:
            inputs["questions"] = hash_texts([f"{one.query} {sorted(one.answers)}" for one in read_questions()])
        return shop.stages.run("finish", inputs, make)


def pairs_with(judged: Flags, translated: Flags, vectors: Float32, plan: AgreePlan, *, seed: int, device: str) -> Int64:
    """Pairs of sentences with their nearest others, and random ones beside them, each once: [pairs, 2].

    judged [n]: what people scored, with the nearest of all. translated [n]: what there is in both languages, with the
    nearest of its kind.
    """
    rows, generator = np.flatnonzero(judged), np.random.default_rng(seed)
    near = top_k(vectors[rows], vectors, min(plan.neighbours + 1, len(vectors)), memory_mb=2048, device=device).indices
    pairs = [np.stack([np.repeat(rows, near.shape[1]), near.ravel()], axis=1)]  # itself is among them
    pairs.append(generator.integers(0, len(vectors), (round(plan.random_pairs * near.size), 2)))
    both = np.flatnonzero(translated)
    if len(both) > 1:
        counts = np.where(judged[both], plan.translated_neighbours, plan.other_neighbours)
        near = neighbours_of(vectors[both], min(int(counts.max()), len(both) - 1), device=device)
        pairs.append(both[silver_pairs(near, random_share=plan.random_pairs, seed=seed, counts=counts)])
    every = np.sort(np.concatenate(pairs), axis=1)
    found: Int64 = np.unique(every[every[:, 0] != every[:, 1]], axis=0)
    return found


def _kept(passages: Done) -> Examples:
    """What the reranker said of questions and passages."""
    kept = ranked(lists_of(read_passages(passages), load_array(passages, "negatives"), name="kept"))
    a, b = kept.columns.values()
    return Examples("kept", "scored", {"a": a, "b": b}, load_array(passages, "kept"))


def _unlabelled(pairs: Done) -> tuple[Int64, Float32]:
    found: Array = load_array(pairs, "pairs")
    return found, np.zeros(len(found), np.float32)


def _rows(examples: Examples) -> list[tuple[str, str]]:
    a, b = examples.columns.values()
    return list(zip(a, b, strict=True))
