"""Addresses, the model that is meant, and what the server says of itself."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from drive import HELLO
from fake_server import Running

from seekserve.client import AsyncClient, Client
from seekserve.client.channel import channel_options, is_loopback, target_of
from seekserve.client.discovery import launched_models, only_model, state_folder
from seekserve.errors import InputError, ServerError

GOOD = {
    "127.0.0.1:8001": "127.0.0.1:8001",
    "grpc://node-3.cluster:8001": "node-3.cluster:8001",
    "localhost:1/": "localhost:1",
    "[::1]:65535": "[::1]:65535",
}
BAD = ["", "localhost", "host:", ":8001", "host:0", "host:65536", "http://host:8000", "https://h:1", "a b:1", "::1:80"]


@pytest.mark.parametrize(("url", "target"), GOOD.items())
def test_an_address_is_host_and_port(url: str, target: str) -> None:
    assert target_of(url) == target


@pytest.mark.parametrize("url", BAD)
def test_anything_else_is_bad_input_that_shows_the_form(url: str) -> None:
    with pytest.raises(InputError, match="host:port"):
        target_of(url)


def test_a_proxy_of_the_environment_is_not_asked_for_loopback() -> None:
    for target in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        assert is_loopback(target)
        assert ("grpc.enable_http_proxy", 0) in channel_options(target, 1.0)
    assert ("grpc.enable_http_proxy", 1) in channel_options("10.0.0.1:1", 1.0)


def record(folder: Path, name: str, age: float, body: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    os.utime(path, (age, age))


def test_the_newest_record_of_the_address_names_the_models(tmp_path: Path) -> None:
    record(tmp_path, "a.json", 100, {"grpc_url": "127.0.0.1:8001", "models": ["old"]})
    record(tmp_path, "b.json", 200, {"grpc_url": "127.0.0.1:8001", "models": ["new"]})
    record(tmp_path, "c.json", 300, {"grpc_url": "127.0.0.1:8002", "models": ["other"]})
    assert launched_models("127.0.0.1:8001", tmp_path) == ("new",)
    assert launched_models("localhost:8001", tmp_path) == ("new",)
    assert launched_models("127.0.0.1:9", tmp_path) == ()


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"grpc_url": 3}', '{"models": {"a": 1}}'])
def test_a_damaged_record_is_passed_over(tmp_path: Path, body: str) -> None:
    record(tmp_path, "a.json", 300, body)
    record(tmp_path, "b.json", 200, {"grpc_url": "grpc://127.0.0.1:8001", "models": [{"name": "m"}, {}]})
    assert launched_models("127.0.0.1:8001", tmp_path) == ("m",)


def test_a_missing_state_folder_knows_nothing(tmp_path: Path) -> None:
    assert launched_models("127.0.0.1:8001", tmp_path / "none") == ()


def test_the_state_folder_follows_xdg(tmp_path: Path) -> None:
    assert state_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "seekserve" / "launches"
    assert state_folder({}) == Path.home() / ".local" / "state" / "seekserve" / "launches"


def test_two_candidates_are_named_and_none_asks_for_the_option() -> None:
    assert only_model(["a"], "u") == "a"
    with pytest.raises(InputError, match=r"2 models \(a, b\).*--model"):
        only_model(["a", "b"], "u")
    with pytest.raises(InputError, match="--model"):
        only_model([], "u")


def test_the_model_comes_from_the_launch_record_even_when_the_index_is_closed(server: Running) -> None:
    server.triton.index_is_open = False
    record(state_folder(), "x.json", 1, {"grpc_url": server.url, "models": ["deepseek"]})
    with Client(server.url) as client:
        assert client.generate(HELLO).text == "ok"
    assert server.last.request.model_name == "deepseek"


def test_the_model_comes_from_an_open_index(server: Running) -> None:
    server.triton.models = ["only"]

    async def run() -> None:
        async with AsyncClient(server.url) as client:
            await client.generate(HELLO)

    with Client(server.url) as client:
        client.generate(HELLO)
    assert server.last.request.model_name == "only"
    asyncio.run(run())
    assert server.last.request.model_name == "only"


def test_without_record_and_with_a_closed_index_the_option_is_asked_for(server: Running) -> None:
    server.triton.index_is_open = False

    async def run() -> None:
        async with AsyncClient(server.url) as client:
            with pytest.raises(InputError, match="--model"):
                await client.generate(HELLO)

    with Client(server.url) as client, pytest.raises(InputError, match="--model"):
        client.generate(HELLO)
    asyncio.run(run())


def test_nobody_listening_is_said_before_a_model_is_asked_for(server: Running) -> None:
    server.drop()
    with Client(server.url) as client, pytest.raises(ServerError, match="no Triton server answers"):
        client.generate(HELLO)


def test_readiness_is_of_the_server_and_of_the_model_when_one_is_set(server: Running) -> None:
    async def ready(model: str | None) -> bool:
        async with AsyncClient(server.url, model) as client:
            return await client.is_ready()

    for model, expected in ((None, True), ("m", True), ("absent", False)):
        with Client(server.url, model) as client:
            assert client.is_ready() is expected
        assert asyncio.run(ready(model)) is expected
    server.triton.ready = False
    assert asyncio.run(ready("m")) is False
    server.drop()
    assert asyncio.run(ready("m")) is False


def test_metadata_names_the_server_and_its_version(server: Running) -> None:
    async def ask() -> str:
        async with AsyncClient(server.url, "m") as client:
            return (await client.metadata()).version

    with Client(server.url, "m") as client:
        assert client.metadata().name == "triton"
        assert client.metadata().extensions == ("classification",)
    assert asyncio.run(ask()) == "2.51.0"
