"""The texts of a distillation: files, names of public sets and examples become sources, each with a name and a weight.

Enters: what the caller gave. Leaves: `Taken`, in order: examples of kind plain (texts), pairs (translations, or pairs
for a cross-encoder teacher) or scored, and how often their rows come. What was left out is counted in the readings.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from munjang.data import DATASETS, Examples, Reading, ReadOptions, load_dataset, read_examples, read_texts
from munjang.data.columns import choose_columns
from munjang.data.datasets import find_files, parallel_by_source
from munjang.data.files import RowFile
from munjang.errors import DataError, InputError
from munjang.recipes.distilling.options import DistillOptions, GivenSource, Source
from munjang.recipes.options import SetOptions

Int64: TypeAlias = npt.NDArray[np.int64]
_LEFT_OUT = {"parallel": ("xnli-dev", "wikiqa"), "parallel-all": ()}  # sources that the named sets go without
_KINDS = ("plain", "pairs", "scored")


@dataclass(frozen=True, eq=False)
class Taken:
    """One source, read."""

    examples: Examples
    weight: float = 1.0

    @property
    def name(self) -> str:
        return self.examples.name

    def rows(self, seed: int) -> Int64:
        """The rows of an epoch: each as often as the weight's whole part says, and a drawn share of them once more."""
        count = len(self.examples)
        whole, share = math.floor(self.weight), self.weight - math.floor(self.weight)
        every = np.tile(np.arange(count), whole)
        some = round(share * count)
        if not whole and not some:
            some = 1  # a source that is not left out has a row
        if not some:
            return every
        # Drawn by its name: other sources, and their order, do not change which rows these are.
        name = int.from_bytes(
            hashlib.blake2b(self.name.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big"
        )
        drawn = np.random.default_rng([seed, name]).choice(count, some, replace=False)
        return np.concatenate([every, np.sort(drawn)])


def read_sources(given: GivenSource | Sequence[GivenSource], options: DistillOptions) -> list[Taken]:
    """Read every source; those with the weight 0 are left out."""
    several = list(given) if isinstance(given, list | tuple) else [cast(GivenSource, given)]
    sources = [one if isinstance(one, Source) else Source(one) for one in several]
    found = [
        (examples, source.weight) for source in sources if source.weight for examples in _expand(source, options.sets)
    ]
    _check_weights(options.weights, [examples.name for examples, _ in found])
    weighted = [(examples, options.weights.get(examples.name, weight)) for examples, weight in found]
    taken = [Taken(examples, float(weight)) for examples, weight in weighted if weight]
    if not taken:
        raise InputError(
            "there is nothing to learn over: give sources (translations, texts or pairs), and at least one a weight "
            "above 0"
        )
    return taken


def _check_weights(weights: Mapping[str, float], names: Sequence[str]) -> None:
    unknown = [name for name in weights if name not in names]
    if unknown:
        raise InputError(
            f"weights must name sources ({', '.join(dict.fromkeys(names)) or 'none were read'}), got "
            f"{', '.join(unknown)}"
        )


def _expand(source: Source, options: SetOptions) -> list[Examples]:
    """A source as the examples it holds: one, or one for each value of its column `source`."""
    if isinstance(source.data, Examples):
        examples = source.data
        if examples.kind not in _KINDS:
            raise InputError(
                f"a source must be plain texts, pairs (translations) or scored pairs, but {examples.name or 'one'} is "
                f"{examples.kind}; Examples('name', 'plain', {{'text': texts}}) takes any texts"
            )
        found = [examples]
    elif isinstance(source.data, str | Path):
        found = _read(source, options)
    else:
        raise InputError(f"a source must be Examples, a path or a name, got {type(source.data).__name__}")
    for examples in found:
        if not len(examples):
            raise InputError(f"{examples.name} has no rows")
    if source.name is None:
        return found
    if len(found) == 1:
        return [replace(found[0], name=source.name)]
    return [replace(examples, name=f"{source.name}/{examples.name}") for examples in found]


def _read(source: Source, options: SetOptions) -> list[Examples]:
    given = str(source.data)
    name, _, split = given.partition(":")
    if name in DATASETS and not Path(given).is_file():
        if options.folder is None:
            raise InputError(
                f"{name} is the name of a public set: say in which folder these lie (SetOptions(folder=...), --data)"
            )
        if source.kind == "texts":
            return [_texts_of(load_dataset(name, split or "train", options.folder), source.columns)]
        return _named(name, split or "train", Path(options.folder))
    path = Path(given)
    if not path.is_file():
        raise DataError(
            f"{given}: there is no such file, and it is no name of a public set; known are {', '.join(DATASETS)}"
        )
    file = RowFile(path, ReadOptions(encoding=options.encoding))
    if source.kind == "texts" or (source.kind is None and file.kind == "txt"):
        return [_texts(path, source.columns, options)]
    names = [] if file.kind == "txt" else list(file.open().names)
    if source.kind is None and "text" in (source.columns or {}):
        return [_texts(path, source.columns, options)]
    return _pairs(path, source, names=names, options=options)


def _pairs(path: Path, source: Source, *, names: Sequence[str], options: SetOptions) -> list[Examples]:
    """A file of translations or of pairs, by its columns."""
    if source.columns is None and {"en", "ko", "source"} <= set(names) and RowFile(path, ReadOptions()).kind == "tsv":
        return list(parallel_by_source(path, encoding=options.encoding).values())
    plain = {name.strip().lower(): name for name in reversed(names)}  # as people write them: EN, Ko
    english_korean = source.columns is None and {"en", "ko"} <= plain.keys()
    columns = {"anchor": plain["en"], "positive": plain["ko"]} if english_korean else source.columns
    if source.kind == "pairs" and columns is None and "score" in plain:
        return [_scored(path, None, options)]
    if columns is None:
        _check_columns(path, names)
    if columns is not None and "a" in columns:
        return [_scored(path, columns, options)]
    return [read_examples(path, kind="pairs", columns=columns, encoding=options.encoding)]


def _scored(path: Path, columns: Mapping[str, str | int] | None, options: SetOptions) -> Examples:
    return read_examples(
        path,
        kind="scored",
        columns=columns,
        score_range=options.score_range,
        drop_outside=options.drop_outside,
        encoding=options.encoding,
    )


def _check_columns(path: Path, names: Sequence[str]) -> None:
    """Refuse a file of which nobody can tell which column is which, or whose first line is a pair already."""
    try:
        choose_columns(names, "pairs", None, path.name)
    except (DataError, InputError) as error:
        shown = ", ".join(repr(name[:40]) for name in names[:6]) or "nothing"
        raise DataError(
            f"{path.name}: cannot tell which column is in the teacher's language (anchor) and which translates it or "
            f"belongs to it (positive). Its first line holds {shown}. Where these are names, say which is which: "
            "Source(path, columns={'anchor': NAME, 'positive': NAME}), --source-columns anchor=NAME,positive=NAME. "
            "Where they are texts, the file has no header: --source-columns anchor=0,positive=1, or put a first line "
            "such as en<TAB>ko on top"
        ) from error


def _named(name: str, split: str, folder: Path) -> list[Examples]:
    """A public set; translations by their source, less the sources that the set goes without."""
    if name not in _LEFT_OUT:
        examples = load_dataset(name, split, folder)
        if examples.kind not in _KINDS:
            raise InputError(f"a source must be translations, texts or scored pairs, but {name} is {examples.kind}")
        return [examples]
    (path,) = find_files(name, "train", folder)
    by_source = parallel_by_source(path)
    return [examples for source, examples in by_source.items() if source not in _LEFT_OUT[name]]


def _texts(path: Path, columns: Mapping[str, str | int] | None, options: SetOptions) -> Examples:
    """Plain texts, one a row; blank ones are counted and left out."""
    column = (columns or {}).get("text")
    texts = read_texts(path, column=column, options=ReadOptions(encoding=options.encoding))
    kept = [text for text in texts if text.strip()]
    blank = len(texts) - len(kept)
    reading = Reading(str(path), len(texts), len(kept), refused_counts={"a blank text": blank} if blank else {})
    return Examples(path.name, "plain", {"text": kept}, reading=reading)


def _texts_of(examples: Examples, columns: Mapping[str, str | int] | None) -> Examples:
    """The different texts of a set, whatever it was made for; of one of its columns, where that is named."""
    asked = (columns or {}).get("text")
    if asked is not None and asked not in examples.columns:
        raise InputError(f"{examples.name} has the columns {', '.join(examples.columns)}, got text={asked}")
    chosen = examples.columns if asked is None else {str(asked): examples.columns[str(asked)]}
    texts = list(dict.fromkeys(text for column in chosen.values() for text in column if text.strip()))
    return Examples(examples.name, "plain", {"text": texts}, reading=examples.reading)


def plain_texts(examples: Examples) -> list[str]:
    """Every text of a source, column after column."""
    return [text for column in examples.columns.values() for text in column]
