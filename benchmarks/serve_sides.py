"""The services that are compared, each a process of its own that answers OpenAI's /v1/embeddings on loopback.

- `munjang`: ours.
- `plain`: what people write themselves: sentence-transformers behind one FastAPI handler, a request after the other.
- `infinity`: infinity-emb, run by the Python it is installed in (`--infinity-python`).

`python -m benchmarks.serve_sides NAME --model FOLDER --port N` is one such process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 180.0  # seconds until a service must answer


@dataclass(frozen=True)
class Service:
    """A service that runs."""

    name: str
    address: str
    process: subprocess.Popen[bytes]

    def memory(self) -> float:
        """MiB that it and its children hold now."""
        return float(sum(one.memory_info().rss for one in self._processes())) / 2**20

    def cpu(self) -> float:
        """Seconds of processor that it and its children have taken."""
        times = [one.cpu_times() for one in self._processes()]
        return float(sum(one.user + one.system for one in times))

    def _processes(self) -> list[Any]:
        import psutil

        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]


@contextlib.contextmanager
def started(
    name: str, model: Path, *, queue_tokens: int | None = None, infinity_python: str | None = None
) -> Iterator[Service]:
    """Start a service, wait until it answers, and end it."""
    port = _free_port()
    if name == "infinity":
        script = Path(infinity_python or sys.executable).parent / "infinity_emb"
        command = [str(script), "v2", "--model-id", str(model)]
        command += ["--served-model-name", "model", "--host", "127.0.0.1", "--port", str(port), "--url-prefix", "/v1"]
        command += ["--engine", "torch", "--device", "cpu", "--no-bettertransformer", "--no-model-warmup"]
    else:
        command = [sys.executable, "-m", "benchmarks.serve_sides", name, "--model", str(model), "--port", str(port)]
        command += [] if queue_tokens is None else ["--queue-tokens", str(queue_tokens)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    environment.setdefault("TOKENIZERS_PARALLELISM", "true")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    service = Service(name, f"http://127.0.0.1:{port}/v1", process)
    try:
        _wait(service)
        yield service
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(service: Service) -> None:
    body = json.dumps({"input": "ready?", "model": "model"}).encode()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if service.process.poll() is not None:
            said = service.process.stderr.read().decode(errors="replace") if service.process.stderr else ""
            raise RuntimeError(f"{service.name} ended with {service.process.returncode}: {said[-2000:]}")
        ask = urllib.request.Request(f"{service.address}/embeddings", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(ask, timeout=30):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"{service.name} did not answer within {PATIENCE:.0f} s")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Be one of the services."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("munjang", "plain"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--queue-tokens", type=int)
    options = parser.parse_args(arguments)
    import uvicorn

    app = _plain(options.model) if options.name == "plain" else _munjang(options.model, options.queue_tokens)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error")


def _munjang(model: Path, queue_tokens: int | None) -> Any:
    from munjang.serve import Limits, ServeSettings, create_app

    limits = Limits() if queue_tokens is None else Limits(queue_tokens=queue_tokens)
    return create_app(ServeSettings(models={"model": model}, limits=limits, page=False))


def _plain(model: Path) -> Any:
    """One handler, no batching across requests: what a tutorial shows."""
    import base64

    from fastapi import FastAPI
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(model), device="cpu")
    app = FastAPI()

    @app.post("/v1/embeddings")
    async def embeddings(body: dict[str, Any]) -> dict[str, Any]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        rows = loaded.encode(texts, show_progress_bar=False)
        data = [
            {"object": "embedding", "index": place, "embedding": base64.b64encode(row).decode()}
            for place, row in enumerate(rows)
        ]
        return {"object": "list", "data": data, "model": "model", "usage": {"prompt_tokens": 0, "total_tokens": 0}}

    return app


if __name__ == "__main__":
    main()
