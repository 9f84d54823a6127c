"""SIGTERM and SIGHUP end a command as Ctrl-C does: by an exception that cleans up on its way out.

Only the first one raises, so that a second cannot break off the cleaning. Commands with handlers of their own (launch)
set them inside and put these back. The exit code says which signal it was: 130, 143 or 129.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Terminated", "exit_code_of", "unwinding_signals"]

_WATCHED = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


def exit_code_of(error: BaseException | None) -> int:
    """128 and the number of the signal that is behind an interruption; SIGINT unless the exception names another."""
    return 128 + signal.Signals[getattr(error, "signal_name", signal.SIGINT.name)]


@contextlib.contextmanager
def unwinding_signals() -> Iterator[None]:
    """Of use in the main thread only. A signal that the caller ignores (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    has_raised = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal has_raised
        if os.getpid() != owner:  # a forked child: nothing of it has to be unwound
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not has_raised:
            has_raised = True
            raise Terminated(signal.Signals(number).name)

    before = {watched: signal.getsignal(watched) for watched in _WATCHED}
    changed = {watched: old for watched, old in before.items() if old is not signal.SIG_IGN}
    for watched in changed:
        signal.signal(watched, handle)
    try:
        yield
    finally:
        for watched, old in changed.items():
            # A launch that ends the process keeps its own handler to the end.
            if signal.getsignal(watched) is handle:
                signal.signal(watched, old)
