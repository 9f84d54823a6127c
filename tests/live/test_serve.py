"""`seekserve serve`: one command from a checkpoint to a server that answers, with its choices in one file."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seekserve.client import Client, GenerateRequest
from seekserve.data import tiny_checkpoint_folder


def test_serve_reads_its_choices_from_one_file_and_flags_win(tmp_path: Path) -> None:
    (tmp_path / "seekserve.yaml").write_text(
        f"checkpoint: {tiny_checkpoint_folder()}\n"
        "name: sums\n"
        "limits: {max_seq_len_tokens: 512, max_batch_size: 4}\n"
        "policy: {classes: {interactive: {priority: 0, max_queue_requests: 5, deadline_ms: 9000}}}\n"
        "server: {http_port: 0, grpc_port: 0, metrics_port: 0}\n",
        encoding="utf-8",
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "seekserve", "serve", "--max-batch-size", "2", "--gateway", "0"]
    serve = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert serve.stdout is not None
    try:
        text = ""
        for line in serve.stdout:
            text += line
            if line.startswith("  curl "):
                break
        else:
            pytest.fail(text)
        if shutil.which("curl"):  # the line that is shown works as it stands
            shown = subprocess.run([*shlex.split(line), "--noproxy", "*"], capture_output=True, text=True, check=True)
            assert json.loads(shown.stdout)["choices"][0]["message"]["content"] == "37 + 48 = 85."
        address = text.split("gRPC ")[1].split(",")[0]
        with Client(address, "sums") as client:
            request = GenerateRequest(messages=[{"role": "user", "content": "What is 1 + 2?"}])
            assert client.generate(request).text == "1 + 2 = 3."
    finally:
        serve.send_signal(signal.SIGTERM)
        text += serve.stdout.read()
        serve.stdout.close()
        code = serve.wait(60)
    assert code == 0, text
    bundle = json.loads(next((tmp_path / ".seekserve" / "bundles").glob("*/bundle.json")).read_text())
    assert bundle["limits"]["max_batch_size"] == 2
    assert bundle["limits"]["max_seq_len_tokens"] == 512
    assert bundle["sources"]["limits.max_batch_size"] == "flag --max-batch-size"
    policy = json.loads(next((tmp_path / ".seekserve" / "repository").rglob("policy.json")).read_text())
    assert policy["classes"]["interactive"]["max_queue_requests"] == 5
