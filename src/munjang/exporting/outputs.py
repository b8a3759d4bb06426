"""What follows the body in an ONNX graph: pooling and heads of a bi-encoder, the classifier head of a cross-encoder.

It follows `munjang.nn.pooling` and `heads`. Heads stay float32 in every precision, as they do there: they
are small, and scores that differ in the third digit change an order.
"""

from __future__ import annotations

from torch import nn

from munjang.checkpoint import CrossParts, ModelParts
from munjang.errors import ModelError
from munjang.exporting.body import PaddedBatch, add_encoder
from munjang.exporting.graph import LOWEST, Graph, Value
from munjang.exporting.options import ExportDType
from munjang.nn.encoder import Encoder
from munjang.nn.families import FAMILIES
from munjang.nn.heads import DENSE_ACTIVATIONS, ClassifierHead, Dense, Normalize, VectorNorm
from munjang.nn.pooling import Average, Extreme, PoolingMode, Token, reduction_of

TOKENS, SENTENCE, LOGITS = "token_embeddings", "sentence_embedding", "logits"
# token_embeddings once more: optimum, and sentence-transformers with backend="onnx" over it, ask for it by this name.
HIDDEN = "last_hidden_state"
_TINY = 1e-12  # below which torch's normalize divides by this


def bi_encoder_graph(parts: ModelParts, dtype: ExportDType) -> Graph:
    """input_ids, attention_mask (, token_type_ids) -> token_embeddings, sentence_embedding, last_hidden_state."""
    encoder = _encoder_of(parts)
    if not parts.pooling.include_prompt and any(parts.prompts.values()):
        raise ModelError(
            "the model leaves the tokens of its prompts out of its pooling, which a graph that is not told how long a "
            "prompt is cannot do: export it as sentence-transformers"
        )
    graph = Graph(dtype)
    config = encoder.config
    batch = PaddedBatch.declare(graph, segments=config.segments > 1 and FAMILIES[config.family].token_types)
    hidden = add_encoder(batch, encoder)
    pooled = [_pool(batch, hidden, mode) for mode in parts.pooling.modes]
    x = pooled[0] if len(pooled) == 1 else graph.op("Concat", *pooled, axis=-1)
    width = parts.pooling.dimension(encoder.hidden)
    for place, head in enumerate(parts.heads):
        x = _head(graph, x, f"heads.{place}", head)
        width = getattr(head, "dimension", width)
    if parts.truncate_dim is not None and parts.truncate_dim < width:
        width = parts.truncate_dim
        x = graph.op("Slice", x, graph.ints(0), graph.ints(width), graph.ints(1))
    by_token: tuple[str | int, ...] = ("batch", "length", encoder.hidden)
    graph.outputs.append(Value(graph.name(hidden, TOKENS), "float32", by_token))
    graph.outputs.append(Value(graph.name(x, SENTENCE), "float32", ("batch", width)))
    graph.outputs.append(Value(graph.name(hidden, HIDDEN), "float32", by_token))
    return graph


def cross_encoder_graph(parts: CrossParts, dtype: ExportDType) -> Graph:
    """input_ids, attention_mask (, token_type_ids) -> logits, before the activation, as transformers' exports are."""
    encoder = _encoder_of(parts)
    graph = Graph(dtype)
    batch = PaddedBatch.declare(graph, segments=parts.uses_segments)
    logits = _classifier(batch, add_encoder(batch, encoder), parts.head)
    graph.outputs.append(Value(graph.name(logits, LOGITS), "float32", ("batch", parts.head.labels)))
    return graph


def _encoder_of(parts: ModelParts | CrossParts) -> Encoder:
    body = parts.body
    if not isinstance(body, Encoder) or body.config.family not in FAMILIES:
        raise ModelError(
            f"a {body.config.family} model cannot be exported to ONNX: the families that can are {', '.join(FAMILIES)}"
        )
    return body


# --- pooling ---------------------------------------------------------------------------------------------------------


def _pool(batch: PaddedBatch, hidden: str, mode: PoolingMode) -> str:
    """hidden [batch, length, width] -> [batch, width], as `munjang.nn.pooling.pool`."""
    graph, reduction = batch.graph, reduction_of(mode)
    if isinstance(reduction, Token):
        rising = graph.cast(batch.real, "int64")  # ArgMax takes the first maximum: the first real token
        if reduction.which == "last":
            rising = graph.op("CumSum", rising, graph.whole(1))
        token = graph.op("ArgMax", rising, axis=1, keepdims=1)  # [batch, 1]
        return graph.op("GatherND", hidden, token, batch_dims=1)
    if isinstance(reduction, Extreme):
        operator, excluded = {"max": ("ReduceMax", LOWEST), "min": ("ReduceMin", -LOWEST)}[reduction.which]
        values = graph.op("Where", _column(batch, batch.real), hidden, graph.real(excluded))
        return graph.op(operator, values, axes=[1], keepdims=0)
    if isinstance(reduction, Average):
        weights = graph.cast(batch.real, "float32")  # [batch, length]
        if reduction.exponent:
            numbers = graph.op("Add", graph.cast(batch.places, "float32"), graph.real(1))
            if reduction.exponent != 1:
                numbers = graph.op("Pow", numbers, graph.real(reduction.exponent))
            weights = graph.op("Mul", weights, numbers)
        total = graph.op("ReduceSum", graph.op("Mul", hidden, _column(batch, weights)), graph.ints(1), keepdims=0)
        count = graph.op("Max", graph.op("ReduceSum", weights, graph.ints(1), keepdims=1), graph.real(1))
        if reduction.power != 1:
            count = graph.op("Pow", count, graph.real(reduction.power))
        return graph.op("Div", total, count)
    raise ModelError(f"pooling mode {mode!r} cannot be exported to ONNX: add it to munjang.exporting.outputs")


def _column(batch: PaddedBatch, x: str) -> str:
    """[batch, length] -> [batch, length, 1]."""
    return batch.graph.op("Unsqueeze", x, batch.graph.ints(2))


# --- heads -----------------------------------------------------------------------------------------------------------


def _head(graph: Graph, x: str, name: str, head: nn.Module) -> str:
    if isinstance(head, Dense):
        return graph.activate(graph.layer(x, name, head.linear, exact=True), DENSE_ACTIVATIONS[head.activation])
    if isinstance(head, VectorNorm):
        return graph.norm(x, name, head)
    if isinstance(head, Normalize):
        length = graph.op("ReduceL2", x, axes=[-1], keepdims=1)
        return graph.op("Div", x, graph.op("Max", length, graph.real(_TINY)))
    raise ModelError(f"a head of type {type(head).__name__} cannot be exported to ONNX")


def _classifier(batch: PaddedBatch, hidden: str, head: ClassifierHead) -> str:
    graph, shape = batch.graph, head.shape
    x = _pool(batch, hidden, shape.pooling)
    if head.dense is not None:
        x = graph.activate(graph.layer(x, "head.dense", head.dense, exact=True), shape.activation)
    if head.norm is not None:
        x = graph.norm(x, "head.norm", head.norm)
    return graph.layer(x, "head.out", head.out, exact=True)
