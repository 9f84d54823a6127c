"""Puts the responses of one stream together. Pure: fed with messages and times, used alike by both clients.

Rules of the end: a response with the final flag or with a finish reason is terminal; an error ends the request at once;
a stream that the server closes cleanly is complete even when neither was sent. Whatever the server does, `text` is
exactly the deltas put together.
"""

from __future__ import annotations

import codecs
import enum
from typing import Any

from seekserve.client import failures, wire
from seekserve.client.request import Completion, Delta
from seekserve.errors import ProtocolError

__all__ = ["Assembler", "TextKind"]


class TextKind(enum.Enum):
    """What a server puts into `text_output`."""

    DELTA = "delta"
    """What was added (this backend, the stock ensemble)."""
    CUMULATIVE = "cumulative"
    """Everything so far (the stock BLS model with accumulate_tokens)."""


class Assembler:
    """State of one request's answer."""

    def __init__(
        self,
        *,
        url: str,
        sent_at_s: float,
        kind: TextKind = TextKind.DELTA,
        resume_token: str | None = None,
        received_bytes: int = 0,
    ) -> None:
        """`resume_token`, `received_bytes`: of a stream that is resumed."""
        self._url = url
        self.sent_at_s = sent_at_s
        self._kind = kind
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._so_far = b""
        self._deltas: list[Delta] = []
        self._responses = 0
        self._finish_reason: str | None = None
        self._prompt_tokens: int | None = None
        self._completion_tokens: int | None = None
        self._queue_ms: float | None = None
        self._logprobs: list[float] = []
        self._fresh_logprobs: tuple[float, ...] = ()
        self.resume_token: str | None = None
        """Once the server has given one."""
        self._cumulative_logprob: float | None = None
        self.chat_state: str | None = None
        """Of a chat, from its first response on."""
        self.served_by: str | None = None
        self._ttft_s: float | None = None
        self._ended_at_s: float | None = None
        self.resume_token = resume_token
        """Once the server has given one."""
        self.received_bytes = received_bytes
        """Of text, over all connections."""

    @property
    def is_terminal(self) -> bool:
        """True when no further data can come; the stream itself may still be open."""
        return self._ended_at_s is not None

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self._deltas)

    @property
    def progress(self) -> str:
        """What arrived so far, for messages; empty when nothing did."""
        if not self._responses:
            return ""
        tokens = "" if self._completion_tokens is None else f" with {self._completion_tokens} tokens"
        return f"after {self._responses} response{'s' if self._responses > 1 else ''}{tokens}"

    def feed(self, message: Any, now_s: float) -> Delta | None:
        """Takes one ModelStreamInferResponse; returns what it added. Raises the typed error that it carries."""
        if message.error_message:
            raise failures.from_message(message.error_message, self._url)
        response = message.infer_response
        self._responses += 1
        added = self._read_outputs(response)
        final = wire.FINAL_PARAMETER in response.parameters and response.parameters[wire.FINAL_PARAMETER].bool_param
        if (final or self._finish_reason) and self._ended_at_s is None:
            self._ended_at_s = now_s
        if added is None:
            return None
        return self._add(self._decoder.decode(added, final), now_s)

    def finish(self, now_s: float) -> Delta | None:
        """The stream has ended cleanly; returns the delta of a character that the server cut in the middle, if any."""
        if not self._responses:
            raise ProtocolError(f"{self._url} closed the stream without any response to the request")
        if self._ended_at_s is None:
            self._ended_at_s = now_s
        tail = self._decoder.decode(b"", True)
        return self._add(tail, now_s) if tail else None

    def completion(self) -> Completion:
        """Only after `finish`."""
        assert self._ended_at_s is not None
        return Completion(
            text=self.text,
            finish_reason=self._finish_reason,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            queue_ms=self._queue_ms,
            ttft_s=self._ttft_s,
            e2e_s=self._ended_at_s - self.sent_at_s,
            deltas=tuple(self._deltas),
            logprobs=tuple(self._logprobs),
            cumulative_logprob=self._cumulative_logprob,
            chat_state=self.chat_state,
            served_by=self.served_by,
        )

    def _read_outputs(self, response: Any) -> bytes | None:
        raw = response.raw_output_contents
        if len(raw) != len(response.outputs):
            raise ProtocolError(f"{self._url}: a response has {len(response.outputs)} outputs but {len(raw)} contents")
        added: bytes | None = None
        for tensor, content in zip(response.outputs, raw, strict=True):
            name = tensor.name
            if name == "text_output":
                added = self._added(wire.read_text(tensor, content))
            elif name == "finish_reason":
                self._finish_reason = wire.read_text(tensor, content).decode("utf-8", "replace") or self._finish_reason
            elif name in ("completion_tokens", "num_output_tokens"):
                self._completion_tokens = int(wire.read_number(tensor, content))
            elif name in ("prompt_tokens", "num_input_tokens"):
                self._prompt_tokens = int(wire.read_number(tensor, content))
            elif name == "resume_token":
                self.resume_token = wire.read_text(tensor, content).decode("utf-8", "replace") or None
            elif name == "served_by":
                self.served_by = wire.read_text(tensor, content).decode("utf-8", "replace") or None
            elif name == "queue_ms":
                self._queue_ms = float(wire.read_number(tensor, content))
            elif name == "chat_state":
                self.chat_state = wire.read_text(tensor, content).decode("utf-8", "replace")
            elif name == "output_log_probs":
                self._fresh_logprobs += wire.read_numbers(tensor, content)
            elif name == "cum_log_probs":
                (self._cumulative_logprob,) = wire.read_numbers(tensor, content)
        return added

    def _added(self, text: bytes) -> bytes:
        if self._kind is TextKind.DELTA:
            self.received_bytes += len(text)
            return text
        if not text.startswith(self._so_far):
            raise ProtocolError(
                f"{self._url}: text_output was declared cumulative, but response {self._responses} "
                f"({len(text)} bytes) does not begin with the {len(self._so_far)} bytes before it"
            )
        added = text[len(self._so_far) :]
        self._so_far = text
        return added

    def _add(self, text: str, now_s: float) -> Delta:
        logprobs, self._fresh_logprobs = self._fresh_logprobs, ()
        self._logprobs += logprobs
        delta = Delta(text, self._completion_tokens, self._queue_ms, now_s - self.sent_at_s, logprobs)
        if text and self._ttft_s is None:
            self._ttft_s = delta.at_s
        self._deltas.append(delta)
        return delta
