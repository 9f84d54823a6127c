"""What ranks other than 0 run: wait for the leader, stay while it lives, end with it."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from tensorrt_llm._double.launch import receive, rendezvous_file, send

__all__ = ["main"]

_WAIT_S = 60.0


def main() -> int:
    line = _connect()
    if line is None:
        print(f"no leader within {_WAIT_S:g} s at {rendezvous_file(os.environ)}", file=sys.stderr)
        return 1
    receive(line)  # nothing ever comes; the end of the line is the end of the leader
    return 0


def _connect() -> socket.socket | None:
    names = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID")
    rank = next((os.environ[name] for name in names if os.environ.get(name)), "0")
    path = rendezvous_file(os.environ)
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        try:
            leader = json.loads(path.read_text(encoding="utf-8"))
            host, _, port = leader["address"].rpartition(":")
            line = socket.create_connection((host, int(port)))
            send(line, {"role": "worker", "rank": rank, "key": leader["key"]})
        except (OSError, ValueError):
            time.sleep(0.1)
            continue
        return line
    return None


if __name__ == "__main__":
    sys.exit(main())
