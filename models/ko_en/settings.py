"""All numbers of the making, in one place. The scripts are run in the order of their names; README.md says how."""

from __future__ import annotations

from dataclasses import dataclass, field

from munjang.training import TrainingSettings

VERSION = "0.2.0"  # of the models, in their cards


@dataclass(frozen=True)
class Body:
    """01: the vocabulary cut."""

    pieces: int = 30_000
    reviews: int = 100_000  # NSMC reviews read for the cut; coverage is measured on as many others


@dataclass(frozen=True)
class Data:
    """02: what is read, and how much of each."""

    seed: int = 0
    bills: int = 30_000
    passage_characters: dict[str, int] = field(default_factory=lambda: {"ko": 640, "en": 1300})
    held_out: int = 20  # one group of passages of so many is kept for development, and all of these sources
    held_out_sources: tuple[str, ...] = ("gnome", "installation", "postgresql")
    dev_queries: int = 600  # of each development set
    dev_passages: int = 4_000
    dictionary: int = 13_000
    questions: int = 2  # made of sentences of a long passage; one of a short one
    sentences: tuple[int, int] = (2, 7)  # of a passage that is joined of single sentences
    other_language: float = 0.2  # of the questions to a passage that has a translation
    reviews: int = 40_000
    titles: int = 25_000
    english_nli: int = 60_000
    # How many translations of each source: about half of the set is software text.
    translations: dict[str, int] = field(
        default_factory=lambda: {"bible": 12_000, "korsts": 10_000, "tatoeba": 5_500, "news": 2_900, "jhe": 1_400}
    )
    other_translations: int = 5_000


@dataclass(frozen=True)
class Silver:
    """03: pairs of neighbours, labelled by cross-encoders."""

    neighbours: int = 2
    judged_neighbours: int = 10  # of sentences that people scored pairs with
    translated_neighbours: int = 4
    random_share: float = 0.1
    max_pairs: int = 1_100_000
    max_length: int = 96
    seed: int = 1
    first_pairs: int = 500_000  # that the cross-encoder learns before people's scores
    on_silver: TrainingSettings = TrainingSettings(  # noqa: RUF009 (frozen)
        epochs=1, batch_size=512, learning_rate=2e-4, warm_up=0.05, dropout=0.1
    )
    on_people: TrainingSettings = TrainingSettings(  # noqa: RUF009
        epochs=3, batch_size=64, learning_rate=4e-5, warm_up=0.1, dropout=0.1
    )


@dataclass(frozen=True)
class Lists:
    """04: a right passage and wrong ones."""

    seed: int = 0
    lists: int = 140_000
    passage_length: int = 384  # tokens
    by_vectors: int = 30  # of the miner's first passages, of which negatives are drawn
    by_words: int = 10  # of BM25's
    negatives: int = 7
    cosine_weight: float = 25.0  # of e5's and of the miner's cosine in what the teachers say together
    reranker_weight: float = 0.4  # of its logit


@dataclass(frozen=True)
class Part:
    """A task of the one multi-task training."""

    seconds: float  # of the training, at the speed measured on the way
    batch: int
    weight: float = 1.0


@dataclass(frozen=True)
class BiEncoder:
    """04: the bi-encoder."""

    passage_length: int = 384  # tokens, in training
    scale: float = 50.0  # of CoSENT and of InfoNCE: a temperature of 0.02
    search: tuple[float, float, float] = (0.4, 1.0, 0.6)  # InfoNCE, KL to e5's similarities, KL to the lists' teachers
    translated: tuple[float, float, float] = (1.0, 0.2, 0.0)  # the same for translations
    negatives: int = 2  # of a list, the hardest
    doubtful: float = 3.0  # a negative is left out where the teachers score it this far above the answer
    learning_rate: float = 1e-4
    warm_up: float = 0.06
    token_budget: int = 262_144
    seed: int = 0
    parts: dict[str, Part] = field(
        default_factory=lambda: {
            "queries": Part(170, 448),
            "translations": Part(40, 768, 0.5),
            "silver": Part(90, 512),
            "people": Part(15, 128),
            "nli": Part(6, 256, 0.5),
        }
    )
    shares: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the way from e5 to the trained model
    earlier: tuple[float, ...] = (0.0, 0.4, 0.6)  # part of an earlier run in the trained weights
    mixed_shares: tuple[float, ...] = (0.8, 1.0)


@dataclass(frozen=True)
class Reranker:
    """05: the reranker."""

    layers: tuple[int, ...] = (0, 1, 3, 5, 7, 8, 10, 11)
    max_length: int = 384
    # Weights of the cosine and of each teacher's logit in the labels of search lists, and of open lists. Chosen by a
    # grid on the development sets: the first without everyday questions, the second by these.
    teachers: tuple[tuple[float, ...], ...] = ((30.0, 0.0, 1.0), (60.0, 1.0, 0.5))
    taught: float = 0.6  # part of the labels that is the teachers' distribution
    open_lists: int = 100_000  # of queries and sentences with what is found for them anywhere
    open_sources: tuple[str, ...] = ("chatbot", "question-pair", "joined", "nli")
    open_near: int = 60  # first texts that these lists are drawn from
    without_answer: float = 0.15  # share of lists whose answer is taken out
    learning_rate: float = 1e-4
    seed: int = 0
    parts: dict[str, Part] = field(
        default_factory=lambda: {
            "questions": Part(40, 48),
            "titles": Part(40, 48),
            "sentences": Part(12, 96),
            "open": Part(60, 64),
            "translations": Part(12, 96),
            "silver": Part(12, 512, 0.3),
            "people": Part(4, 128, 0.3),
        }
    )
    easy: int = 3  # of a list's wrong passages are any passage: users' collections are small
    queries: int = 300  # of each development set that are measured
    candidates: int = 30  # of the first stage that are reranked in the measurements
    cosine_weights: tuple[float, ...] = (20.0, 40.0, 80.0, 120.0)  # of the cosine beside the logit in the final order


BODY, DATA, SILVER, LISTS, BI, RERANKER = Body(), Data(), Silver(), Lists(), BiEncoder(), Reranker()
