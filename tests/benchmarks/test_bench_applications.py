"""The measured tables of the applications: figures beside scikit-learn's, one run from end to end, both pages alike."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import applications, classification, clustering_quality, mining_quality  # noqa: E402
from benchmarks.application_vectors import Asked  # noqa: E402
from benchmarks.mining_quality import Pairs  # noqa: E402
from benchmarks.twins import Said, TwinTable, write_pages  # noqa: E402
from munjang.data import Examples  # noqa: E402

KOREAN = {
    "경제": ["은행이 금리를 올렸다", "주가가 크게 올랐다", "물가가 내렸다", "수출이 늘었다"],
    "스포츠": ["축구 대표팀이 이겼다", "투수가 공을 던졌다", "선수가 결승 골을 넣었다", "야구 경기가 비로 미뤄졌다"],
    "정치": ["국회가 법을 고쳤다", "대통령이 연설했다", "선거가 다음 달에 열린다", "여당과 야당이 다투었다"],
}
ENGLISH = {
    "lost_card": ["I lost my card", "My card is gone", "Somebody stole my card", "Where did my card go"],
    "top_up": ["How do I top up", "Top up with cash", "My top up failed", "Can I top up by transfer"],
    "exchange_rate": ["What is the exchange rate", "How many euros for a pound", "Rates look wrong", "Change dollars"],
}
ENDS = (" today", " 오늘", " again", " 다시")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The three sets in their layouts, with sentences of our own."""
    folder = tmp_path / "data"
    for name, groups, head in (("ynat", KOREAN, "title,topic"), ("banking77", ENGLISH, "text,category")):
        (folder / name).mkdir(parents=True)
        rows = [f"{text}{end},{label}" for label, some in groups.items() for text in some for end in ENDS]
        for split, part in (("train", rows[::2]), ("test", rows[1::2])):
            (folder / name / f"{split}.csv").write_text("\n".join([head, *part]) + "\n", encoding="utf-8")
    (folder / "parakqc").mkdir()
    texts = [text for some in KOREAN.values() for text in some]
    lines = [f"0\t0\t{text} {'그래 ' * number}" for text in texts for number in range(10)]
    (folder / "parakqc" / "paraKQC_v1.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Pages with a sentence before and behind the marks."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for job, page in applications.PAGES.items():
        for ending, words in ((".md", "before"), (".ko.md", "앞")):
            text = f"{words}\n<!-- {job}:begin -->\nold\n<!-- {job}:end -->\nbehind\n"
            (folder / f"{page}{ending}").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_run_fills_both_languages_with_the_same_figures(
    data: Path, docs: Path, minilm_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classification, "SIZES", {"ynat": (8, None), "banking77": (8, None)})  # sooner
    arguments = ["--data", str(data), "--docs", str(docs), "--cache", str(docs / "cache"), "--seeds", "2", "--write"]
    assert applications.main([*arguments, "--model", f"first={minilm_path}", "--model", f"second={minilm_path}"]) == 0
    for page in applications.PAGES.values():
        english, korean = ((docs / f"{page}{end}").read_text(encoding="utf-8") for end in (".md", ".ko.md"))
        assert english.startswith("before\n<!-- ")
        assert english.endswith(" -->\nbehind\n")
        assert korean.startswith("앞\n<!-- ")
        assert "\nold\n" not in english + korean
        assert "nan" not in english + korean
        figures = [re.findall(r"\d+\.\d", text) for text in (english, korean)]
        assert figures[0] == figures[1] != []
        assert re.search("[가-힣]", korean.split("\n")[2])
        assert not re.search("[가-힣]", english)
    pairs = dict(_rows((docs / "paraphrases.md").read_text(encoding="utf-8")))
    assert pairs["Munjang, first"] == pairs["Munjang, second"] == pairs["sentence-transformers, first"]
    classes = dict(_rows((docs / "classification.md").read_text(encoding="utf-8")))  # the last set's, English
    assert float(classes["first, logistic head"][-1]) > 90  # the test texts differ from the others by one word
    assert classes["first, logistic head"] == classes["second, logistic head"]
    groups = _rows((docs / "clustering.md").read_text(encoding="utf-8"))
    sides = ("Munjang, first, comm", "sentence-transformers, first, comm")
    ours, theirs = ([row for name, row in groups if name.startswith(side)] for side in sides)
    assert ours == theirs
    assert len(ours) == 2  # sets
    assert len(list((docs / "cache").glob("*.npy"))) == 2 + 2 * 2  # both parts of one set, both splits of two


def _rows(page: str) -> list[tuple[str, list[str]]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    return [(row[0], row[1:]) for row in cells]


def test_a_page_without_marks_is_refused_before_anything_is_measured(data: Path, docs: Path) -> None:
    (docs / "clustering.ko.md").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"clustering\.ko\.md needs the marks <!-- clustering:begin -->"):
        applications.main(["--data", str(data), "--docs", str(docs), "--model", "x=none", "--write"])
    (docs / "clustering.ko.md").unlink()
    with pytest.raises(SystemExit, match=r"clustering\.ko\.md is not there"):
        applications.main(["--data", str(data), "--docs", str(docs), "--model", "x=none", "--write"])


def test_two_models_of_one_name_are_refused(data: Path, minilm_path: Path) -> None:
    same = ["--model", f"a={minilm_path}", "--model", f"a={minilm_path}"]
    with pytest.raises(SystemExit, match="a name of its own, got a, a"):
        applications.main(["--data", str(data), *same])
    with pytest.raises(SystemExit, match="must be NAME=PATH"):
        applications.main(["--data", str(data), "--model", "=x"])


def test_texts_are_encoded_once(tmp_path: Path, minilm_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked.load(f"MiniLM={minilm_path}", tmp_path)
    assert asked.name == "MiniLM"
    texts = ["비가 온다", "It is raining", "비가 온다"]
    first = asked.vectors(texts, "weather")
    assert "MiniLM, weather: 3 texts" in capsys.readouterr().out
    np.testing.assert_array_equal(asked.vectors(texts, "weather"), first)
    assert capsys.readouterr().out == ""
    np.testing.assert_allclose(first, asked.model.encode(texts), atol=1e-6)
    assert not np.array_equal(asked.vectors(texts[::-1][1:], "weather"), first[:2])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), min_size=2, max_size=30))
def test_agreement_is_that_of_scikit_learn(rows: list[tuple[int, int]]) -> None:
    from sklearn.metrics import adjusted_rand_score, v_measure_score

    truth, labels = (np.array(column) for column in zip(*rows, strict=True))
    apart = [label if label >= 0 else 100 + place for place, label in enumerate(labels.tolist())]
    judged = clustering_quality.judge(truth, labels)
    assert judged.v == pytest.approx(100 * v_measure_score(truth, apart), abs=1e-6)
    assert judged.rand == pytest.approx(100 * adjusted_rand_score(truth, apart), abs=1e-6)
    assert judged.inside == pytest.approx(100 * (labels >= 0).mean())
    assert judged.clusters == len({label for label in labels.tolist() if label >= 0})


def _classified(texts: list[str], groups: list[int]) -> Examples:
    return Examples("own", "classified", {"text": texts}, np.array(groups), tuple("abcdef"))


def test_tf_idf_pairs_are_those_of_all_cosines() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [text for some in KOREAN.values() for text in some] + ["은행이 금리를 내렸다", "야구 경기가 미뤄졌다"]
    found = mining_quality.tf_idf(_classified(texts, [0] * len(texts)))
    rows = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(1, 3)).fit_transform(texts).toarray()
    cosines = rows @ rows.T
    assert len(found.rows) == len(texts) * (len(texts) - 1) // 2 == len(np.unique(found.rows, axis=0))
    assert (found.rows[:, 0] < found.rows[:, 1]).all()
    np.testing.assert_allclose(found.scores, cosines[found.rows[:, 0], found.rows[:, 1]], atol=1e-9)
    assert (np.diff(found.scores) <= 0).all()


def test_the_threshold_comes_from_the_other_part() -> None:
    examples = _classified(["a", "b", "c", "d"], [0, 0, 1, 1])
    chosen = Pairs(np.array([0.9, 0.8, 0.78]), np.array([[0, 1], [2, 3], [0, 2]]))  # best above 0.78
    found = Pairs(np.array([0.85, 0.82, 0.7]), np.array([[0, 1], [1, 2], [2, 3]]))  # right, wrong, right but too low
    average, f1, precision, recall = mining_quality.score(chosen, examples, found, examples)
    assert (precision, recall, f1) == (0.5, 0.5, 0.5)
    assert average == pytest.approx((1 / 1 + 2 / 3) / 2)


def test_words_are_filled_in_by_language(tmp_path: Path) -> None:
    note = Said("{n} rows of {what}", "{what} {n}줄").format(n=3, what=Said("words", "낱말"))
    assert note == Said("3 rows of words", "낱말 3줄")
    for ending in (".md", ".ko.md"):
        (tmp_path / f"p{ending}").write_text("<!-- a:begin --><!-- a:end -->", encoding="utf-8")
    table = TwinTable(Said("Title", "제목"), (Said("who", "누가"), "F1"), [("me", "0.5")], note)
    write_pages(tmp_path, "p", "a", [table])
    expected = "<!-- a:begin -->\n### 제목\n\n| 누가 | F1 |\n|---|---|\n| me | 0.5 |\n\n낱말 3줄\n<!-- a:end -->"
    assert (tmp_path / "p.ko.md").read_text(encoding="utf-8") == expected
