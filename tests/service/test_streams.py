"""A client that lost its connection comes back with its token and gets the rest, once, and nobody else does."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.fakes import RecordingSink, service
from tests.service.sharing_world import SCRIPT, CountingEngine, with_options
from tests.service.test_exchange import ended, variant
from tests.service.test_service import ask, error, finish_reason, running, until

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.contract.stream_options import ResumeOptions
from seekserve_backend.engines.port import EngineRequest, Sampling
from seekserve_backend.engines.synthetic import SyntheticEngine
from seekserve_backend.record import Piece, Record
from seekserve_backend.service import Service

TEXT = SCRIPT.decode()
WISH: dict[str, object] = {"max_tokens": 60, "resumable": True, "tenant": "a"}


def held_at(tokens: int) -> CountingEngine:
    engine = CountingEngine()
    engine.pause_at = tokens
    return engine


def token_of(sink: RecordingSink) -> str:
    (token,) = [a.resume_token for a in sink.answers if isinstance(a, Chunk) and a.resume_token]
    return token


def come_back(made: Service, token: str, received: str | int = 0, **wishes: object) -> RecordingSink:
    sink = RecordingSink()
    from_bytes = received if isinstance(received, int) else len(received.encode())
    wishes = {"tenant": "a", "resume_from_bytes": from_bytes, **wishes}
    made.accept(Inbound(stream=True, resume_token=token, **wishes), sink)  # type: ignore[arg-type]
    return sink


def lose(sink: RecordingSink) -> str:
    """Its text until then."""
    sink.has_left = True
    assert error(sink).code is ErrorCode.CANCELLED
    return sink.text


def kept(made: Service) -> float:
    return made.stats().sharing["kept_streams"]


def test_the_rest_comes_without_a_second_run_and_byte_for_byte() -> None:
    engine = held_at(9)
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        assert (made.stats().snapshot.running, kept(made)) == (1, 1)
        second = come_back(made, token_of(first), text)
        until(lambda: made.stats().snapshot.terminals["cancelled"] == 1)
        engine.go_on()
        assert finish_reason(second) == "stop"
        assert text + second.text == TEXT
        assert len(engine.added) == 1
        assert token_of(second) == token_of(first), "the same token, so that it can be lost again"


def test_what_was_made_while_the_client_was_away_is_there_at_once() -> None:
    engine = held_at(9)
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        engine.go_on()
        until(lambda: made.stats().snapshot.running == 0)
        assert made.stats().snapshot.terminals["finished"] == 1
        second = come_back(made, token_of(first), text)
        assert finish_reason(second) == "stop"
        assert (text + second.text, len(second.answers)) == (TEXT, 1)


def test_an_answer_that_was_sent_into_a_dead_connection_can_be_fetched() -> None:
    with running(service(CountingEngine)) as made:
        first = ask(made, **WISH)
        assert finish_reason(first) == "stop"
        until(lambda: kept(made) == 1)
        for received in (0, 2, len(SCRIPT)):
            again = come_back(made, token_of(first), received)
            assert finish_reason(again) == "stop"
            assert again.text.encode() == SCRIPT[received:]
            until(lambda: kept(made) == 1)


def test_one_that_was_lost_in_the_queue_keeps_its_place() -> None:
    engine = held_at(0)
    with running(service(lambda: engine)) as made:
        fillers = [ask(made, text=bytes([65 + n]), max_tokens=60) for n in range(4)]
        until(lambda: made.stats().snapshot.running == 4)
        first = ask(made, **WISH, heartbeat_ms=100)
        until(lambda: any(isinstance(a, Chunk) and a.resume_token for a in first.answers))
        lose(first)
        assert sum(made.stats().snapshot.queued_by_class.values()) == 1
        second = come_back(made, token_of(first))
        engine.go_on()
        assert finish_reason(second) == "stop"
        assert second.text == TEXT
        assert [finish_reason(sink) for sink in fillers] == ["stop"] * 4


def test_a_second_connection_takes_over_from_the_first() -> None:
    engine = held_at(9)
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        text = first.text
        second = come_back(made, token_of(first), text)
        line = error(first)
        assert (line.code, "another connection" in line.reason) == (ErrorCode.CANCELLED, True)
        engine.go_on()
        assert finish_reason(second) == "stop"
        assert text + second.text == TEXT


def test_unknown_foreign_and_late_tokens_are_told_apart_by_nobody() -> None:
    engine = held_at(9)
    with running(service(lambda: engine, with_policy=with_options(resume=ResumeOptions(resume_ttl_s=0.2)))) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        token = token_of(first)
        foreign, unknown = come_back(made, token, tenant="b"), come_back(made, "x" * len(token))
        lose(first)
        until(lambda: made.stats().snapshot.running == 0)
        late = come_back(made, token)
        lines = [error(sink) for sink in (foreign, unknown, late)]
        assert {(line.code, line.field, line.reason) for line in lines} == {
            (ErrorCode.INVALID, "resume_token", lines[0].reason)
        }
        counts = made.stats().snapshot
        assert (counts.refused_by_code["invalid"], counts.terminals["cancelled"]) == (3, 1)
        assert made.stats().sharing["dropped_streams"] == 1


@pytest.mark.parametrize(("received", "words"), [(3, "inside a character"), (99, "99 bytes of text where only")])
def test_a_place_that_is_none_is_refused_with_the_numbers(received: int, words: str) -> None:
    with running(service(CountingEngine)) as made:
        first = ask(made, text=b"x", max_tokens=60, resumable=True, tenant="a", stop_words=("😀",))
        assert finish_reason(first) == "stop"
        line = error(come_back(made, token_of(first), received))
        assert (line.code, line.field) == (ErrorCode.INVALID, "resume_from_bytes")
        assert words in line.reason


@pytest.mark.parametrize("is_lost", [False, True])
def test_giving_up_cancels_the_work_at_once(is_lost: bool) -> None:
    engine = held_at(9)
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        if is_lost:
            lose(first)
        bye = come_back(made, token_of(first), resume_cancel=True)
        assert finish_reason(bye) == "cancelled"
        assert error(first).code is ErrorCode.CANCELLED
        until(lambda: made.stats().snapshot.running == 0)
        assert error(come_back(made, token_of(first))).field == "resume_token"


def test_without_a_token_that_was_told_a_lost_client_is_a_cancel() -> None:
    engine = held_at(0)
    engine.is_held = True
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: made.stats().snapshot.running == 1)
        lose(first)
        until(lambda: made.stats().snapshot.running == 0)
        assert made.stats().snapshot.terminals["cancelled"] == 1


def test_a_policy_that_keeps_none_refuses_the_wish_by_name() -> None:
    with running(service(with_policy=with_options(resume=ResumeOptions(enabled=False)))) as made:
        line = error(ask(made, **WISH))
        assert (line.code, line.field) == (ErrorCode.INVALID, "resumable")


def test_a_full_table_lets_the_oldest_go_and_its_work_with_it() -> None:
    engine = held_at(2)
    with running(service(lambda: engine, with_policy=with_options(resume=ResumeOptions(max_streams=1)))) as made:
        engine.is_held = True
        sinks = [ask(made, text=bytes([97 + n]), **WISH) for n in range(2)]
        until(lambda: made.stats().snapshot.running == 2)
        engine.is_held = False
        until(lambda: all(sink.text for sink in sinks))
        for sink in sinks:
            lose(sink)
        until(lambda: made.stats().snapshot.running == 1)
        engine.go_on()
        assert error(come_back(made, token_of(sinks[0]))).field == "resume_token"
        back = come_back(made, token_of(sinks[1]))
        assert finish_reason(back) == "stop"
        assert back.text == TEXT


def test_equal_streams_share_a_run_and_each_comes_back_to_its_own_place() -> None:
    engine = held_at(9)
    with running(service(lambda: engine, with_policy=with_options())) as made:
        sinks = [ask(made, **WISH)]
        until(lambda: engine.is_held and bool(sinks[0].text))
        sinks.append(ask(made, **WISH))
        until(lambda: bool(sinks[1].text))
        assert token_of(sinks[0]) != token_of(sinks[1])
        texts = [lose(sink) for sink in sinks]
        backs = [come_back(made, token_of(sink), text) for sink, text in zip(sinks, texts, strict=True)]
        engine.go_on()
        assert [finish_reason(sink) for sink in backs] == ["stop", "stop"]
        assert [text + sink.text for text, sink in zip(texts, backs, strict=True)] == [TEXT, TEXT]
        assert len(engine.added) == 1


def test_a_stop_waits_for_nobody_who_is_away() -> None:
    engine = held_at(9)
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        lose(first)
        made.stop(timeout_s=30)
        assert made.stats().snapshot.running == 0
        assert made.stats().snapshot.terminals["failed"] == 0


def test_heartbeats_come_until_the_first_token_and_only_when_asked_for() -> None:
    engine = held_at(0)
    engine.is_held = True
    with running(service(lambda: engine)) as made:
        plain, asked = ask(made, max_tokens=60), ask(made, max_tokens=60, heartbeat_ms=100)
        until(lambda: len(asked.answers) >= 2)
        assert plain.answers == []
        engine.go_on()
        assert [finish_reason(sink) for sink in (plain, asked)] == ["stop", "stop"]
        beats = [a for a in asked.answers if isinstance(a, Chunk) and a.is_heartbeat]
        waits = [beat.queue_ms for beat in beats]
        assert all(beat.text == "" and beat.finish_reason is None for beat in beats)
        assert waits == sorted(waits, key=lambda ms: ms or 0.0)
        assert all(ms is not None and ms > 0 for ms in waits)
        assert asked.text == plain.text == TEXT


class StormEngine(CountingEngine):
    def add(self, request: EngineRequest) -> None:
        super().add(request)
        self._said[request.id] = len(request.prompt_ids) - 1


PAUSING = with_options(resume=ResumeOptions(work_while_away=False))


class ReadingEngine(CountingEngine):
    """Goes on with the script behind what it finds of it in the prompt, as a model does."""

    def add(self, request: EngineRequest) -> None:
        super().add(request)
        self._said[request.id] = len(request.prompt_ids) - len(b"hello")


@pytest.mark.parametrize("stop_words", [(), ("d",)])
def test_a_paused_stream_leaves_the_engine_and_goes_on_where_it_was(stop_words: tuple[str, ...]) -> None:
    engine = ReadingEngine()
    engine.pause_at = 9
    with running(service(lambda: engine, with_policy=PAUSING)) as made:
        first = ask(made, **WISH, stop_words=stop_words)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        until(lambda: made.stats().snapshot.terminals["cancelled"] == 1)
        assert (made.stats().snapshot.running, kept(made)) == (0, 1)
        engine.go_on()
        second = come_back(made, token_of(first), text)
        assert finish_reason(second) == "stop"
        whole = TEXT.split("d")[0] if stop_words else TEXT
        assert text + second.text == whole
        again = come_back(made, token_of(first))
        assert finish_reason(again) == "stop"
        assert again.text == whole
        last = second.last
        assert isinstance(last, Chunk)
        assert (last.prompt_tokens, last.completion_tokens) == (
            5,
            SCRIPT.index(b"d") + 1 if stop_words else len(SCRIPT),
        )
        assert [len(request.prompt_ids) for request in engine.added] == [5, 5 + 60 - engine.added[1].max_tokens]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.5), Sampling(presence_penalty=1.0)], ids=str)
def test_what_would_not_go_on_alike_is_not_paused(sampling: Sampling) -> None:
    engine = held_at(9)
    with running(service(lambda: engine, with_policy=PAUSING)) as made:
        first = ask(made, **WISH, sampling=sampling)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        engine.go_on()
        until(lambda: made.stats().snapshot.terminals["finished"] == 1)
        second = come_back(made, token_of(first), text)
        assert finish_reason(second) == "stop"
        assert text + second.text == TEXT


def test_a_return_to_paused_work_may_be_refused_and_tried_again() -> None:
    engine = ReadingEngine()
    engine.pause_at = 9
    options = with_options(resume=ResumeOptions(work_while_away=False), queue_requests=1)
    with running(service(lambda: engine, with_policy=options)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        until(lambda: made.stats().snapshot.terminals["cancelled"] == 1)
        fillers = []
        for n in range(5):  # four run, one waits
            fillers.append(ask(made, text=b"HELLO"[:n] + b"hello"[n:], max_tokens=60))
            until(lambda: made.stats().snapshot.intake == 0)
            until(lambda n=n: made.stats().snapshot.running == min(4, n + 1))
        line = error(come_back(made, token_of(first), text))
        assert line.code is ErrorCode.OVERLOADED
        engine.go_on()
        assert [finish_reason(sink) for sink in fillers] == ["stop"] * 5
        second = come_back(made, token_of(first), text)
        assert finish_reason(second) == "stop"
        assert text + second.text == TEXT


def test_a_paused_stream_does_not_go_on_with_another_model() -> None:
    engine = ReadingEngine()
    engine.pause_at = 9
    with running(service(lambda: engine, with_policy=PAUSING)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        until(lambda: made.stats().snapshot.terminals["cancelled"] == 1)
        ended(made.exchange(variant(lambda: CountingEngine(b"another")), 60.0), made)
        assert error(come_back(made, token_of(first), text)).field == "resume_token"


@pytest.mark.parametrize("works_on", [True, False])
def test_a_storm_of_losses_and_returns_loses_no_byte_and_no_count(works_on: bool) -> None:
    rng = random.Random(9)
    options = with_options(resume=ResumeOptions(max_streams=20, work_while_away=works_on))
    script = bytes(range(97, 123)) * 2

    def make() -> SyntheticEngine:
        return StormEngine(script)

    with running(service(make, with_policy=options)) as made:
        texts: dict[int, str] = {}
        open_now: dict[int, RecordingSink] = {}
        tokens: dict[int, str] = {}
        for n in range(60):
            open_now[n] = ask(made, text=bytes([97 + n % 5]), **WISH)
            texts[n] = ""
        for _ in range(400):
            if not open_now:
                break
            n = rng.choice(list(open_now))
            sink = open_now[n]
            if sink.answers and isinstance(sink.answers[0], Chunk) and sink.answers[0].resume_token:
                tokens[n] = sink.answers[0].resume_token
            if n in tokens and rng.random() < 0.7:
                sink.has_left = True
                if rng.random() < 0.5:
                    sink.done.wait(0.05)
                taken = sum(isinstance(a, Chunk) for a in sink.answers)
                texts[n] += "".join(a.text for a in sink.answers[:taken] if isinstance(a, Chunk))
                if sink.done.is_set() and isinstance(sink.answers[-1], Chunk):
                    assert script.decode().startswith(texts[n])
                    del open_now[n]
                    continue
                back = come_back(made, tokens[n], texts[n])
                open_now[n] = back
            elif sink.done.is_set():
                texts[n] += sink.text
                del open_now[n]
        for n, sink in open_now.items():
            last = sink.last
            if isinstance(last, Chunk):
                assert (texts[n] + sink.text).encode() in (script, script[:60])
            else:
                assert last.code in (ErrorCode.INVALID, ErrorCode.CANCELLED)
            assert sink.terminals == 1


@given(
    texts=st.lists(st.text(alphabet="aé😀", max_size=4), min_size=1, max_size=8),
    cut=st.integers(0, 60),
    is_over=st.booleans(),
)
def test_a_record_goes_on_from_any_byte_between_two_characters(texts: list[str], cut: int, is_over: bool) -> None:
    record = Record()
    for n, text in enumerate(texts):
        record.add(
            Piece(text=text, completion_tokens=n + 1, finish_reason="stop" if is_over and text is texts[-1] else None)
        )
    data = "".join(texts).encode()
    if cut > len(data):
        with pytest.raises(ValueError, match=f"only {len(data)}"):
            record.place(cut)
        return
    try:
        rest = data[cut:].decode()
        data[:cut].decode()
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match="inside a character"):
            record.place(cut)
        return
    piece, place = record.since(record.place(cut))
    assert (piece.text if piece is not None else "") == rest
    assert record.since(place)[0] is None
    assert piece is not None or (not record.is_complete and not rest)


def test_the_default_policy_keeps_streams_and_shares_nothing() -> None:
    assert (Policy().resume.enabled, Policy().repeat_cache.enabled) == (True, False)


def test_a_paused_stream_that_returns_during_a_swap_is_told_to_come_later() -> None:
    """Let in, it would be read by the new model in tokens of the old one."""
    engine = ReadingEngine()
    engine.pause_at = 9
    with running(service(lambda: engine, with_policy=PAUSING)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        text = lose(first)
        until(lambda: made.stats().snapshot.terminals["cancelled"] == 1)
        other = ask(made, b"HELLO")
        until(lambda: made.stats().snapshot.running == 1)
        wish = made.exchange(variant(lambda: CountingEngine(b"another")), 60.0)
        line = error(come_back(made, token_of(first), text))
        assert line.code is ErrorCode.NOT_SERVING
        assert line.retry_after_ms is not None
        engine.go_on()
        assert isinstance(other.last, Chunk)
        ended(wish, made)


def test_a_paused_stream_may_go_on_though_its_answer_makes_the_prompt_longer_than_its_class_takes() -> None:
    engine = ReadingEngine()
    engine.pause_at = 9
    rules = dataclasses.replace(PAUSING.classes["interactive"], max_prompt_tokens=5)
    limited = dataclasses.replace(PAUSING, classes={"interactive": rules})
    with running(service(lambda: engine, with_policy=limited)) as made:
        assert error(ask(made, b"hello!", **WISH)).code is ErrorCode.TOO_LARGE
        sink, text = ask(made, **WISH), ""
        for paused, pause_at in ((1, 20), (2, None)):
            until(lambda sink=sink: engine.is_held and bool(sink.text))
            text += lose(sink)
            until(lambda paused=paused: made.stats().snapshot.terminals["cancelled"] == paused)
            engine.go_on()
            engine.pause_at = pause_at
            sink = come_back(made, token_of(sink), text)
        assert finish_reason(sink) == "stop"
        assert text + sink.text == TEXT
        assert len(engine.added) == 3, "paused a second time as well"
        measured = [name.removeprefix("seekserve_") for name, _, _ in made.observations(100)]
        assert (measured.count("request_output_tokens"), measured.count("request_prompt_tokens")) == (1, 3)


def test_a_stream_that_changes_hands_is_measured_once_and_from_its_beginning() -> None:
    engine = held_at(9)
    with running(service(lambda: engine)) as made:
        first = ask(made, **WISH)
        until(lambda: engine.is_held and bool(first.text))
        lose(first)
        second = come_back(made, token_of(first))
        until(lambda: made.stats().snapshot.terminals["cancelled"] == 1)
        engine.go_on()
        assert finish_reason(second) == "stop"
        found = made.observations(100)
    names = [name.removeprefix("seekserve_") for name, _, _ in found]
    for once in ("time_to_first_token_seconds", "queue_time_seconds", "request_duration_seconds"):
        assert names.count(once) == 1, once
    assert {request_class for _, request_class, _ in found} <= {"interactive", None}
