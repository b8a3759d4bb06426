"""Topics of texts and the dates of the texts -> how often each topic comes in each period, and with which words."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Literal

from munjang.errors import InputError
from munjang.tasks.candidates import Language, topic_words
from munjang.tasks.class_tfidf import Word, weigh_counts

Bins = int | Literal["day", "month", "year"]
Date = str | date | datetime
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Period:
    """A stretch of time, from `start` up to but not including `end`."""

    start: datetime
    end: datetime
    counts: dict[int, int]  # texts of each topic; one that did not come is left out
    words: dict[int, tuple[Word, ...]]  # what set each topic apart, then


def periods(
    texts: Sequence[str],
    labels: Sequence[int],
    dates: Sequence[Date],
    *,
    bins: Bins = 10,
    top: int = 5,
    language: Language = "auto",
) -> tuple[Period, ...]:
    """Class-TF-IDF with every topic in every period as a class; texts without a topic (-1) are left out."""
    if not len(texts) == len(labels) == len(dates):
        raise InputError(
            f"every text needs a topic and a date: got {len(texts):,} texts, {len(labels):,} topics and "
            f"{len(dates):,} dates"
        )
    moments = [read_date(value, number) for number, value in enumerate(dates)]
    if not moments:
        return ()
    edges = _edges(min(moments), max(moments), bins)
    places = [_place(moment, edges) for moment in moments]
    counts: dict[tuple[int, int], int] = Counter()
    words: dict[tuple[int, int], Counter[str]] = {}
    for row, label, place in zip(topic_words(texts, language=language), labels, places, strict=True):
        if label >= 0:
            counts[int(label), place] += 1
            words.setdefault((int(label), place), Counter()).update(row)
    order = sorted(words)
    terms = weigh_counts({number: words[key] for number, key in enumerate(order)})
    heaviest = {key: terms.top(number, top) for number, key in enumerate(order)}
    return tuple(
        Period(
            edges[place],
            edges[place + 1],
            {label: count for (label, where), count in sorted(counts.items()) if where == place},
            {label: found for (label, where), found in heaviest.items() if where == place},
        )
        for place in range(len(edges) - 1)
    )


def read_date(value: Date, number: int) -> datetime:
    """A date as it comes: 2024-05-01, 2024-05-01T12:30, 2024-05, 202405, 2024, 20240501, 2024.05.01, 2024/5/1."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    text = str(value).strip()
    if len(text) == 6 and text.isdigit():
        text = f"{text[:4]}-{text[4:]}"
    for shape in ("%Y-%m-%d", "%Y-%m", "%Y", "%Y.%m.%d", "%Y/%m/%d", "%Y.%m.%d.", "%Y%m%d"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, shape)  # one without hours has no time zone
    try:
        return read_date(datetime.fromisoformat(text.replace("Z", "+00:00")), number)
    except ValueError:
        raise InputError(f"date {number} must be like 2024-05-01 (or ISO 8601 with a time), got {value!r}") from None


def _edges(first: datetime, last: datetime, bins: Bins) -> list[datetime]:
    """The borders of the periods, one more than there are periods."""
    if isinstance(bins, int) and not isinstance(bins, bool):
        if not 1 <= bins <= 1000:
            raise InputError(f"bins must be 1..1000, or day, month or year, got {bins}")
        width = max((last - first) / bins, timedelta(microseconds=1))
        return [first + width * number for number in range(bins)] + [max(last, first + width * bins) + _DAY / 86_400]
    if bins not in ("day", "month", "year"):
        raise InputError(f"bins must be 1..1000, or day, month or year, got {bins!r}")
    edges = [_floor(first, bins)]
    while edges[-1] <= last:
        edges.append(_next(edges[-1], bins))
        if len(edges) > 10_000:
            raise InputError(f"{bins}s from {first.date()} to {last.date()} are more than 10,000: take longer periods")
    return edges


def _floor(moment: datetime, bins: str) -> datetime:
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return start if bins == "day" else start.replace(day=1) if bins == "month" else start.replace(month=1, day=1)


def _next(moment: datetime, bins: str) -> datetime:
    if bins == "day":
        return moment + _DAY
    if bins == "year" or moment.month == 12:
        return moment.replace(year=moment.year + 1, month=1)
    return moment.replace(month=moment.month + 1)


def _place(moment: datetime, edges: list[datetime]) -> int:
    return min(bisect_right(edges, moment) - 1, len(edges) - 2)
