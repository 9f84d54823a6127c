"""A launch from start to stop: the object behind `launch`, `serve` and `demo`.

    with Launch(options, say=...) as launch:
        launch.start()          # preflight, then tritonserver
        launch.wait_ready()     # returns after a real generation
        launch.supervise()      # until a signal; restarts a dead or stuck server
        code = launch.stop()    # drains; 0 after a clean stop, else 4

Leaving the `with` block stops whatever was started, however it is left: afterwards no process, no shared memory and no
run folder of the launch exist. Signals arrive as `Interrupted`, a KeyboardInterrupt. Whoever leaves it without asking
`stop()` for the code gets a stop that was not clean as ServerError, unless an error of their own is under way.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from seekserve.errors import ServerError, StartFailed
from seekserve.output import os_error_text
from seekserve.server.cleanup import claim_record_path
from seekserve.server.events import Event, Say, silent
from seekserve.server.launch_orders import LaunchOrders
from seekserve.server.options import LaunchOptions, is_loopback
from seekserve.server.preflight import Prepared, new_launch_id, prepare
from seekserve.server.record import LaunchRecord, default_record_path, process_started_s
from seekserve.server.server_run import ServerRun
from seekserve.server.signals import Interrupted, SignalGate
from seekserve.server.supervisor import RestartBudget

__all__ = ["Launch"]


class Launch:
    def __init__(
        self,
        options: LaunchOptions,
        *,
        say: Say = silent,
        env: Mapping[str, str] | None = None,
        launch_id: str | None = None,
        keeps_failed_record: bool = False,
    ) -> None:
        """`keeps_failed_record`: leave the record, with the error in it, for whoever cannot see what is said."""
        self._options = options
        self._say = say
        self._env = dict(os.environ if env is None else env)
        self.id = launch_id or new_launch_id()
        state_path = default_record_path(self.id, self._env)
        self.record_path = (options.pid_file or state_path).absolute()
        self.log_file = (options.log_file or state_path.with_suffix(".log")).absolute()
        # Also in the state folder when the user names another place: clients look up models there by address.
        self._record_paths = tuple(str(path) for path in dict.fromkeys((state_path.absolute(), self.record_path)))
        self._keeps_failed_record = keeps_failed_record
        self._gate = SignalGate()
        self._restores_signals = True
        self._budget = RestartBudget(max_restarts=options.max_restarts, window_s=options.restart_window_s)
        self._prepared: Prepared | None = None
        self._run: ServerRun | None = None
        self._orders: LaunchOrders | None = None
        self._started_s = time.time()
        self._ready_s: float | None = None
        self.restarts = 0
        self._error: str | None = None
        self._exit_code: int | None = None

    def __enter__(self) -> Launch:
        self._gate.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ServerError):
            self._error = error.message
        is_known = self._exit_code is not None
        if self.stop() != 0 and not is_known and not isinstance(error, Exception):
            raise ServerError(
                "tritonserver did not stop cleanly", hint=f"the whole log is in {self.log_file}"
            ) from error

    @property
    def prepared(self) -> Prepared:
        assert self._prepared is not None, "start() comes first"
        return self._prepared

    @property
    def http_url(self) -> str:
        return self.prepared.http_url

    @property
    def grpc_address(self) -> str:
        """HOST:PORT"""
        return self.prepared.grpc_address

    @property
    def metrics_url(self) -> str:
        return self.prepared.metrics_url

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(model.name for model in self.prepared.models)

    def run(self, *, ends_process: bool = False) -> int:
        """The whole life in the foreground; the exit code. A signal is a wish, not a failure.

        `ends_process`: nothing follows, so signals stay harmless and a late one cannot spoil the exit code.
        """
        self._restores_signals = not ends_process
        with self:
            try:
                self.start()
                self.wait_ready()
                self.supervise()
            except Interrupted as interruption:
                self._tell("stopping", f"{interruption.signal_name} before it was ready: stopping")
            return self.stop()

    def start(self) -> None:
        """Raises InputError or ConflictError, with every problem in it, before anything is started."""
        with self._gate.deferred():  # numpy and gRPC are imported here, and do not bear an exception in the middle
            prepared = self._prepared = prepare(self._options, self._env, self.id)
        if not is_loopback(self._options.host):
            text = f"serving on {self._options.host}: whoever reaches the ports may send requests and read metrics"
            self._tell("warning", text)
        with self._gate.deferred():
            cleaned = claim_record_path(self.record_path)
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
            self._run = ServerRun(prepared, self._options, self._env, self.log_file, self._gate)
            self._run.prepare_folders()
            self._run.spawn()
            self._record("starting").write()
        if cleaned is not None:
            self._tell("warning", f"the launch before was not stopped cleanly: {cleaned}")
        binary = f"{prepared.server.binary} (found by {prepared.server.found_by}), log {self.log_file}"
        plan = f"plan {prepared.plan.summary}; " if prepared.plan.world_size > 1 else ""
        self._tell("starting", plan + binary)

    def wait_ready(self) -> float:
        """Seconds until the first generation; StartFailed with the end of the log otherwise."""
        names = ", ".join(self.models)
        limit = f", up to {self.prepared.ready_timeout_s:g} s" if self.prepared.plan.world_size > 1 else ""
        self._tell("loading", f"loading {names}{limit}")
        self._ready_s = self._running().wait_ready()
        if self.restarts:
            self._try_to_record("ready")
        else:
            self._record("ready").write()  # a launch that nobody could find or stop must not look started
        proof = ", first generation ok" if any(model.is_ours for model in self.prepared.models) else ""
        self._tell(
            "ready",
            f"ready: {names} in {self._ready_s:.1f} s{proof}; "
            f"gRPC {self.grpc_address}, HTTP {self.http_url}, metrics {self.metrics_url}",
            http_url=self.http_url,
            grpc_url=self.grpc_address,
            metrics_url=self.metrics_url,
            models=list(self.models),
            ready_s=self._ready_s,
            record=str(self.record_path),
        )
        return self._ready_s

    def trouble(self) -> str | None:
        """One look at the server: what is wrong with it, or None."""
        return self._running().trouble()

    def supervise(self) -> None:
        """Returns when a signal asks for the end; ServerError after too many restarts. Call it in the main thread."""
        orders = self._orders = LaunchOrders(self.prepared, self._tell)
        try:
            while True:
                time.sleep(self._options.poll_s)
                trouble = self.trouble()
                if trouble is None:
                    with self._gate.deferred():  # files and their answer belong together
                        orders.look(time.monotonic())
                else:
                    self.recover(trouble)
        except Interrupted as interruption:
            self._tell("stopping", f"{interruption.signal_name}: stopping, up to {self._options.exit_timeout_s} s")

    def recover(self, trouble: str) -> None:
        """Replaces the server by a new one, which is quicker and surer than reloading a model behind a dead stub."""
        run = self._running()
        while True:
            self._tell("trouble", trouble)
            if not self._budget.take(time.monotonic()):
                raise ServerError(
                    f"gave up: {trouble}; more than {self._options.max_restarts} restarts within "
                    f"{self._options.restart_window_s:g} s{run.log_extract()}",
                    hint=f"the whole log is in {self.log_file}",
                )
            with self._gate.deferred():
                self._interrupt_orders(f"the server failed during the swap ({trouble})")
                run.end()
                self.restarts += 1
                run.spawn()
                self._try_to_record("restarting")
            self._tell("restarting", self._restart_text())
            try:
                self.wait_ready()
                return
            except StartFailed as error:
                trouble = error.message.splitlines()[0]

    def _restart_text(self) -> str:
        what = "all ranks" if self.prepared.plan.is_group else "tritonserver"
        first = "" if self._ready_s is None else f"; the start before took {self._ready_s:.1f} s"
        limit_s = self.prepared.ready_timeout_s
        return f"restarting {what} (restart {self.restarts}), to be ready again within {limit_s:g} s{first}"

    def stop(self) -> int:
        """Drains and ends the server; 0 after a clean stop, 4 otherwise. A second signal: at once."""
        if self._exit_code is None:
            self._gate.stopping = True
            try:
                self._exit_code = 0 if self._stop() is None else ServerError.exit_code
            finally:
                if self._restores_signals:
                    self._gate.restore()
        return self._exit_code

    def _stop(self) -> str | None:
        run = self._run
        if run is None:
            return None
        self._try_to_record("stopping")
        self._interrupt_orders("the launch stopped during the swap")
        signals = self._gate.received
        problem = run.drain(in_a_hurry=lambda: self._gate.received > signals, has_failed=self._error is not None)
        has_failed, self._error = self._error is not None, self._error or problem
        run.end()
        self._close_record()
        run.close()
        if run.note is not None:
            self._tell("warning", run.note)
        if self._error is None:
            self._tell("stopped", "stopped cleanly")
        elif not has_failed:
            self._tell("failed", f"not a clean stop: {problem}")
        return self._error

    def _close_record(self) -> None:
        if self._error is not None and self._keeps_failed_record:
            self._try_to_record("failed")
        else:
            self._tolerate(self._record("stopped").remove)
        if self._error is None and self.restarts == 0 and self._options.log_file is None:
            self._tolerate(lambda: self.log_file.unlink(missing_ok=True))

    def _interrupt_orders(self, why: str) -> None:
        if self._orders is not None:
            self._orders.interrupt(why)

    def _running(self) -> ServerRun:
        assert self._run is not None, "start() comes first"
        return self._run

    def _try_to_record(self, state: str) -> None:
        self._tolerate(self._record(state).write)

    def _tolerate(self, act: Callable[[], None]) -> None:
        """A running server, or its orderly stop, is worth more than a file that cannot be written any more."""
        try:
            act()
        except OSError as error:
            self._tell("warning", f"the launch record or the log could not be changed: {os_error_text(error)}")

    def _record(self, state: str) -> LaunchRecord:
        prepared, server_pid = self.prepared, self._running().pid
        return LaunchRecord(
            id=self.id,
            paths=self._record_paths,
            state=state,
            pid=os.getpid(),
            pid_started_s=process_started_s(os.getpid()) or 0.0,
            server_pid=server_pid,
            server_started_s=None if server_pid is None else process_started_s(server_pid),
            repository=str(prepared.command.repository),
            models=self.models,
            http_url=prepared.http_url,
            grpc_url=prepared.grpc_address,
            metrics_url=prepared.metrics_url,
            shm_prefix=prepared.command.shm_prefix,
            run_dir=str(prepared.run_dir),
            log_file=str(self.log_file),
            exit_timeout_s=self._options.exit_timeout_s,
            restarts=self.restarts,
            started_s=self._started_s,
            ready_s=self._ready_s,
            error=self._error,
            plan=prepared.plan.summary,
            world_size=prepared.plan.world_size,
        )

    def _tell(self, kind: str, text: str, **data: object) -> None:
        # A closed terminal or pipe must not break off a stop, nor end a service that does well.
        with contextlib.suppress(OSError):
            self._say(Event(kind=kind, text=text, data={"id": self.id, "restarts": self.restarts, **data}))
