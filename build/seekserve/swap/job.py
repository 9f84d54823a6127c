"""The `swap` job: everything is checked and decided here, then one order is written and its end waited for.

Nothing is changed by this process itself, so that killing it changes nothing: before the order there is nothing to
undo, after it the launch goes on alone.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.errors import ConflictError, InputError, SeekserveError, ServerError
from seekserve.output import problems_text
from seekserve.plan.bundle import open_bundle
from seekserve.server.orders import OrderResult, SwapOrder
from seekserve_backend.contract.bundle import Bundle

from .checks import Allowed, swap_problems
from .files import NewFiles, new_files
from .request import SwapRequest
from .target import Target, find_bundle, find_launch, find_model
from .way import Way, choose_way, needed_bytes

__all__ = ["SwapPlan", "order_swap", "plan_swap"]

_LOAD_TIMEOUT_S = 600.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapPlan:
    """A swap that nothing speaks against."""

    target: Target
    way: Way
    files: NewFiles
    drain_timeout_s: float
    load_timeout_s: float

    def lines(self) -> list[str]:
        target, old, new = self.target, self.target.old, self.target.new
        limits = (
            f"{old.limits.max_seq_len_tokens} -> {new.limits.max_seq_len_tokens} tokens per request, "
            f"{old.limits.max_batch_size} -> {new.limits.max_batch_size} requests at once, "
            f"{old.kv.capacity_tokens} -> {new.kv.capacity_tokens} KV tokens"
        )
        return [
            f"swap model {target.model.name} of launch {target.record.id}",
            f"  from     {target.old_dir} ({_words(old)})",
            f"  to       {target.new_dir} ({_words(new)})",
            f"  how      {self.way.how}: {self.way.why}",
            f"  limits   {limits}",
        ]

    def to_json(self) -> dict[str, Any]:
        target = self.target
        return {
            "launch": target.record.id,
            "model": target.model.name,
            "old_bundle_dir": str(target.old_dir),
            "bundle_dir": str(target.new_dir),
            "how": self.way.how,
            "why": self.way.why,
            "drain_timeout_s": self.drain_timeout_s,
            "load_timeout_s": self.load_timeout_s,
            "files": {str(target.model.folder / name): text for name, text in self.files.texts.items()},
        }


def plan_swap(request: SwapRequest, env: Mapping[str, str]) -> SwapPlan:
    """Looks, changes nothing. Raises InputError, or ConflictError with everything that speaks against the swap."""
    import psutil

    record = find_launch(request.repository, pid_file=request.pid_file, launch_id=request.launch_id, env=env)
    model = find_model(record, request.model)
    old_dir = model.bundle_dir
    assert old_dir is not None, "find_model has looked"
    old = open_bundle(old_dir)
    new_dir = find_bundle(request.to, old_dir, old)
    target = Target(record=record, model=model, old_dir=old_dir, old=old, new_dir=new_dir, new=open_bundle(new_dir))
    problems = swap_problems(target, Allowed(other_model=request.allow_other_model, shorter=request.force))
    files, way = None, None
    try:
        files = new_files(model, target.new, new_dir, gpus=request.gpus, force=request.force)
        way = choose_way(
            request.how,
            target.new,
            old_gpus=files.old_gpus,
            new_gpus=files.new_gpus,
            needed=lambda: needed_bytes(target.new, new_dir, instances=model.instances),
            available_bytes=psutil.virtual_memory().available,
        )
        if way.how == "drain" and files.new_gpus != files.old_gpus:
            problems.append(
                f"--gpus: an engine that drains stays on its GPUs ({way.why}); name other GPUs for all of it"
            )
    except (ConflictError, InputError) as error:
        problems.append(_sentence(error))
    if problems or files is None or way is None:
        raise ConflictError(problems_text(f"cannot swap model {model.name} to {new_dir}", problems))
    spec = target.new.trtllm
    return SwapPlan(
        target=target,
        way=way,
        files=files,
        drain_timeout_s=request.drain_timeout_s,
        load_timeout_s=_LOAD_TIMEOUT_S if spec is None else max(_LOAD_TIMEOUT_S, spec.start_timeout_s),
    )


def order_swap(plan: SwapPlan, say: Callable[[str], None]) -> OrderResult:
    """Orders it, tells how it goes, and returns the end. ServerError when the launch ends before."""
    target = plan.target
    run_dir = Path(target.record.run_dir)
    order = SwapOrder(
        id=secrets.token_hex(6),
        model=target.model.name,
        old_bundle_dir=str(target.old_dir),
        bundle_dir=str(target.new_dir),
        how=plan.way.how,
        files=plan.files.texts,
        drain_timeout_s=plan.drain_timeout_s,
        load_timeout_s=plan.load_timeout_s,
    )
    path = order.write(run_dir)
    said = ""
    while True:
        result = OrderResult.read(run_dir, order.id)
        if result is not None and result.is_final:
            return result
        if result is not None and result.text != said:
            said = result.text
            say(said)
        if not target.record.supervisor_is_alive():
            path.unlink(missing_ok=True)
            raise ServerError(
                f"launch {target.record.id} ended during the swap",
                hint=f"`seekserve check {target.record.repository}` says which bundle the repository names now",
            )
        time.sleep(_POLL_S)


def _words(bundle: Bundle) -> str:
    return f"{bundle.name}: {bundle.engine}, weights {bundle.weights_dtype}, KV {bundle.kv.dtype}"


def _sentence(error: SeekserveError) -> str:
    return error.message if error.hint is None else f"{error.message}; {error.hint}"
