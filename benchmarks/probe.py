"""One measurement in a process of its own: `python -m benchmarks.probe KIND ...` prints one line of JSON.

Only the standard library is imported before the clock runs, so that imports and memory are those of the side measured.
"""

from __future__ import annotations

import json
import sys
import time

TYPE_CHECKING = False  # typing itself takes a while to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def memory(field: str) -> float:
    """VmRSS (now) or VmHWM (the most so far) of this process in MB."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    import resource  # not Linux: only the high-water mark is to be had

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20) if sys.platform == "darwin" else most / 1024


def probe_import(name: str) -> dict[str, float]:
    """Wall and CPU seconds of one import, and the memory it adds."""
    before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    __import__(name)
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "added_mb": memory("VmRSS") - before,
    }


def probe_first(side: str, folder: str, device: str, dtype: str, started: str) -> dict[str, float]:
    """From the start of the process to one vector. `started` is the parent's clock when it started us."""
    vectors = _encoder(side, folder, device, dtype)(["문장 하나, one sentence."])
    wall = time.time() - float(started)
    if vectors.shape[0] != 1:
        raise RuntimeError(f"expected one vector, got {vectors.shape}")
    return {"wall_s": wall, "cpu_s": time.process_time(), "peak_mb": memory("VmHWM")}


def probe_memory(side: str, folder: str, device: str, dtype: str, corpus: str, count: str) -> dict[str, float]:
    """Peak memory while encoding, and what was held before it."""
    from benchmarks import corpora

    texts = corpora.texts(corpus, int(count))
    encode = _encoder(side, folder, device, dtype)
    encode(texts[:1])
    before = memory("VmRSS")
    encode(texts)
    found = {"loaded_mb": before, "peak_mb": memory("VmHWM")}
    if device.startswith("cuda"):
        import torch

        found["device_peak_mb"] = torch.cuda.max_memory_allocated() / (1 << 20)
    return found


def probe_stream(folder: str, device: str, dtype: str, count: str, target: str) -> dict[str, float]:
    """`encode_to` from a generator; the high-water mark at a quarter, at half and at the end."""
    import itertools
    import warnings

    import munjang
    from benchmarks import corpora

    warnings.simplefilter("ignore")
    total = int(count)
    model = munjang.load(folder, device=device, dtype=dtype)
    model.encode(["one"])
    marks = {"loaded_mb": memory("VmHWM")}

    def texts() -> Iterator[str]:
        for number, text in enumerate(itertools.islice(corpora.stream("short"), total)):
            if number == total // 4:
                marks["quarter_mb"] = memory("VmHWM")
            if number == total // 2:
                marks["half_mb"] = memory("VmHWM")
            yield text

    report = model.encode_to(texts(), target)
    if report.texts != total:
        raise RuntimeError(f"{total} texts went in, {report.texts} were written")
    return {**marks, "end_mb": memory("VmHWM"), "seconds": report.seconds, "dimension": model.dimension}


def _encoder(side: str, folder: str, device: str, dtype: str) -> Callable[[list[str]], Any]:
    """The side's encode, with nothing imported but what a user of it would import."""
    if side == "munjang":
        import munjang

        return munjang.load(folder, device=device, dtype=dtype).encode
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device=device).encode


PROBES = {"import": probe_import, "first": probe_first, "memory": probe_memory, "stream": probe_stream}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))  # type: ignore[operator]
