"""The gateway as a process in front of the real server, asked by the real `openai` client."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.conftest import TINY, Server
from tests.live.test_safety import settled_counts

from seekserve.data import task_file, tiny_checkpoint_folder

openai = pytest.importorskip("openai", reason="not installed: openai (the test extra, from Python 3.11)")

SUM = [{"role": "user", "content": "What is 37 + 48?"}]
RECITAL = json.loads(task_file("reciting").read_text(encoding="utf-8").splitlines()[0])


class GatewayProcess:
    """`seekserve gateway` as an operator starts it."""

    def __init__(self, server: Server, log: Path) -> None:
        self.log = log
        command = ("gateway", "--port", "0", "--backend", server.grpc, "--request-log", str(log))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seekserve", *command], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.said: list[str] = []
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.match(r"listening on (\S+)", line):
                self.url = found[1]
                break
        else:
            raise AssertionError("".join(self.said))
        self._reader = threading.Thread(target=self.said.extend, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def gateway(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    started = GatewayProcess(server, tmp_path_factory.mktemp("gateway") / "requests.jsonl")
    try:
        yield started
    finally:
        code = started.stop()
    assert code == 0, "".join(started.said)


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_the_models_of_the_launch_are_found_without_being_named(client: Any) -> None:
    assert {TINY, "synthetic"} <= {model.id for model in client.models.list()}


def test_a_chat_whole_and_streamed_is_the_same_text(client: Any) -> None:
    whole = client.chat.completions.create(model=TINY, messages=SUM, temperature=0)
    assert whole.choices[0].message.content == "37 + 48 = 85."
    assert whole.choices[0].finish_reason == "stop"
    stream = client.chat.completions.create(
        model=TINY, messages=RECITAL["messages"], stream=True, stream_options={"include_usage": True}, temperature=0
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == RECITAL["expected"]
    assert len(pieces) > 5
    assert chunks[-1].usage.completion_tokens > 5
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-2:] == [None, "stop"]


def test_the_limit_ends_an_answer_as_length_and_without_one_it_runs_to_its_end(client: Any) -> None:
    short = client.chat.completions.create(model=TINY, messages=RECITAL["messages"], max_completion_tokens=3)
    assert (short.choices[0].finish_reason, short.usage.completion_tokens) == ("length", 3)
    # Longer than the server's own default of 256 tokens: a chat gets the rest of the window.
    long = client.chat.completions.create(model="synthetic", messages=SUM, extra_body={"min_tokens": 600}, stop=None)
    assert long.usage.completion_tokens >= 600


def test_choices_seeds_stops_and_log_probabilities(client: Any) -> None:
    asked: dict[str, Any] = {"model": TINY, "prompt": "The", "max_tokens": 12, "temperature": 1.5, "seed": 5, "n": 3}
    first, second = (client.completions.create(**asked) for _ in range(2))
    assert [c.text for c in first.choices] == [c.text for c in second.choices]
    assert len({c.text for c in first.choices}) > 1
    counted = [{"role": "user", "content": "Count from 3 to 19."}]
    stopped = client.chat.completions.create(model=TINY, messages=counted, stop=["12, 13"])
    assert stopped.choices[0].message.content == "3, 4, 5, 6, 7, 8, 9, 10, 11, "


def test_errors_are_the_clients_own_classes(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match=TINY):
        client.chat.completions.create(model="gpt-none", messages=SUM)
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=TINY, messages=SUM, top_p=1.1)
    assert bad.value.param == "top_p"
    # What only the server can judge comes back under the name that the client knows.
    with pytest.raises(openai.BadRequestError) as large:
        client.completions.create(model=TINY, prompt="word " * 9000)
    assert large.value.code == "too_large"
    with pytest.raises(openai.BadRequestError) as guided:
        client.chat.completions.create(model=TINY, messages=SUM, response_format={"type": "json_object"})
    assert guided.value.param == "response_format"
    # The template of this checkpoint knows neither: refused by name, not left out in silence.
    function: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match=TINY) as tools:
        client.chat.completions.create(model=TINY, messages=SUM, tools=[function])
    assert tools.value.param == "tools"
    with pytest.raises(openai.BadRequestError) as unknown:
        client.chat.completions.create(model=TINY, messages=SUM, extra_body={"chat_template_kwargs": {"colour": "red"}})
    assert unknown.value.param == "chat_template_kwargs"
    with pytest.raises(openai.InternalServerError) as expired:
        # Reading a prompt of this length takes longer than that.
        client.completions.create(model=TINY, prompt="word " * 1500, extra_headers={"x-deadline-ms": "1"})
    assert (expired.value.status_code, expired.value.code) == (504, "expired")


def test_a_client_that_leaves_is_cancelled_at_the_server(server: Server, client: Any) -> None:
    before = settled_counts(server, "synthetic")
    for _ in range(3):
        with client.chat.completions.create(
            model="synthetic", messages=SUM, stream=True, extra_body={"min_tokens": 3900}
        ) as stream:
            next(iter(stream))
    after = settled_counts(server, "synthetic")
    assert after["cancelled"] + after["finished"] == before["cancelled"] + before["finished"] + 3
    assert after["cancelled"] > before["cancelled"]
    assert client.chat.completions.create(model=TINY, messages=SUM).choices[0].message.content == "37 + 48 = 85."


def test_a_stream_whose_connection_broke_goes_on_where_it_was(server: Server, gateway: GatewayProcess) -> None:
    body = {"model": TINY, "messages": RECITAL["messages"], "stream": True}
    path = f"{gateway.url}/v1/chat/completions"
    with httpx.Client(timeout=60, trust_env=False) as http:
        with http.stream("POST", path, json=body, headers={"x-resumable": "1"}) as broken:
            token = broken.headers["x-resume-token"]
            lines = broken.iter_lines()
            first = [next(lines) for _ in range(3 * 4)]  # id, data and an empty line for each
        before = settled_counts(server, TINY)
        position = next(line for line in reversed(first) if line.startswith("id: "))[4:]
        rest = http.post(path, json=body, headers={"x-resume-token": token, "last-event-id": position})
        assert text_of(first) + text_of(rest.text.splitlines()) == RECITAL["expected"]
        assert settled_counts(server, TINY)["cancelled"] == before["cancelled"]
        wrong = http.post(path, json=body, headers={"x-resume-token": token[:-1] + "~"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "x-resume-token")
    assert token.rsplit(".", 1)[1] not in gateway.log.read_text() + "".join(gateway.said)


def text_of(lines: list[str]) -> str:
    """Of the data lines of a stream."""
    pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces)


def test_the_request_log_has_a_line_for_each_request_and_no_prompt(client: Any, gateway: GatewayProcess) -> None:
    client.chat.completions.create(model=TINY, messages=SUM, extra_headers={"x-request-id": "the-last-one"})
    deadline = time.monotonic() + 20
    while "the-last-one" not in (text := gateway.log.read_text()):  # written when the answer is out already
        assert time.monotonic() < deadline
        time.sleep(0.05)
    line = next(each for each in map(json.loads, text.splitlines()) if each["request_id"] == "the-last-one")
    assert {"status": 200, "model": TINY, "finish_reason": "stop", "stream": False}.items() <= line.items()
    assert line["queue_ms"] >= 0
    assert "37 + 48" not in text


AIPERF = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seekserve" / "aiperf-0.13.0" / "bin" / "aiperf"
)


@pytest.mark.aiperf
@pytest.mark.skipif(not AIPERF.exists(), reason="not installed: AIPerf (scripts/ci_packages.sh installs it)")
def test_a_complete_aiperf_run_agrees_with_the_server_on_every_token(gateway: GatewayProcess, tmp_path: Path) -> None:
    """Its own count from the text and the usage that the gateway sends are the same number, within what was asked."""
    load = ("--concurrency", "4", "--request-count", "20", "--isl", "64", "--osl", "24", "--random-seed", "1")
    where = ("--url", gateway.url, "--model", TINY, "--endpoint-type", "chat", "--streaming")
    text = ("--tokenizer", str(tiny_checkpoint_folder()), "--ui", "none", "--artifact-dir", str(tmp_path))
    done = subprocess.run(
        [str(AIPERF), "profile", *where, *load, *text], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    report = json.loads((tmp_path / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    assert (report["request_count"]["avg"], report["request_error_rate"]["avg"]) == (20, 0)
    assert (report["error_summary"], report["was_cancelled"]) == ([], False)
    assert report["total_usage_completion_tokens"]["avg"] == report["output_sequence_length"]["sum"]
    # The model may end by itself before it has said all that was asked for.
    assert 20 * 12 < report["output_sequence_length"]["sum"] <= 20 * 24
    assert 0 < report["time_to_first_token"]["min"] < report["request_latency"]["max"]
