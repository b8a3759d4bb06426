"""Raw material -> passages with queries, sentences, scored pairs, development sets.

    python models/ko_en/02_data.py --data PUBLIC_SETS --bills PARQUET_FOLDER --debian UNPACKED_PACKAGES --out out/data

Writes passages.jsonl.xz, sentences.jsonl.xz, scored.jsonl.xz, nli.jsonl.xz, translations.jsonl.xz, dev.jsonl.xz and
known.npy (hashes of the pairs of evaluation sets, which 03 must not label).
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import pair_key, say, write_rows
from everyday import read_questions
from queries import (
    heading_query,
    keywords,
    korean_question,
    noisy,
    sentence_question,
    term_query,
    vocabulary_rarity,
)
from settings import DATA
from sources import (
    HANGUL,
    Passage,
    bills,
    clean,
    entailed,
    entries,
    evaluation_texts,
    language_of,
    manual_sections,
    shortened,
    wordnet,
)

import munjang
from munjang.data import Examples, load_dataset, nli_triplets, read_texts
from munjang.data.datasets import parallel_by_source
from munjang.data.overlaps import normalise
from munjang.vectors import top_k

FORBIDDEN_SOURCES = ("xnli-dev", "wikiqa")
SCORED = (
    ("korsts", "test"),
    ("klue-sts", "dev"),
    ("stsb", "test"),
    *((f"sts{year}", "test") for year in range(12, 17)),
)


def is_held_out(passage: Passage) -> bool:
    """Whole sources for development beyond what is trained on, and some groups of every other source."""
    draw = hashlib.blake2b(passage.group.encode(), digest_size=4).digest()
    return passage.source in DATA.held_out_sources or int.from_bytes(draw, "little") % DATA.held_out == 0


# --- passages --------------------------------------------------------------------------------------------------------


def bill_passages(folder: Path, draw: random.Random) -> list[Passage]:
    every = list(bills(folder))
    names = Counter(name for name, *_ in every)
    draw.shuffle(every)
    found: list[Passage] = []
    for name, law, sentences, items in every:
        if len(found) >= DATA.bills:
            break
        if len(sentences) < 2:
            continue
        *background, proposal = sentences
        whole = draw.random() < 0.4  # then questions are made of any of its sentences
        passage = Passage(shortened(". ".join(sentences if whole else background) + "."), "bills", f"bills/{law}", "ko")
        if not whole:
            passage.queries.append(("summary", shortened(proposal.removeprefix("이에").strip(), 160)))
        if names[name] == 1:
            passage.queries.append(("name", name))
        found.append(passage)
        if items and draw.random() < 0.5:
            found.append(Passage(shortened(draw.choice(items)), "bills", f"bills/{law}", "ko"))
            found[-1].queries.append(("keywords+", law))
    return found


def manual_passages(debian: Path, draw: random.Random) -> list[Passage]:
    """Sections with their headings; a section whose page has a twin also answers the heading in the other language."""
    sections = list(manual_sections(debian))
    headings = {(page, number, language_of(heading)): heading for _, page, number, heading, _ in sections}
    times = Counter(heading for *_, heading, _ in sections)
    titles = {(page, language_of(text)): heading for _, page, number, heading, text in reversed(sections)}
    found, seen = [], set()
    for manual, page, number, heading, text in sections:
        language = language_of(text)
        if (
            manual in ("libreoffice", "gimp", "python", "git", "postgresql")
            and language == "en"
            and draw.random() < 0.45
        ):
            continue
        text = shortened(text)
        if text in seen:
            continue
        seen.add(text)
        if times[heading] > 3:  # 'Example', 'Options': the page's title says what of
            heading = f"{titles[page, language]} {heading}"
        passage = Passage(text, manual, page, language)
        passage.queries.append(("heading" if language_of(heading) == language else "cross", heading))
        other = headings.get((page, number, "en" if language == "ko" else "ko"))
        if other and times[other] <= 3 and other != heading:
            passage.queries.append(("cross", other))
        found.append(passage)
    return found


def dictionary_passages(debian: Path, draw: random.Random) -> list[Passage]:
    found = []
    for words, meaning in wordnet(debian):
        if len(meaning) > 45:
            passage = Passage(shortened(meaning, 250), "wordnet", f"word/{words[0].lower()}", "en")
            passage.queries += [("term", word) for word in words[:2]]
            found.append(passage)
    terms = [(word, text, "foldoc") for word, text in entries(debian, "dict-foldoc")]
    terms += [(word, text, "gcide") for word, text in entries(debian, "dict-gcide") if len(text) > 120]
    for word, text, source in terms:
        passage = Passage(shortened(text, 320), source, f"word/{word.lower()}", "en")
        passage.queries.append(("term", word))
        found.append(passage)
    return draw.sample(found, min(len(found), DATA.dictionary))


def nli_passage(premise: str) -> Passage:
    return Passage(shortened(premise), "nli", f"nli/{premise[:40]}", language_of(premise))


def nli_passages(data: Path, draw: random.Random) -> list[Passage]:
    found = []
    english = entailed(data, (("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev")))
    korean = entailed(data, (("klue-nli", "train"),))
    for premises in (korean, english):
        for premise, hypotheses in premises.items():
            if len(premise) > 25:
                passage = nli_passage(premise)
                passage.queries += [("hypothesis", text) for text in hypotheses[:3]]
                found.append(passage)
    return found


def chat_passages(data: Path) -> list[Passage]:
    rows = list(zip(*load_dataset("chatbot", "train", data).columns.values(), strict=True))
    times = Counter(answer for _, answer in rows)
    found = [
        Passage(answer, "chatbot", f"chatbot/{answer}", "ko", [("question", asked)])
        for asked, answer in rows
        if times[answer] == 1
    ]
    pairs = load_dataset("question-pair", "train", data)
    same = pairs.labels.index("same")
    assert pairs.targets is not None
    for a, b, label in zip(pairs.columns["a"], pairs.columns["b"], pairs.targets, strict=True):
        if label == same and normalise(a) != normalise(b):
            found.append(Passage(b, "question-pair", f"question/{b}", "ko", [("question", a)]))
    return found


def joined_passages(units: list[tuple[tuple[str, ...], list[str]]], draw: random.Random) -> list[Passage]:
    """Neighbouring sentences put together, with questions made of them; twins where there is a translation.

    units: a sentence in one language or (English, Korean), and what it entails. Each stands in one passage only.
    """
    vectors = munjang.load().encode([versions[-1] for versions, _ in units], normalize=True)
    near = np.asarray(top_k(vectors, vectors, 12, exclude_self=True).indices)
    free, found = np.ones(len(units), bool), []
    for first in draw.sample(range(len(units)), len(units)):
        if not free[first]:
            continue
        others = [
            place for place in near[first].tolist() if free[place] and len(units[place][0]) == len(units[first][0])
        ]
        group = [first, *others][: draw.randint(*DATA.sentences)]
        free[group] = False
        draw.shuffle(group)
        for language in range(len(units[first][0])):
            texts = [units[place][0][language] for place in group]
            passage = Passage(
                shortened(" ".join(texts)), "joined", f"joined/{units[first][0][0][:60]}", language_of(texts[0])
            )
            for place in draw.sample(group, min(len(group), DATA.questions)):
                versions, entailed_by = units[place]
                if versions[language] not in passage.text:
                    continue
                across = len(versions) == 2 and draw.random() < DATA.other_language
                sentence = versions[1 - language] if across else versions[language]
                if entailed_by and draw.random() < 0.6:
                    passage.queries.append(("hypothesis", draw.choice(entailed_by)))
                else:
                    made = sentence_question(sentence, language_of(sentence), draw)
                    passage.queries.append(("cross asked" if across else "asked", made))
            found.append(passage)
    return found


def sentence_units(
    data: Path, translations: dict[str, list[tuple[str, str]]], known: set[str]
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Translated sentences, and premises with what they entail."""
    units: list[tuple[tuple[str, ...], list[str]]] = [
        (pair, []) for pairs in translations.values() for pair in pairs if min(map(len, pair)) > 12
    ]
    for name, split in (("klue-nli", "train"), ("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev")):
        units += [
            ((premise,), hypotheses)
            for premise, hypotheses in entailed(data, ((name, split),)).items()
            if not is_held_out(nli_passage(premise))
        ]
    return [unit for unit in units if not any(normalise(text) in known for text in (*unit[0], *unit[1]))]


def parallel_sources(data: Path, known: set[str], draw: random.Random) -> dict[str, list[tuple[str, str]]]:
    """(English, Korean) of every allowed source, as many as the settings say, less what an evaluation set has."""
    found = {}
    (path,) = (data / "parallel-en-ko").glob("train.tsv*")
    for source, examples in parallel_by_source(path).items():
        if source in FORBIDDEN_SOURCES:
            continue
        rows = [(clean(a), clean(b)) for a, b in zip(*examples.columns.values(), strict=True)]
        rows = [
            row
            for row in dict.fromkeys(rows)
            if normalise(row[0]) not in known and normalise(row[1]) not in known and 4 < len(row[0]) < 300
        ]
        draw.shuffle(rows)
        found[source] = rows[: DATA.translations.get(source, DATA.other_translations)]
    return found


# --- queries that nobody wrote ---------------------------------------------------------------------------------------


def sentences_of(text: str) -> list[str]:
    return [one.strip() for one in text.replace("? ", ". ").split(". ") if 15 < len(one.strip()) < 160]


def add_queries(passages: list[Passage], draw: random.Random) -> None:
    """Written queries in other forms, key words, and questions made of a sentence; then noise on some of them."""
    by_language = {language: [one.text for one in passages if one.language == language] for language in ("ko", "en")}
    rarity = {language: vocabulary_rarity(texts) for language, texts in by_language.items()}
    for passage in passages:
        written, passage.queries = passage.queries, []
        for kind, text in written:
            if kind in ("heading", "cross"):
                text = heading_query(text, language_of(text), draw) if draw.random() < 0.6 else text
            elif kind == "term":
                text = term_query(text, draw)
            elif kind == "keywords+":
                text = f"{text} {keywords(passage.text, rarity['ko'], draw, most=3)}".strip()
            elif kind in ("summary", "name") and draw.random() < 0.35:
                text = korean_question(text, draw) or keywords(text, rarity["ko"], draw) or text
            passage.queries.append((kind, noisy(text, draw)))
        if passage.source in ("chatbot", "question-pair", "joined"):
            continue
        made = keywords(passage.text, rarity[passage.language], draw)
        if made and draw.random() < 0.35:
            passage.queries.append(("keywords", noisy(made, draw)))
        sentences = sentences_of(passage.text)
        if len(sentences) > 2 and draw.random() < 0.08:  # the sentence is taken out of the passage
            sentence = sentences.pop(draw.randrange(len(sentences)))
            passage.text = clean(passage.text.replace(sentence, " ", 1).replace(" . ", " "))
            passage.queries.append(("sentence", noisy(sentence, draw)))
        draw.shuffle(sentences)
        for sentence in sentences[: DATA.questions if len(passage.text) > 250 else 1]:
            passage.queries.append(("asked", noisy(sentence_question(sentence, passage.language, draw), draw)))
    for passage in passages:
        passage.queries = [
            (kind, text)
            for kind, text in passage.queries
            if len(text) > 1 and normalise(text) != normalise(passage.text)
        ]


# --- development sets ------------------------------------------------------------------------------------------------


def dev_sets(held: list[Passage], translations: list[tuple[str, str]], draw: random.Random) -> list[dict[str, object]]:
    """Searches of several kinds over held-out passages. Queries are as they were written, without noise."""

    def search(
        name: str, passages: list[Passage], kinds: tuple[str, ...], change=lambda text: text
    ) -> dict[str, object]:  # type: ignore[no-untyped-def]
        passages = passages[: DATA.dev_passages]
        places = defaultdict(list)
        for place, passage in enumerate(passages):
            for kind, text in passage.queries:
                if kind in kinds:
                    places[change(text)].append(place)
        queries = list(places)
        draw.shuffle(queries)
        queries = queries[: DATA.dev_queries]
        return {
            "name": name,
            "queries": queries,
            "passages": [passage.text for passage in passages],
            "answers": [places[text] for text in queries],
        }

    def of(*sources: str, language: str = "") -> list[Passage]:
        return [one for one in held if one.source in sources and language in ("", one.language)]

    manuals, unseen = ("libreoffice", "gimp", "handbook", "python", "git"), DATA.held_out_sources
    pairs = translations[:1000]
    return [
        search("bills", of("bills"), ("summary",)),
        search("bills, no spaces", of("bills"), ("summary",), lambda text: text.replace(" ", "")),
        search("manuals ko", of(*manuals, language="ko"), ("heading",)),
        search("manuals en", of(*manuals, language="en"), ("heading",)),
        search("manuals across", of(*manuals), ("cross",)),
        search("unseen manuals ko", of(*unseen, language="ko"), ("heading",)),
        search("unseen ko, no spaces", of(*unseen, language="ko"), ("heading",), lambda text: text.replace(" ", "")),
        search(
            "unseen ko, casual",
            of(*unseen, language="ko"),
            ("heading",),
            lambda text: text if text.endswith("?") else f"{text} 어떻게 해요",
        ),
        search("unseen manuals en", of(*unseen, language="en"), ("heading",)),
        search("unseen across", of(*unseen), ("cross",)),
        search("unseen ko, asked", asked_of(of(*unseen, language="ko"), draw), ("asked",)),
        search("unseen en, asked", asked_of(of(*unseen, language="en"), draw), ("asked",)),
        search("joined ko, asked", of("joined", language="ko"), ("asked", "hypothesis")),
        search("joined across", of("joined"), ("cross asked",)),
        search("nli", of("nli"), ("hypothesis",)),
        search("dictionary", of("wordnet", "foldoc", "gcide"), ("term",)),
        {
            "name": "translations",
            "queries": [ko for _, ko in pairs],
            "passages": [en for en, _ in pairs],
            "answers": [[i] for i in range(len(pairs))],
        },
    ]


def asked_of(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """The same passages, each with a question made of one of its sentences."""
    changed = []
    for passage in passages:
        sentences = sentences_of(passage.text)
        made = sentence_question(draw.choice(sentences), passage.language, draw) if sentences else ""
        changed.append(replace(passage, queries=[("asked", made)] if made else []))
    return changed


def everyday() -> list[dict[str, object]]:
    """Questions about the sample documents of the demo: those with an answer, and those without."""
    from munjang.demo.corpus import documents

    texts = {row["id"]: row["text"] for row in documents()}
    place = {name: number for number, name in enumerate(texts)}
    questions = read_questions()
    return [
        {
            "name": name,
            "queries": [question.query for question in questions if bool(question.answers) == answered],
            "passages": list(texts.values()),
            "answers": [
                sorted(place[name] for name in question.answers)
                for question in questions
                if bool(question.answers) == answered
            ],
        }
        for name, answered in (("everyday", True), ("everyday, no answer", False))
    ]


# --- sentences, scored pairs -----------------------------------------------------------------------------------------


def scored_rows(data: Path) -> list[list[object]]:
    """[set, 'train' or 'dev', a, b, score]; KLUE-STS dev is reported, so that a slice of its train chooses."""
    klue, chosen = load_dataset("klue-sts", "train", data).split(0.06, seed=1)
    korsts, stsb = load_dataset("korsts", "train", data), load_dataset("stsb", "train", data)
    sets = {
        ("korsts", "train"): korsts,
        ("klue-sts", "train"): klue,
        ("stsb", "train"): stsb,
        ("KorSTS dev", "dev"): load_dataset("korsts", "dev", data),
        ("KLUE slice", "dev"): chosen,
        ("STSb dev", "dev"): load_dataset("stsb", "dev", data),
    }
    rows: list[list[object]] = []
    for (name, split), one in sets.items():
        assert one.targets is not None
        rows += [
            [name, split, a, b, round(float(s), 4)] for a, b, s in zip(*one.columns.values(), one.targets, strict=True)
        ]
    assert korsts.targets is not None
    assert stsb.targets is not None
    for number, (a, b, c, d, s, t) in enumerate(
        zip(*korsts.columns.values(), *stsb.columns.values(), korsts.targets, stsb.targets, strict=True)
    ):
        if abs(s - t) < 1e-4:  # KorSTS is STSb in Korean, row by row: Korean on one side, English on the other
            rows.append(["across", "train", *((a, d) if number % 2 else (c, b)), round(float(s), 4)])
    return rows


def sentence_rows(
    data: Path,
    scored: list[list[object]],
    translations: dict[str, list[tuple[str, str]]],
    known: set[str],
    held: list[Passage],
    draw: random.Random,
) -> list[list[object]]:
    """[text, kind, place of the translation or -1]; kind: 'judged', 'plain'. Different sentences only."""
    rows: dict[str, list[object]] = {}

    def add(text: str, kind: str) -> int | None:
        text = clean(text)
        if not 4 <= len(text) <= 250 or (kind != "judged" and normalise(text) in known):
            return None
        if text not in rows:
            rows[text] = [text, kind, -1]
        return list_place.setdefault(text, len(list_place))

    list_place: dict[str, int] = {}
    for _, split, a, b, _ in scored:
        if split == "train":
            add(str(a), "judged")
            add(str(b), "judged")
    for source, pairs in translations.items():
        for english, korean in pairs:
            if source in ("korsts", "tatoeba", "news", "jhe", "bible") or len(english) > 25:
                first, second = add(english, "plain"), add(korean, "plain")
                if first is not None and second is not None:
                    rows[clean(english)][2], rows[clean(korean)][2] = second, first
    nli = []
    for name, split in (("klue-nli", "train"), ("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev")):
        texts = list(dict.fromkeys(load_dataset(name, split, data).texts()))
        nli += texts if name == "klue-nli" else draw.sample(texts, min(len(texts), DATA.english_nli // 4))
    hidden = {text for one in held if one.source == "nli" for text in (one.text, *(query for _, query in one.queries))}
    reviews = read_texts(next((data / "nsmc").glob("reviews.txt*")))
    plain = [
        *nli,
        *load_dataset("chatbot", "train", data).texts(),
        *load_dataset("question-pair", "train", data).texts(),
        *draw.sample(list(load_dataset("ynat", "train", data).columns["text"]), DATA.titles),
        *draw.sample([text for text in reviews if HANGUL.search(text)], DATA.reviews),
    ]
    for text in plain:
        if text not in hidden:
            add(text, "plain")
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--data", "--bills", "--debian", "--out"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args()
    draw = random.Random(DATA.seed)
    known = evaluation_texts(args.data)
    say(f"{len(known):,} sentences of evaluation sets")
    passages = [
        *bill_passages(args.bills, draw),
        *manual_passages(args.debian, draw),
        *dictionary_passages(args.debian, draw),
        *nli_passages(args.data, draw),
        *chat_passages(args.data),
    ]
    translations = parallel_sources(args.data, known, draw)
    dev_translations = translations["tatoeba"][:1000]
    translations["tatoeba"] = translations["tatoeba"][1000:]
    hidden = {text for pair in dev_translations for text in pair}
    for source in translations:
        translations[source] = [pair for pair in translations[source] if not hidden.intersection(pair)]
    passages += joined_passages(sentence_units(args.data, translations, known), draw)
    say("sentences joined to passages")
    passages = [one for one in passages if normalise(one.text) not in known and len(one.text) > 3]
    for one in passages:
        one.queries = [(kind, text) for kind, text in one.queries if normalise(text) not in known]
    held = [one for one in passages if is_held_out(one)]
    kept = [one for one in passages if not is_held_out(one)]
    draw.shuffle(held)
    dev = [*dev_sets(held, dev_translations, draw), *everyday()]
    for one in dev:
        say(f"  {one['name']}: {len(one['queries']):,} queries, {len(one['passages']):,} passages")  # type: ignore[arg-type]
    add_queries(kept, draw)
    say(
        f"{len(kept):,} passages, {sum(len(one.queries) for one in kept):,} queries: "
        f"{dict(Counter(one.source for one in kept))}"
    )
    say(str(dict(Counter(kind for one in kept for kind, _ in one.queries))))
    scored = scored_rows(args.data)
    sentences = sentence_rows(args.data, scored, translations, known, held, draw)
    say(f"{len(sentences):,} sentences, {len(scored):,} scored pairs")
    triplets: list[list[str]] = []
    for name, split in (("klue-nli", "train"), ("snli", "dev"), ("snli", "test"), ("mnli", "train"), ("mnli", "dev")):
        found: Examples = nli_triplets(
            load_dataset(name, split, args.data), both_directions=False, without_negative="leave out", seed=0
        )
        triplets += [list(map(clean, row)) for row in zip(*found.columns.values(), strict=True)]
    triplets = [row for row in triplets if not any(normalise(text) in known for text in row)]
    pairs = {
        pair_key(a, b)
        for name, split in SCORED
        for a, b in zip(*load_dataset(name, split, args.data).columns.values(), strict=True)
    }
    pairs |= {pair_key(str(a), str(b)) for _, _, a, b, _ in scored}
    write_rows(
        args.out / "passages.jsonl.xz", ([one.text, one.source, one.group, one.language, one.queries] for one in kept)
    )
    write_rows(args.out / "sentences.jsonl.xz", sentences)
    write_rows(args.out / "scored.jsonl.xz", scored)
    write_rows(args.out / "nli.jsonl.xz", draw.sample(triplets, min(len(triplets), 30_000)))
    write_rows(
        args.out / "translations.jsonl.xz", ([source, *pair] for source, some in translations.items() for pair in some)
    )
    write_rows(args.out / "dev.jsonl.xz", dev)
    np.save(args.out / "known.npy", np.array(sorted(pairs), np.uint64))
    for file in sorted(args.out.iterdir()):
        say(f"  {file.name}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
