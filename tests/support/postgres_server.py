"""A real PostgreSQL with pgvector (PyPI's pgserver) in a temporary folder, on a free port; it can be killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest


class PostgresServer:
    """Initialised once; started, stopped and killed as often as a test wants."""

    def __init__(self, folder: Path) -> None:
        import pgserver

        self.folder = folder
        self.port = _free_port()
        made = pgserver.get_server(folder, cleanup_mode=None)  # initdb, and another user where this one is root
        self._user = made.system_user
        self._binary = Path(pgserver.__file__).parent / "pginstall" / "bin" / "postgres"
        _end(psutil.Process(made.get_pid()), signal.SIGINT)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [str(self._binary), "-D", str(self.folder), "-h", "127.0.0.1", "-p", str(self.port)]
        command += ["-k", str(self.folder), "-c", "max_connections=60", "-c", "shared_buffers=32MB"]
        user: dict[str, Any] = {} if self._user is None else {"user": self._user}
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **user)
        until = time.monotonic() + 30
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError((self.folder / "server.log").read_text(errors="replace")[-500:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """As a power cut: all of its processes at once, with -9."""
        assert self._process is not None
        _end(psutil.Process(self._process.pid), signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
                return
            self.kill()

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} dbname=postgres user=postgres"

    def address(self, name: str, *, user: str = "postgres", **parameters: object) -> str:
        more = "".join(f"&{key}={value}" for key, value in parameters.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres?index={name}{more}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())


def _end(process: psutil.Process, sign: signal.Signals) -> None:
    family = [process, *process.children(recursive=True)]
    for one in family if sign == signal.SIGKILL else [process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(sign)
    psutil.wait_procs(family, timeout=20)


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server for a block; the test is skipped, with the reason, where it cannot start."""
    pytest.importorskip("pgserver", reason="PostgreSQL for tests is not installed: pip install pgserver")
    folder = Path(tempfile.mkdtemp(prefix="munjang-pg-"))
    os.chmod(folder, 0o755)
    try:
        try:
            server = PostgresServer(folder / "data")
        except (OSError, RuntimeError, subprocess.SubprocessError, psycopg.Error, AssertionError) as error:
            pytest.skip(f"PostgreSQL cannot start here: {error}")
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
