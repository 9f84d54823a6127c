"""A machine in a temporary folder: a fake tritonserver, a repository of one model, and a look at what a launch left."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.server import Event, Launch, LaunchOptions
from seekserve.server.cleanup import processes_of
from seekserve.server.heartbeat import read_heartbeats
from seekserve.server.shm import leftovers, prefix_of

FAKE = Path(__file__).with_name("fake_tritonserver.py")


@dataclass(frozen=True, kw_only=True)
class World:
    root: Path

    @classmethod
    def build(cls, root: Path, models: tuple[str, ...] = ("alpha",)) -> World:
        for name in models:
            (root / "repo" / name / "1").mkdir(parents=True)
            # Of another backend, so that readiness asks for no generation over gRPC.
            (root / "repo" / name / "config.pbtxt").write_text('backend: "other"\n')
        runtime = root / "backends" / "python"
        runtime.mkdir(parents=True)
        (runtime / "libtriton_python.so").touch()
        (runtime / "triton_python_backend_stub").touch()
        binary = root / "tritonserver"
        binary.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(FAKE))} "$@"\n')
        binary.chmod(0o755)
        world = cls(root=root)
        world.plan()
        return world

    def plan(self, **plan: object) -> None:
        """What the fake server does from its next start on."""
        (self.root / "plan.json").write_text(json.dumps(plan))

    @property
    def env(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.root / "state"), "FAKE_PLAN": str(self.root / "plan.json")}
        return {**os.environ, **own}

    def options(self, **changes: Any) -> LaunchOptions:
        values: dict[str, Any] = {
            "repository": self.root / "repo",
            "backend_dir": self.root / "backends",
            "tritonserver": self.root / "tritonserver",
            "http_port": 0,
            "grpc_port": 0,
            "metrics_port": 0,
            "ready_timeout_s": 20.0,
            "exit_timeout_s": 3,
            "poll_s": 0.05,
            "stall_timeout_s": 1.0,
        }
        return LaunchOptions(**{**values, **changes})

    def argv(self, *more: str) -> list[str]:
        """`seekserve launch` on this world, quick enough for a test."""
        root = self.root
        fixed = ["launch", str(root / "repo"), "--backend-dir", str(root / "backends")]
        fixed += ["--tritonserver", str(root / "tritonserver"), "--poll-s", "0.05", "--stall-timeout-s", "1"]
        fixed += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--ready-timeout-s", "20"]
        return [sys.executable, "-m", "seekserve", *fixed, "--exit-timeout-s", "3", *more]

    def left_behind(self, launch_id: str) -> list[str]:
        """Processes, shared memory and run folder of a launch; empty when it cleaned up."""
        run_dir = Path(tempfile.gettempdir()) / f"seekserve-{launch_id}"
        found = [f"process {pid}" for pid in processes_of(str(run_dir))]
        found += [str(path) for path in leftovers(prefix_of(launch_id))]
        return found + ([str(run_dir)] if run_dir.exists() else [])


class Scene:
    """A launch in a world, with everything it said."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.events: list[Event] = []
        self.launch = Launch(world.options(**changes), say=self.hear, env=world.env)
        self.world = world
        self.on: dict[str, Any] = {}

    def hear(self, event: Event) -> None:
        self.events.append(event)
        action = self.on.get(event.kind)
        if action is not None:
            action()

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def beats(self) -> list[Any]:
        return read_heartbeats(self.launch.prepared.run_dir)

    def left_behind(self) -> list[str]:
        return self.world.left_behind(self.launch.id)
