"""Public data sets by name: their files in a folder, their readers, and what they may be used for.

Nothing is downloaded. A file is looked for in its own folder, as `korsts/sts-train.tsv`, and then directly in the given
folder; a compressed one (.gz, .xz, .bz2) serves as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from munjang.data import formats
from munjang.data.columns import Kind
from munjang.data.examples import Examples, join
from munjang.data.retrieval import Retrieval, beir, korquad
from munjang.errors import DataError, InputError

Use = Literal["train", "evaluation", "experiment"]  # experiment: train and report, but not into shipped models
Language = Literal["ko", "en", "en-ko"]
_COMPRESSED = ("", ".gz", ".xz", ".bz2")
_NSMC_TEST = 0.1  # of the rows; the set has no split of its own


@dataclass(frozen=True)
class Split:
    """The files of one split; several become one set."""

    files: tuple[str, ...]
    use: Use
    read: Callable[[Path], Examples] | None = None  # where it differs from the set's own


@dataclass(frozen=True)
class Known:
    """A public data set."""

    title: str
    kind: Kind
    language: Language
    splits: Mapping[str, Split]
    read: Callable[[Path], Examples]
    licence: str


@dataclass(frozen=True)
class KnownRetrieval:
    """A public data set for retrieval."""

    title: str
    language: Language
    splits: Mapping[str, str]  # split -> file
    read: Callable[[Path, str], Retrieval]
    licence: str
    use: Use = "evaluation"


def load_dataset(name: str, split: str, folder: str | Path) -> Examples:
    """Load one split of a public data set, such as `load_dataset("korsts", "train", "data")`.

    Raises:
        InputError: there is no set or split of this name.
        DataError: a file is missing or cannot be read.
    """
    known, chosen = _known(name, split)
    read = chosen.read or known.read
    title = f"{known.title} {split}"
    parts = [read(path) for path in find_files(name, split, folder)]
    return replace(parts[0], name=title) if len(parts) == 1 else join(parts, name=title)


def find_files(name: str, split: str, folder: str | Path) -> list[Path]:
    """Return the paths of a split's files before any is read; a missing one is a `DataError`."""
    known, chosen = _known(name, split)
    return [_find(file, Path(folder), f"{known.title} {split}") for file in chosen.files]


def load_retrieval(name: str, split: str, folder: str | Path) -> Retrieval:
    """Load one split of a public data set for retrieval, such as `load_retrieval("korquad", "dev", "data")`."""
    known = RETRIEVAL_DATASETS.get(name)
    if known is None:
        raise InputError(f"unknown set for retrieval {name!r}; known are {', '.join(RETRIEVAL_DATASETS)}")
    if split not in known.splits:
        raise InputError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    title = f"{known.title} {split}"
    return replace(known.read(_find(known.splits[split], Path(folder), title), split), name=title)


def _known(name: str, split: str) -> tuple[Known, Split]:
    if name in RETRIEVAL_DATASETS:
        raise InputError(f"{name!r} is a set for retrieval: load it with load_retrieval")
    known = DATASETS.get(name)
    if known is None:
        raise InputError(f"unknown set {name!r}; known are {', '.join(DATASETS)}")
    if split not in known.splits:
        raise InputError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    return known, known.splits[split]


def _find(file: str, folder: Path, title: str) -> Path:
    for path in (folder / (place + end) for place in (file, Path(file).name) for end in _COMPRESSED):
        if path.exists():
            return path
    raise DataError(
        f"{title}: there is no {file} (or {Path(file).name}, or one of them with .gz, .xz, .bz2) in the folder {folder}"
    )


def _nsmc_part(path: Path, *, part: Literal[0, 1]) -> Examples:
    """NSMC re-sampled has one file: nine tenths of it are for training, the rest for testing, always the same."""
    return _REVIEWS(path).split(_NSMC_TEST, seed=0)[part]


def _splits(folder: str, **files: str | tuple[str, ...]) -> dict[str, Split]:
    """Splits by name; `train` is for training, the others for evaluation."""
    return {
        split: Split(
            tuple(f"{folder}/{file}" for file in ([names] if isinstance(names, str) else names)),
            "train" if split == "train" else "evaluation",
        )
        for split, names in files.items()
    }


def _used(use: Use, splits: dict[str, Split]) -> dict[str, Split]:
    return {name: replace(split, use=use) for name, split in splits.items()}


def _senteval(title: str, **files: str) -> Known:
    splits = _used("evaluation", _splits("senteval", **files))
    return Known(title, "classified", "en", splits, formats.senteval, "classic academic set")


def _allnli(split: str) -> formats.Reader:
    """AllNLI of sentence-transformers (SNLI and MultiNLI) has all splits in one file."""
    return formats.nli("sentence1", "sentence2", "label", format="tsv", split=split)


_TOPICS = ("IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치")
_TITLES = formats.columns("classified", label_map=_TOPICS, text="title", label="topic")
_ANSWERS = formats.columns("pairs", anchor="Q", positive="A")
_LINES = formats.columns("plain", format="txt")
_REVIEWS = formats.columns("classified", format="tsv", label_map=formats.POLARITY, text="document", label="label")
_DUPLICATES = formats.columns(  # in the file 0 means same and 1 different; here 'same' has the id 1
    "labelled", label_map={"1": "different", "0": "same"}, a="question1", b="question2", label="is_duplicate"
)
_CC_BY_SA = "CC BY-SA 4.0"
_SEMEVAL = "SemEval terms"
_NSMC = "nsmc/nsmc_balanced_200k.tsv"
_KORSTS = _splits("korsts", train="sts-train.tsv", dev="sts-dev.tsv", test="sts-test.tsv")
_STSB = _splits("stsb-en", train="stsb-en-train.csv", dev="stsb-en-dev.csv", test="stsb-en-test.csv")
_KORNLI = _splits("kornli", train=("multinli.train.ko.tsv", "snli_1.0_train.ko.tsv"))
_KORNLI |= _used("experiment", _splits("kornli", dev="xnli.dev.ko.tsv", test="xnli.test.ko.tsv"))
_PARALLEL = _splits("parallel-en-ko", train="train.tsv")
_WORDNET = tuple(f"data.{kind}" for kind in ("noun", "verb", "adj", "adv"))

DATASETS: dict[str, Known] = {
    "korsts": Known("KorSTS", "scored", "ko", _KORSTS, formats.sts(format="tsv"), _CC_BY_SA),
    "klue-sts": Known(
        "KLUE-STS", "scored", "ko", _splits("klue-sts", train="train.csv", dev="dev.csv"), formats.klue_sts, _CC_BY_SA
    ),
    "stsb": Known("STSb", "scored", "en", _STSB, formats.stsb, _SEMEVAL),
    **{
        f"sts{year}": Known(
            f"STS{year}", "scored", "en", _splits("sts12-16", test=f"20{year}"), formats.sts_year, _SEMEVAL
        )
        for year in range(12, 17)
    },
    "klue-nli": Known(
        "KLUE-NLI", "labelled", "ko", _splits("klue-nli", train="train.json", dev="dev.json"),
        formats.nli("premise", "hypothesis", "gold_label"),
        _CC_BY_SA,
    ),
    "kornli": Known(
        "KorNLI", "labelled", "ko", _KORNLI, formats.nli("sentence1", "sentence2", "gold_label", format="tsv"),
        "CC BY-SA 4.0; dev and test are XNLI: non-commercial"
    ),
    "allnli": Known(
        "AllNLI", "labelled", "en",
        {
            name: replace(split, read=_allnli(name))
            for name, split in _splits("allnli", train="AllNLI.tsv", dev="AllNLI.tsv", test="AllNLI.tsv").items()
        },
        _allnli("train"), "SNLI: CC BY-SA 4.0; MultiNLI: OANC and others",
    ),
    "snli": Known(  # dev and test serve to train, as the training split is not among the files: never report on them
        "SNLI", "labelled", "en", _used("train", _splits("snli-en", dev="validation.tsv", test="test.tsv")),
        formats.snli, _CC_BY_SA,
    ),
    "mnli": Known(
        "MultiNLI", "labelled", "en",
        _used("train", _splits("mnli-en", train="mnli_train.csv", dev="mnli_validation.csv")),
        formats.mnli, "OANC and others",
    ),
    "parallel": Known(
        "parallel en-ko", "pairs", "en-ko", _PARALLEL, partial(formats.parallel, without=("xnli-dev", "wikiqa")),
        "per source; less the two sources that may not go into shipped models",
    ),
    "parallel-all": Known(
        "parallel en-ko, all sources", "pairs", "en-ko", _used("experiment", _PARALLEL), formats.parallel,
        "per source; two of them not for shipped models",
    ),
    "tatoeba": Known(
        "Tatoeba en-ko", "pairs", "en-ko", {"test": Split(("tatoeba-en-ko",), "evaluation")}, formats.tatoeba,
        "CC BY 2.0",
    ),
    "question-pair": Known(
        "Question pair", "labelled", "ko",
        _splits("question-pair", train="kor_pair_train.csv", test="kor_Pair_test.csv"), _DUPLICATES, "MIT",
    ),
    "chatbot": Known("Chatbot", "pairs", "ko", _splits("chatbot", train="ChatbotData.csv"), _ANSWERS, "MIT"),
    "wordnet": Known(  # Debian's package wordnet-base has the files
        "WordNet", "pairs", "en", _splits("wordnet", train=_WORDNET), formats.wordnet,
        "WordNet 3.0 licence: any use, the notice kept",
    ),
    "parakqc": Known(
        "ParaKQC", "classified", "ko", _splits("parakqc", test="paraKQC_v1.txt"), formats.parakqc, _CC_BY_SA
    ),
    "ynat": Known(
        "YNAT", "classified", "ko", _splits("ynat", train="train.csv", dev="val.csv", test="test.csv"), _TITLES,
        "CC BY-SA 4.0; not the official split",
    ),
    "nsmc": Known(
        "NSMC", "classified", "ko",
        {
            "train": Split((_NSMC,), "train", partial(_nsmc_part, part=0)),
            "test": Split((_NSMC,), "evaluation", partial(_nsmc_part, part=1)),
        },
        _REVIEWS, "CC0; our own split, nine to one",
    ),
    "nsmc-reviews": Known(
        "NSMC reviews", "plain", "ko", _splits("nsmc", train="reviews.txt"), _LINES, "CC0"
    ),
    "banking77": Known(  # both for few-shot evaluation
        "Banking77", "classified", "en", _used("evaluation", _splits("banking77", train="train.csv", test="test.csv")),
        formats.columns("classified", text="text", label="category"), "CC BY 4.0",
    ),
    "mr": _senteval("MR", all="rt-polarity.all"),
    "cr": _senteval("CR", all="custrev.all"),
    "subj": _senteval("SUBJ", all="subj.all"),
    "mpqa": _senteval("MPQA", all="mpqa.all"),
    "trec": _senteval("TREC", train="TREC.train.all", test="TREC.test.all"),
    "sst2": _senteval("SST-2", train="stsa.binary.train", dev="stsa.binary.dev", test="stsa.binary.test"),
    "sst5": _senteval("SST-5", train="stsa.fine.train", dev="stsa.fine.dev", test="stsa.fine.test"),
}  # fmt: skip

RETRIEVAL_DATASETS: dict[str, KnownRetrieval] = {
    "korquad": KnownRetrieval(
        "KorQuAD", "ko", {"dev": "korquad1/dev.json"}, lambda path, split: korquad(path),
        "CC BY-ND 2.0 KR: no text of it may be shipped",
    ),
    "nfcorpus": KnownRetrieval(
        "NFCorpus", "en", dict.fromkeys(("train", "dev", "test"), "nfcorpus/nfcorpus.zip"),
        lambda path, split: beir(path, split=split), "research",
    ),
}  # fmt: skip
