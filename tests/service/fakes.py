"""Fakes as plain functions and records: a sink that remembers, an encoder that counts bytes, a small engine."""

from __future__ import annotations

import threading
from collections.abc import Callable

from seekserve_backend.answers import Chunk, Inbound, InvalidInput
from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import ClassPolicy, Policy
from seekserve_backend.contract.refusal import ErrorLine
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.engines.port import Engine, EngineInfo
from seekserve_backend.engines.synthetic import SyntheticEngine
from seekserve_backend.service import Service
from seekserve_backend.text.token_bytes import TokenBytes, VocabKind

LIMITS = Limits(max_seq_len_tokens=128, max_batch_size=4, max_num_tokens=64, prefill_chunk_tokens=32)
KV = KvCache(dtype="fp32", block_tokens=8, capacity_blocks=64, bytes_per_token=4)
# Ids are bytes, so that any text can come out of an engine that emits ids.
BYTES = TokenBytes([f"<0x{b:02X}>" for b in range(256)], (), VocabKind.SENTENCEPIECE)


class RecordingSink:
    """Keeps every answer; `done` is set by the first terminal one, and a second terminal is remembered as a fault."""

    def __init__(self) -> None:
        self.answers: list[Chunk | ErrorLine] = []
        self.terminals = 0
        self.done = threading.Event()
        self.has_left = False

    def send(self, chunk: Chunk) -> None:
        self.answers.append(chunk)
        if chunk.finish_reason is not None:
            self._end()

    def error(self, line: ErrorLine) -> None:
        self.answers.append(line)
        self._end()

    def is_cancelled(self) -> bool:
        return self.has_left and not self.done.is_set()

    def hold_s(self) -> float:
        return 0.0

    def _end(self) -> None:
        self.terminals += 1
        self.done.set()

    @property
    def text(self) -> str:
        return "".join(a.text for a in self.answers if isinstance(a, Chunk))

    @property
    def last(self) -> Chunk | ErrorLine:
        assert self.done.wait(10), f"no terminal answer, only {self.answers}"
        return self.answers[-1]


def engine_info(limits: Limits = LIMITS, kv: KvCache = KV, *, has_logprobs: bool = False) -> EngineInfo:
    return EngineInfo(
        kind="synthetic",
        max_seq_len_tokens=limits.max_seq_len_tokens,
        max_batch_size=limits.max_batch_size,
        block_tokens=kv.block_tokens,
        kv_total_blocks=kv.capacity_blocks,
        may_pause=kv.may_pause,
        vocab_size=256,
        eos_ids=(),
        has_logprobs=has_logprobs,
    )


def synthetic(token_id: int = ord("a")) -> Engine:
    return SyntheticEngine(engine_info(), token_id=token_id, chunk_tokens=LIMITS.prefill_chunk_tokens)


def encode(inbound: Inbound) -> tuple[int, ...]:
    if inbound.text == b"bad":
        raise InvalidInput("text_input", "the fake encoder refuses this")
    if inbound.text == b"crash":
        raise RuntimeError("the fake encoder broke")
    return tuple(inbound.text or b"") if inbound.input_ids is None else inbound.input_ids


def policy(max_queue_requests: int = 1000, deadline_ms: int = 60_000) -> Policy:
    classes = {"interactive": ClassPolicy(priority=0, max_queue_requests=max_queue_requests, deadline_ms=deadline_ms)}
    return Policy(classes=classes)


def service(engine_factory: Callable[[], Engine] = synthetic, *, with_policy: Policy | None = None) -> Service:
    chosen = with_policy or policy()
    return Service(
        scheduler=Scheduler(chosen, LIMITS, KV),
        policy=chosen,
        engine_factory=engine_factory,
        encode=encode,
        vocabulary=BYTES,
    )
