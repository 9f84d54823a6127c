"""Bodies to requests: every range and null case of the protocol, as a table. What is not taken is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve.gateway.ask import WHOLE_WINDOW_TOKENS, Ask, read_ask
from seekserve.gateway.problems import ProblemError

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RAW: dict[str, Any] = {"model": "m", "prompt": "hi"}


def chat(**more: Any) -> Ask:
    return read_ask({**CHAT, **more}, is_chat=True)


def raw(**more: Any) -> Ask:
    return read_ask({**RAW, **more}, is_chat=False)


def refusal(body: Any, *, is_chat: bool = True) -> tuple[str | None, str]:
    with pytest.raises(ProblemError) as caught:
        read_ask(body, is_chat=is_chat)
    assert caught.value.problem.status == 400
    return caught.value.problem.param, caught.value.problem.message


# Group H of the users' reports. Taken: the value, and what of the client's request it becomes (None: not sent at all).
TAKEN: list[tuple[str, Any, str, Any]] = [
    ("max_tokens", 7, "max_tokens", 7),
    ("max_tokens", 7.0, "max_tokens", 7),
    ("max_tokens", None, "max_tokens", WHOLE_WINDOW_TOKENS),
    ("max_completion_tokens", 9, "max_tokens", 9),
    ("max_completion_tokens", None, "max_tokens", WHOLE_WINDOW_TOKENS),
    ("top_k", -1, "top_k", None),
    ("top_k", 0, "top_k", None),
    ("top_k", None, "top_k", None),
    ("top_k", 40, "top_k", 40),
    ("top_p", 1, "top_p", 1.0),
    ("top_p", None, "top_p", None),
    ("temperature", 0, "temperature", 0.0),
    ("temperature", 2, "temperature", 2.0),
    ("temperature", None, "temperature", None),
    ("n", None, "seed", None),
    ("stop", None, "stop", None),
    ("stop", "", "stop", None),
    ("stop", [], "stop", None),
    ("stop", ["", ""], "stop", None),
    ("stop", "END", "stop", ("END",)),
    ("stop", ["a", "", "b"], "stop", ("a", "b")),
    ("seed", 2**63 - 1, "seed", 2**63 - 1),
    ("seed", -1, "seed", 2**64 - 1),
    ("seed", None, "seed", None),
    ("presence_penalty", -2, "presence_penalty", -2.0),
    ("frequency_penalty", 2, "frequency_penalty", 2.0),
    ("frequency_penalty", None, "frequency_penalty", None),
    ("logit_bias", {}, "logprobs", None),
    ("logit_bias", None, "logprobs", None),
    ("user", "someone", "tenant", None),
    ("response_format", {"type": "text"}, "guided_decoding_guide_type", None),
    ("response_format", {"type": "json_object"}, "guided_decoding_guide_type", "json"),
    ("tools", None, "chat_options", None),
    ("tools", [], "chat_options", None),
    ("chat_template_kwargs", None, "chat_options", None),
    ("chat_template_kwargs", {"thinking": True}, "chat_options", {"chat_template_kwargs": {"thinking": True}}),
    ("thinking", {"type": "disabled"}, "chat_options", {"thinking": False}),
    ("reasoning_effort", "high", "chat_options", {"reasoning_effort": "high"}),
]

REFUSED: list[tuple[str, Any, str]] = [
    ("max_tokens", 0, "at least 1"),
    ("max_tokens", -1, "at least 1"),
    ("max_tokens", 2**31, "at most 2147483647"),
    ("max_tokens", 1.5, "whole number"),
    ("max_tokens", "10", "whole number"),
    ("max_tokens", True, "whole number"),
    ("max_completion_tokens", 0, "at least 1"),
    ("top_k", -2, "off"),
    ("top_k", 2**31, "at most"),
    ("top_p", 0, "above 0"),
    ("top_p", 1.1, "at most 1, got 1.1"),
    ("top_p", -0.5, "above 0"),
    ("temperature", -1, "at least 0"),
    ("temperature", 2.5, "at most 2"),
    ("temperature", "hot", "a number"),
    ("temperature", float("nan"), "a number"),
    ("temperature", float("inf"), "a number"),
    ("n", 0, "at least 1"),
    ("n", 17, "at most 16"),
    ("seed", 2**63, "at most"),
    ("seed", -(2**63) - 1, "at least"),
    ("stop", 3, "list of texts"),
    ("stop", ["a", 3], "list of texts"),
    ("stop", [str(n) for n in range(17)], "at most 16"),
    ("presence_penalty", 2.1, "at most 2"),
    ("frequency_penalty", -2.1, "at least -2"),
    ("repetition_penalty", 0, "above 0"),
    ("logit_bias", {"50256": -100}, "leave it out"),
    ("logprobs", 3, "true or false"),
    ("top_logprobs", 2, "send 0"),
    ("functions", [{"name": "f"}], "use tools"),
    ("parallel_tool_calls", False, "leave it out, or send True"),
    ("store", True, "leave it out"),
    ("response_format", {"type": "xml"}, "json_schema"),
    ("response_format", {"type": "json_schema"}, "must be an object"),
    ("response_format", "json", "an object"),
    ("tools", {"type": "function"}, "list of objects"),
    ("tool_choice", "required", "needs tools"),
    ("chat_template_kwargs", "thinking", "an object"),
    ("thinking", "yes", "true, false"),
    ("stream", "true", "true or false"),
    ("stream_options", {"include_usage": True}, "only together with stream"),
    ("model", None, "missing"),
    ("model", "", "missing"),
    ("model", 3, "a text"),
    ("messages", None, "at least one message"),
    ("messages", [], "at least one message"),
    ("messages", "hi", "at least one message"),
    ("max_new_tokens", 4, "unknown field"),
    ("temprature", 4, "did you mean temperature"),
    ("ignore_eos", True, "needs max_tokens"),
    ("best_of", 3, "must be n (1)"),
]


@pytest.mark.parametrize(("name", "value", "target", "sent"), TAKEN, ids=[f"{r[0]}={r[1]!r:.20}" for r in TAKEN])
def test_what_is_taken_becomes_what_is_sent(name: str, value: Any, target: str, sent: Any) -> None:
    assert getattr(chat(**{name: value}).request(0), target) == sent


@pytest.mark.parametrize(("name", "value", "says"), REFUSED, ids=[f"{r[0]}={r[1]!r:.20}" for r in REFUSED])
def test_what_cannot_be_taken_is_a_400_that_names_the_field_and_the_bound(name: str, value: Any, says: str) -> None:
    param, message = refusal({**CHAT, name: value})
    assert param == name
    assert message.startswith(f"{name}: ")
    assert says in message


def test_every_fault_is_reported_at_once_and_the_first_is_the_param() -> None:
    param, message = refusal({"model": "m", "messages": [], "top_p": 2, "nonsense": 1})
    assert param == "top_p"
    assert all(each in message for each in ("top_p: ", "messages: ", "nonsense: "))


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    assert "JSON object" in refusal(body)[1]


def test_max_completion_tokens_goes_first_and_a_conflict_is_told() -> None:
    both = chat(max_tokens=5, max_completion_tokens=9)
    assert both.request(0).max_tokens == 9
    assert both.notes == ("max_completion_tokens 9 goes before max_tokens 5",)
    assert chat(max_tokens=9, max_completion_tokens=9).notes == ()


def test_a_completion_without_a_limit_is_left_to_the_server() -> None:
    assert raw().request(0).max_tokens is None


def test_each_choice_of_one_prompt_has_a_seed_of_its_own() -> None:
    ask = raw(prompt=["a", "b"], n=2, seed=2**63 - 1, temperature=1)
    requests = [ask.request(choice) for choice in range(ask.choices)]
    assert [request.prompt for request in requests] == ["a", "a", "b", "b"]
    assert [request.seed for request in requests] == [2**63 - 1, 2**63, 2**63 - 1, 2**63]


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("hi", [{"prompt": "hi"}]),
        (["a", "b"], [{"prompt": "a"}, {"prompt": "b"}]),
        ([1, 2], [{"input_ids": (1, 2)}]),
        ([[1], [2, 3]], [{"input_ids": (1,)}, {"input_ids": (2, 3)}]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, sent: list[Any]) -> None:
    assert list(raw(prompt=prompt).prompts) == sent


@pytest.mark.parametrize("prompt", [None, [], {}, 3, ["a", 1], [[]], [-1], [2**31], [True]])
def test_any_other_form_of_a_prompt_is_refused(prompt: Any) -> None:
    assert refusal({**RAW, "prompt": prompt}, is_chat=False)[0] == "prompt"


def test_too_many_answers_in_one_request_are_refused() -> None:
    assert "at most 64" in refusal({**RAW, "prompt": ["a"] * 33, "n": 2}, is_chat=False)[1]


MESSAGES: list[tuple[Any, str | None, str]] = [
    ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, None, "a\nb"),
    ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, None, ""),
    ({"role": "user", "content": None}, "messages[0].content", "missing"),
    ({"role": "user", "content": 3}, "messages[0].content", "expected a text"),
    ({"role": "robot", "content": "x"}, "messages[0].role", "one of system, user"),
    ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content", "image_url"),
    ("hi", "messages[0]", "an object"),
]


@pytest.mark.parametrize(("message", "param", "text"), MESSAGES)
def test_messages(message: Any, param: str | None, text: str) -> None:
    if param is None:
        assert chat(messages=[message]).prompts[0]["messages"][0].get("content", "") == text
    else:
        named, says = refusal({**CHAT, "messages": [message]})
        assert named == param
        assert text in says


GUIDES: list[tuple[dict[str, Any], tuple[str, str]]] = [
    ({"guided_regex": "[0-9]+"}, ("regex", "[0-9]+")),
    ({"guided_json": {"type": "object"}}, ("json_schema", '{"type": "object"}')),
    ({"guided_grammar": 'root ::= "a"'}, ("ebnf_grammar", 'root ::= "a"')),
    ({"response_format": {"type": "regex", "regex": "a+"}}, ("regex", "a+")),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}}},
        ("json_schema", '{"type": "array"}'),
    ),
]


@pytest.mark.parametrize(("body", "guide"), GUIDES)
def test_guides_travel_under_the_stock_tensors_names(body: dict[str, Any], guide: tuple[str, str]) -> None:
    request = chat(**body).request(0)
    assert (request.guided_decoding_guide_type, request.guided_decoding_guide) == guide


def test_two_guides_are_a_contradiction() -> None:
    assert "not together" in refusal({**CHAT, "guided_regex": "a", "guided_json": {}})[1]


def test_log_probabilities_are_read_piece_by_piece_also_for_a_whole_answer() -> None:
    assert (chat(logprobs=True).request(0).logprobs, chat(logprobs=True).request(0).stream) == (True, True)
    assert chat().request(0).stream is False
    assert raw(logprobs=0).request(0).logprobs is True
    assert "send 0" in refusal({**RAW, "logprobs": 5}, is_chat=False)[1]


def test_a_length_that_is_asked_for_regardless_of_the_end() -> None:
    request = raw(ignore_eos=True, max_tokens=12).request(0)
    assert (request.max_tokens, request.min_tokens) == (12, 12)
