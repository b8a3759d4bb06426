"""A service from its start to its end: settings in, a process that answers until it is told to leave.

    bind the port -> load in the background -> ready -> a signal -> stop accepting, finish what was accepted -> leave

The port is taken before models are loaded, so that a port in use is told at once. The first SIGTERM or SIGINT ends the
service in order, within `limits.drain_s`; the second ends it at once: what was acknowledged is on the disk either way.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from munjang.errors import DataError, MissingExtraError, TruncationWarning
from munjang.serve import logs
from munjang.serve.settings import ServeSettings

if TYPE_CHECKING:
    from munjang.serve.rooms import Rooms

_BACKLOG = 2048
_log = logging.getLogger(logs.LOGGER)


def run(settings: ServeSettings, *, on_ready: Callable[[str], None] | None = None, rooms: Rooms | None = None) -> None:
    """Serve until a signal comes. `on_ready` gets the address when everything is loaded.

    A model or an index that cannot be loaded ends the service with its error. rooms: models that are loaded already.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("uvicorn", "serve", "the service") from error
    from munjang.serve.app import create_app

    logs.configure(settings.log_format)
    warnings.simplefilter("ignore", TruncationWarning)  # the answers say it
    listening = bind(settings.host, settings.port)
    address = address_of(listening)
    app = create_app(settings, rooms=rooms)
    server = uvicorn.Server(_config(app, settings, uvicorn))
    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    app.state.on_failure = failed
    app.state.on_ready = None if on_ready is None else lambda: on_ready(address)
    _log.info("listening at %s", ", ".join([address, *machine_urls(settings.host, address)]))
    with contextlib.closing(listening), _signals(server):
        server.run(sockets=[listening])
    if failures:
        raise failures[0]
    _log.info("ended")
    if app.state.given_up and threading.current_thread() is threading.main_thread():
        sys.stderr.flush()
        os._exit(0)  # Python would wait for the threads that were given up


def _config(app: Any, settings: ServeSettings, uvicorn: Any) -> Any:
    return uvicorn.Config(
        app,
        http=_patient_protocol(settings.limits.body_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(settings.limits.drain_s)),
        h11_max_incomplete_event_size=64 << 10,
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; an error that says what to do where it cannot."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise DataError(f"there is no address {host!r} on this machine ({error}): choose another (--host)") from error
    family, kind, protocol, _, where = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # there it would let two programs have the same port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise DataError(
            f"port {port} of {host} cannot be used ({error.strerror or error}): choose another (--port N; 0 takes a "
            "free one)"
        ) from error
    return listening


def machine_urls(host: str, address: str) -> list[str]:
    """The URLs that other machines can open, where a service listens at all addresses of this one.

    Args:
        host: what the service listens at
        address: its URL on this machine, with the port
    """
    family = {"0.0.0.0": socket.AF_INET, "::": socket.AF_INET6}.get(host.strip("[]"))
    if family is None:
        return []
    found: list[str] = []
    with contextlib.suppress(OSError):  # the name of the machine may have no address
        found += [str(one[4][0]) for one in socket.getaddrinfo(socket.gethostname(), None, family)]
    # The address that packets to elsewhere leave from; connecting a UDP socket sends none.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1" if family == socket.AF_INET else "2001:db8::1", 9))
        found.append(str(probe.getsockname()[0]))
    port = address.rpartition(":")[2]
    others = [one for one in dict.fromkeys(found) if not ipaddress.ip_address(one.partition("%")[0]).is_loopback]
    return [f"http://[{one}]:{port}" if ":" in one else f"http://{one}:{port}" for one in others]


def address_of(listening: socket.socket) -> str:
    """The address as a person types it."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


@contextlib.contextmanager
def _signals(server: Any) -> Iterator[None]:
    """The first signal ends in order, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: Any) -> None:
        if server.should_exit:
            _log.warning("ended at once")
            sys.stderr.flush()
            os._exit(128 + number)
        _log.info("ending: what was accepted is finished; a second signal ends at once")
        server.should_exit = True

    numbers = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, handle) for number in numbers}
    server.install_signal_handlers = lambda: None
    server.capture_signals = contextlib.nullcontext  # uvicorn's own would take a second SIGTERM for the first
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _patient_protocol(seconds: float) -> type[Any]:
    """HTTP/1.1 as uvicorn speaks it, which hangs up on clients that take too long over their headers."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Patient(H11Protocol):  # type: ignore[misc]
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
                self._wait()
            elif self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def connection_lost(self, error: Exception | None) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
            super().connection_lost(error)

        def _wait(self) -> None:
            if self._waiting is None:
                self._waiting = self.loop.call_later(seconds, self._hang_up)

        def _hang_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Patient
