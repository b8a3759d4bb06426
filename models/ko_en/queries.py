"""Queries that nobody wrote: key words, questions, casual and noisy spellings of sentences that a passage holds.

Pure functions of a text and a random generator. They need no morphology, so that the making has no further dependency;
a particle that stays is no harm, for users write them too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

_PARTICLE = re.compile(
    r"(?<=[가-힣A-Za-z0-9]{2})(?:에서는|에게는|으로써|으로서|에서|에게|까지|부터|으로|이나|이며|하고|은|는|이|가|을|를|의|에|로|와|과|도|만|나)$"
)
_EDGES = ".,!?;:()[]{}<>「」『』‘’“”\"'·…"
_WORD = re.compile(r"[가-힣]+|[A-Za-z][A-Za-z'-]+|\d+")
_ENDINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"입니다\.?$", "인가요?"),
        (r"습니다\.?$", "나요?"),
        (r"하고 있음\.?$", "하고 있나?"),
        (r"있음\.?$", "있나?"),
        (r"없음\.?$", "없나?"),
        (r"하였음\.?$", "했나요?"),
        (r"(?<=[가-힣])함\.?$", "하나요?"),
        (r"(?<=[가-힣])됨\.?$", "되나요?"),
        (r"(?<=[가-힣])임\.?$", "인가?"),
        (r"이다\.?$", "인가?"),
        (r"([았었했였겠])다\.?$", r"\1나요?"),
        (r"한다\.?$", "하는가?"),
        (r"된다\.?$", "되는가?"),
        (r"하세요\.?$|하십시오\.?$", "하나요?"),
    )
)
_ASKED = (
    (re.compile(r"(?:을|를)$"), ("무엇을", "어떤 것을", "뭘")),
    (re.compile(r"(?:이|가|은|는)$"), ("무엇이", "누가", "어떤 것이", "뭐가")),
    (re.compile(r"(?:에서|에)$"), ("어디에서", "어디에", "언제")),
    (re.compile(r"(?:으로|로)$"), ("무엇으로", "어떻게")),
)
_KO_HEADINGS = (
    "{} 방법",
    "{} 어떻게 해요?",
    "{} 하는 법",
    "{}하려면?",
    "{} 알려줘",
    "{}",
    "{}",
    "{}은 뭔가요?",
    "{} 어디서 하나요",
)
_EN_HEADINGS = ("how to {}", "how do I {}?", "{}", "{}", "what is {}?", "{} help", "where can I find {}?")
_EN_TERMS = ("{}", "what is {}?", "define {}", "meaning of {}", "what does {} mean?", "{} definition")


def tidy(word: str) -> str:
    """A word without punctuation around it and, in Korean, without its particle."""
    return _PARTICLE.sub("", word.strip(_EDGES))


def keywords(text: str, rarity: Mapping[str, float], draw: random.Random, *, most: int = 5) -> str:
    """Some telling words of a text in their order. rarity: of every word, higher is rarer."""
    words = list(dict.fromkeys(word for word in map(tidy, text.split()) if _WORD.fullmatch(word) and len(word) > 1))
    if len(words) < 2:
        return ""
    count = min(len(words), draw.choice((1, 2, 2, 3, 3, 4, most)))
    chosen = set(sorted(words, key=lambda word: -rarity.get(word, 0.0) + draw.random() * 2)[:count])
    return " ".join(word for word in words if word in chosen)


def vocabulary_rarity(texts: Sequence[str]) -> dict[str, float]:
    """log of 1 / the share of texts that have a word."""
    import math
    from collections import Counter

    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({tidy(word) for word in text.split()})
    return {word: math.log(len(texts) / count) if count > 1 else 5.0 for word, count in counts.items()}


def korean_question(sentence: str, draw: random.Random) -> str:
    """A statement as a question, '' where its ending is unknown.

    '현행법은 과세표준을 공시가격으로 산정하고 있음' -> '현행법은 무엇을 공시가격으로 산정하고 있나?'
    """
    found = next((pattern.sub(new, sentence) for pattern, new in _ENDINGS if pattern.search(sentence)), "")
    if not found:
        stem = re.search(r"([가-힣])니다\.?$", sentence)
        if not stem or (ord(stem[1]) - 0xAC00) % 28 != 17:  # a syllable that ends in ㅂ: 합니다, 됩니다
            return ""
        found = sentence[: stem.start()] + chr(ord(stem[1]) - 17) + "나요?"
    words = found.split()
    places = [place for place in range(len(words) - 1) if any(pattern.search(words[place]) for pattern, _ in _ASKED)]
    if places and draw.random() < 0.7:
        place = draw.choice(places)
        asked = next(options for pattern, options in _ASKED if pattern.search(words[place]))
        # What is asked for goes with the words before it that belong to it.
        words[place] = draw.choice(asked)
    start = draw.randrange(max(1, len(words) - 7)) if len(words) > 9 and draw.random() < 0.6 else 0
    return " ".join(words[start:])


_ASKING_KO = (
    "은?", "는?", "은 무엇인가?", "는 무엇인가?", "은 누구인가?", "는 언제인가?", "은 어디인가?", "의 이름은?",
    " 어떻게 하나요?", " 무엇인가요?", " 누구인가?", " 언제인가?", " 어디인가?", " 몇 개인가?", " 이유는?", " 뭐야?",
)  # fmt: skip
_ASKING_EN = (
    "what is", "who is", "when was", "where is", "how many", "how to", "which", "why", "what does", "what are", "does",
)  # fmt: skip


def word_question(sentence: str, draw: random.Random) -> str:
    """Some of a sentence's words, often without particles, sometimes in another order, mostly with a question word.

    '대통령은 1962년에 서울에서 태어났다' -> '대통령 태어났다 서울은 어디인가?'
    """
    words = sentence.strip().rstrip(".?!").split()
    if len(words) < 4:
        return ""
    kept = sorted(draw.sample(range(len(words)), max(2, round(len(words) * draw.uniform(0.3, 0.8)))))[:14]
    if draw.random() < 0.2:
        draw.shuffle(kept)
    chosen = [words[place] for place in kept]
    korean = bool(re.search("[가-힣]", sentence))
    asking = draw.random() < 0.65
    if korean and asking:  # what is asked about is a noun: a word that had a particle
        nouns = [place for place, word in enumerate(chosen) if tidy(word) != word.strip(_EDGES)]
        if nouns:
            chosen.append(tidy(chosen.pop(nouns[-1])))
        chosen[-1] += draw.choice(_ASKING_KO if nouns else [one for one in _ASKING_KO if one[0] == " "])
    if korean and draw.random() < 0.6:
        last = len(chosen) - asking  # its ending was just made
        chosen[:last] = [tidy(word) or word if draw.random() < 0.7 else word for word in chosen[:last]]
    if not korean and asking:
        chosen = [draw.choice(_ASKING_EN), *chosen]
        chosen[1] = chosen[1][0].lower() + chosen[1][1:] if chosen[1][1:2].islower() else chosen[1]
        chosen[-1] = chosen[-1].strip(_EDGES) + "?"
    return " ".join(chosen)


def sentence_question(sentence: str, language: str, draw: random.Random) -> str:
    """A question that a sentence answers: with another ending and a question word, or made of some of its words."""
    asked = korean_question(sentence.rstrip("."), draw) if language == "ko" and draw.random() < 0.45 else ""
    return asked or word_question(sentence, draw)


def heading_query(heading: str, language: str, draw: random.Random) -> str:
    if heading.endswith("?"):
        return heading
    if language == "ko":
        return draw.choice(_KO_HEADINGS).format(heading)
    small = heading[0].lower() + heading[1:] if heading[1:2].islower() else heading
    return draw.choice(_EN_HEADINGS).format(small)


def term_query(term: str, draw: random.Random) -> str:
    return draw.choice(_EN_TERMS).format(term)


# --- noise -----------------------------------------------------------------------------------------------------------

_NEIGHBOURS = {"ㅐ": "ㅔ", "ㅔ": "ㅐ", "ㅚ": "ㅙ", "ㅙ": "ㅚ", "ㅞ": "ㅚ"}
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_CASUAL = (
    (re.compile(r"하나요\?$"), ("해?", "함?", "하나", "해요")),
    (re.compile(r"되나요\?$"), ("돼?", "됨?", "되나", "되요?")),
    (re.compile(r"인가요?\?$"), ("임?", "야?", "인지", "이에요?")),
    (re.compile(r"나요?\?$"), ("냐", "나", "나여", "는지")),
    (re.compile(r"\?$"), ("", "??", " ㅠㅠ", " 알려줘")),
)


def typo(text: str, draw: random.Random) -> str:
    """One slip: a letter left out or swapped; in Korean a vowel that sounds alike, or a final consonant left out."""
    places = [place for place, letter in enumerate(text) if letter.isalpha()]
    if len(places) < 4:
        return text
    place = draw.choice(places[1:])
    letter = text[place]
    if "가" <= letter <= "힣":
        code = ord(letter) - 0xAC00
        vowel = _VOWELS[code // 28 % 21]
        if vowel in _NEIGHBOURS:
            code += 28 * (_VOWELS.index(_NEIGHBOURS[vowel]) - _VOWELS.index(vowel))
        elif code % 28:
            code -= code % 28
        else:
            return text[:place] + letter + text[place:]
        return text[:place] + chr(0xAC00 + code) + text[place + 1 :]
    if draw.random() < 0.5 or not text[place - 1].isalpha():
        return text[:place] + text[place + 1 :]
    return text[: place - 1] + letter + text[place - 1] + text[place + 1 :]


def noisy(text: str, draw: random.Random) -> str:
    """Most queries as they are; some without spaces or particles, with a typo, cut off, or in a casual voice."""
    chance = draw.random()
    korean = any("가" <= letter <= "힣" for letter in text)
    if chance < 0.08 and korean:
        return text.replace(" ", "")
    if chance < 0.12 and korean:  # some of the spaces
        return "".join(part + ("" if draw.random() < 0.5 else " ") for part in text.split()).strip()
    if chance < 0.18:
        return typo(text, draw)
    if chance < 0.24 and korean:
        return " ".join(filter(None, map(tidy, text.split()))) or text
    if chance < 0.29:
        words = text.split()
        return " ".join(words[: max(2, round(len(words) * 0.7))])
    if chance < 0.36 and korean:
        for pattern, new in _CASUAL:
            if pattern.search(text):
                return pattern.sub(draw.choice(new), text)
    if chance < 0.40:
        return text.lower()
    return text
