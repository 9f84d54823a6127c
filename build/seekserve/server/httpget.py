"""Short HTTP calls to the server's own endpoints; an unreachable server is an answer (None), not an exception."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["call", "get_ok", "model_states"]


def call(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, timeout_s: float = 2.0
) -> tuple[int, bytes] | None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, target, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def get_ok(url: str, timeout_s: float = 2.0) -> bool:
    answer = call(url, timeout_s=timeout_s)
    return answer is not None and answer[0] == 200


def model_states(http_url: str, admin: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Model -> (state, reason) as the repository index tells it; empty when the server does not say."""
    answer = call(f"{http_url}/v2/repository/index", method="POST", headers=admin)
    if answer is None or answer[0] != 200:
        return {}
    entries: list[dict[str, Any]] = json.loads(answer[1])
    return {entry["name"]: (entry.get("state", ""), entry.get("reason", "")) for entry in entries if "state" in entry}
