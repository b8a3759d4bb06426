"""Every number that decides the bundled models, in one place.

The steps are those of one H200; `scaled` makes the same plan small, for a trial on any machine. What was tried and did
not help stands in docs/models.md, not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from munjang.errors import InputError
from munjang.students.plans import Hangul
from munjang.training import TrainingSettings

_BETAS = (0.9, 0.98)
_WARM_UP = 0.06
# Numbers of a plan that `scaled` makes smaller, beside steps, rows and batches.
_COUNTS = (
    "passages", "held_questions", "vocabulary", "foreign", "definitions", "relevance", "larger_pieces",
    "compact_pieces", "questions",
)  # fmt: skip
_LEAST = {"vocabulary": 2_000, "compact_pieces": 2_000, "passages": 400, "questions": 400}
T = TypeVar("T")


@dataclass(frozen=True)
class Schedule:
    """One training stage: how long, how fast."""

    steps: int
    rate: float
    embedding_rate: float | None = None
    head_rate: float | None = None
    dropout: float | None = None  # None: the body's, 0.1
    ema: float | None = None

    def settings(self, seed: int) -> TrainingSettings:
        return TrainingSettings(
            max_steps=self.steps,
            learning_rate=self.rate,
            embedding_rate=self.embedding_rate,
            head_rate=self.head_rate,
            warm_up=_WARM_UP,
            betas=_BETAS,
            dropout=self.dropout,
            ema=self.ema,
            evaluate_every=self.steps // 4 if self.steps >= 100 else self.steps,
            save_every=self.steps,  # a stage takes a minute: saving its state now and then would take as long
            keep_checkpoints=1,
            seed=seed,
        )


@dataclass(frozen=True)
class Part:
    """A data set in a stage: its share of the steps, its rows in one, the weight of its loss."""

    share: float
    batch_size: int
    weight: float = 1.0


@dataclass(frozen=True)
class BiPlan:
    """`munjang-ko-en`, from raw data to the saved model."""

    vocabulary: int = 31_500
    old_share: float = 0.48  # of the vocabulary: English pieces
    hangul: Hangul = "letters"  # what Korean pieces are made of: syllables would take a third of the places one by one
    max_length: int = 256  # of the finished model
    train_length: int = 128
    # Sources of translations that are taken more or less often than their rows say: half of them are software text.
    source_weights: dict[str, float] = field(
        default_factory=lambda: {
            "korsts-train": 3.0,
            "tatoeba": 3.0,
            "news-park": 3.0,
            "jhe": 3.0,
            "bible-web": 0.7,
            "python-docs": 0.5,
            "libreoffice": 0.5,
            "git-postgres-po": 0.5,
        }
    )
    pool_sources: tuple[str, ...] = ("korsts-train", "tatoeba", "news-park", "jhe", "bible-web")  # no software text
    rows: float = 1.0  # share of the translations, of NLI and of plain text that is read
    foreign: int = 40_000  # English texts with words that no other text has (`foreign_words`)
    definitions: int = 120_000  # of a dictionary (`definitions`)
    reviews: int = 100_000  # of NSMC's plain reviews; more of them drown everything else
    score_bands: int = 10  # of STS scores, each learned equally often; 1: the rows as they are
    selection_rows: int = 1_000  # of KLUE-STS train, kept out of training, to choose by

    tuned: Schedule = Schedule(1_000, 4e-5)
    tuned_parts: dict[str, Part] = field(
        default_factory=lambda: {"nli": Part(0.35, 128), "sts": Part(0.25, 64), "kept": Part(0.40, 96)}
    )

    warm_up: Schedule = Schedule(0, 4e-4, 1e-3)  # no steps: left out
    warm_up_parts: dict[str, Part] = field(
        default_factory=lambda: {"plain": Part(0.5, 512), "translations": Part(0.5, 256)}
    )

    distil: Schedule = Schedule(4_000, 2e-4, 6e-4)
    distil_parts: dict[str, Part] = field(
        default_factory=lambda: {
            "translations": Part(0.44, 512),
            "long": Part(0.10, 96, 2.0),
            "words": Part(0.16, 192, 2.0),
            "plain": Part(0.13, 1024),
            "neighbours": Part(0.17, 256),
        }
    )
    cosine: float = 1.0
    contrastive: float = 0.2
    relational: float = 0.3
    second_relational: float = 0.3  # the second teacher's part over translations
    bilingual_share: float = 2 / 3  # of the second teacher's cosines: those of the bilingual model beside it

    multi: Schedule = Schedule(3_000, 1e-4, 2e-4)
    multi_parts: dict[str, Part] = field(
        default_factory=lambda: {
            "nli-ko": Part(0.14, 256),
            "nli-en": Part(0.08, 256),
            "sts": Part(0.25, 128),
            "questions": Part(0.04, 128),
            "passages": Part(0.09, 128),
            "translations": Part(0.16, 512),
            "long": Part(0.11, 96, 3.0),
            "words": Part(0.13, 192, 3.0),
        }
    )

    pool_neighbours: int = 4
    scored_neighbours: int = 24  # of a sentence that stands in a scored set
    random_pairs: float = 0.15  # beside the neighbours, in proportion to them
    cosine_weight: float = 0.2  # of the bi-encoder's cosine in one of the first silver labels
    cosine_weights: tuple[float, ...] = (0.0, 0.1, 0.2, 1 / 3)  # in the last: the one that agrees best with people

    finals: int = 3  # trainings that differ by their seeds; the model has the mean of their weights
    final: Schedule = Schedule(9_000, 1.5e-4, 2e-4)
    final_parts: dict[str, Part] = field(
        default_factory=lambda: {
            "nli-ko": Part(0.07, 256),
            "nli-en": Part(0.05, 256),
            "sts": Part(0.17, 128),
            "questions": Part(0.03, 128),
            "passages": Part(0.08, 128),
            "translations": Part(0.07, 512),
            "long": Part(0.08, 96, 3.0),
            "words": Part(0.10, 192, 3.0),
            "silver": Part(0.35, 384),
        }
    )

    # The weights of `student` in those of `settled` and `merged`: as many as cost the selection sets' mean this little.
    # In the end a twentieth at most: the selection sets do not see what more of it costs in Korean (docs/models.md).
    settled_shares: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
    merged_shares: tuple[float, ...] = (0.0, 0.05)
    settled_cost: float = 0.002
    merged_cost: float = 0.0

    # The larger English model, made to read Korean: it labels, and is not bundled.
    larger_pieces: int = 14_000  # beside its own
    larger_distil: Schedule = Schedule(3_000, 1e-4, 4e-4)
    larger_distil_parts: dict[str, Part] = field(
        default_factory=lambda: {
            "translations": Part(0.60, 256),
            "plain": Part(0.15, 256),
            "neighbours": Part(0.25, 128),
        }
    )
    larger_nli: Schedule = Schedule(1_500, 4e-5, head_rate=2e-4)
    larger_sts: Schedule = Schedule(1_500, 3e-5)
    larger_silver: Schedule = Schedule(3_000, 4e-5)  # the first labels, and then `larger_sts` again; no steps: left out

    # The bilingual model as a labeller, where one was given.
    bilingual_nli: Schedule = Schedule(1_500, 6e-5, head_rate=2e-4)
    bilingual_sts: Schedule = Schedule(1_500, 5e-5)
    bilingual_silver: Schedule = Schedule(4_000, 6e-5)  # as `larger_silver`

    # The bilingual model made small enough for the package: what the labellers, and so the reranker, begin as.
    # Its layers are those that remained in a trial, before any training, when one after another was left out, each time
    # the one that half of the selection sets' rows missed least; its pieces are the most frequent ones.
    compact_layers: tuple[int, ...] = ()  # such as (0, 2, 4, 6, 7, 9, 10, 11); none: the labellers begin as the student
    compact_pieces: int = 21_500
    compact: Schedule = Schedule(2_500, 1e-4)
    compact_batch: int = 384

    # The cross-encoders that label, one after another by seed.
    labellers: int = 1
    labeller_nli: Schedule = Schedule(1_800, 1e-4, head_rate=2e-4)
    labeller_silver: Schedule = Schedule(3_500, 1e-4, head_rate=2e-4)
    labeller_sts: Schedule = Schedule(2_000, 6e-5)
    labeller_batch: int = 64
    passages: int = 90_000  # made questions
    held_questions: int = 2_000  # of them: kept out of all training, to judge the reranker


@dataclass(frozen=True)
class RerankPlan:
    """`munjang-rerank-ko-en`, from the stages of the bi-encoder's making to the saved model."""

    max_length: int = 384
    train_length: int = 256
    negatives: int = 7  # passages beside the right one
    everyday: int = 20  # candidates of each everyday question, which calibrate; 0: questions held out do
    relevance: int = 40_000  # lists that a larger English model grades, where there is one
    relevance_temperature: float = 0.05  # of its cosines: the softmax over a list is to be sharp
    mains: int = 2  # as `BiPlan.finals`
    main: Schedule = Schedule(32_000, 1e-4, head_rate=2e-4, dropout=0.05)
    main_parts: dict[str, Part] = field(
        default_factory=lambda: {
            "silver": Part(0.48, 128),
            "sts": Part(0.22, 64),
            "passages": Part(0.15, 24),
            "relevance": Part(0.15, 16),  # left out where nothing is graded
        }
    )


@dataclass(frozen=True)
class AgreePlan:
    """`munjang-rerank-ko-en` once more, by what several models say together (`agreeing`)."""

    max_length: int = 384
    train_length: int = 256
    neighbours: int = 12  # of a sentence that people scored
    # Sentences that are there in both languages, paired with each other: labelled in English, learned in Korean too.
    translated_neighbours: int = 40  # of one that people scored
    other_neighbours: int = 10  # of another one
    random_pairs: float = 0.15  # beside them, in proportion
    korean: float = 0.7  # of the texts that are there in both languages: how many are read in Korean
    # What each voice counts for in a label: the reranker's own, and cosines; the larger model's of English pairs.
    weights: dict[str, float] = field(
        default_factory=lambda: {"own": 1.0, "cosine": 0.45, "bilingual": 0.35, "larger": 0.75}
    )
    # The readers (`readers`): larger models, each of which learns one half of people's scores beside the labels.
    nli_batch: int = 64
    bilingual_nli: Schedule = Schedule(1_500, 6e-5, head_rate=2e-4)
    bilingual: Schedule = Schedule(6_000, 6e-5)
    larger_nli: Schedule = Schedule(1_500, 4e-5, head_rate=2e-4)
    larger: Schedule = Schedule(4_000, 4e-5)
    reader_parts: dict[str, Part] = field(default_factory=lambda: {"silver": Part(0.7, 128), "people": Part(0.3, 64)})
    reader_weights: dict[str, float] = field(default_factory=lambda: {"bilingual": 1.0, "larger": 2.0})
    reader_shares: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the labels, to choose from: the readers' part
    # How far people's scores give way to what the reader says that did not learn them; 0: learned as people gave them.
    doubt: float = 0.5
    questions: int = 10_000  # made ones: what the reranker says of their passages is to stay
    held_questions: int = 1_000  # of them: kept out of these trainings, not of those before
    negatives: int = 7  # of a held-out question
    everyday: int = 20  # as `RerankPlan.everyday`
    agreements: int = 3  # trainings, as `RerankPlan.mains`
    agreed: Schedule = Schedule(24_000, 1e-4, dropout=0.05)
    agreed_parts: dict[str, Part] = field(
        default_factory=lambda: {
            "silver": Part(0.7, 128),
            "people": Part(0.12, 64),  # left out where nobody doubts them
            "kept": Part(0.18, 48),
        }
    )
    merged_shares: tuple[float, ...] = (0.5, 0.75, 1.0)  # of the way from the weights before, to choose from
    merged_cost: float = 0.0005  # what the selection sets' mean may lose by going further


def scaled(plan: T, share: float) -> T:
    """The same plan with fewer steps and rows, never with more: 0.01 is a trial of minutes on a CPU."""
    if not 0 < share <= 1:
        raise InputError(f"scale must be above 0 and at most 1, got {share}")
    if share == 1:
        return plan
    changes: dict[str, object] = {}
    for name, value in vars(plan).items():
        if isinstance(value, Schedule):
            changes[name] = replace(value, steps=_less(value.steps, share, least=4))
        elif name in _COUNTS:
            changes[name] = _less(value, share, least=_LEAST.get(name, 100))
        elif name == "everyday":
            changes[name] = 0
        elif name == "rows":
            changes[name] = min(value, max(value * share, 0.002))
        elif name.endswith("_parts"):
            changes[name] = {
                key: replace(part, batch_size=_less(part.batch_size, max(share, 0.05), least=4))
                for key, part in value.items()
            }
    return replace(plan, **changes)  # type: ignore[type-var]


def _less(value: int, share: float, *, least: int) -> int:
    return min(value, max(least, round(value * share)))
