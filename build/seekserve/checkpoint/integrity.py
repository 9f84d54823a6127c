"""Holds the files against each other: index and headers, tensors and the family's layout, dtypes and config.

Adds findings, decides nothing else. Every check is independent, so one report shows everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from .config import ModelConfig
from .findings import Collector, Severity
from .headers import TensorEntry
from .index import INDEX_FILE, REBUILD, FileSet
from .layout import LATENT, Block, Expected, canonical_name, mtp_layer_of, renamed_starts
from .precision import PACKED_DTYPES, PrecisionFound, packing, weight_of_scale
from .quantization import Quantization

__all__ = [
    "canonical_tensors",
    "check_declared_precision",
    "check_index",
    "check_layout",
    "check_rope",
    "mtp_layers_found",
]

_IGNORED_ENDINGS: Final = (
    *(".rotary_emb.inv_freq", ".k_scale", ".v_scale", ".kv_scale", ".q_scale"),
    *(".qweight", ".qzeros", ".scales", ".g_idx"),
)
_LONG_CONTEXT_TOKENS: Final = 16384


def check_index(
    files: FileSet,
    tensors: Mapping[str, TensorEntry],
    held_bytes: int,
    unreadable: frozenset[str],
    findings: Collector,
) -> None:
    """Both ways, by stored name. Shards that could not be read are left out: their fault is reported already."""
    if files.weight_map is None:
        return
    if not unreadable and files.total_bytes is not None and held_bytes != files.total_bytes:
        text = f"says total_size {files.total_bytes:,} bytes, the tensors have {held_bytes:,}"
        findings.note("index-total", INDEX_FILE, text)
    if {name: entry[0] for name, entry in tensors.items()} == files.weight_map:
        return
    readable = set(files.files) - unreadable
    absent, moved = [], []
    for name, file in files.weight_map.items():
        entry = tensors.get(name)
        if entry is None:
            if file in readable:
                absent.append((file, name))
        elif entry.file != file:
            moved.append((entry.file, f"{name} (index: {file})"))
    group, error = findings.group, Severity.ERROR
    group(error, "index-extra", absent, f"{{n}} tensors that the index places here are not in the header; {REBUILD}")
    group(error, "index-wrong-file", moved, f"{{n}} tensors lie in another shard than the index says; {REBUILD}")
    unlisted = [(entry.file, name) for name, entry in tensors.items() if name not in files.weight_map]
    group(error, "index-incomplete", unlisted, f"{{n}} tensors are in the shards but not in {INDEX_FILE}; {REBUILD}")


def canonical_tensors(
    stored: Mapping[str, TensorEntry], architecture: str, findings: Collector
) -> Mapping[str, TensorEntry]:
    """One spelling of the prefix; two stored names that mean the same tensor are an error."""
    starts = renamed_starts(architecture)
    changed = [name for name in stored if name.startswith(starts)]
    if not changed:
        return stored
    out = {canonical_name(name, architecture): entry for name, entry in stored.items()}
    if len(out) != len(stored):
        twice = [(stored[name].file, name) for name in changed if canonical_name(name, architecture) in stored]
        text = "{n} tensors are there both with and without the prefix `model.`"
        findings.group(Severity.ERROR, "tensor-twice", twice, text)
        return out
    hits = [(stored[name].file, name) for name in changed]
    spelt = "with" if changed[0].startswith("model.") else "without"
    others = ("layers.", "embed.", "norm.", "mtp.") if spelt == "with" else ("model.",)
    if any(name.startswith(others) for name in stored):
        text = f"{{n}} names are spelt {spelt} the prefix `model.`, the others not"
        findings.group(Severity.WARNING, "tensor-prefix", hits, text)
    else:
        text = f"all {{n}} names are spelt {spelt} the prefix `model.`; read as this family spells them"
        findings.group(Severity.NOTE, "tensor-prefix", hits, text)
    return out


def mtp_layers_found(
    tensors: Mapping[str, TensorEntry],
    blocks: Iterable[Block],
    unplaced: Iterable[str],
    config: ModelConfig,
    architecture: str,
) -> int:
    """Number of MTP layers that have at least one tensor, announced or not."""
    announced = (name for block in blocks if block.is_mtp for name, _ in block.tensors() if name in tensors)
    layers = {mtp_layer_of(name, config, architecture) for name in (*announced, *unplaced)}
    return len(layers - {None})


def check_layout(
    tensors: Mapping[str, TensorEntry],
    expected: Mapping[str, Expected],
    found: PrecisionFound,
    found_mtp: int,
    config: ModelConfig,
    architecture: str,
    config_file: str,
    findings: Collector,
) -> None:
    """Names and shapes; MTP layers may be absent as a whole, which is a warning and not a hundred missing tensors."""
    _check_mtp(found_mtp, config, config_file, findings)
    missing, misshapen = [], []
    for name, wanted in expected.items():
        entry = tensors.get(name)
        if entry is None:
            if not wanted.row.is_optional and not (wanted.is_mtp and not found_mtp):
                missing.append((_home(name, tensors), name))
        elif (entry[2] != wanted[1] or entry[1] in PACKED_DTYPES) and not _fits(entry, wanted):
            misshapen.append((entry.file, f"{name} {list(entry.shape)} instead of {list(wanted.shape)}"))
    unexpected = [
        (tensors[name].file, name)
        for name in found.unplaced
        if weight_of_scale(name) is None and not _is_known_extra(name, config, architecture)
    ]
    _explain_query(missing, unexpected, config, architecture, findings)
    missing = _without_packed(missing, tensors, findings)
    findings.group(Severity.ERROR, "tensor-missing", missing, f"{{n}} tensors that {architecture} needs are nowhere")
    findings.group(
        Severity.ERROR, "tensor-shape", misshapen, f"{{n}} tensors do not have the shape that {config_file} asks for"
    )
    findings.group(
        Severity.WARNING, "tensor-unexpected", unexpected, f"{{n}} tensors have names that {architecture} does not know"
    )


def _home(name: str, tensors: Mapping[str, TensorEntry]) -> str:
    """Where a missing tensor would be looked for: the file of its neighbour, else the index."""
    stem = name.rpartition(".")[0]
    for ending in (".weight_scale_inv", ".weight", ".bias"):
        if stem + ending in tensors:
            return tensors[stem + ending].file
    return INDEX_FILE


def _fits(entry: TensorEntry, wanted: Expected) -> bool:
    if entry.shape == wanted.shape:  # 8-bit integers, not packed
        return True
    factor = packing(entry)
    if factor == 1 or not wanted.row.is_projection or len(entry.shape) != len(wanted.shape):
        return False
    by_columns = (*entry.shape[:-1], entry.shape[-1] * factor)
    by_rows = (entry.shape[0] * factor, *entry.shape[1:])  # modelopt's AWQ
    return wanted.shape in (by_columns, by_rows)


def _is_known_extra(name: str, config: ModelConfig, architecture: str) -> bool:
    if name.endswith(_IGNORED_ENDINGS):
        return True
    if name == "lm_head.weight" and config.tie_word_embeddings:
        return True
    # layers beyond those announced are reported as a whole
    layer = mtp_layer_of(name, config, architecture)
    return layer is not None and (layer >= config.num_nextn_predict_layers or config.has("dspark_block_size"))


def _check_mtp(found: int, config: ModelConfig, file: str, findings: Collector) -> None:
    announced = config.num_nextn_predict_layers
    if found == announced:
        return
    if found == 0:
        findings.warning(
            "mtp-absent",
            file,
            f"num_nextn_predict_layers is {announced} but the shards hold no MTP layer; speculative decoding needs it",
        )
    elif found < announced:
        findings.error(
            "mtp-absent", file, f"num_nextn_predict_layers is {announced}, the shards hold {found} MTP layers"
        )
    elif not config.has("dspark_block_size"):
        findings.warning(
            "mtp-unannounced",
            file,
            f"the shards hold {found} MTP layers, num_nextn_predict_layers says {announced}; the others are not used",
        )


def _without_packed(
    missing: list[tuple[str, str]], tensors: Mapping[str, TensorEntry], findings: Collector
) -> list[tuple[str, str]]:
    """AWQ and GPTQ store `qweight` instead of every weight: one sentence, not thousands of missing tensors."""
    packed = [(tensors[q].file, q) for _, name in missing if (q := f"{name.removesuffix('weight')}qweight") in tensors]
    findings.group(
        Severity.ERROR,
        "weights-packed",
        packed,
        "{n} weights are stored as qweight (AWQ or GPTQ), which is not supported",
    )
    stems = {name.removesuffix("qweight") for _, name in packed}
    return [hit for hit in missing if hit[1].removesuffix("weight") not in stems]


def _explain_query(
    missing: list[tuple[str, str]],
    unexpected: list[tuple[str, str]],
    config: ModelConfig,
    architecture: str,
    findings: Collector,
) -> None:
    """q_lora_rank chooses between two attention variants; tensors of the other one deserve a sentence of their own."""
    if architecture not in LATENT:
        return
    plain = [hit for hit in unexpected if hit[1].endswith("self_attn.q_proj.weight")]
    low_rank = [hit for hit in unexpected if hit[1].endswith("self_attn.q_a_proj.weight")]
    if config.q_lora_rank is not None and plain and missing:
        text = f"q_lora_rank is {config.q_lora_rank} but {{n}} layers hold a plain q_proj; set q_lora_rank to null"
        findings.group(Severity.ERROR, "attention-query", plain, text)
    elif config.q_lora_rank is None and low_rank and missing:
        text = "q_lora_rank is null but {n} layers hold a low-rank query (q_a_proj); write its rank into the config"
        findings.group(Severity.ERROR, "attention-query", low_rank, text)


def check_declared_precision(
    found: PrecisionFound, declared: Quantization | None, config_file: str, weights_file: str, findings: Collector
) -> None:
    """The header dtypes decide what is there; a config that says otherwise makes every loader fail or give noise."""
    kinds, total = found.kinds, sum(found.kinds.values())
    if not kinds:
        return
    quantised = {kind: n for kind, n in kinds.items() if not kind.startswith(("bf16", "fp16", "fp32", "fp64"))}
    if declared is None:
        if quantised:
            findings.error(
                "precision-undeclared",
                config_file,
                f"has no quantization_config, but {_counts(quantised)} of {total:,} projections are quantised "
                f"(first seen in {weights_file}); restore the block of the release",
            )
        return
    wanted = {declared.kind} | ({declared.expert_kind} if declared.expert_kind else set())
    if declared.kind in ("mixed", "unknown") or not wanted & KNOWN_KINDS:
        findings.warning(
            "precision-unchecked",
            declared.file,
            f"quantisation {declared.method} ({declared.kind}) is not checked further",
        )
        return
    if not quantised:
        findings.error(
            "precision-not-found",
            declared.file,
            f"declares {declared.method} ({declared.kind}), but the projections are {_counts(kinds)}, without scales; "
            "remove quantization_config, or take the config of this export",
        )
        return
    foreign = {kind: n for kind, n in quantised.items() if kind not in wanted}
    if foreign:
        findings.error(
            "precision-differs",
            declared.file,
            f"declares {' and '.join(sorted(wanted))}, the tensors hold {_counts(foreign)} of {total:,} projections"
            + ("; add its weight_block_size" if "fp8_block" in foreign and declared.kind == "fp8_tensor" else ""),
        )
    absent = sorted(wanted - set(quantised))
    if absent and not foreign:
        findings.error("precision-differs", declared.file, f"declares {' and '.join(absent)}, no tensor is stored so")


KNOWN_KINDS: Final = frozenset({"fp8_block", "fp8_tensor", "fp8_channel", "nvfp4", "mxfp4", "w4afp8", "w4a8_awq"})


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))


def check_rope(config: ModelConfig, architecture: str, file: str, findings: Collector) -> None:
    """Lost RoPE scaling shows as repetition far into an answer; here it is a sentence."""
    limit = config.max_position_tokens
    if architecture in LATENT and config.rope_scaling is None and limit and limit > _LONG_CONTEXT_TOKENS:
        findings.warning(
            "rope-missing",
            file,
            f"max_position_embeddings is {limit:,} without rope_scaling; releases of this family have a yarn block",
        )
    rope = config.rope_scaling
    # llama3 stretches the low frequencies only, and Meta's own limit is 16 times the original at factor 8.
    if rope and rope.kind != "llama3" and rope.factor and rope.original_max_position_tokens and limit:
        reach = rope.factor * rope.original_max_position_tokens
        if limit > reach:
            findings.warning(
                "rope-reach",
                file,
                f"max_position_embeddings {limit:,} is beyond factor x original = {reach:,.0f} tokens",
            )
