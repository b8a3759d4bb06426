"""What was measured on: processor, its matrix instructions, GPU, system, versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

# Instructions that decide which precision is quick.
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm")
PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")


def describe(device: str) -> dict[str, str]:
    """Name -> value, in the order to print."""
    import torch

    import munjang
    from munjang.nn.device import cpu_cores

    model, flags = _processor()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    found = {
        "date": datetime.date.today().isoformat(),
        "processor": f"{model}, {cpu_cores()} cores usable, torch uses {torch.get_num_threads()} threads",
        "instructions": " ".join(flag for flag in FLAGS if flag in flags) or "unknown",
        "memory": _memory(),
        "load before the run": f"{load:.1f}",
    }
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(torch.device(device))
        found["GPU"] = f"{properties.name}, {properties.total_memory / (1 << 30):.0f} GiB, CUDA {torch.version.cuda}"
    found["system"] = f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}"
    versions = [f"python {platform.python_version()}", f"munjang {munjang.__version__}"]
    found["versions"] = ", ".join(versions + [f"{name} {_version(name)}" for name in PACKAGES])
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _processor() -> tuple[str, set[str]]:
    """The model's name and its flags."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), set()
    fields = dict(map(_pair, lines))
    flags = fields.get("flags") or fields.get("Features") or ""
    return fields.get("model name") or platform.machine(), set(flags.split())


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return "unknown"
    return f"{pages * size / (1 << 30):.0f} GiB"
