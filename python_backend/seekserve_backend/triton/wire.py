"""Triton tensors <-> the service's own nouns. Copies bytes out and holds no Triton object afterwards.

Every input of the contract is either used or must ask for nothing; a tensor of the wrong shape, type or range is an
InvalidInput that names it. numpy is the stub's own, so it is imported late.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..answers import Chunk, Inbound, InvalidInput
from ..contract.classes import SAMPLING_RANGES
from ..contract.routes import ROUTE_HEADERS
from ..contract.tensors import INPUT_BY_NAME, LEAST_HEARTBEAT_MS, Handling
from ..engines.port import GUIDE_KINDS, Guide, Sampling

__all__ = ["PROBE_PARAMETER", "ROUTED_PARAMETER", "read_request", "response_values"]

PROBE_PARAMETER = "seekserve_probe"
ROUTED_PARAMETER = "seekserve_routed"
# Forwarded headers arrive as parameters, in the client's spelling. What the type means is the policy's to say.
_NAME_BY_HEADER = {"x-tenant": "tenant", "x-deadline-ms": "deadline_ms"}
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_LEAST_TEMPERATURE = 1e-5
_MAX_STOP_WORDS = 16
_MAX_STOP_BYTES = 1024
_OF_A_RETURN = ("resume_token", "resume_from_bytes", "resume_cancel", "tenant", "heartbeat_ms", "stream", "text_input")
_MAX_GUIDE_CHARS = 65_536


def read_request(request: Any, *, probe_key: str | None) -> Inbound:
    """Reads a `pb_utils.InferenceRequest`. Raises InvalidInput for anything that cannot be honoured."""
    values = {tensor.name(): _flat(tensor.name(), tensor.as_numpy()) for tensor in request.inputs()}
    for name in values:
        _check_neutral(name, values[name])
    parameters = _parameters(request)
    reader = _Reader(values, parameters)
    token = reader.text("resume_token")
    if token is not None:
        return _read_return(request, reader, values, token)
    text, messages, input_ids = values.get("text_input"), values.get("messages"), values.get("input_ids")
    given = [n for n, v in (("text_input", text), ("messages", messages), ("input_ids", input_ids)) if v is not None]
    # A stock client may be made to send an empty text_input beside the input it means.
    if len(given) > 1 and text == [b""]:
        text = None
        given.remove("text_input")
    if len(given) != 1:
        raise InvalidInput(
            "text_input",
            f"exactly one of text_input, messages and input_ids is needed, got {', '.join(given) or 'none'}",
        )
    return Inbound(
        client_id=str(request.request_id() or ""),
        text=None if text is None else _one("text_input", text),
        messages=None if messages is None else _one("messages", messages),
        chat_options=_chat_options(values.get("chat_options"), has_messages=messages is not None),
        input_ids=None if input_ids is None else tuple(int(i) for i in input_ids),
        max_tokens=reader.integer("max_tokens", low=1),
        stream=reader.boolean("stream", False),
        stop_words=_stop_words(values.get("stop_words", [])),
        end_id=reader.integer("end_id", low=-1, unset=-1),
        sampling=_sampling(reader, _guide(values)),
        sampling_given=frozenset(name for name in SAMPLING_RANGES if reader.scalar(name) is not None),
        echo_prompt=not reader.boolean("exclude_input_in_output", True),
        wants_num_input_tokens=reader.boolean("return_num_input_tokens", False),
        wants_num_output_tokens=reader.boolean("return_num_output_tokens", False),
        wants_logprobs=reader.boolean("return_log_probs", False),
        beam_width=reader.integer("beam_width", low=1) or 1,
        request_class=reader.text("request_class"),
        tenant=reader.text("tenant") or "",
        deadline_ms=reader.integer("deadline_ms", low=1),
        **_stream_wishes(reader),
        endpoint=reader.text("endpoint") or "",
        headers=_headers(parameters),
        is_probe=probe_key is not None and parameters.get(PROBE_PARAMETER) == probe_key,
        is_routed=bool(parameters.get(ROUTED_PARAMETER, False)),
    )


def _stream_wishes(reader: _Reader) -> dict[str, Any]:
    """`heartbeat_ms` and `resumable`, which need a stream to go along."""
    for name in ("resume_from_bytes", "resume_cancel"):
        if reader.scalar(name):
            raise InvalidInput(name, "goes with a resume_token; send that, or leave it out")
    heartbeat_ms = reader.integer("heartbeat_ms", low=LEAST_HEARTBEAT_MS)
    resumable = reader.boolean("resumable", False)
    if not reader.boolean("stream", False):
        wish = "resumable" if resumable else "heartbeat_ms" if heartbeat_ms is not None else None
        if wish is not None:
            raise InvalidInput(wish, "needs stream true: without it there is one response, at the end")
    if resumable and not reader.boolean("exclude_input_in_output", True):
        raise InvalidInput("resumable", "not together with exclude_input_in_output false; send one of them")
    return {"heartbeat_ms": heartbeat_ms, "resumable": resumable}


def _read_return(request: Any, reader: _Reader, values: Mapping[str, list[Any]], token: str) -> Inbound:
    """A client that comes back: everything else was said with its first request."""
    extra = [name for name in values if name not in _OF_A_RETURN or (name == "text_input" and values[name] != [b""])]
    if extra:
        raise InvalidInput(extra[0], "was said with the first request; leave it out beside a resume_token")
    return Inbound(
        client_id=str(request.request_id() or ""),
        stream=True,
        tenant=reader.text("tenant") or "",
        heartbeat_ms=reader.integer("heartbeat_ms", low=LEAST_HEARTBEAT_MS),
        resume_token=token,
        resume_from_bytes=reader.integer("resume_from_bytes", low=0) or 0,
        resume_cancel=reader.boolean("resume_cancel", False),
    )


def response_values(chunk: Chunk) -> list[tuple[str, object]]:
    """(output name, scalar or tuple of them) of what this chunk carries, in the contract's order."""
    pairs: list[tuple[str, object]] = [
        ("text_output", chunk.text),
        ("finish_reason", chunk.finish_reason),
        ("prompt_tokens", chunk.prompt_tokens),
        ("completion_tokens", None if chunk.finish_reason is None else chunk.completion_tokens),
        ("queue_ms", chunk.queue_ms),
        ("chat_state", chunk.chat_state),
        ("resume_token", chunk.resume_token),
        ("num_input_tokens", chunk.num_input_tokens),
        ("num_output_tokens", chunk.num_output_tokens),
        ("output_log_probs", chunk.logprobs),
        ("cum_log_probs", chunk.cumulative_logprob),
        ("served_by", chunk.served_by),
    ]
    return [(name, value) for name, value in pairs if value is not None]


class _Reader:
    """Scalars by name: the tensor first, then the request parameter of the same name."""

    def __init__(self, values: Mapping[str, list[Any]], parameters: Mapping[str, Any]) -> None:
        self._values = values
        self._parameters = parameters

    def scalar(self, name: str, default: Any = None) -> Any:
        value = self._values.get(name)
        if value is not None:
            return _one(name, value)
        return self._parameters.get(name, default)

    def integer(self, name: str, *, low: int, unset: int | None = None) -> int | None:
        value = self.scalar(name)
        if isinstance(value, str) and _WHOLE.fullmatch(value):  # a header
            value = int(value)
        if value is None or (unset is not None and value == unset):
            return None
        if isinstance(value, bool) or not _is_whole(value):
            raise InvalidInput(name, f"expected a whole number, got {value!r}")
        # Parameters are not held to a tensor's type by Triton, so it is done here.
        high = 2**64 - 1 if INPUT_BY_NAME[name].data_type == "UINT64" else 2**31 - 1
        if value < low:
            raise InvalidInput(name, f"{value} is below the least allowed, {low}")
        if value > high:
            raise InvalidInput(name, f"the value is above the largest allowed, {high}")
        return int(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.scalar(name, default)
        if isinstance(value, str):  # a parameter
            value = {"true": True, "false": False, "1": True, "0": False}.get(value.lower(), value)
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise InvalidInput(name, f"expected true or false, got {value!r}")
        return bool(value)

    def number(self, name: str, default: float, *, low: float, high: float = math.inf) -> float:
        value = self.scalar(name)
        if value is None:
            return default
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidInput(name, f"expected a number, got {value!r}") from None
        if not math.isfinite(number) or not low <= number <= high:
            raise InvalidInput(name, f"{number} is outside {low} to {high}")
        return number

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return _short_text(name, self._parameters.get(name) if value is None else _decode(name, _one(name, value)))


def _short_text(name: str, raw: Any) -> str | None:
    if raw is None or raw == "":
        return None
    if not isinstance(raw, str) or len(raw) > 128 or not raw.isprintable():
        raise InvalidInput(name, "expected a printable text of at most 128 characters")
    return raw


def _headers(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Those that a route may ask for."""
    found = {key.lower(): _short_text(key, value) for key, value in parameters.items() if key.lower() in ROUTE_HEADERS}
    return {name: value for name, value in found.items() if value is not None}


def _sampling(reader: _Reader, guide: Guide | None) -> Sampling:
    top_p = reader.number("top_p", 1.0, low=0.0, high=1.0)
    temperature = reader.number("temperature", 0.0, low=0.0, high=100.0)
    return Sampling(
        # So little heat is greedy decoding, and dividing logits by it would overflow.
        temperature=temperature if temperature >= _LEAST_TEMPERATURE else 0.0,
        top_k=reader.integer("top_k", low=0) or 0,
        top_p=top_p if top_p > 0.0 else 1.0,
        seed=reader.integer("seed", low=0),
        repetition_penalty=_positive(reader, "repetition_penalty"),
        presence_penalty=reader.number("presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=reader.number("frequency_penalty", 0.0, low=-2.0, high=2.0),
        min_tokens=reader.integer("min_tokens", low=0) or 0,
        guide=guide,
    )


def _guide(values: Mapping[str, list[Any]]) -> Guide | None:
    """An empty type asks for nothing, as in the stock ensemble."""
    kind, text = (
        _decode(name, _one(name, values[name])) if name in values else ""
        for name in ("guided_decoding_guide_type", "guided_decoding_guide")
    )
    if not kind:
        if text:
            raise InvalidInput("guided_decoding_guide_type", "missing: a guide of which kind?")
        return None
    if kind not in GUIDE_KINDS:
        raise InvalidInput("guided_decoding_guide_type", f"{kind[:64]!r} is not one of {', '.join(GUIDE_KINDS)}")
    if bool(text) is (kind == "json"):
        wanted = "json takes no guide; json_schema does" if text else f"{kind} needs a text"
        raise InvalidInput("guided_decoding_guide", wanted)
    if kind == "json_schema" and not _is_json_object(text):
        raise InvalidInput("guided_decoding_guide", "not a JSON schema: expected an object in JSON")
    if len(text) > _MAX_GUIDE_CHARS:
        raise InvalidInput("guided_decoding_guide", f"{len(text)} characters, at most {_MAX_GUIDE_CHARS} are allowed")
    return Guide(kind=kind, text=text)


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _positive(reader: _Reader, name: str) -> float:
    value = reader.number(name, 1.0, low=0.0, high=100.0)
    if value == 0.0:
        raise InvalidInput(name, "must be above 0; 1 switches it off")
    return value


def _flat(name: str, array: Any) -> list[Any]:
    """One request's values. The first dimension is the batch, which must be 1."""
    if array.ndim > 1 and array.shape[0] != 1:
        raise InvalidInput(name, f"a batch of {array.shape[0]} requests in one; send them one by one")
    flat: list[Any] = array.reshape(-1).tolist()
    return flat


def _one(name: str, values: list[Any]) -> Any:
    if len(values) != 1:
        raise InvalidInput(name, f"expected 1 value, got {len(values)}")
    return values[0]


def _check_neutral(name: str, values: list[Any]) -> None:
    spec = INPUT_BY_NAME.get(name)
    if spec is None or spec.handling is not Handling.NEUTRAL_ONLY or spec.neutral is None:
        return
    neutral = spec.neutral.encode() if isinstance(spec.neutral, str) else spec.neutral
    if any(value != neutral for value in values):
        raise InvalidInput(name, f"not supported by this engine; leave it out or send {spec.neutral!r}")


def _chat_options(values: list[Any] | None, *, has_messages: bool) -> bytes | None:
    data: bytes | None = _one("chat_options", values) if values else None
    if data and not has_messages:
        raise InvalidInput("chat_options", "only together with messages: raw prompts are not rendered")
    return data or None


def _stop_words(values: list[Any]) -> tuple[str, ...]:
    words = tuple(_decode("stop_words", v) for v in values if v)
    if len(words) > _MAX_STOP_WORDS:
        raise InvalidInput("stop_words", f"{len(words)} texts, at most {_MAX_STOP_WORDS} are allowed")
    longest = max((len(v) for v in values), default=0)
    if longest > _MAX_STOP_BYTES:
        raise InvalidInput("stop_words", f"a text of {longest} bytes, at most {_MAX_STOP_BYTES} are allowed")
    return words


def _decode(name: str, value: Any) -> str:
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise InvalidInput(name, "not UTF-8") from None
    if not isinstance(text, str):
        raise InvalidInput(name, f"expected a text, got {type(text).__name__}")
    return text


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _parameters(request: Any) -> dict[str, Any]:
    """Request parameters and forwarded headers; Triton hands them over as JSON."""
    get: Callable[[], str] | None = getattr(request, "parameters", None)
    if get is None:
        return {}
    try:
        data = json.loads(get() or "{}")
    except json.JSONDecodeError:
        return {}
    if not isinstance(data, dict):
        return {}
    named = {_NAME_BY_HEADER[key.lower()]: value for key, value in data.items() if key.lower() in _NAME_BY_HEADER}
    # A parameter of the request itself is more deliberate than a header that a proxy may have set.
    return {**named, **data}
