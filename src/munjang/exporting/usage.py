"""How an exported model is used, as code that runs as it stands: the command prints it, and the card carries it."""

from __future__ import annotations

from pathlib import Path

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.exporting.options import Exported
from munjang.exporting.outputs import LOGITS, SENTENCE

_FEED = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def usage(exported: Exported, model: BiEncoder | CrossEncoder) -> str:
    """Python that loads the exported model and asks it once."""
    folder = exported.folder
    if exported.format == "onnx":
        return onnx_usage(folder, exported.inputs, model)
    if exported.format == "munjang":
        return _munjang(folder, cross=exported.kind == "cross-encoder")
    return _sentence_transformers(folder, cross=exported.kind == "cross-encoder")


def _sentence_transformers(folder: Path, *, cross: bool) -> str:
    if cross:
        return f"""\
from sentence_transformers import CrossEncoder

model = CrossEncoder({str(folder)!r})
scores = model.predict([("비가 온다", "It is raining"), ("비가 온다", "빵을 굽는다")])
"""
    return f"""\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({str(folder)!r})
vectors = model.encode(["비가 온다", "It is raining"])
"""


def _munjang(folder: Path, *, cross: bool) -> str:
    if cross:
        return f"""\
import munjang

model = munjang.load_cross_encoder({str(folder)!r})
scores = model.predict([("비가 온다", "It is raining"), ("비가 온다", "빵을 굽는다")])
"""
    return f"""\
import munjang

model = munjang.load({str(folder)!r})
vectors = model.encode(["비가 온다", "It is raining"])
"""


def onnx_usage(folder: Path, inputs: tuple[str, ...], model: BiEncoder | CrossEncoder) -> str:
    """Only `onnxruntime`, `tokenizers` and numpy: nothing here needs torch."""
    tokenizer = model.parts.tokenizer
    pad = tokenizer.backend.id_to_token(tokenizer.pad_id) or "[PAD]"
    side = ', direction="left"' if tokenizer.keep_end else ""
    feed = "\n".join(f'    "{name}": np.array([row.{_FEED[name]} for row in rows], np.int64),' for name in inputs)
    if isinstance(model, CrossEncoder):
        texts = '[("비가 온다", "It is raining"), ("비가 온다", "빵을 굽는다")]'
        end = f'logits = session.run(["{LOGITS}"], feed)[0]  # [pairs, labels], before the activation'
        if model.parts.activation == "Sigmoid":
            end += "\nscores = 1 / (1 + np.exp(-logits))"
    else:
        prompt = model.prompts.get(model.parts.default_prompt_name or "", "")
        texts = "[" + ", ".join(repr(prompt + text) for text in ("비가 온다", "It is raining")) + "]"
        end = f'vectors = session.run(["{SENTENCE}"], feed)[0]  # [texts, {model.dimension}]'
    return f"""\
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file({str(folder / "tokenizer.json")!r})
tokenizer.enable_truncation({tokenizer.max_length}{side})
tokenizer.enable_padding(pad_id={tokenizer.pad_id}, pad_token={pad!r})
session = onnxruntime.InferenceSession({str(folder / "onnx" / "model.onnx")!r})

rows = tokenizer.encode_batch({texts})
feed = {{
{feed}
}}
{end}
"""
