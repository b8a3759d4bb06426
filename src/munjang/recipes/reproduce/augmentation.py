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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples, load_dataset
from munjang.durable import write_whole
from munjang.evaluation.metrics import paired_bootstrap, spearman
from munjang.evaluation.sts import similarities
from munjang.recipes.augmenting.candidates import Candidates, Strategy
from munjang.recipes.augmenting.options import AugmentOptions
from munjang.recipes.augmenting.result import AugmentResult
from munjang.recipes.augmenting.running import augmented
from munjang.recipes.augmenting.sampling import Sampling
from munjang.recipes.options import SetOptions
from munjang.recipes.reproduce.running import machine

StudyName = Literal["augmented-few", "augmented-none"]
Array = np.ndarray[Any, Any]
Say = Callable[[str], None]

ROWS: dict[str, tuple[Strategy, ...]] = {
    "semantic": ("semantic",),
    "BM25": ("bm25",),
    "random": ("random",),
    "KDE": ("kde",),
    "BM25 + semantic": ("bm25", "semantic"),
}
LABELLED = "labelled pairs alone"
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
                cross_encoder=first.cross[0].model,
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
    """Run a study; its results, which also lie in folder/results.json. What is there already is not run again."""
    study = STUDIES[name]
    test = load_dataset(*study.test, data)
    job = _Job(study, Path(model), Path(data), Path(folder), setup, test)
    assert test.targets is not None
    results: dict[str, Any] = {"study": name, "title": study.title, "test": test.name, "rows": len(test), "seeds": {}}
    cosines: dict[str, list[Array]] = {}
    for seed in setup.seeds:
        found: dict[str, Any] = {}
        first: AugmentResult | None = None
        for row in setup.strategies:
            result = job.run(seed, row, first)
            if first is None:
                first = result
                assert result.baseline is not None
                baseline = BiEncoder.load(result.baseline.model)
                results["machine"] = machine(baseline.device)
                cosines.setdefault(LABELLED, []).append(_cosines(baseline, test))
                found[LABELLED] = {"spearman": spearman(test.targets, cosines[LABELLED][-1])}
                found["cross-encoder"] = _cross(result)
                say(f"seed {seed}, {LABELLED}: {100 * found[LABELLED]['spearman']:.2f}")
            cosines.setdefault(row, []).append(_cosines(result.model, test))
            found[row] = _row(result, test.targets, cosines[row][-1], cosines[LABELLED][-1])
            say(f"seed {seed}, {row}: {100 * found[row]['spearman']:.2f}, {found[row]['silver']:,} silver pairs")
        results["seeds"][str(seed)] = found
        results["mean"] = _means(test.targets, cosines)
        write_whole(Path(folder) / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    return results


def _cosines(model: BiEncoder, test: Examples) -> Array:
    return np.asarray(similarities(model, test).by_kind["cosine"])


def _row(result: AugmentResult, truth: Array, ours: Array, alone: Array) -> dict[str, Any]:
    gap = paired_bootstrap(spearman, (truth, ours), (truth, alone), samples=_DRAWS)
    return {
        "spearman": spearman(truth, ours),
        "difference": gap.value,
        "low": gap.low,
        "high": gap.high,
        "silver": result.silver.rows,
        "candidates": result.silver.candidates,
    }


def _cross(result: AugmentResult) -> dict[str, float]:
    """The labeller itself on the test set, where it was trained here."""
    return {one.name: one.value for one in (result.cross[0].test if result.cross else ())}


def _means(truth: Array, cosines: Mapping[str, Sequence[Array]]) -> dict[str, Any]:
    """Mean over the seeds, and of its difference to the labelled pairs alone an interval over the test rows."""
    alone = cosines[LABELLED]
    found: dict[str, Any] = {}
    for row, several in cosines.items():
        values = [spearman(truth, one) for one in several]
        found[row] = {"spearman": float(np.mean(values)), "deviation": float(np.std(values))}
        if row == LABELLED:
            continue
        gap = paired_bootstrap(
            _mean_spearman, (truth, np.stack(several, axis=1)), (truth, np.stack(alone, axis=1)), samples=_DRAWS
        )
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
    cross = [value for seed in seeds for value in results["seeds"][seed]["cross-encoder"].values()]
    if cross:
        lines += [
            "",
            f"The cross-encoder that labels has {100 * float(np.mean(cross)):.2f} itself (mean of the seeds).",
        ]
    return "\n".join(lines)
