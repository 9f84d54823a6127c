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
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seekserve.client import Completion, GenerateRequest

__all__ = ["command"]


@click.command("generate")
@click.argument("prompt")
@click.option("--url", default="127.0.0.1:8001", show_default=True, help="gRPC address of the server.")
@click.option("--model", default=None, help="Model name; by default the one of the launch at this address.")
@click.option("--raw", is_flag=True, help="Send PROMPT as it is instead of as a chat message.")
@click.option("--system", default=None, metavar="TEXT", help="System message before the prompt.")
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
    prompt: str,
    url: str,
    model: str | None,
    raw: bool,
    system: str | None,
    as_json: bool,
    timeout_s: float,
    **options: Any,
) -> Completion:
    """Send PROMPT to a running server and stream the answer.

    PROMPT is a chat message rendered with the model's template, or with --raw the exact text that the model shall see;
    `-` reads it from standard input. TTFT is the time to the first text; tokens/s counts the whole request, queueing
    and prefill included.

    Exit status: 2 bad input, 4 refused, failed or not reachable, 130 interrupted (the request is cancelled).
    """
    # gRPC's core writes a broken connection to stderr by itself; it is reported here, once, in words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    request = _request(_read_prompt(prompt, raw), raw, system, options)
    model, completion = _interruptible(_generate(url, model, timeout_s, request, is_shown=not as_json))
    if as_json:
        click.echo(json.dumps({"model": model, **_figures(completion)}, ensure_ascii=False))
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


def _request(prompt: str, raw: bool, system: str | None, options: dict[str, Any]) -> GenerateRequest:
    from seekserve.client import GenerateRequest
    from seekserve.errors import InputError

    if raw:
        if system is not None:
            raise InputError("--system needs the chat template, which --raw leaves out; put the text into PROMPT")
        return GenerateRequest(prompt=prompt, **options)
    messages = [] if system is None else [{"role": "system", "content": system}]
    return GenerateRequest(messages=[*messages, {"role": "user", "content": prompt}], **options)


async def _generate(
    url: str, model: str | None, timeout_s: float, request: GenerateRequest, *, is_shown: bool
) -> tuple[str, Completion]:
    from seekserve.client import AsyncClient

    async with AsyncClient(url, model, idle_timeout_s=timeout_s) as client, client.stream(request) as stream:
        last = ""
        try:
            async for delta in stream:
                if delta.text and is_shown:
                    # Bytes, since the terminal's declared encoding may not hold what a model writes.
                    click.echo(delta.text.encode("utf-8"), nl=False)
                    last = delta.text
        finally:
            if last and not last.endswith("\n"):
                click.echo(b"")
        return await client.model(), stream.completion


def _interruptible(work: Coroutine[Any, Any, tuple[str, Completion]]) -> tuple[str, Completion]:
    """Runs `work`; the first Ctrl-C cancels it, a second no longer waits (the first may be stuck in a full pipe)."""

    async def guarded() -> tuple[str, Completion]:
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


def _figures(completion: Completion) -> dict[str, Any]:
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "ttft_ms": None if completion.ttft_s is None else round(completion.ttft_s * 1000, 3),
        "e2e_ms": round(completion.e2e_s * 1000, 3),
        "queue_ms": completion.queue_ms,
        "tokens_per_s": completion.tokens_per_s,
        **({} if completion.served_by is None else {"served_by": completion.served_by}),
    }


def _summary(completion: Completion) -> str:
    def shown(value: float | None, digits: int = 0) -> str:
        return "n/a" if value is None else f"{value:.{digits}f}"

    ttft_ms = None if completion.ttft_s is None else completion.ttft_s * 1000
    served_by = "" if completion.served_by is None else f" | served by {completion.served_by}"
    return (
        f"prompt {shown(completion.prompt_tokens)} tokens | completion {shown(completion.completion_tokens)} tokens | "
        f"TTFT {shown(ttft_ms, 1)} ms | {shown(completion.tokens_per_s, 1)} tokens/s | "
        f"queue {shown(completion.queue_ms, 1)} ms | finish {completion.finish_reason or 'n/a'}{served_by}"
    )
