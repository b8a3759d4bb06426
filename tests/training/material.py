"""A tiny random model on disk, small data that we wrote, and whole runs as functions that another process can call."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors

from munjang.bi_encoder import BiEncoder
from munjang.checkpoint import ModelParts
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.evaluation import StsEvaluator
from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of
from munjang.nn.pooling import Pooling
from munjang.text.tokenizer import Tokenizer
from munjang.training import Task, TrainingResult, TrainingSettings, objectives, train
from munjang.training.trainee import Trainee

WHO = ["a man", "the woman", "one child", "my friend", "한 남자가", "그 여자는", "아이들이", "우리 개가"]
DOES = ["plays the guitar", "eats noodles", "reads", "sleeps outside all day", "기타를 친다", "국수를 먹는다", "잔다"]
WHERE = ["at home", "in Seoul", "by the long wide river", "집에서", "서울에서", "강가에서", ""]
NLI = ("entailment", "neutral", "contradiction")
EVERY = [f"{who} {does} {where}".strip() for who in WHO for does in DOES for where in WHERE]


# --- data ------------------------------------------------------------------------------------------------------------


def sentences(count: int, seed: int = 0) -> list[str]:
    """Different sentences of different lengths, the same every time; numbered where we run out of them."""
    order = np.random.default_rng(seed).permutation(len(EVERY))
    return [EVERY[order[i % len(EVERY)]] + (f" {i // len(EVERY)}" if i >= len(EVERY) else "") for i in range(count)]


def scored(count: int = 12, *, seed: int = 0, name: str = "our scores") -> Examples:
    targets = np.random.default_rng(seed + 7).permutation(np.linspace(0, 1, count)).astype(np.float32)
    return Examples(name, "scored", {"a": sentences(count, seed), "b": sentences(count, seed + 1)}, targets)


def binary(count: int = 12, *, name: str = "our yes and no") -> Examples:
    columns = {"a": sentences(count, 3), "b": sentences(count, 4)}
    return Examples(name, "scored", columns, (np.arange(count) % 2).astype(np.float32))


def labelled(count: int = 12, *, seed: int = 0, name: str = "our NLI") -> Examples:
    columns = {"a": sentences(count, seed + 5), "b": sentences(count, seed + 6)}
    return Examples(name, "labelled", columns, np.arange(count) % 3, NLI)


def pairs(count: int = 12, *, negatives: int = 0, taught: bool = False, name: str = "our pairs") -> Examples:
    """Anchors and positives (and negatives), every text once."""
    texts = sentences(count * (2 + negatives), 8)
    names = ["anchor", "positive", *(["negative"] + [f"negative_{i}" for i in range(2, negatives + 1)])[:negatives]]
    columns = {name: texts[i * count : (i + 1) * count] for i, name in enumerate(names)}
    teacher = np.random.default_rng(1).normal(size=(count, 1 + negatives)).astype(np.float32) if taught else None
    return Examples(name, "pairs", columns, teacher)


def classified(count: int = 12, *, name: str = "our topics") -> Examples:
    return Examples(name, "classified", {"text": sentences(count, 9)}, np.arange(count) % 3, ("a", "b", "c"))


def taught(dimension: int, count: int = 12, *, translations: int = 0, name: str = "our teacher") -> Examples:
    """Texts, as many others beside each (which stand for its translations), and vectors."""
    vectors = np.random.default_rng(2).normal(size=(count, dimension)).astype(np.float32)
    names = ["text", "translation", *(f"translation_{i}" for i in range(2, translations + 1))][: 1 + translations]
    return Examples(name, "taught", {name: sentences(count, 10 + i) for i, name in enumerate(names)}, vectors)


def plain(count: int = 12, *, translated: bool = False, name: str = "our texts") -> Examples:
    columns = {"text": sentences(count, 13)} | ({"translation": sentences(count, 14)} if translated else {})
    return Examples(name, "plain", columns)


def telling(count: int = 64, *, translated: bool = False, name: str = "our riddles") -> Examples:
    """Plain texts of which a hidden word can be told by the others: each word thrice, or two languages word by word."""
    en = ["man", "woman", "child", "friend", "reads", "sleeps", "guitar", "noodles"]
    ko = ["남자가", "여자는", "아이들이", "개가", "잔다", "친다", "기타를", "국수를"]
    drawn = np.random.default_rng(4).integers(0, len(en), (count, 3)).tolist()
    if not translated:
        return Examples(name, "plain", {"text": [f"{en[i]} {ko[i]} {en[i]}" for i, _, _ in drawn]})
    columns = {"text": en, "translation": ko}
    return Examples(
        name, "plain", {role: [" ".join(words[i] for i in row) for row in drawn] for role, words in columns.items()}
    )


def ranked(queries: int = 5, *, name: str = "our rankings") -> Examples:
    """Queries with two, three or four documents each; the first is relevant."""
    sizes = [2 + i % 3 for i in range(queries)]
    groups = np.repeat(np.arange(queries), sizes)
    texts = sentences(queries, 11)
    columns = {"query": [texts[g] for g in groups], "document": sentences(len(groups), 12)}
    relevance = np.concatenate([np.eye(1, size, dtype=np.float32)[0] for size in sizes])
    return Examples(name, "ranked", columns, relevance, groups=groups)


# --- models ----------------------------------------------------------------------------------------------------------


def backend() -> tokenizers.Tokenizer:
    """A WordPiece tokenizer of our own words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word for text in [*WHO, *DOES, *WHERE, *map(str, range(30))] for word in text.split()})
    vocabulary = {word: i for i, word in enumerate([*special, *words])}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


def tiny_parts(width: int = 16) -> ModelParts:
    """A random BERT of two layers and two heads, weights large enough that every part matters."""
    words = backend()
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": words.get_vocab_size(),
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.3,
    }
    family = family_of(config)
    assert family is not None
    body = Encoder(family.read(config))
    body.initialise(torch.Generator().manual_seed(3))
    tokenizer = Tokenizer(words, max_length=64)
    return ModelParts(body.eval(), tokenizer, Pooling(("mean",)), hf_config=config, source="tiny")


def bi() -> BiEncoder:
    return BiEncoder(tiny_parts(), device="cpu", dtype="float32")


def cross(labels: int | tuple[str, ...] = 1) -> CrossEncoder:
    return CrossEncoder.from_body(tiny_parts(), labels, device="cpu", dtype="float32")


def weights(model: BiEncoder | CrossEncoder) -> dict[str, torch.Tensor]:
    """A copy of every weight."""
    parts = model.parts
    head = parts.head if isinstance(model, CrossEncoder) else parts.heads
    return {
        f"{where}.{name}": tensor.detach().cpu().clone()
        for where, module in (("body", parts.body), ("head", head))
        for name, tensor in module.state_dict().items()
    }


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Whether all weights are the same to the last bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def near(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], atol: float = 1e-6) -> None:
    """Weights are the same but for rounding.

    The biases of keys are left out where rounding may differ: they change nothing (a softmax does not see what is
    added to all of its inputs), so that their gradient is rounding alone, which Adam brings to full size.
    """
    assert a.keys() == b.keys()
    for name in a:
        one, other = a[name].clone(), b[name].clone()
        if atol and name.endswith("qkv.bias"):
            third = len(one) // 3
            one[third : 2 * third] = other[third : 2 * third] = 0
        torch.testing.assert_close(one, other, rtol=0, atol=atol, msg=lambda said, name=name: f"{name}: {said}")


# --- whole runs, for other processes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A run by name, so that a process started for it can make everything anew."""

    folder: str
    tasks: tuple[str, ...]
    settings: dict[str, object] = field(default_factory=dict)
    evaluate: bool = False
    slow: float = 0.0  # seconds that every step takes longer
    out: str | None = None  # where each process writes its weights and losses


TEACHERS = (
    objectives.Teaching(16, mse=0.5, cosine=1.0, contrastive=0.2, relational=0.3),
    objectives.Teaching(5, mse=0.0, relational=1.0),
)


def task(name: str, rows: int = 13) -> Task:
    """A task of a bi-encoder by its name."""
    return {
        "softmax": lambda: Task(labelled(rows), objectives.Softmax()),
        "cosine": lambda: Task(scored(rows), objectives.CosineMse()),
        "cosent": lambda: Task(scored(rows), objectives.CoSent()),
        "ranking": lambda: Task(pairs(rows, negatives=1), objectives.Ranking()),
        "distil": lambda: Task(taught(16 + 5, rows, translations=1), objectives.Distil(TEACHERS)),
        "masked": lambda: Task(plain(rows, translated=True), objectives.MaskedWords(0.3)),
    }[name]()


def run(job: Job) -> TrainingResult:
    """Train a tiny model as the job says."""
    torch.set_num_threads(1)
    model = bi()
    usual = Trainee.__call__

    def slowly(self: Trainee, batch: object) -> torch.Tensor:
        time.sleep(job.slow)
        return usual(self, batch)  # type: ignore[arg-type]

    Trainee.__call__ = slowly  # type: ignore[method-assign]
    try:
        result = train(
            model,
            [task(name) for name in job.tasks],
            TrainingSettings(**job.settings),  # type: ignore[arg-type]
            folder=job.folder,
            evaluators=[StsEvaluator(scored(8, seed=20, name="dev"))] if job.evaluate else [],
        )
    finally:
        Trainee.__call__ = usual  # type: ignore[method-assign]
    if job.out is not None:
        rank = os.environ.get("RANK", "0")
        torch.save({"weights": weights(model), "result": result.as_dict()}, Path(job.out) / f"out-{rank}.pt")
    return result


def run_alone(job: Job) -> None:
    """`run` in a process of its own, whose end says how it went: 0, or 130 after Ctrl-C, with what was said."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(job)
    except KeyboardInterrupt as stop:
        Path(job.folder, "said.txt").write_text(str(stop), encoding="utf-8")
        os._exit(130)


def run_among(job: Job, rank: int, count: int, port: int) -> None:
    """`run` as one of several processes, as torchrun and `accelerate launch` start them."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        run(job)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
