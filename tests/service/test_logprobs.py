"""Log probabilities belong to the text that was sent, however it was cut; and wishes no engine has are refused."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.fakes import BYTES, KV, LIMITS, engine_info, service, synthetic
from tests.service.test_service import ScriptedEngine, ask, error, finish_reason, running

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.engines.port import EngineInfo, EngineStepReport, Guide, Sampling, TokenEvent
from seekserve_backend.live import Live
from seekserve_backend.work import Work


class NullSink:
    def send(self, chunk: Chunk) -> None: ...

    def error(self, line: ErrorLine) -> None: ...

    def is_cancelled(self) -> bool:
        return False

    def hold_s(self) -> float:
        return 0.0


def play(text: bytes, cuts: Sequence[int], stops: tuple[str, ...], *, stream: bool = True) -> list[Chunk]:
    """The chunks of a text whose tokens are its bytes, token n with log probability -n, fed in pieces."""
    inbound = Inbound(text=b"", stream=stream, stop_words=stops, wants_logprobs=True)
    live = Live("r1", inbound, NullSink(), arrival_s=0.0, lane=0)
    work = live.work = Work("r1", inbound, (1,), BYTES)
    chunks = []
    edges = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    for start, end in itertools.pairwise(edges):
        piece = work.feed(tuple(text[start:end]), [-float(n) for n in range(start, end)], None)
        if piece is not None and (chunk := live.chunk(piece)) is not None:
            chunks.append(chunk)
            if chunk.finish_reason is not None:
                return chunks
    last = live.chunk(work.end("length"))
    assert last is not None
    return [*chunks, last]


def numbers(chunks: Sequence[Chunk]) -> list[float]:
    return [number for chunk in chunks for number in chunk.logprobs or ()]


def test_without_a_cut_every_token_has_its_number() -> None:
    chunks = play("naïve 😀".encode(), range(100), ())
    assert "".join(chunk.text for chunk in chunks) == "naïve 😀"
    assert numbers(chunks) == [-float(n) for n in range(11)]
    assert chunks[-1].cumulative_logprob == -sum(range(11))


def test_a_stop_string_takes_its_tokens_numbers_with_it() -> None:
    assert numbers(play(b"one stop two", range(100), ("stop",))) == [0.0, -1.0, -2.0, -3.0]


def test_a_number_leaves_with_the_text_that_completes_its_token() -> None:
    sent = [(chunk.text, chunk.logprobs) for chunk in play("aé!".encode(), range(10), ())]
    assert sent == [("a", (0.0,)), ("é", (-1.0, -2.0)), ("!", (-3.0,)), ("", None)]


@given(
    text=st.text(alphabet="abé😀S", max_size=30).map(str.encode),
    cuts=st.lists(st.integers(0, 60), max_size=12),
    stops=st.sampled_from([(), ("S",), ("ab", "S"), ("éa",), ("aS", "abS")]),
    stream=st.booleans(),
)
def test_the_numbers_do_not_depend_on_how_the_tokens_came(
    text: bytes, cuts: list[int], stops: tuple[str, ...], stream: bool
) -> None:
    whole, pieces = play(text, (), stops), play(text, cuts, stops, stream=stream)
    assert "".join(chunk.text for chunk in pieces) == "".join(chunk.text for chunk in whole)
    assert numbers(pieces) == numbers(whole)
    shown = sum(len(chunk.text.encode()) for chunk in pieces)
    assert len(numbers(pieces)) == shown, "a token is a byte here, and a stop never cuts a character"


class TalkativeEngine(ScriptedEngine):
    """Gives a log probability with each token."""

    @property
    def info(self) -> EngineInfo:
        return engine_info(LIMITS, KV, has_logprobs=True)

    def step(self, timeout_s: float) -> EngineStepReport:
        report = super().step(timeout_s)
        tokens = tuple(
            TokenEvent(id=event.id, token_ids=event.token_ids, logprobs=tuple(-float(i) for i in event.token_ids))
            for event in report.tokens
        )
        return EngineStepReport(step_ms=0.0, batch_size=1, prefill_tokens=0, tokens=tokens, ends=report.ends)


@pytest.mark.parametrize("stream", [True, False])
def test_they_reach_the_client_that_asked_and_no_other(stream: bool) -> None:
    with running(service(lambda: TalkativeEngine(b"abcdef"))) as made:
        asked = ask(made, wants_logprobs=True, max_tokens=60, stream=stream, stop_words=("ef",))
        other = ask(made, max_tokens=60, stream=stream)
        assert finish_reason(asked) == finish_reason(other) == "stop"
    assert numbers([a for a in asked.answers if isinstance(a, Chunk)]) == [-97.0, -98.0, -99.0, -100.0]
    assert all(a.logprobs is None and a.cumulative_logprob is None for a in other.answers if isinstance(a, Chunk))


@pytest.mark.parametrize(
    ("wishes", "field", "words"),
    [
        ({"wants_logprobs": True}, "return_log_probs", "this synthetic engine has none"),
        ({"beam_width": 2}, "beam_width", "2 asked for, this synthetic engine has no beams"),
        (
            {"sampling": Sampling(guide=Guide(kind="json", text=""))},
            "guided_decoding_guide_type",
            "no guided decoding",
        ),
    ],
    ids=str,
)
def test_what_the_engine_does_not_have_is_refused_by_name(wishes: dict[str, object], field: str, words: str) -> None:
    with running(service(synthetic)) as made:
        line = error(ask(made, **wishes))
    assert (line.code, line.field) == (ErrorCode.INVALID, field)
    assert words in line.reason


class BeamEngine(TalkativeEngine):
    @property
    def info(self) -> EngineInfo:
        base = super().info
        return EngineInfo(**{**{n: getattr(base, n) for n in base.__slots__}, "max_beam_width": 4})


@pytest.mark.parametrize(
    ("wishes", "field", "words"),
    [
        ({"beam_width": 5}, "beam_width", "at most 4 beams"),
        ({"beam_width": 2, "sampling": Sampling(temperature=0.7)}, "beam_width", "not sampled"),
        ({"beam_width": 2, "wants_logprobs": True}, "return_log_probs", "not together with beam_width 2"),
    ],
    ids=str,
)
def test_wishes_that_exclude_each_other_are_refused(wishes: dict[str, object], field: str, words: str) -> None:
    with running(service(lambda: BeamEngine(b"abc"))) as made:
        line = error(ask(made, **wishes))
        assert finish_reason(ask(made, beam_width=4)) == "stop"
    assert (line.code, line.field) == (ErrorCode.INVALID, field)
    assert words in line.reason


def test_an_engine_that_dies_while_idle_is_made_anew_before_anybody_comes() -> None:
    made_so_far: list[ScriptedEngine] = []

    class Mortal(ScriptedEngine):
        def step(self, timeout_s: float) -> EngineStepReport:
            if len(made_so_far) == 1 and not self._running:
                raise RuntimeError("died in its sleep")
            return super().step(timeout_s)

    def make() -> ScriptedEngine:
        made_so_far.append(Mortal(b"abc"))
        return made_so_far[-1]

    with running(service(make)) as made:
        while made.stats().engine_restarts < 1:
            threading.Event().wait(0.01)
        assert finish_reason(ask(made)) == "stop"
