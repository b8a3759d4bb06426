"""What was written is read again and compared with the model, before it takes its place.

Enters: the model, in float32, and the new folder. Leaves: a `Check` for every file of weights; a difference above the
limit of the precision is a `ModelError`. The sentences are Korean and English, from one token to more than most models
read, so that padding, cutting and positions all count.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.checkpoint import CrossParts, read, read_cross
from munjang.cross_encoder import CrossEncoder
from munjang.errors import ModelError
from munjang.exporting.options import Check, ExportDType
from munjang.exporting.outputs import LOGITS, SENTENCE
from munjang.nn.calibration import sigmoid, softmax
from munjang.text.packing import Tokens
from munjang.text.tokenizer import Tokenizer

Array = np.ndarray[Any, Any]

SENTENCES = (
    "네.",
    "OK",
    "비가 온다.",
    "It is raining.",
    "환불은 어떻게 신청하나요?",
    "How do I return something that I bought online?",
    "오늘 서울은 대체로 맑겠고, 낮 기온은 23도까지 오르겠습니다.",
    "The committee has postponed its decision until the end of next month.",
    "인공지능 학회에서 발표된 논문은 문장을 벡터로 바꾸는 방법을 다루며, 한국어와 English가 섞인 문장도 함께 평가했다.",
    "A sentence with numbers (3.14, 2,048), a name such as Kim Minji, and a word that no dictionary has: blorptangle.",
    "지하철이 멈춰 서자 사람들은 서로의 얼굴을 바라보았다. " * 6,
    "When the train stopped, people looked at each other, and nobody said a word. " * 6,
    "긴 글은 모델이 읽는 길이에서 잘린다. A text that is too long is cut where the model stops reading. " * 40,
)
PAIRS = tuple((SENTENCES[i], SENTENCES[(i + shift) % len(SENTENCES)]) for shift in (1, 4) for i in range(12))

# What a vector may differ by, as a share of its length, and what a score may. int8 twice: of weights alone, and where
# activations are quantised too. All are far above what a sound export shows and far below what a wrong one does.
_VECTORS: dict[str, float] = {"float32": 1e-3, "float16": 0.02, "int8": 0.2, "int8 onnx": 0.4}
_SCORES: dict[str, float] = {"float32": 1e-3, "float16": 0.02, "int8": 0.1, "int8 onnx": 0.2}


def check_folder(model: BiEncoder | CrossEncoder, folder: Path, dtype: ExportDType) -> Check:
    """The folder as Munjang reads it."""
    weights = _weights_of(folder)
    if isinstance(model, BiEncoder):
        again = BiEncoder(read(folder), device="cpu", dtype="float32")
        return _compare_vectors(_vectors(model), _vectors(again), (weights, "munjang"), dtype)
    again_cross = CrossEncoder(read_cross(folder), device="cpu", dtype="float32")
    return _compare_scores(_scores(model), _scores(again_cross), (weights, "munjang"), dtype)


def check_onnx(model: BiEncoder | CrossEncoder, folder: Path, file: str, dtype: ExportDType) -> Check | None:
    """The graph as onnxruntime runs it, with the folder's own tokenizer; None where onnxruntime is not installed."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])

    def run(tokens: Tokens, tokenizer: Tokenizer, output: str) -> Array:
        """All together, padded, except the first, which goes alone: both sizes of a batch count."""
        feeds = [padded(tokens, tokenizer.pad_id, rows) for rows in (slice(0, 1), slice(1, None))]
        names = {value.name for value in session.get_inputs()}
        found = [session.run([output], {key: feed[key] for key in names})[0] for feed in feeds]
        return np.concatenate(found)

    what, limit = (file, f"onnxruntime {runtime.__version__}"), "int8 onnx" if dtype == "int8" else dtype
    if isinstance(model, BiEncoder):
        parts = read(folder)
        vectors = run(parts.tokenizer.encode(SENTENCES), parts.tokenizer, SENTENCE)
        return _compare_vectors(_vectors(model), vectors, what, limit)
    cross = read_cross(folder)
    tokens = cross.tokenise([a for a, _ in PAIRS], [b for _, b in PAIRS])
    logits = run(tokens, cross.tokenizer, LOGITS)
    return _compare_scores(_scores(model), _activated(logits, cross), what, limit)


def padded(tokens: Tokens, pad: int, rows: slice) -> dict[str, Array]:
    """Some rows of a ragged batch as the graph wants them: int64 [rows, longest], filled up on the right."""
    starts = np.concatenate([[0], np.cumsum(tokens.lengths)])
    places = range(*rows.indices(len(tokens.lengths)))
    shape = (len(places), int(tokens.lengths[rows].max(initial=0)))
    ids, mask, segments = np.full(shape, pad, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, place in enumerate(places):
        here, length = slice(starts[place], starts[place + 1]), int(tokens.lengths[place])
        ids[row, :length], mask[row, :length] = tokens.ids[here], 1
        if tokens.segments is not None:
            segments[row, :length] = tokens.segments[here]
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def _weights_of(folder: Path) -> str:
    """The file of the body's weights: in the folder itself, or in that of its first module (static models)."""
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("model*.safetensors")]
    return min(found, key=lambda name: (name.count("/"), name))


def _vectors(model: BiEncoder) -> Array:
    return model.encode_report(SENTENCES, prompt="").vectors


def _scores(model: CrossEncoder) -> Array:
    return model.predict_report(PAIRS).scores


def _activated(logits: Array, parts: CrossParts) -> Array:
    """Logits [n, labels] to what `CrossEncoder.predict` gives."""
    one = logits.shape[1] == 1
    functions: dict[str, Callable[[Array], Array]] = {"Sigmoid": sigmoid, "Tanh": np.tanh}
    otherwise: Callable[[Array], Array] = (lambda x: x) if one else softmax
    scores = functions.get(parts.activation, otherwise)(logits)
    return scores[:, 0] if one else scores


def _compare_vectors(expected: Array, found: Array, what: tuple[str, str], limit: str) -> Check:
    if expected.shape != found.shape:
        raise ModelError(f"{what[0]} gives vectors of shape {found.shape}, the model of shape {expected.shape}")
    left, right = expected.astype(np.float64), found.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(left, axis=1), 1e-12)
    share = np.linalg.norm(left - right, axis=1) / lengths
    cosine = (left * right).sum(axis=1) / (lengths * np.maximum(np.linalg.norm(right, axis=1), 1e-12))
    file, reader = what
    return _passed(Check(file, reader, len(left), float(share.max()), _VECTORS[limit], float(cosine.min())))


def _compare_scores(expected: Array, found: Array, what: tuple[str, str], limit: str) -> Check:
    if expected.shape != found.shape:
        raise ModelError(f"{what[0]} gives scores of shape {found.shape}, the model of shape {expected.shape}")
    # Scores that are no probabilities may be large: then the limit is a share of the largest.
    scale = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(expected.astype(np.float64) - found).max())
    file, reader = what
    return _passed(Check(file, reader, len(expected), difference, _SCORES[limit] * scale))


def _passed(check: Check) -> Check:
    if not check.largest_difference <= check.limit:  # a NaN is not
        raise ModelError(f"the export was given up, it is too far from the model: {check}; try a finer dtype")
    return check
