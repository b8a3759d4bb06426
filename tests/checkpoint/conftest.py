"""Small random models of every family, with small tokenizers, saved by transformers and by sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from munjang.checkpoint import BiParts
from munjang.nn.heads import apply_heads
from munjang.nn.packed import to_packed

TEXTS = [
    "The cat sat on the mat.",
    "A quick brown fox jumps over the lazy dog, and then it sleeps for a while in the sun.",
    "한국어 문장을 벡터로 바꾼다.",
    "x",
    "Vectors of sentences are compared by their cosine; long texts are cut at the limit of the model's positions.",
]


def _word_piece() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return backend


def _byte_level() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    )
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return backend


_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_T5 = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 48, "d_kv": 8}
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 40,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": _SIZES | {"max_position_embeddings": 40},
    "roberta": _SIZES | {"max_position_embeddings": 42, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "xlm-roberta": _SIZES | {"max_position_embeddings": 42, "pad_token_id": 1, "type_vocab_size": 1},
    "camembert": _SIZES | {"max_position_embeddings": 42, "pad_token_id": 1, "type_vocab_size": 1},
    "electra": _SIZES | {"max_position_embeddings": 40, "embedding_size": 16},
    "albert": _SIZES | {"max_position_embeddings": 40, "embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40},
    "mpnet": _SIZES | {"max_position_embeddings": 42, "pad_token_id": 1},
    "modernbert": _SIZES
    | {
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "local_attention": 8,
        # Not the defaults, so that a config which loses them gives other vectors.
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 40.0},
        },
    },
    "mistral": _SIZES
    | {
        "max_position_embeddings": 40,
        "num_key_value_heads": 2,
        "sliding_window": None,
        "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 900.0},
    },
    "llama": _SIZES
    | {
        "max_position_embeddings": 40,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 900.0},
    },
    "gemma3_text": _SIZES
    | {
        "max_position_embeddings": 40,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": 8,
        "pad_token_id": 0,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 40.0},
        },
    },
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "longt5": _T5,
    "bart": _BART,
    "mbart": _BART | {"pad_token_id": 0},
    "marian": _BART | {"pad_token_id": 0, "decoder_start_token_id": 0},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40},
    "funnel": {
        "d_model": 32,
        "block_sizes": [1, 1],
        "n_head": 4,
        "d_head": 8,
        "d_inner": 48,
        "num_decoder_layers": 1,
        "architectures": ["FunnelModel"],  # without it AutoModel does not know which of two
    },
    "longformer": _SIZES | {"max_position_embeddings": 42, "attention_window": [8, 8], "pad_token_id": 1},
    "big_bird": _SIZES | {"max_position_embeddings": 40, "block_size": 4, "attention_type": "block_sparse"},
    "nomic_bert": _SIZES | {"max_position_embeddings": 40},
    "fnet": _SIZES | {"max_position_embeddings": 40},
    "lilt": _SIZES | {"max_position_embeddings": 40},
    "reformer": {},
    "perceiver": {"num_latents": 4, "d_latents": 32, "d_model": 32, "num_blocks": 1, "num_self_attends_per_block": 1},
    "deberta-v2": _SIZES | {"max_position_embeddings": 40, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
}


def made_config(family: str, vocab_size: int) -> Any:
    from transformers import CONFIG_MAPPING

    # FunnelConfig takes its block sizes before it sets num_hidden_layers, which for_model would ask for.
    return CONFIG_MAPPING[family](vocab_size=vocab_size, **FAMILIES[family])


@pytest.fixture(scope="session")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`bodies("bert")` is the folder of a small random model as transformers saves it."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            from transformers import AutoModel, PreTrainedTokenizerFast

            byte_level = family in ("roberta", "xlm-roberta", "camembert")
            backend = _byte_level() if byte_level else _word_piece()
            size = backend.get_vocab_size() + 3
            torch.manual_seed(7)
            model = AutoModel.from_config(made_config(family, vocab_size=size))
            for parameter in model.parameters():  # biases and norms that are not 0 and 1
                parameter.data += torch.randn_like(parameter) * 0.1
            folder = tmp_path_factory.mktemp(family)
            model.save_pretrained(folder)
            names = ("<s>", "</s>", "<pad>", "<unk>", "<mask>") if byte_level else (
                "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]",
            )  # fmt: skip
            PreTrainedTokenizerFast(
                tokenizer_object=backend,
                **dict(zip(("cls_token", "sep_token", "pad_token", "unk_token", "mask_token"), names, strict=True)),
            ).save_pretrained(folder)
            made[family] = folder
        return made[family]

    return make


PAIRS = [
    ("The cat sat on the mat.", "A cat is sitting."),
    ("한국어 문장을 벡터로 바꾼다.", ""),
    ("", "x"),
    ("", ""),
    (TEXTS[1], TEXTS[4]),
    ("x", TEXTS[4] + " " + TEXTS[1]),
    (TEXTS[4] + " " + TEXTS[1], "한국어"),
]


@pytest.fixture(scope="session")
def classifiers(bodies: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`classifiers("bert", 3)` is the folder of a small random sequence classifier as transformers saves it."""
    import shutil

    made: dict[tuple[str, int, str], Path] = {}

    def make(family: str, labels: int = 1, **settings: Any) -> Path:
        key = (family, labels, repr(settings))
        if key not in made:
            from transformers import AutoConfig, AutoModelForSequenceClassification

            folder = tmp_path_factory.mktemp(f"{family}-classifier")
            config = AutoConfig.from_pretrained(bodies(family), num_labels=labels, **settings)
            torch.manual_seed(11)
            model = AutoModelForSequenceClassification.from_config(config)
            for parameter in model.parameters():
                parameter.data += torch.randn_like(parameter) * 0.1
            model.save_pretrained(folder)
            for path in bodies(family).glob("*token*"):
                shutil.copy(path, folder)
            made[key] = folder
        return made[key]

    return make


@pytest.fixture
def pairs() -> list[tuple[str, str]]:
    return list(PAIRS)


@pytest.fixture
def their_scores() -> Callable[..., np.ndarray]:
    """Scores of pairs through sentence-transformers, as its `predict` gives them."""
    from sentence_transformers import CrossEncoder

    def predict(folder: Path, pairs: list[tuple[str, str]], **options: Any) -> np.ndarray:
        model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
        return np.asarray(model.predict([list(pair) for pair in pairs], show_progress_bar=False, **options))

    return predict


@pytest.fixture
def old_layout(bodies: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A model as sentence-transformers 2.0 laid it out, written by hand."""
    import shutil

    def make(family: str = "bert", *, pooling: dict[str, Any] | None = None, max_length: int | None = 24) -> Path:
        folder = tmp_path / f"old-{family}"
        shutil.copytree(bodies(family), folder)
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        put(
            folder / "modules.json",
            [
                {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for i, (path, kind) in enumerate(kinds)
            ],
        )
        put(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
        put(
            folder / "1_Pooling" / "config.json",
            {
                "word_embedding_dimension": 32,
                "pooling_mode_cls_token": False,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
                "pooling_mode_mean_sqrt_len_tokens": False,
            }
            | (pooling or {}),
        )
        return folder

    return make


def put(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture
def write_json() -> Callable[[Path, object], None]:
    return put


@pytest.fixture
def vectors_of() -> Callable[..., np.ndarray]:
    """Vectors of texts through the parts alone."""

    def encode(parts: BiParts, texts: list[str]) -> np.ndarray:
        tokens = parts.tokenizer.encode(texts)
        batch = to_packed(tokens.ids, tokens.lengths, torch.device("cpu"))
        with torch.no_grad():
            pooled = parts.pooling(parts.body(batch), batch)
            return np.asarray(apply_heads(parts.heads, pooled, parts.truncate_dim))

    return encode


@pytest.fixture
def theirs() -> Callable[[Path, list[str]], np.ndarray]:
    """Vectors of texts through sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    def encode(folder: Path, texts: list[str]) -> np.ndarray:
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        return np.asarray(model.encode(texts, show_progress_bar=False))

    return encode
