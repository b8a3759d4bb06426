"""Where and in which precision to compute, and with how many threads; and why, in words, for `munjang info`."""

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
    """The named device, checked; without a name the GPU where there is one."""
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
            raise InputError(f"device {name!r} was asked for, but torch sees {count} CUDA devices here")
        device = torch.device("cuda", _own_gpu() if device.index is None else device.index)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device {name!r} was asked for, but torch has no MPS device here")
    return device


def _own_gpu() -> int:
    """Of several processes of a run each has its own GPU, as torchrun and accelerate number them; else the current."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return rank if several and rank < torch.cuda.device_count() else torch.cuda.current_device()


def choose_dtype(name: DTypeName | torch.dtype, device: torch.device) -> torch.dtype:
    """float16 on CUDA, bfloat16 on CPUs that compute with it, float32 elsewhere; a given name is obeyed."""
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
    """Whether this CPU multiplies bfloat16 natively (AVX512-BF16 or AMX); emulated it would be slower than float32."""
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None) or getattr(
        torch.cpu, "is_avx512_bf16_supported", None
    )
    amx = getattr(torch.cpu, "_is_amx_tile_supported", None) or getattr(torch.cpu, "is_amx_tile_supported", None)
    return bool((check and check()) or (amx and amx()))


@functools.cache
def cpu_cores() -> int:
    """Cores this process may really use: its affinity, and the container's quota (cgroup v2 or v1)."""
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
    """Why this device and this precision, in words."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{cpu_cores()} cores"
    if asked != "auto":
        return f"{device} ({name}); {asked} was asked for"
    reason = {
        torch.float16: "CUDA computes fastest in it",
        torch.bfloat16: "this CPU multiplies bfloat16 natively",
        torch.float32: "this CPU does not multiply bfloat16 natively",
    }[dtype]
    return f"{device} ({name}); {str(dtype).removeprefix('torch.')} because {reason}"
