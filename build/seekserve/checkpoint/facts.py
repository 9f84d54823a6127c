"""ModelFacts: all that the files of a checkpoint say, frozen. Made by `read_checkpoint`, used by every later step.

Bad content becomes findings; only the lack of anything to read is an exception. `verify` turns errors into one.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import CheckpointError
from seekserve_backend.text.chat.formats import built_in_format

from .config import CONFIG_FILE, ModelConfig, parse_config, read_json
from .families import Identity, identify, missing_fields
from .findings import Collector, Finding, Severity
from .headers import ShapeCache, TensorEntry, read_header
from .hub import find_checkpoint
from .index import FileSet, find_files
from .integrity import (
    canonical_tensors,
    check_declared_precision,
    check_index,
    check_layout,
    check_rope,
    mtp_layers_found,
)
from .layout import LATENT, MAX_TENSORS, Block, expected_tensors, layout
from .parameters import Parameters, count_parameters
from .precision import examine_precision, packing, weight_of_scale
from .quantization import Quantization, from_modelopt
from .tokenizer import TOKENIZER_CONFIG, TokenizerFacts, read_tokenizer

__all__ = ["ModelFacts", "read_checkpoint", "tensor_locations", "verify"]

HF_QUANT_CONFIG = "hf_quant_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    folder: Path
    config: ModelConfig | None
    """None when config.json is absent or unusable."""
    identity: Identity
    tokenizer: TokenizerFacts
    files: tuple[str, ...]
    """Safetensors files, sorted."""
    tensors: Mapping[str, TensorEntry]
    """By canonical name (`layout.canonical_name`)."""
    parameters: Parameters
    bytes_by_dtype: Mapping[str, int]
    precision: str
    """Found in the headers: fp8_block, bf16, fp8_block+mxfp4, ...; `unknown` without readable projections."""
    precision_declared: str
    """What the config files say."""
    mtp_layers: int
    """Found in the shards; the config's own number is config.num_nextn_predict_layers."""
    has_layout: bool
    """The family's tensors and cache could be derived from the config."""
    findings: tuple[Finding, ...]

    @property
    def family(self) -> str:
        return self.identity.family

    @property
    def architecture(self) -> str:
        return self.identity.architecture

    @property
    def weights_bytes(self) -> int:
        return sum(self.bytes_by_dtype.values())

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


def read_checkpoint(path_or_id: str | Path) -> ModelFacts:
    """Raises CheckpointError only when there is nothing to read; whatever is wrong inside is in `findings`."""
    folder = find_checkpoint(path_or_id)
    findings = Collector()
    try:
        with _collector_paused():
            return _read(folder, findings)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """A full-size checkpoint makes half a million objects that all stay: looking for garbage among them is wasted."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def verify(facts: ModelFacts) -> None:
    """Raises CheckpointError with every error finding; warnings and notes pass."""
    if not facts.errors:
        return
    lines = "".join(f"\n  - [{f.code}] {f.file}: {f.message}" for f in facts.errors)
    count = len(facts.errors)
    raise CheckpointError(
        f"{facts.folder}: {count} error{'s' if count > 1 else ''} in the checkpoint{lines}",
        hint=f"seekserve inspect {facts.folder} shows the whole report",
    )


def tensor_locations(folder: Path) -> Mapping[str, TensorEntry]:
    """Canonical name -> file, dtype, shape and byte range. Raises CheckpointError when the checkpoint has errors."""
    facts = read_checkpoint(folder)
    verify(facts)
    return facts.tensors


def _read(folder: Path, findings: Collector) -> ModelFacts:
    config = _read_config(folder, findings)
    files = find_files(folder, findings)
    if config is None and not files.files and files.weight_map is None:
        raise CheckpointError(
            f"{folder}: neither {CONFIG_FILE} nor safetensors files", hint="name the folder of a downloaded model"
        )
    tokenizer = read_tokenizer(folder, config, findings)
    identity, blocks = _identify(config, tokenizer, findings)
    stored, unreadable = _read_headers(folder, files, findings)
    bytes_by_dtype = _bytes_by_dtype(stored)
    check_index(files, stored, sum(bytes_by_dtype.values()), unreadable, findings)
    tensors = canonical_tensors(stored, identity.architecture, findings)
    expected = expected_tensors(blocks)
    declared = _declared(folder, config, findings)
    found = examine_precision(tensors, expected, declared.block_shape if declared else None, findings)
    mtp = 0
    if config is not None and tensors:
        mtp = mtp_layers_found(tensors, blocks, found.unplaced, config, identity.architecture)
        if expected:
            check_layout(tensors, expected, found, mtp, config, identity.architecture, CONFIG_FILE, findings)
        check_declared_precision(found, declared, CONFIG_FILE, files.files[0], findings)
    if unreadable:
        findings.note("report-partial", CONFIG_FILE, "tensors of unreadable shards count as missing in this report")
    return ModelFacts(
        folder=folder,
        config=config,
        identity=identity,
        tokenizer=tokenizer,
        files=files.files,
        tensors=tensors,
        parameters=_parameters(blocks, tensors, mtp),
        bytes_by_dtype=bytes_by_dtype,
        precision=found.main,
        precision_declared=_declared_word(config, declared),
        mtp_layers=mtp,
        has_layout=bool(blocks),
        findings=tuple(sorted(findings.findings, key=lambda f: list(Severity).index(f.severity))),
    )


def _read_config(folder: Path, findings: Collector) -> ModelConfig | None:
    raw = read_json(folder / CONFIG_FILE, findings)
    return None if raw is None else parse_config(raw, CONFIG_FILE, findings)


def _identify(
    config: ModelConfig | None, tokenizer: TokenizerFacts, findings: Collector
) -> tuple[Identity, tuple[Block, ...]]:
    if config is None:
        return Identity(architecture="unknown", family="unknown", title=f"unknown (no usable {CONFIG_FILE})"), ()
    identity = identify(config, tokenizer.chat_template, findings, CONFIG_FILE)
    if tokenizer.chat_template is None:
        built_in = built_in_format(identity.family)
        served = f"chats are rendered as {built_in.title} has them" if built_in else "only raw prompts can be served"
        findings.note("chat-template-missing", TOKENIZER_CONFIG, f"has no chat_template; {served}")
    if missing_fields(config, identity.architecture, findings, CONFIG_FILE):
        return identity, ()
    check_rope(config, identity.architecture, CONFIG_FILE, findings)
    if identity.architecture in LATENT:
        query = "plain (q_lora_rank null)" if config.q_lora_rank is None else f"low-rank ({config.q_lora_rank})"
        findings.note(
            "attention-variant", CONFIG_FILE, f"latent attention, query {query}, {config.kv_lora_rank} latent lanes"
        )
    blocks = layout(config, identity.architecture)
    count = sum(block.tensor_count for block in blocks)
    if count > MAX_TENSORS:
        findings.error(
            "config-size", CONFIG_FILE, f"asks for {count:,} tensors where at most {MAX_TENSORS:,} are believed"
        )
        return identity, ()
    return identity, blocks


def _read_headers(folder: Path, files: FileSet, findings: Collector) -> tuple[dict[str, TensorEntry], frozenset[str]]:
    stored: dict[str, TensorEntry] = {}
    unreadable = set()
    twice: list[tuple[str, str]] = []
    sizes: ShapeCache = {}
    for file in files.files:
        header = read_header(folder / file, sizes)
        findings.findings += header.findings
        if not header.is_readable:
            unreadable.add(file)
        if not header.tensors.keys().isdisjoint(stored.keys()):
            twice += [(file, f"{name} (also in {stored[name].file})") for name in header.tensors if name in stored]
        stored.update(header.tensors)
    findings.group(Severity.ERROR, "tensor-twice", twice, "{n} tensors are in two shards; one of them is stale")
    return stored, frozenset(unreadable)


def _declared(folder: Path, config: ModelConfig | None, findings: Collector) -> Quantization | None:
    """NVIDIA's re-exports say it in hf_quant_config.json, beside or instead of quantization_config."""
    path = folder / HF_QUANT_CONFIG
    raw = read_json(path, findings) if path.is_file() else None
    block = raw.get("quantization") if raw else None
    if isinstance(block, dict) and block.get("quant_algo"):
        return from_modelopt(block, HF_QUANT_CONFIG)
    return config.quantization if config else None


def _declared_word(config: ModelConfig | None, declared: Quantization | None) -> str:
    if declared is not None:
        return "+".join(sorted({declared.kind, *([declared.expert_kind] if declared.expert_kind else [])}))
    if config is None:
        return "unknown"
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(config.dtype, config.dtype)


def _parameters(blocks: tuple[Block, ...], tensors: Mapping[str, TensorEntry], mtp_layers: int) -> Parameters:
    if blocks:
        return count_parameters(blocks, with_mtp=mtp_layers > 0 or not tensors)
    stored = sum(_elements(entry) for name, entry in tensors.items() if weight_of_scale(name) is None)
    return Parameters(main=stored, active=None, mtp=0, stored=stored, by_part={})


def _elements(entry: TensorEntry) -> int:
    out = packing(entry) if len(entry.shape) > 1 else 1
    for extent in entry.shape:
        out *= extent
    return out


def _bytes_by_dtype(tensors: Mapping[str, TensorEntry]) -> dict[str, int]:
    out: dict[str, int] = {}
    for _, dtype, _, begin, end in tensors.values():
        out[dtype] = out.get(dtype, 0) + end - begin
    return dict(sorted(out.items(), key=lambda item: -item[1]))
