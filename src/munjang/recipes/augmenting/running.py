"""Augmented SBERT from its arguments to its result, stage by stage (Thakur et al. 2021, https://arxiv.org/abs/2010.08240).

    baseline    the bi-encoder on the labelled pairs alone: what the rest is compared with, and what finds neighbours
    vectors     its vectors of all sentences
    candidates  pairs of sentences that nobody labelled
    pretrain    where it is wanted: the cross-encoder learns the baseline's cosines first
    cross       cross-encoders on the labelled pairs, one for every seed; none where a ready one is given
    scores      what they say of the candidates
    labels      their scores, blended with the cosines of the bi-encoder, where that agrees better with dev
    silver      which of these are kept: silver.tsv
    bi          the bi-encoder, from the start again, on labelled and silver pairs
    compare     both bi-encoders on the same test rows

A stage whose inputs are unchanged is skipped, a killed one goes on (`recipes/stages.py`). Everything that can be wrong
with data and models is found before the first stage.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

from munjang.checkpoint import is_cross, resolve
from munjang.checkpoint.write import replace_model_folder
from munjang.data import Examples
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError, MissingExtraError
from munjang.evaluation.metrics import paired_bootstrap, spearman
from munjang.evaluation.sts import similarities
from munjang.files import atomic_write, disk_errors
from munjang.nn.device import choose_device
from munjang.recipes.augmenting import labelling, trainings
from munjang.recipes.augmenting.labelling import Retriever
from munjang.recipes.augmenting.material import Domain, Material, read_material
from munjang.recipes.augmenting.neighbours import is_approximate
from munjang.recipes.augmenting.options import AugmentOptions, model_name
from munjang.recipes.augmenting.originals import Original, original_bi, original_cross
from munjang.recipes.augmenting.report import write_augmented_report
from munjang.recipes.augmenting.result import (
    AugmentResult,
    Choice,
    Gain,
    Part,
    Silver,
    Trained,
    choose,
    gain_notes,
    labeller_notes,
    result_dict,
)
from munjang.recipes.augmenting.trainings import Data, Job, Start
from munjang.recipes.models import bi_encoder
from munjang.recipes.options import GivenModel, GivenSets
from munjang.recipes.stages import Done, Made, open_stages

_DRAWS = 1000
_CHOSEN_BY_TEST = (
    "There is no development set: the test set chose which model is delivered, so its scores are optimistic."
)
_SAFE = "all stages are whole; make room and run the same command again"


def augmented(
    model: GivenModel,
    *,
    gold: GivenSets = None,
    public: GivenSets = None,
    domain: Domain = None,
    dev: GivenSets = None,
    test: GivenSets = None,
    options: AugmentOptions,
) -> AugmentResult:
    """Train a bi-encoder on few labelled pairs, or on none of its domain, and many that a cross-encoder labels.

    gold: few labelled pairs of the domain; `domain` may add plain sentences. Without gold: `domain` sentences (a file,
    a list of texts, or Examples, whose labels are not looked at) and `public` labelled sets of another domain. The
    model itself is not changed. The same call goes on where an interrupted one stopped.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("augmented runs in one process, got WORLD_SIZE above 1: start it without torchrun")
    checked = _Models.of(model, options)
    material = read_material(gold, public, domain, evaluation=(dev, test), options=options)
    _check_search(material, options)
    _check_retriever(material, options)
    with open_stages(options.folder, "augmented", progress=options.progress) as stages:
        return _run(Job(material, options, stages), checked)


def _check_search(material: Material, options: AugmentOptions) -> None:
    """Whether what approximate search needs is there: now, not when the neighbours are looked for."""
    if "semantic" not in options.candidates.strategies:
        return
    device = choose_device(options.device)
    if is_approximate(options.candidates.approximate, len(material.sentences), device) and find_spec("faiss") is None:
        raise MissingExtraError(
            "faiss-cpu", "search", "Approximate search (Candidates(approximate=False), --exact: without it)"
        )


def _check_retriever(material: Material, options: AugmentOptions) -> None:
    """Refuse a retriever that nothing asks: without a development set, blend="auto" blends nothing."""
    if options.retriever is None or options.needs_vectors or options.blends(dev=bool(material.sets.dev)):
        return
    raise InputError(
        "retriever would do nothing: the strategies are "
        f"{', '.join(options.candidates.strategies)}, and blend='auto' chooses by dev, but there is no development "
        "set. Give dev, a number for blend (such as 0.5), or leave retriever away"
    )


class _Models:
    """The models that were given, each found to be what it must be."""

    def __init__(
        self, start: Original, cross: Original | None, ready: Sequence[Original], retriever: Original | None
    ) -> None:
        self.start, self.cross, self.ready, self.retriever = start, cross, ready, retriever

    @classmethod
    def of(cls, model: GivenModel, options: AugmentOptions) -> _Models:
        plain = options.recipe({})
        start = original_bi(model, plain)
        cross = retriever = None
        ready = [_ready(one, options) for one in options.labellers]
        if not ready:
            cross = original_cross(model if options.cross_model is None else options.cross_model, plain)
        if options.retriever is not None:
            retriever = original_bi(options.retriever, plain)
        return cls(start, cross, ready, retriever)


def _ready(given: GivenModel, options: AugmentOptions) -> Original:
    """A cross-encoder that labels without being trained here."""
    if isinstance(given, BiEncoder):
        raise InputError("cross_encoder must be a cross-encoder, got a BiEncoder: as a start to train one from it is "
                         "cross_model")  # fmt: skip
    if isinstance(given, str | Path) and not is_cross(resolve(given, cross=True)):
        raise InputError(
            f"cross_encoder must be a cross-encoder, but {given} has no head that scores pairs: as a start to train "
            "one from it is cross_model (--cross-model)"
        )
    model = _load_cross(given, options)
    if len(model.labels) != 1:
        raise InputError(
            f"cross_encoder must give one score, but {model_name(given)} has {len(model.labels)} outputs: leave it "
            "away, and cross_model=... starts one from it"
        )
    if model.parts.activation != "Sigmoid":
        raise InputError(
            f"cross_encoder must give scores in 0..1, but {model_name(given)} ends in {model.parts.activation}: leave "
            "it away, and cross_model=... starts one from it, or give it a sigmoid with its `calibrate`"
        )
    return Original(given, model.fingerprint)


def _run(job: Job, models: _Models) -> AugmentResult:
    options = job.options
    start = Start.of(models.start)
    baseline = None
    blends = options.blends(dev=bool(job.material.sets.dev))
    needed = options.needs_vectors or blends
    if options.needs_baseline(vectors=needed):
        baseline = trainings.train_bi(job, "baseline", start=start, data=Data.of(job.labelled))
    retriever = _retriever(job, models, baseline) if needed else None
    vectors = None if retriever is None else labelling.encode_stage(job, retriever)
    candidates = labelling.candidate_stage(job, vectors)
    others: list[Done] = []
    crossed: list[Done] = []
    if models.cross is not None:
        first = Start.of(models.cross)
        if options.pretrain:
            assert vectors is not None
            others.append(trainings.pretrain_cross(job, first, candidates=candidates, vectors=vectors))
            first = Start.after(others[-1])
        crossed = trainings.train_cross(job, first)
    scores = _scores(job, models, candidates, crossed)
    labels = scores
    if blends:
        assert vectors is not None
        assert retriever is not None
        labels = labelling.label_stage(job, candidates, scores, vectors, retriever)
    silver = labelling.silver_stage(job, candidates, labels)
    final = trainings.train_final(job, start=start, silver=silver)
    gains = [] if baseline is None else _compare(job, baseline, final[-1])
    return _finish(
        job,
        models,
        gains=gains,
        silver=labelling.silver_facts(job, candidates, scores, labels, silver),
        trained={"baseline": [baseline] if baseline else [], "cross": crossed, "others": others + final[:-1],
                 "bi": final[-1:]},
    )  # fmt: skip


def _retriever(job: Job, models: _Models, baseline: Done | None) -> Retriever:
    options = job.options
    if models.retriever is not None or options.retrieve_with == "given":
        chosen = models.retriever or models.start
        return Retriever(lambda: _load_bi(chosen.fresh(), options), chosen.fingerprint)
    assert baseline is not None
    return Retriever(lambda: _load_bi(baseline.folder / "model", options), baseline.digest)


def _scores(job: Job, models: _Models, candidates: Done, crossed: Sequence[Done]) -> Done:
    ready = models.ready
    if ready:
        return labelling.score_stage(
            job,
            candidates,
            load=lambda: [_load_cross(one.fresh(), job.options) for one in ready],
            keys=[one.fingerprint for one in ready],
        )
    return labelling.score_stage(
        job,
        candidates,
        load=lambda: [_load_cross(done.folder / "model", job.options) for done in crossed],
        keys=[done.digest for done in crossed],
    )


def _load_bi(given: GivenModel, options: AugmentOptions) -> BiEncoder:
    model = bi_encoder(given, options.recipe({})).model
    assert isinstance(model, BiEncoder)
    return model


def _load_cross(given: GivenModel, options: AugmentOptions) -> CrossEncoder:
    if isinstance(given, CrossEncoder):
        return given
    assert not isinstance(given, BiEncoder)
    return CrossEncoder.load(given, device=options.device, max_length=options.max_length)


# --- comparing -------------------------------------------------------------------------------------------------------


def _compare(job: Job, baseline: Done, final: Done) -> list[Gain]:
    """The baseline and the augmented model on the rows of the test sets, or else of the development sets."""
    sets = job.material.sets
    part: Part = "test" if sets.test else "dev"
    watched = sets.test or sets.dev
    if not watched:
        return []

    def make(folder: Path) -> Made:
        del folder  # the facts are all there is
        before, after = (_load_bi(done.folder / "model", job.options) for done in (baseline, final))
        return Made([], {"gains": [asdict(_gain(before, after, one, part)) for one in watched]})

    inputs = {"baseline": baseline.digest, "augmented": final.digest, part: trainings.hashes(watched), "draws": _DRAWS}
    done = job.stages.run("compare", inputs, make)
    before = baseline.facts["before"][part]
    return [
        replace(Gain.from_dict(saved), untrained=old["values"]["spearman"] if old else None)
        for saved, old in zip(done.facts["gains"], before, strict=True)
    ]


def _gain(before: BiEncoder, after: BiEncoder, examples: Examples, part: Part) -> Gain:
    old, new = (similarities(model, examples).by_kind["cosine"] for model in (before, after))
    truth = examples.targets
    assert truth is not None
    gap = paired_bootstrap(spearman, (truth, new), (truth, old), samples=_DRAWS)
    return Gain(examples.name, part, "spearman", len(examples), spearman(truth, old), spearman(truth, new), gap)


# --- finishing -------------------------------------------------------------------------------------------------------


def _finish(
    job: Job, models: _Models, *, gains: Sequence[Gain], silver: Silver, trained: dict[str, list[Done]]
) -> AugmentResult:
    """Put the model, result.json and index.html into the run folder."""
    options, folder = job.options, job.stages.folder
    parts = {name: tuple(Trained.of(done) for done in found) for name, found in trained.items()}
    (bi,) = parts["bi"]
    choice = choose(bi, next(iter(parts["baseline"]), None), gains)
    notes = (
        *([_CHOSEN_BY_TEST] if choice.by_test else []),
        *gain_notes(gains, compared=bool(parts["baseline"])),
        *labeller_notes(silver, parts["baseline"], prepared=options.pretrain),
        *job.material.notes,
        *_notes(job.material, silver),
    )
    chosen = {"augmented": bi.folder, "labelled": parts["baseline"][0].folder if parts["baseline"] else bi.folder}
    if choice.delivered == "given":
        _load_bi(models.start.fresh(), options).save(folder / "model")
    else:
        told = _card(choice, gains, silver)
        replace_model_folder(folder / "model", lambda aside: _fill(aside, chosen[choice.delivered], told))
    result = AugmentResult(
        model=_load_bi(folder / "model", options),
        folder=folder,
        scenario=job.material.scenario,
        gains=tuple(gains),
        silver=silver,
        bi=bi,
        baseline=next(iter(parts["baseline"]), None),
        cross=parts["cross"],
        others=parts["others"],
        stages=tuple(job.stages.done),
        choice=choice,
        notes=notes,
    )
    began = {"name": model_name(models.start.given), "fingerprint": models.start.fingerprint}
    content = result_dict(result, options.to_dict(), began, data=job.material.data)
    text = json.dumps(content, ensure_ascii=False, indent=2, default=str)
    with disk_errors(folder, safe=_SAFE):
        atomic_write(folder / "result.json", (text + "\n").encode("utf-8", "replace"))
    write_augmented_report(folder)
    return result


def _notes(material: Material, silver: Silver) -> list[str]:
    found = []
    if silver.truncated:
        found.append(f"{silver.truncated:,} readings of candidate pairs were longer than the cross-encoder reads: cut.")
    if not material.sets.dev:
        found.append("There is no development set: every model is that of its last step.")
    return found


def _card(choice: Choice, gains: Sequence[Gain], silver: Silver) -> str:
    """What the card of the delivered model says about this run."""
    first = f"Trained with {silver.rows:,} silver pairs, labelled by a cross-encoder."
    if choice.delivered != "augmented":
        first = f"This run {choice}."
    lines = ["## Augmented SBERT", "", first]
    if gains:
        lines += ["The training on the labelled pairs alone, and the same with silver pairs:", ""]
        lines += [f"- {gain}" for gain in gains]
    return "\n".join(lines)


def _fill(aside: Path, folder: Path, told: str) -> None:
    """Copy the model of a training, and add to its card."""
    shutil.copytree(folder / "model", aside, dirs_exist_ok=True)
    card = aside / "README.md"
    if not card.is_file():
        return
    text = card.read_text(encoding="utf-8").rstrip().replace("\n## Licence", f"\n{told}\n\n## Licence")
    text = text.replace(f"{folder.name}/model", f"{folder.resolve().parent.name}/model")
    atomic_write(card, (text + "\n").encode("utf-8", "replace"))
