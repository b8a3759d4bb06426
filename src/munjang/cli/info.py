"""`munjang info`: what a model is; or, without one, what this computer offers and which models are bundled."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from munjang import bundled
from munjang.cli.options import add_loading, load_named, model_name
from munjang.cli.progress import Reporter
from munjang.errors import MunjangError
from munjang.report.tables import pad, width

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.cross_encoder import CrossEncoder

_PACKAGES = ("munjang", "torch", "numpy", "tokenizers", "safetensors", "huggingface_hub")
_EXTRAS = {
    "parquet": ("pyarrow",),
    "hf": ("transformers", "sentencepiece", "google.protobuf"),
    "train": ("accelerate",),
    "lora": ("peft",),
    "search": ("faiss",),
    "onnx": ("onnx",),
}
_SHORT = 30  # characters; lists of short words stand on one line
_EXAMPLES = """\
examples:
  munjang info                        versions, devices, cores, installed extras, bundled models
  munjang info munjang-ko-en          the bundled bi-encoder, with its thresholds
  munjang info ./my-model             layers, dimension, pooling, prompts, files, warnings
  munjang info ./my-cross-encoder     head, labels, activation
  munjang info ./my-model --json | jq .dimension
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "info",
        parents=[common],
        help="what a model is, what this computer offers",
        description="Describe a model as it loads here; without one, this computer and the bundled models.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="bundled name, folder or hub id")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_loading(parser.add_argument_group("loading"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Describe and print."""
    del reporter  # everything here is the result
    found = _described(_load(args)) if args.model else environment() | {"bundled models": bundled_models()}
    print(json.dumps(found, ensure_ascii=False, indent=2, default=str) if args.json else pretty(found))


def _load(args: argparse.Namespace) -> BiEncoder | CrossEncoder:
    """The model as what it was saved as: a cross-encoder where it is one."""
    import munjang
    from munjang.checkpoint import is_cross, resolve
    from munjang.errors import ModelNotFoundError

    try:
        folder = resolve(model_name(args.model), revision=args.revision, local_files_only=args.local_files_only)
    except ModelNotFoundError:
        return load_named(args, args.model)  # a name of the loader's own, or an error that says more
    if not is_cross(folder):
        return load_named(args, args.model)
    model = munjang.load_cross_encoder(folder, device=args.device, dtype=args.dtype, max_length=args.max_length)
    if args.threads is not None:
        model.threads = args.threads
    return model


def _described(model: BiEncoder | CrossEncoder) -> dict[str, object]:
    found = model.describe()
    source = found.get("source")
    if "files" not in found and isinstance(source, (str, Path)):
        folder = bundled.path(source) if source in bundled.NAMES else Path(source)
        if folder.is_dir():
            found["files"] = {path.relative_to(folder).as_posix(): path.stat().st_size for path in _files(folder)}
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def bundled_models() -> dict[str, object]:
    """The models of this installation: size on disk, width or outputs, thresholds."""
    return {name: _bundled_model(name) for name in bundled.NAMES}


def _bundled_model(name: str) -> dict[str, object] | str:
    """One of them; of one that cannot be read, why."""
    try:
        return _bundled_facts(name, bundled.path(name))
    except MunjangError as error:
        return f"cannot be used: {error}"


def _bundled_facts(name: str, folder: Path) -> dict[str, object]:
    import munjang
    from munjang.checkpoint import is_cross

    size = sum(path.stat().st_size for path in _files(folder))
    load = munjang.load_cross_encoder if is_cross(folder) else munjang.load
    model = load(name, device="cpu", dtype="float32")  # shares the weights that were read: nothing is copied
    kept = ("dimension", "labels", "parameters", "max length", "thresholds")
    told = {key: value for key, value in model.describe().items() if key in kept}
    return {"kind": "cross-encoder" if is_cross(folder) else "bi-encoder", "size": f"{size / 1e6:.1f} MB"} | told


def environment() -> dict[str, object]:
    """Versions, devices, cores and extras of this computer."""
    import torch

    from munjang.nn.device import cpu_cores, cpu_has_bfloat16

    cuda = {
        f"cuda:{number}": torch.cuda.get_device_name(number)
        for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    }
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "system": platform.platform(),
        "devices": {"cpu": platform.processor() or platform.machine(), **cuda},
        "cpu": {
            "capability": torch.backends.cpu.get_cpu_capability(),
            "native bfloat16": cpu_has_bfloat16(),
            "cores of the machine": os.cpu_count(),
            "cores usable here": cpu_cores(),
            "threads of torch": torch.get_num_threads(),
        },
        "extras": {name: _extra(packages) for name, packages in _EXTRAS.items()},
        "model by default": os.environ.get("MUNJANG_MODEL") or bundled.BI_ENCODER,
    }


def pretty(found: Mapping[str, object], indent: str = "") -> str:
    """Names and values, aligned; what holds more than one value is set in below its name."""
    lines: list[str] = []
    across = max((width(str(name)) for name, value in found.items() if not _is_nested(value)), default=0)
    for name, value in found.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}", pretty(value, indent + "  ")]
        elif isinstance(value, (list, tuple)) and _is_nested(value):
            lines += [f"{indent}{name}", *(_item(item, indent + "  ") for item in value)]
        else:
            lines.append(f"{indent}{pad(str(name), across)}  {_scalar(value)}".rstrip())
    return "\n".join(lines)


def _item(item: object, indent: str) -> str:
    if not isinstance(item, Mapping):
        return f"{indent}- {_scalar(item)}"
    return f"{indent}- " + ", ".join(f"{name}: {_scalar(value)}" for name, value in item.items())


def _is_nested(value: object) -> bool:
    """Whether a value takes lines of its own."""
    if isinstance(value, Mapping):
        return bool(value)
    if not isinstance(value, (list, tuple)):
        return False
    return any(isinstance(item, Mapping) or (isinstance(item, str) and len(item) > _SHORT) for item in value)


def _scalar(value: object) -> str:
    if value is None or value == () or value == [] or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_scalar(item) for item in value)
    return str(value)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _extra(packages: tuple[str, ...]) -> str:
    missing = [name for name in packages if not _is_there(name)]
    return "installed" if not missing else f"not installed ({', '.join(missing)} missing)"


def _is_there(package: str) -> bool:
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package above it is missing
        return False
