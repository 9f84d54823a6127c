"""What is known of one HTTP request, filled in as it goes; logs, metrics and spans are made from it at the end.

No prompt and no answer is ever in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Record"]


@dataclass(slots=True, kw_only=True)
class Record:
    request_id: str
    route: str
    client: str
    started_s: float = field(default_factory=time.perf_counter)
    started_unix_s: float = field(default_factory=time.time)
    key: str | None = None
    tenant: str | None = None
    request_class: str | None = None
    model: str | None = None
    stream: bool | None = None
    choices: int | None = None
    status: int = 0
    """Of HTTP; 499 when the client left before an answer."""
    code: str | None = None
    kind: str | None = None
    """Of the problem that ended it; None when there was none."""
    reason: str | None = None
    backend: str | None = None
    retries: int = 0
    sent_s: float | None = None
    """When the request went to a backend, on the clock of `started_s`."""
    first_s: float | None = None
    """First text to the client."""
    ended_s: float | None = None
    queue_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    trace_id: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_s is None else (self.first_s - self.started_s) * 1000.0

    @property
    def e2e_ms(self) -> float | None:
        return None if self.ended_s is None else (self.ended_s - self.started_s) * 1000.0

    def to_json(self) -> dict[str, Any]:
        """One log line; what is unknown is left out."""
        ttft_ms, e2e_ms = self.ttft_ms, self.e2e_ms
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.started_unix_s))
            + f".{int(self.started_unix_s % 1 * 1000):03d}Z",
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "client": self.client,
            "route": self.route,
            "status": self.status,
            "code": self.code,
            "kind": self.kind,
            "reason": self.reason,
            "key": self.key,
            "tenant": self.tenant,
            "class": self.request_class,
            "model": self.model,
            "backend": self.backend,
            "retries": self.retries or None,
            "stream": self.stream,
            "choices": self.choices,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
            "queue_ms": None if self.queue_ms is None else round(self.queue_ms, 1),
            "ttft_ms": None if ttft_ms is None else round(ttft_ms, 1),
            "e2e_ms": None if e2e_ms is None else round(e2e_ms, 1),
        }
        return {name: value for name, value in line.items() if value is not None}
