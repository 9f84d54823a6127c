"""Stands in for the tritonserver binary: same flags, same health endpoints, one stub process that writes heartbeats.

Standard library only. What goes wrong, and when, is read from the JSON file that FAKE_PLAN names, at each start; under
mpirun or srun its table `ranks` says more about one rank.
Everything in here ends by itself after a minute, so that a failing test leaves nothing for long.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

END_S = 60.0


def flags() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        found.setdefault(name, []).append(value)
    return found


def stub(run_dir: Path, model: str, plan: dict, beat_s: float = 0.05) -> None:
    path = run_dir / f"heartbeat-{model}-{os.getpid()}.json"
    end_s = time.monotonic() + END_S
    while time.monotonic() < end_s:
        beat = {
            "model": model,
            "pid": os.getpid(),
            "time_s": time.time(),
            "engine_loop_age_s": plan.get("engine_age_s"),
        }
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(beat))
        temporary.replace(path)
        time.sleep(beat_s)
    os._exit(0)


class Handler(BaseHTTPRequestHandler):
    plan: ClassVar[dict] = {}
    models: ClassVar[list[str]] = []
    admin: ClassVar[tuple[str, str]] = ("", "")

    def answer(self, status: int, body: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.answer(200, self.plan.get("metrics", ""))
        elif self.path.startswith("/v2/models/"):
            self.answer(400 if "load_error" in self.plan else 200)
        else:
            self.answer(200)

    def do_POST(self) -> None:
        if self.headers.get(self.admin[0]) != self.admin[1]:
            return self.answer(403)
        state = "UNAVAILABLE" if "load_error" in self.plan else "READY"
        reason = self.plan.get("load_error", "")
        return self.answer(200, json.dumps([{"name": name, "state": state, "reason": reason} for name in self.models]))

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    plan = json.loads(Path(os.environ["FAKE_PLAN"]).read_text())
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("SLURM_PROCID", ""))
    plan |= plan.get("ranks", {}).get(rank, {})
    options = flags()
    print("fake server says hello", flush=True)
    if plan.get("exit_at_start") is not None:
        print("fake server cannot start", file=sys.stderr, flush=True)
        sys.exit(plan["exit_at_start"])
    stop = threading.Event()

    def on_term(_number: int, _frame: object) -> None:
        if not plan.get("ignores_sigterm"):
            stop.set()

    signal.signal(signal.SIGTERM, on_term)
    prefix = next(v for v in options["--backend-config"] if "shm-region-prefix-name" in v).rpartition("=")[2]
    Path(f"/dev/shm/{prefix}region").write_bytes(b"x")
    run_dir = Path(os.environ["SEEKSERVE_RUN_DIR"])
    stubs = []
    for model in options["--load-model"]:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            stub(run_dir, model, plan)
        stubs.append(pid)
    Handler.plan, Handler.models = plan, options["--load-model"]
    listens = options.get("--allow-http") != ["false"]
    if listens:
        header, _, key = options["--http-restricted-api"][0].partition(":")[2].partition("=")
        Handler.admin = (header, key)
    stop.wait(plan.get("load_s", 0.0))
    for flag in ("--http-port", "--metrics-port") if listens else ():
        server = ThreadingHTTPServer((options["--http-address"][0], int(options[flag][0])), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    stop.wait(END_S)
    time.sleep(plan.get("drain_s", 0.0))
    for pid in stubs:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    Path(f"/dev/shm/{prefix}region").unlink(missing_ok=True)
    print("fake server says goodbye", flush=True)
    os._exit(plan.get("exit_status", 0))


main()
