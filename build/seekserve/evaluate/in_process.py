"""A reference bundle asked in this process: the same prompt encoder, engine and detokeniser that the backend runs.

Up to `concurrency` questions are in the engine at once, as many as the bundle has slots and KV blocks for. `check`
reports everything that cannot be asked before the first question is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from seekserve.errors import BundleError, InputError, MissingDependency
from seekserve.evaluate.target import Answer, Asking, Progress
from seekserve.evaluate.tasks import Task
from seekserve.output import problems_text
from seekserve.plan.bundle import open_bundle
from seekserve_backend.contract.bundle import Limits
from seekserve_backend.text.detokenizer import Detokenizer
from seekserve_backend.text.token_bytes import TokenBytes

if TYPE_CHECKING:
    from seekserve_backend.engines.port import EndEvent, Engine, EngineRequest
    from seekserve_backend.prompts import PromptEncoder

__all__ = ["BundleTarget", "need_local"]

_SHOWN_PROBLEMS = 10


def need_local(what: str, find: Callable[[str], object | None] = find_spec) -> None:
    """Raises MissingDependency unless `find` knows torch, transformers and what else a model needs to run here."""
    missing = [name for name in ("torch", "transformers", "safetensors", "tokenizers") if find(name) is None]
    if missing:
        raise MissingDependency(
            f"{what} needs {', '.join(missing)}, not installed here",
            hint="pip install 'seekserve[local]', or evaluate a running server by its address",
        )


class BundleTarget:
    def __init__(self, given: str) -> None:
        self.name = given
        self.folder = Path(given)
        self.bundle = open_bundle(self.folder)
        if self.bundle.engine != "reference":
            raise BundleError(
                f"bundle {given} is built for the engine {self.bundle.engine!r}; only 'reference' runs in this process",
                hint="launch it with `seekserve launch` and give its gRPC address",
            )
        need_local("running a bundle in this process")

    @property
    def facts(self) -> dict[str, str]:
        bundle = self.bundle
        return {"engine": bundle.engine, "weights": bundle.weights_dtype, "kv": bundle.kv.dtype}

    def check(self, tasks: Sequence[Task]) -> None:
        self._requests(tasks, self._encoder(), max_tokens=1)

    def answers(self, tasks: Sequence[Task], asking: Asking, progress: Progress) -> list[Answer]:
        from seekserve_backend.engines.port import EngineError
        from seekserve_backend.engines.reference.engine import ReferenceEngine

        encoder = self._encoder()
        requests = self._requests(tasks, encoder, asking.max_tokens)
        vocab = TokenBytes.from_tokenizer_json(encoder.tokenizer_json)
        try:
            engine = ReferenceEngine(self.folder, self.bundle)
            try:
                return _run(engine, requests, vocab, asking.concurrency, progress)
            finally:
                engine.close()
        except EngineError as error:
            raise BundleError(f"bundle {self.name} cannot be run: {error}") from error

    def _encoder(self) -> PromptEncoder:
        from seekserve_backend.prompts import PromptEncoder

        return PromptEncoder(self.folder / "tokenizer")

    def _requests(self, tasks: Sequence[Task], encoder: PromptEncoder, max_tokens: int) -> list[EngineRequest]:
        from seekserve_backend.engines.port import EngineRequest

        room = _room_tokens(self.bundle.limits, self.bundle.kv.capacity_tokens)
        requests, problems = [], []
        for index, task in enumerate(tasks):
            try:
                ids = _encode(encoder, task)
            except InputError as error:
                problems.append(f"{task.where}: {error.message}")
                continue
            if len(ids) >= room:
                problems.append(f"{task.where}: the prompt has {len(ids)} tokens, the bundle takes {room - 1}")
                continue
            requests.append(EngineRequest(id=str(index), prompt_ids=ids, max_tokens=min(max_tokens, room - len(ids))))
        if problems:
            shown = problems[:_SHOWN_PROBLEMS]
            if len(problems) > len(shown):
                shown.append(f"and {len(problems) - len(shown)} more of {len(tasks)} tasks")
            raise InputError(problems_text(f"bundle {self.name} cannot be asked this", shown))
        return requests


def _room_tokens(limits: Limits, capacity_tokens: int) -> int:
    return min(limits.max_seq_len_tokens, capacity_tokens)


def _encode(encoder: PromptEncoder, task: Task) -> tuple[int, ...]:
    """Raises InputError for what the checkpoint's template or tokenizer cannot take."""
    from seekserve_backend.answers import Inbound, InvalidInput

    if task.messages is not None:
        inbound = Inbound(messages=json.dumps(task.messages, ensure_ascii=False).encode())
    else:
        inbound = Inbound(text=(task.prompt or "").encode())
    try:
        return encoder.encode(inbound)
    except (InvalidInput, UnicodeEncodeError) as error:
        raise InputError(str(error)) from None


def _run(
    engine: Engine, requests: Sequence[EngineRequest], vocab: TokenBytes, concurrency: int, progress: Progress
) -> list[Answer]:
    """Keeps the engine full until every request has ended."""
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    prompts = {request.id: request.prompt_ids for request in requests}
    done: dict[str, Answer] = {}
    waiting = list(reversed(requests))
    while len(done) < len(requests):
        while waiting and engine.stats().running < concurrency and engine.can_add(waiting[-1]):
            engine.add(waiting.pop())
        report = engine.step(0.0)
        for event in report.tokens:
            tokens[event.id].extend(event.token_ids)
        for end in report.ends:
            done[end.id] = _answer(end, prompts[end.id], tokens[end.id], vocab)
        if report.ends:
            progress(len(done), len(requests))
    return [done[request.id] for request in requests]


def _answer(end: EndEvent, prompt_ids: tuple[int, ...], produced: Sequence[int], vocab: TokenBytes) -> Answer:
    from seekserve_backend.engines.port import EndReason

    detokenizer = Detokenizer(vocab)
    text = detokenizer.feed(produced).text + detokenizer.flush()
    return Answer(
        text=text,
        is_cut=end.reason is EndReason.LENGTH,
        failure=(end.message or end.reason.value) if end.reason is EndReason.FAILED else "",
        token_ids=(*prompt_ids, *produced),
    )
