"""One making of both models on small data, and one with a larger model; tests copy what they change."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from making.agreed_run import Run, plan
from making.whole_data import data_folder
from making.whole_run import bi_plan, easy_negatives, make, options, rerank
from models.ko_en_0_1 import agreeing, reranker
from models.ko_en_0_1.agreeing import AgreeOptions, make_agreed
from models.ko_en_0_1.making import BiMade
from models.ko_en_0_1.reranker import RerankMade
from munjang.errors import TruncationWarning
from recipes import conftest as recipes_conftest

tiny, load = recipes_conftest.tiny, recipes_conftest.load  # fixtures


@dataclass(frozen=True)
class Whole:
    """A finished run and what it was made of."""

    folder: Path
    data: Path
    tiny: Path
    made: BiMade


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One thread, because the last bits of sums depend on their number; texts may be cut."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        yield
    torch.set_num_threads(before)


@pytest.fixture
def quiet() -> Iterator[None]:
    with alone():
        yield


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Whole:
    """The bi-encoder, made."""
    place = tmp_path_factory.mktemp("whole")
    data = data_folder(place / "data")
    with alone():
        return Whole(place / "run", data, tiny, make(place / "run", tiny, data))


@pytest.fixture(scope="session")
def with_larger(whole: Whole, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The same run gone on with, now that a larger English model labels: here the teacher itself."""
    folder = tmp_path_factory.mktemp("larger") / "run"
    shutil.copytree(whole.folder, folder)
    with alone():
        return Whole(folder, whole.data, whole.tiny, make(folder, whole.tiny, whole.data, larger=whole.tiny))


@pytest.fixture(scope="session")
def reranked(whole: Whole, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RerankMade]:
    """The reranker, made out of it: its run folder, and what came out."""
    folder = tmp_path_factory.mktemp("rerank") / "run"
    with alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reranker, "find_negatives", easy_negatives)
        return folder, rerank(folder, options(whole.folder, whole.tiny, whole.data))


@pytest.fixture(scope="session")
def agreed(whole: Whole, reranked: tuple[Path, RerankMade], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """That reranker, which learned once more."""
    folder = tmp_path_factory.mktemp("agreed") / "run"
    given = AgreeOptions(
        data=whole.data,
        folder=folder,
        reranker=reranked[1].folder,
        bi=whole.made.folder,
        bilingual=whole.tiny,
        larger=whole.tiny,
        making=reranked[0] / "making.json",
        plan=plan(),
        texts=bi_plan(),
        device="cpu",
    )
    with alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreeing, "find_negatives", easy_negatives)
        return Run(folder, make_agreed(given), given, reranked[1].folder, whole.made.folder, whole.tiny)
