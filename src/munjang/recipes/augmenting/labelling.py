"""From sentences to silver pairs, in stages: vectors, candidates, scores, labels, silver; each leaves files.

The work itself, which goes on after a kill, is that of candidates.py, scoring.py, blending.py and silver.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import DataError
from munjang.evaluation.sts import similarities
from munjang.files import atomic_write, disk_errors
from munjang.recipes.augmenting.blending import Scale, best_weight, blended, write_blended
from munjang.recipes.augmenting.candidates import find_candidates
from munjang.recipes.augmenting.material import Material
from munjang.recipes.augmenting.pairs import FILES, CandidatePairs, PairFilter, origin_counts
from munjang.recipes.augmenting.result import Silver
from munjang.recipes.augmenting.samples import look
from munjang.recipes.augmenting.sampling import Sampled, sample
from munjang.recipes.augmenting.scoring import PairScores, score_candidates
from munjang.recipes.augmenting.silver import agreement, histogram, read_silver, write_silver
from munjang.recipes.augmenting.trainings import Job, cosines, hashes
from munjang.recipes.stages import Done, Made
from munjang.recipes.telling import say

Array = np.ndarray[Any, Any]
VECTORS, SCORES, SILVER = "vectors.npy", ("scores.npy", "spread.npy"), "silver.tsv"
_DEV = " (dev)"
COMPARED = "compared.npz"  # what the cross-encoders say of labelled pairs that they did not learn from
BINS = 20
_SAFE = "the stages before it are whole; make room and run the same command again"


@dataclass(frozen=True)
class Retriever:
    """The bi-encoder that finds neighbours and whose cosines may count in the labels."""

    load: Callable[[], BiEncoder]
    key: str


def encode_stage(job: Job, retriever: Retriever) -> Done:
    """The retriever's vectors of all sentences, of length 1, on disk."""
    sentences = job.material.sentences

    def make(folder: Path) -> Made:
        path = folder / VECTORS
        if not path.is_file():  # it has its name only when it is whole
            model = retriever.load()
            say(job.options.progress, f"encoding {len(sentences):,} sentences")
            model.encode_to(sentences.texts, path, normalize=True, progress=job.options.progress)
        return Made([VECTORS], {"sentences": len(sentences)})

    inputs = {"retriever": retriever.key, "sentences": sentences.hash, "max_length": job.options.max_length}
    return job.stages.run("vectors", inputs, make)


def candidate_stage(job: Job, vectors: Done | None) -> Done:
    """Pairs of sentences that nobody labelled and no evaluation set has."""
    options, sentences = job.options, job.material.sentences
    rules = PairFilter(sentences, known=job.labelled, forbidden=job.material.sets.evaluation)
    semantic = vectors if "semantic" in options.candidates.strategies else None

    def make(folder: Path) -> Made:
        _forget(folder, "candidates.json", FILES)
        array = None if semantic is None else np.load(semantic.folder / VECTORS, mmap_mode="r")
        say(options.progress, f"looking for pairs: {', '.join(options.candidates.strategies)}")
        pairs = find_candidates(
            sentences,
            options.candidates,
            rules=rules,
            vectors=array,
            folder=folder,
            device=options.device,
            progress=options.progress,
        )
        return Made(FILES, {"pairs": len(pairs), "origins": origin_counts(pairs.origin)})

    inputs = {
        "sentences": sentences.hash,
        "labelled and evaluation pairs": rules.hash,
        "candidates": asdict(options.candidates),
        "vectors": None if semantic is None else semantic.digest,
    }
    return job.stages.run("candidates", inputs, make)


def score_stage(job: Job, candidates: Done, *, load: Callable[[], Sequence[CrossEncoder]], keys: Sequence[str]) -> Done:
    """What the cross-encoders say of every candidate, and how well they agree with labels that they did not see."""
    watched = agreement_sets(job)

    def make(folder: Path) -> Made:
        _forget(folder, "scores.json", SCORES)
        models = load()
        pairs = CandidatePairs.read(candidates.folder)
        many = "one cross-encoder" if len(models) == 1 else f"{len(models)} cross-encoders"
        say(job.options.progress, f"scoring {len(pairs):,} pairs with {many}, in both orders")
        found = score_candidates(pairs, job.material.sentences, models, folder, progress=job.options.progress)
        compared = {name: both_orders(models, one) for name, one in watched.items()}
        agreed = {name: asdict(agreement(compared[name], _targets(one))) for name, one in watched.items()}
        _write_arrays(folder / COMPARED, list(compared.values()))
        facts = {"pairs": len(found), "truncated": found.truncated, "agreement": agreed}
        return Made((*SCORES, COMPARED), facts)

    inputs = {
        "candidates": candidates.digest,
        "sentences": job.material.sentences.hash,
        "cross-encoders": list(keys),
        "compared with": hashes(list(watched.values())),
        "kept of these": COMPARED,
    }
    return job.stages.run("scores", inputs, make)


def label_stage(job: Job, candidates: Done, scores: Done, vectors: Done, retriever: Retriever) -> Done:
    """The labels: the cross-encoder's scores, with which the retriever's cosines may be blended (`blending.py`)."""
    watched, asked = agreement_sets(job), job.options.blend

    def make(folder: Path) -> Made:
        model = retriever.load()
        seen = np.concatenate([_cosines(model, one) for one in job.labelled])
        scale = Scale.fit(seen, job.material.scores)
        said = _read_arrays(scores.folder / COMPARED)
        known = {
            name: (_targets(one), mine, scale(_cosines(model, one)))
            for (name, one), mine in zip(watched.items(), said, strict=True)
        }
        by_dev = [known[f"{one.name}{_DEV}"] for one in job.material.sets.dev]
        best, tried = best_weight(by_dev) if by_dev else (0.0, {})
        weight = best if asked == "auto" else float(asked)
        say(job.options.progress, f"the bi-encoder's cosines count {weight:g} in the labels")
        pairs, found = CandidatePairs.read(candidates.folder), PairScores.read(scores.folder)
        array = np.load(vectors.folder / VECTORS, mmap_mode="r")
        write_blended(folder, found, scale(cosines(array, pairs.left, pairs.right)), weight)
        with disk_errors(folder, safe=_SAFE):
            atomic_write(folder / "scores.json", json.dumps({"truncated": found.truncated}).encode())
        agreed = {
            name: asdict(agreement(blended(mine, near, weight), truth)) for name, (truth, mine, near) in known.items()
        }
        facts = {"weight": weight, "spearman of dev by weight": tried, "scale": asdict(scale), "agreement": agreed}
        return Made((*SCORES, "scores.json"), facts)

    inputs = {
        "candidates": candidates.digest,
        "scores": scores.digest,
        "vectors": vectors.digest,
        "retriever": retriever.key,
        "labelled": hashes(job.labelled),
        "compared with": hashes(list(watched.values())),
        "blend": asked,
        "max_length": job.options.max_length,
    }
    return job.stages.run("labels", inputs, make)


def silver_stage(job: Job, candidates: Done, scores: Done) -> Done:
    """Which of the scored pairs are kept, as silver.tsv. scores: of the stage scores, or labels."""
    options, material = job.options, job.material
    wanted = options.candidates.wanted(len(material.sentences)) if "kde" in options.candidates.strategies else None

    def make(folder: Path) -> Made:
        pairs, found = CandidatePairs.read(candidates.folder), PairScores.read(scores.folder)
        kept = sample(
            found.scores, found.spread, material.scores, options.sampling, origin=pairs.origin, kde_pairs=wanted
        )
        _check_kept(found, kept)
        rows = write_silver(folder / SILVER, pairs, material.sentences, scores=found, mask=kept.mask)
        say(options.progress, f"{rows:,} silver pairs ({_counted(kept.counts)})")
        return Made([SILVER], {"rows": rows, "counts": kept.counts})

    inputs = {
        "candidates": candidates.digest,
        "scores": scores.digest,
        "sampling": asdict(options.sampling),
        "labelled scores": hashes(job.labelled),
        "wanted of the kde pool": wanted,
    }
    return job.stages.run("silver", inputs, make)


def silver_facts(job: Job, candidates: Done, scores: Done, labels: Done, silver: Done) -> Silver:
    """What the report tells of the silver set: of the file as it is now, which somebody may have edited.

    labels: the stage labels, or scores again where nothing was blended.
    """
    path = silver.folder / SILVER
    now, looked = read_silver(path), look(path)
    return Silver(
        path=path,
        rows=len(now),
        candidates=int(candidates.facts["pairs"]),
        sentences=len(job.material.sentences),
        origins=looked.origins,
        found=dict(candidates.facts["origins"]),
        steps=dict(silver.facts["counts"]),
        edges=tuple(place / BINS for place in range(BINS + 1)),
        histogram=tuple(histogram(_targets(now), BINS)),
        labelled_histogram=tuple(histogram(job.material.scores, BINS)),
        agreement=dict(labels.facts["agreement"]),
        cross_agreement=dict(scores.facts["agreement"]),
        blend=float(labels.facts.get("weight", 0.0)),
        blend_tried=dict(labels.facts.get("spearman of dev by weight", {})),
        truncated=int(scores.facts["truncated"]),
        samples=looked.samples,
    )


def agreement_sets(job: Job) -> dict[str, Examples]:
    """Labelled pairs that the cross-encoder did not learn from: those of the evaluation, and gold for a ready one."""
    material: Material = job.material
    found = {f"{one.name} (test)": one for one in material.sets.test}
    found |= {f"{one.name}{_DEV}": one for one in material.sets.dev}
    if job.options.labellers:
        found |= {one.name: one for one in job.labelled}
    return found


def both_orders(models: Sequence[CrossEncoder], examples: Examples) -> Array:  # float [n]
    """The score of every pair as a silver pair would get it: the mean over models and orders."""
    pairs = list(zip(examples.columns["a"], examples.columns["b"], strict=True))
    asked = pairs + [(b, a) for a, b in pairs]
    readings = [model.predict(asked).reshape(2, len(pairs)) for model in models]
    mean: Array = np.clip(np.concatenate(readings), 0.0, 1.0).mean(axis=0)
    return mean


def _cosines(model: BiEncoder, examples: Examples) -> Array:  # float [n]
    return np.asarray(similarities(model, examples).by_kind["cosine"], np.float32)


def _write_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Several arrays as one file, whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, *arrays)
    with disk_errors(path, safe=_SAFE):
        atomic_write(path, buffer.getvalue())


def _read_arrays(path: Path) -> list[Array]:
    with np.load(path, allow_pickle=False) as found:
        return [found[f"arr_{number}"] for number in range(len(found.files))]


def _targets(examples: Examples) -> Array:
    return np.asarray(examples.targets, np.float32)


def _check_kept(found: PairScores, kept: Sampled) -> None:
    """Refuse a silver set of nothing, or with labels that are all the same: nothing can be learned from it."""
    steps = _counted(kept.counts)
    if not kept.mask.any():
        raise DataError(
            f"not one of {len(found):,} scored pairs is kept ({steps}): sample less strictly (balance, certain), or "
            "find other candidates"
        )
    scores = np.round(found.scores[kept.mask], 4)  # as silver.tsv has them
    if len(scores) > 1 and scores.min() == scores.max():
        raise DataError(
            f"the cross-encoder gives all {len(scores):,} silver pairs the same score, {scores[0]:.4f} ({steps}): "
            "there is nothing to learn from them. Train it longer or with another learning rate (cross_changes, "
            "--cross-epochs), start it from another model (cross_model), or prepare it (pretrain)"
        )


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _forget(folder: Path, record: str, files: Sequence[str]) -> None:
    """A record of files that somebody removed is no record: the work is done again."""
    if not all((folder / name).is_file() for name in files):
        (folder / record).unlink(missing_ok=True)
