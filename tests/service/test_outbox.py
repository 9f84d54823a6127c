"""What a lane promises: order, last answers that wait for their sink, and an age for a send that does not return."""

from __future__ import annotations

import threading

from tests.service.fakes import RecordingSink

from seekserve_backend.answers import Chunk
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.outbox import Outbox

MORE = Chunk(text="a", completion_tokens=1)
LAST = Chunk(text="b", completion_tokens=2, finish_reason="stop")
ERROR = ErrorLine(code=ErrorCode.FAILED, reason="broken")


class HoldingSink(RecordingSink):
    """Lets its last answer go when it has been asked `asks` times."""

    def __init__(self, asks: int) -> None:
        super().__init__()
        self.asks_left = asks

    def hold_s(self) -> float:
        self.asks_left -= 1
        return 0.001 if self.asks_left >= 0 else 0.0


def test_a_held_last_answer_comes_after_its_pieces_and_in_front_of_nobody() -> None:
    outbox = Outbox(workers=1)
    held, other = HoldingSink(10**9), RecordingSink()
    outbox.put(0, held, MORE)
    outbox.put(0, held, LAST)
    outbox.put(0, other, MORE)
    outbox.put(0, other, ERROR)
    outbox.flush()
    assert other.last == ERROR
    assert held.answers == [MORE]
    held.asks_left = 2
    assert held.last == LAST
    assert held.answers == [MORE, LAST]
    outbox.close(10)
    assert outbox.depth == 0


def test_close_delivers_what_is_held() -> None:
    outbox = Outbox(workers=2)
    sinks = [HoldingSink(3) for _ in range(6)]
    for lane, sink in enumerate(sinks):
        outbox.send(lane, sink, LAST)
    outbox.close(10)
    assert [sink.answers for sink in sinks] == [[LAST]] * 6
    assert outbox.depth == 0


def test_a_send_that_does_not_return_has_an_age_and_one_that_did_has_none() -> None:
    is_in, may_return = threading.Event(), threading.Event()

    class Stuck(RecordingSink):
        def send(self, chunk: Chunk) -> None:
            is_in.set()
            may_return.wait(30)
            super().send(chunk)

    outbox = Outbox(workers=2)
    assert outbox.send_age_s == 0.0
    sink = Stuck()
    outbox.send(0, sink, LAST)
    assert is_in.wait(10)
    first = outbox.send_age_s
    assert 0.0 < first < outbox.send_age_s
    may_return.set()
    assert sink.last == LAST
    outbox.close(10)
    assert outbox.send_age_s == 0.0


def test_a_sink_that_raises_does_not_silence_its_lane() -> None:
    class Broken(RecordingSink):
        def hold_s(self) -> float:
            raise OSError("nobody to ask")

    outbox = Outbox(workers=1)
    good = RecordingSink()
    outbox.send(0, Broken(), LAST)
    outbox.send(0, good, LAST)
    assert good.last == LAST
    outbox.close(10)
    assert outbox.depth == 0
