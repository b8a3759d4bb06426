"""`Graph`: an ONNX graph as plain records, with the arithmetic that every part of a model is made of.

Enters: torch weights and calls such as `linear` and `norm`, which take and give names of values. Leaves: nodes and
numpy arrays, which `onnx_file` writes. The graph is built by hand, not traced: the packed encoder has loops that
depend on the batch, so a tracer would need a second, padded model anyway; an encoder is a few dozen operators a layer;
and the only thing to install is `onnx` itself. All operators are of opset 17, the first that has LayerNormalization.

How weights lie in the file is decided here:

- float32: as they are;
- float16: matrices in half precision, cast to float32 where they are used (a runtime does that once, when it loads);
- int8: matrices as bytes with one scale per output (`checkpoint.weights`, so a model that was saved compactly loses
  nothing more), activations quantised as they come (DynamicQuantizeLinear), the product in whole numbers
  (MatMulInteger). The table of words is bytes too, one scale per row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from munjang.checkpoint.weights import SCALE_SUFFIX, pack_int8
from munjang.errors import ModelError
from munjang.exporting.options import ExportDType

Array = np.ndarray[Any, Any]
OPSET = 17
LOWEST = float(np.finfo(np.float32).min)  # a masked score: finite, so that a row of nothing but padding is no NaN


@dataclass(frozen=True)
class Node:
    """One operator."""

    kind: str
    inputs: tuple[str, ...]  # an empty name is an optional input that is left out
    outputs: tuple[str, ...]
    attributes: dict[str, object]


@dataclass(frozen=True)
class Value:
    """An input or an output of the whole graph; a dimension is a number or a name."""

    name: str
    type: str  # 'int64' or 'float32'
    shape: tuple[str | int, ...]


@dataclass
class Graph:
    """A graph that grows; every method that adds to it gives the name of the new value."""

    dtype: ExportDType = "float32"
    nodes: list[Node] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)  # weights and constants, by name
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    _known: dict[object, str] = field(default_factory=dict)
    _quantized: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.inputs)

    # --- operators and constants -------------------------------------------------------------------------------------

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """An operator with one output."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: object) -> tuple[str, ...]:
        """An operator with several outputs."""
        place = len(self.nodes)
        names = tuple(f"{kind}_{place}" + (f"_{i}" if i else "") for i in range(outputs))
        self.nodes.append(Node(kind, inputs, names, attributes))
        return names

    def name(self, value: str, name: str) -> str:
        """The same value under a name that people see."""
        self.nodes.append(Node("Identity", (value,), (name,), {}))
        return name

    def ints(self, *values: int) -> str:
        """A constant list of whole numbers, int64 [n]."""
        return self._constant(np.array(values, np.int64))

    def whole(self, value: int) -> str:
        """A constant whole number, int64 []."""
        return self._constant(np.array(value, np.int64))

    def real(self, value: float) -> str:
        """A constant, float32 []."""
        return self._constant(np.array(value, np.float32))

    def _constant(self, array: Array) -> str:
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.keep(f"constant.{len(self._known)}", array)
        return self._known[key]

    def keep(self, name: str, array: Array) -> str:
        """An array under its name; a name that is there already is the same array (layers that several steps share)."""
        self.arrays.setdefault(name, array)
        return name

    def cast(self, x: str, kind: str) -> str:
        """Another type: 'float32', 'int64' or 'bool'."""
        return self.op("Cast", x, to=kind)

    # --- layers ------------------------------------------------------------------------------------------------------

    def vector(self, name: str, weight: Tensor) -> str:
        """A bias or a norm's weight, in float32 whatever the matrices are."""
        return self.keep(name, _array(weight))

    def linear(self, x: str, name: str, weight: Tensor, bias: Tensor | None, *, exact: bool = False) -> str:
        """x [..., in] by weight [out, in], plus bias [out]. exact: in float32 whatever the other matrices are."""
        if self._as_bytes(f"{name}.weight", weight, exact=exact, turned=True):
            product = self._integer_product(x, f"{name}.weight")
        else:
            product = self.op("MatMul", x, self._floats(f"{name}.weight", weight.T, exact=exact))
        return product if bias is None else self.op("Add", product, self.vector(f"{name}.bias", bias))

    def layer(self, x: str, name: str, linear: nn.Linear, *, exact: bool = False) -> str:
        """A torch layer as `linear` does it."""
        return self.linear(x, name, linear.weight, linear.bias, exact=exact)

    def rows(self, name: str, weight: Tensor, ids: str, *, exact: bool = False) -> str:
        """Rows of a table [n, width], by number."""
        if self._as_bytes(name, weight, exact=exact, turned=False):
            steps = self.cast(self.op("Gather", name, ids, axis=0), "float32")
            return self.op("Mul", steps, self.op("Gather", name + SCALE_SUFFIX, ids, axis=0))
        if exact or self.dtype != "float16":
            return self.op("Gather", self.keep(name, _array(weight)), ids, axis=0)
        return self.cast(self.op("Gather", self.keep(name, _half(name, weight)), ids, axis=0), "float32")

    def norm(self, x: str, name: str, norm: nn.LayerNorm) -> str:
        """LayerNorm over the last dimension."""
        terms = [x, self.vector(f"{name}.weight", norm.weight)]
        if norm.bias is not None:
            terms.append(self.vector(f"{name}.bias", norm.bias))
        return self.op("LayerNormalization", *terms, axis=-1, epsilon=norm.eps)

    def activate(self, x: str, name: str) -> str:
        """The activation of that name, as the encoder and the heads call it."""
        if name == "gelu":
            erf = self.op("Erf", self.op("Div", x, self.real(math.sqrt(2))))
            return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.real(1))), self.real(0.5))
        if name == "gelu_tanh":
            cube = self.op("Mul", self.op("Pow", x, self.real(3)), self.real(0.044715))
            inner = self.op("Mul", self.op("Add", x, cube), self.real(math.sqrt(2 / math.pi)))
            outer = self.op("Add", self.op("Tanh", inner), self.real(1))
            return self.op("Mul", self.op("Mul", x, outer), self.real(0.5))
        if name == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if name == "leaky_relu":
            return self.op("LeakyRelu", x, alpha=0.01)
        if name == "identity":
            return x
        return self.op({"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}[name], x)

    # --- matrices ----------------------------------------------------------------------------------------------------

    def _floats(self, name: str, weight: Tensor, *, exact: bool) -> str:
        """A matrix as float32, whether it lies in the file so or in half precision."""
        if exact or self.dtype != "float16":
            return self.keep(name, _array(weight))
        key = ("cast", name)
        if key not in self._known:
            self._known[key] = self.cast(self.keep(name, _half(name, weight)), "float32")
        return self._known[key]

    def _as_bytes(self, name: str, weight: Tensor, *, exact: bool, turned: bool) -> bool:
        """Keep a matrix as bytes and scales, if it is one that is kept so. turned: [in, out], as products want it."""
        if exact or self.dtype != "int8":
            return False
        if name + SCALE_SUFFIX in self.arrays:
            return True
        packed = pack_int8({name: weight})
        if name + SCALE_SUFFIX not in packed:
            return False  # too few rows to be worth it
        steps, scale = packed[name], _bare(packed[name + SCALE_SUFFIX])
        self.keep(name, _bare(steps.T if turned else steps))
        self.keep(name + SCALE_SUFFIX, scale if turned else scale[:, None])
        return True

    def _integer_product(self, x: str, name: str) -> str:
        if x not in self._quantized:
            steps, scale, zero = self.ops("DynamicQuantizeLinear", x, outputs=3)
            self._quantized[x] = (steps, scale, zero)
        steps, scale, zero = self._quantized[x]
        product = self.cast(self.op("MatMulInteger", steps, name, zero), "float32")
        return self.op("Mul", product, self.op("Mul", scale, name + SCALE_SUFFIX))


def _bare(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().contiguous().numpy()
    return array


def _array(tensor: Tensor) -> Array:
    return _bare(tensor.detach().float())


def _half(name: str, tensor: Tensor) -> Array:
    """In half precision, which ends at 65,504."""
    half = tensor.detach().to(torch.float16)
    if not torch.isfinite(half).all():
        raise ModelError(f"the weight {name!r} has values beyond what float16 holds (65,504): export it as float32")
    return _bare(half)
