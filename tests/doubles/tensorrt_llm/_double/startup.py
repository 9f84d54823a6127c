"""What a constructor does before the engine runs: folders, ranks, delays and the failures a test has ordered."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .behaviour import BEHAVIOUR
from .engine import Limits
from .launch import Leader
from .profile import PROFILE

__all__ = ["Engine", "check_world", "engine_folder", "model_folder", "torch_limits", "trt_limits", "wait_for_weights"]

_DEFAULT_SEQ_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What the config.json of an engine directory says."""

    build: Mapping[str, Any]
    tp: int
    pp: int
    cp: int
    vocab_size: int | None

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.cp


def check_world(world: int, session: Any) -> Callable[[], bool] | None:
    """Refuses what the process world cannot carry; answers how to ask whether the other ranks live."""
    if os.environ.get("TLLM_SPAWN_PROXY_PROCESS") == "1":
        return Leader.connect(world).is_alive
    rank, size = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")), int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    if size > 1:
        if rank != 0:
            raise RuntimeError(f"LLM must be made on rank 0, this is rank {rank}")
        if size != world:
            kind = ValueError if size > world or session is not None else RuntimeError
            raise kind(f"the MPI world has {size} ranks, the model needs {world}")
    gpus = int(BEHAVIOUR.get("gpus"))
    if size == 1 and world > gpus:
        raise RuntimeError(f"Only {gpus} GPUs are available, but {world} are required.")
    return None


def model_folder(model: str | Path) -> dict[str, Any]:
    """config.json of a checkpoint. The double knows no hub."""
    folder = Path(model)
    if not folder.is_dir():
        raise ValueError(f"{model} is no local folder, and the double downloads nothing")
    config = folder / "config.json"
    if not config.exists():
        raise ValueError(f"no config.json in {folder}")
    if not any(folder.glob("*.safetensors")):
        raise _worker_error(FileNotFoundError(f"no weights in {folder}"))
    return dict(json.loads(config.read_text(encoding="utf-8")))


def engine_folder(model: str | Path, args: Any) -> Engine:
    folder = Path(model)
    path = folder / "config.json"
    if not path.exists():
        raise ValueError(f"the format of {folder} is unknown: there is no config.json")
    config = json.loads(path.read_text(encoding="utf-8"))
    if "pretrained_config" not in config or "build_config" not in config:
        raise NotImplementedError(f"{folder} is no engine directory, and the double does not build engines")
    mapping = config["pretrained_config"].get("mapping", {})
    engine = Engine(
        build=config["build_config"],
        tp=mapping.get("tp_size", 1),
        pp=mapping.get("pp_size", 1),
        cp=mapping.get("cp_size", 1),
        vocab_size=config["pretrained_config"].get("vocab_size"),
    )
    given = {"tp": args.tensor_parallel_size, "pp": args.pipeline_parallel_size, "cp": args.context_parallel_size}
    for name, size in given.items():
        if size not in (1, getattr(engine, name)):
            raise ValueError(f"{name}_size {size} is not the engine's {getattr(engine, name)}")
    if config.get("version") != PROFILE.version:
        raise _worker_error(RuntimeError(f"engine of version {config.get('version')}, runtime {PROFILE.version}"))
    missing = [rank for rank in range(engine.world) if not (folder / f"rank{rank}.engine").exists()]
    if missing:
        raise _worker_error(FileNotFoundError(f"{folder} has no engine file for rank {missing[0]}"))
    return engine


def wait_for_weights() -> None:
    """Blocks as loading does, and fails where a test ordered it."""
    end = time.monotonic() + float(BEHAVIOUR.fresh("construct_s"))
    while time.monotonic() < end or BEHAVIOUR.fresh("construct_hangs"):
        time.sleep(min(0.05, max(0.001, end - time.monotonic())))
    if BEHAVIOUR.get("construct_died"):
        raise RuntimeError("Executor worker died during initialization")
    if BEHAVIOUR.get("construct_oom"):
        raise _worker_error(RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB (double)"))
    if BEHAVIOUR.get("construct_error"):
        raise _worker_error(RuntimeError(str(BEHAVIOUR.get("construct_error"))))


def torch_limits(args: Any, config: Mapping[str, Any]) -> Limits:
    longest = args.max_seq_len or config.get("max_position_embeddings") or _DEFAULT_SEQ_TOKENS
    spec = args.speculative_config
    return _limits(
        args,
        longest,
        max_batch_size=args.max_batch_size,
        max_num_tokens=args.max_num_tokens,
        max_beam_width=args.max_beam_width,
        tokens_per_block=args.kv_cache_config.tokens_per_block,
        stream_interval=args.stream_interval,
        draft_tokens=(spec.max_draft_len or 0) if spec is not None else 0,
        overlaps=not args.disable_overlap_scheduler,
        is_torch=True,
        stats=args.enable_iter_perf_stats,
        request_stats=args.enable_iter_perf_stats and args.enable_iter_req_stats,
    )


def trt_limits(args: Any, engine: Engine) -> Limits:
    """Batch and tokens are clamped to the engine's; lengths and beams are the engine's."""
    build = engine.build
    tokens_per_block = build.get("plugin_config", {}).get("tokens_per_block", 32)
    return _limits(
        args,
        build["max_seq_len"],
        max_batch_size=min(args.max_batch_size, build["max_batch_size"]),
        max_num_tokens=min(args.max_num_tokens, build["max_num_tokens"]),
        max_beam_width=build.get("max_beam_width", 1),
        tokens_per_block=tokens_per_block,
        stream_interval=1,
        draft_tokens=0,
        overlaps=False,
        is_torch=False,
        stats=True,
        request_stats=False,
    )


def _limits(args: Any, longest: int, **own: Any) -> Limits:
    kv = args.kv_cache_config
    size = own["tokens_per_block"]
    blocks = int(BEHAVIOUR.get("kv_blocks"))
    if kv.max_tokens is not None:
        blocks = min(blocks, math.ceil(kv.max_tokens / size))
    return Limits(
        max_seq_len=min(longest, blocks * size),
        kv_blocks=blocks,
        reuses_blocks=kv.enable_block_reuse,
        reserves_all=args.scheduler_config.capacity_scheduler_policy != "MAX_UTILIZATION",
        by_priority=args.scheduler_config.waiting_queue_policy == "priority",
        chunks_prefill=args.enable_chunked_prefill,
        **own,
    )


def _worker_error(cause: Exception) -> RuntimeError:
    error = RuntimeError("Executor worker returned error")
    error.__cause__ = cause
    return error
