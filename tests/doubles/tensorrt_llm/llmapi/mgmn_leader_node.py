"""The leader beside rank 0's command: gathers the workers, answers the command's LLM, tells it when a worker is lost.

`--action stop` ends it; so does a signal. The command's own end does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

from tensorrt_llm._double.launch import ADDRESS, KEY, WORLD, receive, rendezvous_file, send

__all__ = ["main"]


class _Leader:
    def __init__(self, world: int, key: str) -> None:
        self._workers_due = world - 1
        self._key = key
        self._workers: set[int] = set()
        self._proxies: list[socket.socket] = []
        self._changed = threading.Condition()
        self.is_over = threading.Event()

    def serve(self, door: socket.socket) -> None:
        while True:
            line, _ = door.accept()
            threading.Thread(target=self._greet, args=(line,), daemon=True).start()

    def _greet(self, line: socket.socket) -> None:
        hello = receive(line)
        if hello is None or hello.get("key") != self._key:
            line.close()
        elif hello["role"] == "stop":
            self.is_over.set()
        elif hello["role"] == "worker":
            self._hold_worker(line, int(hello["rank"]))
        else:
            self._answer_proxy(line)

    def _hold_worker(self, line: socket.socket, rank: int) -> None:
        with self._changed:
            self._workers.add(rank)
            self._changed.notify_all()
        receive(line)  # returns when the worker is gone
        with self._changed:
            self._workers.discard(rank)
            for proxy in self._proxies:
                with contextlib.suppress(OSError):  # a proxy that has ended need not know
                    send(proxy, {"lost": rank})

    def _answer_proxy(self, line: socket.socket) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._workers) >= self._workers_due)
            self._proxies.append(line)
            send(line, {"ready": True})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--action", choices=("start", "stop"), default="start")
    action = parser.parse_args().action
    host, _, port = os.environ[ADDRESS].removeprefix("tcp://").rpartition(":")
    key = os.environ[KEY]
    if action == "stop":
        with socket.create_connection((host, int(port))) as line:
            send(line, {"role": "stop", "key": key})
            time.sleep(0.1)
        return
    leader = _Leader(int(os.environ[WORLD]), key)
    door = socket.create_server((host, int(port)))
    path = rendezvous_file(os.environ)
    _announce(path, f"{host}:{port}", key)
    threading.Thread(target=leader.serve, args=(door,), daemon=True).start()
    try:
        leader.is_over.wait()
    finally:
        path.unlink(missing_ok=True)


def _announce(path: Path, address: str, key: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps({"address": address, "key": key}), encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    main()
