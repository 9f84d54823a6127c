"""The readiness probe against a gRPC service that answers as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from seekserve.server.probe import PROBE_PARAMETER, ProbeFailed, generate_once
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

Answer = Callable[[Any, Any], Iterator[Any]]


@contextmanager
def _serving(answer: Answer) -> Iterator[str]:
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
        def ModelStreamInfer(self, request_iterator: Any, context: Any) -> Iterator[Any]:
            for request in request_iterator:
                yield from answer(request, context)

    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def _response(*, final: bool = False, error: str = "") -> Any:
    from tritonclient.grpc import service_pb2

    response = service_pb2.ModelStreamInferResponse(error_message=error)
    response.infer_response.parameters["triton_final_response"].bool_param = final
    return response


def _probe(address: str, timeout_s: float = 10.0, ended: str | None = None) -> None:
    generate_once(address, "m", "KEY", timeout_s=timeout_s, ended=lambda: ended)


def test_it_passes_after_the_final_response_and_carries_the_key() -> None:
    seen: list[Any] = []

    def answer(request: Any, _context: Any) -> Iterator[Any]:
        seen.append(request)
        yield _response()
        yield _response(final=True)

    with _serving(answer) as address:
        _probe(address)
    assert seen[0].model_name == "m"
    assert seen[0].parameters[PROBE_PARAMETER].string_param == "KEY"
    assert [(tensor.name, list(tensor.shape)) for tensor in seen[0].inputs] == [
        ("text_input", [1, 1]),
        ("max_tokens", [1, 1]),
        ("stream", [1, 1]),
    ]


@pytest.mark.parametrize(
    ("error", "can_pass_later", "text"),
    [
        (ErrorLine(code=ErrorCode.FAILED, reason="the engine failed").to_line(), False, "failed: the engine failed"),
        (ErrorLine(code=ErrorCode.INVALID, reason="bad").to_line(), False, "invalid: bad"),
        (ErrorLine(code=ErrorCode.NOT_SERVING, reason="starting").to_line(), True, "not_serving: starting"),
        ("Stub process 'm_0_0' is not healthy.", True, "not healthy"),
    ],
)
def test_an_error_says_whether_trying_again_makes_sense(error: str, can_pass_later: bool, text: str) -> None:
    answers = [_response(error=error)]
    with (
        _serving(lambda _request, _context: iter(answers)) as address,
        pytest.raises(ProbeFailed, match=text) as caught,
    ):
        _probe(address)
    assert caught.value.can_pass_later is can_pass_later


def test_a_missing_final_response_fails_at_the_deadline() -> None:
    with (
        _serving(lambda _request, _context: iter([_response()])) as address,
        pytest.raises(ProbeFailed, match="no final"),
    ):
        _probe(address, timeout_s=0.3)


def test_a_server_that_ended_is_not_waited_for() -> None:
    with _serving(lambda _request, _context: iter([_response()])) as address, pytest.raises(ProbeFailed) as caught:
        _probe(address, timeout_s=30.0, ended="it is gone")
    assert str(caught.value) == "it is gone"
    assert not caught.value.can_pass_later


def test_a_server_that_is_not_there_may_come() -> None:
    with pytest.raises(ProbeFailed) as caught:
        _probe("127.0.0.1:1", timeout_s=5.0)
    assert caught.value.can_pass_later
