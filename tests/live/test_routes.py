"""Routes, class limits and a rung that hands requests on, with two deployments of the tiny checkpoint on one server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Deployment, Server, run_cli

from seekserve.client import Client, Completion, GenerateRequest
from seekserve.errors import InputError
from seekserve_backend.contract.policy import POLICY_FILE

PLAIN = {"max_queue_requests": 100, "deadline_ms": 60_000}
# The rung holds from the first second on: pressure is never below 0.
FRONT: dict[str, Any] = {
    "name": "front",
    "kind": "paced",
    "default_class": "chat",
    "routes": [
        {"class": "offline", "header": {"x-request-type": "offline"}},
        {"class": "draft", "endpoint": "/v1/drafts"},
        {"class": "offline", "endpoint": "/v1/completions"},
    ],
    "classes": {
        "chat": {**PLAIN, "priority": 0, "sampling": {"temperature": {"max": 0.5, "outside": "refuse"}}},
        "draft": {**PLAIN, "priority": 1},
        "offline": {**PLAIN, "priority": 2, "max_prompt_tokens": 8, "max_output_tokens": 3},
    },
    "paced": {"rung_up_s": 0, "ramp_doubling_s": 0},
    "rungs": [{"at": 0.0, "route_to": "spare", "route_classes": ["draft"]}],
}
SPARE = {"name": "spare", "default_class": "draft", "classes": {"draft": {**PLAIN, "max_prompt_tokens": 30}}}
DRAFT = {"endpoint": "/v1/drafts"}


@pytest.fixture(scope="module")
def pair(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("routes")
    for name, policy in (("front", FRONT), ("spare", SPARE)):
        (folder / f"{name}.yaml").write_text(json.dumps(policy), encoding="utf-8")
        options = ("--name", name, "--policy", folder / f"{name}.yaml", "--out", folder / "repository")
        run_cli("render", deployment.folder / "bundle", *options)
    started = Server(deployment, repository=folder / "repository")
    try:
        yield started, folder / "repository" / "front" / POLICY_FILE
    finally:
        code = started.stop()
    assert code == 0, started.report()


def ask(server: Server, prompt: str = "Count", **wishes: Any) -> Completion:
    with Client(server.grpc, "front") as client:
        return client.generate(GenerateRequest(prompt=prompt, **{"max_tokens": 8, **wishes}))


def until_routed(server: Server) -> Completion:
    """Once a second the backend looks whether the other model is ready."""
    deadline = time.monotonic() + 30
    while (answer := ask(server, parameters=DRAFT)).served_by is None:
        assert time.monotonic() < deadline, server.report()
    return answer


def count(server: Server, model: str, name: str, **labels: str) -> float:
    try:
        return server.metric_sum(f"seekserve_{name}", model, **labels)
    except KeyError:
        return 0.0


def ended(server: Server, model: str, terminal: str) -> float:
    return count(server, model, "requests_ended_total", terminal=terminal)


def until_more(server: Server, than: float, model: str, name: str, **labels: str) -> None:
    """Metrics are written once a second."""
    deadline = time.monotonic() + 20
    while count(server, model, name, **labels) <= than:
        assert time.monotonic() < deadline, f"{name} {labels} of {model} stays at {than}"
        time.sleep(0.2)


def until_ended(server: Server, model: str, terminal: str, more_than: float) -> None:
    until_more(server, more_than, model, "requests_ended_total", terminal=terminal)


def test_endpoint_and_header_choose_the_class_and_its_limits(pair: tuple[Server, Path]) -> None:
    server, _ = pair
    assert ask(server, parameters={"x-request-type": "offline"}).completion_tokens == 3
    with pytest.raises(InputError, match=r"class offline takes at most 8.*"):
        ask(server, "one two three four five six seven eight nine ten", parameters={"x-request-type": "offline"})
    with pytest.raises(InputError, match=r"temperature is 0\.9, class chat takes at most 0\.5"):
        ask(server, temperature=0.9)


def test_the_other_model_answers_the_routed_class_word_for_word(pair: tuple[Server, Path]) -> None:
    server, _ = pair
    routed = until_routed(server)
    here = ask(server)
    assert (routed.served_by, here.served_by) == ("spare", None)
    assert routed.text == here.text
    assert (routed.prompt_tokens, routed.completion_tokens) == (here.prompt_tokens, here.completion_tokens)
    assert ask(server, parameters=DRAFT, stream=False, logprobs=None).served_by == "spare"
    until_ended(server, "front", "routed", 0)
    until_more(server, 0, "front", "batch_formation_mean_seconds")
    numbers = ("memory_pressure_ratio", "kv_fragmentation_ratio", "batch_efficiency_ratio")
    assert all(0.0 <= server.metric(f"seekserve_{name}", "front") <= 1.0 for name in numbers)


def test_what_the_other_model_refuses_is_served_here(pair: tuple[Server, Path]) -> None:
    server, _ = pair
    until_routed(server)
    refused = ended(server, "spare", "refused")
    answer = ask(server, "word " * 40, parameters=DRAFT)
    assert (answer.served_by, answer.completion_tokens) == (None, 8)
    until_ended(server, "spare", "refused", refused)
    until_more(server, 0, "front", "routes_taken_back_total")


def test_a_cancel_reaches_the_other_model(pair: tuple[Server, Path]) -> None:
    server, _ = pair
    until_routed(server)
    before = {model: ended(server, model, "cancelled") for model in ("front", "spare")}
    with Client(server.grpc, "front") as client:
        request = GenerateRequest(prompt="Count", max_tokens=450, min_tokens=450, parameters=DRAFT)
        with client.stream(request) as stream:
            for _, _delta in zip(range(3), stream, strict=False):
                pass
    for model in ("front", "spare"):
        until_ended(server, model, "cancelled", before[model])


def test_a_policy_that_routes_to_nobody_is_not_taken(pair: tuple[Server, Path]) -> None:
    server, file = pair
    good = file.read_text(encoding="utf-8")
    file.write_text(good.replace('"spare"', '"spar"'), encoding="utf-8")
    deadline = time.monotonic() + 15
    while "routes to 'spar'" not in (log := server.log.read_text()):
        assert time.monotonic() < deadline, log[-2000:]
        time.sleep(0.2)
    assert "did you mean spare?" in log
    file.write_text(good, encoding="utf-8")
    assert until_routed(server).served_by == "spare"


def test_the_gateway_tells_the_policy_where_a_request_came_in(pair: tuple[Server, Path]) -> None:
    server, _ = pair
    httpx = pytest.importorskip("httpx", reason="not installed: httpx (the test extra)")
    beside = pytest.importorskip("seekserve.gateway.beside", reason="not installed: starlette (the gateway extra)")
    from seekserve.gateway.options import GatewayOptions, read_backend

    options = GatewayOptions(backends=(read_backend(server.grpc),), port=0, log_file="")
    chat = {"model": "front", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
    with (
        beside.GatewayThread(options, {}, say=lambda _: None) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60, trust_env=False) as client,
    ):

        def tokens(path: str, body: dict[str, Any], **headers: str) -> int:
            answer = client.post(path, json=body, headers=headers).raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        assert tokens("/v1/chat/completions", chat) == 8
        assert tokens("/v1/completions", {"model": "front", "prompt": "Count", "max_tokens": 8}) == 3
        assert tokens("/v1/chat/completions", chat, **{"x-request-type": "offline"}) == 3
