"""Which column of a table holds what: the texts, or every role of a kind of examples.

A column that the caller does not name is chosen by a name in common use, and the choice is returned for the report.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from munjang.errors import DataError, InputError

Kind = Literal["scored", "labelled", "pairs", "classified", "ranked", "taught", "plain"]


class Roles(NamedTuple):
    """The columns of a kind of examples."""

    texts: tuple[str, ...]
    target: str | None = None  # optional for pairs (a teacher's scores)
    more: str = ""  # optional texts after these: negative, negative_2, negative_3...
    most: int | None = None  # how many of them at most


ROLES: dict[str, Roles] = {
    "scored": Roles(("a", "b"), "score"),
    "labelled": Roles(("a", "b"), "label"),
    "pairs": Roles(("anchor", "positive"), "scores", more="negative"),
    "classified": Roles(("text",), "label"),
    "ranked": Roles(("query", "document"), "relevance"),
    "taught": Roles(("text",), "vector", more="translation"),
    "plain": Roles(("text",), more="translation", most=1),
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
    "negative": ("negative", "neg", "부정", "오답"),  # also followed by a number
    "translation": ("translation", "번역", "번역문"),
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


class ChosenColumns(NamedTuple):
    """Positions of the texts and of the target of a row."""

    texts: dict[str, int]  # role -> position, in the order of the kind
    target: int | None
    note: tuple[str, ...] = ()  # guesses, for the report; nothing where every column is named like its role


def choose_columns(
    names: Sequence[str], kind: Kind, given: Mapping[str, str | int] | None, where: str
) -> ChosenColumns:
    """Return the position of every role of a kind: as named in `given`, else guessed from usual names.

    Optional columns (negative, negative_2...) are guessed only where nothing is named.
    """
    roles, given = ROLES[kind], given or {}
    optional = [role for role in given if roles.more and role.startswith(roles.more)]
    unknown = [role for role in given if role not in (*roles.texts, roles.target, *optional)]
    if unknown:
        known = ", ".join(roles_of(kind)) + _and_more(roles)
        raise InputError(f"columns of examples of kind {kind!r} are {known}; got {', '.join(unknown)}")
    if set(optional) != set(numbered(roles.more, len(optional))) or len(optional) > (roles.most or len(optional)):
        usual_names = ", ".join(numbered(roles.more, roles.most or 3)) + ("" if roles.most else "...")
        raise InputError(f"{roles.more}s are named {usual_names} without gaps; got {sorted(optional)}")
    plain = [name.strip().lower() for name in names]
    texts: dict[str, int] = {}
    guessed: dict[str, str] = {}  # role -> name

    def position_of(role: str) -> int:
        if role in given:
            return choose_column(names, given[role], where)
        free = (name for name in _USUAL_NAMES[role] if name in plain and plain.index(name) not in texts.values())
        usual = next(free, None)
        if usual is None or plain.count(usual) > 1:
            raise DataError(
                f"{where}: cannot tell which column is {role!r}. {_list(names)}. Name it: columns={{{role!r}: ...}}, "
                f"or --columns {role}=NAME on the command line. If these are not names, as the file has no header: "
                f"name all columns by their numbers from 0, such as {role}=0"
            )
        guessed[role] = names[plain.index(usual)]
        return plain.index(usual)

    for role in (*roles.texts, *numbered(roles.more, len(optional))):
        texts[role] = position_of(role)
    if roles.more and not given:
        pattern = re.compile(rf"({'|'.join(_USUAL_NAMES[roles.more])})_?([0-9]*)")
        matches = [(pattern.fullmatch(name), at) for at, name in enumerate(plain) if at not in texts.values()]
        optionals = sorted((int(match[2] or 1), at) for match, at in matches if match)[: roles.most]
        for role, (_, at) in zip(numbered(roles.more, len(optionals)), optionals, strict=True):
            texts[role] = at
            guessed[role] = names[at]
    has_target = roles.target is not None and (kind != "pairs" or roles.target in given)
    target = position_of(roles.target) if roles.target and has_target else None
    shown = ", ".join(f"{role} = {name}" for role, name in guessed.items())
    is_news = any(role != name for role, name in guessed.items())
    return ChosenColumns(texts, target, (f"columns guessed: {shown}",) if is_news else ())


def check_kind(kind: str) -> None:
    """Raise `InputError` unless there is such a kind of examples."""
    if kind not in ROLES:
        raise InputError(f"kind must be one of {', '.join(ROLES)}, got {kind!r}")


def check_columns(kind: str, names: Sequence[str]) -> None:
    """Raise `InputError` unless these are the columns of texts of this kind."""
    roles = ROLES[kind]
    extra = len(names) - len(roles.texts) if roles.more else 0
    if tuple(names) != (*roles.texts, *numbered(roles.more, extra)) or extra > (roles.most or extra):
        raise InputError(
            f"examples of kind {kind!r} have the columns {', '.join(roles.texts)}{_and_more(roles)}; got "
            f"{', '.join(names)}"
        )


def roles_of(kind: str) -> tuple[str, ...]:
    """Return the required roles of a kind: its texts and its target."""
    texts, target, *_ = ROLES[kind]
    return texts if target is None else (*texts, target)


def numbered(name: str, count: int) -> list[str]:
    """Return negative, negative_2, negative_3..."""
    return [name if place == 1 else f"{name}_{place}" for place in range(1, count + 1)]


def has_numbered_columns(columns: Mapping[str, str | int] | None) -> bool:
    """Whether all columns are given by number, which means that the file has no header."""
    return bool(columns) and all(str(column).isdecimal() for column in (columns or {}).values())


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Return the first names for a message, and how many more there are."""
    shown = ", ".join(map(shortened, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def shortened(text: str) -> str:
    """Return at most 100 characters of a text."""
    return text if len(text) <= 100 else text[:99] + "…"


def _and_more(roles: Roles) -> str:
    more = roles.more
    return f" and then {more}" + ("" if roles.most == 1 else f", {more}_2, {more}_3...") if more else ""


def _list(names: Sequence[str]) -> str:
    return f"Its columns are: {some_of(list(map(repr, names)), 30)}"
