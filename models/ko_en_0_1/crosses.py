"""Cross-encoders that label, whatever their body: what each of them learns, one stage after another.

    NAME-nli      three labels of NLI, in both languages
    NAME-silver   labels of many pairs that other models gave
    NAME-sts      scores that people gave, in either order

The student's own body, the larger English model and the bilingual one all become labellers this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.ko_en_0_1.settings import Schedule
from models.ko_en_0_1.silver import agreement, both_ways, read_silver
from models.ko_en_0_1.stage_training import Workshop, load_array, save_arrays
from models.ko_en_0_1.teaching import Teaching
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.data.labels import NLI_LABELS
from munjang.recipes.stages import Done, Made
from munjang.training import Task, objectives
from munjang.training.run import data_hash

NLI = tuple(NLI_LABELS)[:3]


@dataclass(frozen=True)
class Crosses:
    """The stages of one labeller; each is a method that tells what it is made of."""

    teaching: Teaching
    name: str
    shop: Workshop  # with the labeller's own seed

    def nli(self, body: Done | str | Path, schedule: Schedule) -> Done:
        """body: the bi-encoder that a stage left, or one that was given."""
        plan, material = self.teaching.plan, self.teaching.material
        return learn_nli(
            self.shop, f"{self.name}-nli", body, [*material.nli.values()], schedule=schedule, batch=plan.labeller_batch,
            length=plan.train_length,
        )  # fmt: skip

    def silver(self, nli: Done, silver: tuple[Done, Done], schedule: Schedule) -> Done:
        """silver: pairs, and the labels of them that are learned."""
        plan, shop = self.teaching.plan, self.shop
        length, size = plan.train_length, 2 * plan.labeller_batch
        seed = self.teaching.shop.seed  # of the languages that the pairs are read in: the same for every labeller
        material = self.teaching.material
        return shop.trained(
            f"{self.name}-silver",
            lambda: shop.cross(nli.folder / "model", length, labels=1),
            lambda: [Task(read_silver(material, *silver, seed=seed), objectives.CrossScore(), batch_size=size)],
            schedule=schedule,
            inputs={"model": nli.digest, "pairs": [one.digest for one in silver], "batch": size, "length": length},
            select=False,
        )

    def sts(self, begun: Done, schedule: Schedule, *, last: str = "sts", labels: int | None = None) -> Done:
        """last: how the stage is called. labels: how many the head is to have, where that is another number."""
        plan, shop = self.teaching.plan, self.shop
        length, size = plan.train_length, plan.labeller_batch
        return shop.trained(
            f"{self.name}-{last}",
            lambda: shop.cross(begun.folder / "model", length, labels=labels),
            lambda: [Task(both_ways(self.teaching.material.graded()), objectives.CrossScore(), batch_size=size)],
            schedule=schedule,
            inputs={"model": begun.digest, "batch": size, "length": length, **self.teaching.of("sts")},
        )

    def labels(self, name: str, pairs: Done, labeller: Done) -> Done:
        """float32 [pairs]: what it says of each, and of the rows of each selection set, one after another.

        A pair that is there in two languages is read in English.
        """
        plan, shop, material = self.teaching.plan, self.shop, self.teaching.material

        def make(folder: Path) -> Made:
            model = shop.cross(labeller.folder / "model", plan.train_length)
            pool, places = material.pool(), load_array(pairs, "pairs").tolist()
            scores = model.predict([(pool[a], pool[b]) for a, b in places], progress=shop.progress)
            told = [model.predict(list(zip(*one.columns.values(), strict=True))) for one in shop.selection]
            names = save_arrays(folder, scores=scores, selection=np.concatenate(told))
            return Made(names, {"pairs": len(scores), "agreement": agreement(shop.selection, told)})

        inputs = {"pairs": pairs.digest, "labeller": labeller.digest, "length": plan.train_length}
        inputs |= {"selection": [data_hash(one) for one in shop.selection]}
        return self.shop.stages.run(name, inputs, make)


def learn_nli(
    shop: Workshop,
    name: str,
    body: Done | str | Path,
    sets: Sequence[Examples],
    *,
    schedule: Schedule,
    batch: int,
    length: int,
) -> Done:
    """A stage: a bi-encoder's body with a new head learns the labels of NLI."""
    digest = body.digest if isinstance(body, Done) else BiEncoder.load(body, device="cpu").fingerprint

    def begin() -> CrossEncoder:
        if isinstance(body, Done):
            model = shop.bi(body, length)
        else:
            model = BiEncoder.load(body, device=shop.device, max_length=length)
        return CrossEncoder.from_body(model, NLI, seed=shop.seed, device=shop.device)

    return shop.trained(
        name,
        begin,
        lambda: [Task(one, objectives.CrossEntropy(), batch_size=batch) for one in sets],
        schedule=schedule,
        inputs={"body": digest, "batch": batch, "length": length, "nli": [data_hash(one) for one in sets]},
        select=False,
    )
