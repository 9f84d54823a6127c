"""One way to run a request through either client, so that every rule is tested on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from seekserve.client import AsyncClient, Client, Completion, Delta, GenerateRequest
from seekserve.errors import SeekserveError

HELLO = GenerateRequest(prompt="hello")


@dataclass
class Outcome:
    """What a caller saw: the deltas, then either a completion or an error, with the text that was kept."""

    deltas: list[Delta] = field(default_factory=list)
    completion: Completion | None = None
    error: SeekserveError | None = None
    kept_text: str = ""

    @property
    def done(self) -> Completion:
        if self.error is not None:
            raise self.error
        assert self.completion is not None
        return self.completion


Drive = Callable[..., Outcome]


def drive_blocking(
    url: str, request: GenerateRequest = HELLO, *, leave_after: int | None = None, reconnects: int = 0, **options: Any
) -> Outcome:
    out = Outcome()
    with Client(url, options.pop("model", "m"), **options) as client:
        try:
            with client.stream(request, reconnects=reconnects) as stream:
                for delta in stream:
                    out.deltas.append(delta)
                    if len(out.deltas) == leave_after:
                        return out
            out.completion = stream.completion
        except SeekserveError as error:
            out.error = error
            out.kept_text = stream.text
    return out


def drive_asyncio(
    url: str, request: GenerateRequest = HELLO, *, leave_after: int | None = None, reconnects: int = 0, **options: Any
) -> Outcome:
    async def run() -> Outcome:
        out = Outcome()
        async with AsyncClient(url, options.pop("model", "m"), **options) as client:
            stream = client.stream(request, reconnects=reconnects)
            try:
                async with stream:
                    async for delta in stream:
                        out.deltas.append(delta)
                        if len(out.deltas) == leave_after:
                            return out
                out.completion = stream.completion
            except SeekserveError as error:
                out.error = error
                out.kept_text = stream.text
        return out

    return asyncio.run(run())
