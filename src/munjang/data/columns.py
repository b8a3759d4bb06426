"""Which column of a table holds what: the texts, or every role of a kind of examples.

A column that the caller does not name is chosen by a name in common use, and the choice is returned for the report.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from munjang.errors import DataError, InputError

Kind = Literal["scored", "labelled", "pairs", "classified", "ranked", "taught", "plain"]
KINDS: tuple[str, ...] = get_args(Kind)

# kind -> its columns of texts, in order
TEXT_ROLES: dict[str, tuple[str, ...]] = {
    "scored": ("a", "b"),
    "labelled": ("a", "b"),
    "pairs": ("anchor", "positive"),
    "classified": ("text",),
    "ranked": ("query", "document"),
    "taught": ("text",),
    "plain": ("text",),
}
# kind -> optional columns after these (name, name_2, name_3...), and how many at most
MORE_ROLES: dict[str, tuple[str, int | None]] = {
    "pairs": ("negative", None),
    "taught": ("translation", None),
    "plain": ("translation", 1),
}
# kind -> the target of a row; optional for pairs (a teacher's scores)
TARGET_ROLES: dict[str, str] = {
    "scored": "score",
    "labelled": "label",
    "pairs": "scores",
    "classified": "label",
    "ranked": "relevance",
    "taught": "vector",
}
TEXT_COLUMNS = ("text", "sentence", "document", "content", "title", "문장", "본문", "내용", "텍스트")
_FIRST = (
    *("sentence1", "sentence_1", "sentence_a", "text1", "text_a", "premise", "question1", "q1"),
    *("문장1", "문장 1", "질문1", "전제"),
)
_SECOND = (
    *("sentence2", "sentence_2", "sentence_b", "text2", "text_b", "hypothesis", "question2", "q2"),
    *("문장2", "문장 2", "질문2", "가설"),
)
_USUAL_NAMES: dict[str, tuple[str, ...]] = {
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
_USUAL_MORE = {
    "negative": re.compile(r"(negative|neg|부정|오답)_?([0-9]*)"),
    "translation": re.compile(r"(translation|번역|번역문)_?([0-9]*)"),
}
# Columns that say whether the two texts of a row belong together ('category' and 'topic' say what they are about)
PAIR_LABELS = ("label", "labels", "gold_label", "is_duplicate", "라벨", "레이블")
PAIR_SCORES = ("score", "similarity_score", "similarity", "relevance", "grade", "점수", "유사도", "관련도")


def choose_column(
    names: Sequence[str], column: str | int | None, where: str, *, strings: Collection[str] | None = None
) -> int:
    """Return the position of the text column.

    Args:
        column: its name or number from 0; None takes the only column or one with a usual name.
        strings: for data in memory, the columns that hold strings. The column is then `text` or the only one of these:
            a usual name is not enough where the choice cannot be reported.

    Raises:
        DataError: there is no such column, or the choice is not clear.
    """
    if isinstance(column, str) and column not in names and column.isdecimal():
        column = int(column)
    if isinstance(column, int):
        if not 0 <= column < len(names):
            raise DataError(f"{where}: column number must be 0..{len(names) - 1}, got {column}. {_list(names)}")
        return column
    if column is not None:
        return named_column(names, column, where)
    if len(names) == 1:
        return 0
    plain = [name.strip().lower() for name in names]
    for usual in TEXT_COLUMNS if strings is None else TEXT_COLUMNS[:1]:
        if usual in plain:
            return plain.index(usual)
    if strings is None:
        advice = "Pass the name or the number (from 0) of one (--column)"
    else:
        candidates = [name for name in strings if name.strip().lower() != "id"]
        if len(candidates) == 1:
            return names.index(candidates[0])
        example = (candidates or names or ["text"])[0]
        advice = f"Pass one of them, such as data[{example!r}]; encode also takes column=NAME"
    raise DataError(f"{where}: cannot tell which column holds the texts. {_list(names)}. {advice}")


def named_column(names: Sequence[str], name: str, where: str) -> int:
    """Return the position of the only column of that name."""
    positions = [position for position, other in enumerate(names) if other == name]
    if len(positions) == 1:
        return positions[0]
    if positions:
        raise DataError(
            f"{where}: {len(positions)} columns are named {name!r}; pass the number of one: "
            f"{', '.join(map(str, positions))}"
        )
    raise DataError(f"{where}: there is no column {name!r}. {_list(names)}")


@dataclass(frozen=True)
class ChosenColumns:
    """Positions of the texts and of the target of a row."""

    texts: dict[str, int]  # role -> position, in the order of the kind
    target: int | None
    note: tuple[str, ...] = ()  # what a report says about guesses; nothing where every column is named like its role


def choose_columns(
    names: Sequence[str], kind: Kind, given: Mapping[str, str | int] | None, where: str
) -> ChosenColumns:
    """Return the position of every role of a kind: as named in `given`, else guessed from usual names.

    Optional columns (negative, negative_2...) are guessed only where nothing is named.
    """
    given = given or {}
    unknown = [role for role in given if role not in roles_of(kind) and not _is_more_role(kind, role)]
    if unknown:
        known = f"{', '.join(roles_of(kind))}{_and_more(kind)}"
        raise InputError(f"columns of examples of kind {kind!r} are {known}; got {', '.join(unknown)}")
    texts: dict[str, int] = {}
    guessed: dict[str, str] = {}  # role -> name

    def position_of(role: str) -> int:
        if role in given:
            return choose_column(names, given[role], where)
        plain = [name.strip().lower() for name in names]
        for usual in _USUAL_NAMES[role]:
            if usual in plain and plain.index(usual) not in texts.values():
                if plain.count(usual) > 1:
                    break
                guessed[role] = names[plain.index(usual)]
                return plain.index(usual)
        raise DataError(
            f"{where}: cannot tell which column is {role!r}. {_list(names)}. Name it: columns={{{role!r}: ...}}, or "
            f"--columns {role}=NAME on the command line. If these are not names, as the file has no header: name all "
            f"columns by their numbers from 0, such as {role}=0"
        )

    for role in TEXT_ROLES[kind]:
        texts[role] = position_of(role)
    if kind in MORE_ROLES:
        more, most = MORE_ROLES[kind]
        named = [role for role in given if _is_more_role(kind, role)]
        if sorted(named) != sorted(numbered(more, len(named))):
            raise InputError(f"{more}s are named {more}, {more}_2, {more}_3... without gaps; got {sorted(named)}")
        if given:
            texts.update({role: choose_column(names, given[role], where) for role in numbered(more, len(named))})
        else:
            usual = [
                (int(match[2] or 1), position)
                for position, name in enumerate(names)
                if (match := _USUAL_MORE[more].fullmatch(name.strip().lower())) and position not in texts.values()
            ]
            for role, (_, position) in zip(numbered(more, len(usual)), sorted(usual)[:most], strict=False):
                texts[role] = position
                guessed[role] = names[position]
    target = TARGET_ROLES.get(kind)
    has_target = target is not None and (kind != "pairs" or target in given)
    target_position = position_of(target) if target and has_target else None
    shown = ", ".join(f"{role} = {name}" for role, name in guessed.items())
    is_news = any(role != name for role, name in guessed.items())
    return ChosenColumns(texts, target_position, (f"columns guessed: {shown}",) if is_news else ())


def check_kind(kind: str) -> None:
    """Raise `InputError` unless there is such a kind of examples."""
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")


def check_columns(kind: str, names: Sequence[str]) -> None:
    """Raise `InputError` unless these are the columns of texts of this kind."""
    required = TEXT_ROLES[kind]
    more, most = MORE_ROLES.get(kind, ("", 0))
    extra = len(names) - len(required)
    if tuple(names) != (*required, *numbered(more, extra)) or (most is not None and extra > most):
        raise InputError(
            f"examples of kind {kind!r} have the columns {', '.join(required)}{_and_more(kind)}; got {', '.join(names)}"
        )


def roles_of(kind: str) -> tuple[str, ...]:
    """Return the required roles of a kind: its texts and its target."""
    return (*TEXT_ROLES[kind], *([TARGET_ROLES[kind]] if kind in TARGET_ROLES else []))


def numbered(name: str, count: int) -> list[str]:
    """Return negative, negative_2, negative_3..."""
    return [name if place == 1 else f"{name}_{place}" for place in range(1, count + 1)]


def has_numbered_columns(columns: Mapping[str, str | int] | None) -> bool:
    """Whether all columns are given by number, which means that the file has no header."""
    return bool(columns) and all(str(column).isdecimal() for column in (columns or {}).values())


def _is_more_role(kind: str, role: str) -> bool:
    if kind not in MORE_ROLES:
        return False
    name, most = MORE_ROLES[kind]
    return role == name or (most != 1 and re.fullmatch(rf"{name}_([2-9]|[1-9][0-9]+)", role) is not None)


def _and_more(kind: str) -> str:
    name, most = MORE_ROLES.get(kind, ("", 0))
    return "" if most == 0 else f" and then {name}" + ("" if most == 1 else f", {name}_2, {name}_3...")


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name if len(name) <= 40 else name[:39] + "…") for name in names[:30])
    return f"Its columns are: {shown}" + (f" and {len(names) - 30} more" if len(names) > 30 else "")
