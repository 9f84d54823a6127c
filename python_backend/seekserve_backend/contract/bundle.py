"""bundle.json: what was built, its limits, and where each value came from.

The toolkit writes it, the backend and the renderer read it, nobody guesses beyond it. Schema versions differ by whole
numbers; another version is refused with the command that rebuilds it.

    bundle/
      bundle.json
      weights/      config.json, generation_config.json, *.safetensors, index      (engine kind `reference`)
      tokenizer/    tokenizer.json, tokenizer_config.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .fields import ContractError, Fields
from .step_model import StepModel

__all__ = ["BUNDLE_FILE", "BUNDLE_SCHEMA", "ENGINE_KINDS", "KV_DTYPES", "Bundle", "BundleFile", "KvCache", "Limits"]

BUNDLE_FILE = "bundle.json"
BUNDLE_SCHEMA = 1
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
        )
        fields.done()
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """One file of the bundle as it was written."""

    size_bytes: int
    sha256: str


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
    tp: int
    pp: int
    ep: int
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

    def to_json(self) -> str:
        data = {
            "schema_version": BUNDLE_SCHEMA,
            "name": self.name,
            "family": self.family,
            "engine": self.engine,
            "toolkit_version": self.toolkit_version,
            "engine_version": self.engine_version,
            "gpu": self.gpu,
            "parallel": {"tp": self.tp, "pp": self.pp, "ep": self.ep},
            "weights": {"dtype": self.weights_dtype, "bytes": self.weights_bytes},
            "limits": self.limits.to_json(),
            "kv_cache": self.kv.to_json(),
            "step_model": None if self.step_model is None else self.step_model.to_json(),
            "sources": dict(self.sources),
            "files": {
                path: {"bytes": file.size_bytes, "sha256": file.sha256} for path, file in sorted(self.files.items())
            },
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
        if schema != BUNDLE_SCHEMA:
            remedy = "rebuild it with `seekserve build-engine CHECKPOINT --out NEW_BUNDLE`"
            raise ContractError(where, [f"schema_version {schema} where this version reads {BUNDLE_SCHEMA}; {remedy}"])
        parallel, weights = fields.child("parallel"), fields.child("weights")
        sources = fields.mapping("sources")
        out = cls(
            name=fields.string("name"),
            family=fields.string("family"),
            engine=fields.string("engine", choices=ENGINE_KINDS),
            toolkit_version=fields.string("toolkit_version"),
            engine_version=fields.string("engine_version"),
            gpu=fields.opt_string("gpu"),
            tp=parallel.integer("tp", low=1),
            pp=parallel.integer("pp", low=1),
            ep=parallel.integer("ep", low=1),
            weights_dtype=weights.string("dtype"),
            weights_bytes=weights.integer("bytes", low=0),
            limits=Limits.read(fields.child("limits")),
            kv=KvCache.read(fields.child("kv_cache")),
            step_model=StepModel.read(fields.child("step_model")) if fields.raw("step_model") is not None else None,
            sources={str(k): str(v) for k, v in sources.items()},
            files=_read_files(fields),
        )
        parallel.done()
        weights.done()
        fields.done()
        return out

    @classmethod
    def load(cls, folder: Path) -> Bundle:
        """Raises FileNotFoundError when `folder` has no bundle.json, ContractError when it is not one of ours."""
        path = folder / BUNDLE_FILE
        return cls.from_json(path.read_text(encoding="utf-8"), str(path))


def _read_files(fields: Fields) -> dict[str, BundleFile]:
    files = fields.child("files")
    out: dict[str, BundleFile] = {}
    for path in fields.mapping("files", {}):
        pure = PurePosixPath(str(path))
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            fields.problem(f"files: {path!r} points outside the bundle")
        entry = files.child(str(path))
        out[str(path)] = BundleFile(size_bytes=entry.integer("bytes", low=0), sha256=entry.string("sha256"))
        entry.done()
    files.done()
    return out
