"""Every bash block of the README and the guides, run offline in a folder with the small files that the pages name.

Commands run in this process, in the order of the page, with the bundled models where no other is named. `MODEL`, `DIR`
and the like are folders of these names: a tiny model, tiny data sets. Commands that train get a limit of two steps,
servers are started, asked for /health and stopped.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from munjang.cli import main
from support import small_models
from test_docs import ROOT, _blocks

_LIMITS = {
    "train": "--max-steps 2",
    "augment": "--max-steps 2 --cross-max-steps 2",
    "distill": "--max-steps 2 --no-before --mlm-epochs 0",
}
# Sizes that the tiny model and sets do not have.
_SIZES = {"1000": "20", "32000": "200", "256,128,64": "16,8", "192": "16", "384": "32", "128": "16", "3": "1"}
# What runs elsewhere: servers of others have tests of their own (`server`), GPUs and hours are not here.
_ELSEWHERE = (
    (r"postgresql:|milvus:|--engine ray", "a server or cluster"),
    (r"^python -m (research|models)", "hours"),
    (r"^(torchrun|accelerate)|-m munjang train", "several processes"),
    (r"^(make|pip) ", "makes an environment, and runs all tests"),
    (r"--device cuda|gpu\.json", "a GPU"),
    (r"--parallel parallel", "the folder of translations that our models learned from"),
    (r"STUDENT/model|--texts snli", "public sets of hundreds of megabytes"),
)
_MADE = {  # page -> files that its commands make, while other pages read files of these names
    "docs/clustering.md": ["labelled.csv"],
    "docs/paraphrases.md": ["pairs.csv"],
    "docs/training.md": ["triplets.jsonl"],
}
_PAGES = {  # page -> whether its commands take long
    "README.md": False,
    "docs/classification.md": True,
    "docs/clustering.md": False,
    "docs/gallery.md": True,
    "docs/guide.md": False,
    "docs/keywords.md": True,
    "docs/map.md": True,
    "docs/paraphrases.md": True,
    "docs/recipes.md": True,
    "docs/recommendation.md": True,
    "docs/scale.md": True,
    "docs/search.md": False,
    "docs/service.md": True,
    "docs/topics.md": True,
    "docs/training.md": True,
}


def test_every_page_with_commands_is_listed() -> None:
    pages = [path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if ".ko." not in path.name]
    names = {path.relative_to(ROOT).as_posix() for path in pages}
    assert {name for name in names if _blocks(name, "bash")} == {*_PAGES, "docs/models.md"}  # whose commands take hours


def _texts() -> list[str]:
    lines = (ROOT / "docs/samples/themes.csv").read_text(encoding="utf-8").splitlines()[1:]
    return [re.split(r",\w+,(?:ko|en),", line)[0].strip('"').replace(",", " ").replace("\t", " ") for line in lines]


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def _table(path: Path, header: list[str], rows: list[list[object]]) -> None:
    comma = "\t" if path.suffix == ".tsv" else ","
    _write(path, "".join(comma.join(map(str, row)) + "\n" for row in [header, *rows]))


def _lines(path: Path, records: list[dict[str, object]]) -> None:
    _write(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def _make_files(folder: Path) -> None:
    """The files that the pages name."""
    texts = _texts()
    count = len(texts)
    kinds = [("weather", "food", "travel")[n % 3] for n in range(count)]
    for name in ("questions", "queries", "documents", "reviews", "news", "notes", "corpus", "sentences", "titles",
                 "new", "today", "faq"):  # fmt: skip
        _write(folder / f"{name}.txt", "\n".join(texts[:40] if name != "queries" else texts[:4]) + "\n")
    _write(folder / "tags.txt", "날씨\nrain\n여행\n")
    with gzip.open(folder / "notes.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(texts[:20]) + "\n")
    _write(folder / "corpus.txt", "\n".join(texts[:60]) + "\n")
    np.save(folder / "corpus.npy", np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    dated = [[text, kind, f"2024-{1 + n % 12:02}-05"] for n, (text, kind) in enumerate(zip(texts, kinds, strict=True))]
    _table(folder / "news.csv", ["본문", "분류", "날짜"], dated)
    _table(folder / "articles.csv", ["id", "본문"], [[n, text] for n, text in enumerate(texts[:10])])
    _table(folder / "reviews.csv", ["text", "stars"], [[text, 1 + n % 5] for n, text in enumerate(texts)])
    for name in ("labelled", "held-out"):
        _table(
            folder / f"{name}.csv", ["text", "topic", "label"], [[t, k, k] for t, k in zip(texts, kinds, strict=True)]
        )
    faq = [[f"faq-{n}", text, "shipping" if n % 2 else "refund", 2020 + n % 6] for n, text in enumerate(texts[:30])]
    _table(folder / "faq.csv", ["id", "question", "category", "year"], faq)
    _lines(folder / "more.jsonl", [{"id": f"more-{n}", "text": text} for n, text in enumerate(texts[30:34])])
    _table(folder / "more.csv", ["id", "text"], [[f"more-{n}", text] for n, text in enumerate(texts[30:34])])
    for name in ("a", "b"):
        _lines(folder / f"{name}.jsonl", [{"id": f"{name}{n}", "text": text} for n, text in enumerate(texts[:5])])
    _lines(folder / "books.jsonl", [{"id": f"b{n}", "title": f"책 {n}", "text": t} for n, t in enumerate(texts[:30])])
    for n in range(2):
        _write(folder / "notes" / f"note-{n}.md", f"# {n}\n\n{texts[n]}\n")
        _lines(folder / "shards" / f"part-{n}.jsonl", [{"id": f"{n}-{m}", "text": t} for m, t in enumerate(texts[:5])])
    (folder / "logs/a").mkdir(parents=True)
    with gzip.open(folder / "logs/a/part-0.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write((folder / "shards/part-0.jsonl").read_text(encoding="utf-8"))
    _write(folder / "keys.txt", "secret-key-0001 write\n")
    pairs = list(zip(texts, texts[1:] + texts[:1], strict=True))
    for name, rows in (("few", pairs[:24]), ("mine", pairs[:24]), ("dev", pairs[24:40]), ("mine-dev", pairs[24:40]),
                       ("test", pairs[40:60]), ("mine-test", pairs[40:60]), ("sts", pairs[:24]), ("scored", pairs[:24]),
                       ("my-pairs", pairs[:24])):  # fmt: skip
        scored = [[a, b, n % 6 / 5] for n, (a, b) in enumerate(rows)]
        _table(folder / f"{name}.tsv", ["sentence1", "sentence2", "score"], scored)
    _table(folder / "questions.csv", ["a", "b", "label"], [[a, b, n % 2] for n, (a, b) in enumerate(pairs[:24])])
    for name in ("pairs", "questions", "en-ko"):
        _table(folder / f"{name}.tsv", ["anchor", "positive"], [[a, b] for a, b in pairs[:24]])
    talks = [[a, b, ("news", "talks")[n % 2]] for n, (a, b) in enumerate(pairs[:24])]
    _table(folder / "talks.tsv", ["en", "ko", "source"], talks)
    triplets = [{"anchor": texts[n], "positive": texts[n + 1], "negative": texts[n + 40]} for n in range(24)]
    _lines(folder / "triplets.jsonl", triplets)  # type: ignore[arg-type]
    _table(folder / "triplets.tsv", ["anchor", "positive", "negative"], [list(row.values()) for row in triplets])
    labels = ("entailment", "neutral", "contradiction")
    nli = [[a, b, labels[n % 3]] for n, (a, b) in enumerate(pairs[:30])]
    for name in ("nli", "pairs"):
        _table(folder / f"{name}.csv", ["premise", "hypothesis", "label"], nli)
    shutil.copytree(ROOT / "src/munjang/demo/corpus", folder / "src/munjang/demo/corpus")
    shutil.copytree(ROOT / "docs/samples", folder / "docs/samples")


def _make_sets(folder: Path) -> None:
    """KorSTS, KLUE-STS, KLUE-NLI, STSb and Tatoeba in their layouts, with sentences of our own."""
    texts = _texts()
    pairs = list(itertools.pairwise(texts))
    for split, rows in (("train", pairs[:30]), ("dev", pairs[30:50]), ("test", pairs[50:])):
        header = ["genre", "filename", "year", "id", "score", "sentence1", "sentence2"]
        korsts = [["g", "f", "y", n, f"{n % 6}.000", a, b] for n, (a, b) in enumerate(rows)]
        _table(folder / f"korsts/sts-{split}.tsv", header, korsts)
        stsb = [[a, b, f"{n % 6}.0"] for n, (a, b) in enumerate(rows)]
        _write(folder / f"stsb-en/stsb-en-{split}.csv", "".join(",".join(map(str, row)) + "\n" for row in stsb))
    for place, language in enumerate(("eng", "kor")):
        _write(folder / f"tatoeba-en-ko/test.{language}", "\n".join(pair[place] for pair in pairs[:20]) + "\n")
    labels = ("entailment", "neutral", "contradiction")
    for split, rows in (("train", pairs[:30]), ("dev", pairs[30:50])):
        klue = [[n, "s", f"{n % 6}.0", f"{n % 6}.0", int(n % 6 >= 3), a, b] for n, (a, b) in enumerate(rows)]
        header = ["guid", "source", "label", "real_label", "binary_label", "sentence1", "sentence2"]
        _table(folder / f"klue-sts/{split}.csv", header, klue)
        nli = [{"guid": f"n{n}", "premise": a, "hypothesis": b, "gold_label": labels[n % 3], "source": "s"}
               for n, (a, b) in enumerate(rows)]  # fmt: skip
        _write(folder / f"klue-nli/{split}.json", json.dumps(nli, ensure_ascii=False))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the pages take for granted."""
    folder = tmp_path_factory.mktemp("docs") / "template"
    folder.mkdir()
    _make_files(folder)
    _make_sets(folder / "DIR")
    (folder / "DATA").symlink_to("DIR")
    small_models.bi_encoder().save(folder / "MODEL")
    small_models.cross_encoder().save(folder / "RERANKER")
    for name, target in (("my-model", "MODEL"), ("OTHER", "MODEL"), ("my-cross-encoder", "RERANKER"),
                         ("my-reranker", "RERANKER")):  # fmt: skip
        (folder / name).symlink_to(target)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this page's own; the files in it are those of the template."""
    folder = tmp_path / "page"
    shutil.copytree(template, folder, symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MUNJANG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("MUNJANG_MODEL", "MUNJANG_RERANKER", "MUNJANG_KEYS"):
        monkeypatch.delenv(name, raising=False)
    return folder


def _page_commands(page: str) -> list[str]:
    """The commands of a page, continued lines joined, comments away; spaces within quotes stay."""
    lines = "\n".join(_blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [plain for line in lines if (plain := re.sub(r"(^|\s+)# .*", "", line).strip())]


def _elsewhere(command: str) -> str | None:
    return next((reason for pattern, reason in _ELSEWHERE if re.search(pattern, command)), None)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if slow else page for page, slow in _PAGES.items()]
)
@pytest.mark.timeout(1800)
def test_commands_run(page: str, folder: Path) -> None:
    for name in _MADE.get(page, ()):
        (folder / name).unlink()
    ran = 0
    for command in _page_commands(page):
        if _elsewhere(command):
            continue
        _prepare(command)
        if re.match(r"munjang (serve|demo)\b", command):
            _serve(command)
        else:
            for part in re.split(r"\s+&&\s+", command):
                _run(part)
        ran += 1
    assert ran


def _prepare(command: str) -> None:
    """Make the indexes of other pages that a command names."""
    wanted = {"my-index": "my-index", "faq=indexes/faq": "indexes/faq", "news=indexes/news": "indexes/news"}
    for token in command.split():
        name = wanted.get(token)
        if name and not Path(name).exists() and "index create" not in command:
            Path(name).parent.mkdir(exist_ok=True)
            _run(f"munjang index create {name} faq.csv --column question --id-column id -q")


def _run(command: str) -> None:
    """One command, in this process, with its redirections; it must succeed."""
    pipe = re.fullmatch(r"cat (\S+) \| (.*)", command)
    target = re.search(r" > (\S+)$", command)
    plain = command[: target.start()] if target else command
    if command.startswith("cat ") and not pipe:
        parts = sorted(Path().glob(plain.split()[1]))
        assert parts, command
        assert target, command
        Path(target[1]).write_text("".join(path.read_text(encoding="utf-8") for path in parts), encoding="utf-8")
        return
    if pipe:
        plain = plain.partition(" | ")[2]
    words = shlex.split(plain)
    assert words[0] == "munjang", command
    if words[1] in _LIMITS:
        words = [_SIZES.get(word, word) for word in words]
    if "--engine" not in words:
        limits = _LIMITS.get(words[1], "")
        words += shlex.split(limits.replace("--cross-max-steps 2", "") if "--cross-encoder" in words else limits)
    if "--measure" in words:
        words += ["--seconds", "0.05", "--measure-rows", "10000"]
    out, errors = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    stdin = io.TextIOWrapper(io.BytesIO(Path(pipe[1]).read_bytes() if pipe else b""), encoding="utf-8")
    before, sys.stdin = sys.stdin, stdin
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(errors):
            status = main(words[1:])
    except SystemExit as error:
        status = error.code  # type: ignore[assignment]
    finally:
        sys.stdin = before
    assert status == 0, f"{command}\n{errors.getvalue()[-2000:]}"
    if target:
        Path(target[1]).write_bytes(out.getvalue())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(command: str) -> None:
    with _served(command):
        pass


@contextlib.contextmanager
def _served(command: str) -> Iterator[str]:
    """Start a server in a process of its own, on a free port; wait until it answers; stop it at the end."""
    port = _free_port()
    words = [*shlex.split(re.sub(r" --port \d+", "", command))[1:], "--port", str(port)]
    words += ["--no-browser"] if words[0] == "demo" else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with open("server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "munjang", *words], stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 240
        while True:
            try:
                with urllib.request.urlopen(f"{address}/ready", timeout=5) as answer:
                    assert answer.status == 200
                break
            except OSError:
                said = Path("server.log").read_text(encoding="utf-8", errors="replace")
                assert process.poll() is None, f"{command}\n{said[-2000:]}"
                assert time.monotonic() < until, f"{command}\n{said[-2000:]}"
                time.sleep(0.2)
        yield address
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_requests_of_the_service_page(folder: Path) -> None:
    """The curl lines, sent to the index that the page serves."""
    _run("munjang index create my-index faq.csv --column question --id-column id -q")
    lines = "\n".join(_blocks("docs/service.md", "sh")).replace("\\\n", " ").splitlines()
    with _served("munjang serve my-index") as address:
        for line in filter(None, map(str.strip, lines)):
            words = shlex.split(line.replace("http://127.0.0.1:8000", address))
            done = subprocess.run([*words, "--silent", "--show-error", "--fail-with-body"], capture_output=True)
            assert done.returncode == 0, f"{line}\n{done.stdout.decode()}\n{done.stderr.decode()}"
            assert b'"error"' not in done.stdout, line
