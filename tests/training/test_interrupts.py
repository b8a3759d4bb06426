"""The first Ctrl-C asks, the second stops at once; afterwards signals mean what they meant before."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from munjang.training.interrupts import Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_and_the_second_stops(number: int) -> None:
    before = signal.getsignal(number)
    interrupts = Interrupts()
    with interrupts:
        assert not interrupts.asked
        os.kill(os.getpid(), number)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_outside_of_the_main_thread_it_leaves_signals_alone() -> None:
    found: list[object] = []

    def work() -> None:
        with Interrupts() as interrupts:
            found.append(signal.getsignal(signal.SIGINT))
            found.append(interrupts.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT), False]


def test_a_handler_that_python_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program around Python may have set one of its own: it is not there to be put back, and that is no error."""
    usual = signal.signal

    def foreign(number: int, handler: object) -> object:
        usual(number, handler)  # type: ignore[arg-type]
        return None

    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", foreign)
            with Interrupts():
                pass
        assert [signal.getsignal(number) for number in kept] == [signal.SIG_DFL] * 2
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
