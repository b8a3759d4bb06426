"""A `Graph` to an .onnx file, with `onnx` (extra `onnx`), checked by it.

One file holds everything up to what a protobuf can (2 GB); beyond that the weights lie in `model.onnx_data` beside it,
as ONNX has it for large models.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from munjang.errors import MissingExtraError, ModelError
from munjang.exporting.graph import OPSET, Graph, Value

_IR_VERSION = 8  # that of opset 17: runtimes from 2022 on read it
_LARGEST = 1_900_000_000  # bytes of weights in one file
_SMALL = 1024  # bytes; what is smaller stays in the graph's own file


def require_onnx() -> Any:
    """The package `onnx`, or an error that says how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from error
    return onnx


def write_graph(graph: Graph, path: Path, *, about: Mapping[str, str]) -> None:
    """Write the graph; `about` goes into the file as its metadata."""
    onnx = require_onnx()
    model = _model(onnx, graph, about)
    large = sum(array.nbytes for array in graph.arrays.values()) > _LARGEST
    outside = {
        "save_as_external_data": True,
        "all_tensors_to_one_file": True,
        "location": f"{path.name}_data",
        "size_threshold": _SMALL,
    }
    onnx.save_model(model, str(path), **(outside if large else {}))
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"the graph that was built is not valid ONNX ({error}): this is a fault in munjang") from error


def _model(onnx: Any, graph: Graph, about: Mapping[str, str]) -> Any:
    helper = onnx.helper
    nodes = [
        helper.make_node(
            node.kind,
            list(node.inputs),
            list(node.outputs),
            name=f"/{node.outputs[0]}",
            **{name: _attribute(onnx, name, value) for name, value in node.attributes.items()},
        )
        for node in graph.nodes
    ]
    made = helper.make_graph(
        nodes,
        "munjang",
        [_value(onnx, value) for value in graph.inputs],
        [_value(onnx, value) for value in graph.outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.arrays.items()],
    )
    model = helper.make_model(
        made, producer_name="munjang", ir_version=_IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    helper.set_model_props(model, dict(about))
    return model


def _type(onnx: Any, name: str) -> int:
    kinds = {"float32": "FLOAT", "float16": "FLOAT16", "int64": "INT64", "bool": "BOOL"}
    return int(getattr(onnx.TensorProto, kinds[name]))


def _attribute(onnx: Any, name: str, value: object) -> object:
    return _type(onnx, str(value)) if name == "to" else value


def _value(onnx: Any, value: Value) -> Any:
    return onnx.helper.make_tensor_value_info(value.name, _type(onnx, value.type), list(value.shape))
