"""Parameters of the stock Triton models of the engine path, as they stand in config.pbtxt: every value is text there.

Typed values are taken as well, so that a caller may keep numbers as numbers until it writes the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from seekserve.errors import ConfigError

from .finding import ArgFinding, error, warning
from .kinds import describe
from .tables import Entry, check_entry, table, table_names, unknown
from .values import shown
from .versions import VersionFacts, resolve_version

__all__ = ["MODELS", "validate_pbtxt_parameters"]

MODELS: Final = ("tensorrt_llm", "preprocessing", "postprocessing", "tensorrt_llm_bls", "placeholders")
_PATTERNS: Final = {"ints": re.compile(r"\d+(,\d+)*\Z"), "devices": re.compile(r"\d+(,\d+)*(;\d+(,\d+)*)*\Z")}
_LEFT_OVER: Final = re.compile(r"\$\{[^}]*\}")
_LOOKAHEAD: Final = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")


def validate_pbtxt_parameters(
    parameters: Mapping[str, object],
    version: str | VersionFacts,
    *,
    model: str = "tensorrt_llm",
    has_paged_context: bool | None = None,
) -> list[ArgFinding]:
    """`has_paged_context`: whether the engine was built with use_paged_context_fmha; None when that is not known."""
    target = resolve_version(version)
    if model not in table_names("pbtxt"):
        raise ConfigError(f"{model!r} is none of the stock models", hint=f"one of {', '.join(MODELS)}")
    if not target.has_stock_model:
        message = f"the stock {model} model runs engines, which TensorRT-LLM {target.version} does not have"
        return [error("stock-model", model, message, "use another topology, or a version up to 1.3.0rc20")]
    entries = table("pbtxt", model)
    found: list[ArgFinding] = []
    values: dict[str, object] = {}
    for name, raw in parameters.items():
        entry = entries.get(name)
        if entry is None:
            found.append(unknown(name, name, entries, f"the stock {model} model"))
            continue
        value, problem = _typed(entry, raw)
        if problem:
            found.append(problem)
        elif value is not None:
            values[name] = value
            found += check_entry(entry, value, name)
    missing = (name for name, entry in entries.items() if entry.is_required and name not in parameters)
    found += [
        error("parameter-missing", name, f"is missing, but the {model} model cannot start without it")
        for name in missing
    ]
    found += [*_lookahead(values), *_guided(values), *_encoder(values), *_context(values, has_paged_context)]
    return [*(each for each in found if each.is_error), *(each for each in found if not each.is_error)]


def _typed(entry: Entry, raw: object) -> tuple[object, ArgFinding | None]:
    """(value, None), or (None, None) for what counts as unset, or (None, what is wrong)."""
    name, kind = entry.field.name, entry.field.kind
    if kind.name in _PATTERNS:
        text = str(raw)
        wrong = error("argument-type", name, f"is {shown(raw)} where {describe(kind)} are due")
        if type(raw) is int or (isinstance(raw, str) and _PATTERNS[kind.name].match(text)):
            return text, _too_small(entry, text)
        return (None, None) if raw == "" else (None, wrong)
    if not isinstance(raw, str):
        return raw, None
    if _LEFT_OVER.search(raw):
        message = f"still holds the placeholder {raw}"
        return None, error("placeholder-left", name, message, "fill it in, or leave the parameter out")
    if raw == "":
        # The Python backend and the C++ one both take an empty text for "not set".
        missing = error("parameter-missing", name, "is empty") if entry.is_required else None
        return None, missing
    return _from_text(entry, raw)


def _from_text(entry: Entry, text: str) -> tuple[object, ArgFinding | None]:
    name, kind = entry.field.name, entry.field.kind
    wrong = error("argument-type", name, f'is "{text}" where {describe(kind)} is due')
    if kind.name == "bool":
        value = {"true": True, "false": False}.get(text.lower())
        return (value, None) if value is not None else (None, wrong)
    if kind.name in ("int", "float"):
        try:
            number = int(text) if kind.name == "int" else float(text)
        except ValueError:
            return None, wrong
        return (number, None) if math.isfinite(number) else (None, wrong)
    return text, None


def _too_small(entry: Entry, text: str) -> ArgFinding | None:
    least = entry.field.bounds.get("min")
    if least is not None and any(int(part) < least for part in re.split("[,;]", text)):
        return error("argument-range", entry.field.name, f"holds a number below {least:.0f}")
    return None


def _lookahead(values: Mapping[str, object]) -> Iterator[ArgFinding]:
    given = [name for name in _LOOKAHEAD if name in values]
    for name in _LOOKAHEAD:
        if given and name not in given:
            yield error("lookahead", name, f"is missing, but {given[0]} is set", "all three or none")
    if values.get("decoding_mode") == "lookahead" and not given:
        yield error(
            "lookahead", "decoding_mode", "is lookahead, but its three sizes are not set", ", ".join(_LOOKAHEAD)
        )


def _guided(values: Mapping[str, object]) -> Iterator[ArgFinding]:
    sources = ("tokenizer_dir", "xgrammar_tokenizer_info_path")
    if "guided_decoding_backend" in values and not any(name in values for name in sources):
        message = "is set, but neither tokenizer_dir nor xgrammar_tokenizer_info_path is"
        yield error("guided", "guided_decoding_backend", message, "C++ needs the second, Python the first")


def _encoder(values: Mapping[str, object]) -> Iterator[ArgFinding]:
    if "cross_kv_cache_fraction" in values and not values.get("encoder_model_path"):
        yield error("encoder", "cross_kv_cache_fraction", "is for encoder-decoder models only", "leave it out")


def _context(values: Mapping[str, object], has_paged_context: bool | None) -> Iterator[ArgFinding]:
    if has_paged_context is not False:
        return
    if values.get("enable_chunked_context") is True:
        message = "needs an engine built with --use_paged_context_fmha enable"
        yield error("paged-context", "enable_chunked_context", message, "rebuild it, or set false")
    if values.get("enable_kv_cache_reuse", True) is True:
        make = error if "enable_kv_cache_reuse" in values else warning
        message = "is on by default and needs an engine built with --use_paged_context_fmha enable"
        yield make("paged-context", "enable_kv_cache_reuse", message, "set it to false")
