"""The options of training commands that are fields of TrainingSettings, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from munjang.cli.options import positive


@dataclass(frozen=True)
class Setting:
    """An option that is a field of TrainingSettings."""

    flag: str
    field: str
    type: Callable[[str], object]
    help: str
    choices: tuple[str, ...] | None = None


SETTINGS = (
    Setting("--epochs", "epochs", float, "passes over the data"),
    Setting("--max-steps", "max_steps", positive, "stop after so many steps; wins over --epochs"),
    Setting("--batch-size", "batch_size", positive, "rows (of ranked data: queries) in a step"),
    Setting("--learning-rate", "learning_rate", float, "highest learning rate"),
    Setting("--embedding-rate", "embedding_rate", float, "learning rate of the embedding tables"),
    Setting("--head-rate", "head_rate", float, "learning rate of new heads"),
    Setting("--warm-up", "warm_up", float, "share of the steps (0.1), or steps from 1 on"),
    Setting("--schedule", "schedule", str, "of the learning rate (linear)", ("linear", "cosine", "constant")),
    Setting("--weight-decay", "weight_decay", float, "of AdamW (0.01)"),
    Setting("--max-grad-norm", "max_grad_norm", float, "clip gradients to this norm (1)"),
    Setting("--dropout", "dropout", float, "instead of the model's own"),
    Setting("--precision", "precision", str, "auto: bfloat16 on GPUs that have it, else float32",
             ("auto", "float32", "bfloat16", "float16")),
    Setting("--token-budget", "token_budget", positive, "tokens on the device at a time (by its memory)"),
    Setting("--sampling", "sampling", str, "how several sets share the steps (proportional)",
             ("proportional", "round_robin", "temperature")),
    Setting("--temperature", "temperature", float, "of --sampling temperature (2)"),
    Setting("--ema", "ema", float, "decay of an average of the weights, which is then saved, such as 0.999"),
    Setting("--eval-every", "evaluate_every", positive, "steps between evaluations (an epoch; 4 in short runs)"),
    Setting("--save-every", "save_every", positive, "steps between checkpoints (by time)"),
    Setting("--save-seconds", "save_seconds", float, "seconds between checkpoints (60)"),
    Setting("--keep-checkpoints", "keep_checkpoints", positive,
            "keep the last N, also when the run is finished (2 while it runs, then none)"),
    Setting("--patience", "patience", positive, "stop after so many evaluations without a better score"),
    Setting("--metric", "metric", str, "SET/metric that chooses the model (the first development set's)"),
    Setting("--log-every", "log_every", positive, "steps between looks at the loss (10)"),
)  # fmt: skip
