"""The three ports of a launch: resolved and proven free before anything starts.

Triton reports a taken port late, after loading the models, and names no setting; here it is said first.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass

__all__ = ["Ports", "host_problem", "is_free", "reachable_host", "resolve_ports", "url_host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    http: int
    grpc: int
    metrics: int

    def items(self) -> tuple[tuple[str, int], ...]:
        """(option of the command line, port)"""
        return (("--http-port", self.http), ("--grpc-port", self.grpc), ("--metrics-port", self.metrics))


def reachable_host(host: str) -> str:
    """The address by which this machine reaches a server that binds to `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # As the server does: connections of an earlier server that linger in TIME_WAIT are no obstacle.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


def is_free(host: str, port: int) -> bool:
    try:
        _bind(host, port).close()
    except OSError:
        return False
    return True


def host_problem(host: str) -> str | None:
    """A sentence when nothing on this machine can listen on `host`, whatever the port."""
    try:
        _bind(host, 0).close()
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else error
        return f"--host {host} is not an address of this machine: {reason}"
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            return f"--host {host} cannot be listened on: {error.strerror}"
        return (
            f"--host {host} is not an address of this machine; "
            "use one of its own, 127.0.0.1 for this machine only, or 0.0.0.0 for all of them"
        )
    return None


def resolve_ports(host: str, wanted: Ports) -> tuple[Ports, list[str]]:
    """Free ports, 0 replaced by one that is free now; and a sentence for each that cannot be had.

    `host` must be an address of this machine.
    """
    problems = _clashes(wanted)
    chosen: dict[str, int] = {}
    with ExitStack() as held:
        # Fixed ones first, so that a picked one cannot be the fixed one of another setting; all held until the end.
        for option, port in sorted(wanted.items(), key=lambda item: item[1] == 0):
            try:
                listener = held.enter_context(_bind(host, port))
            except OSError as error:
                if port not in chosen.values():
                    problems.append(_sentence(host, option, port, error))
                chosen[option] = port
            else:
                chosen[option] = listener.getsockname()[1]
    return Ports(http=chosen["--http-port"], grpc=chosen["--grpc-port"], metrics=chosen["--metrics-port"]), problems


def _clashes(wanted: Ports) -> list[str]:
    items = [(option, port) for option, port in wanted.items() if port != 0]
    return [
        f"{first} and {second} are both {port}: the three ports must differ"
        for i, (first, port) in enumerate(items)
        for second, other in items[i + 1 :]
        if port == other
    ]


def _sentence(host: str, option: str, port: int, error: OSError) -> str:
    return (
        f"port {port} on {host} cannot be had: {error.strerror}; set {option} to a free one, or to 0 to have one picked"
    )
