"""The words of generated tables in English and Korean: tasks, sets, metrics, and the notes that evaluators leave.

A note that no pattern knows stays as it is: it is better read in English than lost.
"""

from __future__ import annotations

import re
from typing import Literal

Language = Literal["en", "ko"]

_WORDS: dict[str, tuple[str, str]] = {
    "sts": ("Similarity", "유사도"),
    "bitext": ("Translations", "번역문 찾기"),
    "retrieval": ("Retrieval", "검색"),
    "reranking": ("Reranking of given lists", "주어진 목록 재정렬"),
    "classification": ("Classification", "분류"),
    "clustering": ("Clustering", "군집화"),
    "paraphrase": ("Paraphrases", "바꿔 쓴 문장"),
    "other": ("Others", "그 밖"),
    "set": ("Set", "데이터"),
    "metric": ("Metric", "지표"),
    "model": ("Model", "모델"),
    "figures": ("Figures", "수치"),
    "measured": ("measured", "직접 측정"),
    "published": ("published", "공개된 값"),
    "mean": ("mean", "평균"),
    "spearman": ("Spearman", "Spearman"),
    "accuracy": ("accuracy", "정확도"),
    "average_precision": ("average precision", "평균 정밀도"),
    "v_measure": ("V-measure", "V-measure"),
    "before": ("before", "재정렬 전"),
    "after": ("after", "재정렬 후"),
    "gain": ("gain", "차이"),
    "searcher": ("Searches first", "먼저 찾는 모델"),
    "reranker": ("Reranks", "재정렬하는 모델"),
    "found": ("Among the candidates", "후보 안에 있음"),
    "rows": ("Rows", "행"),
    "shared exactly": ("Shared, letter by letter", "그대로 겹침"),
    "shared": ("Shared, normalised", "정규화 후 겹침"),
    "with": ("With", "겹치는 학습 데이터"),
    "all rows": ("Score, all rows", "점수, 모든 행"),
    "unseen": ("Score, rows not shared", "점수, 겹치지 않는 행"),
    "task": ("Task", "용도"),
    "threshold": ("Threshold", "임계값"),
    "calibrated on": ("Calibrated on", "보정에 쓴 데이터"),
    "there": ("Measured there", "그 데이터에서"),
    "notes": ("Notes", "주"),
    "none": ("none", "없음"),
    "machine": ("Measured on", "측정 환경"),
    "no results": ("Not measured yet.", "아직 측정하지 않았습니다."),
    "no overlap": (
        "No row of any set shares a text with the training text.",
        "학습 데이터와 겹치는 행이 하나도 없습니다.",
    ),
    "no training": (
        "Not compared yet: the training text was not given.",
        "아직 비교하지 않았습니다. 학습 데이터가 주어지지 않았습니다.",
    ),
    "paraphrase threshold": ("paraphrase: the same meaning", "paraphrase: 뜻이 같음"),
    "cluster threshold": ("cluster: one community", "cluster: 한 무리"),
    "answer threshold": ("answer: the first hit is an answer", "answer: 첫 결과가 답임"),
    "interval": (
        "Scores are times 100; ± is half the 95 % bootstrap interval.",
        "점수는 100을 곱한 값이고, ±는 부트스트랩 95 % 구간의 절반입니다.",
    ),
    "published note": (
        "Rows marked 'published' are figures that others gave; we did not measure them.",
        "‘공개된 값’은 다른 이들이 발표한 수치이며 직접 측정하지 않았습니다.",
    ),
}
_NOTES: tuple[tuple[str, str], ...] = (
    (r"capped: ([\d,]+) of ([\d,]+) training rows", r"줄임: 학습 행 \2 중 \1"),
    (r"capped: ([\d,]+) of ([\d,]+) rows", r"줄임: 행 \2 중 \1"),
    (r"capped: ([\d,]+) of ([\d,]+) texts", r"줄임: 글 \2 중 \1"),
    (r"capped: ([\d,]+) of ([\d,]+) queries", r"줄임: 질의 \2 중 \1"),
    (r"capped: ([\d,]+) of ([\d,]+) documents", r"줄임: 문서 \2 중 \1"),
    (r"of capped sets", "줄인 데이터들의 평균"),
    (r"truncated: ([\d,]+) of ([\d,]+) texts to (\d+) tokens", r"잘림: 글 \2 중 \1을 \3 토큰으로"),
    (r"truncated: ([\d,]+) of ([\d,]+) pairs to (\d+) tokens", r"잘림: 쌍 \2 중 \1을 \3 토큰으로"),
    (
        r"truncated: texts beyond (\d+) tokens, counted at an earlier set",
        r"잘림: \1 토큰을 넘는 글이 있으며 앞의 데이터에서 셈",
    ),
    (r"([\d,]+) lexical candidates per query", r"질의마다 글자로 고른 후보 \1개"),
    (r"([\d,]+) pairs mined, ([\d,]+) to find", r"찾은 쌍 \1, 찾아야 할 쌍 \2"),
    (r"([\d,]+) groups that thresholds were not calibrated on", r"임계값 보정에 쓰지 않은 묶음 \1개"),
    (r"([\d,]+) training rows", r"학습 행 \1"),
    (r"first (\d+) of the bi-encoder reranked by (.+)", r"바이 인코더의 처음 \1개를 \2이(가) 재정렬"),
    (r"first (\d+) of the bi-encoder reranked", r"바이 인코더의 처음 \1개를 재정렬"),
    (r"([\d,]+) of ([\d,]+) queries have no relevant document: left out", r"답이 없는 질의 \1개(전체 \2)는 뺌"),
    (
        r"([\d,]+) queries have only relevant or only other documents: left out",
        r"순서를 매길 것이 없는 질의 \1개는 뺌",
    ),
    (
        r"([\d,]+) of ([\d,]+) rows share a text with training text: left out",
        r"학습 데이터와 겹치는 행 \1개(전체 \2)는 뺌",
    ),
    (r"needs vectors, and a cross-encoder makes none", "벡터가 필요하지만 크로스 인코더는 벡터를 만들지 않음"),
    (r"failed: (.+)", r"실패: \1"),
)


def word(key: str, language: Language) -> str:
    """A word of the tables; a key that is none is a name, and stays."""
    found = _WORDS.get(key)
    return key if found is None else found[0 if language == "en" else 1]


def note(text: str, language: Language) -> str:
    """An evaluator's note in the language of the page."""
    if language == "en":
        return text
    for pattern, korean in _NOTES:
        found = re.fullmatch(pattern, text)
        if found is not None:
            return found.expand(korean)
    return text
