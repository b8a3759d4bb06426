"""Every command that writes a file names it in its last line on stderr; stdout holds data alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from munjang.cli import main
from training.material import bi, sentences

COMMANDS = {
    "encode": ("encode {texts} -o {out}.npy", ".npy"),
    "encode into jsonl": ("encode {texts} -o {out}.jsonl", ".jsonl"),
    "similarity": ("similarity {texts} {texts} --top 2 -o {out}.csv", ".csv"),
    "cluster": ("cluster {texts} -k 2 -o {out}.csv", ".csv"),
    "mine": ("mine {texts} --top 3 -o {out}.csv", ".csv"),
    "classify": ("classify {texts} --labels 집,Seoul -o {out}.csv", ".csv"),
    "classify train": ("classify train {labelled} -o {out}", ""),
    "topics": ("topics {texts} -k 2 -o {out}.csv", ".csv"),
    "keywords": ("keywords {texts} -o {out}.csv", ".csv"),
    "map": ("map {texts} -o {out}.html", ".html"),
    "negatives": ("negatives {pairs} -n 1 --no-relative-margin -o {out}.jsonl", ".jsonl"),
    "recommend": ("recommend {texts} --chunk-tokens 16 --stride 8 --text noodles -o {out}.csv", ".csv"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny"
    bi().save(path)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = sentences(40)
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    rows = [{"text": text, "label": "ab"[place % 2]} for place, text in enumerate(texts)]
    pairs = [{"anchor": a, "positive": b} for a, b in zip(texts[::2], texts[1::2], strict=True)]
    for name, found in (("labelled", rows), ("pairs", pairs)):
        lines = (json.dumps(one, ensure_ascii=False) for one in found)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return {
        "texts": str(tmp_path / "texts.txt"),
        "labelled": str(tmp_path / "labelled.jsonl"),
        "pairs": str(tmp_path / "pairs.jsonl"),
        "out": str(tmp_path / "out"),
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_last_line_names_the_file(
    name: str, files: dict[str, str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, suffix = COMMANDS[name]
    arguments = [word.format(**files) for word in words.split()]
    assert main([*arguments, "--model", model, "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert Path(files["out"] + suffix).exists()
    assert shown.err.splitlines()[-1].endswith(files["out"] + suffix), shown.err
    assert files["out"] not in shown.out


def test_quiet_stays_quiet(files: dict[str, str], model: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = files["out"] + ".npy"
    assert main(["encode", files["texts"], "-o", out, "--model", model, "--device", "cpu", "-q"]) == 0
    assert capsys.readouterr().err == ""
