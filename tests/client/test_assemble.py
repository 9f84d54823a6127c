"""Text comes out whole, however the server cuts it, and always equals the deltas put together."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from fake_server import chunk, empty_final
from hypothesis import given
from hypothesis import strategies as st

from seekserve.client import Completion, Delta
from seekserve.client.assemble import Assembler, TextKind
from seekserve.errors import ProtocolError


def assemble(
    pieces: list[bytes], kind: TextKind = TextKind.DELTA, *, inline: bool = True
) -> tuple[list[Delta], Completion]:
    assembler = Assembler(url="u", sent_at_s=10.0, kind=kind)
    messages = [chunk(piece, final=inline and at == len(pieces) - 1) for at, piece in enumerate(pieces)]
    if not inline:
        messages.append(empty_final())
    deltas = [assembler.feed(message, 11.0 + at) for at, message in enumerate(messages)]
    deltas.append(assembler.finish(99.0))
    return [delta for delta in deltas if delta is not None], assembler.completion()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)] or [data]


@given(st.text(max_size=30), st.lists(st.integers(min_value=0), max_size=8), st.booleans())
def test_any_cut_even_inside_a_character_gives_the_same_text(text: str, places: list[int], inline: bool) -> None:
    pieces = cut(text.encode(), places)
    deltas, completion = assemble(pieces, inline=inline)
    assert completion.text == text == "".join(delta.text for delta in deltas)
    assert completion.deltas == tuple(deltas)


@given(st.text(max_size=30), st.lists(st.integers(min_value=0), max_size=8))
def test_cumulative_text_gives_the_same_as_deltas(text: str, places: list[int]) -> None:
    pieces = cut(text.encode(), places)
    so_far = [b"".join(pieces[: at + 1]) for at in range(len(pieces))]
    assert assemble(so_far, TextKind.CUMULATIVE)[0] == assemble(pieces)[0]


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=6), st.booleans())
def test_bytes_that_are_no_text_are_replaced_never_lost_or_fatal(pieces: list[bytes], inline: bool) -> None:
    deltas, completion = assemble(pieces, inline=inline)
    assert completion.text == b"".join(pieces).decode("utf-8", "replace") == "".join(delta.text for delta in deltas)


def test_the_first_delta_with_text_sets_ttft_and_the_terminal_response_sets_e2e() -> None:
    deltas, completion = assemble([b"", "é".encode()[:1], "é".encode()[1:], b"x"], inline=False)
    assert [delta.at_s for delta in deltas] == [1.0, 2.0, 3.0, 4.0]
    assert completion.ttft_s == 3.0
    assert completion.e2e_s == 5.0


def test_an_answer_without_text_has_no_ttft() -> None:
    _, completion = assemble([b""])
    assert completion.ttft_s is None
    assert completion.text == ""


def test_stock_token_counts_are_read_too() -> None:
    assembler = Assembler(url="u", sent_at_s=0.0)
    message = chunk("a", final=True, tokens=3, prompt_tokens=4)
    message.infer_response.outputs[1].name = "num_output_tokens"
    message.infer_response.outputs[2].name = "num_input_tokens"
    assembler.feed(message, 1.0)
    assembler.finish(1.0)
    completion = assembler.completion()
    assert (completion.completion_tokens, completion.prompt_tokens, completion.tokens_per_s) == (3, 4, 3.0)


def test_a_response_with_outputs_but_no_contents_is_a_protocol_error() -> None:
    message = chunk("a")
    del message.infer_response.raw_output_contents[:]
    with pytest.raises(ProtocolError, match="1 outputs but 0 contents"):
        Assembler(url="u", sent_at_s=0.0).feed(message, 1.0)


def test_log_probabilities_are_gathered_over_the_responses() -> None:
    assembler = Assembler(url="u", sent_at_s=0.0)
    for at, row in enumerate(([-0.5], [-1.0, -0.25])):
        message = chunk(b"ab", final=at == 1)
        for name, values in (("output_log_probs", row), ("cum_log_probs", [sum(row)])):
            message.infer_response.outputs.add(name=name, datatype="FP32", shape=[1, 1, len(values)])
            message.infer_response.raw_output_contents.append(struct.pack(f"<{len(values)}f", *values))
        assembler.feed(message, 1.0)
    assembler.finish(2.0)
    assert assembler.completion().logprobs == (-0.5, -1.0, -0.25)
    assert assembler.completion().cumulative_logprob == -1.25


def test_unknown_outputs_are_ignored() -> None:
    assembler = Assembler(url="u", sent_at_s=0.0)
    message = chunk("a", finish="stop")
    message.infer_response.outputs[1].name = "kv_cache_reused_blocks"
    delta = assembler.feed(message, 1.0)
    assert delta is not None
    assert delta.text == "a"
    assert not assembler.is_terminal
