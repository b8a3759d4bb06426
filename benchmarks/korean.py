"""Korean sentences from a small grammar: particles by the last sound, plain, polite and formal endings.

Korean words carry their particles and endings, so that natural text brings far more different words than English does:
10,000 of these sentences hold some 16,000 (real text more: try `--texts`). Nouns times particles, verbs times endings,
names and numbers make them.
"""

from __future__ import annotations

from random import Random

from benchmarks.korean_words import ADVERBS, CITIES, OPENERS, SUBJECTS, SURNAMES, SYLLABLES, WHEN
from benchmarks.subject import Subject

FIRST, LAST = 0xAC00, 0xD7A3
RIEUL, BIEUP, NIEUN, SSANG_SIOT = 8, 17, 4, 20  # final consonants by their place in Unicode
DIGIT_FINALS = {"0": 21, "1": RIEUL, "3": 16, "6": 1, "7": RIEUL, "8": RIEUL}  # 영 일 삼 육 칠 팔
PAIRS = {
    "은": ("은", "는"),
    "이": ("이", "가"),
    "을": ("을", "를"),
    "과": ("과", "와"),
    "으로": ("으로", "로"),
    "이라고": ("이라고", "라고"),
    "이나": ("이나", "나"),
    "이었": ("이었", "였"),
}
# What Koreans write in Latin letters, and how they say it: the particle follows the sound.
LATIN = {
    "server": "서버",
    "API": "에이피아이",
    "update": "업데이트",
    "deadline": "데드라인",
    "meeting": "미팅",
    "PPT": "피피티",
    "email": "이메일",
    "GPU": "지피유",
    "model": "모델",
    "dataset": "데이터셋",
    "bug": "버그",
    "code review": "코드 리뷰",
    "feedback": "피드백",
    "Wi-Fi": "와이파이",
    "USB": "유에스비",
    "schedule": "스케줄",
    "login": "로그인",
    "token": "토큰",
    "benchmark": "벤치마크",
    "release note": "릴리스 노트",
    "coffee chat": "커피챗",
    "workshop": "워크숍",
    "Slack": "슬랙",
    "Python": "파이썬",
    "script": "스크립트",
    "notebook": "노트북",
    "embedding": "임베딩",
    "search": "서치",
    "demo": "데모",
    "pipeline": "파이프라인",
    "cloud": "클라우드",
    "budget": "버짓",
    "report": "리포트",
    "team building": "팀 빌딩",
    "YouTube": "유튜브",
    "KPI": "케이피아이",
    "prototype": "프로토타입",
    "latency": "레이턴시",
    "cache": "캐시",
    "OTT": "오티티",
}


def final(word: str) -> int:
    """The final consonant of the word's last sound, 0 for none."""
    last = LATIN.get(word, word).rstrip(")\"'” ")[-1:]
    if last and FIRST <= ord(last) <= LAST:
        return (ord(last) - FIRST) % 28
    return DIGIT_FINALS.get(last, 0)


def josa(word: str, particle: str) -> str:
    """The word with its particle in the right shape: josa("책", "은") is 책은, josa("나무", "은") is 나무는."""
    closed, open_ = PAIRS[particle]
    sound = final(word)
    if particle == "으로" and sound == RIEUL:
        return word + open_
    return word + (closed if sound else open_)


def _with_final(text: str, consonant: int) -> str:
    """The text with another final consonant in its last syllable."""
    code = ord(text[-1]) - FIRST
    return text[:-1] + chr(FIRST + code - code % 28 + consonant)


def _stems(verb: str) -> tuple[str, str]:
    stem, _, past = verb.partition(":")
    return stem, past.split(":")[0] if past else _with_final(stem[:-1] + "해", SSANG_SIOT)


def ending(verb: str, form: str) -> str:
    """A verb or adjective with an ending: -고 goes to the stem, ㅆ다 to the past stem, the rest by the last sound."""
    stem, past = _stems(verb)
    sound = final(stem)
    dropped = _with_final(stem, 0) if sound == RIEUL else stem
    if form == "ㅂ니다":
        return _with_final(stem, BIEUP) + "니다" if sound in (0, RIEUL) else stem + "습니다"
    if form == "아요":
        return _with_final(past, 0) + "요" if not past.endswith("이었") else past[:-2] + "이에요"
    if form == "아서":
        return _with_final(past, 0) + "서" if not past.endswith("이었") else past[:-2] + "이어서"
    if form == "면":
        return stem + ("면" if sound in (0, RIEUL) else "으면")
    if form == "려고":
        return stem + ("려고" if sound in (0, RIEUL) else "으려고")
    if form.startswith("ㅆ"):
        return past + form[1:]
    return (dropped if form[1] in "는나네" else stem) + form[1:]


def modifier(adjective: str) -> str:
    """The adjective before a noun."""
    parts = adjective.split(":")
    return parts[2] if len(parts) > 2 else _with_final(parts[0], NIEUN)


PAST = [
    "ㅆ다",
    "ㅆ어요",
    "ㅆ습니다",
    "ㅆ지요",
    "ㅆ대요",
    "ㅆ거든요",
    "ㅆ네요",
    "ㅆ다고 합니다",
    "ㅆ을까요?",
    "ㅆ나 봐요",
]
NOW = [
    "-고 있다",
    "-고 있어요",
    "-고 있습니다",
    "ㅂ니다",
    "아요",
    "-지 않는다",
    "-지 못했어요",
    "-기로 했다",
    "-기 시작했습니다",
    "-자고 했어요",
    "-는 중입니다",
    "-고 싶어 해요",
]


def sentence(random: Random) -> str:
    """One sentence, of 2 to about 16 words."""
    pattern = random.choices(PATTERNS, WEIGHTS)[0]
    text = pattern(random, random.choice(SUBJECTS))
    return _closed(f"{_whereabouts(random)} {text}" if random.random() < 0.3 else text, random)


def switched(random: Random) -> str:
    """A Korean sentence with English words in it, as offices write them."""
    subject, word, other = random.choice(SUBJECTS), *random.sample(sorted(LATIN), 2)
    kind = random.randrange(4)
    if kind == 0:
        text = f"{random.choice(WHEN)} {josa(_who(random, subject), '이')} {josa(word, '을')} {_verb(random, subject)}"
    elif kind == 1:
        text = (
            f"{josa(word, '은')} {random.choice(CITIES)} {random.choice(subject.places)}에서 {_verb(random, subject)}"
        )
    elif kind == 2:
        text = f"{josa(word, '과')} {other} 중에서 {josa(_who(random, subject), '은')} {josa(word, '을')} 골랐어요"
    else:
        text = f"{random.choice(OPENERS)}, {_thing(random, subject)} 관련 {josa(word, '이')} 아직 안 왔습니다"
    return _closed(text, random)


def _closed(text: str, random: Random) -> str:
    return text if text[-1] in ".?!" else text + random.choices((".", "!", "...", "", "?"), (80, 5, 4, 8, 3))[0]


def _name(random: Random) -> str:
    name = random.choice(SURNAMES) + random.choice(SYLLABLES) + random.choice(SYLLABLES)
    return name + random.choice(("", "", " 씨", " 씨", " 교수", " 대표", " 기자"))


def _whereabouts(random: Random) -> str:
    """Somewhere that is on no map, or a day: the words that come once."""
    place = "".join(random.choices(SYLLABLES, k=random.choice((2, 2, 3))))
    kind = random.randrange(5)
    if kind == 0:
        return f"{place}역 {random.randint(1, 12)}번 출구에서"
    if kind == 1:
        return (
            f"{random.randint(1, 12)}월 {random.randint(1, 31)}일 {random.randint(1, 12)}시 {random.randint(1, 59)}분쯤"
        )
    if kind == 2:
        return f"{place}{random.choice(('동', '산', '읍', '마을', '해수욕장'))}에서 온 {josa(_name(random), '과')} 함께"
    if kind == 3:
        return f"{random.randint(1, 980)}만 {random.randint(1, 9) * 1000}원을 들여"
    return f"{place}{random.choice(('대학교', '전자', '신문', '호텔', '상사', '백화점'))}에서는"


def _who(random: Random, s: Subject) -> str:
    kind = random.random()
    if kind < 0.45:
        return random.choice(s.people)
    if kind < 0.55:
        return f"{random.choice(CITIES)}의 {random.choice(s.people)}"
    return _name(random)


def _thing(random: Random, s: Subject) -> str:
    thing, kind = random.choice(s.things), random.random()
    if kind < 0.35:
        return f"{modifier(random.choice(s.adjectives))} {thing}"
    if kind < 0.45:
        return f"{_name(random)}의 {thing}"
    return f"{thing} {random.randint(2, 400)}{random.choice(('개', '번', '가지'))}" if kind < 0.55 else thing


def _verb(random: Random, s: Subject) -> str:
    return ending(random.choice(s.verbs), random.choice(PAST if random.random() < 0.6 else NOW))


def _plain(random: Random, s: Subject) -> str:
    return f"{josa(_who(random, s), random.choice('은이'))} {josa(_thing(random, s), '을')} {_verb(random, s)}"


def _placed(random: Random, s: Subject) -> str:
    place = random.choice(s.places)
    return f"{josa(_who(random, s), '이')} {place}에서 {josa(_thing(random, s), '을')} {_verb(random, s)}"


def _timed(random: Random, s: Subject) -> str:
    acting = f"{random.choice(ADVERBS)} {_verb(random, s)}"
    return f"{random.choice(WHEN)} {josa(_who(random, s), '은')} {josa(_thing(random, s), '을')} {acting}"


def _dropped(random: Random, s: Subject) -> str:
    """No subject, as in talk."""
    return f"{random.choice(ADVERBS)} {josa(_thing(random, s), '을')} {_verb(random, s)}"


def _judged(random: Random, s: Subject) -> str:
    how = random.choice(("무척", "꽤", "별로", "너무", "조금", "생각보다", "예상외로"))
    form = random.choice(["ㅆ다", "ㅆ어요", "ㅆ습니다", "ㅆ네요", "아요", "-지 않다"])
    judged = ending(random.choice(s.adjectives), "-지 않았습니다" if how == "별로" else form)
    return f"{random.choice(s.places)}의 {josa(random.choice(s.things), '은')} {how} {judged}"


def _quoted(random: Random, s: Subject) -> str:
    said = random.choice(("말했다", "썼습니다", "대답했어요", "속삭였다", "외쳤습니다"))
    form = random.choice(("ㅆ어요", "ㅂ니다", "ㅆ습니다"))
    inner = f"{josa(_thing(random, s), '을')} {ending(random.choice(s.verbs), form)}"
    return f'{josa(_who(random, s), "은")} "{inner}."라고 {said}'


def _reasoned(random: Random, s: Subject) -> str:
    reason = f"{josa(random.choice(s.things), '이')} {ending(random.choice(s.adjectives), '아서')}"
    return f"{reason} {josa(_who(random, s), '은')} {josa(_thing(random, s), '을')} {_verb(random, s)}"


def _chained(random: Random, s: Subject) -> str:
    form = random.choice(("아서", "면", "려고", "-고", "-지만", "ㅆ지만", "-는데", "-기 때문에"))
    first, place = ending(random.choice(s.verbs), form), random.choice(s.places)
    return (
        f"{random.choice(OPENERS)} {josa(_who(random, s), '은')} {josa(_thing(random, s), '을')} {first}, "
        f"{josa(_who(random, s), '이')} {place}에서 {josa(_thing(random, s), '을')} {_verb(random, s)}"
    )


def _counted(random: Random, s: Subject) -> str:
    one, two = random.sample(s.things, 2)
    many, most = random.randint(3, 9999), random.randint(2, 98)
    return (
        f"{random.choice(CITIES)} 시민 {many:,}명 가운데 {most}%가 {josa(one, '을')}, "
        f"{random.randint(1, 40)}.{random.randint(0, 9)}%가 {josa(two, '을')} 골랐다"
    )


def _asked(random: Random, s: Subject) -> str:
    asks = random.choice(("왜", "언제", "어떻게", "누구와", "정말"))
    form = random.choice(("ㅆ나요?", "ㅆ습니까?", "-나요?", "ㅆ을까요?", "-는지 아세요?"))
    return (
        f"{josa(_who(random, s), '은')} {asks} {josa(_thing(random, s), '을')} {ending(random.choice(s.verbs), form)}"
    )


def _headline(random: Random, s: Subject) -> str:
    place, person = random.choice(CITIES), random.choice(s.people)
    news = random.choice(("논란", "화제", "공개", "눈길", "급증", "재개"))
    return f"[{place}] {person}, {random.choice(s.things)} {news}"


def _dated(random: Random, s: Subject) -> str:
    day = f"{random.randint(1950, 2025)}년 {random.randint(1, 12)}월 {random.randint(1, 28)}일"
    place = f"{random.choice(CITIES)} {random.choice(s.places)}"
    return f"{josa(_name(random), '은')} {day} {place}에서 {josa(_thing(random, s), '을')} {_verb(random, s)}"


PATTERNS = [
    _plain,
    _placed,
    _timed,
    _dropped,
    _judged,
    _quoted,
    _reasoned,
    _chained,
    _counted,
    _asked,
    _headline,
    _dated,
]
WEIGHTS = [12, 13, 12, 9, 9, 7, 9, 8, 5, 8, 4, 6]
