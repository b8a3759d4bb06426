"""The public sets by name: where each lies in a folder of data, how it is read, and what it may be used for.

Enters: a name such as 'korsts', a split, a folder. Leaves: Examples (or Retrieval). Nothing is downloaded. A file is
looked for in its own folder, as `korsts/sts-train.tsv`, and then directly in the folder given; a compressed one
(.gz, .xz, .bz2) serves as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from munjang.data.classification import banking77, nsmc, parakqc, senteval, ynat
from munjang.data.examples import Examples, join
from munjang.data.files import read_texts
from munjang.data.kinds import Kind
from munjang.data.nli import allnli, klue_nli, kornli, mnli, snli
from munjang.data.pairs import chatbot, parallel, question_pair, tatoeba, wordnet
from munjang.data.reading import Counting
from munjang.data.retrieval import Retrieval, beir, korquad
from munjang.data.sts import klue_sts, korsts, sts_year, stsb
from munjang.errors import DataError, InputError

Use = Literal["train", "evaluation", "experiment"]  # experiment: train and report, but not into shipped models
Language = Literal["ko", "en", "en-ko"]
_COMPRESSED = ("", ".gz", ".xz", ".bz2")
_NSMC_TEST = 0.1  # of the rows; the set comes without a split of its own


@dataclass(frozen=True)
class Split:
    """The files of one split; several become one set."""

    files: tuple[str, ...]
    use: Use
    read: Callable[[Path], Examples] | None = None  # where it differs from the set's own


@dataclass(frozen=True)
class Known:
    """A public set."""

    title: str
    kind: Kind
    language: Language
    splits: Mapping[str, Split]
    read: Callable[[Path], Examples]
    licence: str


@dataclass(frozen=True)
class KnownRetrieval:
    """A public set for retrieval."""

    title: str
    language: Language
    splits: Mapping[str, str]  # split -> file
    read: Callable[[Path, str], Retrieval]
    licence: str
    use: Use = "evaluation"


def load_dataset(name: str, split: str, folder: str | Path) -> Examples:
    """One split of a known set."""
    known, chosen = _known(name, split)
    read = chosen.read or known.read
    title = f"{known.title} {split}"
    parts = [read(path) for path in find_files(name, split, folder)]
    return replace(parts[0], name=title) if len(parts) == 1 else join(parts, name=title)


def find_files(name: str, split: str, folder: str | Path) -> list[Path]:
    """Where the files of a split lie, before anything of them is read; one that is not there is a DataError."""
    known, chosen = _known(name, split)
    return [_find(file, Path(folder), f"{known.title} {split}") for file in chosen.files]


def _known(name: str, split: str) -> tuple[Known, Split]:
    if name in RETRIEVAL_DATASETS:
        raise InputError(f"{name!r} is a set for retrieval: load it with load_retrieval")
    known = DATASETS.get(name)
    if known is None:
        raise InputError(f"unknown set {name!r}; known are {', '.join(DATASETS)}")
    chosen = known.splits.get(split)
    if chosen is None:
        raise InputError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    return known, chosen


def load_retrieval(name: str, split: str, folder: str | Path) -> Retrieval:
    """One split of a known set for retrieval."""
    known = RETRIEVAL_DATASETS.get(name)
    if known is None:
        raise InputError(f"unknown set for retrieval {name!r}; known are {', '.join(RETRIEVAL_DATASETS)}")
    if split not in known.splits:
        raise InputError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    title = f"{known.title} {split}"
    return replace(known.read(_find(known.splits[split], Path(folder), title), split), name=title)


def _find(file: str, folder: Path, title: str) -> Path:
    tried = [folder / (place + end) for place in (file, Path(file).name) for end in _COMPRESSED]
    for path in tried:
        if path.exists():
            return path
    raise DataError(
        f"{title}: there is no {file} (or {Path(file).name}, or one of them with .gz, .xz, .bz2) in the folder {folder}"
    )


def _split(use: Use, *files: str, read: Callable[[Path], Examples] | None = None) -> Split:
    return Split(files, use, read)


def _nsmc_part(path: Path, *, part: Literal[0, 1]) -> Examples:
    """NSMC re-sampled has one file: nine tenths of it are for training, the rest for testing, always the same."""
    return nsmc(path).split(_NSMC_TEST, seed=0)[part]


def _lines(path: Path) -> Examples:
    """A text a line; blank ones are left out and counted."""
    counting, texts, number = Counting(path.name, "line"), [], 0
    for number, row in enumerate(read_texts(path), start=1):
        if row.text.strip():
            texts.append(row.text)
        else:
            counting.refuse(number, "no text", (row.text,))
    return Examples(path.name, "plain", {"text": texts}, reading=counting.reading(number))


def _senteval_set(title: str, **files: str) -> Known:
    splits = {split: _split("evaluation", f"senteval/{file}") for split, file in files.items()}
    return Known(title, "classified", "en", splits, senteval, "classic academic set")


def _klue_splits(folder: str, suffix: str) -> dict[str, Split]:
    return {"train": _split("train", f"{folder}/train{suffix}"), "dev": _split("evaluation", f"{folder}/dev{suffix}")}


_CC_BY_SA = "CC BY-SA 4.0"
_SEMEVAL = "SemEval terms"

DATASETS: dict[str, Known] = {
    "korsts": Known(
        "KorSTS",
        "scored",
        "ko",
        {
            "train": _split("train", "korsts/sts-train.tsv"),
            "dev": _split("evaluation", "korsts/sts-dev.tsv"),
            "test": _split("evaluation", "korsts/sts-test.tsv"),
        },
        korsts,
        _CC_BY_SA,
    ),
    "klue-sts": Known("KLUE-STS", "scored", "ko", _klue_splits("klue-sts", ".csv"), klue_sts, _CC_BY_SA),
    "stsb": Known(
        "STSb",
        "scored",
        "en",
        {
            "train": _split("train", "stsb-en/stsb-en-train.csv"),
            "dev": _split("evaluation", "stsb-en/stsb-en-dev.csv"),
            "test": _split("evaluation", "stsb-en/stsb-en-test.csv"),
        },
        stsb,
        _SEMEVAL,
    ),
    **{
        f"sts{year}": Known(
            f"STS{year}", "scored", "en", {"test": _split("evaluation", f"sts12-16/20{year}")}, sts_year, _SEMEVAL
        )
        for year in range(12, 17)
    },
    "klue-nli": Known("KLUE-NLI", "labelled", "ko", _klue_splits("klue-nli", ".json"), klue_nli, _CC_BY_SA),
    "kornli": Known(
        "KorNLI",
        "labelled",
        "ko",
        {
            "train": _split("train", "kornli/multinli.train.ko.tsv", "kornli/snli_1.0_train.ko.tsv"),
            "dev": _split("experiment", "kornli/xnli.dev.ko.tsv"),
            "test": _split("experiment", "kornli/xnli.test.ko.tsv"),
        },
        kornli,
        "CC BY-SA 4.0; dev and test are XNLI: non-commercial",
    ),
    "allnli": Known(
        "AllNLI",
        "labelled",
        "en",
        {
            "train": _split("train", "allnli/AllNLI.tsv", read=partial(allnli, split="train")),
            "dev": _split("evaluation", "allnli/AllNLI.tsv", read=partial(allnli, split="dev")),
            "test": _split("evaluation", "allnli/AllNLI.tsv", read=partial(allnli, split="test")),
        },
        allnli,
        "SNLI: CC BY-SA 4.0; MultiNLI: OANC and others",
    ),
    "snli": Known(
        "SNLI",
        "labelled",
        "en",
        # dev and test serve to train, because the training split is not among the files: never report on these
        {"dev": _split("train", "snli-en/validation.tsv"), "test": _split("train", "snli-en/test.tsv")},
        snli,
        _CC_BY_SA,
    ),
    "mnli": Known(
        "MultiNLI",
        "labelled",
        "en",
        {"train": _split("train", "mnli-en/mnli_train.csv"), "dev": _split("train", "mnli-en/mnli_validation.csv")},
        mnli,
        "OANC and others",
    ),
    "parallel": Known(
        "parallel en-ko",
        "pairs",
        "en-ko",
        {"train": _split("train", "parallel-en-ko/train.tsv")},
        partial(parallel, without=("xnli-dev", "wikiqa")),
        "per source; less the two sources that may not go into shipped models",
    ),
    "parallel-all": Known(
        "parallel en-ko, all sources",
        "pairs",
        "en-ko",
        {"train": _split("experiment", "parallel-en-ko/train.tsv")},
        parallel,
        "per source; two of them not for shipped models",
    ),
    "tatoeba": Known(
        "Tatoeba en-ko", "pairs", "en-ko", {"test": _split("evaluation", "tatoeba-en-ko")}, tatoeba, "CC BY 2.0"
    ),
    "question-pair": Known(
        "Question pair",
        "labelled",
        "ko",
        {
            "train": _split("train", "question-pair/kor_pair_train.csv"),
            "test": _split("evaluation", "question-pair/kor_Pair_test.csv"),
        },
        question_pair,
        "MIT",
    ),
    "chatbot": Known("Chatbot", "pairs", "ko", {"train": _split("train", "chatbot/ChatbotData.csv")}, chatbot, "MIT"),
    "wordnet": Known(  # Debian's package wordnet-base has the files
        "WordNet",
        "pairs",
        "en",
        {"train": _split("train", *(f"wordnet/data.{kind}" for kind in ("noun", "verb", "adj", "adv")))},
        wordnet,
        "WordNet 3.0 licence: any use, the notice kept",
    ),
    "parakqc": Known(
        "ParaKQC", "classified", "ko", {"test": _split("evaluation", "parakqc/paraKQC_v1.txt")}, parakqc, _CC_BY_SA
    ),
    "ynat": Known(
        "YNAT",
        "classified",
        "ko",
        {
            "train": _split("train", "ynat/train.csv"),
            "dev": _split("evaluation", "ynat/val.csv"),
            "test": _split("evaluation", "ynat/test.csv"),
        },
        ynat,
        "CC BY-SA 4.0; not the official split",
    ),
    "nsmc": Known(
        "NSMC",
        "classified",
        "ko",
        {
            "train": _split("train", "nsmc/nsmc_balanced_200k.tsv", read=partial(_nsmc_part, part=0)),
            "test": _split("evaluation", "nsmc/nsmc_balanced_200k.tsv", read=partial(_nsmc_part, part=1)),
        },
        nsmc,
        "CC0; our own split, nine to one",
    ),
    "nsmc-reviews": Known(
        "NSMC reviews",
        "plain",
        "ko",
        {"train": _split("train", "nsmc/reviews.txt")},
        _lines,
        "CC0",
    ),
    "banking77": Known(
        "Banking77",
        "classified",
        "en",
        {
            "train": _split("evaluation", "banking77/train.csv"),  # for few-shot evaluation
            "test": _split("evaluation", "banking77/test.csv"),
        },
        banking77,
        "CC BY 4.0",
    ),
    "mr": _senteval_set("MR", all="rt-polarity.all"),
    "cr": _senteval_set("CR", all="custrev.all"),
    "subj": _senteval_set("SUBJ", all="subj.all"),
    "mpqa": _senteval_set("MPQA", all="mpqa.all"),
    "trec": _senteval_set("TREC", train="TREC.train.all", test="TREC.test.all"),
    "sst2": _senteval_set("SST-2", train="stsa.binary.train", dev="stsa.binary.dev", test="stsa.binary.test"),
    "sst5": _senteval_set("SST-5", train="stsa.fine.train", dev="stsa.fine.dev", test="stsa.fine.test"),
}

RETRIEVAL_DATASETS: dict[str, KnownRetrieval] = {
    "korquad": KnownRetrieval(
        "KorQuAD",
        "ko",
        {"dev": "korquad1/dev.json"},
        lambda path, split: korquad(path),
        "CC BY-ND 2.0 KR: no text of it may be shipped",
    ),
    "nfcorpus": KnownRetrieval(
        "NFCorpus",
        "en",
        dict.fromkeys(("train", "dev", "test"), "nfcorpus/nfcorpus.zip"),
        lambda path, split: beir(path, split=split),
        "research",
    ),
}
