"""The benchmark's texts, page and arithmetic; and one tiny run from end to end."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import children, corpora, encode, korean, measurements, models, page, sides, timing  # noqa: E402
from munjang.text.tokenizer import Tokenizer  # noqa: E402


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory, minilm_path: Path) -> Path:
    return models.random_bert(tmp_path_factory.mktemp("tiny"), minilm_path, models.TINY)


@pytest.mark.parametrize("name", corpora.MAKERS)
def test_texts_are_distinct_and_always_the_same(name: str) -> None:
    texts = corpora.texts(name, 3_000)
    assert len(set(texts)) == len(texts) == 3_000
    assert texts[:200] == corpora.texts(name, 200)
    assert texts != corpora.texts(name, 3_000, seed=1)
    assert all(text == text.strip() and "  " not in text for text in texts)


def test_lengths_are_natural(minilm_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(minilm_path, max_length=256)
    short = tokenizer.count(corpora.texts("short", 3_000))
    assert 17 < short.mean() < 21
    assert short.min() <= 9
    assert 35 <= short.max() <= 60
    mixed = tokenizer.count(corpora.texts("mixed", 1_000))
    assert 60 < mixed.mean() < 130
    assert 0 < (mixed > 256).mean() < 0.1
    assert 25 < tokenizer.count(corpora.texts("korean", 1_000)).mean() < 70


def test_many_words_come_only_now_and_then() -> None:
    """A table of words must meet new ones, as it does in real text."""
    for name, least in (("short", 8_000), ("korean", 12_000), ("koen", 10_000)):
        words = {word for text in corpora.texts(name, 10_000) for word in text.split()}
        assert len(words) > least, name


def test_koen_holds_korean_english_and_both_in_one_sentence() -> None:
    def has(text: str, low: str, high: str) -> bool:
        return any(low <= character.lower() <= high for character in text)

    kinds = {(has(text, "가", "힣"), has(text, "a", "z")) for text in corpora.texts("koen", 300)}
    assert kinds >= {(True, False), (False, True), (True, True)}


@pytest.mark.parametrize(
    ("word", "particle", "expected"),
    [
        ("책", "은", "책은"),
        ("나무", "은", "나무는"),
        ("의사", "이", "의사가"),
        ("경찰관", "이", "경찰관이"),
        ("빵", "을", "빵을"),
        ("커피", "을", "커피를"),
        ("서울", "으로", "서울로"),
        ("부산", "으로", "부산으로"),
        ("제주", "으로", "제주로"),
        ("server", "을", "server를"),
        ("token", "이", "token이"),
        ("7", "을", "7을"),
        ("5", "을", "5를"),
    ],
)
def test_particles_follow_the_last_sound(word: str, particle: str, expected: str) -> None:
    assert korean.josa(word, particle) == expected


@pytest.mark.parametrize(
    ("verb", "form", "expected"),
    [
        ("분석하", "ㅆ다", "분석했다"),
        ("분석하", "ㅂ니다", "분석합니다"),
        ("먹:먹었", "ㅂ니다", "먹습니다"),
        ("만들:만들었", "ㅂ니다", "만듭니다"),
        ("만들:만들었", "-는데", "만드는데"),
        ("만들:만들었", "려고", "만들려고"),
        ("읽:읽었", "면", "읽으면"),
        ("고치:고쳤", "아요", "고쳐요"),
        ("맵:매웠:매운", "아서", "매워서"),
        ("안정적이:안정적이었:안정적인", "아요", "안정적이에요"),
    ],
)
def test_endings(verb: str, form: str, expected: str) -> None:
    assert korean.ending(verb, form) == expected


def test_modifiers() -> None:
    assert [korean.modifier(word) for word in ("깨끗하", "맵:매웠:매운")] == ["깨끗한", "매운"]


def test_texts_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("하나\n\n two \n", encoding="utf-8")
    assert corpora.read(tmp_path / "a.txt") == ["하나", "two"]
    (tmp_path / "b.txt").write_text("\n")
    with pytest.raises(ValueError, match="no texts"):
        corpora.read(tmp_path / "b.txt")


def test_a_run_replaces_only_its_own_part(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "page.md"
    page.write(path, "cpu", "first")
    assert "Not measured yet" in path.read_text()  # the GPU's part
    page.write(path, "cuda", "graphics")
    path.write_text("Kept above.\n" + path.read_text() + "Kept below.\n")
    page.write(path, "cpu", "second")
    text = path.read_text()
    assert "second" in text
    assert "first" not in text
    assert "graphics" in text
    assert text.startswith("Kept above.")
    assert text.endswith("Kept below.\n")
    assert [text.count(f"<!-- {name}:{end} -->") for name in page.PARTS for end in ("begin", "end")] == [1] * 4
    path.write_text(text.replace("<!-- cpu:end -->", ""))
    with pytest.raises(ValueError, match="cpu:end"):
        page.write(path, "cpu", "third")


def test_tables_in_both_forms() -> None:
    table = page.Table("T", ("a", "corpus"), [("1", "한글"), ("22", "x|y")], "n")
    assert "| 22 | x\\|y |" in table.markdown()
    assert table.markdown().endswith("n")
    assert "22  x|y" in table.text()


def test_ratios_are_taken_within_rounds() -> None:
    vectors = np.zeros((10, 2))
    theirs = timing.Timed("t", 10, [2.0, 8.0, 3.0], vectors)
    ours = timing.Timed("o", 10, [1.0, 2.0, 1.0], vectors)
    assert timing.ratio(theirs, ours) == timing.Ratio(3.0, 2.0, 4.0)
    assert theirs.rate == pytest.approx(10 / 3)
    assert timing.lowest_cosine(np.array([[1.0, 0], [1, 1]]), np.array([[2.0, 0], [1, 0]])) == pytest.approx(0.5**0.5)


class _Recorder:
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    def prepare(self) -> None:
        self.calls.append(f"prepare {self.name}")

    def encode(self, texts: list[str]) -> np.ndarray:
        self.calls.append(f"{self.name} {len(texts)}")
        return np.ones((len(texts), 2), np.float32)


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PAUSE", 0)
    calls: list[str] = []
    timed = timing.interleaved([_Recorder("a", calls), _Recorder("b", calls)], ["x"] * 5, 2, warm_up=1)
    assert [call for call in calls if "prepare" not in call] == ["a 1", "b 1", "a 5", "b 5", "a 5", "b 5"]
    assert calls.count("prepare a") == 3
    assert [len(side.seconds) for side in timed] == [2, 2]


def test_a_cold_side_knows_no_words(tiny_path: Path) -> None:
    model = sides.load_ours(tiny_path, "cpu", "float32")
    cold = sides.Ours(model, tiny_path, asked="float32", cold=True)
    texts = list(itertools.islice(corpora.stream("koen"), 20))
    before = model.parts.tokenizer
    vectors = cold.encode(texts)
    cold.prepare()
    assert model.parts.tokenizer is not before
    assert np.array_equal(before.encode(texts).ids, model.parts.tokenizer.encode(texts).ids)
    np.testing.assert_allclose(cold.encode(texts), vectors, atol=1e-6)


def test_both_sides_give_the_same_vectors_of_a_random_body(tiny_path: Path) -> None:
    texts = corpora.texts("mixed", 6)
    theirs = sides.Peer(sides.load_peer(tiny_path, "cpu"), "float32", 32).encode(texts)
    ours = sides.Ours(sides.load_ours(tiny_path, "cpu", "float32"), tiny_path, asked="float32", cold=False).encode(
        texts
    )
    assert timing.lowest_cosine(theirs, ours) > 0.99999


@pytest.mark.slow
def test_the_table_of_a_gpu(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of sentence-transformers are tried, and the best one takes its turns; here with CPUs in disguise."""
    monkeypatch.setattr(timing, "PAUSE", 0)
    monkeypatch.setattr(measurements, "load_peer", lambda folder, device, dtype: sides.load_peer(folder, "cpu", dtype))
    monkeypatch.setattr(measurements, "load_ours", lambda folder, device, dtype: sides.load_ours(folder, "cpu", dtype))
    found = measurements.Found()
    texts = {"short": corpora.texts("short", 4)}
    measurements.measure_speed(found, {"tiny": tiny_path}, texts, device="cuda", repeats=2)
    tried, speed = found.raw
    assert len(tried["seconds"]) == 9
    assert min(tried["seconds"], key=tried["seconds"].get) in speed["seconds"]
    assert [row[2].endswith("warm word table") for row in found.tables[0].rows] == [False, True]
    assert all(len(row) == len(found.tables[0].columns) for row in found.tables[0].rows)


def test_the_busy_neighbour_is_ended() -> None:
    started: list[subprocess.Popen[bytes]] = []
    make = subprocess.Popen

    class Recorded(make):  # type: ignore[misc,valid-type]
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)
            started.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children.subprocess, "Popen", Recorded)
        neighbour = children.busy_core()
        neighbour.__enter__()
        assert started[0].poll() is None
        assert not neighbour.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert started[0].poll() is not None


def test_a_failed_probe_says_why() -> None:
    with pytest.raises(RuntimeError, match="no_such_package"):
        children.probe("import", "no_such_package")


@pytest.mark.slow
def test_from_end_to_end(tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.txt").write_text("하나 둘\nthree four five\n", encoding="utf-8")
    arguments = ["--quick", "--device", "cpu", "--model", str(tiny_path), "--corpora", "own", "--parts", "speed,busy"]
    arguments += ["--texts", f"own={tmp_path / 'own.txt'}", "--repeats", "2"]
    arguments += ["--write", str(tmp_path / "page.md"), "--json", str(tmp_path / "raw.json")]
    assert encode.main(arguments) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| own | from a file | 2 |" in text
    assert "one core kept busy" in text
    assert "Not measured yet" in text
    assert str(tmp_path) not in text  # a page is for others
    raw = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))["raw"]
    assert [row["what"] for row in raw] == ["peer settings", "speed", "speed"]
    speed = raw[1:]
    assert [row["busy"] for row in speed] == [False, True]
    assert min(raw[0]["seconds"], key=raw[0]["seconds"].get) in speed[0]["seconds"]
    assert all(len(seconds) == 2 for row in speed for seconds in row["seconds"].values())
    assert all(cosine > 0.99 for row in speed for cosine in row["lowest cosine"].values())
    assert "Munjang" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--corpora", "none"], ["--parts", "none"], ["--texts", "a=/no/such/file"]])
def test_wrong_settings_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        encode.main(["--quick", "--device", "cpu", *arguments])
    assert stopped.value.code not in (0, None)
    assert arguments[1] in f"{stopped.value.code} {capsys.readouterr().err}"
