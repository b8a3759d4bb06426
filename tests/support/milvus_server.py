"""A real Milvus server for tests: the standalone one of PyPI's `milvus` package, in its own folder, on its own ports.

The package's own starter leaves two ports of the embedded etcd as they are by default, so that only one server could
run on a machine; here etcd gets a configuration of its own too.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

_SECONDS = 120.0  # to start
_STARTER = concurrent.futures.ThreadPoolExecutor(1)  # Linux ends a server with the thread that started it: see below


class CannotStart(Exception):
    """There is no server here, and why."""


class MilvusServer:
    """A server that can be killed and started again over the same data."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """settings: what Milvus reads from the environment, such as COMMON_SECURITY_AUTHORIZATIONENABLED."""
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._health = 0, 0
        self._prepare()

    def _prepare(self) -> None:
        try:
            import milvus
        except ImportError as error:
            raise CannotStart("the package milvus is not installed") from error
        config = milvus.MilvusServerConfig(data_dir=str(self._folder))
        names = [name for name in config.configurable_items if name.endswith("_port")]
        free = free_ports(len(names) + 3)
        config.update(**dict(zip(names, free, strict=False)))
        config.resolve()
        self.port = int(config.get("proxy_port"))
        self._health, client, peer = free[len(names) :]
        etcd = self._folder / "etcd.yaml"
        etcd.write_text(
            f"name: default\nlisten-client-urls: http://127.0.0.1:{client}\n"
            f"advertise-client-urls: http://127.0.0.1:{client}\nlisten-peer-urls: http://127.0.0.1:{peer}\n"
            f"initial-advertise-peer-urls: http://127.0.0.1:{peer}\n"
            f"initial-cluster: default=http://127.0.0.1:{peer}\n"
        )
        (self._folder / "bin").symlink_to(_binaries())
        self._environment = {
            **os.environ,
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self._health),
            "MILVUS_RUN_DIR": str(self._folder / "run"),
            "LD_LIBRARY_PATH": f"{self._folder / 'bin'}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "ETCD_CONFIG_PATH": str(etcd),
            "COMMON_SESSION_TTL": "5",  # seconds until a killed server's place is free again; 30 by default
            "PROXY_TIMETICKINTERVAL": "20",  # milliseconds that a strongly consistent read waits; 200 by default
            "QUERYCOORD_CHECKINTERVAL": "100",
            "QUERYCOORD_DISTPULLINTERVAL": "100",
            **self._settings,
        }

    def start(self) -> None:
        """Start, and wait until it is healthy."""
        process = self._process = _STARTER.submit(self._popen).result()
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise CannotStart(f"Milvus ended with {process.returncode}: {self._last_lines()}")
            if self._healthy():
                return
            time.sleep(0.2)
        self.kill()
        raise CannotStart(f"Milvus was not ready after {_SECONDS:.0f} s: {self._last_lines()}")

    def _popen(self) -> subprocess.Popen[bytes]:
        with (self._folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [str(self._folder / "bin" / "milvus"), "run", "standalone"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
            )

    def address(self, name: str, *, credentials: str = "", **parameters: object) -> str:
        """The address of an index; credentials: 'user:password@'."""
        query = "&".join(f"{key}={value}" for key, value in parameters.items())
        return f"milvus://{credentials}127.0.0.1:{self.port}/{name}{'?' if query else ''}{query}"

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/healthz", timeout=2) as answer:
                return b"OK" in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """Kill -9, as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()

    def _last_lines(self) -> str:
        text = (self._folder / "server.log").read_text(errors="replace")
        return " | ".join(text.splitlines()[-3:])[:400]


@contextlib.contextmanager
def milvus_server(**settings: str) -> Iterator[MilvusServer]:
    """A server for as long as the block lasts; the test is skipped where none can start."""
    folder = Path(tempfile.mkdtemp(prefix="milvus"))
    server = None
    try:
        try:
            server = MilvusServer(folder, **settings)
            server.start()
        except CannotStart as reason:
            pytest.skip(f"no Milvus: {reason}")
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _binaries() -> Path:
    """The server, unpacked once for all tests of a process."""
    import milvus

    folder = Path(tempfile.mkdtemp(prefix="milvus-bin"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    milvus._initialize_data_files(str(folder))
    return folder / "bin"


def _end_with_parent() -> None:
    """Have Linux kill the server where the tests are killed themselves."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
