"""What each TensorRT-LLM version can do, as data in facts/*.yaml, and one resolver over it.

    known_versions, resolve_version         which versions can be aimed at
    support, families_for                   which model runs on which engine kind
    validate_llm_args                       arguments of tensorrt_llm.LLM, nested
    parse_set, load_extra_args, overlay     a user's own arguments, from flags and from a file
    validate_build_flags                    trtllm-build, convert_checkpoint.py, quantize.py
    validate_pbtxt_parameters               parameters of the stock Triton models

Validation returns findings and changes nothing: what was not given stays absent. What the sources do not establish is a
warning that says "unverified", never silence.
"""

from __future__ import annotations

from .arguments import validate_llm_args
from .case import ModelCase
from .families import Support, families_for, support
from .finding import ArgFinding, raise_errors
from .given import load_extra_args, overlay, parse_set
from .pbtxt import validate_pbtxt_parameters
from .tools import TOOLS, validate_build_flags
from .versions import ENGINE_KINDS, VersionFacts, known_versions, resolve_version

__all__ = [
    "ENGINE_KINDS",
    "TOOLS",
    "ArgFinding",
    "ModelCase",
    "Support",
    "VersionFacts",
    "families_for",
    "known_versions",
    "load_extra_args",
    "overlay",
    "parse_set",
    "raise_errors",
    "resolve_version",
    "support",
    "validate_build_flags",
    "validate_llm_args",
    "validate_pbtxt_parameters",
]
