"""bundle.json: what was built, its limits, and where each value came from.

The toolkit writes it, the backend and the renderer read it, nobody guesses beyond it. Schema 1, which knew no GPU
engines, is read as what it means today; any other version is refused with the command that rebuilds it.

    bundle/
      bundle.json
      tokenizer/      tokenizer.json, tokenizer_config.json, and generation_config.json (`trtllm-engine`),
                      chat_texts.json (releases that ship an encoder instead of a chat template)
      weights/        config.json, generation_config.json, *.safetensors, index   (`reference`, `trtllm-pytorch`)
      engine/         config.json, rank0.engine, ...                              (`trtllm-engine`)
      llm_args.yaml   arguments of tensorrt_llm.LLM                               (`trtllm-*`)
      build.json      flags and inputs of the tools that made the engine          (`trtllm-engine`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from .fields import ContractError, Fields
from .step_model import StepModel

__all__ = [
    "BUNDLE_FILE",
    "BUNDLE_SCHEMA",
    "ENGINE_KINDS",
    "KV_DTYPES",
    "TRTLLM_ARGS_FILE",
    "TRTLLM_KINDS",
    "Bundle",
    "BundleFile",
    "KvCache",
    "Limits",
    "Parallel",
    "Retention",
    "TrtllmSpec",
]

BUNDLE_FILE = "bundle.json"
BUNDLE_SCHEMA = 2
TRTLLM_ARGS_FILE = "llm_args.yaml"
TRTLLM_KINDS = ("trtllm-engine", "trtllm-pytorch")
ENGINE_KINDS = ("reference", "trtllm-engine", "trtllm-pytorch", "synthetic")
KV_DTYPES = ("fp8_e4m3", "bf16", "fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine was built for. The prompt limit is `max_seq_len_tokens - 1`, since one token must be produced."""

    max_seq_len_tokens: int
    """Prompt plus output of one request."""
    max_batch_size: int
    """Requests in flight at once."""
    max_num_tokens: int
    """Tokens that one engine step may process: decoding requests plus prefill chunks."""
    prefill_chunk_tokens: int
    """Largest piece of one prompt in a step."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, fields: Fields) -> Limits:
        out = cls(
            max_seq_len_tokens=fields.integer("max_seq_len_tokens", low=2),
            max_batch_size=fields.integer("max_batch_size", low=1),
            max_num_tokens=fields.integer("max_num_tokens", low=1),
            prefill_chunk_tokens=fields.integer("prefill_chunk_tokens", low=1),
        )
        fields.done()
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Shape of the paged cache of one engine replica."""

    dtype: str
    block_tokens: int
    capacity_blocks: int
    bytes_per_token: int
    """All layers together, one replica."""
    may_pause: bool = False
    """When the cache is full the engine pauses a request and reads it again later (TensorRT-LLM: MAX_UTILIZATION), so
    that one needs room for what it holds. False: for its prompt and all of its max_tokens."""

    @property
    def capacity_tokens(self) -> int:
        return self.capacity_blocks * self.block_tokens

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, fields: Fields) -> KvCache:
        out = cls(
            dtype=fields.string("dtype", choices=KV_DTYPES),
            block_tokens=fields.integer("block_tokens", low=1),
            capacity_blocks=fields.integer("capacity_blocks", low=1),
            bytes_per_token=fields.integer("bytes_per_token", low=1),
            may_pause=fields.boolean("may_pause", False),
        )
        fields.done()
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How one replica is laid over GPUs."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    """Groups of experts inside TP."""
    moe_tp: int = 1
    """Ranks that share one expert; moe_tp x ep = tp for a mixture of experts."""
    attention_dp: bool = False
    """Requests, not attention heads, are divided over the TP ranks; `Limits.max_batch_size` is then of one rank."""
    gpus_per_node: int = 1

    @property
    def world_size(self) -> int:
        """Ranks, and GPUs, of one replica."""
        return self.tp * self.pp

    @property
    def nodes(self) -> int:
        return -(-self.world_size // self.gpus_per_node)

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, fields: Fields) -> Parallel:
        tp = fields.integer("tp", low=1)
        pp = fields.integer("pp", low=1)
        ep = fields.integer("ep", low=1)
        out = cls(
            tp=tp,
            pp=pp,
            ep=ep,
            moe_tp=fields.integer("moe_tp", 1, low=1),
            attention_dp=fields.boolean("attention_dp", False),
            gpus_per_node=fields.integer("gpus_per_node", tp * pp, low=1),
        )
        fields.done()
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the KV blocks of a prompt outlive its request (TensorRT-LLM's retention priorities, 0 to 100)."""

    prompt_priority: int = 35
    """Higher is evicted later; 35 is TensorRT-LLM's own default."""
    prompt_duration_s: float | None = None
    """After this time the priority returns to the default; None: never."""
    prompt_tokens: int | None = None
    """Only the first tokens of each prompt (a shared system prompt); None: the whole prompt."""
    decode_priority: int = 35

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, fields: Fields) -> Retention:
        out = cls(
            prompt_priority=fields.integer("prompt_priority", 35, low=0, high=100),
            prompt_duration_s=fields.opt_number("prompt_duration_s"),
            prompt_tokens=fields.opt_integer("prompt_tokens"),
            decode_priority=fields.integer("decode_priority", 35, low=0, high=100),
        )
        fields.done()
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmSpec:
    """What the backend needs besides llm_args.yaml to run TensorRT-LLM."""

    version: str
    """TensorRT-LLM that the arguments were checked for; another one at run time is refused."""
    model_dir: str
    """POSIX path relative to the bundle: `weights` (a Hugging Face folder) or `engine` (built by trtllm-build)."""
    max_beam_width: int = 1
    draft_tokens: int = 0
    """Drafted by multi-token prediction in each step."""
    retention: Retention | None = None
    start_timeout_s: float = 3600.0
    """Loading the weights may take this long; sized from their bytes."""

    def to_json(self) -> dict[str, object]:
        data = {name: getattr(self, name) for name in self.__slots__}
        data["retention"] = None if self.retention is None else self.retention.to_json()
        return data

    @classmethod
    def read(cls, fields: Fields) -> TrtllmSpec:
        has_retention = fields.has("retention")
        out = cls(
            version=fields.string("version"),
            model_dir=fields.string("model_dir", choices=("weights", "engine")),
            max_beam_width=fields.integer("max_beam_width", 1, low=1),
            draft_tokens=fields.integer("draft_tokens", 0, low=0),
            retention=Retention.read(fields.child("retention")) if has_retention else None,
            start_timeout_s=fields.number("start_timeout_s", 3600.0, low=1.0),
        )
        fields.done()
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """One file of the bundle as it was written."""

    size_bytes: int
    sha256: str
    is_header_hash: bool = False
    """The hash covers a safetensors file's header alone: linked weights of hundreds of GB are not read to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of bundle.json."""

    name: str
    """Name of the deployment; default of the Triton model name."""
    family: str
    engine: str
    """One of ENGINE_KINDS."""
    toolkit_version: str
    engine_version: str
    """Version of what runs it: transformers for `reference`, TensorRT-LLM otherwise."""
    gpu: str | None
    parallel: Parallel
    weights_dtype: str
    """bf16, fp8_block, ... as found in the tensors."""
    weights_bytes: int
    limits: Limits
    kv: KvCache
    step_model: StepModel | None
    sources: Mapping[str, str]
    """Where each resolved value came from: flag, environment, file or default, by dotted name."""
    files: Mapping[str, BundleFile]
    """POSIX path relative to the bundle -> size and content hash."""
    trtllm: TrtllmSpec | None = None
    """For the engine kinds of TRTLLM_KINDS."""

    @property
    def replica_limits(self) -> Limits:
        """Of the whole replica: with attention DP the engine counts `max_batch_size` for each rank."""
        if not self.parallel.attention_dp:
            return self.limits
        return replace(self.limits, max_batch_size=self.limits.max_batch_size * self.parallel.tp)

    def to_json(self) -> str:
        data = {
            "schema_version": BUNDLE_SCHEMA,
            "name": self.name,
            "family": self.family,
            "engine": self.engine,
            "toolkit_version": self.toolkit_version,
            "engine_version": self.engine_version,
            "gpu": self.gpu,
            "parallel": self.parallel.to_json(),
            "weights": {"dtype": self.weights_dtype, "bytes": self.weights_bytes},
            "limits": self.limits.to_json(),
            "kv_cache": self.kv.to_json(),
            "step_model": None if self.step_model is None else self.step_model.to_json(),
            "trtllm": None if self.trtllm is None else self.trtllm.to_json(),
            "sources": dict(self.sources),
            "files": {path: _file_json(file) for path, file in sorted(self.files.items())},
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Bundle:
        """Raises ContractError with every fault of the document."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ContractError(where, [f"not JSON (line {error.lineno}, column {error.colno}: {error.msg})"]) from None
        fields = Fields(data, where)
        schema = fields.integer("schema_version")
        if schema not in (1, BUNDLE_SCHEMA):
            remedy = "rebuild it with `seekserve build-engine CHECKPOINT --out NEW_BUNDLE`"
            raise ContractError(where, [f"schema_version {schema} where this version reads {BUNDLE_SCHEMA}; {remedy}"])
        weights = fields.child("weights")
        sources = fields.mapping("sources")
        out = cls(
            name=fields.string("name"),
            family=fields.string("family"),
            engine=fields.string("engine", choices=ENGINE_KINDS),
            toolkit_version=fields.string("toolkit_version"),
            engine_version=fields.string("engine_version"),
            gpu=fields.opt_string("gpu"),
            parallel=Parallel.read(fields.child("parallel")),
            weights_dtype=weights.string("dtype"),
            weights_bytes=weights.integer("bytes", low=0),
            limits=Limits.read(fields.child("limits")),
            kv=KvCache.read(fields.child("kv_cache")),
            step_model=StepModel.read(fields.child("step_model")) if fields.raw("step_model") is not None else None,
            sources={str(k): str(v) for k, v in sources.items()},
            files=_read_files(fields),
            trtllm=TrtllmSpec.read(fields.child("trtllm")) if fields.has("trtllm") else None,
        )
        if (out.trtllm is not None) != (out.engine in TRTLLM_KINDS):
            fields.problem(f"trtllm: must be there for the engines {' and '.join(TRTLLM_KINDS)}, and only for them")
        weights.done()
        fields.done()
        return out

    @classmethod
    def load(cls, folder: Path) -> Bundle:
        """Raises FileNotFoundError when `folder` has no bundle.json, ContractError when it is not one of ours."""
        path = folder / BUNDLE_FILE
        return cls.from_json(path.read_text(encoding="utf-8"), str(path))


def _file_json(file: BundleFile) -> dict[str, object]:
    data: dict[str, object] = {"bytes": file.size_bytes, "sha256": file.sha256}
    return {**data, "header_only": True} if file.is_header_hash else data


def _read_files(fields: Fields) -> dict[str, BundleFile]:
    files = fields.child("files")
    out: dict[str, BundleFile] = {}
    for path in fields.mapping("files", {}):
        pure = PurePosixPath(str(path))
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            fields.problem(f"files: {path!r} points outside the bundle")
        entry = files.child(str(path))
        out[str(path)] = BundleFile(
            size_bytes=entry.integer("bytes", low=0),
            sha256=entry.string("sha256"),
            is_header_hash=entry.boolean("header_only", False),
        )
        entry.done()
    files.done()
    return out
