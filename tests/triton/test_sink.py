"""The two rules that keep the server alive: FINAL once, and no question after it."""

from __future__ import annotations

import threading

import pytest
from tests.triton.fake_utils import Sender, Utils

from seekserve_backend.answers import Chunk
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.triton.sink import TritonSink

MORE = Chunk(text="ä", completion_tokens=1)
LAST = Chunk(text="b", completion_tokens=2, finish_reason="stop", prompt_tokens=3, queue_ms=1.5)
ERROR = ErrorLine(code=ErrorCode.OVERLOADED, reason="full", retry_after_ms=10)


def test_final_goes_inline_with_the_last_data_in_the_batch_shape() -> None:
    sender = Sender()
    sink = TritonSink(sender, Utils)
    sink.send(MORE)
    sink.send(LAST)
    assert sender.is_final
    assert len(sender.sent) == 2
    assert sender.sent[0] is not None
    tensor = sender.sent[0].output_tensors[0]
    assert tensor.as_numpy().shape == (1, 1)
    assert tensor.as_numpy()[0, 0] == "ä".encode()


def test_nothing_is_sent_or_asked_after_the_last() -> None:
    sender = Sender()
    sink = TritonSink(sender, Utils)
    sink.error(ERROR)
    sink.send(MORE)
    sink.send(LAST)
    sink.error(ERROR)
    assert not sink.is_cancelled()
    assert len(sender.sent) == 1


def test_an_error_travels_as_one_json_line_with_its_code() -> None:
    sender = Sender()
    TritonSink(sender, Utils).error(ERROR)
    assert sender.sent[0] is not None
    error = sender.sent[0].error
    assert error is not None
    assert error.code == "UNAVAILABLE"
    assert ErrorLine.from_message("prefix: " + error.message) == ERROR


@pytest.mark.parametrize("chunk", [MORE, LAST])
def test_a_response_that_cannot_be_sent_ends_the_stream_with_an_error(chunk: Chunk) -> None:
    sender = Sender()
    sender.send_raises = 1
    sink = TritonSink(sender, Utils)
    sink.send(chunk)
    assert sender.is_final
    assert len(sender.sent) == 1
    assert sender.sent[0] is not None
    assert sender.sent[0].error is not None
    assert sender.sent[0].error.code == "INTERNAL"
    assert sink.is_cancelled(), "what still runs for it is of no use"


def test_a_stream_that_takes_no_error_either_gets_the_bare_final() -> None:
    sender = Sender()
    sender.send_raises = 2
    TritonSink(sender, Utils).send(MORE)
    assert sender.is_final
    assert sender.sent == [None]


def test_a_response_that_cannot_be_built_ends_the_stream_too() -> None:
    class NoTensors(Utils):
        @staticmethod
        def Tensor(*_: object) -> None:
            raise MemoryError("shared memory cannot grow")

    sender = Sender()
    TritonSink(sender, NoTensors).send(LAST)
    assert sender.is_final


def test_polling_never_runs_beside_final() -> None:
    for _ in range(50):
        sender = Sender()
        sink = TritonSink(sender, Utils)
        faults: list[BaseException] = []

        def poll(sink: TritonSink = sink, faults: list[BaseException] = faults) -> None:
            try:
                for _ in range(200):
                    sink.is_cancelled()
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=poll) for _ in range(3)]
        for thread in threads:
            thread.start()
        sink.send(LAST)
        for thread in threads:
            thread.join()
        assert not faults


def test_the_last_answer_keeps_a_distance_from_the_one_before() -> None:
    now = [10.0]
    sink = TritonSink(Sender(), Utils, clock=lambda: now[0])
    assert sink.hold_s() == 0.0, "nothing was sent that could still be on its way"
    sink.send(MORE)
    hold_s = sink.hold_s()
    assert 0.0 < hold_s <= 0.005, "long enough for a write, short against a step"
    now[0] += hold_s / 2
    sink.send(MORE)
    assert sink.hold_s() == pytest.approx(hold_s)
    now[0] += 2 * hold_s
    assert sink.hold_s() == 0.0


def test_log_probabilities_go_out_as_one_row_of_the_batch() -> None:
    sender = Sender()
    TritonSink(sender, Utils).send(Chunk(text="b", completion_tokens=2, logprobs=(-0.5, -1.0), cumulative_logprob=-1.5))
    assert sender.sent[0] is not None
    arrays = {tensor.name(): tensor.as_numpy() for tensor in sender.sent[0].output_tensors}
    assert arrays["output_log_probs"].tolist() == [[[-0.5, -1.0]]]
    assert arrays["cum_log_probs"].tolist() == [[-1.5]]


def test_a_heartbeat_is_worthless_once_anything_else_was_sent() -> None:
    sender = Sender()
    sink = TritonSink(sender, Utils)
    beat = Chunk(text="", completion_tokens=0, queue_ms=3.0, resume_token="t0k", is_heartbeat=True)
    for chunk in (beat, beat, MORE, beat, LAST):
        sink.send(chunk)
    names = [[tensor.name() for tensor in response.output_tensors] for response in sender.sent if response is not None]
    assert names[:3] == [["text_output", "queue_ms", "resume_token"]] * 2 + [["text_output"]]
    assert len(names) == 4
