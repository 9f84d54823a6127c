"""The config.json of a built engine: read in both shapes that exist, held against the bundle, rank files counted.

Newer builders write `{version, pretrained_config, build_config}`; those before 0.8 wrote `{builder_config,
plugin_config}`. Neither is an error, and a limit that the file does not state stays unknown: it is never invented.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from seekserve.errors import BundleError
from seekserve.output import os_error_text, problems_text

from .facts import EngineFacts
from .faults import engine_faults
from .fields import Section

__all__ = ["ENGINE_CONFIG", "EngineFacts", "engine_faults", "read_engine_config"]

ENGINE_CONFIG = "config.json"
_FLOAT_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_CACHE_NAMES = {"FP8": "fp8_e4m3", "INT8": "int8", "NVFP4": "nvfp4"}
_REBUILD = "build it again with `seekserve build-engine CHECKPOINT --out BUNDLE --engine trtllm-engine`"


def read_engine_config(folder: Path) -> EngineFacts:
    """Raises BundleError with every fault of the file: neither shape, a missing limit, a value of another type."""
    path = folder / ENGINE_CONFIG
    root = Section(data=_read(path), where="", problems=[])
    is_newer, is_older = root.has("build_config"), root.has("builder_config")
    if is_newer == is_older:
        found = "both of them" if is_newer else "neither"
        raise BundleError(
            f"{path}: an engine's config.json holds build_config (newer builders) or builder_config (older ones), "
            f"this one has {found}",
            hint=f"is {folder} an engine folder? {_REBUILD}",
        )
    facts = _newer(folder, root) if is_newer else _older(folder, root)
    if root.problems:
        raise BundleError(problems_text(str(path), root.problems), hint=_REBUILD)
    return facts


def _read(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{path.parent}: no {path.name} in it, so it is no engine", hint=_REBUILD) from None
    except OSError as error:
        raise BundleError(f"cannot read {os_error_text(error)}") from error
    except json.JSONDecodeError as error:
        raise BundleError(f"{path}, line {error.lineno}: is not JSON: {error.msg}", hint=_REBUILD) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{path}: is not JSON: {error}", hint=_REBUILD) from None
    if not isinstance(data, dict):
        raise BundleError(f"{path}: holds no object", hint=_REBUILD)
    return data


def _newer(folder: Path, root: Section) -> EngineFacts:
    model, build = root.section("pretrained_config"), root.section("build_config")
    mapping, quantization = model.section("mapping"), model.section("quantization", needed=False)
    plugins = build.section("plugin_config")
    tp, pp = mapping.integer("tp_size", 1), mapping.integer("pp_size", 1)
    world = mapping.integer("world_size", tp * pp)
    dtype = _float_name(model.text("dtype"))
    paged = plugins.opt_flag("paged_kv_cache")
    return EngineFacts(
        folder=folder,
        shape="build_config",
        version=root.text("version"),
        architecture=model.text("architecture"),
        dtype=dtype,
        quant_algo=quantization.opt_text("quant_algo"),
        kv_dtype=_cache_name(quantization.opt_text("kv_cache_quant_algo"), dtype),
        tp=tp,
        pp=pp,
        world_size=world,
        moe_tp=mapping.opt_integer("moe_tp_size"),
        moe_ep=mapping.opt_integer("moe_ep_size"),
        max_batch_size=build.integer("max_batch_size"),
        max_seq_len_tokens=_longest(build),
        max_num_tokens=build.opt_integer("max_num_tokens"),
        max_beam_width=build.integer("max_beam_width", 1),
        max_draft_tokens=build.integer("max_draft_len", 0),
        kv_cache_type=build.opt_text("kv_cache_type") or _paged_word(paged),
        paged_context=plugins.flag("use_paged_context_fmha", False),
        fp8_context=plugins.flag("use_fp8_context_fmha", False),
        tokens_per_block=plugins.opt_integer("tokens_per_block"),
        engine_bytes=tuple(_rank_bytes(folder, rank) for rank in range(world)),
    )


def _older(folder: Path, root: Section) -> EngineFacts:
    build, plugins = root.section("builder_config"), root.section("plugin_config")
    tp, pp = build.integer("tensor_parallel", 1), build.integer("pipeline_parallel", 1)
    dtype = _float_name(build.opt_text("precision"))
    kv_dtype = _older_cache(build, dtype)
    return EngineFacts(
        folder=folder,
        shape="builder_config",
        version=root.opt_text("version"),
        architecture=build.opt_text("name"),
        dtype=dtype,
        quant_algo=None,
        kv_dtype=kv_dtype,
        tp=tp,
        pp=pp,
        world_size=tp * pp,
        moe_tp=None,
        moe_ep=None,
        max_batch_size=build.integer("max_batch_size"),
        max_seq_len_tokens=_longest(build),
        max_num_tokens=build.opt_integer("max_num_tokens"),
        max_beam_width=build.integer("max_beam_width", 1),
        max_draft_tokens=build.integer("max_draft_len", 0),
        kv_cache_type=_paged_word(plugins.opt_flag("paged_kv_cache")),
        paged_context=plugins.flag("use_paged_context_fmha", False),
        fp8_context=plugins.flag("use_fp8_context_fmha", False),
        tokens_per_block=plugins.opt_integer("tokens_per_block"),
        engine_bytes=tuple(_rank_bytes(folder, rank) for rank in range(tp * pp)),
    )


def _longest(build: Section) -> int:
    """Up to 0.10 builders wrote prompt and answer apart."""
    if build.has("max_seq_len") or not build.has("max_output_len"):
        return build.integer("max_seq_len")
    return build.integer("max_input_len") + build.integer("max_output_len")


def _older_cache(build: Section, dtype: str | None) -> str | None:
    """Up to 0.7 the quantisation is a bit mask of TensorRT-LLM's own, which says nothing that could be relied on."""
    mode = build.opt_integer("quant_mode")
    return dtype if mode in (None, 0) and not build.flag("int8", False) else None


def _float_name(word: str | None) -> str | None:
    return None if word is None else _FLOAT_NAMES.get(word, word)


def _cache_name(algo: str | None, dtype: str | None) -> str | None:
    return dtype if algo is None else _CACHE_NAMES.get(algo.upper(), algo)


def _paged_word(is_paged: bool | None) -> str | None:
    return None if is_paged is None else ("PAGED" if is_paged else "CONTINUOUS")


def _rank_bytes(folder: Path, rank: int) -> int | None:
    return next((path.stat().st_size for path in _rank_files(folder, rank) if path.is_file()), None)


def _rank_files(folder: Path, rank: int) -> Iterator[Path]:
    """Builders before 0.8 put the model's name in front: llama_float16_tp2_rank1.engine."""
    yield folder / f"rank{rank}.engine"
    yield from sorted(folder.glob(f"*_rank{rank}.engine"))
