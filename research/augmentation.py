"""The comparison of the Augmented SBERT paper: which candidate pairs help, over several seeds.

Enters: a bi-encoder, the public sets, the seeds. For every seed the model is trained on the labelled pairs alone, one
cross-encoder is trained, and every strategy has its silver pairs labelled by that same one. Leaves: a file of results,
kept row by row, and a table: Spearman on the test set, and the difference to the labelled pairs alone with a paired
bootstrap interval over the test rows (over the mean of the seeds in the last columns).

    augmented-few    1,000 pairs of KorSTS have labels, of the others only the sentences are used
    augmented-none   no pair of KLUE-STS has a label; KorSTS is the public set
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples, load_dataset
from munjang.errors import InputError
from munjang.evaluation.metrics import paired_bootstrap, spearman
from munjang.evaluation.sts import similarities
from munjang.files import atomic_write
from munjang.recipes.augmenting.candidates import Candidates, Strategy
from munjang.recipes.augmenting.options import AugmentOptions
from munjang.recipes.augmenting.result import AugmentResult
from munjang.recipes.augmenting.running import augmented
from munjang.recipes.augmenting.sampling import Sampling
from munjang.recipes.options import SetOptions
from munjang.training.run import data_hash
from research.running import machine

StudyName = Literal["augmented-few", "augmented-none"]
Array = np.ndarray[Any, Any]
Say = Callable[[str], None]

ROWS: dict[str, tuple[Strategy, ...]] = {
    "semantic": ("semantic",),
    "BM25": ("bm25",),
    "random": ("random",),
    "KDE": ("kde",),
    "BM25 + semantic": ("bm25", "semantic"),
    "semantic + random": ("semantic", "random"),
}
LABELLED, CROSS = "labelled pairs alone", "cross-encoder"
NAME = "results.json"
_DRAWS = 1000


@dataclass(frozen=True)
class AugmentStudy:
    """Which sets play which part."""

    title: str
    labelled: str
    domain: str | None
    test: tuple[str, str]  # set, split
    gold_rows: int | None = None


STUDIES: dict[StudyName, AugmentStudy] = {
    "augmented-few": AugmentStudy("Few labelled pairs", "korsts", None, ("korsts", "test"), gold_rows=1000),
    "augmented-none": AugmentStudy("No labelled pairs of the domain", "korsts", "klue-sts", ("klue-sts", "dev")),
}


@dataclass(frozen=True)
class AugmentSetup:
    """How every run of a study is made; the defaults are those of `munjang augment`."""

    seeds: tuple[int, ...] = (0, 1, 2)
    strategies: tuple[str, ...] = tuple(ROWS)
    gold_rows: int | None = None  # None: as the study says
    candidates: Candidates = field(default_factory=Candidates)
    options: Mapping[str, Any] = field(default_factory=dict)  # more fields of AugmentOptions


@dataclass(frozen=True)
class _Job:
    study: AugmentStudy
    model: Path
    data: Path
    folder: Path
    setup: AugmentSetup
    test: Examples

    @property
    def device(self) -> str | None:
        """Where the models are compared: on the device that they are trained on."""
        found: str | None = self.setup.options.get("device")
        return found

    def run(self, seed: int, row: str, first: AugmentResult | None) -> AugmentResult:
        """One strategy with one seed; all but the first of a seed take over its cross-encoder and its retriever."""
        study, setup = self.study, self.setup
        options = AugmentOptions(
            folder=self.folder / f"seed-{seed}" / row.lower().replace(" + ", "-"),
            candidates=replace(setup.candidates, strategies=ROWS[row], seed=seed),
            sampling=Sampling(seed=seed),
            gold_rows=(setup.gold_rows or study.gold_rows) if study.domain is None else None,
            seed=seed,
            sets=SetOptions(folder=str(self.data)),
            **setup.options,
        )
        if first is not None:
            assert first.baseline is not None
            options = replace(
                options,
                cross_encoder=[one.model for one in first.cross],
                cross_model=None,
                retriever=first.baseline.model if "semantic" in ROWS[row] or options.blend != 0 else None,
                baseline=False,
                pretrain=False,
                cross_count=1,
                cross_changes={},
                pretrain_changes={},
            )
        given = {"gold": study.labelled} if study.domain is None else {"public": study.labelled}
        return augmented(
            self.model,
            **given,
            domain=None if study.domain is None else load_dataset(study.domain, "train", self.data),
            dev=f"{study.labelled}:dev",
            test=self.test,
            options=options,
        )


def run_augmentation(
    name: StudyName, model: str | Path, data: str | Path, folder: str | Path, *, setup: AugmentSetup, say: Say = print
) -> dict[str, Any]:
    """Run a study; its results, which also lie in folder/results.json, row by row.

    What that file holds is not run again, also when the runs themselves are gone.
    """
    study = STUDIES[name]
    test = load_dataset(*study.test, data)
    job = _Job(study, Path(model), Path(data), Path(folder), setup, test)
    results = _begun(job, name)
    for seed in setup.seeds:
        _run_seed(job, seed, results, say)
    results["mean"] = _means(np.asarray(test.targets), results["seeds"])
    _write(job, results)
    return results


def _begun(job: _Job, name: StudyName) -> dict[str, Any]:
    """The results so far, where they are of the same study; another one is an error."""
    start = BiEncoder.load(job.model, device=job.device)
    told = {
        "study": name,
        "title": job.study.title,
        "test": job.test.name,
        "test data": data_hash(job.test),
        "first strategy": job.setup.strategies[0],  # which trains what the others share
        "rows": len(job.test),
        "model": start.fingerprint,
        "machine": machine(start.device),
        "candidates": asdict(job.setup.candidates),
        "options": {key: str(value) for key, value in job.setup.options.items() if key not in ("progress", "device")},
        "gold rows": job.setup.gold_rows or job.study.gold_rows,
    }
    path = job.folder / NAME
    if not path.is_file():
        return {**told, "seeds": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    other = [key for key, value in json.loads(json.dumps(told)).items() if found.get(key) != value and key != "machine"]
    if other:
        raise InputError(f"{path} holds results with other {', '.join(other)}: choose another folder, or remove it")
    return found


def _run_seed(job: _Job, seed: int, results: dict[str, Any], say: Say) -> None:
    """All strategies with one seed. The first trains what the others share, so it is run where any of them is."""
    found: dict[str, Any] = results["seeds"].setdefault(str(seed), {})
    missing = [row for row in job.setup.strategies if row not in found]
    if not missing:
        return
    first: AugmentResult | None = None
    for row in dict.fromkeys([job.setup.strategies[0], *missing]):
        result = job.run(seed, row, first)
        if first is None:
            first = result
            assert result.baseline is not None
            found[LABELLED] = _scores(BiEncoder.load(result.baseline.model, device=job.device), job.test)
            found[CROSS] = {one.name: one.value for one in (result.cross[0].test if result.cross else ())}
            say(f"seed {seed}, {LABELLED}: {100 * found[LABELLED]['spearman']:.2f}")
        found[row] = _row(result, job.test, found[LABELLED])
        say(f"seed {seed}, {row}: {100 * found[row]['spearman']:.2f}, {found[row]['silver']:,} silver pairs")
        _write(job, results)


def _write(job: _Job, results: Mapping[str, Any]) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    atomic_write(job.folder / NAME, (json.dumps(results) + "\n").encode())


def _scores(model: BiEncoder, test: Examples) -> dict[str, Any]:
    """The cosines are kept: differences of means over the seeds are drawn from them."""
    cosines = np.asarray(similarities(model, test).by_kind["cosine"], np.float64).round(6)
    return {"spearman": spearman(np.asarray(test.targets), cosines), "cosines": cosines.tolist()}


def _row(result: AugmentResult, test: Examples, alone: Mapping[str, Any]) -> dict[str, Any]:
    found, truth = _scores(result.model, test), np.asarray(test.targets)
    gap = paired_bootstrap(spearman, (truth, found["cosines"]), (truth, alone["cosines"]), samples=_DRAWS)
    silver = result.silver
    return {
        **found,
        "difference": gap.value,
        "low": gap.low,
        "high": gap.high,
        "silver": silver.rows,
        "candidates": silver.candidates,
        "blend": silver.blend,
        "labels": {name: one["spearman"] for name, one in silver.agreement.items()},
    }


def _means(truth: Array, seeds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean over the seeds, and of its difference to the labelled pairs alone an interval over the test rows.

    Over all seeds that have the row, also those of an earlier call: the table shows them all.
    """
    found: dict[str, Any] = {}
    for row in (LABELLED, *ROWS):
        chosen = [one for one in seeds.values() if row in one]
        if not chosen:
            continue
        cosines, alone = (np.stack([one[name]["cosines"] for one in chosen], axis=1) for name in (row, LABELLED))
        values = [spearman(truth, column) for column in cosines.T]
        found[row] = {"spearman": float(np.mean(values)), "deviation": float(np.std(values))}
        if row != LABELLED:
            gap = paired_bootstrap(_mean_spearman, (truth, cosines), (truth, alone), samples=_DRAWS)
            found[row] |= {"difference": gap.value, "low": gap.low, "high": gap.high}
    return found


def _mean_spearman(truth: Array, scores: Array) -> float:  # [n], [n, seeds]
    return float(np.mean([spearman(truth, column) for column in scores.T]))


def augmentation_table(results: Mapping[str, Any]) -> str:
    """A study's results as a Markdown table."""
    seeds = list(results["seeds"])
    lines = [
        f"**{results['title']}** ({results['test']}, {results['rows']:,} rows; Spearman x 100)",
        "",
        "| pairs | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | difference, 95 % interval | silver |",
        "|---|" + "---:|" * (len(seeds) + 3),
    ]
    for row, mean in results["mean"].items():
        each = [results["seeds"][seed].get(row, {}) for seed in seeds]
        shown = [f"{100 * one['spearman']:.2f}" if one else "" for one in each]
        gap = (
            f"{100 * mean['difference']:+.2f} ({100 * mean['low']:+.2f} to {100 * mean['high']:+.2f})"
            if "difference" in mean
            else ""
        )
        silver = f"{each[0]['silver']:,}" if each and "silver" in each[0] else ""
        lines.append(f"| {row} | {' | '.join(shown)} | {100 * mean['spearman']:.2f} | {gap} | {silver} |")
    cross = [value for seed in seeds for value in results["seeds"][seed][CROSS].values()]
    if cross:
        lines += [
            "",
            f"The cross-encoder that labels has {100 * float(np.mean(cross)):.2f} itself (mean of the seeds).",
        ]
    return "\n".join(lines)
