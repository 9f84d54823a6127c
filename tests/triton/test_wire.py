"""Tensors in, nouns out: what is honoured, what is refused and with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.fake_utils import Request, number, text

from seekserve_backend.answers import Chunk, InvalidInput
from seekserve_backend.engines.port import Guide
from seekserve_backend.triton.wire import read_request, response_values


def read(tensors: dict[str, Any], **more: Any) -> Any:
    return read_request(Request(tensors, **more), probe_key="secret")


def test_the_stock_minimum_is_enough() -> None:
    got = read({"text_input": text("hi"), "max_tokens": number(7), "stream": number(True, np.bool_)}, request_id="c1")
    assert (got.text, got.max_tokens, got.stream, got.client_id) == (b"hi", 7, True, "c1")
    assert got.sampling.temperature == 0.0
    assert not got.echo_prompt


def test_every_used_input_arrives() -> None:
    got = read(
        {
            "messages": text('[{"role":"user","content":"hi"}]'),
            "stop_words": text("END", "", "停"),
            "end_id": number(-1),
            "temperature": number(0.5, np.float32),
            "top_k": number(5),
            "top_p": number(0.0, np.float32),
            "seed": number(2**60, np.uint64),
            "repetition_penalty": number(1.5, np.float32),
            "presence_penalty": number(-1.0, np.float32),
            "frequency_penalty": number(1.0, np.float32),
            "min_tokens": number(2),
            "request_class": text("offline"),
            "tenant": text("team-a"),
            "deadline_ms": number(900),
            "exclude_input_in_output": number(False, np.bool_),
            "return_num_input_tokens": number(True, np.bool_),
            "return_log_probs": number(True, np.bool_),
            "beam_width": number(4),
            "stream": number(True, np.bool_),
            "heartbeat_ms": number(100),
        }
    )
    assert got.stop_words == ("END", "停")
    assert got.end_id is None
    sampling = got.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.5, 5, 1.0, 2**60)
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.5, -1.0, 1.0)
    assert (got.request_class, got.tenant, got.deadline_ms) == ("offline", "team-a", 900)
    assert got.echo_prompt
    assert got.wants_num_input_tokens
    assert (got.wants_logprobs, got.beam_width) == (True, 4)
    assert (got.heartbeat_ms, got.resumable, got.resume_token) == (100, False, None)


def test_a_return_needs_its_token_and_no_prompt() -> None:
    wish = {"resume_token": text("t0k"), "resume_from_bytes": number(7), "tenant": text("a")}
    got = read({**wish, "stream": number(True, np.bool_), "text_input": text("")}, request_id="c9")
    assert (got.resume_token, got.resume_from_bytes, got.tenant, got.client_id) == ("t0k", 7, "a", "c9")
    assert (got.text, got.stream, got.resume_cancel) == (None, True, False)
    assert read({**wish, "resume_cancel": number(True, np.bool_)}).resume_cancel
    assert read({}, parameters={"resume_token": "t0k", "x-tenant": "a"}).tenant == "a"


GUIDES: list[tuple[dict[str, str], Any]] = [
    ({"type": "", "guide": ""}, None),
    ({"type": "json"}, Guide(kind="json", text="")),
    ({"type": "json", "guide": ""}, Guide(kind="json", text="")),
    ({"type": "regex", "guide": "[0-9]+"}, Guide(kind="regex", text="[0-9]+")),
    ({"type": "json_schema", "guide": '{"type":"object"}'}, Guide(kind="json_schema", text='{"type":"object"}')),
    ({"type": "ebnf_grammar", "guide": 'root ::= "a"'}, Guide(kind="ebnf_grammar", text='root ::= "a"')),
    ({"guide": "x"}, "of which kind"),
    ({"type": "xml", "guide": "x"}, "is not one of json"),
    ({"type": "json", "guide": "{}"}, "takes no guide"),
    ({"type": "regex"}, "needs a text"),
    ({"type": "json_schema", "guide": "[]"}, "an object in JSON"),
    ({"type": "json_schema", "guide": "{"}, "an object in JSON"),
    ({"type": "regex", "guide": "a" * 65_537}, "at most 65536"),
]


@pytest.mark.parametrize(("sent", "expected"), GUIDES)
def test_guides(sent: dict[str, str], expected: Any) -> None:
    names = {"type": "guided_decoding_guide_type", "guide": "guided_decoding_guide"}
    tensors = {"text_input": text("a"), **{names[key]: text(value) for key, value in sent.items()}}
    if isinstance(expected, str):
        with pytest.raises(InvalidInput, match=expected):
            read(tensors)
    else:
        assert read(tensors).sampling.guide == expected


def test_chat_options_go_with_messages_only() -> None:
    options = text('{"thinking":true}')
    got = read({"messages": text("[]"), "chat_options": options})
    assert (got.chat_options, got.prompt_bytes) == (b'{"thinking":true}', 2 + 17)
    assert read({"messages": text("[]"), "chat_options": text("")}).chat_options is None
    for prompt in ({"text_input": text("a")}, {"input_ids": number(1)}):
        with pytest.raises(InvalidInput, match="only together with messages"):
            read({**prompt, "chat_options": options})
        assert read({**prompt, "chat_options": text("")}).chat_options is None


def test_headers_and_parameters_mean_the_same_as_tensors() -> None:
    got = read({"text_input": text("x")}, parameters={"X-Request-Type": "offline", "tenant": "t", "x-deadline-ms": "5"})
    assert (got.request_class, got.tenant, got.deadline_ms) == (None, "t", 5)
    assert got.headers == {"x-request-type": "offline", "x-deadline-ms": "5"}, "what a type means is the policy's"
    both = {"x-request-type": "offline", "request_class": "interactive"}
    assert read({"text_input": text("x")}, parameters=both).request_class == "interactive"


def test_only_the_launch_key_makes_a_probe() -> None:
    assert read({"text_input": text("x")}, parameters={"seekserve_probe": "secret"}).is_probe
    assert not read({"text_input": text("x")}, parameters={"seekserve_probe": "guess"}).is_probe
    assert not read_request(
        Request({"text_input": text("x")}, parameters={"seekserve_probe": ""}), probe_key=None
    ).is_probe


def test_an_empty_text_input_beside_the_meant_one_is_allowed() -> None:
    assert read({"text_input": text(""), "input_ids": np.array([[1, 2]], np.int32)}).input_ids == (1, 2)


@pytest.mark.parametrize(
    ("tensors", "field", "words"),
    [
        ({}, "text_input", "got none"),
        ({"text_input": text("a"), "messages": text("[]")}, "text_input", "exactly one"),
        ({"text_input": text("a", "b")}, "text_input", "expected 1 value, got 2"),
        ({"text_input": np.array([[b"a"], [b"b"]], dtype=np.object_)}, "text_input", "batch of 2"),
        ({"text_input": text("a"), "max_tokens": number(0)}, "max_tokens", "0 is below the least allowed, 1"),
        ({"text_input": text("a"), "top_p": number(1.5, np.float32)}, "top_p", "1.5 is outside"),
        ({"text_input": text("a"), "temperature": number(np.nan, np.float32)}, "temperature", "nan is outside"),
        ({"text_input": text("a"), "repetition_penalty": number(0.0, np.float32)}, "repetition_penalty", "above 0"),
        ({"text_input": text("a"), "beam_width": number(0)}, "beam_width", "0 is below the least allowed, 1"),
        ({"text_input": text("a"), "bad_words": text("x")}, "bad_words", "not supported"),
        ({"text_input": text("a"), "return_log_probs": number(7)}, "return_log_probs", "true or false"),
        ({"text_input": text("a"), "stop_words": text(b"\xff")}, "stop_words", "not UTF-8"),
        ({"text_input": text("a"), "stop_words": text(*["x"] * 17)}, "stop_words", "17 texts, at most 16"),
        ({"text_input": text("a"), "tenant": text("t" * 200)}, "tenant", "at most 128"),
        ({"text_input": text("a"), "deadline_ms": number(-5)}, "deadline_ms", "-5 is below"),
        ({"text_input": text("a"), "stream": number(7)}, "stream", "true or false"),
        ({"text_input": text("a"), "heartbeat_ms": number(99)}, "heartbeat_ms", "99 is below the least allowed, 100"),
        ({"text_input": text("a"), "heartbeat_ms": number(100)}, "heartbeat_ms", "needs stream true"),
        ({"text_input": text("a"), "resumable": number(True, np.bool_)}, "resumable", "needs stream true"),
        (
            {
                "text_input": text("a"),
                "resumable": number(True, np.bool_),
                "stream": number(True, np.bool_),
                "exclude_input_in_output": number(False, np.bool_),
            },
            "resumable",
            "not together with exclude_input_in_output",
        ),
        ({"text_input": text("a"), "resume_from_bytes": number(3)}, "resume_from_bytes", "goes with a resume_token"),
        ({"resume_token": text("t"), "max_tokens": number(3)}, "max_tokens", "with the first request"),
        ({"resume_token": text("t"), "text_input": text("a")}, "text_input", "with the first request"),
        ({"resume_token": text("t"), "resume_from_bytes": number(-1)}, "resume_from_bytes", "-1 is below"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(tensors: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tensors)
    assert caught.value.field == field
    assert words in caught.value.reason


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("deadline_ms", "9" * 20, "above the largest allowed, 2147483647"),
        ("deadline_ms", "9" * 400, "expected a whole number"),
        ("x-deadline-ms", 10**400, "above the largest allowed"),
        ("end_id", 2**40, "above the largest allowed"),
        ("seed", 2**64, "above the largest allowed, 18446744073709551615"),
        ("max_tokens", "--5", "expected a whole number"),
        ("max_tokens", 1.5, "expected a whole number"),
        ("stream", "maybe", "true or false"),
        ("top_p", "x", "expected a number"),
    ],
)
def test_parameters_are_held_to_the_tensors_types(name: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read({"text_input": text("a")}, parameters={name: value})
    assert words in caught.value.reason


def test_booleans_as_parameters_are_read_as_words() -> None:
    assert not read({"text_input": text("a")}, parameters={"stream": "false"}).stream
    assert read({"text_input": text("a")}, parameters={"stream": "True"}).stream


def test_hardly_any_temperature_is_greedy() -> None:
    assert read({"text_input": text("a"), "temperature": number(1e-40, np.float32)}).sampling.temperature == 0.0


def test_neutral_values_of_unsupported_inputs_pass() -> None:
    got = read({"text_input": text("a"), "beam_width": number(1), "bad_words": text(""), "pad_id": number(9)})
    assert (got.wants_logprobs, got.beam_width) == (False, 1)


def test_a_response_carries_only_what_it_has() -> None:
    assert response_values(Chunk(text="x", completion_tokens=1)) == [("text_output", "x")]
    last = Chunk(text="", completion_tokens=3, finish_reason="stop", prompt_tokens=2, queue_ms=0.5)
    assert [name for name, _ in response_values(last)] == [
        "text_output", "finish_reason", "prompt_tokens", "completion_tokens", "queue_ms",
    ]  # fmt: skip


def test_the_state_of_a_chat_is_said() -> None:
    chunk = Chunk(text="x", completion_tokens=1, chat_state="thinking")
    assert response_values(chunk) == [("text_output", "x"), ("chat_state", "thinking")]


def test_log_probabilities_are_one_row_and_their_sum() -> None:
    values = response_values(Chunk(text="x", completion_tokens=2, logprobs=(-0.5, -1.0), cumulative_logprob=-1.5))
    assert values == [("text_output", "x"), ("output_log_probs", (-0.5, -1.0)), ("cum_log_probs", -1.5)]
