"""A running server asked over gRPC, `concurrency` questions at a time.

A refusal with a hint is taken at its word: the question waits and is asked again. Any other error ends the measurement,
since one with holes would be none; the message names the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seekserve.errors import InputError, Refused, ServerError
from seekserve.evaluate.target import Answer, Asking, Progress
from seekserve.evaluate.tasks import Task

if TYPE_CHECKING:
    from seekserve.client import AsyncClient, GenerateRequest

__all__ = ["ServerTarget"]

_ATTEMPTS = 20
_LONGEST_WAIT_S = 10.0


class ServerTarget:
    def __init__(self, given: str, url: str, *, model: str | None) -> None:
        self.name = given
        self._url = url
        self._model = model

    @property
    def facts(self) -> dict[str, str]:
        return {"server": self._url} if self._model is None else {"server": self._url, "model": self._model}

    def check(self, _tasks: Sequence[Task]) -> None:
        """The server judges each question when it is asked; here it must only be there."""
        asyncio.run(self._find())

    def answers(self, tasks: Sequence[Task], asking: Asking, progress: Progress) -> list[Answer]:
        return asyncio.run(self._answers(tasks, asking, progress))

    async def _find(self) -> None:
        from seekserve.client import AsyncClient

        async with AsyncClient(self._url, self._model) as client:
            await client.metadata()
            self._model = await client.model()

    async def _answers(self, tasks: Sequence[Task], asking: Asking, progress: Progress) -> list[Answer]:
        from seekserve.client import AsyncClient

        done: dict[int, Answer] = {}
        async with AsyncClient(self._url, self._model) as client:
            questions = iter(enumerate(tasks))

            async def work(questions: Iterator[tuple[int, Task]]) -> None:
                for index, task in questions:
                    done[index] = await _ask(client, task, asking.max_tokens)
                    progress(len(done), len(tasks))

            workers = [asyncio.create_task(work(questions)) for _ in range(min(asking.concurrency, len(tasks)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        return [done[index] for index in range(len(tasks))]


async def _ask(client: AsyncClient, task: Task, max_tokens: int) -> Answer:
    try:
        request = _request(task, max_tokens)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                completion = await client.generate(request)
            except Refused as refused:
                if refused.retry_after_ms is None or attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(min(refused.retry_after_ms / 1000, _LONGEST_WAIT_S))
                continue
            return Answer(text=completion.text, is_cut=completion.finish_reason == "length")
        raise AssertionError("the last attempt returns or raises")
    except InputError as error:
        raise InputError(f"{task.where}: {error.message}", hint=error.hint) from error
    except ServerError as error:
        raise ServerError(f"{task.where}: {error.message}", hint=error.hint) from error


def _request(task: Task, max_tokens: int) -> GenerateRequest:
    from seekserve.client import GenerateRequest

    if task.messages is not None:
        return GenerateRequest(messages=task.messages, max_tokens=max_tokens)
    return GenerateRequest(prompt=task.prompt, max_tokens=max_tokens)
