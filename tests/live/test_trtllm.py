"""The `trtllm` engine inside the real server, TensorRT-LLM itself being its strict double on the stub's path."""

from __future__ import annotations

import json
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripts.benchlib import encode_request
from tests.live.conftest import Deployment, Server, run_cli
from tests.live.test_safety import settled_counts

from seekserve.client import Client, GenerateRequest
from seekserve.errors import InputError, ServerError
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, KvCache, Limits, Parallel, TrtllmSpec

VERSION = "1.2.1"
MODEL = "on-trtllm"
PAIR = "two-instances"
PROMPT = "Count from 1 to 30, then back: 一二三 😀."
DOUBLES = Path(__file__).resolve().parent.parent / "doubles"
BLOCK_TOKENS = 32
LIMITS = Limits(max_seq_len_tokens=512, max_batch_size=8, max_num_tokens=256, prefill_chunk_tokens=256)
KV = KvCache(dtype="bf16", block_tokens=BLOCK_TOKENS, capacity_blocks=256, bytes_per_token=64)
ARGS = {
    "max_batch_size": LIMITS.max_batch_size,
    "max_num_tokens": LIMITS.max_num_tokens,
    "max_seq_len": LIMITS.max_seq_len_tokens,
    "max_beam_width": 4,
    "enable_chunked_prefill": True,
    "enable_iter_perf_stats": True,
    "kv_cache_config": {"tokens_per_block": BLOCK_TOKENS, "max_tokens": BLOCK_TOKENS * 256},
}


def trtllm_bundle(folder: Path, name: str) -> Path:
    """By hand, not by `build-engine`: what is tested here is the backend."""
    from seekserve.data import tiny_checkpoint_folder

    source = tiny_checkpoint_folder()
    for part, names in (
        ("tokenizer", ("tokenizer.json", "tokenizer_config.json")),
        ("weights", ("config.json", "generation_config.json")),
    ):
        (folder / part).mkdir(parents=True)
        for each in names:
            (folder / part / each).write_bytes((source / each).read_bytes())
    (folder / "weights" / "model.safetensors").touch()
    (folder / "llm_args.yaml").write_text(json.dumps(ARGS))
    bundle = Bundle(
        name=name,
        family="deepseek_v3",
        engine="trtllm-pytorch",
        toolkit_version="0",
        engine_version=f"TensorRT-LLM {VERSION}",
        gpu="h200",
        parallel=Parallel(),
        weights_dtype="fp8_block",
        weights_bytes=1,
        limits=LIMITS,
        kv=KV,
        step_model=None,
        sources={},
        files={},
        trtllm=TrtllmSpec(version=VERSION, model_dir="weights", max_beam_width=4, start_timeout_s=60.0),
    )
    (folder / BUNDLE_FILE).write_text(bundle.to_json(), encoding="utf-8")
    return folder


class Served:
    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.folder = folder
        repository = folder / "repository"
        run_cli("render", trtllm_bundle(folder / "one", MODEL), "--out", repository)
        config = repository / MODEL / "config.pbtxt"
        quick = '\nparameters { key: "engine_silence_s" value { string_value: "2" } }\n'
        config.write_text(config.read_text() + quick)
        two = ("--instances", 2, "--gpus", "0", "--gpus", "1")
        run_cli("render", trtllm_bundle(folder / "two", PAIR), "--out", repository, *two)
        site = folder / "site"
        site.mkdir()
        # A .pth line is how packages outside the folder reach Triton's stub, which ignores PYTHONPATH.
        (site / "double.pth").write_text(f"{DOUBLES}\n{sysconfig.get_path('purelib')}\n")
        backends = folder / "backends"
        run_cli("install-backend", backends, "--site-packages", site)
        made = Deployment(folder=folder, repository=repository, backends=backends)
        self.server = Server(made, repository=repository)

    def order(self, **behaviour: Any) -> None:
        draft = self.folder / "control.new"
        draft.write_text(json.dumps(behaviour), encoding="utf-8")
        draft.replace(self.folder / "control.json")

    def generate(self, model: str = MODEL, **fields: Any) -> Any:
        with Client(self.server.grpc, model) as client:
            return client.generate(GenerateRequest(**{"prompt": PROMPT, "max_tokens": 100, **fields}))

    def until_it_serves(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                assert self.generate().text == PROMPT
                return
            except ServerError:
                assert time.monotonic() < deadline
                time.sleep(0.5)

    def settled(self) -> dict[str, float]:
        return settled_counts(self.server, MODEL)


@pytest.fixture(scope="module")
def running(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("trtllm")
    (folder / "control.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUBLE_TRTLLM_PROFILE", VERSION)
        patch.setenv("DOUBLE_TRTLLM_BEHAVIOUR", json.dumps({"step_ms": 5}))
        patch.setenv("DOUBLE_TRTLLM_CONTROL", str(folder / "control.json"))
        patch.setenv("DOUBLE_TRTLLM_VIOLATIONS", str(folder / "violations.jsonl"))
        served = Served(deployment, folder)
        code = 1
        try:
            yield served
        finally:
            code = served.server.stop()
    assert code == 0, served.server.log.read_text()[-3000:]
    violations = folder / "violations.jsonl"
    assert not violations.exists(), violations.read_text()


@pytest.fixture
def served(running: Served) -> Iterator[Served]:
    yield running
    running.order()


def test_text_streams_in_pieces(served: Served) -> None:
    answer = served.generate()
    assert answer.text == PROMPT, "the double repeats its prompt"
    assert answer.finish_reason == "stop"
    assert len(answer.deltas) > 5
    assert answer.prompt_tokens == answer.completion_tokens, "BOS comes back too, without text; the end id does not"


def test_length_and_stop_strings_end_a_text(served: Served) -> None:
    assert served.generate(max_tokens=3).finish_reason == "length"
    cut = served.generate(stop=[" to"])
    assert (cut.text, cut.finish_reason) == ("Count from 1", "stop")


def test_many_at_once_each_get_their_own_text(served: Served) -> None:
    texts = [f"Say {n} and {n * 37}." for n in range(40)]
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = served.generate(prompt=texts[number]).text

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[n] for n in range(40)] == texts


def test_a_cancelled_stream_stops_the_engine_s_work(served: Served) -> None:
    before = served.settled()
    served.order(step_ms=50)
    with grpc.insecure_channel(served.server.grpc) as channel:
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        call = stream(iter((encode_request(MODEL, PROMPT * 3, 300),)), timeout=60)
        next(iter(call))
        call.cancel()
    after = served.settled()
    assert after["cancelled"] - before["cancelled"] == 1
    assert served.server.metric("seekserve_kv_used_blocks", MODEL) == 0


def test_a_fault_of_one_request_is_told_without_its_details(served: Served) -> None:
    served.order(request_error={"message": "secret /path", "after_tokens": 2, "times": 1})
    with pytest.raises(ServerError) as caught:
        served.generate()
    assert "the engine failed while this request ran" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert served.generate().text == PROMPT


def test_an_engine_that_breaks_is_made_anew(served: Served) -> None:
    served.order(fatal_error="CUDA error: an illegal memory access was encountered")
    with pytest.raises(ServerError):
        served.generate()
    served.order()
    served.until_it_serves()


def test_an_engine_that_hangs_is_given_up_and_made_anew(served: Served) -> None:
    served.order(step_ms=20)
    with Client(served.server.grpc, MODEL) as client, client.stream(GenerateRequest(prompt=PROMPT * 4)) as stream:
        next(iter(stream))
        served.order(hang=True)
        with pytest.raises(ServerError, match="the engine failed while this request ran"):
            for _ in stream:
                pass
    served.order()
    served.until_it_serves()


def test_beams_are_refused_above_the_bundle_s_width(served: Served) -> None:
    with Client(served.server.grpc, MODEL) as client, pytest.raises(InputError, match="at most 4 beams"):
        client.generate(GenerateRequest(prompt=PROMPT, parameters={"beam_width": 5}))
    answer = served.generate(parameters={"beam_width": 4})
    assert answer.text == PROMPT
    assert len(answer.deltas) == 1


def test_two_instances_have_a_gpu_each_and_serve_side_by_side(served: Served) -> None:
    log = served.server.log.read_text()
    assert f"instance {PAIR}_0_0 uses the GPUs 0" in log
    assert f"instance {PAIR}_0_1 uses the GPUs 1" in log
    assert [served.generate(PAIR, prompt=f"say {n}").text for n in range(8)] == [f"say {n}" for n in range(8)]
