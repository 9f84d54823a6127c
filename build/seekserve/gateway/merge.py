"""Several choices as one stream of events, each with the choice it belongs to; one choice alone costs nothing extra."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from seekserve.client import Delta
from seekserve.gateway.choice import Choice

__all__ = ["merged"]

Event = tuple[Choice, "Delta | None"]
"""None: the choice has ended."""


async def merged(choices: Sequence[Choice]) -> AsyncGenerator[Event, None]:
    """Raises the first error of any choice. Closing it, or an error, cancels all that still run."""
    if len(choices) == 1:
        (choice,) = choices
        async with contextlib.aclosing(choice.deltas()) as deltas:
            async for delta in deltas:
                yield choice, delta
        yield choice, None
        return
    queue: asyncio.Queue[Event | BaseException] = asyncio.Queue(maxsize=4 * len(choices))

    async def pump(choice: Choice) -> None:
        try:
            async with contextlib.aclosing(_events(choice)) as events:
                async for event in events:
                    await queue.put(event)
        except Exception as error:  # raised again where the events are read
            await queue.put(error)

    tasks = [asyncio.create_task(pump(choice)) for choice in choices]
    try:
        open_choices = len(choices)
        while open_choices:
            got = await queue.get()
            if isinstance(got, BaseException):
                raise got
            yield got
            open_choices -= got[1] is None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _events(choice: Choice) -> AsyncGenerator[Event, None]:
    async with contextlib.aclosing(choice.deltas()) as deltas:
        async for delta in deltas:
            yield choice, delta
    yield choice, None
