"""All numbers of the making, in one place. The scripts are run in the order of their names; README.md says how."""

from __future__ import annotations

from dataclasses import dataclass, field

from munjang.training import TrainingSettings


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
    passage_characters: int = 420
    held_out: int = 20  # one group of passages of so many is kept for development, and all of these sources
    held_out_sources: tuple[str, ...] = ("gnome", "installation", "postgresql")
    dev_queries: int = 600  # of each development set
    dev_passages: int = 4_000
    dictionary: int = 26_000
    reviews: int = 40_000
    titles: int = 25_000
    english_nli: int = 60_000
    # How many translations of each source: about half of the set is software text.
    translations: dict[str, int] = field(
        default_factory=lambda: {"bible": 9_000, "korsts": 10_000, "tatoeba": 5_500, "news": 2_900, "jhe": 1_400}
    )
    other_translations: int = 4_000


@dataclass(frozen=True)
class Silver:
    """03: pairs of neighbours, labelled by cross-encoders."""

    neighbours: int = 2
    judged_neighbours: int = 10  # of sentences that people scored pairs with
    translated_neighbours: int = 4
    random_share: float = 0.1
    max_pairs: int = 1_100_000
    max_length: int = 96
    seeds: tuple[int, ...] = (1,)  # cross-encoders on e5's body; their mean counts as one
    cross_weight: float = 1.0
    reranker_weight: float = 2.0
    cross: TrainingSettings = TrainingSettings(  # noqa: RUF009 (frozen)
        epochs=5, batch_size=64, learning_rate=8e-5, warm_up=0.1, dropout=0.1, seed=1
    )
    # A second round on the labels of the first, then on people's scores again; 0: none.
    again_pairs: int = 500_000
    again: TrainingSettings = TrainingSettings(  # noqa: RUF009
        epochs=1, batch_size=512, learning_rate=2e-4, warm_up=0.05, dropout=0.1, seed=3
    )


@dataclass(frozen=True)
class Part:
    """A task of the one multi-task training."""

    seconds: float  # of the training, at the speed measured on the way
    batch: int
    weight: float = 1.0


@dataclass(frozen=True)
class BiEncoder:
    """04: the bi-encoder."""

    passage_length: int = 192  # tokens, in training
    scale: float = 50.0  # of CoSENT and of InfoNCE: a temperature of 0.02
    contrast: float = 0.5  # of the search loss: InfoNCE
    retention: float = 1.0  # of the search loss: KL to e5's similarities
    negatives_to: int = 40  # ranks by e5 among which hard negatives are drawn
    margin: float = 0.02  # a negative must be this much less like the query than its passage, by e5
    learning_rate: float = 1e-4
    warm_up: float = 0.06
    token_budget: int = 262_144
    seed: int = 0
    parts: dict[str, Part] = field(
        default_factory=lambda: {
            "queries": Part(100, 768),
            "translations": Part(12, 512, 0.5),
            "silver": Part(90, 512),
            "people": Part(12, 128),
            "nli": Part(6, 256, 0.5),
        }
    )
    shares: tuple[float, ...] = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the way from e5 to the trained model


@dataclass(frozen=True)
class Reranker:
    """05: the reranker."""

    layers: tuple[int, ...] = (0, 1, 3, 5, 7, 8, 10, 11)
    max_length: int = 256
    passage_length: int = 192  # of the search for negatives
    negatives: int = 7
    margin: float = -0.01  # a negative must be this much less like the query than its passage, by the bi-encoder
    without_answer: float = 0.15  # share of lists whose answer is taken out
    seconds: float = 150.0
    lists: int = 48  # in a step
    learning_rate: float = 1e-4
    seed: int = 0


BODY, DATA, SILVER, BI, RERANKER = Body(), Data(), Silver(), BiEncoder(), Reranker()
