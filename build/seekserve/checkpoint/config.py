"""Reads config.json into one frozen ModelConfig: typed common fields, the rest by name.

The only reader of that file. Nested text configs (V4.1) are unfolded, both RoPE spellings are accepted, absent optional
fields get the meaning that the releases give them. Bad values are findings; nothing is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seekserve.errors import CheckpointError

from .findings import Collector, Severity, printable
from .quantization import Quantization, read_quantization

__all__ = ["CONFIG_FILE", "ModelConfig", "RopeScaling", "parse_config", "read_config", "read_json"]

CONFIG_FILE: Final = "config.json"
MAX_JSON_BYTES: Final = 64_000_000
MAX_LAYERS: Final = 2000
MAX_EXPERTS: Final = 8192
MAX_EXTENT: Final = 2**33
"""Engram tables have 384 million rows; anything far above is a typing mistake or an attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """The whole block is carried; `kind` is its `type` or `rope_type`, whichever is spelt."""

    kind: str
    factor: float | None
    original_max_position_tokens: int | None
    raw: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    architectures: tuple[str, ...]
    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    q_lora_rank: int | None
    """None means a plain query projection."""
    kv_lora_rank: int | None
    """None means no latent cache."""
    tie_word_embeddings: bool
    attention_bias: bool
    num_nextn_predict_layers: int
    """MTP layers that the config announces."""
    n_routed_experts: int
    num_experts_per_tok: int
    max_position_tokens: int | None
    rope_theta: float | None
    rope_scaling: RopeScaling | None
    dtype: str
    """Dtype of the tensors that are not quantised; absent means bfloat16."""
    quantization: Quantization | None
    eos_token_ids: tuple[int, ...]
    text: Mapping[str, Any]
    """Every field of the (text) model, for what only one family has."""
    outer: Mapping[str, Any]
    """The file as read."""

    def integer(self, name: str, default: int | None = None) -> int:
        """A field that one family needs; absent or foreign values were reported before a layout is made."""
        value = self.text.get(name)
        if type(value) is int:
            return value
        if default is None:
            raise KeyError(name)
        return default

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.text.get(name)
        return tuple(v for v in value if type(v) is int) if isinstance(value, list) else ()

    def has(self, name: str) -> bool:
        return self.text.get(name) is not None


def read_config(path: Path) -> ModelConfig:
    """The config.json at `path` (or in that folder). Raises CheckpointError with every problem of the file."""
    file = path / CONFIG_FILE if path.is_dir() else path
    findings = Collector()
    raw = read_json(file, findings)
    config = None if raw is None else parse_config(raw, file.name, findings)
    errors = [finding.message for finding in findings.findings if finding.severity is Severity.ERROR]
    if config is None or errors:
        raise CheckpointError(f"{file}: " + "; ".join(errors or ["no model configuration"]))
    return config


def read_json(path: Path, findings: Collector) -> dict[str, Any] | None:
    """The JSON object in a small file; None with a finding when it is none."""
    try:
        if not path.is_file():
            findings.error("file-missing", path.name, "is not there")
            return None
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            findings.error("file-too-large", path.name, f"has {size:,} bytes where at most {MAX_JSON_BYTES:,} are read")
            return None
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        findings.error("file-not-json", path.name, f"is not JSON: {reason}")
        return None
    except OSError as error:
        findings.error("file-unreadable", path.name, f"cannot be read: {error.strerror or error}")
        return None
    if not isinstance(value, dict):
        findings.error("file-not-json", path.name, f"holds a {type(value).__name__} where an object is needed")
        return None
    return value


class _Fields:
    """Typed access to a JSON object; each bad value is one finding."""

    def __init__(self, raw: Mapping[str, Any], file: str, findings: Collector) -> None:
        self.raw, self.file, self.findings = raw, file, findings
        self.is_good = True

    def bad(self, name: str, wanted: str) -> None:
        self.is_good = False
        value = self.raw.get(name)
        found = "absent" if name not in self.raw else printable(repr(value), 60)
        self.findings.error("config-field", self.file, f"{name} is {found} where {wanted} is needed")

    def integer(self, name: str, default: int | None, low: int = 1, high: int = MAX_EXTENT) -> int:
        value = self.raw.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not int or not low <= value <= high:
            self.bad(name, f"an integer from {low:,} to {high:,}")
            return low
        return value

    def opt_integer(self, name: str) -> int | None:
        return None if self.raw.get(name) is None else self.integer(name, None)

    def number(self, name: str) -> float | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if type(value) not in (int, float):
            self.bad(name, "a number")
            return None
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            self.bad(name, "true or false")
        return bool(value)

    def text(self, name: str, default: str) -> str:
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.bad(name, "text")
            return default
        return value


def parse_config(outer: Mapping[str, Any], file: str, findings: Collector) -> ModelConfig | None:
    """None when a field that every model needs is missing or wrong; the findings say which."""
    nested = outer.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, dict) else outer
    fields = _Fields(text, file, findings)
    heads = fields.integer("num_attention_heads", None, high=65536)
    hidden = fields.integer("hidden_size", None)
    config = ModelConfig(
        architectures=_architectures(outer, file, findings),
        model_type=_Fields(outer, file, findings).text("model_type", ""),
        vocab_size=fields.integer("vocab_size", None),
        hidden_size=hidden,
        num_hidden_layers=fields.integer("num_hidden_layers", None, high=MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=fields.integer("num_key_value_heads", heads, high=65536),
        head_dim=fields.integer("head_dim", max(hidden // heads, 1)),
        q_lora_rank=fields.opt_integer("q_lora_rank"),
        kv_lora_rank=fields.opt_integer("kv_lora_rank"),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=fields.flag("attention_bias", False),
        num_nextn_predict_layers=fields.integer("num_nextn_predict_layers", 0, low=0, high=MAX_LAYERS),
        n_routed_experts=fields.integer("n_routed_experts", 0, low=0, high=MAX_EXPERTS),
        num_experts_per_tok=fields.integer("num_experts_per_tok", 0, low=0, high=MAX_EXPERTS),
        max_position_tokens=fields.opt_integer("max_position_embeddings"),
        rope_theta=fields.number("rope_theta"),
        rope_scaling=_rope_scaling(text, fields),
        dtype=_dtype(outer, text),
        quantization=read_quantization(outer, text, file, findings),
        eos_token_ids=token_ids(text.get("eos_token_id", outer.get("eos_token_id"))),
        text=text,
        outer=outer,
    )
    return config if fields.is_good else None


def token_ids(value: object) -> tuple[int, ...]:
    """One id, a list of ids, or nothing."""
    values = value if isinstance(value, list) else [value]
    return tuple(v for v in values if type(v) is int)


def _architectures(outer: Mapping[str, Any], file: str, findings: Collector) -> tuple[str, ...]:
    value = outer.get("architectures")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        findings.error(
            "config-field", file, f"architectures is {printable(repr(value), 60)} where a list of names is needed"
        )
        return ()
    return tuple(value)


def _rope_scaling(text: Mapping[str, Any], fields: _Fields) -> RopeScaling | None:
    # transformers 5 writes rope_parameters, with the plain kind spelt "default"
    block = text.get("rope_scaling")
    name = "rope_scaling"
    if block is None and isinstance(text.get("rope_parameters"), dict):
        block, name = text["rope_parameters"], "rope_parameters"
    if block is None:
        return None
    if not isinstance(block, dict):
        fields.bad(name, "an object or null")
        return None
    inner = _Fields(block, fields.file, fields.findings)
    kind = inner.text("rope_type", inner.text("type", ""))
    if kind in ("", "default"):
        if name == "rope_scaling" and kind == "":
            fields.bad(name, "an object with `type` or `rope_type`")
        return None
    scaling = RopeScaling(
        kind=kind,
        factor=inner.number("factor"),
        original_max_position_tokens=inner.opt_integer("original_max_position_embeddings"),
        raw=dict(block),
    )
    fields.is_good = fields.is_good and inner.is_good
    return scaling


def _dtype(outer: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for source in (text, outer):
        for name in ("torch_dtype", "dtype"):
            if isinstance(source.get(name), str):
                return str(source[name])
    return "bfloat16"
