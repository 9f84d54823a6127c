"""A server as target: order, concurrency, refusals, errors; against a scripted server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Call, Running, chunk, error

from seekserve.errors import InputError, ServerError
from seekserve.evaluate.served import ServerTarget
from seekserve.evaluate.target import Answer, Asking, choose_target
from seekserve.evaluate.tasks import Task


def task(line: int, *, prompt: str | None = None) -> Task:
    messages = None if prompt else ({"role": "user", "content": f"q{line}"},)
    return Task(file="f", line=line, messages=messages, prompt=prompt, expected="")


def ask(server: Running, tasks: list[Task], *, concurrency: int = 4, max_tokens: int = 9) -> list[Answer]:
    target = ServerTarget(server.url, server.url, model=None)
    target.check(tasks)
    assert target.facts == {"server": server.url, "model": "m"}
    return target.answers(tasks, Asking(max_tokens=max_tokens, concurrency=concurrency), lambda done, total: None)


def question(call: Call) -> str:
    raw: bytes = call.inputs()["messages"][2][4:]
    text: str = json.loads(raw)[-1]["content"]
    return text


def echo(call: Call) -> Iterator[Any]:
    yield chunk(question(call), final=True, finish="stop")


def test_answers_come_in_the_order_of_the_tasks(server: Running) -> None:
    server.triton.script = echo
    answers = ask(server, [task(n) for n in range(20)])
    assert [answer.text for answer in answers] == [f"q{n}" for n in range(20)]
    assert not any(answer.is_cut or answer.failure for answer in answers)


def test_a_raw_prompt_and_the_token_limit_are_sent(server: Running) -> None:
    ask(server, [task(1, prompt="raw")], max_tokens=17)
    inputs = server.last.inputs()
    assert inputs["text_input"][2][4:] == b"raw"
    assert inputs["max_tokens"][2] == (17).to_bytes(4, "little")


def test_no_more_questions_are_open_than_asked_for(server: Running) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def script(_call: Call) -> Iterator[Any]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        yield chunk("a")
        with lock:
            now[0] -= 1
        yield chunk("b", final=True, finish="stop")

    server.triton.script = script
    ask(server, [task(n) for n in range(12)], concurrency=3)
    assert 1 <= most[0] <= 3


def test_an_answer_that_the_limit_ended_is_marked(server: Running) -> None:
    server.triton.script = lambda _call: iter([chunk("12", final=True, finish="length")])
    assert ask(server, [task(1)]) == [Answer(text="12", is_cut=True)]


def line(code: str, retry_after_ms: int | None) -> str:
    return json.dumps({"code": code, "reason": "because", "retry_after_ms": retry_after_ms, "request_id": "r"})


def test_a_refusal_with_a_hint_is_asked_again(server: Running) -> None:
    def script(call: Call) -> Iterator[Any]:
        if len(server.triton.calls) < 4:
            yield error(line("overloaded", 1))
        else:
            yield from echo(call)

    server.triton.script = script
    assert ask(server, [task(7)])[0].text == "q7"
    assert len(server.triton.calls) == 4


@pytest.mark.parametrize(
    ("code", "kind"), [("not_serving", ServerError), ("failed", ServerError), ("too_large", InputError)]
)
def test_any_other_error_ends_the_measurement_and_names_the_task(
    server: Running, code: str, kind: type[Exception]
) -> None:
    server.triton.script = lambda _call: iter([error(line(code, None))])
    with pytest.raises(kind, match=r"f:\d: .*because"):
        ask(server, [task(n) for n in range(5)])


def test_nobody_there_is_known_before_a_question_is_asked(server: Running) -> None:
    server.drop()
    with pytest.raises(ServerError, match=server.url):
        ServerTarget(server.url, server.url, model="m").check([task(1)])


@pytest.mark.parametrize("given", ["no/such/folder", "bundle", "http://127.0.0.1:8000", "host:99999"])
def test_neither_folder_nor_address_is_said_so(given: str) -> None:
    with pytest.raises(InputError, match="neither a folder that exists nor an address"):
        choose_target(given, model=None)
