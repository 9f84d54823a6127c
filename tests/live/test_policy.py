"""A policy that changes under load: taken between two steps, nothing dropped; a bad one changes nothing."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from tests.live.conftest import Deployment, Server, run_cli

from seekserve.client import Client, GenerateRequest
from seekserve_backend.contract.policy import POLICY_FILE, Policy


def wait_for(server: Server, generation: float) -> None:
    deadline = time.monotonic() + 15
    while server.metric("seekserve_policy_generation", "synthetic") != generation:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_policies_of_other_kinds_take_over_while_streams_run(deployment: Deployment, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    run_cli("render", deployment.folder / "synthetic", "--out", repository)
    file = repository / "synthetic" / POLICY_FILE
    server = Server(deployment, repository=repository)
    ends: list[int] = []
    is_over = threading.Event()

    def ask() -> None:
        with Client(server.grpc, "synthetic") as client:
            while not is_over.is_set():
                ends.append(client.generate(GenerateRequest(prompt="again", max_tokens=50)).completion_tokens or 0)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    try:
        for thread in threads:
            thread.start()
        for generation, kind in enumerate(("fcfs", "seed", "paced"), start=1):
            file.write_text(Policy(name=kind, kind=kind).to_json(), encoding="utf-8")
            wait_for(server, generation)
            before = len(ends)
            deadline = time.monotonic() + 15
            while len(ends) < before + 12:
                assert time.monotonic() < deadline, f"nothing ends under {kind}"
                time.sleep(0.05)
            if kind == "paced":
                assert server.metric("seekserve_step_bias_ratio", "synthetic") > 0
            else:
                with pytest.raises(KeyError):  # a gate that has no such number does not show the last one's
                    server.metric("seekserve_step_bias_ratio", "synthetic")
        file.write_text(json.dumps({"schema_version": 2, "kind": "fastest"}), encoding="utf-8")
        time.sleep(2.5)
        assert server.metric("seekserve_policy_generation", "synthetic") == 3
    finally:
        is_over.set()
        for thread in threads:
            thread.join(30)
        code = server.stop()
    assert code == 0
    assert set(ends) == {50}
    assert "fastest" in server.log.read_text(), "the log says why the file is not taken"
