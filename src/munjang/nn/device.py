"""Device, precision and CPU cores: what is chosen by default, and why."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path

import torch

from munjang.errors import InputError
from munjang.types import DTypeName

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def choose_device(name: str | torch.device | None) -> torch.device:
    """Return the named device, or the default: CUDA, then MPS, then the CPU.

    Raises:
        InputError: The name is not one of a device, or this machine has no such device.
    """
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda", _own_gpu())
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device must be like 'cpu', 'cuda' or 'cuda:0', got {name!r}") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise InputError(f"device {name!r} is not available: torch sees {count} CUDA devices on this machine")
        device = torch.device("cuda", _own_gpu() if device.index is None else device.index)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device {name!r} is not available: torch sees no MPS device on this machine")
    return device


def _own_gpu() -> int:
    """The GPU of this process: by LOCAL_RANK under torchrun and accelerate, otherwise the current one."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return rank if distributed and rank < torch.cuda.device_count() else torch.cuda.current_device()


def choose_dtype(name: DTypeName | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the named precision; 'auto' is float16 on CUDA, bfloat16 on CPUs that support it, float32 elsewhere.

    Raises:
        InputError: The name is unknown, or it is float16 on a CPU.
    """
    if isinstance(name, torch.dtype):
        name = str(name).removeprefix("torch.")  # type: ignore[assignment]
    if name == "auto":
        if device.type == "cuda":
            return torch.float16
        return torch.bfloat16 if device.type == "cpu" and cpu_has_bfloat16() else torch.float32
    if name not in _DTYPES:
        raise InputError(f"dtype must be 'auto', {', '.join(map(repr, _DTYPES))}, got {name!r}")
    if name == "float16" and device.type == "cpu":
        raise InputError("float16 is slow and imprecise on a CPU: use dtype='auto', 'bfloat16' or 'float32'")
    return _DTYPES[name]


@functools.cache
def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 natively (AVX512-BF16 or AMX); emulated, it is slower than float32."""
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None) or getattr(
        torch.cpu, "is_avx512_bf16_supported", None
    )
    amx = getattr(torch.cpu, "_is_amx_tile_supported", None) or getattr(torch.cpu, "is_amx_tile_supported", None)
    return bool((check and check()) or (amx and amx()))


@functools.cache
def cpu_cores() -> int:
    """Cores that this process may use: its affinity, and the container's quota (cgroup v2 or v1)."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS or Windows
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(cores, math.ceil(quota))) if quota else cores


def _cgroup_quota() -> float | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        base = Path("/sys/fs/cgroup/cpu")
        limit_v1 = int((base / "cpu.cfs_quota_us").read_text())
        return None if limit_v1 <= 0 else limit_v1 / int((base / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def explain(device: torch.device, dtype: torch.dtype, asked: str) -> str:
    """Why this device and this precision are used, for `munjang info`."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{cpu_cores()} cores"
    if asked != "auto":
        return f"{device} ({name}); {asked} as requested"
    if dtype == torch.float16:
        reason = "CUDA is fastest with it"
    elif dtype == torch.bfloat16:
        reason = "this CPU multiplies bfloat16 natively"
    elif device.type == "cuda":
        reason = "float16 cannot represent the model's weights"
    elif device.type == "mps":
        reason = "it is the default on MPS"
    else:
        reason = "this CPU does not multiply bfloat16 natively"
    return f"{device} ({name}); {str(dtype).removeprefix('torch.')} because {reason}"
