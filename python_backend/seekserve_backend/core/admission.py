"""What every policy asks of a request: which are taken, with what output limit, and why others are not.

It judges and changes nothing. A request that can never fit is told so (no hint); one that came at a bad time gets
`ahead`, from which the scheduler computes when to come back. The same bounds hold for probes, except those of load.
"""

from __future__ import annotations

import difflib

from ..contract.bundle import KvCache, Limits
from ..contract.policy import Policy
from ..contract.refusal import ErrorCode
from .entry import Entry
from .gate import Gate
from .refusals import Refusal, Why
from .types import Request

__all__ = ["Admission", "Admitted", "Refusal"]

_SHOWN_CHARS = 64


Admitted = tuple[int, int, int]
"""max_tokens, KV blocks that it needs to be started, deadline in ms."""


class Admission:
    def __init__(self, policy: Policy, limits: Limits, kv: KvCache) -> None:
        self.policy = policy
        self._limits = limits
        self._kv = kv

    def judge_bytes(self, prompt_bytes: int, *, intake: int, waiting: int, is_probe: bool) -> Refusal | None:
        """At arrival, before tokenising; `intake` and `waiting` are the requests ahead."""
        limit_bytes, limit_requests = self.policy.max_prompt_bytes, self.policy.max_intake_requests
        if prompt_bytes > limit_bytes:
            return Refusal(
                code=ErrorCode.TOO_LARGE,
                why=Why.TOO_LARGE,
                field="prompt",
                reason=f"the prompt has {prompt_bytes} bytes, at most {limit_bytes} are taken; shorten it",
            )
        if intake >= limit_requests and not is_probe:
            return Refusal(
                code=ErrorCode.OVERLOADED,
                why=Why.INTAKE_FULL,
                ahead=intake + waiting,
                reason=f"{intake} requests are waiting to be tokenised, at most {limit_requests} may",
            )
        return None

    def judge_class(self, request_class: str) -> Refusal:
        """Of a class that the policy does not have."""
        names = list(self.policy.classes)
        shown = request_class[:_SHOWN_CHARS]
        near = difflib.get_close_matches(shown, names, 1)
        return Refusal(
            code=ErrorCode.INVALID,
            why=Why.INVALID,
            field="request_class",
            reason=f"request_class {shown!r} is not one of {', '.join(names)}"
            + (f" (did you mean {near[0]}?)" if near else ""),
        )

    def judge(
        self, request: Request, entry: Entry, now: float, gate: Gate, capacity_blocks: int, *, is_routed: bool = False
    ) -> Admitted | Refusal:
        """A tokenised request of a known class. What it asks for is judged before how busy the server is.

        `is_routed`: it is not going to wait here.
        """
        prompt_tokens = request.prompt_tokens
        rules = self.policy.classes[entry.request_class]
        room, kv_tokens = self._limits.max_seq_len_tokens, capacity_blocks * self._kv.block_tokens
        room = (kv_tokens if kv_tokens < room else room) - prompt_tokens
        most_prompt, most = rules.max_prompt_tokens, rules.max_output_tokens
        is_long = most_prompt is not None and prompt_tokens - request.answer_tokens > most_prompt
        if room < 1 or prompt_tokens < 1 or is_long:
            return self._no_room(prompt_tokens, capacity_blocks, entry.request_class)
        if most is not None and most < room:
            room = most
        max_tokens = self.policy.default_max_tokens if request.max_tokens is None else request.max_tokens
        if not 1 <= max_tokens <= room:
            wrong = self._wrong_max_tokens(request, room, most, entry.request_class)
            if wrong is not None:
                return wrong
            max_tokens = room
        deadline_ms = request.deadline_ms
        if deadline_ms is None:
            deadline_ms = int(rules.deadline_ms + rules.deadline_ms_per_token * prompt_tokens)
        if deadline_ms < 1 or now >= request.arrival_s + deadline_ms / 1000.0:
            return self._late(request, deadline_ms, entry, now, gate)
        is_full = gate.waiting(entry.request_class) >= rules.max_queue_requests
        if is_full and not (entry.is_probe or is_routed):
            return Refusal(
                code=ErrorCode.OVERLOADED,
                why=Why.QUEUE_FULL,
                ahead=gate.ahead(entry.request_class),
                reason=f"{gate.waiting(entry.request_class)} requests of class {entry.request_class} are waiting, "
                f"at most {rules.max_queue_requests} may",
            )
        # An engine that may pause takes whatever it can begin with; a policy may know better (`Gate.prepare`).
        answer_tokens = 1 if self._kv.may_pause else max_tokens
        return max_tokens, self._kv.blocks_for(prompt_tokens + answer_tokens), deadline_ms

    def _no_room(self, prompt_tokens: int, capacity_blocks: int, name: str) -> Refusal:
        """Nothing can be produced after this prompt in what the sequence limit and the cache leave to its class, or its
        class takes none that long."""
        if prompt_tokens < 1:
            return Refusal(
                code=ErrorCode.INVALID,
                why=Why.INVALID,
                field="prompt",
                reason="the prompt has 0 tokens; at least 1 is needed",
            )
        seq_tokens, kv_tokens = self._limits.max_seq_len_tokens, capacity_blocks * self._kv.block_tokens
        if prompt_tokens >= seq_tokens:
            return Refusal(
                code=ErrorCode.TOO_LARGE,
                why=Why.TOO_LARGE,
                field="prompt",
                reason=f"the prompt has {prompt_tokens} tokens, at most {seq_tokens - 1} are taken "
                f"(sequence limit {seq_tokens}); shorten it",
            )
        if prompt_tokens >= kv_tokens:
            return Refusal(
                code=ErrorCode.TOO_LARGE,
                why=Why.TOO_LARGE,
                field="prompt",
                reason=f"the prompt has {prompt_tokens} tokens and the KV cache holds {kv_tokens} for class {name}; "
                "shorten it",
            )
        return Refusal(
            code=ErrorCode.TOO_LARGE,
            why=Why.TOO_LARGE,
            field="prompt",
            reason=f"the prompt has {prompt_tokens} tokens, class {name} takes at most "
            f"{self.policy.classes[name].max_prompt_tokens}; shorten it, or send it as another class",
        )

    def _wrong_max_tokens(self, request: Request, room: int, most: int | None, name: str) -> Refusal | None:
        """None: it is too much and may be lowered to `room`. `most`: of its class."""
        asked = request.max_tokens
        if asked is None:
            return None
        if asked < 1:
            return Refusal(
                code=ErrorCode.INVALID,
                why=Why.INVALID,
                field="max_tokens",
                reason=f"max_tokens is {asked}; it must be at least 1",
            )
        if not self.policy.clamp_max_tokens:
            leaves = f"a prompt of {request.prompt_tokens} tokens leaves"
            bound = f"class {name} takes at most" if room == most else leaves
            return Refusal(
                code=ErrorCode.TOO_LARGE,
                why=Why.TOO_LARGE,
                field="max_tokens",
                reason=f"max_tokens is {asked}, {bound} {room}; lower it",
            )
        return None

    def _late(self, request: Request, deadline_ms: int, entry: Entry, now: float, gate: Gate) -> Refusal:
        if deadline_ms < 1:
            return Refusal(
                code=ErrorCode.INVALID,
                why=Why.INVALID,
                field="deadline_ms",
                reason=f"deadline_ms is {deadline_ms}; it must be at least 1",
            )
        waited_ms = (now - request.arrival_s) * 1000.0
        return Refusal(
            code=ErrorCode.EXPIRED,
            why=Why.EXPIRED,
            ahead=gate.ahead(entry.request_class),
            reason=f"{waited_ms:.0f} ms passed before the request could be queued, its deadline was {deadline_ms} ms",
        )
