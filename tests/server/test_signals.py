from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from seekserve.server.signals import Interrupted, SignalGate


@pytest.fixture
def gate() -> Iterator[SignalGate]:
    gate = SignalGate()
    before = signal.getsignal(signal.SIGTERM)
    gate.install()
    yield gate
    gate.restore()
    assert signal.getsignal(signal.SIGTERM) is before


def _send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("gate")
def test_a_signal_is_an_interruption(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as caught:
        _send(number)
    assert caught.value.signal_name == number.name
    assert isinstance(caught.value, KeyboardInterrupt)


def test_inside_deferred_it_waits_for_the_end(gate: SignalGate) -> None:
    done = []
    with pytest.raises(Interrupted), gate.deferred():  # noqa: PT012 - the rest of the block must run
        _send(signal.SIGTERM)
        done.append("the rest of the block ran")
    assert done


def test_a_waiting_signal_is_seen_and_wins_over_an_error_of_the_block(gate: SignalGate) -> None:
    with pytest.raises(Interrupted), gate.deferred():  # noqa: PT012 - as above
        _send(signal.SIGTERM)
        assert gate.is_waiting
        raise ValueError("cut short because of the signal")


def test_nested_deferral_waits_for_the_outermost_end(gate: SignalGate) -> None:
    done = []
    with pytest.raises(Interrupted), gate.deferred():  # noqa: PT012 - as above
        with gate.deferred():
            _send(signal.SIGTERM)
        done.append("after the inner block")
    assert done


def test_only_the_first_signal_interrupts_and_all_are_counted(gate: SignalGate) -> None:
    with pytest.raises(Interrupted):
        _send(signal.SIGINT)
    _send(signal.SIGINT)
    _send(signal.SIGTERM)
    assert gate.received == 3


def test_while_stopping_signals_are_only_counted(gate: SignalGate) -> None:
    gate.stopping = True
    _send(signal.SIGTERM)
    with gate.deferred():
        _send(signal.SIGTERM)
    assert gate.received == 2


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gate = SignalGate()
    gate.install()
    try:
        _send(signal.SIGHUP)
        assert gate.received == 0
    finally:
        gate.restore()
        signal.signal(signal.SIGHUP, before)
