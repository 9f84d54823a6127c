"""The watching thread cancels what fell silent, nothing else, and does not outlive its work."""

from __future__ import annotations

import threading
import time

import pytest

from seekserve.client.watch import IdleWatch, Watched

PATIENCE_S = 30.0


class Call:
    def __init__(self) -> None:
        self.is_cancelled = threading.Event()

    def cancel(self) -> None:
        self.is_cancelled.set()


def watched(watch: IdleWatch, after_s: float) -> Watched:
    out = Watched(Call(), time.perf_counter() + after_s)
    watch.watch(out)
    return out


def test_only_the_silent_call_is_cancelled() -> None:
    watch = IdleWatch()
    patient, silent = watched(watch, 60.0), watched(watch, 0.05)
    assert silent.call.is_cancelled.wait(PATIENCE_S)
    assert silent.is_expired
    assert not patient.is_expired
    watch.release(patient)
    watch.close()
    assert not patient.call.is_cancelled.is_set()


def test_a_deadline_that_moved_on_is_not_an_expiry() -> None:
    watch = IdleWatch()
    moved, marker = watched(watch, 0.05), watched(watch, 0.1)
    moved.expires_at_s += 60.0
    assert marker.call.is_cancelled.wait(PATIENCE_S)
    assert not moved.is_expired
    watch.close()


def test_a_deadline_that_was_shortened_wakes_the_thread() -> None:
    watch = IdleWatch()
    call = watched(watch, 600.0)
    watch.shorten(call, time.perf_counter() + 0.05)
    assert call.call.is_cancelled.wait(PATIENCE_S)
    watch.close()


def test_closing_cancels_what_is_left_ends_the_thread_and_may_be_repeated() -> None:
    watch = IdleWatch()
    left = watched(watch, 600.0)
    watch.close()
    watch.close()
    assert left.call.is_cancelled.is_set()
    assert not left.is_expired
    assert not [thread for thread in threading.enumerate() if thread.name == "seekserve-idle-watch"]
    with pytest.raises(RuntimeError, match="closed"):
        watch.watch(Watched(Call(), 0.0))


def test_releasing_what_is_not_watched_does_nothing() -> None:
    watch = IdleWatch()
    watch.release(Watched(Call(), 0.0))
    watch.close()
