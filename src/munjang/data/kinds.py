"""The kinds of examples: which texts each has, what is known about them, and what files usually call it.

Enters: the names of a table's columns, and which of them the caller named. Leaves: the position of every role. What
the caller does not name is guessed from names that are in common use, and the guess is handed back to be said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from munjang.data.columns import TEXT_COLUMNS, choose_column
from munjang.errors import DataError, InputError

Kind = Literal["scored", "labelled", "pairs", "classified", "ranked", "taught", "plain"]
KINDS: tuple[str, ...] = get_args(Kind)

# kind -> the columns of texts that it has, in order
TEXT_ROLES: dict[str, tuple[str, ...]] = {
    "scored": ("a", "b"),
    "labelled": ("a", "b"),
    "pairs": ("anchor", "positive"),
    "classified": ("text",),
    "ranked": ("query", "document"),
    "taught": ("text",),
    "plain": ("text",),
}
# kind -> what the columns that may stand behind these are called (name, name_2, name_3...), and how many at most
MORE_ROLES: dict[str, tuple[str, int | None]] = {
    "pairs": ("negative", None),
    "taught": ("translation", None),
    "plain": ("translation", 1),
}
# kind -> what is known about a row; the scores of a teacher over pairs may be absent; of plain texts nothing is known
TARGET_ROLES: dict[str, str] = {
    "scored": "score",
    "labelled": "label",
    "pairs": "scores",
    "classified": "label",
    "ranked": "relevance",
    "taught": "vector",
}
_FIRST = ("sentence1", "sentence_1", "sentence_a", "text1", "text_a", "premise", "question1", "q1", "문장1", "문장 1",
          "질문1", "전제")  # fmt: skip
_SECOND = (
    "sentence2",
    "sentence_2",
    "sentence_b",
    "text2",
    "text_b",
    "hypothesis",
    "question2",
    "q2",
    "문장2",
    "문장 2",
    "질문2",
    "가설",
)
GUESSES: dict[str, tuple[str, ...]] = {
    "a": ("a", *_FIRST),
    "b": ("b", *_SECOND),
    "score": ("score", "similarity_score", "similarity", "점수", "유사도", "label", "labels", "라벨"),
    "label": ("label", "gold_label", "labels", "category", "topic", "is_duplicate", "라벨", "레이블", "분류", "주제"),
    "anchor": ("anchor", "query", "question", "q", "기준", "질문", *_FIRST),
    "positive": ("positive", "pos", "answer", "a", "긍정", "정답", "답변", *_SECOND),
    "query": ("query", "question", "질문", "질의"),
    "document": ("document", "passage", "doc", "text", "문서", "본문"),
    "relevance": ("relevance", "score", "label", "grade", "관련도", "점수", "라벨"),
    "text": (*TEXT_COLUMNS, "review", "리뷰", "제목"),
    "vector": ("vector", "embedding", "벡터"),
    "scores": (),  # only when named: a column of scores beside pairs may be anything
}
# Columns that say whether the two texts of a row belong together. ('category' and 'topic' say what they are about.)
PAIR_LABELS = ("label", "labels", "gold_label", "is_duplicate", "라벨", "레이블")
PAIR_SCORES = ("score", "similarity_score", "similarity", "relevance", "grade", "점수", "유사도", "관련도")
_MORE_GUESSES = {
    "negative": re.compile(r"(negative|neg|부정|오답)_?([0-9]*)"),
    "translation": re.compile(r"(translation|번역|번역문)_?([0-9]*)"),
}


@dataclass(frozen=True)
class Chosen:
    """Where the texts and the target of a row stand."""

    texts: dict[str, int]  # role -> position, in the order of the kind
    target: int | None
    guessed: tuple[str, ...] = ()  # "a = sentence1"

    @property
    def note(self) -> tuple[str, ...]:
        news = [guess for guess in self.guessed if guess.partition(" = ")[0] != guess.partition(" = ")[2]]
        return (f"columns guessed: {', '.join(self.guessed)}",) if news else ()


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")


def roles_of(kind: str) -> tuple[str, ...]:
    """Every role that a row of this kind has for certain: its texts, and what is known of it."""
    return (*TEXT_ROLES[kind], *([TARGET_ROLES[kind]] if kind in TARGET_ROLES else []))


def check_columns(kind: str, names: Sequence[str]) -> None:
    """Raise unless these are the columns of texts that this kind has."""
    wanted = TEXT_ROLES[kind]
    more, most = MORE_ROLES.get(kind, ("", 0))
    behind = len(names) - len(wanted)
    if tuple(names) == (*wanted, *numbered(more, behind)) and (most is None or behind <= most):
        return
    raise InputError(
        f"examples of kind {kind!r} have the columns {', '.join(wanted)}{_and_then(kind)}; got {', '.join(names)}"
    )


def numbered(name: str, count: int) -> list[str]:
    """negative, negative_2, negative_3..."""
    return [name if place == 1 else f"{name}_{place}" for place in range(1, count + 1)]


def negative_names(count: int) -> list[str]:
    """The columns of so many negatives."""
    return numbered("negative", count)


def _and_then(kind: str) -> str:
    """What an error says of the columns that may stand behind."""
    name, most = MORE_ROLES.get(kind, ("", 0))
    return "" if most == 0 else f" and then {name}" + ("" if most == 1 else f", {name}_2, {name}_3...")


def choose_columns(names: Sequence[str], kind: Kind, given: Mapping[str, str | int] | None, where: str) -> Chosen:
    """The position of every role of this kind: as given, or else guessed."""
    given = given or {}
    roles, target = TEXT_ROLES[kind], TARGET_ROLES.get(kind)
    unknown = [role for role in given if role not in roles_of(kind) and not _is_more(kind, role)]
    if unknown:
        raise InputError(
            f"columns of examples of kind {kind!r} are {', '.join(roles_of(kind))}{_and_then(kind)}; "
            f"got {', '.join(unknown)}"
        )
    guessed: list[str] = []
    texts: dict[str, int] = {}
    for role in roles:
        texts[role] = _position(names, role, given, where, taken=texts, guessed=guessed)
    if kind in MORE_ROLES:
        texts.update(_more(names, kind, given, where, taken=texts, guessed=guessed))
    place: int | None = None
    if target is not None and (kind != "pairs" or target in given):
        place = _position(names, target, given, where, taken=texts, guessed=guessed)
    return Chosen(texts, place, tuple(guessed))


def _is_more(kind: str, role: str) -> bool:
    """Whether a role is one of those behind: negative, negative_2..."""
    if kind not in MORE_ROLES:
        return False
    name, most = MORE_ROLES[kind]
    return role == name or (most != 1 and re.fullmatch(rf"{name}_([2-9]|[1-9][0-9]+)", role) is not None)


def _position(
    names: Sequence[str],
    role: str,
    given: Mapping[str, str | int],
    where: str,
    *,
    taken: Mapping[str, int],
    guessed: list[str],
) -> int:
    if role in given:
        return choose_column(names, given[role], where)
    plain = [name.strip().lower() for name in names]
    for guess in GUESSES[role]:
        if guess in plain and plain.index(guess) not in taken.values():
            position = plain.index(guess)
            if plain.count(guess) > 1:
                break
            guessed.append(f"{role} = {names[position]}")
            return position
    raise DataError(
        f"{where}: cannot tell which column is {role!r}. Its columns are: {', '.join(map(repr, names[:30]))}."
        f" Name it: columns={{{role!r}: ...}}, or --columns {role}=NAME on the command line. If these are no"
        f" names, as the file has no header: name all columns by their numbers from 0, such as {role}=0"
    )


def _more(
    names: Sequence[str],
    kind: str,
    given: Mapping[str, str | int],
    where: str,
    *,
    taken: Mapping[str, int],
    guessed: list[str],
) -> dict[str, int]:
    """The named columns behind; where nothing at all was named, every column that is called like one."""
    more, most = MORE_ROLES[kind]
    named = sorted((role for role in given if _is_more(kind, role)), key=lambda role: _number(role, more))
    if named or given:
        if named != numbered(more, len(named)):
            raise InputError(f"{more}s are named {more}, {more}_2, {more}_3... without gaps; got {named}")
        return {role: choose_column(names, given[role], where) for role in named}
    found = [
        (int(match.group(2) or 1), position)
        for position, name in enumerate(names)
        if (match := _MORE_GUESSES[more].fullmatch(name.strip().lower())) and position not in taken.values()
    ]
    found = sorted(found)[:most]
    roles = numbered(more, len(found))
    guessed += [f"{role} = {names[position]}" for role, (_, position) in zip(roles, found, strict=True)]
    return {role: position for role, (_, position) in zip(roles, found, strict=True)}


def _number(role: str, name: str) -> int:
    return int(role.removeprefix(name).removeprefix("_") or 1)
