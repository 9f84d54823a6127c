"""Who may ask: keys, their tenants, classes and rates, and what may not be listened on."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import Running
from tests.gateway.conftest import CHAT, Start

from seekserve.errors import ConfigError, ConflictError, InputError
from seekserve.gateway.keys import ENVIRONMENT, KeyRing, RateLimit, load_keys, new_key
from seekserve.gateway.options import BackendSpec, GatewayOptions, is_loopback_host, read_backend

BACKEND = BackendSpec(target="127.0.0.1:1")


def ring_of(*tenants: str, **more: Any) -> tuple[list[str], str]:
    made = [new_key(tenant) for tenant in tenants]
    return [key for key, _ in made], json.dumps({"keys": [{**entry, **more} for _, entry in made]})


def test_only_a_known_key_comes_in_and_its_tenant_is_not_the_callers_to_choose(server: Running, start: Start) -> None:
    (key,), text = ring_of("team-a", **{"class": "offline"})
    gateway = start(env={ENVIRONMENT: text})
    for wrong in ({}, {"authorization": f"Bearer {key}x"}, {"authorization": key}, {"authorization": f"Basic {key}"}):
        answer = gateway.chat(**wrong)
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        assert gateway.client.get("/v1/models", headers=wrong).status_code == 401
    assert not server.triton.calls
    answer = gateway.chat(authorization=f"Bearer {key}", x_tenant="other", x_request_type="interactive")
    assert answer.status_code == 200
    inputs = server.last.inputs()
    assert (inputs["tenant"][2][4:], inputs["request_class"][2][4:]) == (b"team-a", b"offline")
    assert "x-request-type" not in server.last.request.parameters
    assert gateway.client.get("/health/ready").status_code == 200
    assert gateway.metric("seekserve_gateway_problems_total", kind="auth") == 8


def test_without_keys_the_headers_name_tenant_and_class(server: Running, start: Start) -> None:
    gateway = start()
    gateway.chat(x_tenant="a", x_request_type="offline")
    assert server.last.inputs()["tenant"][2][4:] == b"a"
    assert server.last.request.parameters["x-request-type"].string_param == "offline"
    assert gateway.chat(x_tenant="a b").status_code == 400
    assert any("no API keys" in each for each in gateway.said)


def test_a_key_that_asks_too_often_is_told_when_to_come_back_and_others_are_not(start: Start) -> None:
    (key, other), text = ring_of("a", "b")
    data = json.loads(text)
    data["keys"][0] |= {"requests_per_min": 1, "burst_requests": 2}
    gateway = start(env={ENVIRONMENT: json.dumps(data)})
    statuses = [gateway.chat(authorization=f"Bearer {key}") for _ in range(3)]
    assert [each.status_code for each in statuses] == [200, 200, 429]
    assert statuses[2].json()["error"]["code"] == "rate_limited"
    assert 0 < int(statuses[2].headers["retry-after"]) <= 60
    assert gateway.chat(authorization=f"Bearer {other}").status_code == 200
    assert gateway.metric("seekserve_gateway_problems_total", kind="rate") == 1
    assert gateway.metric("seekserve_gateway_problems_total", kind="load") == 0


def test_a_rate_limit_refills_with_time() -> None:
    limit = RateLimit(60, 2)
    assert [limit.take(0.0), limit.take(0.0)] == [None, None]
    assert limit.take(0.0) == 1001
    assert limit.take(1.01) is None
    assert limit.take(1.01) is not None
    assert [limit.take(100.0), limit.take(100.0)] == [None, None]
    assert limit.take(100.0) is not None


BAD: list[tuple[Any, str]] = [
    ([], "an object"),
    ({"keys": []}, "at least one key"),
    ({"keys": [{"name": "a", "tenant": "t", "sha256": "short"}]}, "64 hexadecimal"),
    ({"keys": [{"name": "a b", "tenant": "t", "sha256": "0" * 64}]}, "name: expected"),
    ({"keys": [{"name": "a", "sha256": "0" * 64}]}, "tenant: missing"),
    ({"keys": [{"name": "a", "tenant": "t", "sha256": "0" * 64, "key": "k"}]}, "key: unknown key"),
    ({"keys": [{"name": n, "tenant": "t", "sha256": "0" * 64} for n in "ab"]}, "same sha256"),
    ({"keys": [{"name": "a", "tenant": "t", "sha256": "0" * 64, "requests_per_min": 0}]}, "requests_per_min"),
]


@pytest.mark.parametrize(("data", "says"), BAD)
def test_a_bad_file_of_keys_is_refused_with_every_fault(tmp_path: Path, data: Any, says: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError) as caught:
        load_keys(file, {})
    assert says in str(caught.value)


def test_keys_come_from_one_place(tmp_path: Path) -> None:
    _, text = ring_of("a")
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    assert (len(load_keys(file, {})), len(load_keys(None, {ENVIRONMENT: text})), len(load_keys(None, {}))) == (1, 1, 0)
    with pytest.raises(InputError, match="twice"):
        load_keys(file, {ENVIRONMENT: text})
    assert KeyRing(()).find("Bearer x") is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_nothing_public_without_keys(host: str) -> None:
    options = GatewayOptions(backends=(BACKEND,), host=host)
    with pytest.raises(ConflictError, match="without API keys"):
        options.check(has_keys=False)
    options.check(has_keys=True)
    assert not is_loopback_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    GatewayOptions(backends=(BACKEND,), host=host).check(has_keys=False)


def test_what_cannot_be_started_is_said_before(tmp_path: Path) -> None:
    for options, says in (
        (GatewayOptions(backends=()), "no backend"),
        (GatewayOptions(backends=(BACKEND, BACKEND)), "same address"),
        (GatewayOptions(backends=(BACKEND,), tls_key=tmp_path / "k"), "needs both"),
        (GatewayOptions(backends=(BACKEND,), tls_key=tmp_path / "k", tls_certificate=tmp_path / "c"), "not a file"),
    ):
        with pytest.raises(InputError, match=says):
            options.check(has_keys=False)


def test_backends_are_addresses_with_what_no_launch_record_says() -> None:
    assert read_backend("grpc://gpu1:8001").target == "gpu1:8001"
    spec = read_backend("gpu1:8001?model=a&model=b&metrics=http://gpu1:8002/metrics")
    assert (spec.models, spec.metrics_url) == (("a", "b"), "http://gpu1:8002/metrics")
    for bad in ("gpu1", "gpu1:8001?model=", "gpu1:8001?metrics=file:///etc/passwd", "gpu1:8001?x=1"):
        with pytest.raises(InputError):
            read_backend(bad)


def test_a_taken_port_is_a_conflict(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConflictError, match="cannot listen"):
            start(port=taken.getsockname()[1])


def test_tls(start: Start, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    arguments = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    try:
        subprocess.run([*arguments, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("not installed: openssl")
    gateway = start(tls_certificate=certificate, tls_key=key)
    assert gateway.url.startswith("https://")
    import httpx

    with httpx.Client(verify=ssl.create_default_context(cafile=str(certificate)), trust_env=False) as client:
        assert client.post(f"{gateway.url}/v1/chat/completions", json=CHAT).status_code == 200
