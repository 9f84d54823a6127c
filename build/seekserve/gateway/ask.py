"""A body of the OpenAI API -> what to ask of a backend: one request of the typed client for each choice. Pure.

Absent fields stay absent, so the server's own defaults apply. Two are answered here: a chat without a limit may use
the rest of the window (an OpenAI chat does not end in the middle of a sentence), and `max_completion_tokens` goes
before `max_tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seekserve.client import GenerateRequest
from seekserve.gateway.messages import read_messages
from seekserve.gateway.params import NUMBERS, Reader
from seekserve.gateway.problems import Problem, ProblemError

__all__ = ["Ask", "read_ask"]

WHOLE_WINDOW_TOKENS = 2**31 - 1
"""Lowered by the server to what the prompt leaves (its policy's `clamp_max_tokens`)."""
_MOST_STOPS = 16
_MOST_CHOICES = 64
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_GUIDES = (("guided_regex", "regex"), ("guided_json", "json_schema"), ("guided_grammar", "ebnf_grammar"))
_Problems = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    model: str
    is_chat: bool
    prompts: tuple[Mapping[str, Any], ...]
    """Each names exactly one of prompt, messages and input_ids of the client's request."""
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    wants_logprobs: bool = False
    seed: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was decided between two fields that contradict each other; told to the caller in a header."""

    @property
    def choices(self) -> int:
        return self.n * len(self.prompts)

    def request(self, choice: int, **more: Any) -> GenerateRequest:
        """The request for one choice; choices of one prompt get seeds of their own, or they would all be the same."""
        seed = None if self.seed is None else (self.seed + choice % self.n) % 2**64
        # Log probabilities are told apart by token only while each piece of text is.
        is_streamed = self.stream or self.wants_logprobs
        return GenerateRequest(
            **self.prompts[choice // self.n], **{**self.fields, **more}, seed=seed, stream=is_streamed
        )


def read_ask(body: Any, *, is_chat: bool) -> Ask:
    """Raises ProblemError (400) that names every field which cannot be taken."""
    if not isinstance(body, Mapping):
        raise _invalid([("", f"the body must be a JSON object, got {type(body).__name__}")])
    reader = Reader(body)
    numbers = {each.name: reader.number(each) for each in NUMBERS}
    notes: list[str] = []
    prompts = _chat_prompt(reader) if is_chat else _prompts(reader)
    fields: dict[str, Any] = {name: numbers[name] for name in _SAMPLING if numbers[name] is not None}
    max_tokens = _max_tokens(numbers, notes)
    if max_tokens is None and is_chat:
        max_tokens = WHOLE_WINDOW_TOKENS
    if max_tokens is not None:
        fields["max_tokens"] = max_tokens
    if stops := reader.texts("stop", _MOST_STOPS):
        fields["stop"] = stops
    if reader.boolean("ignore_eos"):
        _ignore_eos(reader, numbers, fields)
    wants_logprobs = _logprobs(reader, is_chat=is_chat)
    if wants_logprobs:
        fields["logprobs"] = True
    fields.update(_guide(reader))
    fields.update(_chat_options(reader) if is_chat else _raw_options(reader))
    stream = reader.boolean("stream")
    include_usage = _include_usage(reader, stream=stream)
    model = reader.text("model") or ""
    if not model:
        reader.bad("model", "missing; GET /v1/models lists what is served")
    n = numbers["n"] or 1
    _check_best_of(reader, n)
    reader.rest()
    if n * len(prompts) > _MOST_CHOICES:
        reader.bad("n", f"{n} answers to each of {len(prompts)} prompts, at most {_MOST_CHOICES} in one request")
    if reader.problems:
        raise _invalid(reader.problems)
    return Ask(
        model=model,
        is_chat=is_chat,
        prompts=prompts,
        n=n,
        stream=stream,
        include_usage=include_usage,
        wants_logprobs=wants_logprobs,
        seed=None if numbers["seed"] is None else numbers["seed"] % 2**64,
        fields=fields,
        notes=tuple(notes),
    )


def _invalid(problems: _Problems) -> ProblemError:
    text = "; ".join(f"{name}: {sentence}" if name else sentence for name, sentence in problems)
    return ProblemError(Problem(status=400, code="invalid", message=text, kind="invalid", param=problems[0][0] or None))


def _max_tokens(numbers: Mapping[str, Any], notes: list[str]) -> int | None:
    newer, older = numbers["max_completion_tokens"], numbers["max_tokens"]
    if newer is None:
        return None if older is None else int(older)
    if older is not None and older != newer:
        notes.append(f"max_completion_tokens {newer} goes before max_tokens {older}")
    return int(newer)


def _ignore_eos(reader: Reader, numbers: Mapping[str, Any], fields: dict[str, Any]) -> None:
    """As far as engines here have it: no end before the limit, which must therefore be named."""
    limit = numbers["max_completion_tokens"] or numbers["max_tokens"]
    if limit is None:
        reader.bad("ignore_eos", "needs max_tokens, the length that is wanted")
    else:
        fields["min_tokens"] = limit


def _chat_prompt(reader: Reader) -> tuple[Mapping[str, Any], ...]:
    messages = read_messages(reader.raw("messages"), reader.bad)
    return ({"messages": messages},)


def _prompts(reader: Reader) -> tuple[Mapping[str, Any], ...]:
    value = reader.raw("prompt")
    if isinstance(value, str):
        return ({"prompt": value},)
    if isinstance(value, Sequence) and value:
        if _are_ids(value):
            return ({"input_ids": tuple(value)},)
        if all(isinstance(each, str) for each in value):
            return tuple({"prompt": each} for each in value)
        if all(isinstance(each, Sequence) and _are_ids(each) and each for each in value):
            return tuple({"input_ids": tuple(each)} for each in value)
    reader.bad("prompt", "expected a text, a list of token ids, or a list of either")
    return ()


def _are_ids(value: Sequence[Any]) -> bool:
    return all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**31 for each in value)


def _logprobs(reader: Reader, *, is_chat: bool) -> bool:
    if not is_chat:
        asked = reader.raw("logprobs")
        if asked is None or asked is False:
            return False
        if asked is True or asked == 0:
            return True
        reader.bad("logprobs", f"the chosen token's alone are to be had: send 0, got {asked!r:.20}")
        return False
    alternatives = reader.raw("top_logprobs")
    wanted = reader.boolean("logprobs")
    if alternatives is not None and (isinstance(alternatives, bool) or alternatives != 0):
        reader.bad("top_logprobs", f"the chosen token's alone are to be had: send 0, got {alternatives!r:.20}")
    return wanted


def _guide(reader: Reader) -> dict[str, str]:
    """What the output must look like. Engines without guided decoding refuse it by name."""
    found: list[tuple[str, str, str]] = []
    for name, kind in _GUIDES:
        value = reader.raw(name)
        if value is not None:
            found.append((name, kind, value if isinstance(value, str) else json.dumps(value)))
    form = reader.mapping("response_format")
    if form is not None and (guide := _response_format(reader, form)) is not None:
        found.append(("response_format", *guide))
    if len(found) > 1:
        reader.bad(found[1][0], f"not together with {found[0][0]}; send one of them")
    if not found:
        return {}
    _, kind, text = found[0]
    return {"guided_decoding_guide_type": kind, "guided_decoding_guide": text}


def _response_format(reader: Reader, form: Mapping[str, Any]) -> tuple[str, str] | None:
    kind = form.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return "json", ""
    if kind == "json_schema":
        outer = form.get("json_schema")
        schema = outer.get("schema") if isinstance(outer, Mapping) else form.get("schema")
        if isinstance(schema, Mapping):
            return "json_schema", json.dumps(schema, ensure_ascii=False)
        reader.bad("response_format", "json_schema.schema must be an object")
        return None
    if kind == "regex" and isinstance(form.get("regex"), str):
        return "regex", str(form["regex"])
    reader.bad(
        "response_format", f"type must be text, json_object, json_schema or regex (with regex), got {kind!r:.30}"
    )
    return None


def _chat_options(reader: Reader) -> dict[str, Any]:
    """What only the chat template can judge travels as it is; the server refuses what its template does not know."""
    options: dict[str, Any] = {}
    tools = reader.raw("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(each, Mapping) for each in tools)):
        reader.bad("tools", "expected a list of objects")
    elif tools:
        options["tools"] = tools
    choice = reader.raw("tool_choice")
    if choice is not None and not tools:
        if choice not in ("none", "auto"):
            reader.bad("tool_choice", "needs tools")
    elif choice is not None:
        options["tool_choice"] = choice
    if (extra := reader.mapping("chat_template_kwargs")) is not None and extra:
        options["chat_template_kwargs"] = extra
    if (effort := reader.raw("reasoning_effort")) is not None:
        options["reasoning_effort"] = effort
    if (thinking := _thinking(reader)) is not None:
        options["thinking"] = thinking
    return {"chat_options": options} if options else {}


def _thinking(reader: Reader) -> bool | None:
    """A boolean, or the object that DeepSeek's own API takes."""
    value = reader.raw("thinking")
    if isinstance(value, Mapping):
        value = {"enabled": True, "disabled": False}.get(str(value.get("type")), value)
    if value is None or isinstance(value, bool):
        return value
    reader.bad("thinking", "expected true, false, or {type: enabled|disabled}")
    return None


def _raw_options(reader: Reader) -> dict[str, Any]:
    return {"exclude_input_in_output": False} if reader.boolean("echo") else {}


def _include_usage(reader: Reader, *, stream: bool) -> bool:
    options = reader.mapping("stream_options")
    if options is None:
        return False
    if not stream:
        reader.bad("stream_options", "only together with stream")
    unknown = sorted(set(options) - {"include_usage", "include_obfuscation"})
    wanted = options.get("include_usage", False)
    if unknown or not isinstance(wanted, bool) or options.get("include_obfuscation"):
        reader.bad("stream_options", "takes include_usage, true or false, and nothing else")
        return False
    return wanted


def _check_best_of(reader: Reader, n: int) -> None:
    best_of = reader.raw("best_of")
    if best_of is not None and best_of != n:
        reader.bad("best_of", f"must be n ({n}) or left out: answers are not compared here")
