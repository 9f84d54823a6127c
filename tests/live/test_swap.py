"""`seekserve swap` on the real server: two variants of the tiny checkpoint under a stream of requests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Deployment, Server, run_cli

from seekserve.client import Client, GenerateRequest
from seekserve.errors import Refused, SeekserveError
from seekserve.server.metrics import parse_metrics
from seekserve.server.record import LaunchRecord

MODEL = "swapped"
LONG_TOKENS = 400


@dataclass
class Stand:
    """One launch, two variants, and a third whose weights are broken."""

    server: Server
    folder: Path

    def bundle(self, variant: str) -> str:
        return str(self.folder / f"bundle-{variant}")

    def swap(self, variant: str, *options: str) -> tuple[int, dict[str, Any]]:
        command = ["swap", "--to", variant, "--pid-file", str(self.server.record), "--model", MODEL, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "seekserve", *command, *options], capture_output=True, text=True, timeout=120
        )
        return done.returncode, json.loads(done.stdout or "{}") | {"stderr": done.stderr}

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "seekserve", "status", "--pid-file", str(self.server.record), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return dict(json.loads(done.stdout))

    def served(self) -> list[str]:
        """Variants of all living instances, as the status tells them."""
        return [path.rpartition("-")[2] for path in self.status()["models"][0]["bundles"]]

    def wait_until_swapping(self) -> None:
        deadline = time.monotonic() + 30
        while "swap" not in self.status():
            assert time.monotonic() < deadline, self.server.report()

    def rendered(self) -> str:
        text = (self.folder / "repository" / MODEL / "config.pbtxt").read_text(encoding="utf-8")
        return next(name for name in ("fp8", "bf16", "broken") if f'"{self.bundle(name)}"' in text)


@dataclass
class Clients:
    """Threads that ask, and ask again after the time that a refusal names; nothing else may come back."""

    address: str
    answered: int = 0
    refused: list[int | None] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Clients:
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(3)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        with Client(self.address, MODEL) as client:
            while not self._stop.is_set():
                try:
                    client.generate(GenerateRequest(prompt=f"Count to {number}.", max_tokens=12, min_tokens=12))
                    self.answered += 1
                except Refused as error:
                    self.refused.append(error.retry_after_ms)
                    self._stop.wait((error.retry_after_ms or 0) / 1000)
                except SeekserveError as error:
                    self.lost.append(str(error))


@pytest.fixture(scope="module")
def stand(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    from seekserve.data import tiny_checkpoint_folder

    folder = tmp_path_factory.mktemp("swap")
    for variant, kv_dtype in (("fp8", "fp8_e4m3"), ("bf16", "bf16")):
        where = ("--out", folder / f"bundle-{variant}", "--variant", variant, "--kv-dtype", kv_dtype)
        run_cli("build-engine", tiny_checkpoint_folder(), "--engine", "reference", *where)
    shutil.copytree(folder / "bundle-fp8", folder / "bundle-broken")
    for weights in (folder / "bundle-broken" / "weights").glob("*.safetensors"):
        with weights.open("r+b") as file:
            file.write(b"\xff" * 8)  # the length of its header; the size stays right
    run_cli("render", folder / "bundle-fp8", "--out", folder / "repository", "--name", MODEL)
    started = Server(deployment, repository=folder / "repository")
    try:
        yield Stand(server=started, folder=folder)
    finally:
        code = started.stop()
    assert code == 0, started.report()


def test_side_by_side_nobody_is_refused_and_old_streams_end(stand: Stand) -> None:
    with Client(stand.server.grpc, MODEL) as client, Clients(stand.server.grpc) as clients:
        stream = client.stream(
            GenerateRequest(prompt="Count from 1 to 30.", max_tokens=LONG_TOKENS, min_tokens=LONG_TOKENS)
        )
        next(stream)
        code, result = stand.swap("bf16")
        for _ in stream:
            pass
        assert stream.completion.completion_tokens == LONG_TOKENS
    assert (code, result["state"], result["how"]) == (0, "done", "side-by-side"), result
    assert (clients.lost, clients.refused) == ([], [])
    assert clients.answered > 3
    assert stand.rendered() == "bf16"
    deadline = time.monotonic() + 20
    while stand.served() != ["bf16"]:
        assert time.monotonic() < deadline, stand.served()
        time.sleep(0.5)
    # The old process takes its numbers along.
    while len({s.labels["process"] for s in parse_metrics(stand.server.scrape()) if "process" in s.labels}) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.parametrize("how", ["side-by-side", "drain"])
def test_a_broken_variant_leaves_the_old_one_serving(stand: Stand, how: str) -> None:
    before = stand.rendered()
    with Clients(stand.server.grpc) as clients:
        code, result = stand.swap("broken", "--how", how)
    assert (code, result["state"]) == (4, "failed"), result
    assert "the old" in result["text"]
    assert clients.lost == []
    assert None not in clients.refused
    assert (stand.rendered(), stand.served()) == (before, [before])
    with Client(stand.server.grpc, MODEL) as client:
        assert client.generate(GenerateRequest(prompt="hi", max_tokens=3)).completion_tokens == 3


def test_drained_every_refusal_says_when_to_come_back_and_none_is_lost(stand: Stand) -> None:
    with Client(stand.server.grpc, MODEL) as client, Clients(stand.server.grpc) as clients:
        stream = client.stream(
            GenerateRequest(prompt="Count from 1 to 30.", max_tokens=LONG_TOKENS, min_tokens=LONG_TOKENS)
        )
        next(stream)
        done: list[tuple[int, dict[str, Any]]] = []
        swap = threading.Thread(target=lambda: done.append(stand.swap("fp8", "--how", "drain")))
        swap.start()
        for _ in stream:
            pass
        swap.join()
        assert stream.completion.completion_tokens == LONG_TOKENS
        before = clients.answered
        client.generate(GenerateRequest(prompt="hi", max_tokens=3))
    code, result = done[0]
    assert (code, result["state"], result["failed_requests"]) == (0, "done", 0), result
    assert clients.lost == []
    assert clients.refused
    assert all(hint is not None and hint > 0 for hint in clients.refused)
    assert clients.answered >= before
    assert (stand.rendered(), stand.served()) == ("fp8", ["fp8"])


def test_a_second_order_and_a_useless_one_are_refused(stand: Stand) -> None:
    code, result = stand.swap("fp8")
    assert code == 3
    assert "already" in result["stderr"]
    with Client(stand.server.grpc, MODEL) as client:
        stream = client.stream(GenerateRequest(prompt="Count.", max_tokens=LONG_TOKENS, min_tokens=LONG_TOKENS))
        next(stream)
        first: list[int] = []
        swap = threading.Thread(target=lambda: first.append(stand.swap("bf16", "--how", "drain")[0]))
        swap.start()
        stand.wait_until_swapping()
        code, result = stand.swap("bf16", "--how", "drain")
        assert (code, result["state"]) == (3, "refused"), result
        assert "under way" in result["text"]
        stream.close()
        swap.join()
    assert first == [0]
    assert (stand.rendered(), stand.served()) == ("bf16", ["bf16"])


def test_a_server_that_dies_in_the_middle_comes_back_with_the_old_variant(stand: Stand) -> None:
    done: list[tuple[int, dict[str, Any]]] = []
    swap = threading.Thread(target=lambda: done.append(stand.swap("fp8", "--how", "side-by-side")))
    swap.start()
    stand.wait_until_swapping()
    pid = LaunchRecord.read(stand.server.record).server_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    stand.server.wait_event("ready", 120)
    swap.join()
    code, result = done[0]
    assert (code, result["state"]) == (4, "failed"), result
    assert "failed during the swap" in result["text"]
    assert (stand.rendered(), stand.served()) == ("bf16", ["bf16"])
