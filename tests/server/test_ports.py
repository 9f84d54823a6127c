from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from seekserve.server.ports import Ports, host_problem, is_free, reachable_host, resolve_ports, url_host


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        yield listener.getsockname()[1]


def test_zero_is_replaced_by_three_different_free_ports() -> None:
    ports, problems = resolve_ports("127.0.0.1", Ports(http=0, grpc=0, metrics=0))
    assert problems == []
    assert len({ports.http, ports.grpc, ports.metrics}) == 3
    assert all(is_free("127.0.0.1", port) for _, port in ports.items())


def test_a_taken_port_is_named_with_its_setting(taken: int) -> None:
    _, problems = resolve_ports("127.0.0.1", Ports(http=0, grpc=taken, metrics=0))
    assert len(problems) == 1
    assert str(taken) in problems[0]
    assert "--grpc-port" in problems[0]
    assert not is_free("127.0.0.1", taken)


def test_all_problems_come_at_once(taken: int) -> None:
    _, problems = resolve_ports("127.0.0.1", Ports(http=taken, grpc=taken, metrics=0))
    assert any("--http-port and --grpc-port are both" in problem for problem in problems)
    assert any("cannot be had" in problem for problem in problems)


def test_the_three_must_differ() -> None:
    free = resolve_ports("127.0.0.1", Ports(http=0, grpc=0, metrics=0))[0].http
    _, problems = resolve_ports("127.0.0.1", Ports(http=free, grpc=0, metrics=free))
    assert problems == [f"--http-port and --metrics-port are both {free}: the three ports must differ"]


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", "a" * 70])
def test_a_host_that_is_not_of_this_machine_is_said_whatever_the_port(host: str) -> None:
    assert str(host_problem(host)).startswith(f"--host {host} is not an address of this machine")
    assert "port" not in str(host_problem(host))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_an_address_of_this_machine_is_no_problem(host: str) -> None:
    assert host_problem(host) is None


@pytest.mark.parametrize(
    ("host", "reached", "in_url"),
    [("0.0.0.0", "127.0.0.1", "127.0.0.1"), ("::", "::1", "[::1]"), ("10.0.0.5", "10.0.0.5", "10.0.0.5")],
)
def test_a_wildcard_is_reached_over_loopback(host: str, reached: str, in_url: str) -> None:
    assert reachable_host(host) == reached
    assert url_host(reached) == in_url
