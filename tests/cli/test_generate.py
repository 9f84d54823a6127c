"""`seekserve generate` as a user sees it: exit code and both streams, against a scripted server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from fake_server import PATIENCE_S, Call, Running, Script, chunk, error

ANSWER = (
    chunk("8", final=False, tokens=1, queue_ms=0.25),
    chunk("5 🙂", final=True, finish="stop", tokens=3, prompt_tokens=9, queue_ms=0.25),
)


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    running.triton.script = says(*ANSWER)
    yield running
    running.drop()


def says(*responses: Any) -> Script:
    return lambda _call: iter(responses)


def start(tmp_path: Path, *args: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", "from seekserve.cli import main; main()", "generate", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), **environment},
    )


def run(tmp_path: Path, *args: str, stdin: bytes = b"", **environment: str) -> tuple[int, str, str]:
    process = start(tmp_path, *args, **environment)
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out.decode(), err.decode()


def sent(server: Running) -> dict[str, Any]:
    return {name: raw[4:] if kind == "BYTES" else raw for name, (kind, _, raw) in server.last.inputs().items()}


def test_the_text_goes_to_stdout_and_the_figures_to_stderr(server: Running, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "What is 37 + 48?", "--url", server.url)
    assert (code, out) == (0, "85 🙂\n")
    assert err.startswith("prompt 9 tokens | completion 3 tokens | TTFT ")
    assert err.endswith(" tokens/s | queue 0.2 ms | finish stop\n")
    assert err.count("\n") == 1
    assert json.loads(sent(server)["messages"]) == [{"role": "user", "content": "What is 37 + 48?"}]


def test_text_is_utf8_whatever_the_terminal_declares(server: Running, tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "x", "--url", server.url, PYTHONIOENCODING="latin-1")
    assert (code, out) == (0, "85 🙂\n")


def test_json_is_one_object_and_nothing_else(server: Running, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "x", "--url", server.url, "--json")
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert (result["model"], result["text"], result["finish_reason"]) == ("m", "85 🙂", "stop")
    assert (result["prompt_tokens"], result["completion_tokens"], result["queue_ms"]) == (9, 3, 0.25)
    assert 0 < result["ttft_ms"] <= result["e2e_ms"]


def test_every_option_reaches_its_tensor(server: Running, tmp_path: Path) -> None:
    options = (
        "--raw --max-tokens 5 --temperature 0.5 --top-k 3 --top-p 0.5 --seed 7 --stop a --stop b "
        "--class batch --tenant t --deadline-ms 900 --no-stream"
    )
    code, _, _ = run(tmp_path, "-", "--url", server.url, "--model", "other", *options.split(), stdin="é\n".encode())
    assert code == 0
    tensors = sent(server)
    assert server.last.request.model_name == "other"
    assert tensors.pop("text_input") == "é\n".encode()
    assert tensors.pop("stop_words") == b"a\x01\x00\x00\x00b"
    assert tensors.pop("stream") == b"\x00"
    assert (tensors.pop("request_class"), tensors.pop("tenant")) == (b"batch", b"t")
    assert sorted(tensors) == ["deadline_ms", "max_tokens", "seed", "temperature", "top_k", "top_p"]


def test_standard_input_as_a_chat_message_loses_the_shells_newline_only(server: Running, tmp_path: Path) -> None:
    run(tmp_path, "-", "--url", server.url, "--system", "Be brief.", stdin=b" a \n\n")
    assert json.loads(sent(server)["messages"]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " a \n"},
    ]


def line(code: str, retry: int | None = None) -> str:
    return json.dumps(
        {"code": code, "reason": "30 of 30 waiting", "retry_after_ms": retry, "request_id": "r"}, separators=(",", ":")
    )


FAILURES = [
    ("overloaded", [error(line("overloaded", 250))], 4, "", ["overloaded", "30 of 30 waiting", "try again in 250 ms"]),
    ("never", [error(line("not_serving"))], 4, "", ["not_serving", "cannot help"]),
    ("invalid", [error(line("invalid"))], 2, "", ["does not accept"]),
    ("in the middle", [chunk("half"), error(line("failed"))], 4, "half\n", ["failed"]),
    ("silence", [], 4, "", ["without any response"]),
]


@pytest.mark.parametrize(("name", "responses", "code", "out", "says_so"), FAILURES, ids=[f[0] for f in FAILURES])
def test_a_failure_is_a_sentence_and_an_exit_code_and_keeps_the_text(
    server: Running, tmp_path: Path, name: str, responses: list[Any], code: int, out: str, says_so: list[str]
) -> None:
    del name
    server.triton.script = says(*responses)
    got_code, got_out, err = run(tmp_path, "x", "--url", server.url)
    assert (got_code, got_out) == (code, out)
    assert err.startswith("error: ")
    assert "Traceback" not in err
    for part in says_so:
        assert part in err


BAD_INPUT = [
    (["x", "--url", "http://127.0.0.1:8000"], "gRPC"),
    (["x", "--url", "nowhere"], "host:port"),
    (["x", "--raw", "--system", "s"], "--system"),
    (["x", "--raw", "--thinking"], "--thinking"),
    (["x", "--messages", "m.json"], "exactly one of PROMPT and --messages is needed, got both"),
    (["--messages", "/nowhere/m.json"], "--messages /nowhere/m.json: No such file"),
    (["--messages", "/nowhere/m.json", "--system", "s"], "--system"),
    (["--messages", "-"], "--messages -: not JSON (line 1, column 1"),
    (["x", "--tools", "-"], "--tools -: not JSON"),
    (["x", "--seed", "-1"], "seed"),
    (["x", "--max-tokens", "many"], "--max-tokens"),
    (["x", "--timeout-s", "0"], "--timeout-s"),
    ([], "PROMPT"),
]


@pytest.mark.parametrize(("args", "says_so"), BAD_INPUT, ids=[" ".join(b[0]) for b in BAD_INPUT])
def test_bad_input_exits_2_before_anything_is_sent(
    server: Running, tmp_path: Path, args: list[str], says_so: str
) -> None:
    url = [] if "--url" in args else ["--url", server.url]
    code, out, err = run(tmp_path, *args, *url)
    assert (code, out) == (2, "")
    assert says_so in err
    assert not server.triton.calls


def test_input_that_is_not_utf8_exits_2_with_the_place(server: Running, tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "-", "--url", server.url, stdin=b"ab\xff")
    assert code == 2
    assert "byte 2 of 3" in err


def test_an_unreachable_server_exits_4_with_its_address_and_one_report(server: Running, tmp_path: Path) -> None:
    server.drop()
    code, out, err = run(tmp_path, "x", "--model", "m", "--url", server.url)
    assert (code, out) == (4, "")
    assert server.url in err
    assert err.count("\n") == 2  # the sentence and the hint


def test_a_server_that_goes_away_in_the_middle_exits_4_with_the_text_kept(server: Running, tmp_path: Path) -> None:
    def dies(call: Call) -> Iterator[Any]:
        yield chunk("half", tokens=1)
        server.drop()
        call.hang()

    server.triton.script = dies
    code, out, err = run(tmp_path, "x", "--url", server.url)
    assert (code, out) == (4, "half\n")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_broken_connection_does_not_show_in_the_output(server: Running, tmp_path: Path) -> None:
    def breaks(call: Call) -> Iterator[Any]:
        if "resume_token" in call.inputs():
            yield chunk("5 🙂", final=True, finish="stop", tokens=3, prompt_tokens=9)
            return
        yield chunk("8", token="t0k")
        call.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    server.triton.script = breaks
    assert run(tmp_path, "x", "--url", server.url, "--reconnects", "1")[:2] == (0, "85 🙂\n")


def test_a_silent_server_is_given_up_after_the_timeout(server: Running, tmp_path: Path) -> None:
    def silent(call: Call) -> Iterator[Any]:
        yield chunk("a")
        call.hang()

    server.triton.script = silent
    code, out, err = run(tmp_path, "x", "--url", server.url, "--timeout-s", "0.5")
    assert (code, out) == (4, "a\n")
    assert "0.5 s" in err
    assert server.last.is_ended.wait(PATIENCE_S)
    assert server.last.was_cancelled


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_ctrl_c_cancels_the_request_and_exits_130(server: Running, tmp_path: Path, options: list[str]) -> None:
    import threading

    is_running = threading.Event()

    def endless(call: Call) -> Iterator[Any]:
        yield chunk("a", final=False)
        is_running.set()
        call.hang()

    server.triton.script = endless
    process = start(tmp_path, "x", "--url", server.url, *options)
    assert is_running.wait(PATIENCE_S)
    if not options:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"a"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert server.last.is_ended.wait(PATIENCE_S)
    assert server.last.was_cancelled


def test_a_conversation_and_its_options_come_from_files(server: Running, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "é"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    options = ["--tools", str(tmp_path / "tools.json"), "--no-thinking", "--reasoning-effort", "50"]
    code, _, _ = run(tmp_path, "--messages", "-", *options, "--url", server.url, stdin=json.dumps(messages).encode())
    assert code == 0
    assert json.loads(sent(server)["messages"]) == messages
    assert json.loads(sent(server)["chat_options"]) == {"tools": tools, "thinking": False, "reasoning_effort": 50}


def test_reasoning_goes_to_stderr_and_calls_follow_the_answer(server: Running, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text("[]", encoding="utf-8")
    server.triton.script = says(
        chunk("be", chat_state="thinking"),
        chunk("cause</th"),
        chunk('ink>so\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'),
        chunk("", final=True, finish="stop"),
    )
    options = ["x", "--thinking", "--tools", str(tmp_path / "tools.json"), "--url", server.url]
    code, out, err = run(tmp_path, *options)
    assert (code, out) == (0, 'so\n{"name": "f", "arguments": "{}"}\n')
    assert err.startswith("because\nprompt n/a tokens")
    code, out, err = run(tmp_path, *options, "--json")
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert (result["reasoning"], result["content"]) == ("because", "so")
    assert result["tool_calls"] == [{"name": "f", "arguments": "{}"}]
    assert result["text"].startswith("because</think>so")
