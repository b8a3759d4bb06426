"""The one training loop, for bi- and cross-encoders, one process or several.

    tasks -> sequences (tokenised once) -> batches -> step (gradients) -> update -> now and then: evaluate, save

Enters: a model, data with objectives, settings, evaluators. Leaves: the model, changed in place to its best state, and
a run folder:

    config.json    what decided the run        log.jsonl     every step's loss, every evaluation
    checkpoints/   the last whole states, as long as the run is not finished
    model/         the trained model           result.json   what came out; written last

The same call on the same folder goes on where a killed or interrupted run stopped, and ends with the same weights as an
unbroken one. Another call on it is an error.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from munjang import evaluation
from munjang.checkpoint import CrossParts
from munjang.encoders import CrossEncoder
from munjang.errors import TrainingError
from munjang.evaluation import Evaluator, Scores
from munjang.files import OutputLock, atomic_write, disk_errors
from munjang.progress import Progress
from munjang.training import batching
from munjang.training.checkpointing import last_checkpoint, last_finished, write_checkpoint, write_finished
from munjang.training.graphs import StepGraphs
from munjang.training.interrupts import Interrupts
from munjang.training.log import RunLog, read_log
from munjang.training.lora import has_lora, merge_lora
from munjang.training.processes import Processes
from munjang.training.run import Task, TrainingResult, check_config, check_tasks, describe_run, identity_of
from munjang.training.sequences import Array
from munjang.training.settings import TrainingSettings, rate_at
from munjang.training.state import State, check_evaluators, chosen_metric, deciding, measurable
from munjang.training.stepping import Stepper, default_budget, work_of
from munjang.training.trainee import Model, Trainee, has_new_head, is_new_head
from munjang.training.updates import Updates
from munjang.types import Threshold

_SILENCE = 2.0  # seconds at most without a word
_KEPT = 2  # checkpoints of a run that is not finished
_SAVING = 0.1  # share of the time at most that checkpoints by time take


def train(
    model: Model,
    tasks: Sequence[Task],
    settings: TrainingSettings | None = None,
    *,
    folder: str | Path | None = None,
    evaluators: Sequence[Evaluator] = (),
    start: Sequence[Scores | None] | None = None,
    progress: Progress = False,
) -> TrainingResult:
    """Train a model in place; the best state by `settings.metric` wins, where there are evaluators.

    The model as given is one of these states (`TrainingResult.unchanged`), unless it cannot be measured: its head is
    new, or the metric needs a classifier that the training makes.

    folder: keeps log, checkpoints and the trained model, and makes the run resumable; None keeps nothing. Ctrl-C
    saves a checkpoint after the step at hand and raises KeyboardInterrupt; the same call goes on from there. start:
    what the evaluators say of the model as given; None measures it, () leaves it out of the choice.
    """
    settings = settings or TrainingSettings()
    cross = isinstance(model, CrossEncoder)
    check_tasks(model, tasks, cross)
    check_evaluators(evaluators, settings.metric)
    path = None if folder is None else Path(folder)
    with contextlib.ExitStack() as stack:
        processes = Processes.find(model.device)
        stack.enter_context(processes.needed())
        if path is not None and processes.first:
            with disk_errors(path, safe="nothing was trained yet"):
                path.mkdir(parents=True, exist_ok=True)
            stack.callback(OutputLock(path / ".lock", path).release)
        stack.enter_context(_at(model.device))
        thresholds, model.parts.thresholds = model.parts.thresholds, {}  # they belong to the weights that change now
        trainee = Trainee(model, settings.precision, settings.dropout)
        stack.callback(trainee.finish)  # whatever happens, the model computes again
        run = _Run(
            trainee,
            tasks,
            settings=settings,
            folder=path,
            evaluators=evaluators,
            start=start,
            thresholds=thresholds,
            processes=processes,
            progress=progress,
        )
        stack.callback(run.log.close)
        interrupts = stack.enter_context(Interrupts())
        return run.go(interrupts)


class _Run:
    """One run, from made ready to finished."""

    def __init__(
        self,
        trainee: Trainee,
        tasks: Sequence[Task],
        *,
        settings: TrainingSettings,
        folder: Path | None,
        evaluators: Sequence[Evaluator],
        start: Sequence[Scores | None] | None,
        thresholds: Mapping[str, Threshold],
        processes: Processes,
        progress: Progress,
    ) -> None:
        self.trainee, self.model, self.tasks = trainee, trainee.model, tasks
        self.settings, self.folder = settings, folder
        self.evaluators, self.processes = list(evaluators), processes
        self.start, self.thresholds = start, thresholds
        self.first_stage_weight, self.model.parts.first_stage_weight = self.model.parts.first_stage_weight, 0.0
        self.description = describe_run(self.model, tasks, settings, evaluators=evaluators)
        self.identity = identity_of(self.description)
        for task in tasks:
            task.objective.forget()
        for task in tasks:
            task.objective.meet(self.model)
            task.objective.prepare(task.examples, self.trainee.dimension)
            task.objective.to(self.trainee.device)
        self.works = [work_of(task.examples, task.objective, self.trainee, weight=task.weight) for task in tasks]
        self.sources = [
            batching.source_of(
                task.examples,
                task.batch_size or settings.batch_size,
                unique_texts=task.objective.unique_texts,
                share=task.share,
            )
            for task in tasks
        ]
        self.per_epoch = batching.steps_per_epoch(self.sources)
        self.steps = settings.step_count(self.per_epoch)
        self.warm_up = settings.warm_up_steps(self.steps)
        self.updates = Updates(self.trainee, [task.objective for task in tasks], settings)
        budget = settings.token_budget or default_budget(self.trainee.device, self._parameters())
        self.stepper = Stepper(self.trainee, self.updates, processes, budget=budget, seed=settings.seed)
        self.graphs = StepGraphs(self.stepper) if self.stepper.fills else None
        self.log = RunLog(folder, steps=self.steps, progress=progress, first=processes.first)
        self.state = State()
        self.waiting: list[tuple[int, int, Tensor, Tensor, float, int]] = []  # steps whose losses nobody saw yet
        self.resumed_from: int | None = None
        self.saved = time.perf_counter()  # when the last checkpoint was written, and how long to the next one
        self.between = settings.save_seconds

    def _parameters(self) -> int:
        return sum(weight.numel() for _, weight in self.trainee.named_weights())

    # --- the run -----------------------------------------------------------------------------------------------------

    def go(self, interrupts: Interrupts) -> TrainingResult:
        finished = self._resume()
        if finished is not None:
            return finished
        self.trainee.train()
        stream = batching.batches(
            self.sources,
            sampling=self.settings.sampling,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
        )
        state = self.state
        if state.step == 0:
            self._measure_start()
        self.saved = began = time.perf_counter()
        for number, rows in batching.skip(stream, state.step):
            if state.step >= self.steps or state.stopped:
                break
            self._step(number, rows)
            look = state.step % self.settings.log_every == 0 or state.step == self.steps
            # A slow machine is heard from before so many steps are done.
            look |= self.processes.count == 1 and time.perf_counter() - began > _SILENCE
            due = self._evaluation_due()
            save = self.settings.save_every is not None and state.step % self.settings.save_every == 0
            # Of several processes, all look after the same steps, whenever a signal reaches each.
            if look or due or save or (interrupts.asked and self.processes.count == 1):
                self._look(time.perf_counter() - began)
                state.seconds += time.perf_counter() - began
                asked = self.processes.any(interrupts.asked)
                if due:
                    state.stopped = self._evaluate()
                over = state.stopped or state.step == self.steps
                if self.settings.save_every is None:
                    save = time.perf_counter() - self.saved >= self.between
                # The model itself is saved next: the last state is written where checkpoints stay.
                if self.settings.keep_checkpoints is not None if over else save or asked:
                    self._save()
                if asked and not over:
                    self._interrupted()
                began = time.perf_counter()
        return self._finish()

    def _step(self, number: int, rows: Array) -> None:
        state, work = self.state, self.works[number]
        factor = rate_at(state.step, self.steps, self.warm_up, self.settings.schedule)
        self.updates.set_rates(factor)
        replayed = None if self.graphs is None else self.graphs(work, number, rows, state.step)
        if replayed is None:
            loss = self.stepper(work, rows, state.step)
            norm = self.updates.apply(loss)
        else:
            loss, norm = replayed
        tokens = work.sequences.count(rows)
        state.step += 1
        state.tokens += tokens
        state.rows += len(rows)
        self.waiting.append((state.step, number, loss, norm, factor * self.settings.learning_rate, tokens))

    def _evaluation_due(self) -> bool:
        every = self.settings.evaluate_every or self.per_epoch
        return bool(self.evaluators) and (self.state.step % every == 0 or self.state.step == self.steps)

    def _look(self, seconds: float) -> None:
        """Fetch the losses of the last steps, log them, and stop where one was not finite."""
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        values = torch.stack([torch.stack((loss, norm)) for _, _, loss, norm, _, _ in waiting]).tolist()
        records: list[dict[str, object]] = []
        broken = bool(self.updates.broken.item())
        for (step, number, _, _, rate, tokens), (loss, norm) in zip(waiting, values, strict=True):
            name = self.works[number].name
            records.append(
                {
                    "step": step,
                    "epoch": round(step / self.per_epoch, 4),
                    "task": name,
                    "loss": loss,
                    "norm": norm if np.isfinite(norm) else None,  # float16 overflows now and then
                    "rate": rate,
                    "tokens": tokens,
                }
            )
            if broken and not (np.isfinite(loss) and (np.isfinite(norm) or self.updates.scaled)):
                self.log.write(records[:-1])
                self._broken(step, loss, norm)
        if broken:
            self._broken(waiting[-1][0], *values[-1])
        self.state.remember(records)
        self.log.write(records)
        speed = self.state.tokens / max(self.state.seconds + seconds, 1e-9)
        self.log.tell(
            self.state.step,
            {"loss": f"{values[-1][0]:.4f}", "rate": f"{waiting[-1][4]:.2e}", "tokens/s": f"{speed:,.0f}"},
        )

    def _broken(self, step: int, loss: float, norm: float) -> NoReturn:
        """Save the batch that gave no number, and stop; the weights are those from before it."""
        stream = batching.batches(
            self.sources,
            sampling=self.settings.sampling,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
        )
        number, rows = next(batching.skip(stream, step - 1))
        where = "no folder was given to save its batch in"
        if self.folder is not None and self.processes.first:
            path = self.folder / "bad-batch.jsonl"
            examples = self.tasks[number].examples
            lines = [json.dumps({"row": int(i), **examples.row(int(i))}, ensure_ascii=False, default=str) for i in rows]
            atomic_write(path, ("\n".join(lines) + "\n").encode())
            where = f"its {len(rows)} rows are in {path}"
        self.processes.tell(0.0)
        raise TrainingError(
            f"step {step:,} on {self.works[number].name} gave a loss of {loss} and a gradient of norm {norm}; {where}. "
            "The weights are those from before this step. Look for broken targets in it; lower the learning rate, "
            "lengthen the warm-up, or train with precision='float32'"
        )

    def _interrupted(self) -> NoReturn:
        self.processes.tell(0.0)  # nobody leaves while the first still saves
        kept = f"saved in {self.folder}; the same command goes on from there" if self.folder else "nothing was saved"
        raise KeyboardInterrupt(f"interrupted after step {self.state.step:,} of {self.steps:,}: {kept}")

    # --- evaluating, saving, finishing -------------------------------------------------------------------------------

    def _evaluate(self) -> bool:
        """Measure; keep the weights if they are the best; whether patience is at an end."""
        state = self.state
        value = 0.0
        if self.processes.first:
            scores = self._scores(self.evaluators)
            metric, value = chosen_metric(scores, self.settings.metric)
            record: dict[str, object] = {
                "step": state.step,
                "epoch": round(state.step / self.per_epoch, 4),
                "evaluation": {score.name: score.values for score in scores},
                "main": value,
            }
            state.remember([record])
            self.log.write([record])
            self.log.say(f"step {state.step:,}: {metric} {value:.4f}")
        else:
            metric = self.settings.metric or f"{self.evaluators[0].name}/{self.evaluators[0].main}"
        (value,) = self.processes.tell(value)
        state.judge(metric, value, self.updates.average or self.updates.named)
        return self.settings.patience is not None and state.worse >= self.settings.patience

    def _measure_start(self) -> None:
        """Make the model as given a candidate for the best state, where it can be measured."""
        if not self.evaluators or has_new_head(self.model):
            return
        evaluator = deciding(self.evaluators, self.settings.metric)
        if not measurable(evaluator):
            return
        metric, value, known = self.settings.metric or f"{evaluator.name}/{evaluator.main}", 0.0, False
        if self.processes.first:
            given = self._scores([evaluator]) if self.start is None else self.start
            scores = [one for one in given if one is not None and one.name == evaluator.name]
            if scores:
                (metric, value), known = chosen_metric(scores, self.settings.metric), True
                if self.start is None:  # else whoever measured it has said it
                    self.log.say(f"before training: {metric} {value:.4f}")
        value, told = self.processes.tell(value, float(known))
        if told:
            self.state.judge(metric, value, self.updates.average or self.updates.named)

    def _scores(self, evaluators: Sequence[Evaluator]) -> list[Scores]:
        self.trainee.train(False)
        self.updates.swap_average()
        try:
            self.model.refresh()
            return evaluation.evaluate(self.model, evaluators)
        finally:
            self.updates.swap_average()
            self.trainee.train()

    def _save(self) -> None:
        if self.folder is None or not self.processes.first:
            return
        state, began = self.state, time.perf_counter()
        budget = {"budget": self.stepper.budget, "budget_asked": self.settings.token_budget}
        facts = {"identity": self.identity, **budget, **state.facts()}
        write_checkpoint(
            self.folder / "checkpoints",
            state.step,
            [*self.updates.state(), *state.tensors()],
            facts,
            keep=self.settings.keep_checkpoints or _KEPT,
        )
        self.saved = time.perf_counter()
        self.between = max(self.settings.save_seconds, (self.saved - began) / _SAVING)

    def _resume(self) -> TrainingResult | None:
        """Go on from the last checkpoint where there is one; the result where the run was finished already."""
        self.processes.check_same(self.identity)
        if self.folder is None:
            return None
        if self.processes.first:
            check_config(self.folder / "config.json", self.identity, self.description)
        finished = last_finished(self.folder, self.processes, cross=isinstance(self.model, CrossEncoder))
        if finished is not None:
            return self._recall(*finished)
        if self.processes.first:
            (self.folder / "result.json").unlink(missing_ok=True)  # its model is gone
        found = last_checkpoint(self.folder / "checkpoints", self.processes)
        if found is None:
            self.log.cut_back(0)
            return None
        self._restore(*found)
        return self._finish() if self.state.step >= self.steps or self.state.stopped else None

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        assert self.folder is not None
        state = self.state
        self.updates.restore(tensors)
        state.restore(facts, tensors, self.trainee.device)
        if self.settings.token_budget == facts["budget_asked"]:
            self.stepper.budget = int(facts["budget"])  # which a lack of memory may have halved
        self.resumed_from = state.step
        if self.processes.first:
            state.remember([record for record in read_log(self.folder / "log.jsonl") if record["step"] <= state.step])
        told = self.processes.tell_state(({}, {"records": state.memories()}))
        if told is not None and not self.processes.first:
            state.remember(told[1]["records"])
        self.log.cut_back(state.step)
        if state.step < self.steps:
            self.log.say(f"going on after step {state.step:,} of {self.steps:,}")

    def _recall(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> TrainingResult:
        """Take over the weights and the result of a finished run."""
        parts = self.model.parts
        if has_lora(parts.body):
            merge_lora(parts.body)  # as the saved model is
        head = parts.head if isinstance(parts, CrossParts) else parts.heads
        for module, prefix in ((parts.body, "body."), (head, "head.")):
            mine = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
            module.load_state_dict(mine)
        with torch.no_grad():
            for name, weight in self.updates.named.items():
                if name.startswith("objective."):
                    weight.copy_(tensors[name])
        assert self.folder is not None
        result = replace(TrainingResult.from_dict(facts, self.folder), resumed_from=facts["steps"])
        self._leave(result)
        self._tidy()
        return result

    def _finish(self) -> TrainingResult:
        state = self.state
        source = state.best_weights or self.updates.average
        with torch.no_grad():
            for name, tensor in source.items():
                self.updates.named[name].copy_(tensor)
        device = self.trainee.device
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        result = TrainingResult(
            folder=self.folder,
            steps=state.step,
            epochs=state.step / self.per_epoch,
            seconds=state.seconds,
            tokens=state.tokens,
            rows=state.rows,
            losses={name: float(np.mean(values)) for name, values in state.recent.items()},
            best=state.best,
            evaluations=state.evaluations,
            truncated={work.name: work.sequences.truncated for work in self.works},
            stopped_early=state.stopped,
            resumed_from=self.resumed_from,
            peak_memory=peak,
            start=state.start,
        )
        self._leave(result)
        if self.folder is not None and self.processes.first:
            with disk_errors(self.folder, safe="make room and run the same command again: it resumes"):
                self.model.save(self.folder / "model")
                objectives = {name: one for name, one in self.updates.named.items() if name.startswith("objective.")}
                write_finished(self.folder, objectives, result.as_dict())
            self._tidy()
        self.processes.tell(0.0)  # the saved model is there for everybody
        return result

    def _leave(self, result: TrainingResult) -> None:
        """Make the model an ordinary one again."""
        parts = self.model.parts
        parts.notes[:] = [note for note in parts.notes if not is_new_head(note)]
        if result.unchanged:
            parts.thresholds, parts.first_stage_weight = self.thresholds, self.first_stage_weight
        self.trainee.finish()

    def _tidy(self) -> None:
        """Remove the checkpoints of a finished run, unless they were asked for."""
        if self.folder is not None and self.processes.first and self.settings.keep_checkpoints is None:
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)


@contextlib.contextmanager
def _at(device: torch.device) -> Iterator[None]:
    """The model's device is the current one meanwhile. Training seeds torch's generators; the caller's are put back."""
    state = torch.get_rng_state()
    state_cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            yield
    finally:
        torch.set_rng_state(state)
        if state_cuda is not None:
            torch.cuda.set_rng_state(state_cuda, device)
