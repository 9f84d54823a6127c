"""One swap of the bundle behind a model, advanced by one look at a time from the supervise loop. Nothing here blocks.

    side-by-side  new files, Triton loads a second instance beside the serving one and moves over, then one generation
    drain         the backend itself lets its requests finish, closes its engine, makes the new one; then the new files

Whatever fails, the files name the bundle that serves when it is over. What it does to the server comes in as functions.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seekserve.output import os_error_text
from seekserve.server.heartbeat import Heartbeat
from seekserve.server.model_files import ModelFiles
from seekserve.server.orders import OrderResult, SwapOrder

__all__ = ["Answer", "ServerHands", "SwapRun"]

Answer = Callable[[], "str | None"]
"""A call that goes on in the background; returns "" while it does not know, None for success, else what went wrong."""
_Steps = Generator[None, None, OrderResult]
# Longer than an orderly unload takes; then as long as an engine may take to close.
_GRACE_S = 4.0
_RETIRE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHands:
    """What a swap may do to the running server."""

    load: Callable[[str, float], Answer]
    """(model, timeout in seconds): Triton's load API."""
    probe: Callable[[str], Answer]
    """(model): one generation."""
    beats: Callable[[], Sequence[Heartbeat]]
    run_dir: Path


class SwapRun:
    def __init__(self, order: SwapOrder, folder: Path, hands: ServerHands, *, now_s: float) -> None:
        """`folder`: the model's, in the repository."""
        self._order = order
        self._hands = hands
        self._files = ModelFiles(folder, order.files)
        self._order_file = hands.run_dir / f"swap-{order.model}.json"
        self._started_s = self._now_s = now_s
        self._is_changed = False
        self._is_proven = False
        self._failed_requests = 0
        self._steps = self._side_by_side() if order.how == "side-by-side" else self._drain()
        self.result = self._result("running", "begun")

    def advance(self, now_s: float) -> OrderResult:
        """Call until the result is final."""
        self._now_s = now_s
        try:
            next(self._steps)
        except StopIteration as end:
            self.result = end.value
            self._order_file.unlink(missing_ok=True)
        except OSError as error:
            self.result = self.abandon(os_error_text(error))
        return self.result

    def abandon(self, why: str) -> OrderResult:
        """The server is gone or going: whatever starts next serves the old bundle, unless the new one was proven."""
        self._steps.close()
        self._order_file.unlink(missing_ok=True)
        if self._is_proven:
            self.result = self._result("done", f"the new variant is in its place ({why})")
            return self.result
        text = f"{why}; the repository names the old variant"
        try:
            self._restore()
        except OSError as error:
            text = f"{why}; and the old files could not be put back ({os_error_text(error)}): render the model again"
        self.result = self._result("failed", text)
        return self.result

    def _side_by_side(self) -> _Steps:
        order, old_beats = self._order, self._beats()
        self._replace()
        self._say("the new variant loads beside the old one, which serves on")
        error = yield from self._wait(self._hands.load(order.model, order.load_timeout_s))
        if error is not None:
            self._restore()
            still = yield from self._wait(self._hands.probe(order.model))
            serves = "the old variant serves on" if still is None else f"and the old one does not answer ({still})"
            return self._result("failed", f"the new variant did not load ({error}); {serves}")
        self._say("loaded; a generation has to prove it")
        error = yield from self._wait(self._hands.probe(order.model))
        if error is None:
            self._is_proven = True
            yield from self._let_go({beat.pid for beat in old_beats if beat.bundle_dir is not None})
            return self._result("done", "the new variant serves; the old one has ended what it had begun")
        self._restore()
        self._say(f"the new variant cannot generate ({error}); the old one is loaded again")
        again = yield from self._wait(self._hands.load(order.model, order.load_timeout_s))
        back = "the old one serves again" if again is None else f"and the old one did not load either ({again})"
        return self._result("failed", f"the new variant loaded but cannot generate ({error}); {back}")

    def _let_go(self, pids: set[int]) -> Generator[None, None, None]:
        """Until the old instances are gone. Triton unloads them after their last request, except for streams that it
        never lets go of (24.10): an instance without open requests that stays is asked to give up its engine itself."""
        deadline_s, idle_since_s, asked_s = self._now_s + self._order.drain_timeout_s, math.inf, math.inf
        files = [self._hands.run_dir / f"retire-{pid}" for pid in pids]
        while beats := [beat for beat in self._beats() if beat.pid in pids]:
            open_count = sum(beat.open_requests or 0 for beat in beats)
            self._say(f"the new variant serves; the old one has {open_count} requests open")
            idle_since_s = math.inf if open_count else min(idle_since_s, self._now_s)
            if asked_s == math.inf and (self._now_s >= deadline_s or self._now_s >= idle_since_s + _GRACE_S):
                asked_s = self._now_s
                self._failed_requests = open_count
                for file in files:
                    file.touch()
            if self._now_s >= asked_s + _RETIRE_S:
                break
            yield
        for file in files:
            file.unlink(missing_ok=True)

    def _drain(self) -> _Steps:
        order = self._order
        pids = {beat.pid for beat in self._beats()}
        if not pids or any(beat.bundle_dir is None for beat in self._beats()):
            return self._result(
                "refused",
                "the installed backend does not know swaps: run `seekserve install-backend` again and relaunch, or use "
                "--how side-by-side",
            )
        problem = yield from self._all_to(order.bundle_dir, order.id, pids)
        if problem is None:
            self._say("the new variant is loaded; a generation has to prove it")
            error = yield from self._wait(self._hands.probe(order.model))
            problem = self._keep() if error is None else f"the new variant loaded but cannot generate ({error})"
        if problem is None:
            lost = "" if not self._failed_requests else f"; {self._failed_requests} requests ran out of time"
            return self._result("done", f"the new variant serves{lost}")
        # Whoever has the old variant already says so at once.
        back = yield from self._all_to(order.old_bundle_dir, f"{order.id}-back", pids)
        serves = "the old one serves again" if back is None else f"and the way back failed ({back})"
        return self._result("failed", f"{problem}; {serves}")

    def _all_to(self, bundle_dir: str, order_id: str, pids: set[int]) -> Generator[None, None, str | None]:
        """Tells every instance to serve `bundle_dir`, and waits for all; the first failure in words, or None."""
        self._tell_backend(bundle_dir, order_id)
        while True:
            beats = [beat for beat in self._beats() if beat.pid in pids]
            swaps = [beat.swap for beat in beats if beat.swap is not None and beat.swap.id == order_id]
            open_count = sum(beat.open_requests or 0 for beat in beats)
            going = [swap for swap in swaps if not swap.is_final]
            if len(swaps) == len(pids) and not going:
                self._failed_requests += sum(swap.failed_requests for swap in swaps)
                return next((swap.text for swap in swaps if swap.state != "done"), None)
            if going and order_id == self._order.id:
                doing = {swap.state for swap in going}
                self._say(f"{' and '.join(sorted(doing))}: {open_count} requests open")
            yield

    def _tell_backend(self, bundle_dir: str, order_id: str) -> None:
        order = self._order
        data = {
            "id": order_id,
            "bundle_dir": bundle_dir,
            "drain_timeout_s": order.drain_timeout_s,
            "load_timeout_s": order.load_timeout_s,
        }
        temporary = self._order_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(data), encoding="utf-8")
        temporary.replace(self._order_file)

    def _beats(self) -> list[Heartbeat]:
        return [beat for beat in self._hands.beats() if beat.model == self._order.model]

    def _wait(self, answer: Answer) -> Generator[None, None, str | None]:
        while (found := answer()) == "":
            yield
        return found

    def _keep(self) -> str | None:
        """The server serves it; a repository that cannot be written must not name another one for ever."""
        try:
            self._replace()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._restore()
            return f"the repository cannot be changed ({os_error_text(error)})"
        return None

    def _replace(self) -> None:
        self._is_changed = True
        self._files.put_new()

    def _restore(self) -> None:
        if self._is_changed:
            self._files.put_old()
            self._is_changed = False

    def _say(self, text: str) -> None:
        self.result = self._result("running", text)

    def _result(self, state: str, text: str) -> OrderResult:
        order = self._order
        return OrderResult(
            id=order.id,
            state=state,
            text=text,
            model=order.model,
            how=order.how,
            old_bundle_dir=order.old_bundle_dir,
            bundle_dir=order.bundle_dir,
            took_s=round(self._now_s - self._started_s, 3),
            failed_requests=self._failed_requests,
        )
