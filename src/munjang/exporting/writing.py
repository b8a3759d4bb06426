"""`export`: a model in memory to a folder that other programs read, verified before it takes its place.

    sentence-transformers   the folder that `save` writes, in float32 or float16
    onnx                    the same, and onnx/model.onnx: a graph with pooling and heads inside
    munjang                 the compact int8 folder, a quarter of the size, for Munjang alone

Everything is written aside, read again and compared with the model (`checking`); only then is it renamed into place, so
a failed or killed export leaves what was there before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from munjang.checkpoint.write import replace_model_folder
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.exporting.checking import check_folder, check_onnx
from munjang.exporting.graph import Graph
from munjang.exporting.onnx_file import require_onnx, write_graph
from munjang.exporting.options import ExportDType, Exported, ExportOptions
from munjang.exporting.outputs import bi_encoder_graph, cross_encoder_graph
from munjang.exporting.usage import onnx_usage
from munjang.files import read_object, write_json

Tell = Callable[[str], None]
GRAPH = "onnx/model.onnx"


def export(
    model: BiEncoder | CrossEncoder,
    folder: str | Path,
    options: ExportOptions | None = None,
    *,
    tell: Tell | None = None,
) -> Exported:
    """Write `model` to `folder` in the format that `options` ask for, and say how near to the model it is.

    tell: a function that takes a line on what is being done.
    """
    options = options or ExportOptions()
    target = Path(os.path.realpath(Path(folder).expanduser()))
    check_request(target, options)
    exact = _exact(model)
    say = tell or (lambda line: None)
    done: list[Exported] = []
    replace_model_folder(target, lambda aside: done.append(_fill(exact, aside, target, options, say)))
    return replace(done[0], folder=Path(folder))


def check_request(folder: str | Path, options: ExportOptions) -> None:
    """Raise what can be known before a model is loaded: a package is missing, something else lies in the folder."""
    target = Path(folder).expanduser()
    if options.format == "onnx":
        require_onnx()
    if target.is_file():
        raise InputError(f"a model is exported to a folder, but {target} is a file")
    if target.is_dir() and any(target.iterdir()) and not options.overwrite:
        raise InputError(f"{target} is there and not empty: choose another folder, or allow overwriting (--overwrite)")


def _exact(model: BiEncoder | CrossEncoder) -> BiEncoder | CrossEncoder:
    """The same weights, computing in float32 on the CPU: what an export is compared with."""
    if isinstance(model, BiEncoder):
        parts = replace(model.parts, truncate_dim=model.truncate_dim, thresholds=model.thresholds)
        return BiEncoder(parts, device="cpu", dtype="float32")
    return CrossEncoder(model.parts, device="cpu", dtype="float32")


def _fill(model: BiEncoder | CrossEncoder, aside: Path, target: Path, options: ExportOptions, tell: Tell) -> Exported:
    dtype = options.precision
    graph = _graph(model, dtype) if options.format == "onnx" else None
    # sentence-transformers reads no int8 weights: beside an int8 graph they lie in the smallest type that it reads.
    weights: ExportDType = "float16" if graph is not None and dtype == "int8" else dtype
    tell(f"writing weights ({weights}), tokenizer and settings")
    _save_into(model, aside, target.name, weights, options.card)
    if graph is not None:
        tell(f"writing {GRAPH} ({dtype})")
        _write_onnx(model, graph, aside, target, append=options.card is None)
        graph.arrays.clear()  # a copy of all weights, which the check has no use for
    tell("reading it again, and comparing it with the model")
    checks = [check_folder(model, aside, weights)]
    found = None if graph is None else check_onnx(model, aside, GRAPH, dtype)
    checks += [] if found is None else [found]
    missed = graph is not None and found is None
    files = {path.relative_to(aside).as_posix(): path.stat().st_size for path in aside.rglob("*") if path.is_file()}
    return Exported(
        folder=target,
        kind="bi-encoder" if isinstance(model, BiEncoder) else "cross-encoder",
        format=options.format,
        dtype=dtype,
        files=dict(sorted(files.items())),
        checks=tuple(checks),
        unchecked=(f"{GRAPH} was not run: onnxruntime is not installed (pip install onnxruntime)",) * missed,
        inputs=() if graph is None else graph.input_names,
        outputs=() if graph is None else tuple(value.name for value in graph.outputs),
    )


def _graph(model: BiEncoder | CrossEncoder, dtype: ExportDType) -> Graph:
    if isinstance(model, BiEncoder):
        return bi_encoder_graph(model.parts, dtype)
    return cross_encoder_graph(model.parts, dtype)


def _save_into(model: BiEncoder | CrossEncoder, folder: Path, name: str, dtype: ExportDType, card: str | None) -> None:
    """The model's own `save`; inside a folder of the final name, which the card that it writes speaks of."""
    inner = folder / ".saved" / name
    model.save(inner, dtype=dtype, card=card)
    for entry in list(inner.iterdir()):
        os.rename(entry, folder / entry.name)
    inner.rmdir()
    inner.parent.rmdir()


def _write_onnx(model: BiEncoder | CrossEncoder, graph: Graph, folder: Path, target: Path, *, append: bool) -> None:
    (folder / GRAPH).parent.mkdir()
    about = {
        "kind": "bi-encoder" if isinstance(model, BiEncoder) else "cross-encoder",
        "family": model.parts.body.config.family,
        "max_length": str(model.max_length),
        "dtype": graph.dtype,
    }
    write_graph(graph, folder / GRAPH, about=about)
    # Which inputs a tokenizer makes differs between releases of transformers unless it is written down.
    config = read_object(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", config | {"model_input_names": list(graph.input_names)})
    if append:
        code = onnx_usage(Path(target.name), graph.input_names, model)
        with open(folder / "README.md", "a", encoding="utf-8") as file:
            file.write(f"\nWith onnxruntime alone (`{GRAPH}`, {graph.dtype}):\n\n```python\n{code}```\n")
