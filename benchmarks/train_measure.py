"""Speed and quality of the two trainers, and the records they leave. Nothing here passes or fails.

Speed: the peer's settings are tried on a short training each, the quickest then takes turns with Munjang. Quality: the
same number of epochs with the same settings and several seeds; both models are measured by one evaluator.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.timing import Ratio, progress
from benchmarks.train_data import Corpus
from benchmarks.train_sides import Clock, Job, Ours, Peer, TrainSide, tidy

CUDA_PEERS = (("float32", 0), ("float16", 0), ("float16", 4), ("bfloat16", 0), ("bfloat16", 4))
CPU_PEERS = (("float32", 0),)
Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much is timed."""

    steps: int  # of a training, those of the warm-up too
    warm_up: int  # steps before the clock starts
    repeats: int
    search_steps: int  # of a training that compares the peer's settings

    def clock(self, device: str, *, search: bool = False) -> Clock:
        return Clock(self.warm_up, self.search_steps if search else self.steps, device)


def timed_training(side: TrainSide, job: Job, clock: Clock) -> float:
    """Seconds of the timed steps."""
    tidy(job.device)
    side.train(replace(job, steps=clock.last), clock)
    return clock.seconds


def best_peer(job: Job, plan: Plan, *, peers: Sequence[tuple[str, int]]) -> tuple[Peer, dict[str, float]]:
    """The quickest of the peer's settings, and the milliseconds a step of each took."""
    tried: dict[str, float] = {}
    sides = [Peer(precision, workers) for precision, workers in peers]
    if len(sides) == 1:
        return sides[0], tried
    for side in sides:
        progress(f"looking for the peer's best setting: {side.name}")
        clock = plan.clock(job.device, search=True)
        tried[side.name] = 1000 * timed_training(side, job, clock) / clock.steps
    return min(sides, key=lambda side: tried[side.name]), tried


def measure_speed(job: Job, plan: Plan, *, tokens: float) -> Record:
    """Both sides in turns, `repeats` times; `tokens` is the mean of a row, of all its texts, padding not counted.

    Munjang tokenises before its first step. What that takes for the rows of the timed steps is added to its seconds:
    the peer does it inside its steps.
    """
    cuda = job.device.startswith("cuda")
    peer, tried = best_peer(job, plan, peers=CUDA_PEERS if cuda else CPU_PEERS)
    ours = Ours()
    sides: tuple[TrainSide, ...] = (peer, ours)
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    before: list[float] = []
    rows = plan.clock(job.device).steps * job.batch_size
    for number in range(plan.repeats):
        for side in sides:
            progress(f"round {number + 1} of {plan.repeats}: {job.objective}, {side.name}")
            seconds[side.name].append(timed_training(side, job, plan.clock(job.device)))
        before.append(ours.before(job) * rows / len(job.examples))
    progress("")
    return {
        "rows": rows,
        "steps": plan.clock(job.device).steps,
        "tokens a row": tokens,
        "peer": peer.name,
        "ours": ours.name,
        "tried": tried,
        "seconds": seconds,
        "tokenising seconds": before,
    }


def speed_ratio(record: Record) -> Ratio:
    """How many times sooner Munjang is done with the timed rows, tokenising included, round by round."""
    pairs = zip(record["seconds"][record["peer"]], our_seconds(record), strict=True)
    each = [their / our for their, our in pairs]
    return Ratio(statistics.median(each), min(each), max(each))


def our_seconds(record: Record) -> list[float]:
    """Munjang's seconds of every round, tokenising included."""
    steps, before = record["seconds"][record["ours"]], record["tokenising seconds"]
    return [one + other for one, other in zip(steps, before, strict=True)]


def measure_quality(job: Job, corpus: Corpus, *, epochs: float, seeds: Sequence[int], peer: Peer) -> Record:
    """Spearman of both sides after the same epochs, for every seed, by the same evaluator."""
    from munjang.evaluation import StsEvaluator

    steps = max(1, round(epochs * len(job.examples) / job.batch_size))
    sides: tuple[TrainSide, ...] = (peer, Ours())
    found: dict[str, dict[str, list[float]]] = {side.name: {name: [] for name in corpus.measured} for side in sides}
    for seed in seeds:
        for side in sides:
            progress(f"quality: {job.objective}, seed {seed}, {side.name}")
            tidy(job.device)
            model = side.train(replace(job, steps=steps, seed=seed), None)
            for name, examples in corpus.measured.items():
                found[side.name][name].append(float(StsEvaluator(examples)(model).values["spearman"]))
    progress("")
    return {
        "epochs": epochs,
        "steps": steps,
        "seeds": list(seeds),
        "peer": peer.name,
        "ours": sides[1].name,
        "spearman": found,
    }


def mean_tokens(job: Job) -> float:
    """Tokens of a row, of all its texts together, after cutting; special tokens included."""
    from benchmarks.sides import fresh_tokenizer

    tokenizer = fresh_tokenizer(job.folder, job.max_length)
    columns = job.examples.columns.values()
    return sum(float(tokenizer.encode(texts).lengths.sum()) for texts in columns) / len(job.examples)
