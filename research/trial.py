"""One row of a table with one seed: a fresh model, its stages of training, its scores.

Nothing is chosen by a development set: the weights after the last step are measured. What decides the outcome makes
the trial's key; two tables that share a row share the trial.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import nn

from munjang import evaluation
from munjang.bi_encoder import BiEncoder
from munjang.checkpoint import ModelParts
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import InputError
from munjang.evaluation.metrics import pearson, spearman
from munjang.nn.encoder import Encoder
from munjang.nn.pooling import Pooling
from munjang.training import Task, TrainingResult, TrainingSettings, objectives, train
from munjang.training.run import data_hash
from munjang.training.settings import Precision
from munjang.training.trainee import precision_for
from research.material import Language, Material
from research.studies import Row, Stage

SMALL = 50_000_000  # parameters; below, a body learns at a higher rate
SMALL_RATE, RATE = 1e-4, 2e-5  # of small bodies, as others found; of BERT-base, as in the paper
CROSS_SEED = 1  # added to a seed for the second head of a cross-encoder


@dataclass(frozen=True)
class Setup:
    """How all trials of a study are run."""

    language: Language = "english"
    random: bool = False  # random weights instead of the model's
    seeds: tuple[int, ...] = (0,)
    batch_size: int = 64  # the paper: 16
    nli_epochs: float = 1.0
    sts_epochs: float = 4.0
    learning_rate: float | None = None  # None: by the size of the body
    max_length: int = 128
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be different whole numbers from 0 on, got {self.seeds}")

    def training(self, stage: Stage, base: BiEncoder, seed: int) -> TrainingSettings:
        """The settings of one stage."""
        size = sum(weight.numel() for weight in base.parts.body.parameters())
        rate = self.learning_rate if self.learning_rate is not None else SMALL_RATE if size < SMALL else RATE
        return TrainingSettings(
            epochs=self.nli_epochs if stage == "nli" else self.sts_epochs,
            batch_size=self.batch_size,
            learning_rate=rate,
            precision=self.precision,
            seed=seed,
            log_every=50,
        )


@dataclass(frozen=True)
class Trial:
    """A row and a seed."""

    row: Row
    seed: int


@dataclass(frozen=True)
class Measured:
    """One set's scores."""

    name: str
    rows: int
    data: str  # hash of the set
    spearman: float
    pearson: float


def describe(trial: Trial, base: BiEncoder, material: Material, setup: Setup) -> dict[str, object]:
    """Everything that decides a trial's weights; the key is its hash."""
    row = trial.row
    stages = []
    for stage in row.stages:
        settings = setup.training(stage, base, trial.seed)
        stages.append(
            {
                "stage": stage,
                "data": material.train[stage].name,
                "rows": len(material.train[stage]),
                "hash": data_hash(material.train[stage]),
                "epochs": settings.epochs,
                "learning rate": settings.learning_rate,
                "objective": _objective_name(row, stage),
            }
        )
    return {
        "kind": row.kind,
        "pooling": row.pooling if row.kind == "bi" else "cls",
        "parts": list(row.parts) if row.kind == "bi" and "nli" in row.stages else [],
        "stages": stages,
        "seed": trial.seed,
        "random": setup.random,
        "model": base.fingerprint,
        "language": setup.language,
        "batch size": setup.batch_size,
        "max length": setup.max_length,
        "precision": str(precision_for(base.device, setup.precision)).removeprefix("torch."),
    }


def key_of(description: dict[str, object]) -> str:
    text = json.dumps(description, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def run_trial(trial: Trial, base: BiEncoder, material: Material, setup: Setup) -> dict[str, object]:
    """Train and measure: what goes into the file of results beside the description."""
    started = time.perf_counter()
    parts = fresh_parts(trial, base, random=setup.random)
    model: BiEncoder | CrossEncoder
    if trial.row.kind == "bi":
        model, runs = _bi_encoder(trial, parts, base, material, setup)
    else:
        model, runs = _cross_encoder(trial, parts, base, material, setup)
    trained = time.perf_counter()
    scores = {column: asdict(measure(model, examples)) for column, examples in material.measured.items()}
    return {
        "scores": scores,
        "training seconds": round(sum(run.seconds for run in runs), 3),
        "seconds": round(time.perf_counter() - started, 3),
        "measuring seconds": round(time.perf_counter() - trained, 3),
        "steps": sum(run.steps for run in runs),
        "rows": sum(run.rows for run in runs),
        "tokens": sum(run.tokens for run in runs),
        "losses": [run.losses for run in runs],
        "truncated": [run.truncated for run in runs],
    }


def fresh_parts(trial: Trial, base: BiEncoder, *, random: bool) -> ModelParts:
    """A copy of the body, or the same body with random weights; the row's pooling, and nothing after it."""
    body = copy.deepcopy(base.parts.body)
    leftover = base.parts.leftover
    if random:
        if not isinstance(body, Encoder):
            raise InputError(f"random weights need a body of ours, got {type(body).__name__}: choose another model")
        body.initialise(torch.Generator().manual_seed(trial.seed))
        leftover = {}
    pooling = Pooling((trial.row.pooling,))
    return replace(base.parts, body=body, pooling=pooling, heads=nn.ModuleList(), leftover=leftover, truncate_dim=None)


def measure(model: BiEncoder | CrossEncoder, examples: Examples) -> Measured:
    """Spearman and Pearson of a model on a scored set; of several labels, of the probability of entailment."""
    if isinstance(model, CrossEncoder) and len(model.labels) > 1:
        pairs = list(zip(examples.columns["a"], examples.columns["b"], strict=True))
        scores = model.predict_report(pairs).scores[:, model.labels.index("entailment")]
        truth = np.asarray(examples.targets)
        values = {"spearman": spearman(truth, scores), "pearson": pearson(truth, scores)}
    else:
        values = evaluation.StsEvaluator(examples)(model).values
    return Measured(examples.name, len(examples), data_hash(examples), values["spearman"], values["pearson"])


def _objective_name(row: Row, stage: Stage) -> str:
    if row.kind == "bi":
        return "softmax" if stage == "nli" else "cosine MSE"
    return "cross-entropy" if stage == "nli" else "binary cross-entropy"


def _bi_encoder(
    trial: Trial, parts: ModelParts, base: BiEncoder, material: Material, setup: Setup
) -> tuple[BiEncoder, list[TrainingResult]]:
    model = BiEncoder(parts, device=base.device, dtype="float32")
    runs = []
    for stage in trial.row.stages:
        objective = objectives.Softmax(trial.row.parts, seed=trial.seed) if stage == "nli" else objectives.CosineMse()
        settings = setup.training(stage, base, trial.seed)
        runs.append(train(model, [Task(material.train[stage], objective)], settings))
    return model, runs


def _cross_encoder(
    trial: Trial, parts: ModelParts, base: BiEncoder, material: Material, setup: Setup
) -> tuple[CrossEncoder, list[TrainingResult]]:
    """Each stage has a head of its own: three labels, or one score; the body goes on."""
    model: CrossEncoder | None = None
    runs = []
    for number, stage in enumerate(trial.row.stages):
        if model is not None and isinstance(model.parts.body, Encoder):
            parts = replace(parts, body=model.parts.body)
        data = material.train[stage]
        model = CrossEncoder.from_body(
            parts,
            data.labels if stage == "nli" else 1,
            seed=trial.seed + CROSS_SEED * number,
            device=base.device,
            dtype="float32",
        )
        objective = objectives.CrossEntropy() if stage == "nli" else objectives.CrossScore("bce")
        runs.append(train(model, [Task(data, objective)], setup.training(stage, base, trial.seed)))
    if model is None:
        raise InputError(f"{trial.row.name}: a cross-encoder that is not trained has no scores")
    return model, runs
