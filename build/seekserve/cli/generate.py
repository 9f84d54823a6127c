"""`seekserve generate`: one prompt to a running server, the answer streamed to stdout, the figures to stderr.

On the asyncio client, because Ctrl-C is then an orderly cancel: an interrupt raised inside the blocking client can hit
gRPC while it sets up a call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from seekserve.cli.conversation import AnswerPrinter, chat_options, read_messages

if TYPE_CHECKING:
    from seekserve.client import ChatAnswer, Completion, GenerateRequest

__all__ = ["command"]

_Outcome: TypeAlias = "tuple[str, Completion, ChatAnswer | None]"


@click.command("generate")
@click.argument("prompt", required=False)
@click.option("--url", default="127.0.0.1:8001", show_default=True, help="gRPC address of the server.")
@click.option("--model", default=None, help="Model name; by default the one of the launch at this address.")
@click.option("--raw", is_flag=True, help="Send PROMPT as it is instead of as a chat message.")
@click.option("--system", default=None, metavar="TEXT", help="System message before the prompt.")
@click.option(
    "--messages", default=None, metavar="FILE", help="JSON list of chat messages instead of PROMPT; - is stdin."
)
@click.option("--tools", default=None, metavar="FILE", help="JSON list of tools (OpenAI form) that the model may call.")
@click.option("--thinking/--no-thinking", default=None, help="Reason before the answer; by default as the model does.")
@click.option("--reasoning-effort", default=None, metavar="LEVEL", help="How much, for models that know levels.")
@click.option("--max-tokens", type=int, default=None, help="Tokens to produce at most; by default the server's limit.")
@click.option("--temperature", type=float, default=None, help="0 is greedy, which is also the server's default.")
@click.option("--top-k", type=int, default=None, help="0 is off.")
@click.option("--top-p", type=float, default=None, help="0 and 1 are off.")
@click.option("--seed", type=int, default=None, help="Makes sampling repeatable.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Text that ends the output; may be given more than once.")
@click.option("--class", "request_class", default=None, metavar="NAME", help="Request class of the server's policy.")
@click.option("--tenant", default=None, help="Who is asking.")
@click.option("--deadline-ms", type=int, default=None, help="Time to the first token after which no answer is wanted.")
@click.option("--stream/--no-stream", default=True, show_default=True, help="In pieces, or one response at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of text and figures.")
@click.option(
    "--timeout-s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Give up when nothing arrives for so long.",
)
def command(
    prompt: str | None,
    url: str,
    model: str | None,
    raw: bool,
    system: str | None,
    messages: str | None,
    tools: str | None,
    thinking: bool | None,
    reasoning_effort: str | None,
    as_json: bool,
    timeout_s: float,
    **options: Any,
) -> Completion:
    """Send PROMPT to a running server and stream the answer.

    PROMPT is a chat message rendered with the model's template, or with --raw the exact text that the model shall see;
    `-` reads it from standard input. Reasoning goes to stderr, the answer to stdout; calls of tools follow it as JSON
    objects, one a line. TTFT is the time to the first text; tokens/s counts the whole request, queueing
    and prefill included.

    Exit status: 2 bad input, 4 refused, failed or not reachable, 130 interrupted (the request is cancelled).
    """
    # gRPC's core writes a broken connection to stderr by itself; it is reported here, once, in words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    options["chat_options"] = chat_options(tools, thinking, reasoning_effort)
    request = _request(prompt, messages, raw, system, options)
    printer = AnswerPrinter(has_tools=tools is not None, is_shown=not as_json)
    model, completion, answer = _interruptible(_generate(url, model, timeout_s, request, printer))
    if as_json:
        click.echo(json.dumps({"model": model, **_figures(completion, answer)}, ensure_ascii=False))
    else:
        click.echo(_summary(completion), err=True)
    return completion


def _read_prompt(prompt: str, raw: bool) -> str:
    from seekserve.errors import InputError

    if prompt != "-":
        return prompt
    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input: not UTF-8 at byte {error.start} of {len(data)}") from None
    # A shell's newline is no part of a chat message; a raw prompt is sent as it is.
    return text if raw else text.removesuffix("\n")


def _request(
    prompt: str | None, messages: str | None, raw: bool, system: str | None, options: dict[str, Any]
) -> GenerateRequest:
    from seekserve.client import GenerateRequest
    from seekserve.errors import InputError

    if (prompt is None) == (messages is None):
        raise InputError(f"exactly one of PROMPT and --messages is needed, got {'none' if prompt is None else 'both'}")
    if raw:
        chat_only = {
            "--system": system,
            "--messages": messages,
            "--tools, --thinking and --reasoning-effort": options["chat_options"],
        }
        for name, value in chat_only.items():
            if value is not None:
                raise InputError(
                    f"{name}: for a chat only, and --raw leaves the chat template out; put all into PROMPT"
                )
    if messages is not None:
        if system is not None:
            raise InputError("--system: put the system message into the file of --messages")
        return GenerateRequest(messages=read_messages(messages), **options)
    text = _read_prompt(prompt or "", raw)
    if raw:
        return GenerateRequest(prompt=text, **options)
    first = [] if system is None else [{"role": "system", "content": system}]
    return GenerateRequest(messages=[*first, {"role": "user", "content": text}], **options)


async def _generate(
    url: str, model: str | None, timeout_s: float, request: GenerateRequest, printer: AnswerPrinter
) -> tuple[str, Completion, ChatAnswer | None]:
    from seekserve.client import AsyncClient

    async with AsyncClient(url, model, idle_timeout_s=timeout_s) as client, client.stream(request) as stream:
        try:
            async for delta in stream:
                printer.feed(delta.text, stream.chat_state)
        finally:
            answer = printer.finish()
        return await client.model(), stream.completion, answer


def _interruptible(work: Coroutine[Any, Any, _Outcome]) -> _Outcome:
    """Runs `work`; the first Ctrl-C cancels it, a second no longer waits (the first may be stuck in a full pipe)."""

    async def guarded() -> _Outcome:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def cancel(*_: object) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            loop.call_soon_threadsafe(task.cancel)

        signal.signal(signal.SIGINT, cancel)
        return await work

    before = signal.getsignal(signal.SIGINT)
    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)


def _figures(completion: Completion, answer: ChatAnswer | None) -> dict[str, Any]:
    calls = [] if answer is None else answer.tool_calls
    return {
        "text": completion.text,
        "content": completion.text if answer is None else answer.content,
        "reasoning": None if answer is None else answer.reasoning,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in calls],
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "ttft_ms": None if completion.ttft_s is None else round(completion.ttft_s * 1000, 3),
        "e2e_ms": round(completion.e2e_s * 1000, 3),
        "queue_ms": completion.queue_ms,
        "tokens_per_s": completion.tokens_per_s,
    }


def _summary(completion: Completion) -> str:
    def shown(value: float | None, digits: int = 0) -> str:
        return "n/a" if value is None else f"{value:.{digits}f}"

    ttft_ms = None if completion.ttft_s is None else completion.ttft_s * 1000
    return (
        f"prompt {shown(completion.prompt_tokens)} tokens | completion {shown(completion.completion_tokens)} tokens | "
        f"TTFT {shown(ttft_ms, 1)} ms | {shown(completion.tokens_per_s, 1)} tokens/s | "
        f"queue {shown(completion.queue_ms, 1)} ms | finish {completion.finish_reason or 'n/a'}"
    )
