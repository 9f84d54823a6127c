"""The current tritonserver of a launch and what surrounds it: run folder, backend directory, guardian, shared memory.

It starts, drains and ends; when to do so is the launch's decision. After `close` nothing of it is left.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from seekserve.errors import StartFailed
from seekserve.server import shm
from seekserve.server.backends import compose_backend_dir
from seekserve.server.command import ADMIN_HEADER
from seekserve.server.draining import DrainWatch
from seekserve.server.group import RankGroup
from seekserve.server.guardian import Guardian
from seekserve.server.heartbeat import is_running, read_heartbeats
from seekserve.server.httpget import get_ok
from seekserve.server.models import all_behind_ours
from seekserve.server.options import LaunchOptions
from seekserve.server.orders import ORDERS_FOLDER
from seekserve.server.preflight import Prepared
from seekserve.server.probe import generate_once
from seekserve.server.process import ServerProcess, describe_status
from seekserve.server.ready import ReadyCheck, wait_until_ready
from seekserve.server.signals import SignalGate
from seekserve.server.start_facts import start_facts
from seekserve.server.supervisor import ServerWatch, loading_trouble

__all__ = ["ServerRun"]

_STOP_AT_ONCE_S = 5.0
_EXIT_MARGIN_S = 5.0
# The ranks behind the serving one unload after it, one look a second.
_RANKS_MARGIN_S = 8.0
_CLEAN_S = 15.0


class ServerRun:
    """`close` must be called, whatever happens, also when the constructor's caller never got to `spawn`."""

    def __init__(
        self, prepared: Prepared, options: LaunchOptions, env: Mapping[str, str], log_file: Path, gate: SignalGate
    ) -> None:
        self._prepared = prepared
        self._options = options
        self._env = {**env, **prepared.plan.env}
        self._log_file = log_file
        self._gate = gate
        self._guardian = Guardian(prepared.command.shm_prefix, prepared.run_dir)
        self._process: ServerProcess | None = None
        self._watch: ServerWatch | None = None
        self.note: str | None = None
        """What was unusual about a stop that is clean all the same."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def prepare_folders(self) -> None:
        prepared = self._prepared
        prepared.run_dir.mkdir(mode=0o700)
        (prepared.run_dir / ORDERS_FOLDER).mkdir(mode=0o700)
        backend_dir = compose_backend_dir(self._options.backend_dir, prepared.server, prepared.run_dir / "backends")
        assert backend_dir == prepared.command.backend_dir
        for name, text in prepared.plan.files.items():
            script = prepared.run_dir / name
            script.touch(mode=0o700)  # it holds the launch's keys
            script.write_text(text, encoding="utf-8")

    def spawn(self) -> None:
        assert self._process is None, "the server before was not ended"
        plan = self._prepared.plan
        if plan.is_group:
            self._process = RankGroup(plan, self._env, self._log_file, self._prepared.run_dir)
        else:
            self._process = ServerProcess(plan.argv, self._env, self._log_file)
        self._guardian.watch(self._process.pid)

    def wait_ready(self) -> float:
        """Seconds until the first generation; StartFailed with the end of the log otherwise."""
        prepared = self._prepared
        check = ReadyCheck(
            http_url=prepared.http_url,
            models=prepared.models,
            admin={ADMIN_HEADER: prepared.command.admin_key},
            timeout_s=prepared.ready_timeout_s,
            poll_s=min(self._options.poll_s, 0.25),
        )
        try:
            ready_s = wait_until_ready(check, probe=self._probe, still_running=self._loading_trouble)
        except StartFailed as error:
            raise StartFailed(f"{error.message}{self._start_extract()}", hint=error.hint) from error
        self._running().note_members()
        self._watch = ServerWatch(
            process=self._running(),
            run_dir=prepared.run_dir,
            expected=[model.name for model in prepared.models if model.is_ours],
            options=self._options,
            ready_timeout_s=prepared.ready_timeout_s,
            is_live=lambda: get_ok(f"{prepared.http_url}/v2/health/live", timeout_s=1.0),
            now_s=time.monotonic(),
        )
        return ready_s

    def trouble(self) -> str | None:
        assert self._watch is not None, "wait_ready() comes first"
        return self._watch.trouble(time.monotonic())

    def drain(self, *, in_a_hurry: Callable[[], bool], has_failed: bool) -> str | None:
        """SIGTERM and patience; a sentence when that did not end well. `end` must follow.

        A server that never was ready, or has failed already, has nothing in flight that is worth waiting for.
        """
        if self._process is None:
            return None
        is_patient = self._watch is not None and not has_failed
        margin_s = _EXIT_MARGIN_S + (_RANKS_MARGIN_S if self._prepared.plan.is_group else 0.0)
        limit_s = self._options.exit_timeout_s + margin_s if is_patient else _STOP_AT_ONCE_S
        deadline_s = time.monotonic() + limit_s
        watch = DrainWatch(
            all_ours=all_behind_ours(self._prepared.models),
            at_sigterm=read_heartbeats(self._prepared.run_dir),
            is_running=is_running,
        )
        problem = None
        self._process.ask_to_stop()
        while (status := self._process.wait(0.05)) is None and problem is None:
            if in_a_hurry():
                problem = "killed on a second signal, requests in flight were lost"
            elif is_patient and watch.has_nothing_left(read_heartbeats(self._prepared.run_dir), time.monotonic()):
                self.note = (
                    "every request was answered, but tritonserver kept a stream that its client cancelled: ended it"
                )
                return None
            elif time.monotonic() > deadline_s:
                problem = f"tritonserver had to be killed {limit_s:g} s after SIGTERM{self.log_extract()}"
        if status is not None and status != 0:
            problem = f"tritonserver ended with {describe_status(status)}{self.log_extract()}"
        return problem if is_patient else None

    def end(self) -> None:
        """No process of the server is left afterwards, and none of its shared memory."""
        if self._process is None:
            return
        self._process.end()
        self._process = None
        self._watch = None
        shm.clean(self._prepared.command.shm_prefix)
        self._clean_other_nodes()
        for pattern in ("heartbeat-*", "rank-*", "swap-*", "retire-*"):
            for file in self._prepared.run_dir.glob(pattern):
                file.unlink(missing_ok=True)

    def _clean_other_nodes(self) -> None:
        """A node that does not answer is left with some files in memory, which must not hold up a restart."""
        argv = self._prepared.plan.clean_argv
        if not argv:
            return
        try:
            subprocess.run(argv, env=self._env, capture_output=True, timeout=_CLEAN_S, check=True)
        except (OSError, subprocess.SubprocessError):
            self.note = f"/dev/shm/{self._prepared.command.shm_prefix}* could not be removed on every node"

    def close(self) -> None:
        self.end()
        shutil.rmtree(self._prepared.run_dir, ignore_errors=True)
        self._guardian.dismiss()

    def log_extract(self) -> str:
        text = self._process.tail() if self._process is not None else ""
        return f"\nend of {self._log_file}:\n{text}" if text else ""

    def _start_extract(self) -> str:
        """Of ranks that wait for each other, none need say anything in its last twelve lines."""
        if isinstance(self._process, RankGroup):
            words = f"\nlast line of each rank:\n{self._process.last_words()}"
        else:
            words = ""
        facts = start_facts() if self._prepared.plan.world_size > 1 else []
        return words + "".join(f"\n{fact}" for fact in facts) + self.log_extract()

    def _running(self) -> ServerProcess:
        assert self._process is not None, "spawn() comes first"
        return self._process

    def _loading_trouble(self) -> str | None:
        return loading_trouble(self._running(), self._prepared.run_dir)

    def _probe(self, model: str, timeout_s: float) -> None:
        def ended() -> str | None:
            return "interrupted" if self._gate.is_waiting else self._loading_trouble()

        # An exception out of a signal handler can get lost inside gRPC; the probe looks for the signal itself.
        with self._gate.deferred():
            address, key = self._prepared.grpc_address, self._prepared.probe_key
            generate_once(address, model, key, timeout_s=timeout_s, ended=ended)
