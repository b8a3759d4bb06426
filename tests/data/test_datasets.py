"""The readers of public sets: small files that we wrote in their shapes, and the real ones where they are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from munjang.data import DATASETS, RETRIEVAL_DATASETS, Examples, Retrieval, load_dataset, load_retrieval
from munjang.data.datasets import beir, korquad, parallel, parallel_by_source
from munjang.errors import DataError, InputError


def reader(name: str) -> Callable[[Path], Examples]:
    return lambda path: DATASETS[name].read(path, "train")


korsts, klue_sts, stsb, sts_year = reader("korsts"), reader("klue-sts"), reader("stsb"), reader("sts12")
kornli, klue_nli, allnli, snli, mnli = map(reader, ("kornli", "klue-nli", "allnli", "snli", "mnli"))
tatoeba, question_pair, chatbot, wordnet = map(reader, ("tatoeba", "question-pair", "chatbot", "wordnet"))
ynat, banking77, senteval, parakqc = map(reader, ("ynat", "banking77", "subj", "parakqc"))

KORSTS = """genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2
main\tx\t2012\t1\t5.000\t"그는 갔다.\t그는 갔다."
main\tx\t2012\t2\t0.000\t비가 온다\t눈이 "펑펑 온다
main\tx\t2012\t3\t2.500\t"따옴표"\t"닫히지 않은
main\tx\t2012\t4\t1.000\t마지막\t줄
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_pitfall_the_default_csv_quoting_joins_rows_of_korsts(tmp_path: Path) -> None:
    found = korsts(write(tmp_path / "sts-train.tsv", KORSTS))
    assert len(found) == 4
    assert found.row(0) == {"a": '"그는 갔다.', "b": '그는 갔다."', "score": 1.0}
    assert found.row(2)["b"] == '"닫히지 않은'
    assert str(found.reading) == "4 rows, 4 used"
    careless = list(csv.reader(io.StringIO(KORSTS), delimiter="\t"))[1:]
    assert len(careless) < 4  # what the default would have read


def test_klue_sts_official_and_csv(tmp_path: Path) -> None:
    rows = [{"sentence1": "가", "sentence2": "나", "labels": {"label": 3.7, "real-label": 3.71, "binary-label": 1}}]
    official = klue_sts(write(tmp_path / "x.json", json.dumps(rows)))
    table = klue_sts(write(tmp_path / "x.csv", 'sentence1,sentence2,label\n가,"나, 다",3.7\n'))
    assert official.row(0)["score"] == table.row(0)["score"] == pytest.approx(0.74)


def test_stsb_csv_without_header_and_tsv_with_one(tmp_path: Path) -> None:
    plain = stsb(write(tmp_path / "x.csv", 'A plane.,"Air, a plane.",5.0\r\nA.,B.,2.5\r\n'))
    assert plain.columns["b"] == ["Air, a plane.", "B."]
    header = "split\tgenre\tscore\tsentence1\tsentence2\n"
    path = write(tmp_path / "x.tsv.gz", header + 'train\tg\t5.0\t"A\tB\ntest\tg\t1.0\tC\tD\n')
    assert stsb(path).columns["b"] == ["B", "D"]


def test_sts_years_refuse_what_has_no_gold(tmp_path: Path) -> None:
    write(tmp_path / "x.test.tsv", '4.0\ta "b\tc\n\td\te\n')
    write(tmp_path / "x.train.tsv", "1.0\tnot\tread\n")
    assert str(sts_year(tmp_path).reading) == "2 rows, 1 used, 1 refused: score is empty (1)"
    (tmp_path / "x.test.tsv").unlink()
    with pytest.raises(DataError, match=r"no file \*\.test\.tsv"):
        sts_year(tmp_path)


def test_nli_readers_agree_on_the_ids(tmp_path: Path) -> None:
    kor = kornli(write(tmp_path / "k.tsv", 'sentence1\tsentence2\tgold_label\n"가\t나\tcontradiction\n'))
    rows = [{"premise": "가", "hypothesis": "나", "gold_label": "contradiction", "author": "neutral"}]
    klue = klue_nli(write(tmp_path / "k.json.gz", json.dumps(rows)))
    every = "split\tdataset\tsentence1\tsentence2\tlabel\ntrain\tS\tA\tB\tcontradiction\ndev\tS\tC\tD\tneutral\n"
    both = allnli(write(tmp_path / "AllNLI.tsv.gz", every))
    with pytest.raises(DataError, match="no row has split 'test'; there are dev, train"):
        load_dataset("allnli", "test", tmp_path)
    numbers = snli(write(tmp_path / "s.tsv", "premise\thypothesis\tlabel\nA\tB\t2\nA\tC\t-1\n"))
    names = snli(write(tmp_path / "t.tsv", "gold_label\tsentence1\tsentence2\ncontradiction\tA\tB\n-\tA\tC\n"))
    for found in (kor, klue, both, numbers, names):
        assert len(found) == 1
        assert found.row(0)["label"] == "contradiction"
        assert found.targets is not None
        assert found.targets.tolist() == [2]
    assert numbers.reading.refused_counts == {"label is -1: no gold label": 1}
    assert names.reading.refused_counts == {"gold_label is -: no gold label": 1}


def test_mnli_is_taken_out_of_the_questions(tmp_path: Path) -> None:
    question = (
        'For the statement, "He said ""no"", twice", does the hypothesis ""Hm?"" represent entailment, contradiction'
    )
    lines = io.StringIO()
    table = csv.writer(lines)
    table.writerow(["Question", "Answer", "Origin"])
    table.writerow([question.replace('""', '"') + ", or neutrality?", "entailment", "mnli"])
    table.writerow(["What?", "neutral", "mnli"])
    found = mnli(write(tmp_path / "m.csv", lines.getvalue()))
    assert found.row(0) == {"a": 'He said "no", twice', "b": "Hm?", "label": "entailment"}
    assert found.reading.refused_counts == {"no premise and hypothesis inside the question": 1}


def test_translations_by_source(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv.gz", 'en\tko\tsource\nRain\t"비\tx\nSnow\t눈\ty\nSun\t해\tx\nMoon\t\ty\nbad\n')
    assert parallel(path).columns == {"anchor": ["Rain", "Snow", "Sun"], "positive": ['"비', "눈", "해"]}
    assert parallel(path, without=["x"]).columns["anchor"] == ["Snow"]
    with pytest.raises(DataError, match="no row has source 'z'; there are x, y"):
        parallel(path, without=["z"])
    by_source = parallel_by_source(path)
    assert {source: len(found) for source, found in by_source.items()} == {"x": 2, "y": 1}
    assert by_source["y"].reading.refused_counts == {"ko is empty": 1, "too few fields": 1}


def test_aligned_files_must_be_of_one_length(tmp_path: Path) -> None:
    write(tmp_path / "t.eng", "I ski.\nI sleep.\n")
    write(tmp_path / "t.kor", "나는 스키를 탄다.\n나는 잔다.\n")
    assert tatoeba(tmp_path).row(1) == {"anchor": "I sleep.", "positive": "나는 잔다."}
    write(tmp_path / "t.kor", "나는 스키를 탄다.\n")
    with pytest.raises(DataError, match=r"same number of lines, got 2 and 1"):
        tatoeba(tmp_path)
    (tmp_path / "t.kor").unlink()
    with pytest.raises(DataError, match=r"expected one file \*\.kor"):
        tatoeba(tmp_path)


def test_question_pair_zero_means_same(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", "\ufefftest_id,question1,question2,is_duplicate,\n1,가,나,1,\n2,다,라,0,\n")
    found = question_pair(path)
    assert found.labels == ("different", "same")
    assert [found.row(place)["label"] for place in (0, 1)] == ["different", "same"]
    assert found.targets is not None
    assert found.targets.tolist() == [0, 1]


def synset(words: list[str], meaning: str, kind: str = "n") -> str:
    """A line as WordNet has it, with a pointer to another entry behind the words."""
    told = " ".join(f"{word} {place % 2:x}" for place, word in enumerate(words))
    return f"00001740 03 {kind} {len(words):02x} {told} 001 @ 00002137 n 0000 | {meaning}  \n"


def test_wordnet_tells_words_and_what_they_mean(tmp_path: Path) -> None:
    licence = "  1 This text was written by us, and  \n  2 00001740 03 n 01 nobody 0 000 | takes it for an entry.  \n"
    many = [[f"word{number}" for number in range(count)] for count in (9, 10, 16, 28)]  # 09, 0a, 10, 1c
    lines = [
        synset(["influenza", "grippe"], "an illness"),
        synset(["run_a_temperature", "be_hot"], 'have a fever; "he | she ran one"; "so \'did\' I"'),
        synset(["galore(ip)", "out_of_reach(p)", "outback(a)"], "far away (in a way)"),
        synset(["ip", "x(a)y", "one(b)", "A(p)_z"], "no marker of a place"),
        *(synset(words, f"{len(words)} of them") for words in many),
    ]
    found = wordnet(write(tmp_path / "data.noun", licence + "".join(lines)))
    assert found.kind == "pairs"
    assert found.columns == {
        "anchor": [
            "influenza, grippe", "run a temperature, be hot", "galore, out of reach, outback",
            "ip, x(a)y, one(b), A(p) z", *(", ".join(words) for words in many),
        ],
        "positive": [
            "an illness", 'have a fever; "he | she ran one"; "so \'did\' I"', "far away (in a way)",
            "no marker of a place", "9 of them", "10 of them", "16 of them", "28 of them",
        ],
    }  # fmt: skip
    assert str(found.reading) == "8 rows, 8 used", "the licence has no rows"


def test_lines_that_are_none_of_wordnet_are_refused(tmp_path: Path) -> None:
    broken = [
        "00001740 03 n 01 fever 0 000 a body that is too warm\n",  # no mark before the meaning
        "00001740 03 n 0g fever 0 000 | a body that is too warm\n",  # no number
        "00001740 03 n 00 000 | a body that is too warm\n",
        "00001740 03 n 03 fever 0 | a body that is too warm\n",  # fewer words
        "00001740 03 n | a body that is too warm\n",
        "\n",
    ]
    lines = ["  1 The licence.  \n", *broken, synset(["fever"], ""), synset(["fever"], "a body that is too warm")]
    found = wordnet(write(tmp_path / "data.noun", "".join(lines)))
    reason = "no line of WordNet: expected 'offset file kind count word id ... | meaning'"
    assert found.columns == {"anchor": ["fever"], "positive": ["a body that is too warm"]}
    assert (found.reading.rows, found.reading.refused_counts) == (8, {reason: 6, "meaning is empty": 1})
    assert [one.place for one in found.reading.refused] == [f"data.noun line {number}" for number in range(2, 9)]
    assert found.reading.refused[3].shown == broken[3].strip()
    with pytest.raises(DataError, match=r"data\.noun: not one of its rows can be used \(6 rows"):
        wordnet(write(tmp_path / "data.noun", "".join(lines[:-2])))


def test_the_four_files_of_wordnet_are_one_set(tmp_path: Path) -> None:
    kinds = {"noun": "fever", "verb": "wait", "adj": "galore(ip)", "adv": "slowly"}
    for kind, word in kinds.items():
        end = ".gz" if kind == "verb" else ""
        write(tmp_path / f"wordnet/data.{kind}{end}", "  1 The licence.  \n" + synset([word], f"of {kind}", kind[0]))
    found = load_dataset("wordnet", "train", tmp_path)
    assert (found.name, found.kind) == ("WordNet train", "pairs")
    assert found.columns == {
        "anchor": ["fever", "wait", "galore", "slowly"],
        "positive": ["of noun", "of verb", "of adj", "of adv"],
    }
    assert str(found.reading) == "4 rows, 4 used"
    (tmp_path / "wordnet/data.adj").unlink()
    with pytest.raises(DataError, match=r"WordNet train: there is no wordnet/data\.adj"):
        load_dataset("wordnet", "train", tmp_path)


def test_single_texts_with_a_class(tmp_path: Path) -> None:
    assert ynat(write(tmp_path / "y.csv", "id,title,topic\n0,총선,정치\n1,축구,날씨\n")).reading.refused_counts == {
        "topic is not in the label map": 1
    }
    reviews = "".join(f'{number}\t"최고 {number}\t{number % 2}\n' for number in range(10))
    write(tmp_path / "nsmc_balanced_200k.tsv", f"id\tdocument\tlabel\n{reviews}11\t\t0\n")
    films = {split: load_dataset("nsmc", split, tmp_path) for split in ("train", "test")}
    assert {split: len(part) for split, part in films.items()} == {"train": 9, "test": 1}
    for part in films.values():
        assert all(
            part.row(at)["label"] == ("negative", "positive")[int(part.columns["text"][at][-1]) % 2]
            for at in range(len(part))
        )
        assert part.reading.refused_counts == {"document is empty": 1}
    bank = banking77(write(tmp_path / "b.csv", 'text,category\r\n"Where is\nmy card?",card\r\nHi,atm\r\n'))
    assert (bank.labels, bank.row(0)["text"]) == (("atm", "card"), "Where is\nmy card?")
    assert chatbot(write(tmp_path / "c.csv", "Q,A,label\n안녕?,네.,0\n")).row(0) == {
        "anchor": "안녕?",
        "positive": "네.",
    }


def test_senteval_in_the_encodings_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "subj.all").write_bytes("0 molière – ‘good’ \n1 plain\n1\n".encode("cp1252"))
    old = senteval(tmp_path / "subj.all")
    assert old.columns["text"] == ["molière – ‘good’ ", "plain"]
    assert old.reading.notes == ("read as cp1252",)
    assert old.reading.refused_counts == {"no space between label and text": 1}
    (tmp_path / "TREC.test.all").write_bytes(b"5 caf\xe9 \x81 ?\n")  # x81 is no character of cp1252
    assert senteval(tmp_path / "TREC.test.all").reading.notes == ("read as latin-1",)
    new = senteval(write(tmp_path / "stsa.fine.dev.gz", "4 naïveté\n"))
    assert (new.row(0), new.reading.notes) == ({"text": "naïveté", "label": "very positive"}, ())
    with pytest.raises(DataError, match="not a known SentEval file"):
        senteval(write(tmp_path / "other.all", "0 x\n"))


def test_parakqc_groups_of_ten(tmp_path: Path) -> None:
    found = parakqc(write(tmp_path / "p.txt", "".join(f"0\t1\t문장 {place}\n" for place in range(20))))
    assert found.labels == ("group 0000", "group 0001")
    assert found.targets is not None
    assert found.targets.tolist() == [0] * 10 + [1] * 10
    with pytest.raises(DataError, match="groups of 10 lines, got 3"):
        parakqc(write(tmp_path / "q.txt", "0\t1\tx\n" * 3))


def test_korquad_becomes_retrieval(tmp_path: Path) -> None:
    def paragraph(context: str, *questions: tuple[str, str]) -> dict[str, object]:
        return {"context": context, "qas": [{"id": key, "question": text, "answers": []} for key, text in questions]}

    content = {"data": [{"paragraphs": [paragraph("서울은 수도다.", ("1", "수도는?")), paragraph("부산", ("2", "?"))]},
                        {"paragraphs": [paragraph("서울은 수도다.", ("3", "서울은?"), ("3", "또?"))]}]}  # fmt: skip
    found = korquad(write(tmp_path / "k.json", json.dumps(content)))
    assert found.corpus == {"passage-0": "서울은 수도다.", "passage-1": "부산"}
    assert found.relevant == {"1": {"passage-0": 1}, "2": {"passage-1": 1}, "3": {"passage-0": 1}}
    assert found.reading.refused_counts == {"the same id again": 1}
    with pytest.raises(DataError, match="SQuAD's layout"):
        korquad(write(tmp_path / "x.json", "[]"))


def test_beir_from_a_folder_and_from_a_zip(tmp_path: Path) -> None:
    files = {
        "corpus.jsonl": '{"_id": "d1", "title": "Rain", "text": "falls"}\n{"_id": "d2", "text": "Snow"}\n',
        "queries.jsonl": '{"_id": "q1", "text": "wet?"}\n{"_id": "q2", "text": "not judged"}\n',
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq1\tgone\t1\nq9\td1\t1\nq1\td2\tx\n",
    }
    for name, text in files.items():
        write(tmp_path / "tiny" / name, text)
    with zipfile.ZipFile(tmp_path / "tiny.zip", "w") as packed:
        for name, text in files.items():
            packed.writestr(f"tiny/{name}", text)
    for path in (tmp_path / "tiny", tmp_path / "tiny.zip"):
        found = beir(path)
        assert found.corpus == {"d1": "Rain falls", "d2": "Snow"}
        assert (found.queries, found.relevant) == ({"q1": "wet?"}, {"q1": {"d1": 2, "d2": 0}})
        assert sum(found.reading.refused_counts.values()) == 3
        assert len(found) == 1
        with pytest.raises(DataError, match=r"qrels/dev\.tsv"):
            beir(path, split="dev")


def test_a_retrieval_set_knows_what_it_speaks_of() -> None:
    with pytest.raises(InputError, match="1 ids of `relevant` are not in corpus: d"):
        Retrieval("x", {"q": "?"}, {}, {"q": {"d": 1}})


def test_known_sets_name_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"KorSTS test: there is no korsts/sts-test\.tsv .* in the folder {tmp_path}"):
        load_dataset("korsts", "test", tmp_path)
    with pytest.raises(InputError, match="unknown set 'korst'; known are korsts"):
        load_dataset("korst", "test", tmp_path)
    with pytest.raises(InputError, match="has the splits train, dev, test, got 'validation'"):
        load_dataset("korsts", "validation", tmp_path)
    with pytest.raises(InputError, match="load_retrieval"):
        load_dataset("korquad", "dev", tmp_path)
    with pytest.raises(InputError, match="known are korquad, nfcorpus"):
        load_retrieval("msmarco", "dev", tmp_path)


def test_known_sets_are_found_in_their_folder_or_beside_it_and_compressed(tmp_path: Path) -> None:
    write(tmp_path / "korsts" / "sts-test.tsv", KORSTS)
    write(tmp_path / "sts-dev.tsv.gz", KORSTS)
    assert load_dataset("korsts", "test", tmp_path).name == "KorSTS test"
    assert len(load_dataset("korsts", "dev", tmp_path)) == 4
    nli = "sentence1\tsentence2\tgold_label\n가\t나\tneutral\n"
    write(tmp_path / "kornli" / "multinli.train.ko.tsv", nli)
    write(tmp_path / "kornli" / "snli_1.0_train.ko.tsv", nli)
    assert len(load_dataset("kornli", "train", tmp_path)) == 2  # both files as one


REAL = {
    ("korsts", "train"): 5749, ("korsts", "dev"): 1500, ("korsts", "test"): 1379, ("klue-sts", "train"): 11668,
    ("klue-sts", "dev"): 519, ("stsb", "train"): 5749, ("stsb", "dev"): 1500, ("stsb", "test"): 1379,
    ("sts12", "test"): 2358, ("sts13", "test"): 1500, ("sts14", "test"): 3750, ("sts15", "test"): 3000,
    ("sts16", "test"): 1186, ("klue-nli", "train"): 24998, ("klue-nli", "dev"): 3000, ("kornli", "dev"): 2490,
    ("kornli", "test"): 5010, ("snli", "dev"): 9842, ("snli", "test"): 9824, ("mnli", "train"): 10000,
    ("mnli", "dev"): 10000, ("parallel", "train"): 122657, ("parallel-all", "train"): 134445,
    ("tatoeba", "test"): 1000, ("question-pair", "train"): 6888, ("question-pair", "test"): 688,
    ("chatbot", "train"): 11823, ("parakqc", "test"): 10000, ("ynat", "train"): 40000, ("ynat", "dev"): 5000,
    ("ynat", "test"): 5000, ("nsmc", "train"): 180000, ("nsmc", "test"): 20000,
    ("nsmc-reviews", "train"): 687689, ("banking77", "train"): 10003,
    ("banking77", "test"): 3080, ("mr", "all"): 10662, ("cr", "all"): 3771, ("subj", "all"): 10000,
    ("mpqa", "all"): 10603, ("trec", "train"): 5452, ("trec", "test"): 500, ("sst2", "train"): 6920,
    ("sst2", "dev"): 872, ("sst2", "test"): 1821, ("sst5", "train"): 8544, ("sst5", "dev"): 1101,
    ("sst5", "test"): 2210,
}  # fmt: skip
ABSENT = {
    ("kornli", "train"), ("allnli", "train"), ("allnli", "dev"), ("allnli", "test"),
    ("wordnet", "train"),  # 117,659 rows in Debian's package wordnet-base
}  # fmt: skip


def test_plain_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "reviews.txt").write_text("재미있다\n\n   \nIt was dull.\n", encoding="utf-8")
    found = load_dataset("nsmc-reviews", "train", tmp_path)
    assert found.columns["text"] == ["재미있다", "It was dull."]
    assert (found.reading.rows, found.reading.refused_counts) == (4, {"text is empty": 2})


def test_every_known_split_is_counted() -> None:
    assert {(name, split) for name, known in DATASETS.items() for split in known.splits} == set(REAL) | ABSENT


@pytest.mark.data
@pytest.mark.parametrize(("name", "split"), REAL)
def test_the_real_sets_have_their_rows(data_path: Path, name: str, split: str) -> None:
    found = load_dataset(name, split, data_path)
    assert len(found) == REAL[name, split]
    taken = found.reading.rows - sum(found.reading.refused_counts.values())
    assert taken == (200_000 if name == "nsmc" else len(found))  # nothing disappears without a word


@pytest.mark.data
def test_the_real_sets_for_retrieval(data_path: Path) -> None:
    korean = load_retrieval("korquad", "dev", data_path)
    assert (len(korean), len(korean.corpus)) == (5774, 961)  # 964 passages, of which three stand twice
    for split, queries in (("train", 2590), ("dev", 324), ("test", 323)):
        assert len(load_retrieval("nfcorpus", split, data_path)) == queries
    assert set(RETRIEVAL_DATASETS) == {"korquad", "nfcorpus"}


@pytest.mark.data
def test_pitfall_the_default_csv_quoting_loses_rows_of_the_real_korsts(data_path: Path) -> None:
    lost = {}
    for split in ("train", "dev"):
        with open(data_path / "korsts" / f"sts-{split}.tsv", encoding="utf-8", newline="") as file:
            lost[split] = REAL["korsts", split] - (len(list(csv.reader(file, delimiter="\t"))) - 1)
    assert lost == {"train": 46, "dev": 29}


@pytest.mark.data
def test_korsts_and_stsb_are_the_same_rows(data_path: Path) -> None:
    for split in ("dev", "test"):
        korean, english = (load_dataset(name, split, data_path).targets for name in ("korsts", "stsb"))
        assert korean is not None
        assert english is not None
        assert abs(korean - english).max() < 0.02
