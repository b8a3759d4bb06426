"""Weight files: safetensors (one file, shards, int8) and old pickles, which never run code.

Every weight is checked to be complete and finite. Tensors are copies, not views of the mapped file: rewriting the file
in place would otherwise change, or crash, a running process.

int8 files store a matrix as `NAME` (int8 [rows, ...], -127..127) and `NAME.scale` (float32 [rows], the value of one
step in that row). Vectors and matrices of few rows stay float32: they are small, and every value counts. A row's scale
has the least squared error among several clippings of its largest value: where a single value is extreme, it pays to
clip it and to resolve the rest more finely. A scale has 16 significant bits, so that 127 times it is exact in float32
and an unpacked matrix packs to the same bytes again.
"""

from __future__ import annotations

import contextlib
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from munjang.errors import ModelError
from munjang.files import list_contents, read_object

SAFETENSORS = "model.safetensors"
INT8 = "model.int8.safetensors"
PICKLE = "pytorch_model.bin"
SCALE_SUFFIX = ".scale"

_MAX_HEADER_BYTES = 16 << 20  # a tensor takes about 150
_LFS = b"version "
_FETCH = "fetch the model again"
_CONVERT = (
    "convert it where you trust it: safetensors.torch.save_file(torch.load('pytorch_model.bin'), 'model.safetensors')"
)

_STEPS = 127
_MIN_ROWS = 16  # matrices of fewer rows stay float32
_CLIPPINGS = (1.0, 0.98, 0.95, 0.92, 0.88, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4)  # fractions of a row's largest value
_BLOCK = 1 << 22  # values quantized at a time
_MIN_VALUE, _MAX_VALUE = 2.0**-100, 2.0**120  # smaller rows count as 0; larger values would overflow when unpacked
_DROPPED_BITS = 8  # of float32's 24


# --- files -----------------------------------------------------------------------------------------------------------


def weight_files(folder: Path) -> list[Path]:
    """The existing weight files of a folder: safetensors, else int8, else pickles."""
    for name in (SAFETENSORS, INT8, PICKLE):
        if (folder / name).is_file():
            return [folder / name]
        if name != INT8 and (folder / f"{name}.index.json").is_file():
            return _shards(folder, f"{name}.index.json")
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} holds an adapter, not a whole model: merge it into its base model first "
            "(peft: model.merge_and_unload().save_pretrained(...)) and load the result"
        )
    other = [path.name for path in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.bin"))]
    hint = f"; {', '.join(other)} is not a name that is read: rename it if it holds the weights" if other else ""
    raise ModelError(f"{folder} has no weights ({SAFETENSORS}, {INT8} or {PICKLE}); {list_contents(folder)}{hint}")


def _shards(folder: Path, index: str) -> list[Path]:
    table = read_object(folder / index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ModelError(f"{folder / index} has no 'weight_map': the file is damaged; {_FETCH}")
    names = sorted({str(name) for name in table.values()})
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ModelError(f"{folder / index} names files outside the folder: {', '.join(outside)}")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of the {len(names)} weight files that {index} names: "
            f"{', '.join(missing)}; {_FETCH}"
        )
    return [folder / name for name in names]


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read all weights of a folder, floating-point ones as float32.

    Raises:
        ModelError: A file is missing, damaged, unsafe or has values that are not finite.
    """
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        if path.suffix == ".bin":
            tensors = _load_pickle(path)
        else:
            with _checked_safetensors(path):
                tensors = safetensors.torch.load_file(path)
        if path.name == INT8:
            tensors = unpack_int8(tensors, source=str(path))
        weights.update({name: _finite_float32(name, tensor, path) for name, tensor in tensors.items()})
    return weights


def stored_shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of every weight of a folder, from the headers of its files (of pickles, from their tensors)."""
    shapes: dict[str, list[int]] = {}
    for path in weight_files(folder):
        if path.suffix == ".bin":
            shapes |= {name: list(tensor.shape) for name, tensor in _load_pickle(path).items()}
            continue
        with _checked_safetensors(path), safetensors.safe_open(path, framework="pt") as file:
            shapes |= {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dict)
    return shapes


def write_weights(folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write one safetensors file in the given type; int8 matrices as rows with scales."""
    if dtype == torch.int8:
        safetensors.torch.save_file(pack_int8(weights), folder / INT8, metadata={"format": "munjang-int8"})
        return
    tensors = {name: storable(tensor, dtype) for name, tensor in weights.items()}
    safetensors.torch.save_file(tensors, folder / SAFETENSORS, metadata={"format": "pt"})


def storable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy on the CPU that shares no storage with another tensor, which safetensors would refuse."""
    tensor = tensor.detach()
    if tensor.is_floating_point():
        tensor = tensor.to("cpu", dtype)
    shared = tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()
    return tensor.clone(memory_format=torch.contiguous_format) if shared else tensor.cpu().contiguous()


def _finite_float32(name: str, tensor: Tensor, path: Path) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    tensor = tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    # The sum needs no second copy of the tensor. It may overflow over finite values, so a bad sum is looked into.
    if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise ModelError(
            f"{path}: the weight {name!r} has {bad} values that are not finite (NaN or infinite) of "
            f"{tensor.numel()}: the model was saved from a broken training or is damaged"
        )
    return tensor


@contextlib.contextmanager
def _checked_safetensors(path: Path) -> Iterator[None]:
    """Refuse what is no safetensors file, and turn errors of the library into `ModelError`."""
    with path.open("rb") as file:
        start = file.read(9)
    # The file begins with the length of a JSON object, and the object.
    if len(start) < 9 or start[8:] != b"{" or int.from_bytes(start[:8], "little") > _MAX_HEADER_BYTES:
        if start[:2] == b"PK" or start[:1] == b"\x80":
            raise ModelError(
                f"{path} is a pickle under a safetensors name: that is unsafe and is not read; rename it to {PICKLE} "
                f"if you know where it comes from, or {_CONVERT}"
            )
        _refuse_lfs_pointer(path, start)
        raise ModelError(f"{path} is not a safetensors file, or damaged ({path.stat().st_size} bytes); {_FETCH}")
    try:
        yield
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is cut off or damaged ({error}); {_FETCH}") from error


def _refuse_lfs_pointer(path: Path, start: bytes) -> None:
    if start.startswith(_LFS):
        raise ModelError(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in that folder")


def _load_pickle(path: Path) -> dict[str, Tensor]:
    """Read an old checkpoint as far as torch does without running code."""
    size = path.stat().st_size
    if size < 8:
        raise ModelError(f"{path} has {size} bytes: it is cut off; {_FETCH}")
    with path.open("rb") as file:
        _refuse_lfs_pointer(path, file.read(8))
    zipped = zipfile.is_zipfile(path)  # the format of torch since 1.6; only these files can be mapped
    try:
        if zipped:
            with zipfile.ZipFile(path) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > size:  # torch stores without compression; compressed entries could grow a thousandfold
                raise ModelError(f"{path} is damaged: it unpacks to {unpacked:,} bytes; {_FETCH}")
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} is a pickle that torch refuses to read without running its code (weights_only): that is unsafe "
            f"and is not done; {_CONVERT}. torch says: {str(error).splitlines()[0]}"
        ) from error
    except (zipfile.BadZipFile, RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} is damaged or cut off ({str(error).partition(chr(10))[0]}); {_FETCH}") from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"{path} must hold named tensors, got {type(state).__name__}")
    # A view can repeat few stored values many times (a stride of 0). Weights may share storage, hence the factor.
    if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) > 8 * size:
        raise ModelError(f"{path} is damaged: its tensors are larger than the file; {_FETCH}")
    return {str(name): tensor for name, tensor in state.items()}


# --- modules that weights go into ------------------------------------------------------------------------------------


def assign_weights(module: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Put weights into a module; raise `ModelError` if one is missing or has another shape."""
    expected = module.state_dict()
    for name, tensor in expected.items():
        if name not in weights:
            raise ModelError(f"{folder} lacks the weight {name!r}; it has {', '.join(sorted(weights))}")
        if weights[name].shape != tensor.shape:
            raise ModelError(
                f"{folder}: the weight {name!r} has shape {list(weights[name].shape)}, but config.json asks for "
                f"{list(tensor.shape)}"
            )
    module.load_state_dict({name: weights[name] for name in expected}, assign=True)


# --- int8 ------------------------------------------------------------------------------------------------------------


def pack_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Quantize matrices to int8 rows with scales; keep everything else, as float32 where it is floating-point."""
    packed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if name.endswith(SCALE_SUFFIX) or weight.dtype == torch.int8:
            raise ModelError(f"the weight {name!r} ({weight.dtype}) cannot be told from packed ones: save as float32")
        tensor = weight.detach().to("cpu", torch.float32) if weight.is_floating_point() else weight.detach().cpu()
        if not weight.is_floating_point() or tensor.dim() < 2 or len(tensor) < _MIN_ROWS:
            packed[name] = tensor.clone(memory_format=torch.contiguous_format)
            continue
        rows = tensor.flatten(1)  # [rows, values]
        if rows.numel() and not bool(rows.abs().max() <= _MAX_VALUE):  # also catches NaN
            raise ModelError(
                f"the weight {name!r} has values that are not finite or above {_MAX_VALUE:.0e}: they cannot be saved "
                "as int8; the model comes from a broken training"
            )
        parts = [_quantize(block) for block in rows.split(max(1, _BLOCK // max(1, rows.shape[1])))]
        packed[name] = torch.cat([steps for steps, _ in parts]).reshape(tensor.shape)
        packed[name + SCALE_SUFFIX] = torch.cat([scale for _, scale in parts])
    return packed


def unpack_int8(packed: Mapping[str, Tensor], *, source: str = "the packed weights") -> dict[str, Tensor]:
    """Restore float32 weights from what `pack_int8` returned; `source` names the file in errors."""
    remedy = "the file is damaged; fetch the model again, or save it again from the original"
    weights: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE_SUFFIX) and tensor.dtype != torch.int8:
            if name.removesuffix(SCALE_SUFFIX) not in packed:
                raise ModelError(f"{source} has {name!r} without the matrix that it scales: {remedy}")
            continue
        if tensor.dtype != torch.int8:
            weights[name] = tensor
            continue
        scale = packed.get(name + SCALE_SUFFIX)
        if scale is None:
            raise ModelError(f"{source} lacks {name + SCALE_SUFFIX!r}, the scales of int8 matrix {name!r}: {remedy}")
        if tensor.dim() < 2 or scale.dtype != torch.float32 or scale.shape != tensor.shape[:1]:
            raise ModelError(
                f"{source}: {name!r} of shape {list(tensor.shape)} needs one float32 scale a row, but "
                f"{name + SCALE_SUFFIX!r} is {str(scale.dtype).removeprefix('torch.')} of shape {list(scale.shape)}: "
                f"{remedy}"
            )
        bad = ~(torch.isfinite(scale) & (scale > 0))
        if bad.any():
            raise ModelError(
                f"{source}: {int(bad.sum())} of the {len(scale)} scales in {name + SCALE_SUFFIX!r} are not above 0 and "
                f"finite, the first in row {int(bad.nonzero()[0])}: {remedy}"
            )
        weights[name] = tensor.float() * scale.reshape(-1, *[1] * (tensor.dim() - 1))
    return weights


def _quantize(rows: Tensor) -> tuple[Tensor, Tensor]:  # [rows, values] -> int8 [rows, values], float32 [rows]
    """Choose for every row the clipping with the least squared error; of equal ones, the one that clips least."""
    largest = rows.abs().amax(1) if rows.shape[1] else rows.new_zeros(len(rows))
    empty = largest < _MIN_VALUE
    best = torch.where(empty, torch.ones_like(largest), _round_up(largest / _STEPS))
    steps, least = _round_rows(rows, best)
    steps.masked_fill_(empty[:, None], 0)
    for fraction in _CLIPPINGS[1:]:
        scale = torch.where(empty, best, _round_up(largest * (fraction / _STEPS)))
        candidate, error = _round_rows(rows, scale)
        better = (error < least) & ~empty
        best, least = torch.where(better, scale, best), torch.where(better, error, least)
        steps = torch.where(better[:, None], candidate, steps)
    return steps.to(torch.int8), best


def _round_rows(rows: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The steps of every value, and the squared error of every row in float64."""
    steps = (rows / scale[:, None]).round_().clamp_(-_STEPS, _STEPS)
    return steps, (steps * scale[:, None]).sub_(rows).square_().sum(1, dtype=torch.float64)


def _round_up(scale: Tensor) -> Tensor:
    """Round up to 16 significant bits; up, so that the largest value is never clipped by rounding."""
    mask = (1 << _DROPPED_BITS) - 1
    return ((scale.contiguous().view(torch.int32) + mask) & ~mask).view(torch.float32)
