"""What the gateway is started with, and what of it cannot be together."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from seekserve.client.channel import target_of
from seekserve.errors import ConflictError, InputError

__all__ = ["ROUTES", "BackendSpec", "GatewayOptions", "is_loopback_host", "read_backend"]

ROUTES = ("least-loaded", "prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    target: str
    """host:port of its gRPC."""
    models: tuple[str, ...] = ()
    """Empty: those of the launch record of this address, else of the server's index."""
    metrics_url: str | None = None
    """None: that of the launch record; without one the gateway knows only its own requests there."""


def read_backend(text: str) -> BackendSpec:
    """`HOST:PORT` or `HOST:PORT?model=NAME&metrics=http://HOST:PORT/metrics`; InputError says what is wrong."""
    address, _, query = text.partition("?")
    models: list[str] = []
    metrics_url = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "model" and value:
            models.append(value)
        elif name == "metrics" and value.startswith(("http://", "https://")):
            metrics_url = value
        else:
            raise InputError(f"backend {text!r}: {name}={value} is not model=NAME or metrics=http://HOST:PORT/metrics")
    return BackendSpec(target=target_of(address), models=tuple(models), metrics_url=metrics_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    backends: tuple[BackendSpec, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    """0 picks a free one."""
    route: str = "least-loaded"
    keys_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_body_bytes: int = 4 * 1024 * 1024
    body_timeout_s: float = 30.0
    """For reading a whole body: who sends one byte now and then holds a connection no longer."""
    idle_timeout_s: float = 900.0
    """Between two responses of a backend, the wait in its queue included; the last resort against hanging."""
    drain_timeout_s: float = 30.0
    log_file: str = "-"
    """Request log; "-" is standard output, empty is none."""
    otlp_endpoint: str | None = None
    probe_period_s: float = 1.0

    def check(self, *, has_keys: bool) -> None:
        """Raises ConflictError or InputError for what must not be started."""
        if not self.backends:
            raise InputError("no backend; give --backend HOST:PORT, the gRPC address of a tritonserver")
        if len({each.target for each in self.backends}) < len(self.backends):
            raise InputError("two backends have the same address")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InputError("TLS needs both --tls-cert and --tls-key")
        for file in (self.tls_certificate, self.tls_key):
            if file is not None and not file.is_file():
                raise InputError(f"{file} is not a file")
        if not has_keys and not is_loopback_host(self.host):
            raise ConflictError(
                f"refused to listen on {self.host} without API keys: everyone who reaches this machine could use it",
                hint="give --keys FILE (`seekserve gateway --new-key TENANT` makes an entry), or stay on 127.0.0.1",
            )


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
