"""A folder with every set that the making reads, in the layout of the public ones, in sentences of our own.

English and Korean say the same, word group by word group. What an evaluation set holds, no training set holds, but for
one planted sentence of each: plain Korean sets, translations, question pairs and the dictionary hold it too, in other
case and punctuation, and it must not be learned from.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from models.ko_en_0_1.material import EVALUATED

WHO = [
    ("a man", "한 남자가"),
    ("the woman", "그 여자가"),
    ("my child", "우리 아이가"),
    ("an old friend", "오랜 친구가"),
    ("the big dog", "큰 개가"),
    ("our teacher", "우리 선생님이"),
    ("a young singer", "젊은 가수가"),
]
WHERE = [
    ("at home", "집에서"),
    ("in Seoul", "서울에서"),
    ("by the river", "강가에서"),
    ("at school", "학교에서"),
    ("on the train", "기차에서"),
]
DOES = [
    ("plays the guitar", "기타를 친다"),
    ("eats noodles", "국수를 먹는다"),
    ("reads a book", "책을 읽는다"),
    ("sleeps well", "잠을 잘 잔다"),
    ("sings a song", "노래를 부른다"),
    ("waits for rain", "비를 기다린다"),
]
FORBIDDEN = [("never learn this", "이것은 배우지 마라"), ("nor this one", "이것도 배우지 마라")]  # xnli-dev, wikiqa
DICTIONARY = {
    "noun": [
        (("fever", "high temperature"), 'a body that is too warm; "she stayed in bed with a fever"'),
        (("noodle",), "a long thin strip of dough that is boiled"),
        (("guitar",), "an instrument with six strings"),
    ],
    "verb": [(("wait", "hold on"), "stay in one place until something happens")],
    "adj": [(("galore(ip)",), "in great numbers"), (("warm",), "rather hot")],
    "adv": [(("slowly", "at a snail's pace"), "without speed")],
}
PLANTED = [one for one in EVALUATED if one[0] != "nsmc"]  # whose test part is drawn
SOURCES = {"tatoeba": 20, "news-park": 12, "python-docs": 16, "talks": 30}  # and korsts-train
NLI = ("entailment", "neutral", "contradiction")


@cache
def sentences() -> tuple[tuple[str, str], ...]:
    """(English, Korean), 210 of them, in an order of no meaning."""
    every = [
        (f"{who[0]} {does[0]} {where[0]}.", f"{who[1]} {where[1]} {does[1]}.")
        for who in WHO
        for does in DOES
        for where in WHERE
    ]
    return tuple(every[place] for place in np.random.default_rng(7).permutation(len(every)))


def english(first: int, last: int) -> list[str]:
    return [sentences()[row % 210][0] for row in range(first, last)]


def korean(first: int, last: int) -> list[str]:
    return [sentences()[row % 210][1] for row in range(first, last)]


def today(pairs: Sequence[str]) -> list[str]:
    """Sentences that stand in evaluation sets alone."""
    return [f"{'Today' if text.isascii() else '오늘'} {text}" for text in pairs]


def planted(name: str, split: str) -> str:
    """The sentence that stands in this evaluation set alone."""
    return f"{name} {split} 시험에만 나오는 문장 Held Out."


def disguised(text: str) -> str:
    """The same sentence as another hand would write it."""
    return f"  '{text.upper().rstrip('.')}'  !!"


def data_folder(folder: Path) -> Path:
    """Write every set into the folder."""
    _sts(folder)
    _nli(folder)
    _korean(folder)
    _dictionary(folder)
    rows = [(en, ko, "korsts-train") for en, ko in zip(english(0, 24), korean(0, 24), strict=True)]
    first = 24
    for source, count in SOURCES.items():
        both = zip(english(first, first + count), korean(first, first + count), strict=True)
        rows += [(en, ko, source) for en, ko in both]
        first += count
    for place, (name, split) in enumerate(PLANTED):  # on either side
        both = [disguised(planted(name, split)), f"{name} {split} 옆에 있던 문장"]
        rows.append((both[place % 2], both[1 - place % 2], ("talks", "tatoeba")[place % 2]))
    rows += [(*FORBIDDEN[0], "xnli-dev"), (*FORBIDDEN[1], "wikiqa")]
    put(folder / "parallel-en-ko/train.tsv", ["en\tko\tsource", *("\t".join(row) for row in rows)])
    put(folder / "tatoeba-en-ko/tatoeba.eng", ["I have never been there.", "Where is the station?"])
    put(folder / "tatoeba-en-ko/tatoeba.kor", [planted("tatoeba", "test"), "역이 어디에 있나요?"])
    return folder


def put(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """A csv file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    put(path, [text.getvalue().rstrip("\n")])


def scores(count: int, seed: int) -> list[float]:
    """0..5, in no order."""
    drawn = np.random.default_rng(seed).permutation(np.linspace(0, 5, count))
    return [float(value) for value in drawn.round(1)]


def _sts(folder: Path) -> None:
    head = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"
    for split, first, count in (("train", 0, 40), ("dev", 60, 16), ("test", 80, 12)):
        given = scores(count, first)
        places = (first, first + count), (first + 9, first + count + 9)
        keep = list if split == "train" else today
        ko = [*zip(*(keep(korean(*place)) for place in places), given, strict=True)]
        en = [*zip(*(keep(english(*place)) for place in places), given, strict=True)]
        if split != "train":
            ko.append((planted("korsts", split), "저녁이다.", 1.0))
            en.append((planted("stsb", split), "It is evening.", 1.0))
        lines = [f"g\tf\ty\t{number}\t{score}\t{a}\t{b}" for number, (a, b, score) in enumerate(ko)]
        put(folder / f"korsts/sts-{split}.tsv", [head, *lines])
        table(folder / f"stsb-en/stsb-en-{split}.csv", en)
    for split, first, count in (("train", 100, 40), ("dev", 150, 8)):
        keep = list if split == "train" else today
        texts = [keep(korean(start, start + count)) for start in (first, first + 5)]
        rows = [*zip(*texts, scores(count, 3), strict=True)]
        if split == "dev":
            rows.append((planted("klue-sts", split), "아침이다.", 2.0))
        table(folder / f"klue-sts/{split}.csv", [("sentence1", "sentence2", "label"), *rows])
    for year in range(2012, 2017):
        put(folder / f"sts12-16/{year}/a.test.tsv", [f"2.0\t{planted(f'sts{year - 2000}', 'test')}\tA plane."])


def _judged(premises: Sequence[str], others: Sequence[str]) -> list[tuple[str, str, int]]:
    rows = []
    for number, (premise, other) in enumerate(zip(premises, others, strict=True)):
        rows += [(premise, f"yes {premise}", 0), (premise, f"maybe {other}", 1), (premise, f"no {premise} {number}", 2)]
    return rows


def _nli(folder: Path) -> None:
    for split, first in (("train", 100), ("dev", 170)):
        keep = list if split == "train" else today
        rows = _judged(keep(korean(first, first + 16)), keep(korean(first + 20, first + 36)))
        records = [{"premise": a, "hypothesis": b, "gold_label": NLI[label]} for a, b, label in rows]
        if split == "dev":
            records.append({"premise": planted("klue-nli", split), "hypothesis": "낮이다.", "gold_label": NLI[1]})
        put(folder / f"klue-nli/{split}.json", [json.dumps(records, ensure_ascii=False)])
    for name, first in (("validation", 40), ("test", 150)):
        rows = _judged(english(first, first + 8), english(first + 20, first + 28))
        lines = [f"{a}\t{b}\t{label}" for a, b, label in rows]
        put(folder / f"snli-en/{name}.tsv", ["premise\thypothesis\tlabel", *lines])
    for name, first in (("train", 60), ("validation", 170)):
        ask = 'For the statement, "{}", does the hypothesis "{}" represent entailment, contradiction, or neutrality?'
        rows = _judged(english(first, first + 8), english(first + 20, first + 28))
        asked = [(ask.format(a, b), NLI[label], "mnli") for a, b, label in rows]
        table(folder / f"mnli-en/mnli_{name}.csv", [("Question", "Answer", "Origin"), *asked])


def _dictionary(folder: Path) -> None:
    """As WordNet writes it: the licence first, then an entry a line; the number of words is hexadecimal."""
    hidden = []
    for place, (name, split) in enumerate(PLANTED):  # as a word or as what it means
        both = [disguised(planted(name, split)), f"{name} {split} 옆에 있던 낱말"]
        hidden.append(((both[place % 2],), both[1 - place % 2]))
    for kind, entries in DICTIONARY.items():
        lines = ["  1 Here would be a licence.  "]
        for number, (words, meaning) in enumerate([*entries, *(hidden if kind == "noun" else ())]):
            told = " ".join(f"{word.replace(' ', '_')} 0" for word in words)
            lines.append(f"{number:08} 03 {kind[0]} {len(words):02x} {told} 001 @ 00000000 n 0000 | {meaning}  ")
        put(folder / f"wordnet/data.{kind}", lines)


def _korean(folder: Path) -> None:
    for name, first, split in (("train", 0, None), ("val", 110, "dev"), ("test", 120, "test")):
        titles = korean(first, first + 8) if split is None else [planted("ynat", split), *today(korean(200, 202))]
        topics = ["경제", "스포츠"] * len(titles)
        table(folder / f"ynat/{name}.csv", [("title", "topic"), *zip(titles, topics, strict=False)])
    # Among the questions and answers: what no model may learn from, as another hand would write it.
    hidden = [disguised(planted(*one)) for one in PLANTED]
    chat = [(text, f"그래요, {text}", 0) for text in [*hidden[: len(hidden) // 2], *korean(20, 26)]]
    table(folder / "chatbot/ChatbotData.csv", [("Q", "A", "label"), *chat])
    asked = [(a, b, 0) for a, b in zip(korean(130, 150), (f"정말 {text}" for text in korean(130, 150)), strict=True)]
    asked += [(a, b, 1) for a, b in zip(korean(130, 150), korean(155, 175), strict=True)]
    asked.append((korean(130, 131)[0], f" {korean(130, 131)[0]}", 0))  # the same question twice is no pair
    asked += [(disguised(planted(*one)), f"{one[0]} {one[1]} 물어봅니다", 0) for one in PLANTED]
    table(folder / "question-pair/kor_pair_train.csv", [("question1", "question2", "is_duplicate"), *asked])
    held = [(*today([a, b]), label) for a, b, label in asked[:4]] + [(planted("question-pair", "test"), "왜요?", 1)]
    table(folder / "question-pair/kor_Pair_test.csv", [("question1", "question2", "is_duplicate"), *held])
    films = [f"{number}번째 영화는 {text}" for number, text in enumerate(korean(0, 40))]
    rated = [f"{number}\t{text}\t{number % 2}" for number, text in enumerate(films)]
    put(folder / "nsmc/nsmc_balanced_200k.tsv", ["id\tdocument\tlabel", *rated])
    reviews = [
        *films,
        "",
        "  ",
        *hidden[len(hidden) // 2 :],
        "짧다",
        "긴 말 " * 200,
        *(f"다시 보니 {text}" for text in korean(180, 200)),
    ]
    put(folder / "nsmc/reviews.txt", reviews)
    groups = [f"0\t0\t{text} {'!' * number}" for text in korean(0, 10) for number in range(1, 11)]
    put(folder / "parakqc/paraKQC_v1.txt", groups)
