"""One choice of an answer: sent to a backend, once more to another when the first would not take it, then streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from seekserve.client import AsyncStream, Completion, Delta, GenerateRequest
from seekserve.errors import SeekserveError, ServerError
from seekserve.gateway.ask import Ask
from seekserve.gateway.pool import Backend, Pool
from seekserve.gateway.problems import ProblemError, from_error, is_worth_another_backend
from seekserve.gateway.resume import Resume, wrap

__all__ = ["Choice"]


class Choice:
    """`deltas` once; `completion` after it ended. Leaving the iteration in any way cancels the request."""

    def __init__(
        self,
        pool: Pool,
        ask: Ask,
        index: int,
        *,
        fields: Mapping[str, Any],
        resume: Resume | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        failed: Callable[[Backend, SeekserveError, bool], None] = lambda *_: None,
    ) -> None:
        """`failed(backend, error, is_retried)` is told of everything that went wrong at a backend."""
        self._pool = pool
        self._ask = ask
        self.index = index
        self._resume = resume
        self._request = ask.request(index, **fields) if resume is None else _rest_of(resume, fields)
        self._prompt = ask.prompts[index // ask.n]
        self._metadata = metadata
        self._failed = failed
        self._tried: list[str] = []
        self._stream: AsyncStream | None = None

    @property
    def backend(self) -> str:
        return self._tried[-1] if self._tried else ""

    @property
    def retries(self) -> int:
        return max(0, len(self._tried) - 1)

    @property
    def chat_state(self) -> str | None:
        """Where the text of a chat begins, thinking or content; known once the first delta is here."""
        if self._resume is not None:
            return self._resume.chat_state
        return None if self._stream is None else self._stream.chat_state

    @property
    def resume_token(self) -> str | None:
        """For the caller, once the first delta is here."""
        token = None if self._stream is None else self._stream.resume_token
        return None if token is None else wrap(token, self.backend, self.chat_state)

    @property
    def served_by(self) -> str | None:
        """The model that a loaded server handed this to, once the first delta is here."""
        return None if self._stream is None else self._stream.served_by

    @property
    def completion(self) -> Completion:
        assert self._stream is not None
        return self._stream.completion

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Raises ProblemError, whether at the first step or in the middle."""
        while True:
            backend = self._pick()
            self._tried.append(backend.name)
            has_begun = False
            backend.in_flight += 1
            try:
                # What may be resumed is not given up when its caller goes.
                self._stream = backend.client.stream(
                    self._request, model=self._ask.model, metadata=self._metadata, is_kept=True
                )
                async with self._stream:
                    async for delta in self._stream:
                        has_begun = True
                        yield delta
                return
            except SeekserveError as error:
                self._judge(backend, error, has_begun=has_begun)
            finally:
                backend.in_flight -= 1

    def give_up(self) -> None:
        """Nobody will come back: also the work of a stream that can be resumed is cancelled."""
        if self._stream is not None:
            self._stream.give_up()

    def _pick(self) -> Backend:
        if self._resume is not None:
            return self._pool.marked(self._resume.mark)
        return self._pool.pick(self._ask.model, self._prompt, self._tried)

    def _judge(self, backend: Backend, error: SeekserveError, *, has_begun: bool) -> None:
        """Returns when another backend shall be tried, raises otherwise."""
        if type(error) is ServerError:
            backend.mark_down()
        retries = not has_begun and not self.retries and self._resume is None and is_worth_another_backend(error)
        retries = retries and self._pool.has_another(self._ask.model, self._tried)
        self._failed(backend, error, retries)
        if not retries:
            raise ProblemError(from_error(error)) from error


def _rest_of(resume: Resume, fields: Mapping[str, Any]) -> GenerateRequest:
    """All of the stream once more: what came before puts the readers of the text into their state."""
    kept = {name: fields[name] for name in ("tenant", "request_id", "heartbeat_ms") if name in fields}
    if resume.is_given_up:
        kept.pop("heartbeat_ms", None)
        return GenerateRequest(resume_token=resume.token, resume_cancel=True, **kept)
    return GenerateRequest(resume_token=resume.token, resume_from_bytes=0, **kept)
