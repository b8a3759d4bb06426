"""What Augmented SBERT is given and what it says: domains of every form, rows to look at, words about the gain."""

from __future__ import annotations

import gzip
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data import Examples
from munjang.errors import DataError, InputError
from munjang.evaluation import Scores
from munjang.evaluation.metrics import Difference
from munjang.recipes import AugmentOptions, SetOptions
from munjang.recipes.augmenting import defaults, sampling
from munjang.recipes.augmenting.candidates import STRATEGIES, Candidates
from munjang.recipes.augmenting.material import domain_texts, read_material
from munjang.recipes.augmenting.report import augmented_html, read_result
from munjang.recipes.augmenting.result import Gain, Silver, Trained, gain_notes, labeller_notes
from munjang.recipes.augmenting.samples import Row, look
from recipes.material import scored, sentences

OPTIONS = AugmentOptions(folder="never-made")


def texts(domain: object, options: AugmentOptions = OPTIONS) -> list[str]:
    return list(domain_texts(domain, options))  # type: ignore[arg-type]


# --- the domain ------------------------------------------------------------------------------------------------------


def test_the_command_line_knows_the_same_words() -> None:
    assert defaults.STRATEGIES == STRATEGIES
    assert Candidates().top_k == defaults.TOP_K
    assert sampling.Balance.__args__ == defaults.BALANCES  # type: ignore[attr-defined]


def test_domains_of_every_form(tmp_path: Path) -> None:
    plain = tmp_path / "문장.txt"
    plain.write_text("첫 문장.\nsecond sentence\n", encoding="utf-8")
    packed = tmp_path / "more.txt.gz"
    packed.write_bytes(gzip.compress("세 번째\n".encode()))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text('sentence1\tsentence2\tscore\n하나\tone "quoted\t5\n둘\ttwo\t1\n', encoding="utf-8")
    column = tmp_path / "reviews.csv"
    column.write_text('id,본문,stars\n1,"좋아요, 정말",5\n2,bad,1\n', encoding="utf-8")
    assert texts(str(plain)) == texts(plain) == ["첫 문장.", "second sentence"]
    assert texts(packed) == ["세 번째"]
    assert texts(pairs) == ["하나", 'one "quoted', "둘", "two"]  # both sides, whatever the scores
    assert texts(column) == ["좋아요, 정말", "bad"]
    assert texts(column, AugmentOptions(folder="x", domain_column="stars")) == ["5", "1"]
    named = tmp_path / "named.csv"
    named.write_text("왼쪽,오른쪽,점\n가,나,1\n", encoding="utf-8")
    sides = SetOptions(columns={"a": "왼쪽", "b": "오른쪽", "score": "점"})
    assert texts(named, AugmentOptions(folder="x", sets=sides)) == ["가", "나"]
    with pytest.raises(DataError, match="cannot tell which column holds the texts"):
        texts(named)
    examples = scored("e", 3)
    assert texts(examples) == list(chain.from_iterable(zip(*examples.columns.values(), strict=True)))
    assert texts([plain, "a sentence of its own", examples])[:3] == [
        "첫 문장.",
        "second sentence",
        "a sentence of its own",
    ]
    assert texts(None) == []


def test_domains_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file of the domain.*come as a list"):
        texts("한 문장만 주었다.")
    with pytest.raises(InputError, match="in which folder these lie"):
        texts("korsts")
    with pytest.raises(DataError, match="Known sets"):
        texts([tmp_path / "missing.txt"])
    with pytest.raises(InputError, match="a list of texts"):
        texts(7)
    with pytest.raises(InputError, match="must be a string"):
        read_material(scored("g", 4), None, ["하나", None], evaluation=(None, None), options=OPTIONS)  # type: ignore[list-item]


def test_columns_by_number_mean_no_header(tmp_path: Path) -> None:
    bare = tmp_path / "bare.tsv"
    bare.write_text("하나\tone\t5\n둘\ttwo\t1\n", encoding="utf-8")
    numbers = AugmentOptions(folder="x", sets=SetOptions(columns={"a": "0", "b": "1", "score": "2"}))
    assert texts(bare, numbers) == ["하나", "one", "둘", "two"]  # the first row is no header
    column = tmp_path / "one.csv"
    column.write_text("text\n셋\n", encoding="utf-8")
    assert texts(column, numbers) == ["셋"]  # no pairs: read as ever


@pytest.mark.parametrize("content", ["", "\n\n  \n", "\ufeff\n"])
def test_a_domain_without_a_sentence(tmp_path: Path, content: str) -> None:
    blank = tmp_path / "빈.txt"
    blank.write_text(content, encoding="utf-8")
    for gold, public in ((scored("g", 4), None), (None, scored("p", 4))):
        with pytest.raises(DataError, match=r"빈\.txt: there is not a single sentence.*a sentence a line"):
            read_material(gold, public, [blank], evaluation=(None, None), options=OPTIONS)


def test_what_a_run_is_made_of(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join([*sentences(5, 40), "", sentences(5, 40)[0]]) + "\n", encoding="utf-8")
    gold, dev = scored("gold", 6, 0), scored("dev", 4, 90)
    found = read_material(gold, None, [plain, "또 하나"], evaluation=(dev, None), options=OPTIONS)
    data = found.data
    assert data["domain"] == [{"name": str(plain), "texts": 6}]
    assert [(one["name"], one["rows"]) for one in data["gold"]] == [("gold: gold", 6)]  # type: ignore[attr-defined]
    assert data["test"] == []
    other = read_material(gold, None, [plain, "다른"], evaluation=(scored("dev", 4, 91), None), options=OPTIONS).data
    assert other["gold"] == data["gold"]
    assert other["dev"] != data["dev"]
    assert other["sentences"] != data["sentences"]


def test_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match=r"something else than a run of 'augmented' \(model\).*another run folder"):
        read_material(scored("g", 4), None, None, evaluation=(None, None), options=AugmentOptions(folder=tmp_path))


def test_sentences_and_scores() -> None:
    gold, domain = scored("gold", 6, 0), sentences(5, 40)
    found = read_material(gold, None, [*domain, domain[0].upper()], evaluation=(None, None), options=OPTIONS)
    assert found.scenario == "gold"
    assert [one.name for one in found.sets.train] == ["gold: gold"]
    expected = list(dict.fromkeys([*chain.from_iterable(zip(*gold.columns.values(), strict=True)), *domain]))
    assert found.sentences.texts == expected
    assert found.scores.tolist() == pytest.approx(gold.targets.tolist())  # type: ignore[union-attr]
    public = read_material(None, gold, domain, evaluation=(None, None), options=OPTIONS)
    assert public.sentences.texts == list(dict.fromkeys(domain))
    assert [one.name for one in public.sets.train] == ["public: gold"]


@pytest.mark.data
def test_public_sets_by_name(data_path: Path) -> None:
    options = AugmentOptions(folder="x", sets=SetOptions(folder=str(data_path)), gold_rows=100)
    found = read_material("korsts", None, None, evaluation=("korsts", "korsts"), options=options)
    assert [len(one) for one in found.sets.train] == [100]
    assert len(found.sentences) > 9_000  # of the other rows the sentences are there
    other = AugmentOptions(folder="x", sets=SetOptions(folder=str(data_path)))
    domain = read_material(None, "korsts", Path("klue-sts"), evaluation=(None, "klue-sts:dev"), options=other)
    assert domain.scenario == "public"
    assert len(domain.sentences) > 15_000


@given(st.integers(1, 19), st.integers(0, 5))
def test_gold_rows_over_several_sets(wanted: int, seed: int) -> None:
    sets = [scored("one", 12, 0), scored("둘", 7, 30)]
    options = AugmentOptions(folder="x", gold_rows=wanted, seed=seed)
    found = read_material(sets, None, None, evaluation=(None, None), options=options)
    rows = [row for one in found.sets.train for row in zip(*one.columns.values(), strict=True)]
    every = [row for one in sets for row in zip(*one.columns.values(), strict=True)]
    assert len(rows) == wanted
    assert [row for row in every if row in set(rows)] == rows  # some of them, in order
    assert set(found.sentences.texts) == set(chain.from_iterable(every))
    again = read_material(sets, None, None, evaluation=(None, None), options=options)
    assert [row for one in again.sets.train for row in zip(*one.columns.values(), strict=True)] == rows


def test_only_scored_pairs(tmp_path: Path) -> None:
    labelled = Examples("nli", "labelled", {"a": ["x"], "b": ["y"]}, [0], ("same", "other"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be scored data"):
        read_material(labelled, None, None, evaluation=(None, None), options=OPTIONS)
    with pytest.raises(InputError, match="must be scored data"):
        read_material(scored("g", 4), None, None, evaluation=(labelled, None), options=OPTIONS)


# --- rows to look at -------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5)), min_size=1, max_size=40))
def test_rows_to_look_at(tmp_path_factory: pytest.TempPathFactory, values: list[tuple[float, float]]) -> None:
    path = tmp_path_factory.mktemp("silver") / "silver.tsv"
    lines = [f"문장 {n}\tother {n}\t{score:.4f}\t{spread:.4f}\tbm25" for n, (score, spread) in enumerate(values)]
    path.write_text("sentence1\tsentence2\tscore\tspread\torigin\n" + "\n".join(lines) + "\n", encoding="utf-8")
    found = look(path)
    assert found.origins == {"bm25": len(values)}
    scores = [round(score, 4) for score, _ in values]
    rows = found.samples
    assert [row.score for row in rows["Highest scores"]] == sorted(scores, reverse=True)[:5]
    assert [row.score for row in rows["Lowest scores"]] == sorted(scores)[:5]
    middle = sorted(abs(score - 0.5) for score in scores)[:5]
    assert [abs(row.score - 0.5) for row in rows["In the middle"]] == pytest.approx(middle)
    uncertain = next(rows[name] for name in rows if name.startswith("Least certain"))
    assert [row.spread for row in uncertain] == sorted((round(spread, 4) for _, spread in values), reverse=True)[:5]


def test_an_edited_file_may_lack_something(tmp_path: Path) -> None:
    path = tmp_path / "silver.tsv"
    path.write_text("sentence1\tsentence2\tscore\n가\t나\t0.5\n다\t\t1\n라\t마\tmuch\n", encoding="utf-8")
    found = look(path)
    assert found.origins == {"unknown": 1}
    assert found.samples["Highest scores"] == [Row("가", "나", 0.5, None, "unknown")]


# --- words -----------------------------------------------------------------------------------------------------------


def gain(value: float, low: float, high: float, *, part: str = "test") -> Gain:
    return Gain("KorSTS", part, "spearman", 100, 0.7, 0.7 + value, Difference(value, low, high, 0.5))  # type: ignore[arg-type]


def test_whether_it_helped_is_said_plainly() -> None:
    assert gain_notes([gain(0.02, 0.01, 0.03)], compared=True) == []
    (chance,) = gain_notes([gain(0.02, -0.01, 0.03)], compared=True)
    assert chance.startswith("KorSTS: +2.00 with the silver pairs, but this may be chance (95 % interval")
    (useless,) = gain_notes([gain(-0.01, -0.03, 0.01)], compared=True)
    assert useless.startswith("The silver pairs did not help here: KorSTS 70.00 without and 69.00 with them")
    (harm,) = gain_notes([gain(-0.02, -0.03, -0.01)], compared=True)
    assert harm.startswith("The silver pairs did harm here")
    (dev,) = gain_notes([gain(0.02, 0.01, 0.03, part="dev")], compared=True)
    assert "chose both models" in dev
    assert "no baseline" in gain_notes([], compared=False)[0]
    assert "neither a test nor a development set" in gain_notes([], compared=True)[0]


def silver(**agreement: float | None) -> Silver:
    found = {name.replace("_", " "): {"pairs": 5, "spearman": value} for name, value in agreement.items()}
    return Silver(Path("s"), 1, 1, 2, {}, {}, {}, (0.0, 1.0), (1,), (1,), {f"{k}": v for k, v in found.items()}, {})  # type: ignore[arg-type]


def test_a_cross_encoder_that_knows_less_than_the_bi_encoder() -> None:
    scores = Scores("KorSTS", {"spearman": 0.7}, "spearman", 10)
    baseline = Trained("baseline", Path("b"), (scores,), (), 1, 1.0)
    worse = silver()
    worse.agreement["KorSTS (test)"] = {"spearman": 0.6}
    (note,) = labeller_notes(worse, [baseline])
    assert "agree with KorSTS (test) worse (spearman 60.00)" in note
    assert "--cross-model" in note  # as on the command line, too
    assert "--pretrain" in note
    assert "--pretrain" not in labeller_notes(worse, [baseline], prepared=True)[0]
    worse.agreement["KorSTS (test)"] = {"spearman": 0.8}
    assert labeller_notes(worse, [baseline]) == []
    assert labeller_notes(worse, []) == []
    assert "not known" in labeller_notes(silver(), [baseline])[0]


def test_texts_cannot_break_the_report() -> None:
    evil = '<script>alert(1)</script> & "quotes" \u202e'
    row = {"a": evil, "b": "한국어", "score": 0.5, "spread": None, "origin": evil}
    result = {
        "scenario": "gold",
        "model": {"name": evil},
        "gains": [],
        "notes": [evil],
        "options": {"seed": 0, "candidates": {"strategies": [evil]}},
        "stages": [{"name": "bi", "folder": evil, "seconds": 1.0}],
        "trainings": [{"name": "bi", "folder": evil, "test": [], "dev": [], "notes": [evil]}],
        "silver": {
            "rows": 1, "candidates": 2, "sentences": 3, "path": evil, "found": {evil: 2}, "origins": {}, "steps": {},
            "edges": [0.0, 1.0], "histogram": [1], "labelled_histogram": [0], "agreement": {}, "samples": {evil: [row]},
        },
    }  # fmt: skip
    page = augmented_html(result, title=evil)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "한국어" in page
    assert "Not known: there are no labelled pairs" in page
    result["model"] = {"name": "runs/mine/model"}
    result["data"] = {"gold": [{"name": evil, "rows": 1234, "hash": "abc0"}], "domain": [], "sentences": {"hash": "d"}}
    page = augmented_html(result, title="t")
    assert "from mine/model: few labelled pairs" in page  # `model` alone would say nothing
    assert "1,234" in page
    assert "abc0" in page
    assert "<script" not in page


def test_no_finished_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no finished run of `munjang augment`"):
        read_result(tmp_path)
    (tmp_path / "result.json").write_text('{"steps": 3}')
    with pytest.raises(DataError, match="not that of `munjang augment`"):
        read_result(tmp_path)
