"""A stand-in for the stock C++ `tensorrt_llm` model, as a Triton Python model with its typed tensors.

It answers in real time, a token at a time, as that model does: new tokens alone while streaming, every log probability
so far, a stop named by request id (an empty final response, with or without something to stop), all errors INTERNAL.
`control.json` beside this file is read anew for each request; every start, stop and end is a line of `journal.jsonl`.
"""

import json
import site
import sys
import threading
import time
from pathlib import Path

_HERE = Path(__file__).resolve().parent
if (_HERE / "site_packages.txt").exists():
    sys.path.insert(0, (_HERE / "site_packages.txt").read_text())
    site.addsitedir(sys.path[0])

import numpy  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402

DEFAULTS = {
    "first_s": 0.0,
    "token_s": 0.002,
    "script": [],  # token ids to answer with, over and over; empty: the prompt's own
    "end_after": None,  # tokens, after which the model itself ends the sequence
    "shows_end_id": False,
    "tokens_per_response": 1,
    "fault": None,  # error, error_midway, hang (until the control file says otherwise), silent_end, die, shutdown
    "fault_share": 1,  # of every so many requests, one
    "ignores_stop": False,
}


class TritonPythonModel:
    def initialize(self, args):
        self._lock = threading.Lock()
        self._stops = {}
        self._requests = 0

    def execute(self, requests):
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            wanted = set(request.requested_output_names())
            sender, request_id = request.get_response_sender(), request.request_id()
            if "stop" in inputs and bool(_one(inputs, "stop")):
                self._stop(request_id, sender)
                continue
            stopped = threading.Event()
            with self._lock:
                self._stops[request_id] = stopped
                self._requests += 1
                number = self._requests
            arguments = (request_id, number, inputs, wanted, sender, stopped)
            threading.Thread(target=self._answer, args=arguments, daemon=True).start()

    def _stop(self, request_id, sender):
        error = None
        with self._lock:
            stopped = self._stops.get(request_id)
        if not request_id:
            error = "Trying to stop a request but request ID is not provided"
        elif stopped is not None and not _control()["ignores_stop"]:
            stopped.set()
        self._journal("stop", request_id, found=stopped is not None)
        _send(sender, error=error, is_final=True) if error else _send(sender, is_final=True)

    def _answer(self, request_id, number, inputs, wanted, sender, stopped):
        control = _control()
        fault = control["fault"] if number % control["fault_share"] == 0 else None
        self._journal("start", request_id, inputs={name: value.tolist() for name, value in inputs.items()})
        try:
            tokens = self._generate(control, fault, inputs, wanted, sender, stopped)
        except ValueError as error:
            _send(sender, error=str(error), is_final=True)
            tokens = 0
        with self._lock:
            if self._stops.get(request_id) is stopped:
                del self._stops[request_id]
        self._journal("end", request_id, tokens=tokens, stopped=stopped.is_set())

    def _generate(self, control, fault, inputs, wanted, sender, stopped):
        if not {"output_ids", "sequence_length"} <= wanted:
            raise ValueError("Error encountered while populating response: a tensor must be present in the outputs")
        prompt = [int(token) for token in inputs["input_ids"].reshape(-1)]
        limit = int(_one(inputs, "request_output_len"))
        ends = _end_ids(inputs)
        streams = bool(_one(inputs, "streaming", False))
        beams = int(_one(inputs, "beam_width", 1))
        wants_logprobs = bool(_one(inputs, "return_log_probs", False)) and "output_log_probs" in wanted
        if fault == "shutdown":
            raise ValueError("Encountered an error when fetching new request: the executor has been shut down")
        if fault == "error":
            raise ValueError("Executor failed process requestId 7 due to the following error: /secret/engine: no luck")
        if fault == "hang":
            while _control()["fault"] == "hang":
                time.sleep(0.2)
            raise ValueError("it hung")
        if fault == "silent_end":
            _send(sender, is_final=True)
            return 0
        if fault == "die":
            import os

            os._exit(1)
        source = control["script"] or prompt
        if not streams:
            prompt_part = [] if bool(_one(inputs, "exclude_input_in_output", False)) else prompt
        time.sleep(control["first_s"])
        made, unsent = [], []
        while True:
            is_last = stopped.is_set()
            if not is_last:
                at_end = control["end_after"] is not None and len(made) == control["end_after"]
                token = ends[0] if at_end and ends else source[len(made) % len(source)]
                is_last = token in ends
                if not is_last or control["shows_end_id"]:
                    made.append(token)
                    unsent.append(token)
                is_last = is_last or len(made) >= limit
            if fault == "error_midway" and len(made) >= 3:
                raise ValueError("Executor failed process requestId 7 due to the following error: CUDA out of memory")
            if is_last or (streams and len(unsent) >= control["tokens_per_response"]):
                ids = unsent if streams else prompt_part + made
                _send(sender, _tensors(ids, beams, len(made) if wants_logprobs else None), is_final=is_last)
                unsent = []
            if is_last:
                return len(made)
            time.sleep(control["token_s"])

    def _journal(self, event, request_id, **fields):
        with self._lock, (_HERE / "journal.jsonl").open("a") as file:
            file.write(json.dumps({"event": event, "id": request_id, **fields}) + "\n")


def _control():
    path = _HERE / "control.json"
    return {**DEFAULTS, **(json.loads(path.read_text()) if path.exists() else {})}


def _one(inputs, name, default=None):
    """A scalar is [1, 1] here: this model's config has no reshape, the stock one's takes a dimension off."""
    return inputs[name].reshape(-1)[0] if name in inputs else default


def _end_ids(inputs):
    ids = [int(_one(inputs, "end_id", -1))]
    if "stop_words_list" in inputs:
        words, stops = inputs["stop_words_list"].reshape(2, -1).tolist()
        if stops != list(range(1, len(words) + 1)):
            raise ValueError("this double knows stop words of one token only")
        ids += words
    return [token for token in ids if token >= 0]


def _tensors(ids, beams, logprobs):
    rows = numpy.array([[ids] * beams], dtype=numpy.int32).reshape(1, beams, len(ids))
    out = [
        pb_utils.Tensor("output_ids", rows),
        pb_utils.Tensor("sequence_length", numpy.full((1, beams), len(ids), dtype=numpy.int32)),
    ]
    if logprobs is not None:
        values = [[[-0.5 - n for n in range(logprobs)]] * beams]
        out.append(
            pb_utils.Tensor("output_log_probs", numpy.array(values, dtype=numpy.float32).reshape(1, beams, logprobs))
        )
    return out


def _send(sender, tensors=(), *, error=None, is_final):
    flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_final else 0
    if error is not None:
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(error)), flags=flags)
    elif tensors:
        sender.send(pb_utils.InferenceResponse(list(tensors)), flags=flags)
    else:
        sender.send(flags=flags)
