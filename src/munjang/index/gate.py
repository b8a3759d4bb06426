"""A lock with two ways in: many may search together, one alone may change what they search in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """Shared or exclusive; who wants it alone goes before those who come later to share it. Not re-entrant."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._sharing = 0
        self._alone = False
        self._waiting = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._alone and not self._waiting)
            self._sharing += 1
        try:
            yield
        finally:
            with self._change:
                self._sharing -= 1
                self._change.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._change:
            self._waiting += 1
            try:
                self._change.wait_for(lambda: not self._alone and not self._sharing)
                self._alone = True
            finally:
                self._waiting -= 1
                if not self._alone:
                    self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._alone = False
                self._change.notify_all()
