"""What is given -> what Augmented SBERT works on: labelled sets, evaluation sets, and the sentences to be paired.

    gold, perhaps domain     sentences of gold and of the domain; gold trains
    domain and public        sentences of the domain alone; public trains

Of a domain that comes as labelled examples the labels are not looked at. Sentences of the evaluation sets among those
to be paired are treated as the leakage policy says, now: not after hours, when the silver pairs are trained on. A
domain file without a single sentence, and a run folder that holds something else, are errors now too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from munjang.data import DATASETS, Examples, ReadOptions, load_dataset, open_rows, open_texts
from munjang.data.columns import choose_columns, has_numbered_columns, some_of
from munjang.data.files import RowFile
from munjang.data.overlaps import normalise
from munjang.errors import DataError, InputError
from munjang.recipes.augmenting.defaults import TWO_WAYS
from munjang.recipes.augmenting.options import AugmentOptions
from munjang.recipes.augmenting.sentences import Sentences, collect
from munjang.recipes.options import GivenSets
from munjang.recipes.sets import Kinds, Sets, check_leakage, read_sets
from munjang.recipes.stages import check_run_folder
from munjang.recipes.telling import say, tell_sets
from munjang.training.run import data_hash

Scenario = Literal["gold", "public"]
Domain: TypeAlias = "str | Path | Examples | Sequence[str | Path | Examples] | None"

_SCORED = Kinds(("scored",), ("scored",))


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that is read, before anything is computed."""

    scenario: Scenario
    sets: Sets  # train: the labelled sets, named "gold: ..." or "public: ..."
    sentences: Sentences
    domain: tuple[tuple[str, int], ...] = ()  # sources of plain sentences, and how many each has, duplicates too
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, object]:
        """What the run was made of, by name and hash, as result.json has it."""
        labelled = {self.scenario: self.sets.train, "dev": self.sets.dev, "test": self.sets.test}
        found: dict[str, object] = {
            role: [{"name": one.name, "rows": len(one), "hash": data_hash(one)} for one in sets]
            for role, sets in labelled.items()
        }
        found["domain"] = [{"name": name, "texts": texts} for name, texts in self.domain]
        return found | {"sentences": {"different": len(self.sentences), "hash": self.sentences.hash}}

    @property
    def scores(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:  # [n]
        """The scores of all labelled pairs."""
        return np.concatenate([np.asarray(one.targets, np.float32) for one in self.sets.train])


def read_material(
    gold: GivenSets, public: GivenSets, domain: Domain, *, evaluation: tuple[GivenSets, GivenSets],
    options: AugmentOptions,
) -> Material:  # fmt: skip
    """Read and check; evaluation: the development and the test sets."""
    scenario = _scenario(gold, public, domain)
    check_run_folder(options.folder, "augmented")
    if options.gold_rows is not None and scenario != "gold":
        raise InputError("gold_rows says how many rows of gold are labelled, but there is no gold")
    sets = read_sets(gold if scenario == "gold" else public, *evaluation, kinds=_SCORED, options=options.sets)
    sets = replace(sets, train=tuple(replace(one, name=f"{scenario}: {one.name}") for one in sets.train))
    tell_sets(options.progress, sets)
    sets, unlabelled = _labelled(sets, options)
    if options.leakage == "refuse":
        check_leakage(sets, "refuse")
    own = chain.from_iterable(_rows(one) for one in (*sets.train, *unlabelled)) if scenario == "gold" else ()
    say(options.progress, "collecting sentences")
    screened = _Screened(sets.evaluation, remove=options.leakage == "remove")
    met = _Met()
    plain = domain_texts(domain, options, met=met)
    sentences = collect((), screened.passed(chain(own, plain)), progress=options.progress)
    for name, count in met.sources:
        say(options.progress, f"domain {name}: {count:,} texts")
    say(options.progress, f"{len(sentences):,} different sentences to pair")
    notes = screened.notes(options.leakage)
    if len(sentences) < 2:
        raise InputError(
            f"pairs need at least two different sentences, got {len(sentences)}"
            + (": leakage='remove' took those of the evaluation sets out" if screened.shared else "")
        )
    return Material(scenario, sets, sentences, tuple(met.sources), notes)


def _scenario(gold: GivenSets, public: GivenSets, domain: Domain) -> Scenario:
    has_gold, has_public, has_domain = (_given(one) for one in (gold, public, domain))
    if has_gold and not has_public:
        return "gold"
    if has_public and has_domain and not has_gold:
        return "public"
    named = (("gold", has_gold), ("public", has_public), ("domain", has_domain))
    came = [name for name, there in named if there]
    raise InputError(f"give {TWO_WAYS}; got {' and '.join(came) or 'neither'}")


def _given(what: object) -> bool:
    return what is not None and not (isinstance(what, Sequence) and len(what) == 0)


def _labelled(sets: Sets, options: AugmentOptions) -> tuple[Sets, tuple[Examples, ...]]:
    """The rows whose labels are used, a seeded sample of all gold rows together; and the others."""
    wanted = options.gold_rows
    if wanted is None:
        return sets, ()
    sizes = [len(one) for one in sets.train]
    if wanted > sum(sizes):
        raise InputError(f"gold_rows must be 1..{sum(sizes):,} (the rows of gold), got {wanted:,}")
    chosen = np.random.default_rng(options.seed).permutation(sum(sizes))[:wanted]
    used = np.zeros(sum(sizes), np.bool_)
    used[chosen] = True
    parts = np.split(used, np.cumsum(sizes)[:-1])
    kept = [one.take(np.flatnonzero(part)) for one, part in zip(sets.train, parts, strict=True)]
    rest = [one.take(np.flatnonzero(~part)) for one, part in zip(sets.train, parts, strict=True)]
    return replace(sets, train=tuple(one for one in kept if len(one))), tuple(one for one in rest if len(one))


def _rows(examples: Examples) -> Iterator[str]:
    """The texts of every row, so that those of a pair stand together."""
    return chain.from_iterable(zip(*examples.columns.values(), strict=True))


class _Screened:
    """Texts on their way, compared with the sentences of the evaluation sets."""

    def __init__(self, evaluation: Sequence[Examples], *, remove: bool) -> None:
        self._known = {normalise(text) for one in evaluation for text in one.texts()}
        self._remove = remove
        self.shared: set[str] = set()

    def passed(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            key = normalise(text) if self._known and isinstance(text, str) else ""
            if key and key in self._known:
                self.shared.add(key)
                if self._remove:
                    continue
            yield text

    def notes(self, policy: str) -> tuple[str, ...]:
        if not self.shared:
            return ()
        count = f"{len(self.shared):,} of the {len(self._known):,} sentences of the evaluation sets"
        if policy == "refuse":
            raise InputError(
                f"{count} are among those to be paired, and leakage='refuse' was asked for (without spaces and "
                f"punctuation: {some_of(sorted(self.shared), 3)}); leakage='remove' leaves them out, 'report' pairs "
                "them with others and says so"
            )
        if self._remove:
            return (f"{count} were among those to be paired, and were left out.",)
        return (
            f"{count} are paired with other sentences (never as in the evaluation): the model sees them in training.",
        )


# --- the domain ------------------------------------------------------------------------------------------------------


@dataclass
class _Met:
    """Sources of plain sentences that were read to their end, with the number of their texts."""

    sources: list[tuple[str, int]] = field(default_factory=list)

    def counted(self, given: str | Path | Examples, texts: Iterator[str]) -> Iterator[str]:
        """The texts; an error after the last where there was none: a file that was given was meant."""
        name = (given.name or "examples") if isinstance(given, Examples) else str(given)
        count = 0
        for text in texts:
            count += not isinstance(text, str) or bool(text.strip())
            yield text
        if not count:
            raise DataError(
                f"{name}: there is not a single sentence in it. A file of the domain has a sentence a line, or a table "
                "with a column of sentences; leave it away if there are none"
            )
        self.sources.append((name, count))


def domain_texts(domain: Domain, options: AugmentOptions, *, met: _Met | None = None) -> Iterator[str]:
    """The sentences of a domain: a file or a public set by its name, examples, or a list of these and of texts.

    In a list a str is a sentence and a Path a file (or the name of a public set).
    """
    met = met or _Met()
    if domain is None:
        return
    if isinstance(domain, str | Path | Examples):
        yield from met.counted(domain, _source_texts(domain, options))
        return
    for one in domain if isinstance(domain, list | tuple) else open_texts(domain):
        if isinstance(one, Path | Examples):
            yield from met.counted(one, _source_texts(one, options))
        else:
            yield one


def _source_texts(given: str | Path | Examples, options: AugmentOptions) -> Iterator[str]:
    if isinstance(given, Examples):
        return _rows(given)
    name, _, split = str(given).partition(":")
    if Path(given).is_file():
        return _file_texts(Path(given), options)
    if name not in DATASETS:
        raise DataError(
            f"{given}: there is no such file of the domain, and it is no name of a public set; sentences themselves "
            f"come as a list. Known sets are {', '.join(DATASETS)}"
        )
    if options.sets.folder is None:
        raise InputError(f"{name} is the name of a public set: say in which folder these lie (SetOptions, --data)")
    return _rows(load_dataset(name, split or "train", options.sets.folder))


def _file_texts(path: Path, options: AugmentOptions) -> Iterator[str]:
    """A line, or a row, is a text; of a file of pairs both sides are."""
    sets = options.sets
    reading = ReadOptions(encoding=sets.encoding)
    if RowFile(path, reading).kind == "txt" or options.domain_column is not None:
        return iter(open_texts(path, column=options.domain_column, options=reading))
    # As for the files of pairs: columns by their numbers mean that no header names them.
    pairs = replace(reading, header=not has_numbered_columns(sets.columns))
    source = open_rows(path, options=pairs)
    names = source.open().names
    try:
        sides = list(choose_columns(names, "pairs", _sides(sets.columns), str(path)).texts.values())[:2]
    except (DataError, InputError):
        return iter(open_texts(path, options=reading))  # the one column, or an error that names them all
    rows = open_texts(source, column=sides[0], keep=(names[sides[1]],)).rows()
    return chain.from_iterable((row.text, str(row.columns[names[sides[1]]])) for row in rows)


def _sides(columns: Mapping[str, str | int] | None) -> dict[str, str | int] | None:
    """The columns that were named for scored pairs, as those of plain pairs."""
    if not columns or not {"a", "b"} <= set(columns):
        return None
    return {"anchor": columns["a"], "positive": columns["b"]}
