from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.engines.reference.batch import Chunk, group_packs, plan_step


@dataclass
class Sequence:
    prompt: int
    produced: int = 0
    cached_tokens: int = 0
    last_step: int = -1

    @property
    def known_tokens(self) -> int:
        return self.prompt + self.produced

    @property
    def is_decoding(self) -> bool:
        return self.produced > 0


def decoding(last_step: int = 0) -> Sequence:
    return Sequence(5, 1, 5, last_step)


def plan(sequences: list[Sequence], max_num_tokens: int = 100, chunk: int = 100) -> list[Chunk[Sequence]]:
    return plan_step(sequences, max_num_tokens=max_num_tokens, prefill_chunk_tokens=chunk)


def test_decoding_goes_before_prefill_of_earlier_requests() -> None:
    early, late = Sequence(40), decoding()
    assert [(c.sequence, c.tokens) for c in plan([early, late], max_num_tokens=10)] == [(late, 1), (early, 9)]


def test_prefill_is_first_come_first_served() -> None:
    first, second, third = Sequence(6), Sequence(6), Sequence(6)
    chunks = plan([first, second, third], max_num_tokens=8)
    assert [(c.sequence, c.tokens) for c in chunks] == [(first, 6), (second, 2)]


def test_a_chunk_is_at_most_the_chunk_limit_and_one_per_request_and_step() -> None:
    assert [c.tokens for c in plan([Sequence(50)], chunk=16)] == [16]


def test_only_the_chunk_with_the_last_known_token_yields_one() -> None:
    assert [c.yields_token for c in plan([Sequence(50)], chunk=16)] == [False]
    assert [c.yields_token for c in plan([Sequence(50, cached_tokens=40)], chunk=16)] == [True]
    assert [c.yields_token for c in plan([decoding()])] == [True]


@given(
    prompts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    max_num_tokens=st.integers(1, 12),
    chunk=st.integers(1, 12),
    outputs=st.integers(1, 6),
)
def test_every_request_is_finished_in_order_and_within_the_budget(
    prompts: list[int], max_num_tokens: int, chunk: int, outputs: int
) -> None:
    running = [Sequence(prompt) for prompt in prompts]
    steps = 0
    while running:
        chunks = plan(running, max_num_tokens, chunk)
        assert 0 < sum(c.tokens for c in chunks) <= max_num_tokens
        assert len({id(c.sequence) for c in chunks}) == len(chunks)
        for c in chunks:
            assert c.start == c.sequence.cached_tokens
            assert 0 < c.tokens <= chunk
            c.sequence.last_step = steps
            c.sequence.cached_tokens, c.sequence.produced = c.context_tokens, c.sequence.produced + c.yields_token
        running = [sequence for sequence in running if sequence.produced < outputs]
        steps += 1
    assert steps <= sum(prompts) + outputs * len(prompts)


def test_more_decoding_requests_than_budget_take_turns_with_prefill() -> None:
    running = [decoding() for _ in range(5)] + [Sequence(2)]
    served = {id(sequence): 0 for sequence in running}
    for step in range(1, 7):
        for c in plan(running, max_num_tokens=2):
            served[id(c.sequence)] += 1
            c.sequence.last_step = step
    assert min(served.values()) >= 1


@given(
    work=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=12),
    pack_tokens=st.integers(1, 30),
    pack_context=st.integers(1, 100),
)
def test_packs_keep_order_and_limits_unless_one_chunk_is_larger(
    work: list[tuple[int, int]], pack_tokens: int, pack_context: int
) -> None:
    chunks = [Chunk(Sequence(start + tokens), start, tokens) for start, tokens in work]
    packs = group_packs(chunks, pack_tokens=pack_tokens, pack_context_tokens=pack_context)
    assert [chunk for pack in packs for chunk in pack] == chunks
    for pack in packs:
        assert pack
        within = sum(c.tokens for c in pack) <= pack_tokens and sum(c.context_tokens for c in pack) <= pack_context
        assert within or len(pack) == 1
