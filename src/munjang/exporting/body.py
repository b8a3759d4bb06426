"""The packed encoder as a padded ONNX graph: ids and mask [batch, length] -> hidden states [batch, length, hidden].

It follows `munjang.nn.encoder` step by step. What packing gives for nothing is computed from the mask here: which
tokens are real, and the position of each among them. So it does not matter on which side a batch is padded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from munjang.exporting.graph import LOWEST, Graph, Value
from munjang.nn.encoder import Attention, Embeddings, Encoder, EncoderConfig, Layer, LayerConfig, Mlp, relative_buckets

_BATCH: tuple[str | int, ...] = ("batch", "length")


@dataclass
class PaddedBatch:
    """What all layers share, as names of values in the graph."""

    graph: Graph
    ids: str  # int64 [batch, length]
    real: str  # bool [batch, length]: not padding
    places: str  # int64 [batch, length]: 0 at every sequence's first real token
    segments: str | None  # int64 [batch, length]
    _made: dict[object, str] = field(default_factory=dict)

    @classmethod
    def declare(cls, graph: Graph, *, segments: bool) -> PaddedBatch:
        """The inputs of the graph, under the names that Hugging Face's tokenizers give them."""
        names = ["input_ids", "attention_mask", *["token_type_ids"] * segments]
        graph.inputs.extend(Value(name, "int64", _BATCH) for name in names)
        real = graph.cast("attention_mask", "bool")
        counted = graph.op("CumSum", graph.cast(real, "int64"), graph.whole(1))
        places = graph.op("Max", graph.op("Sub", counted, graph.whole(1)), graph.whole(0))
        return cls(graph, "input_ids", real, places, "token_type_ids" if segments else None)

    def distance(self) -> str:
        """How far each key stands behind each query: int64 [length, length]."""
        if "distance" not in self._made:
            graph = self.graph
            length = graph.op("Gather", graph.op("Shape", self.ids), graph.whole(1), axis=0)
            steps = graph.op("Range", graph.whole(0), length, graph.whole(1))
            keys, queries = (graph.op("Unsqueeze", steps, graph.ints(axis)) for axis in (0, 1))
            self._made["distance"] = graph.op("Sub", keys, queries)
        return self._made["distance"]

    def mask(self, window: int, bias: str | None) -> str:
        """What is added to scores [batch, heads, length, length]: the bias, or the lowest number where nobody looks."""
        if ("mask", window) not in self._made:
            graph = self.graph
            seen = graph.op("Unsqueeze", self.real, graph.ints(1, 2))  # [batch, 1, 1, length]
            if window:
                near = graph.op("LessOrEqual", graph.op("Abs", self.distance()), graph.whole(window))
                seen = graph.op("And", seen, near)
            self._made["mask", window] = graph.op("Where", seen, bias or graph.real(0), graph.real(LOWEST))
        return self._made["mask", window]

    def rotary(self, theta: float, size: int) -> tuple[str, str]:
        """Cosine and sine [batch, length, 1, size / 2] of every token's position."""
        if ("cos", theta) not in self._made:
            graph = self.graph
            steps = torch.arange(0, size, 2, dtype=torch.float32)
            bases = graph.vector(f"rotary.{theta:g}", theta ** (steps / size))
            places = graph.op("Unsqueeze", graph.cast(self.places, "float32"), graph.ints(2, 3))
            angles = graph.op("Div", places, bases)
            self._made["cos", theta] = graph.op("Cos", angles)
            self._made["sin", theta] = graph.op("Sin", angles)
        return self._made["cos", theta], self._made["sin", theta]


def add_encoder(batch: PaddedBatch, encoder: Encoder) -> str:
    """The whole body; gives hidden states [batch, length, hidden]."""
    graph, config = batch.graph, encoder.config
    bias = None if encoder.relative_bias is None else _relative_bias(batch, encoder.relative_bias.weight, config)
    x = _embeddings(batch, encoder.embeddings)
    for step in config.steps:
        layer = encoder.layers[step.stored]
        assert isinstance(layer, Layer)
        x = _layer(batch, x, layer, step, bias)
    return x if encoder.final_norm is None else graph.norm(x, "final_norm", encoder.final_norm)


def _embeddings(batch: PaddedBatch, part: Embeddings) -> str:
    graph = batch.graph
    x = graph.rows("embeddings.word.weight", part.word.weight, batch.ids)
    if part.position is not None:
        places = batch.places
        if part.position_offset:
            places = graph.op("Add", places, graph.whole(part.position_offset))
        x = graph.op("Add", x, graph.rows("embeddings.position.weight", part.position.weight, places, exact=True))
    if part.segment is not None:
        weight = part.segment.weight
        segment = (
            graph.vector("embeddings.segment.first", weight[0])
            if batch.segments is None
            else graph.rows("embeddings.segment.weight", weight, batch.segments, exact=True)
        )
        x = graph.op("Add", x, segment)
    x = graph.norm(x, "embeddings.norm", part.norm)
    return x if part.project is None else graph.layer(x, "embeddings.project", part.project)


def _layer(batch: PaddedBatch, x: str, layer: Layer, step: LayerConfig, bias: str | None) -> str:
    graph, name = batch.graph, f"layers.{step.stored}"
    if layer.pre_norm:
        norm = layer.attention_norm
        before = x if norm is None else graph.norm(x, f"{name}.attention_norm", norm)
        x = graph.op("Add", x, _attention(batch, before, layer.attention, step, bias))
        return graph.op("Add", x, _mlp(graph, graph.norm(x, f"{name}.mlp_norm", layer.mlp_norm), name, layer.mlp))
    assert layer.attention_norm is not None
    attended = graph.op("Add", _attention(batch, x, layer.attention, step, bias), x)
    x = graph.norm(attended, f"{name}.attention_norm", layer.attention_norm)
    return graph.norm(graph.op("Add", _mlp(graph, x, name, layer.mlp), x), f"{name}.mlp_norm", layer.mlp_norm)


def _attention(batch: PaddedBatch, x: str, part: Attention, step: LayerConfig, bias: str | None) -> str:
    """Queries, keys and values by three products, as the graphs look that optimisers of other runtimes know."""
    graph, name = batch.graph, f"layers.{step.stored}.attention"
    shape = graph.ints(0, 0, part.heads, part.head_size)
    weights = part.qkv.weight.chunk(3)
    biases: tuple[Tensor | None, ...] = (None,) * 3 if part.qkv.bias is None else part.qkv.bias.chunk(3)
    query, key, value = (
        graph.op("Reshape", graph.linear(x, f"{name}.{kind}", weights[i], biases[i]), shape)
        for i, kind in enumerate(("query", "key", "value"))
    )  # each [batch, length, heads, size]
    if step.rope_theta:
        cos, sin = batch.rotary(step.rope_theta, part.head_size)
        query, key = (_rotate(graph, given, cos, sin, part.head_size) for given in (query, key))
    query, value = (graph.op("Transpose", given, perm=[0, 2, 1, 3]) for given in (query, value))
    key = graph.op("Transpose", key, perm=[0, 2, 3, 1])  # [batch, heads, size, length]
    scores = graph.op("Mul", graph.op("MatMul", query, key), graph.real(part.head_size**-0.5))
    weights_of_keys = graph.op("Softmax", graph.op("Add", scores, batch.mask(step.window, bias)), axis=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", weights_of_keys, value), perm=[0, 2, 1, 3])
    joined = graph.op("Reshape", mixed, graph.ints(0, 0, part.heads * part.head_size))
    return graph.layer(joined, f"{name}.out", part.out)


def _rotate(graph: Graph, x: str, cos: str, sin: str, size: int) -> str:
    """Rotary positions on x [batch, length, heads, size] (`attention.rotate`)."""
    halves = graph.ints(size // 2, size // 2)
    first, second = graph.ops("Split", x, halves, outputs=2, axis=-1)
    turned = (
        graph.op("Sub", graph.op("Mul", first, cos), graph.op("Mul", second, sin)),
        graph.op("Add", graph.op("Mul", second, cos), graph.op("Mul", first, sin)),
    )
    return graph.op("Concat", *turned, axis=-1)


def _mlp(graph: Graph, x: str, layer: str, part: Mlp) -> str:
    x = graph.layer(x, f"{layer}.mlp.up", part.up)
    if part.gated:
        width = part.down.in_features
        x, gate = graph.ops("Split", x, graph.ints(width, width), outputs=2, axis=-1)
        x = graph.op("Mul", graph.activate(x, part.activation), gate)
    else:
        x = graph.activate(x, part.activation)
    return graph.layer(x, f"{layer}.mlp.down", part.down)


def _relative_bias(batch: PaddedBatch, weight: Tensor, config: EncoderConfig) -> str:
    """MPNet's bias [1, heads, length, length], from a table of every distance that can occur."""
    graph, reach = batch.graph, config.max_positions - 1
    buckets = relative_buckets(torch.arange(-reach, reach + 1), config.relative_buckets)
    # Distances beyond the table occur only between padding.
    near = graph.op("Clip", batch.distance(), graph.whole(-reach), graph.whole(reach))
    places = graph.op("Add", near, graph.whole(reach))
    by_pair = graph.rows("relative_bias", weight.detach().cpu()[buckets], places, exact=True)  # [length, length, heads]
    return graph.op("Unsqueeze", graph.op("Transpose", by_pair, perm=[2, 0, 1]), graph.ints(0))
