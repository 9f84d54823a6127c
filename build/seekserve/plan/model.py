"""The model that is planned for: config, layout and weights, from a checkpoint folder or from a bare config.json.

Of a folder every header is read and errors stop the plan; of a bare config.json the weights are what the family's
layout and the declared precision make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seekserve.checkpoint import ModelConfig, ModelFacts, Severity, read_checkpoint, read_config, verify
from seekserve.checkpoint.config import read_json
from seekserve.checkpoint.facts import HF_QUANT_CONFIG
from seekserve.checkpoint.families import Identity, identify, missing_fields
from seekserve.checkpoint.findings import Collector
from seekserve.checkpoint.hub import find_checkpoint
from seekserve.checkpoint.layout import Block, layout
from seekserve.checkpoint.parameters import Parameters, count_parameters
from seekserve.checkpoint.quantization import Quantization, from_modelopt
from seekserve.errors import CheckpointError

from .names import default_name
from .weights import WeightGroup, declared_groups, stored_groups

__all__ = ["Model", "model_of", "read_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    config: ModelConfig
    architecture: str
    family: str
    title: str
    default_name: str
    precision: str
    """fp8_block, bf16, fp8_block+mxfp4, ..."""
    groups: tuple[WeightGroup, ...]
    quantisable: frozenset[str]
    """Names of groups that may be stored quantised."""
    parameters: Parameters
    source: str
    """Where the weights' sizes come from, for people."""
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The title without its explanation."""
        return self.title.partition(" (")[0]

    @property
    def mtp_layers(self) -> int:
        """Layers that the checkpoint holds."""
        return len({group.layer for group in self.groups if group.is_mtp})

    @property
    def main_bytes(self) -> int:
        """All weights without MTP, each once."""
        return sum(group.size_bytes for group in self.groups if not group.is_mtp)

    @property
    def is_moe(self) -> bool:
        return self.config.n_routed_experts > 0


def read_model(path_or_id: str) -> Model:
    """Raises CheckpointError when there is nothing to plan for: no file, an unknown family, a broken checkpoint."""
    path = Path(path_or_id).expanduser()
    if path.is_file():
        return _from_config(path)
    folder = find_checkpoint(path_or_id)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.safetensors.index.json")):
        return _from_config(folder / "config.json")
    return model_of(read_checkpoint(folder))


def model_of(facts: ModelFacts) -> Model:
    """Of a checkpoint that was read already. Raises CheckpointError when it is broken or of an unknown family."""
    folder = facts.folder
    verify(facts)
    if facts.config is None or not facts.has_layout:
        raise CheckpointError(f"{folder}: {facts.identity.title}: the tensors of this family are not known")
    blocks = layout(facts.config, facts.architecture)
    return Model(
        config=facts.config,
        architecture=facts.architecture,
        family=facts.family,
        title=facts.identity.title,
        default_name=default_name(folder.absolute()),
        precision=facts.precision,
        groups=stored_groups(blocks, facts.tensors),
        quantisable=_quantisable(blocks),
        parameters=facts.parameters,
        source=f"headers of {len(facts.files)} safetensors files",
        warnings=tuple(str(finding) for finding in facts.findings if finding.severity is Severity.WARNING),
    )


def _from_config(path: Path) -> Model:
    config, findings = read_config(path), Collector()
    identity = identify(config, None, findings, path.name)
    if identity.architecture == "unknown":
        raise CheckpointError(f"{path}: {identity.title}", hint="the plan knows the families that `inspect` names")
    missing_fields(config, identity.architecture, findings, path.name)
    errors = [f.message for f in findings.findings if f.severity is Severity.ERROR]
    if errors:
        raise CheckpointError(f"{path}: " + "; ".join(errors))
    return _declared_model(path, config, identity, _declared(path, config))


def _declared_model(path: Path, config: ModelConfig, identity: Identity, declared: Quantization | None) -> Model:
    blocks = layout(config, identity.architecture)
    try:
        groups = declared_groups(blocks, config, declared)
    except KeyError as error:
        raise CheckpointError(
            f"{path}: declares precision {error.args[0]}, whose bytes are in the tensors only",
            hint="give the whole checkpoint folder",
        ) from None
    return Model(
        config=config,
        architecture=identity.architecture,
        family=identity.family,
        title=identity.title,
        default_name=default_name(path.absolute().parent if path.name == "config.json" else path.with_suffix("")),
        precision=_precision(config, declared),
        groups=groups,
        quantisable=_quantisable(blocks),
        parameters=count_parameters(blocks),
        source=f"layout of {path.name} and its declared precision",
    )


def _declared(path: Path, config: ModelConfig) -> Quantization | None:
    """NVIDIA's re-exports say it in a file beside config.json."""
    beside = path.parent / HF_QUANT_CONFIG
    raw = read_json(beside, Collector()) if path.name == "config.json" and beside.is_file() else None
    block = raw.get("quantization") if raw else None
    if isinstance(block, dict) and block.get("quant_algo"):
        return from_modelopt(block, HF_QUANT_CONFIG)
    return config.quantization


def _precision(config: ModelConfig, declared: Quantization | None) -> str:
    if declared is None:
        return {"float16": "fp16", "float32": "fp32"}.get(config.dtype, "bf16")
    return "+".join(sorted({declared.kind, *([declared.expert_kind] if declared.expert_kind else [])}))


def _quantisable(blocks: tuple[Block, ...]) -> frozenset[str]:
    names = set()
    for block in blocks:
        start = "experts.*." if "{expert}" in block.prefix else ""
        names |= {start + row.row.name for row in block.rows if row.row.is_projection}
    return frozenset(names)
