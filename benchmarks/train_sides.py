"""The two trainers behind one shape: `train(job, clock)` trains a fresh model and leaves its vectors' model behind.

Both load the same folder, see the same rows, and take steps of the same size with the same optimiser settings: AdamW
(fused), weight decay 0.01 on matrices, linear schedule with a warm-up of a tenth, gradients clipped at 1. The clock is
told of steps; it waits for the device at its two ends and nowhere else.

sentence-transformers' own trainer asks for the package `datasets`. Rows in a plain list stand in for it here: they are
quicker than Arrow tables, so the peer loses nothing. Its check for losses that are not a number, which waits for the
device in every step, is switched off too.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.sides import fresh_tokenizer, load_peer
from munjang.data import Examples

WEIGHT_DECAY, CLIP, WARM_UP = 0.01, 1.0, 0.1


@dataclass(frozen=True)
class Job:
    """One training, whoever does it."""

    folder: Path
    device: str
    objective: str  # softmax or mnrl
    examples: Examples
    batch_size: int
    steps: int
    learning_rate: float
    max_length: int
    seed: int = 0


@dataclass
class Clock:
    """Seconds from the end of step `first` to the end of step `last`; `device` is waited for at both."""

    first: int
    last: int
    device: str
    marks: dict[int, float] = field(default_factory=dict)

    def tick(self, step: int) -> None:
        if step in (self.first, self.last) and step not in self.marks:
            if self.device.startswith("cuda"):
                import torch

                torch.cuda.synchronize()
            self.marks[step] = time.perf_counter()

    @property
    def seconds(self) -> float:
        missing = [step for step in (self.first, self.last) if step not in self.marks]
        if missing:
            raise RuntimeError(
                f"the clock was never told of step {missing[0]}: the training was shorter, or skipped it"
            )
        return self.marks[self.last] - self.marks[self.first]

    @property
    def steps(self) -> int:
        return self.last - self.first


class TrainSide(Protocol):
    """One trainer with its settings."""

    name: str

    def train(self, job: Job, clock: Clock | None) -> Any:
        """A munjang.BiEncoder with the trained weights, computing in float32."""


class Ours:
    """Munjang; `before` is what it does once before the first step, for every row: tokenising."""

    def __init__(self, precision: str = "auto") -> None:
        self.precision = precision
        self.name = f"Munjang {precision}"

    def train(self, job: Job, clock: Clock | None) -> Any:
        from munjang.training import Task, TrainingSettings, objectives, train

        model = _load_ours(job.folder, job)
        settings = TrainingSettings(
            max_steps=job.steps,
            batch_size=job.batch_size,
            learning_rate=job.learning_rate,
            warm_up=WARM_UP,
            weight_decay=WEIGHT_DECAY,
            max_grad_norm=CLIP,
            precision=self.precision,  # type: ignore[arg-type]
            seed=job.seed,
            # As often as by default, unless the clock's first step would fall between two looks.
            log_every=10 if clock is None or clock.first % 10 == 0 else 1,
        )
        objective = objectives.Softmax(seed=job.seed) if job.objective == "softmax" else objectives.Ranking()
        progress: Callable[[int, int | None], None] | bool = False
        if clock is not None:

            def progress(step: int, total: int | None) -> None:
                del total
                clock.tick(step)

        result = train(model, [Task(job.examples, objective)], settings, progress=progress)
        if result.rows != job.steps * job.batch_size:
            raise RuntimeError(f"{job.steps} steps took {result.rows} rows: not every batch was full")
        return model

    def before(self, job: Job) -> float:
        """Seconds for all rows of the job, by a tokenizer that has met no word yet."""
        from munjang.training import batching, objectives
        from munjang.training.sequences import Sequences
        from munjang.training.trainee import Trainee

        model = _load_ours(job.folder, job, device="cpu")
        trainee = Trainee(model, "float32")
        model.parts.tokenizer = fresh_tokenizer(job.folder, job.max_length)
        unique = job.objective == "mnrl" and objectives.Ranking.unique_texts
        started = time.perf_counter()
        Sequences(trainee.streams(job.examples))
        batching.source_of(job.examples, job.batch_size, unique_texts=unique)
        return time.perf_counter() - started


class Peer:
    """sentence-transformers' SentenceTransformerTrainer in one precision with so many loader processes."""

    def __init__(self, precision: str = "float32", workers: int = 0) -> None:
        self.precision, self.workers = precision, workers
        self.name = f"sentence-transformers {precision}, {workers} loader processes"

    def train(self, job: Job, clock: Clock | None) -> Any:
        import torch

        if job.device.startswith("cuda") and torch.cuda.device_count() > 1:
            raise RuntimeError("its trainer would use every GPU: set CUDA_VISIBLE_DEVICES to one")
        if self.workers:  # set to true it would hang forked processes; unset, tokenizers looks after them
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        model = load_peer(job.folder, job.device)
        model.max_seq_length = job.max_length
        with tempfile.TemporaryDirectory(prefix="munjang-bench-") as scratch:
            trainer = self._trainer(model, job, clock, scratch)
            trainer.train()
            folder = Path(scratch) / "model"
            model.save(str(folder))
            del trainer, model
            return _load_ours(folder, job)

    def _trainer(self, model: Any, job: Job, clock: Clock | None, scratch: str) -> Any:
        import torch
        import transformers
        from sentence_transformers import SentenceTransformerTrainingArguments

        trainer_class, has_zeroing = peer_trainer()
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            max_steps=job.steps,
            per_device_train_batch_size=job.batch_size,
            learning_rate=job.learning_rate,
            warmup_steps=int(WARM_UP * job.steps),
            weight_decay=WEIGHT_DECAY,
            max_grad_norm=CLIP,
            fp16=self.precision == "float16",
            bf16=self.precision == "bfloat16",
            dataloader_num_workers=self.workers,
            dataloader_persistent_workers=self.workers > 0,
            logging_nan_inf_filter=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not job.device.startswith("cuda"),
            seed=job.seed,
        )

        class Listener(transformers.TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
                del args, control
                if not has_zeroing:
                    given["optimizer"].zero_grad()
                if clock is not None:
                    clock.tick(state.global_step)

        columns: dict[str, list[Any]] = dict(job.examples.columns)
        if job.examples.targets is not None:
            columns["label"] = job.examples.targets.tolist()
        torch.manual_seed(job.seed)
        trainer = trainer_class(
            model=model,
            args=arguments,
            train_dataset=Rows(columns),
            loss=_peer_loss(model, job),
            callbacks=[Listener()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer


class Rows:
    """Rows in memory: all that the trainer asks of a `datasets.Dataset`."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.column_names = list(columns)
        self._rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self._rows[place]


def peer_trainer() -> tuple[Any, bool]:
    """Its trainer, taking `Rows`; and whether it clears the gradients of the loss's own weights.

    6.0.1 clears only the model's: those of the softmax layer add up from step to step. 6.2 clears both. Both sides are
    to do the same here, so where the trainer does not clear them, the benchmark does.
    """
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers.base import trainer as module

    patched: Any = module
    patched.Dataset = Rows
    for name in ("DatasetDict", "IterableDataset", "IterableDatasetDict"):
        if not hasattr(module, name):
            setattr(module, name, type(name, (), {}))
    patched.is_training_available = lambda: True

    class WithoutCard(SentenceTransformerTrainer):
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """No card: it would look the rows' package up on the hub."""

    return WithoutCard, hasattr(module, "_OptimizerZeroGradCallback")


def _peer_loss(model: Any, job: Job) -> Any:
    from sentence_transformers.sentence_transformer import losses

    if job.objective == "mnrl":
        return losses.MultipleNegativesRankingLoss(model)
    return losses.SoftmaxLoss(model, model.get_embedding_dimension(), len(job.examples.labels))


def _load_ours(folder: Path, job: Job, device: str | None = None) -> Any:
    import munjang

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes about random models
        return munjang.load(folder, device=device or job.device, dtype="float32", max_length=job.max_length)


def tidy(device: str) -> None:
    """Between two trainings: nothing of the one before is left on the device."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
