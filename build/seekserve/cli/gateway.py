"""`seekserve gateway`: the OpenAI-compatible HTTP front of one or several tritonservers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

__all__ = ["command"]

_FILE: dict[str, Any] = {"type": click.Path(path_type=Path), "metavar": "FILE"}


@click.command("gateway")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="HOST:PORT",
    help="gRPC address of a tritonserver; may be given more than once. HOST:PORT?model=NAME&metrics=URL where no "
    "launch of this machine says what it serves and where its metrics are.  [default: 127.0.0.1:8001]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; a public one needs keys.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 picks a free one.")
@click.option(
    "--route",
    type=click.Choice(["least-loaded", "prefix"]),
    default="least-loaded",
    show_default=True,
    help="prefix: prompts that begin alike go to one backend, as long as it is not busier than its share.",
)
@click.option(
    "--keys", "keys_file", help="API keys (hashed); the same text may stand in SEEKSERVE_GATEWAY_KEYS.", **_FILE
)
@click.option("--new-key", metavar="TENANT", help="Print a new key and its entry for the file of keys, and end.")
@click.option("--tls-cert", "tls_certificate", help="Certificate chain (PEM).", **_FILE)
@click.option("--tls-key", help="Its private key (PEM).", **_FILE)
@click.option(
    "--max-body-bytes",
    type=click.IntRange(min=1024),
    default=4 * 1024 * 1024,
    show_default=True,
    help="Larger bodies are answered 413.",
)
@click.option(
    "--body-timeout-s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="A body that is not complete after so long is answered 408.",
)
@click.option(
    "--idle-timeout-s",
    type=click.FloatRange(min=1),
    default=900.0,
    show_default=True,
    help="Give a request up when its backend sends nothing for so long, the wait in its queue included.",
)
@click.option(
    "--drain-timeout-s",
    type=click.FloatRange(min=1),
    default=30.0,
    show_default=True,
    help="How long running answers may take to end after SIGTERM.",
)
@click.option(
    "--request-log",
    "log_file",
    default="-",
    show_default=True,
    metavar="FILE",
    help="One JSON line for each request; - is standard output, an empty text none.",
)
@click.option(
    "--otlp-endpoint",
    default=None,
    metavar="URL",
    help="OTLP/HTTP collector that gets spans.  [default: OTEL_EXPORTER_OTLP_ENDPOINT, else no spans]",
)
def command(backends: tuple[str, ...], new_key: str | None, otlp_endpoint: str | None, **flags: Any) -> int:
    """Serve the OpenAI protocol in front of one or several tritonservers.

    Routes: /v1/chat/completions, /v1/completions, /v1/batch/completions (class offline), /v1/models, /health/live,
    /health/ready, /metrics. 429 is load, 503 is not serving, both with Retry-After. SIGTERM lets running answers end.
    """
    if new_key is not None:
        return _print_new_key(new_key)
    from seekserve.cli.optional import needs_extra

    with needs_extra("gateway"):
        from seekserve.gateway.options import GatewayOptions, read_backend
        from seekserve.gateway.run import run

    options = GatewayOptions(
        backends=tuple(read_backend(text) for text in backends or ("127.0.0.1:8001",)),
        otlp_endpoint=otlp_endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        **flags,
    )
    return run(options, os.environ, say=lambda text: click.echo(text, err=True))


def _print_new_key(tenant: str) -> int:
    import json

    from seekserve.gateway.keys import new_key

    key, entry = new_key(tenant)
    click.echo(f"key, shown this once: {key}\nentry for the file of keys:\n  - {json.dumps(entry)}")
    return 0
