"""English sentences from a small grammar: many patterns and registers, one subject to a sentence.

Natural text never stops bringing new words: 10,000 sentences hold well over 10,000 different ones, most of them names,
numbers and compounds that come once. Invented names, codes and compounds give these texts such a tail, so that a
tokenizer with a table of words meets as many unknown ones here as elsewhere.
"""

from __future__ import annotations

from random import Random

from benchmarks.english_words import (
    ADVERBS,
    BEGINNINGS,
    CITIES,
    ENDINGS,
    FIRST_NAMES,
    MIDDLES,
    MONTHS,
    OPENERS,
    PREFIXES,
    REASONS,
    SUBJECTS,
    SURNAMES,
    TAILS,
    WHEN,
)
from benchmarks.subject import Subject

PLURAL_ENDS = (
    "noodles",
    "roses",
    "herbs",
    "shares",
    "tomatoes",
    "trees",
    "pumpkins",
    "beehives",
    "calves",
    "seedlings",
    "bonds",
    "coins",
    "tiles",
)


def sentence(random: Random) -> str:
    """One sentence, of 4 to about 35 words."""
    subject = random.choice(SUBJECTS)
    pattern = random.choices(PATTERNS, WEIGHTS)[0]
    text = pattern(random, subject)
    if random.random() < 0.24 and text[-1] in ".!?" and '"' not in text:
        text = f"{text[:-1].rstrip('.')} {_detail(random)}{text[-1]}"
    return text[0].upper() + text[1:]


def past(verb: str) -> str:
    base, *forms = verb.split(":")
    return forms[0] if forms else _regular(base, "ed")


def ing(verb: str) -> str:
    base, *forms = verb.split(":")
    return forms[1] if forms else _regular(base, "ing")


def base(verb: str) -> str:
    return verb.split(":")[0]


def _regular(verb: str, ending: str) -> str:
    """plan -> planned, study -> studied, invest in -> invested in."""
    first, _, rest = verb.partition(" ")
    if ending == "ed" and first.endswith("e"):
        formed = first + "d"
    elif ending == "ed" and first.endswith("y") and first[-2] not in "aeiou":
        formed = first[:-1] + "ied"
    elif ending == "ing" and first.endswith("e"):
        formed = first[:-1] + "ing"
    elif first in ("spot", "cancel", "debug", "plan", "transfer"):
        formed = first + first[-1] + ending
    else:
        formed = first + ending
    return f"{formed} {rest}".strip()


def a(noun: str) -> str:
    """With its indefinite article; plurals have none."""
    if noun.endswith(PLURAL_ENDS):
        return noun
    return ("an " if noun[0].lower() in "aeio" or noun.startswith("X-") else "a ") + noun


def _name(random: Random) -> str:
    first, kind = random.choice(FIRST_NAMES), random.random()
    if kind < 0.3:
        return first
    if kind < 0.5:
        return f"{first} {random.choice(SURNAMES)}"
    return f"{first} {_coined(random)}" if kind < 0.9 else f"{random.choice(('Mr', 'Mrs', 'Dr'))} {_coined(random)}"


def _coined(random: Random) -> str:
    """A name that nobody has had before, perhaps."""
    middle = random.choice(MIDDLES) if random.random() < 0.6 else ""
    return random.choice(BEGINNINGS) + middle + random.choice(ENDINGS)


def _town(random: Random) -> str:
    return random.choice(CITIES) if random.random() < 0.5 else _coined(random)


def _code(random: Random) -> str:
    """A make, a version, a room, a file: what stands between words and numbers."""
    kind = random.randrange(4)
    if kind == 0:
        return f"{_coined(random)} {random.randint(2, 900)}"
    if kind == 1:
        return f"{random.choice('ABCDEFGHKLMNPRSTVX')}{random.choice('ABCEHLMRSTXZ')}-{random.randint(10, 9999)}"
    return f"version {random.randint(0, 9)}.{random.randint(0, 40)}" if kind == 2 else f"no. {random.randint(3, 5000)}"


def _detail(random: Random) -> str:
    kind = random.randrange(6)
    if kind == 0:
        return f"on {random.randint(1, 31)} {random.choice(MONTHS)} {random.randint(1890, 2025)}"
    if kind == 1:
        return f"at {random.randint(6, 23)}:{random.randint(0, 59):02}"
    if kind == 2:
        return f"with {random.choice(FIRST_NAMES)} {_coined(random)} and {random.choice(FIRST_NAMES)} {_coined(random)}"
    if kind == 3:
        return f"near {_coined(random)}"
    if kind == 4:
        return f"for {random.choice(('$', '£', '€'))}{random.randint(1, 99)},{random.randint(0, 999):03}"
    return f"in the {_coined(random)} {random.choice(('Valley', 'Hotel', 'Museum', 'Gazette', 'Street', 'Institute'))}"


def _who(random: Random, subject: Subject) -> str:
    kind = random.random()
    if kind < 0.35:
        return f"the {random.choice(subject.people)}"
    if kind < 0.55:
        return a(random.choice(subject.people))
    if kind < 0.65:
        return f"the {random.choice(subject.people)} from {_town(random)}"
    return _name(random)


def _thing(random: Random, subject: Subject) -> str:
    thing = random.choice(subject.things)
    shape = random.random()
    if shape < 0.4:
        thing = f"{random.choice(subject.adjectives)} {thing}"
    elif shape < 0.48:
        thing = f"{_coined(random)} {thing}"
    elif shape < 0.54:
        thing = f"{random.choice(PREFIXES)}{random.choice(subject.adjectives)} {thing}"
    elif shape < 0.59 and not thing.endswith(PLURAL_ENDS):
        return f"{thing} {_code(random)}"
    kind = random.random()
    if kind < 0.5:
        return f"the {thing}"
    return a(thing) if kind < 0.85 else f"{random.choice(('his', 'her', 'their', 'our', 'my'))} {thing}"


def _number(random: Random) -> str:
    kind = random.randrange(5)
    if kind == 0:
        return str(random.randint(2, 99))
    if kind == 1:
        return f"{random.randint(1, 900)},{random.randint(0, 999):03}"
    if kind == 2:
        return f"{random.randint(1, 99)}.{random.randint(1, 9)} %"
    if kind == 3:
        return f"${random.randint(3, 990)}"
    return random.choice(("a dozen", "forty", "nearly two hundred", "three and a half", "about a thousand"))


def _plain(random: Random, s: Subject) -> str:
    return f"{_who(random, s)} {past(random.choice(s.verbs))} {_thing(random, s)}."


def _placed(random: Random, s: Subject) -> str:
    return f"{_who(random, s)} {past(random.choice(s.verbs))} {_thing(random, s)} {random.choice(s.places)}."


def _timed(random: Random, s: Subject) -> str:
    return (
        f"{random.choice(WHEN)}, {_who(random, s)} {random.choice(ADVERBS)} {past(random.choice(s.verbs))} "
        f"{_thing(random, s)} {random.choice(TAILS)}."
    )


def _progressive(random: Random, s: Subject) -> str:
    return f"{_who(random, s)} is {ing(random.choice(s.verbs))} {_thing(random, s)} {random.choice(s.places)}."


def _question(random: Random, s: Subject) -> str:
    verb, asks = random.choice(s.verbs), random.choice(("why did", "when will", "how can", "where did", "did", "can"))
    return f"{asks} {_who(random, s)} {base(verb)} {_thing(random, s)}?"


def _quoted(random: Random, s: Subject) -> str:
    said = random.choice(("said", "replied", "whispered", "wrote", "shouted", "explained"))
    end = random.choice((",", "!"))
    return (
        f'"I {past(random.choice(s.verbs))} {_thing(random, s)} {random.choice(WHEN)}{end}" {said} {_who(random, s)}.'
    )


def _reasoned(random: Random, s: Subject) -> str:
    return f"{_who(random, s)} {past(random.choice(s.verbs))} {_thing(random, s)} {random.choice(REASONS)}."


def _counted(random: Random, s: Subject) -> str:
    one, two = random.sample(s.things, 2)
    return (
        f"{random.choice(OPENERS)}, {_number(random)} of the {random.choice(('visitors', 'members', 'readers'))} "
        f"{random.choice(('preferred', 'mentioned', 'asked about', 'voted for'))} the {one}, "
        f"but only {_number(random)} the {two}."
    )


def _opened(random: Random, s: Subject) -> str:
    return f"{random.choice(OPENERS)}, {_who(random, s)} had to {base(random.choice(s.verbs))} {_thing(random, s)}."


def _compound(random: Random, s: Subject) -> str:
    return (
        f"{_who(random, s)} {past(random.choice(s.verbs))} {_thing(random, s)} {random.choice(s.places)}, and "
        f"{_who(random, s)} {random.choice(ADVERBS)} {past(random.choice(s.verbs))} {_thing(random, s)} "
        f"{random.choice(REASONS)}."
    )


def _listing(random: Random, s: Subject) -> str:
    one, two, three = random.sample(s.things, 3)
    return (
        f"{_name(random)} needs three things in {_town(random)} ({random.choice(WHEN)}): {a(one)}, {a(two)} "
        f"and {a(three)}; everything else costs {_number(random)} extra."
    )


def _judged(random: Random, s: Subject) -> str:
    verb = "were" if (thing := random.choice(s.things)).endswith(PLURAL_ENDS) else "was"
    how = random.choice(("very", "rather", "surprisingly", "not", "far too", "a bit"))
    return f"the {thing} {random.choice(s.places)} {verb} {how} {random.choice(s.adjectives)}."


def _headline(random: Random, s: Subject) -> str:
    return f"{_town(random)}: {random.choice(s.people)} to {base(random.choice(s.verbs))} {a(random.choice(s.things))}"


def _colloquial(random: Random, s: Subject) -> str:
    start = random.choice(("don't", "please don't", "let's", "I'd rather not", "why not", "we couldn't", "you should"))
    mark = "?" if start == "why not" else random.choice((".", "!", "..."))
    return f"{start} {base(random.choice(s.verbs))} {_thing(random, s)} {random.choice(TAILS)}{mark}"


PATTERNS = [
    _plain,
    _placed,
    _timed,
    _progressive,
    _question,
    _quoted,
    _reasoned,
    _counted,
    _opened,
    _compound,
    _listing,
    _judged,
    _headline,
    _colloquial,
]
WEIGHTS = [9, 12, 9, 6, 7, 7, 11, 5, 8, 10, 4, 6, 3, 6]
