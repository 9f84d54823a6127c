"""Builds the service from what Triton hands over, and passes requests on. Lives as long as one model instance.

Fails at load, with one sentence, when the environment or the bundle is not what it should be.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import seekserve_backend

from ..answers import InvalidInput
from ..contract.bundle import Bundle
from ..contract.policy import Policy
from ..contract.refusal import ErrorCode, ErrorLine
from ..core.controls import unsupported
from ..core.scheduler import Scheduler
from ..engines.port import Engine, EngineInfo
from ..exchange import Variant
from ..prompts import PromptEncoder
from ..service import Service
from ..step_log import STEP_LOG_VARIABLE, StepLog
from ..text.token_bytes import TokenBytes
from .bls import stock_engine_factory
from .breaker_files import BreakerFiles
from .metrics import Metrics
from .monitor import Monitor
from .policy_watch import PolicyWatch
from .sink import TritonSink
from .swap_orders import SwapOrders
from .variants import GrpcVariants, known_variants
from .wire import read_request

__all__ = ["Host"]

_log = logging.getLogger(__name__)


class Host:
    """`take` is called on Triton's execute thread; everything else happens on the service's own threads."""

    def __init__(self, args: dict[str, Any], utils: Any, *, installed_at: Path) -> None:
        _log_through(utils.Logger)
        _check_environment(installed_at, utils)
        config = json.loads(args["model_config"])
        model = str(args["model_name"])
        bundle_dir = Path(_parameter(config, "bundle_dir"))
        bundle = Bundle.load(bundle_dir)
        _select_gpus(config, str(args["model_instance_name"]), bundle)
        policy_file = Path(args["model_repository"]) / _parameter(config, "policy_file")
        policy = Policy.load(policy_file)
        address = _optional_parameter(config, "stock_grpc_address") or os.environ.get("SEEKSERVE_GRPC_ADDRESS")
        self._variants = GrpcVariants(address) if address else None
        self._known = frozenset[str]() if address is None else known_variants(policy_file.parent.parent, model)
        variant = read_variant(bundle_dir, config)
        run_dir = os.environ.get("SEEKSERVE_RUN_DIR")
        self._utils = utils
        self._stopping = threading.Lock()
        self._is_stopped = False
        self._probe_key = os.environ.get("SEEKSERVE_PROBE_KEY")
        make_engine = stock_engine_factory(config, utils, bundle, bundle_dir)
        self._service = Service(
            scheduler=Scheduler(policy, bundle.replica_limits, bundle.kv, bundle.step_model),
            policy=policy,
            engine_factory=make_engine or variant.engine_factory,
            encode=variant.encode,
            vocabulary=variant.vocabulary,
            step_log=_step_log(),
            variants=self._variants,
        )
        _check_policy(policy, self._service.engine_info, self._known)
        orders = SwapOrders(
            model=model,
            run_dir=Path(run_dir) if run_dir else None,
            bundle_dir=str(bundle_dir),
            read_variant=lambda folder: dataclasses.replace(
                read_variant(folder, config),
                check=lambda info: _check_policy(self._watch.policy, info, self._known),
            ),
            begin=self._service.exchange,
            retire=self.stop,
        )
        self._streams = (_optional_parameter(config, "streaming") or "true") == "true"
        self._instances = _instances(config)
        self._metrics = Metrics(
            utils, model, instance=str(args["model_instance_name"]), observations=self._service.observations
        )
        self._breaker_files = BreakerFiles(model, Path(run_dir) if run_dir else None, self._service.breaker_openings)
        self._watch = PolicyWatch(policy_file, policy, refusals=self._refusals, apply=self._service.replace_policy)
        self._monitor = Monitor(
            model=model,
            run_dir=Path(run_dir) if run_dir else None,
            stats=self._service.stats,
            flush=self._metrics.flush,
            swap_state=orders.look,
            look=self._look,
        )
        _log.info(
            "seekserve %s serves %s with the %s engine", seekserve_backend.__version__, bundle.name, bundle.engine
        )

    def start(self) -> None:
        self._service.start()
        self._monitor.start()

    def take(self, request: Any) -> None:
        """Never raises, and leaves no request without a terminal answer."""
        try:
            sink = TritonSink(request.get_response_sender(), self._utils)
        except Exception:
            _log.exception("no response sender; this request cannot be answered")
            return
        try:
            inbound = read_request(request, probe_key=self._probe_key)
            if inbound.stream and not self._streams:
                # Triton would send the first piece and drop the rest without a word.
                raise InvalidInput("stream", "this model was rendered with --no-streaming; send false, or leave it out")
            if inbound.resumable and self._instances > 1:
                # Triton sends each request to any of them, and a stream lives in one.
                raise InvalidInput("resumable", f"this model has {self._instances} instances, which share no streams")
            self._service.accept(inbound, sink)
        except InvalidInput as error:
            self._service.refuse_invalid(_request_id(request), sink, error)
        except Exception:
            _log.exception("reading a request failed")
            sink.error(_unreadable(request))

    def _refusals(self, policy: Policy) -> list[str]:
        """Of a policy that comes while serving: by then a model that it routes to must be there."""
        problems = unsupported(policy, self._service.engine_info.runtime_controls, self._known)
        missing = policy.variants - self._ready(policy)
        return problems or [f"model {name!r}, which it routes to, is not ready" for name in sorted(missing)]

    def _look(self) -> None:
        """Once a second."""
        self._breaker_files.look()
        self._watch.look()
        self._service.handover.ready = self._ready(self._watch.policy)

    def _ready(self, policy: Policy) -> frozenset[str]:
        return frozenset() if self._variants is None else self._variants.ready(policy.variants)

    def stop(self) -> None:
        """By Triton, or before that because another instance has taken over."""
        with self._stopping:
            if not self._is_stopped:
                self._is_stopped = True
                self._service.stop()
                if self._monitor.stop():
                    self._breaker_files.look()
                    self._metrics.close()


def read_variant(bundle_dir: Path, config: dict[str, Any]) -> Variant:
    """What a service needs of a bundle; the engine is not made yet."""
    bundle = Bundle.load(bundle_dir)
    prompts = PromptEncoder(bundle_dir / "tokenizer", family=bundle.family, model=bundle.name)
    return Variant(
        bundle_dir=str(bundle_dir),
        limits=bundle.replica_limits,
        kv=bundle.kv,
        step_model=bundle.step_model,
        engine_factory=engine_factory(bundle, bundle_dir, config),
        encode=prompts.encode,
        vocabulary=TokenBytes.from_tokenizer_json(prompts.tokenizer_json),
    )


def engine_factory(bundle: Bundle, bundle_dir: Path, config: dict[str, Any] | None = None) -> Callable[[], Engine]:
    """How to make the bundle's engine; each call makes a fresh one."""
    if bundle.trtllm is not None:
        from ..engines.trtllm.engine import TrtllmEngine
        from ..engines.trtllm.silence import SILENCE_S

        silence_s = float(_optional_parameter(config or {}, "engine_silence_s") or SILENCE_S)
        return lambda: TrtllmEngine(bundle_dir, bundle, silence_s=silence_s)
    if bundle.engine == "reference":
        from ..engines.reference.engine import ReferenceEngine

        return lambda: ReferenceEngine(bundle_dir, bundle)
    if bundle.engine == "synthetic":
        from ..engines.synthetic import SyntheticEngine
        from ..engines.synthetic_faults import Faults

        info = EngineInfo(
            kind="synthetic",
            max_seq_len_tokens=bundle.limits.max_seq_len_tokens,
            max_batch_size=bundle.limits.max_batch_size,
            block_tokens=bundle.kv.block_tokens,
            kv_total_blocks=bundle.kv.capacity_blocks,
            may_pause=bundle.kv.may_pause,
            vocab_size=2,
            eos_ids=(),
        )
        chunk = bundle.limits.prefill_chunk_tokens
        says, faults = _spelled("synthetic ", bundle_dir), Faults.from_environment(os.environ)
        return lambda: SyntheticEngine(
            info,
            token_id=_PLAIN_TOKEN_ID,
            chunk_tokens=chunk,
            step_model=bundle.step_model,
            says=says,
            faults=faults,
        )
    raise ValueError(f"bundle {bundle_dir}: this backend has no engine of kind {bundle.engine!r}")


# In every byte-level vocabulary the first ids after the control tokens are printable single bytes.
_PLAIN_TOKEN_ID = 40


def _spelled(text: str, bundle_dir: Path) -> tuple[int, ...]:
    """The tokens of single bytes that make up `text`; none where the vocabulary lacks one of them."""
    data = json.loads((bundle_dir / "tokenizer" / "tokenizer.json").read_text("utf-8"))
    vocabulary = TokenBytes.from_tokenizer_json(data)
    ids = {vocabulary.get(n): n for n in reversed(range(len(vocabulary)))}
    found = [ids.get(bytes([byte])) for byte in text.encode()]
    return tuple(n for n in found if n is not None) if None not in found else ()


def _step_log() -> StepLog | None:
    path = os.environ.get(STEP_LOG_VARIABLE)
    return StepLog(Path(path)) if path else None


def _parameter(config: dict[str, Any], name: str) -> str:
    try:
        value = config["parameters"][name]["string_value"]
    except KeyError:
        raise ValueError(
            f"config.pbtxt has no parameter {name!r}; render the repository again with `seekserve render`"
        ) from None
    return str(value)


def _optional_parameter(config: dict[str, Any], name: str) -> str | None:
    value = config.get("parameters", {}).get(name)
    return None if value is None else str(value["string_value"])


def _instances(config: dict[str, Any]) -> int:
    """Processes like this one behind the model's name."""
    return sum(int(group.get("count", 1)) for group in config.get("instance_group", ())) or 1


def _select_gpus(config: dict[str, Any], instance_name: str, bundle: Bundle) -> None:
    """For an engine in this process that shares the node with other instances; before anything starts CUDA."""
    device_ids = _optional_parameter(config, "gpu_device_ids")
    if device_ids is None or bundle.trtllm is None or _optional_parameter(config, "stock_model") is not None:
        return
    from ..engines.trtllm.devices import select_gpus

    group = select_gpus(device_ids, instance_name, bundle.parallel, os.environ)
    _log.info("instance %s uses the GPUs %s", instance_name, group)


def _check_policy(policy: Policy, info: EngineInfo, variants: frozenset[str]) -> None:
    problems = unsupported(policy, info.runtime_controls, variants)
    if problems:
        raise ValueError(
            f"policy {policy.name!r} does not fit this {info.kind} engine or server: {'; '.join(problems)}"
        )


def _check_environment(installed_at: Path, utils: Any) -> None:
    """Compares what the stub really loaded with what it should have loaded."""
    import numpy

    # Stubs that cannot build responses with parameters (before 2025) abort on the first BYTES tensor under numpy 2.
    is_old_stub = "parameters" not in (utils.InferenceResponse.__init__.__doc__ or "")
    if is_old_stub and int(numpy.__version__.split(".")[0]) >= 2:
        raise RuntimeError(
            f"numpy {numpy.__version__} from {numpy.__file__} crashes this Triton's stub; install 'numpy<2' there"
        )
    found = Path(seekserve_backend.__file__).resolve().parent.parent
    if found != installed_at.resolve():
        raise RuntimeError(
            f"seekserve_backend was loaded from {found} instead of {installed_at}; "
            "run `seekserve install-backend` again and take the other copy off the path"
        )


def _request_id(request: Any) -> str:
    try:
        return str(request.request_id() or "")
    except Exception:
        return ""


def _unreadable(request: Any) -> ErrorLine:
    return ErrorLine(
        code=ErrorCode.FAILED,
        reason="the request could not be read; the server's log says why",
        request_id=_request_id(request),
    )


class _TritonHandler(logging.Handler):
    """Sends our log records to Triton's own log."""

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            self._logger.log_error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.log_warn(text)
        else:
            self._logger.log_info(text)


def _log_through(logger: Any) -> None:
    package = logging.getLogger("seekserve_backend")
    package.handlers = [_TritonHandler(logger)]
    package.setLevel(logging.INFO)
    package.propagate = False
