"""The leader beside rank 0, and how a proxy process and the workers find it: one TCP port of the loopback, one key.

The real package speaks ZMQ to the leader and MPI to the workers. Here a worker finds the leader by a file in a folder
that all ranks of one job share: DOUBLE_TRTLLM_RENDEZVOUS, else one in the temporary directory named after the job.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ADDRESS", "KEY", "WORLD", "Leader", "rendezvous_file"]

ADDRESS = "TLLM_SPAWN_PROXY_PROCESS_IPC_ADDR"
KEY = "TLLM_SPAWN_PROXY_PROCESS_IPC_HMAC_KEY"
WORLD = "tllm_mpi_size"
_CONNECT_S = 30.0


class Leader:
    """The proxy's line to the leader. `is_alive` turns false with the leader or with any worker."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._alive = True
        threading.Thread(target=self._listen, name="double-trtllm-leader", daemon=True).start()

    @classmethod
    def connect(cls, world: int) -> Leader:
        """Returns when all workers are there. Raises RuntimeError where the launch does not fit the model."""
        size = int(os.environ.get(WORLD, "0"))
        if size != world:
            raise RuntimeError(f"launched with {size} ranks, the model needs {world}")
        line = _dial(os.environ.get(ADDRESS, ""))
        send(line, {"role": "proxy", "key": os.environ.get(KEY, "")})
        answer = receive(line)
        if answer is None or not answer.get("ready"):
            raise RuntimeError(f"the leader node refused: {answer}")
        return cls(line)

    def is_alive(self) -> bool:
        return self._alive

    def _listen(self) -> None:
        while True:
            message = receive(self._line)
            if message is None or message.get("lost"):
                self._alive = False
                return


def rendezvous_file(environ: Mapping[str, str]) -> Path:
    folder = environ.get("DOUBLE_TRTLLM_RENDEZVOUS")
    if folder:
        return Path(folder) / "leader.json"
    names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID")
    job = next((environ[name] for name in names if environ.get(name)), "none")
    return (
        Path(tempfile.gettempdir()) / f"double-trtllm-{hashlib.sha256(job.encode()).hexdigest()[:16]}" / "leader.json"
    )


def send(line: socket.socket, message: Mapping[str, Any]) -> None:
    line.sendall(json.dumps(message).encode() + b"\n")


def receive(line: socket.socket) -> dict[str, Any] | None:
    """One message; None when the other side is gone."""
    data = b""
    try:
        while not data.endswith(b"\n"):
            part = line.recv(1)
            if not part:
                return None
            data += part
    except OSError:
        return None
    return dict(json.loads(data))


def _dial(address: str) -> socket.socket:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    end = time.monotonic() + _CONNECT_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=None)
        except (OSError, ValueError) as reason:
            if time.monotonic() > end or not port:
                raise RuntimeError(f"no leader node at {address!r}") from reason
            time.sleep(0.1)
