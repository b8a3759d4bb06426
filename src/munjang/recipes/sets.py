"""The data of a recipe, made ready: paths and names become Examples, duplicates go, leakage is found before training.

Enters: what the caller gave as training, development and test sets. Leaves: `Sets`, in which every training set is free
of repeated rows and has been compared with every evaluation set. Nothing happens in silence: what was left out is
counted in the sets' readings, and what training and evaluation share comes as a `LeakageWarning` and in the report.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, cast

from munjang.data import (
    DATASETS,
    Examples,
    Kind,
    Leakage,
    ReadOptions,
    leakage,
    load_dataset,
    open_rows,
    read_examples,
    without,
)
from munjang.data.columns import choose_columns, has_numbered_columns, roles_of
from munjang.errors import DataError, InputError, LeakageWarning
from munjang.recipes.options import GivenSet, GivenSets, LeakagePolicy, SetOptions

Role = Literal["train", "dev", "test"]


@dataclass(frozen=True, eq=False)
class Sets:
    """The sets of one recipe, read and checked."""

    train: tuple[Examples, ...]
    dev: tuple[Examples, ...] = ()
    test: tuple[Examples, ...] = ()
    leakage: Leakage | None = None  # the evaluation sets in the order dev, test, those of other stages
    policy: LeakagePolicy = "report"
    removed: int = 0  # training rows that went because of leakage
    shared: Leakage | None = None  # what development and test sets share

    @property
    def evaluation(self) -> tuple[Examples, ...]:
        return self.dev + self.test

    def roles(self) -> Iterator[tuple[Role, Examples]]:
        """Every set with its part in the run."""
        yield from (("train", examples) for examples in self.train)
        yield from (("dev", examples) for examples in self.dev)
        yield from (("test", examples) for examples in self.test)


@dataclass(frozen=True)
class Kinds:
    """Which kinds of data a recipe takes, the most usual first."""

    train: tuple[Kind, ...]
    evaluation: tuple[Kind, ...]


def read_sets(train: GivenSets, dev: GivenSets, test: GivenSets, *, kinds: Kinds, options: SetOptions) -> Sets:
    """Read everything, take repeated rows out of the training sets, and refuse one set for two roles."""
    found = Sets(
        train=_named([one.without_duplicates() for one in _read(train, "train", kinds.train, options)]),
        dev=_named(_read(dev, "dev", kinds.evaluation, options)),
        test=_named(_read(test, "test", kinds.evaluation, options)),
    )
    if not found.train:
        raise InputError("there is nothing to train on: give train a set, a path or the name of a public set")
    check_roles(found.dev, found.test)
    return found


def check_roles(dev: Sequence[Examples], test: Sequence[Examples]) -> None:
    """Refuse a test set that is a development set too."""
    for one in dev:
        for other in test:
            if one is other or _same_rows(one, other):
                raise InputError(
                    f"the development set chooses the model; it cannot report too: {one.name} is given as dev and "
                    f"{other.name} as test, and they hold the same rows. Leave test away, or give another set"
                )


def check_leakage(sets: Sets, policy: LeakagePolicy, *, others: Sequence[Examples] = ()) -> Sets:
    """Compare training with evaluation, before anything is computed; `others` are evaluation sets of other stages."""
    watched = [*sets.evaluation, *others]
    if not watched:
        return sets
    shared = leakage(sets.dev, sets.test) if sets.dev and sets.test else None
    found = leakage(sets.train, watched)
    sets = replace(sets, leakage=found, policy=policy, shared=shared)
    if not found.any:
        return sets
    if policy == "refuse":
        raise InputError(
            f"evaluation sentences stand in the training data, and leakage='refuse' was asked for:\n{found}\n"
            "leakage='remove' takes these rows out of the training data, 'report' trains on them and says so"
        )
    rows = sum(len(one.some) for one in found.train)
    done = "these training rows were taken out" if policy == "remove" else "the scores of these sets are optimistic"
    warnings.warn(
        f"evaluation sentences stand in {rows:,} rows of the training data; {done}:\n{found}",
        LeakageWarning,
        stacklevel=2,
    )
    if policy == "report":
        return sets
    kept = tuple(without(one, seen.some) for one, seen in zip(sets.train, found.train, strict=True))
    empty = [one.name for one in kept if not len(one)]
    if empty:
        raise InputError(f"every row of {', '.join(empty)} holds an evaluation sentence: nothing is left to train on")
    return replace(sets, train=kept, removed=rows)


# --- reading ---------------------------------------------------------------------------------------------------------


def as_list(given: GivenSets) -> list[GivenSet]:
    """One set, several or none, as a list."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [cast(GivenSet, given)]


def _read(given: GivenSets, role: Role, kinds: tuple[Kind, ...], options: SetOptions) -> list[Examples]:
    sets = as_list(given)
    for one in sets:
        if not isinstance(one, Examples | str | Path):
            raise InputError(
                f"{role} must be Examples, a path, the name of a public set, or a list of these, got "
                f"{type(one).__name__}; Examples.from_dicts(rows, kind={kinds[0]!r}) makes examples of dicts"
            )
    found = [one if isinstance(one, Examples) else read_set(one, role, kinds, options) for one in sets]
    for one in found:
        if one.kind not in kinds:
            raise InputError(
                f"{role} must be {' or '.join(kinds)} data here, but {one.name} is {one.kind}; munjang.data has "
                "functions that make one kind of another"
            )
        if not len(one):
            raise InputError(f"{one.name} has no rows")
    return found


def read_set(given: str | Path, role: Role, kinds: tuple[Kind, ...], options: SetOptions) -> Examples:
    """A file with columns, or a public set by its name: 'korsts' is its split of this role, 'korsts:dev' another."""
    name, _, split = str(given).partition(":")
    if name in DATASETS and not Path(given).is_file():
        if options.folder is None:
            raise InputError(
                f"{name} is the name of a public set: say in which folder these lie (SetOptions(folder=...), --data)"
            )
        return load_dataset(name, split or role, options.folder)
    if not Path(given).is_file():
        near = get_close_matches(name, DATASETS, n=1)
        raise DataError(
            f"{given}: there is no such file, and it is no name of a public set"
            + (f" (did you mean {near[0]}?)" if near else "")
            + f"; known are {', '.join(DATASETS)}"
        )
    kind = options.kind or _kind_of(Path(given), kinds, options)
    return read_examples(
        given,
        kind=kind,
        columns=options.columns,
        score_range=options.score_range if kind == "scored" else None,
        label_map=options.labels if kind in ("labelled", "classified") else None,
        any_labels=options.any_labels,
        drop_outside=options.drop_outside,
        format=options.format,
        encoding=options.encoding,
    )


def _kind_of(path: Path, kinds: tuple[Kind, ...], options: SetOptions) -> Kind:
    """The first of the kinds whose roles are named, or whose columns are there."""
    named = [kind for kind in kinds if _has_roles(kind, options)]
    if len(kinds) == 1 or not named:
        return kinds[0]  # reading it says what is missing
    header = not has_numbered_columns(options.columns)
    source = open_rows(path, options=ReadOptions(options.format, options.encoding, header=header))
    names = source.open().names
    found = {}
    for kind in named:
        with contextlib.suppress(DataError, InputError):
            found[kind] = choose_columns(names, kind, options.columns, source.name)
    if "pairs" in found and len(found["pairs"].texts) == 2 and len(found) > 1:
        # Two texts beside a label or a score: to take all of them for positives would teach what the column denies.
        del found["pairs"]
    return next(iter(found), named[0])


def _has_roles(kind: Kind, options: SetOptions) -> bool:
    roles = roles_of(kind)
    return all(role in roles or (kind == "pairs" and role.startswith("negative")) for role in options.columns or {})


def _named(found: Sequence[Examples]) -> tuple[Examples, ...]:
    """Names of their own: a second 'pairs.tsv' becomes 'pairs.tsv (2)'."""
    seen = Counter[str]()
    named = []
    for number, one in enumerate(found, start=1):
        name = one.name or f"set {number}"
        seen[name] += 1
        named.append(replace(one, name=name if seen[name] == 1 else f"{name} ({seen[name]})"))
    return tuple(named)


def _same_rows(one: Examples, other: Examples) -> bool:
    """Whether two sets hold the same rows, in whatever order."""
    if one.kind != other.kind or len(one) != len(other) or list(one.columns) != list(other.columns):
        return False
    return Counter(_rows(one)) == Counter(_rows(other))


def _rows(examples: Examples) -> Iterator[tuple[object, ...]]:
    targets = [None] * len(examples) if examples.targets is None else [one.tobytes() for one in examples.targets]
    return zip(*examples.columns.values(), targets, strict=True)
