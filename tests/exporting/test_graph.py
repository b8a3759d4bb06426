"""The graph gives what the packed encoder gives: every family, pooling, head, precision, however a batch is padded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from torch import nn

from munjang.errors import ModelError
from munjang.exporting import onnx_file
from munjang.exporting.graph import Graph
from munjang.exporting.outputs import bi_encoder_graph, cross_encoder_graph
from munjang.nn.heads import Dense, Normalize, VectorNorm, apply_heads
from munjang.nn.packed import to_packed
from munjang.nn.pooling import POOLING_MODES, Pooling
from support import bodies
from support.small_models import bi_encoder, cross_encoder

LENGTHS = [1, 2, 2, 7, 33, 60, 94]


class Session:
    """A graph in onnxruntime."""

    def __init__(self, graph: Graph, folder: Path) -> None:
        self.path = folder / "model.onnx"
        onnx_file.write_graph(graph, self.path, about={"kind": "test"})
        self.session = onnxruntime.InferenceSession(str(self.path), providers=["CPUExecutionProvider"])
        self.names = [value.name for value in self.session.get_inputs()]

    def feed(self, ids: np.ndarray, lengths: np.ndarray, *, left: bool = False, extra: int = 0) -> dict[str, Any]:
        table, mask = (part.numpy() for part in bodies.padded(ids, lengths, 0))
        table, mask = (np.pad(part, ((0, 0), (0, extra))) for part in (table, mask))
        if left:
            shifts = table.shape[1] - lengths
            table, mask = (
                np.stack([np.roll(row, shift) for row, shift in zip(part, shifts, strict=True)])
                for part in (table, mask)
            )
        feed = {"input_ids": table, "attention_mask": mask, "token_type_ids": np.zeros_like(table)}
        return {name: feed[name] for name in self.names}

    def run(self, output: str, feed: dict[str, Any]) -> np.ndarray:
        return np.asarray(self.session.run([output], feed)[0])


def expected(model: Any, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    packed = bodies.pack(ids, lengths)
    with torch.inference_mode():
        pooled = model.parts.pooling(model.parts.body(packed), packed)
        return apply_heads(model.parts.heads, pooled, model.parts.truncate_dim).numpy()


@pytest.mark.parametrize("case", bodies.CASES)
def test_every_family(case: str, tmp_path: Path) -> None:
    model = bi_encoder(case)
    session = Session(bi_encoder_graph(model.parts, "float32"), tmp_path)
    ids, lengths = bodies.random_batch(LENGTHS)
    with torch.inference_mode():
        hidden = model.parts.body(bodies.pack(ids, lengths)).numpy()
    feed = session.feed(ids, lengths)
    for output in ("token_embeddings", "last_hidden_state"):
        found = session.run(output, feed)
        assert found.shape == (len(LENGTHS), 94, 32)
        assert np.abs(found[feed["attention_mask"].astype(bool)] - hidden).max() < 1e-5
    vectors = expected(model, ids, lengths)
    for options in ({}, {"left": True}, {"extra": 2}):
        assert np.abs(session.run("sentence_embedding", session.feed(ids, lengths, **options)) - vectors).max() < 1e-5


@pytest.mark.parametrize("mode", [*POOLING_MODES, "several"])
def test_every_pooling(mode: str, tmp_path: Path) -> None:
    pooling = Pooling(("max", "cls", "mean") if mode == "several" else (mode,))  # type: ignore[arg-type]
    model = bi_encoder("bert", pooling)
    session = Session(bi_encoder_graph(model.parts, "float32"), tmp_path)
    ids, lengths = bodies.random_batch(LENGTHS)
    vectors = expected(model, ids, lengths)
    assert vectors.shape[1] == 32 * len(pooling.modes)
    for left in (False, True):
        found = session.run("sentence_embedding", session.feed(ids, lengths, left=left))
        assert np.abs(found - vectors).max() < 1e-5


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Session]:
    model = bi_encoder("bert", Pooling(("weighted_mean",)), Normalize())
    return model, Session(bi_encoder_graph(model.parts, "float32"), tmp_path_factory.mktemp("graph"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(0, 5), st.booleans())
def test_any_batch(session: tuple[Any, Session], lengths: list[int], extra: int, left: bool) -> None:
    model, graph = session
    ids, sizes = bodies.random_batch(lengths, seed=sum(lengths))
    found = graph.run("sentence_embedding", graph.feed(ids, sizes, left=left, extra=extra))
    assert np.abs(found - expected(model, ids, sizes)).max() < 1e-5


ACTIVATIONS = ("Tanh", "Identity", "GELU", "ReLU", "Sigmoid", "SiLU", "LeakyReLU")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_head(activation: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    norm = VectorNorm(24)
    nn.init.normal_(norm.weight)
    model = bi_encoder("bert", None, Dense(32, 24, activation=activation), norm, Dense(24, 20, bias=False), Normalize())
    model.truncate_dim = model.parts.truncate_dim = 7
    session = Session(bi_encoder_graph(model.parts, "float32"), tmp_path)
    ids, lengths = bodies.random_batch(LENGTHS)
    found = session.run("sentence_embedding", session.feed(ids, lengths))
    assert found.shape == (len(LENGTHS), 7)
    assert np.abs(found - expected(model, ids, lengths)).max() < 1e-5


@pytest.mark.parametrize("activation", ["gelu_new", "silu"])
def test_other_activations_of_the_body(activation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arguments = bodies.CASES["bert"]
    monkeypatch.setitem(bodies.CASES, "bert-other", (name, {**arguments, "hidden_act": activation}))
    model = bi_encoder("bert-other")
    session = Session(bi_encoder_graph(model.parts, "float32"), tmp_path)
    ids, lengths = bodies.random_batch(LENGTHS)
    found = session.run("sentence_embedding", session.feed(ids, lengths))
    assert np.abs(found - expected(model, ids, lengths)).max() < 1e-5


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("head", ["standard", "sbert"])
@pytest.mark.parametrize("case", ["bert", "roberta", "electra", "albert", "distilbert", "mpnet", "modernbert"])
def test_every_classifier(case: str, head: str, labels: int, tmp_path: Path) -> None:
    model = cross_encoder(case, labels, head=head)
    graph = cross_encoder_graph(model.parts, "float32")
    session = Session(graph, tmp_path)
    ids, lengths = bodies.random_batch(LENGTHS)
    segments = None
    feed = session.feed(ids, lengths)
    if model.parts.uses_segments:
        segments = np.concatenate([np.arange(n) >= n // 2 for n in LENGTHS]).astype(np.int32)
        feed["token_type_ids"] = bodies.padded(segments, lengths, 0)[0].numpy()
    assert ("token_type_ids" in session.names) == (case in ("bert", "electra", "albert"))
    packed = to_packed(ids, lengths, torch.device("cpu"), segments=segments)
    with torch.inference_mode():
        logits = model.parts.head(model.parts.body(packed), packed).numpy()
    assert logits.std() > 1e-3
    found = session.run("logits", feed)
    assert found.shape == (len(LENGTHS), labels)
    assert np.abs(found - logits).max() < 1e-5


@pytest.mark.parametrize("case", ["bert", "albert", "modernbert"])
def test_precisions(case: str, tmp_path: Path) -> None:
    model = bi_encoder(case)
    ids, lengths = bodies.random_batch(LENGTHS)
    vectors = expected(model, ids, lengths)
    apart: dict[str, float] = {}
    for dtype, types in (("float16", {"float16"}), ("int8", {"int8"})):
        graph = bi_encoder_graph(model.parts, dtype)  # type: ignore[arg-type]
        matrices = {name: array for name, array in graph.arrays.items() if name.endswith("weight") and array.ndim == 2}
        matrices.pop("embeddings.position.weight", None), matrices.pop("embeddings.segment.weight", None)
        assert {array.dtype.name for array in matrices.values()} == types
        session = Session(graph, tmp_path)
        found = session.run("sentence_embedding", session.feed(ids, lengths))
        apart[dtype] = float((np.linalg.norm(found - vectors, axis=1) / np.linalg.norm(vectors, axis=1)).max())
    assert 0 < apart["float16"] < 0.005 < apart["int8"] < 0.1


def test_heads_stay_float32_in_every_precision() -> None:
    model = bi_encoder("bert", None, Dense(32, 24))
    for dtype in ("float16", "int8"):
        assert bi_encoder_graph(model.parts, dtype).arrays["heads.0.weight"].dtype == np.float32  # type: ignore[arg-type]
        cross = cross_encoder_graph(cross_encoder("bert").parts, dtype)  # type: ignore[arg-type]
        assert cross.arrays["head.dense.weight"].dtype == np.float32


def test_another_runtime_agrees(tmp_path: Path) -> None:
    """ONNX's own evaluator, which knows nothing of onnxruntime's fusions."""
    ids, lengths = bodies.random_batch([3, 9, 20])
    for case, dtype in (("mpnet", "float32"), ("modernbert", "float32"), ("bert", "float16")):
        model = bi_encoder(case, Pooling(("mean_sqrt_len",)))
        session = Session(bi_encoder_graph(model.parts, dtype), tmp_path)  # type: ignore[arg-type]
        feed = session.feed(ids, lengths)
        found = ReferenceEvaluator(str(session.path)).run(["sentence_embedding"], feed)[0]
        assert np.abs(found - session.run("sentence_embedding", feed)).max() < 1e-4


def test_the_file(tmp_path: Path) -> None:
    session = Session(bi_encoder_graph(bi_encoder("albert").parts, "float32"), tmp_path)
    model = onnx.load(str(session.path))
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert (model.ir_version, model.producer_name) == (8, "munjang")
    assert {prop.key: prop.value for prop in model.metadata_props} == {"kind": "test"}
    dims = [dim.dim_param or dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["batch", "length", 32]
    # Three steps share one stored layer, and the file holds it once.
    assert sum(weight.name.endswith("mlp.up.weight") for weight in model.graph.initializer) == 1


def test_large_weights_lie_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bi_encoder("bert")
    ids, lengths = bodies.random_batch(LENGTHS)
    monkeypatch.setattr(onnx_file, "_LARGEST", 1000)
    session = Session(bi_encoder_graph(model.parts, "float32"), tmp_path)
    assert (tmp_path / "model.onnx_data").stat().st_size > 20_000
    assert session.path.stat().st_size < 50_000
    found = session.run("sentence_embedding", session.feed(ids, lengths))
    assert np.abs(found - expected(model, ids, lengths)).max() < 1e-5


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_a_row_of_padding_is_finite(mode: str, tmp_path: Path) -> None:
    model = bi_encoder("modernbert", Pooling((mode,)), Normalize())  # type: ignore[arg-type]
    session = Session(bi_encoder_graph(model.parts, "float32"), tmp_path)
    ids, lengths = bodies.random_batch([5, 30])
    feed = session.feed(ids, lengths)
    alone = session.run("sentence_embedding", feed)[1]
    feed["attention_mask"][0] = 0
    found = session.run("sentence_embedding", feed)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[1], alone, atol=1e-6)


def test_what_cannot_be_exported() -> None:
    parts = bi_encoder("bert").parts
    with torch.no_grad():
        parts.body.layers[0].mlp.up.weight[0, 0] = 1e6  # type: ignore[union-attr, index]
    with pytest.raises(ModelError, match=r"layers\.0\.mlp\.up\.weight.*float32"):
        bi_encoder_graph(parts, "float16")
    parts = bi_encoder("bert", Pooling(include_prompt=False)).parts
    bi_encoder_graph(parts, "float32")  # without prompts there is nothing to leave out
    parts.prompts = {"query": "질문: "}
    with pytest.raises(ModelError, match="prompts"):
        bi_encoder_graph(parts, "float32")
