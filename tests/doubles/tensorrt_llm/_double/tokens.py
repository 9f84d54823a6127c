"""Which tokens a request gets: a script, or the prompt's own ids and the end id. A function of the prompt alone.

DOUBLE_TRTLLM_SCRIPT names a JSON file {"<comma separated tail of the prompt ids>" or "*": [ids]}; the longest tail
wins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["FIRST_LOGPROB", "token_logprob", "token_stream"]

FIRST_LOGPROB = -0.125


def token_stream(prompt_ids: Sequence[int], end_id: int | None, ignores_end: bool, sequence: int) -> Iterator[int]:
    """Without end. Sequences after the first of a request begin further along, so that they differ."""
    body = _scripted(prompt_ids)
    if body is None:
        body = [token for token in prompt_ids if token != end_id]
    if sequence and body:
        turn = sequence % len(body)
        body = [*body[turn:], *body[:turn]]
    if ignores_end:
        body = [token for token in body if token != end_id] or [0]
        while True:
            yield from body
    yield from body
    while True:
        yield end_id if end_id is not None else 0


def token_logprob(token: int, place: int) -> float:
    """Of the `place`-th best alternative, 0 the sampled one; an exact binary fraction."""
    return FIRST_LOGPROB * (1 + place) - (token % 8) / 64


def _scripted(prompt_ids: Sequence[int]) -> list[int] | None:
    path = os.environ.get("DOUBLE_TRTLLM_SCRIPT")
    if not path:
        return None
    script: dict[str, list[int]] = json.loads(Path(path).read_text(encoding="utf-8"))
    tails = {tuple(map(int, key.split(","))): ids for key, ids in script.items() if key != "*"}
    for tail in sorted(tails, key=len, reverse=True):
        if tuple(prompt_ids[-len(tail) :]) == tail:
            return tails[tail]
    return script.get("*")
