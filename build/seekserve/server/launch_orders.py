"""What a running launch does with the orders in its run folder: one at a time, and each gets an answer.

It is asked at every look of the supervise loop and never blocks it: calls to the server go on in threads that do
nothing else, and files are changed in the caller's thread alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from seekserve.output import os_error_text
from seekserve.server.command import ADMIN_HEADER
from seekserve.server.heartbeat import read_heartbeats
from seekserve.server.httpget import call
from seekserve.server.models import ServedModel, read_models
from seekserve.server.orders import OrderResult, SwapOrder, pending_orders
from seekserve.server.preflight import Prepared
from seekserve.server.probe import ProbeFailed, generate_once
from seekserve.server.swap_run import Answer, ServerHands, SwapRun
from seekserve_backend.contract.bundle import BUNDLE_FILE
from seekserve_backend.contract.fields import ContractError

__all__ = ["LaunchOrders", "in_background", "server_hands"]

_PROBE_S = 120.0
Tell = Callable[[str, str], None]
"""(kind of event, text)"""


class LaunchOrders:
    def __init__(self, prepared: Prepared, tell: Tell, *, hands: ServerHands | None = None) -> None:
        self._prepared = prepared
        self._tell = tell
        self._hands = hands or server_hands(prepared)
        self._run: SwapRun | None = None

    def look(self, now_s: float) -> None:
        for path in pending_orders(self._prepared.run_dir):
            refusal = self._take(path, now_s)
            if refusal is not None:
                self._write(OrderResult(id=path.stem, state="refused", text=refusal))
                self._tell("warning", f"order {path.stem} refused: {refusal}")
        if self._run is not None:
            before = self._run.result
            self._answer(before, self._run.advance(now_s))

    def interrupt(self, why: str) -> None:
        """Before the server is replaced or stopped."""
        if self._run is not None:
            self._answer(self._run.result, self._run.abandon(why))

    def _take(self, path: Path, now_s: float) -> str | None:
        """Begins the swap; or says why not."""
        try:
            order = SwapOrder.read(path)
            path.unlink()
            refusal = self._refusal(order)
            if refusal is not None:
                return refusal
            folder = self._prepared.command.repository / order.model
            self._run = SwapRun(order, folder, self._hands, now_s=now_s)
        except ContractError as error:
            path.unlink(missing_ok=True)
            return "; ".join(error.problems)
        except (OSError, UnicodeDecodeError) as error:
            return f"the order or the model's files cannot be read: {error}"
        self._write(self._run.result)
        self._tell("swapping", f"model {order.model}: {order.how} swap to {order.bundle_dir}")
        return None

    def _refusal(self, order: SwapOrder) -> str | None:
        if self._run is not None:
            busy = self._run.result
            return f"a swap of model {busy.model!r} to {busy.bundle_dir} is under way; wait for its end"
        if self._prepared.plan.is_group:
            return (
                f"the ranks of this launch ({self._prepared.plan.summary}) are separate servers, which cannot be "
                "swapped together; render the new variant, then stop and launch again"
            )
        model = self._served(order.model)
        if isinstance(model, str):
            return model
        if str(model.bundle_dir) != order.old_bundle_dir:
            return f"model {order.model!r} is rendered for {model.bundle_dir} by now, not for {order.old_bundle_dir}"
        if not (Path(order.bundle_dir) / BUNDLE_FILE).is_file():
            return f"{order.bundle_dir} holds no {BUNDLE_FILE}"
        return None

    def _served(self, name: str) -> ServedModel | str:
        """As its files say now, or why it cannot be swapped."""
        ours = [model.name for model in self._prepared.models if model.is_ours]
        if name not in ours:
            return f"this launch serves no model {name!r} of ours, but {', '.join(ours) or 'none'}"
        models, problems = read_models(self._prepared.command.repository, only=(name,))
        return models[0] if models else "; ".join(problems)

    def _answer(self, before: OrderResult, now: OrderResult) -> None:
        if now.is_final:
            self._run = None
        if now == before:
            return
        self._write(now)
        if now.is_final:
            self._tell("swapped" if now.state == "done" else "warning", f"model {now.model}: {now.text}")

    def _write(self, result: OrderResult) -> None:
        """A service that does well is worth more than an answer about it."""
        try:
            result.write(self._prepared.run_dir)
        except OSError as error:
            self._tell("warning", f"the answer to order {result.id} could not be written: {os_error_text(error)}")


def server_hands(prepared: Prepared) -> ServerHands:
    def load(model: str, timeout_s: float) -> Answer:
        return in_background(lambda: _load(prepared, model, timeout_s))

    def probe(model: str) -> Answer:
        return in_background(lambda: _probe(prepared, model))

    return ServerHands(
        load=load, probe=probe, beats=lambda: read_heartbeats(prepared.run_dir), run_dir=prepared.run_dir
    )


def in_background(act: Callable[[], str | None]) -> Answer:
    found: list[str | None] = []

    def run() -> None:
        try:
            found.append(act())
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")

    threading.Thread(target=run, name="seekserve-order", daemon=True).start()
    return lambda: found[0] if found else ""


def _load(prepared: Prepared, model: str, timeout_s: float) -> str | None:
    answer = call(
        f"{prepared.http_url}/v2/repository/models/{model}/load",
        method="POST",
        headers={ADMIN_HEADER: prepared.command.admin_key},
        timeout_s=timeout_s,
    )
    if answer is None:
        return f"no answer of Triton's load API within {timeout_s:g} s"
    status, body = answer
    return None if status == 200 else _reason(body) or f"HTTP status {status}"


def _reason(body: bytes) -> str:
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", errors="replace")
    # Triton adds the traceback of a stub, of which the last line says what it was.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:1] if len(lines) < 2 else [lines[0], "...", lines[-1]])[:600]


def _probe(prepared: Prepared, model: str) -> str | None:
    try:
        generate_once(prepared.grpc_address, model, prepared.probe_key, timeout_s=_PROBE_S, ended=lambda: None)
    except ProbeFailed as error:
        return str(error)
    return None
