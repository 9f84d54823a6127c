"""Carries the calls of the stock engine over Triton's business logic scripting (BLS), with `pb_utils`.

Every call says all of its own parameters, since BLS hands nothing on. Both `open` and the iteration block outside the
interpreter's lock, so each runs on a thread of its own. Known fault of the Python backend, 24.10 to at least mid-2026:
with several streams the stub can lock up for good (a stream that wakes up holds its queue's lock and wants the
interpreter's; the thread that delivers wants that queue and holds the list of streams; a call that returns holds the
interpreter's and wants the list). `loopback` avoids it.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..contract.bundle import Bundle
from ..engines.port import Engine, EngineInfo
from ..engines.triton_bls.engine import StockEngine, Timing
from ..engines.triton_bls.link import Link
from ..engines.triton_bls.port import InputTensor, StockCall, StockPort, StockResponse
from ..engines.triton_bls.vocabulary import end_ids, vocabulary_size
from .loopback import GrpcPort

__all__ = ["BlsPort", "stock_engine_factory"]

_NUMPY_TYPES = {"INT32": "i4", "INT64": "i8", "UINT64": "u8", "FP32": "f4", "BOOL": "?"}
# A call without its first response holds one of the server's 32 threads per instance (`thread-pool-size` of the Python
# backend), and so does each of our responses on its way to a client: some must stay free for those.
_MAX_OPENING = 24
_KEEP_S = 0.5


class BlsPort:
    """A `StockPort`."""

    def __init__(self, utils: Any, model: str) -> None:
        import numpy

        self._array = numpy.array
        self._utils = utils
        self._model = model
        self._ended: queue.SimpleQueue[tuple[float, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._let_go, name="seekserve-stock-ended", daemon=True).start()

    def open(self, call: StockCall) -> _BlsStream:
        utils = self._utils
        request = utils.InferenceRequest(
            model_name=self._model,
            request_id=call.request_id,
            correlation_id=0,
            requested_output_names=list(call.outputs),
            inputs=[self._tensor(tensor) for tensor in call.inputs],
            timeout=call.timeout_us,
            flags=0,
            preferred_memory=utils.PreferredMemory(utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        responses = request.exec(decoupled=True)
        return _BlsStream(responses, self._ended)

    def _let_go(self) -> None:
        """Of iterators, late: where the stub's own reference is the last, it frees Python objects without the
        interpreter's lock (Triton 24.10: "malloc(): unaligned fastbin chunk detected")."""
        while True:
            until_s, responses = self._ended.get()
            time.sleep(max(0.0, until_s - time.monotonic()))
            del responses

    def _tensor(self, tensor: InputTensor) -> Any:
        array = self._array(tensor.values, dtype=_NUMPY_TYPES[tensor.data_type]).reshape(tensor.shape)
        return self._utils.Tensor(tensor.name, array)


class _BlsStream:
    def __init__(self, responses: Any, ended: queue.SimpleQueue[tuple[float, Any]]) -> None:
        self._responses = responses
        self._ended = ended

    def __iter__(self) -> Iterator[StockResponse]:
        try:
            for response in self._responses:
                if response.has_error():
                    yield StockResponse(values={}, error=str(response.error().message()))
                else:
                    yield StockResponse(
                        values={tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}
                    )
        finally:
            self._ended.put((time.monotonic() + _KEEP_S, self._responses))

    def cancel(self) -> bool:
        cancel = getattr(self._responses, "cancel", None)  # since 2025
        if cancel is None:
            return False
        cancel()
        return True


def stock_engine_factory(
    config: Mapping[str, Any], utils: Any, bundle: Bundle, bundle_dir: Path
) -> Callable[[], Engine] | None:
    """None unless the model's config has the parameter `stock_model`, the name of the model to call.

    `stock_stall_s`: for how long it may be silent. `stock_grpc_address` (or SEEKSERVE_GRPC_ADDRESS): where this server
    listens; without it the calls go over BLS. All engines speak over one link, which
    knows what an earlier one left running.
    """
    parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
    model = parameters.get("stock_model")
    if model is None:
        return None
    timing = Timing(stall_s=float(parameters["stock_stall_s"])) if "stock_stall_s" in parameters else Timing()
    spec = bundle.trtllm
    max_beam_width = 1 if spec is None else spec.max_beam_width
    info = EngineInfo(
        kind="triton",
        max_seq_len_tokens=bundle.limits.max_seq_len_tokens,
        max_batch_size=bundle.limits.max_batch_size,
        block_tokens=bundle.kv.block_tokens,
        kv_total_blocks=bundle.kv.capacity_blocks,
        may_pause=bundle.kv.may_pause,
        vocab_size=vocabulary_size(bundle_dir),
        eos_ids=end_ids(bundle_dir),
        has_logprobs=True,
        max_beam_width=max_beam_width,
        runtime_controls=frozenset({"beam_width"} if max_beam_width > 1 else ()),
    )
    address = parameters.get("stock_grpc_address") or os.environ.get("SEEKSERVE_GRPC_ADDRESS")
    port: StockPort = GrpcPort(address, model) if address else BlsPort(utils, model)
    max_opening = info.max_batch_size if address else _MAX_OPENING
    # More than the batch: streams on their way to an end, and some that Triton never ends.
    link = Link(port, max_streams=4 * info.max_batch_size + 64)
    retention = None if spec is None else spec.retention
    return lambda: StockEngine(link, info, bundle.kv, max_opening=max_opening, retention=retention, timing=timing)
